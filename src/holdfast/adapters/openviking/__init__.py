"""OpenViking: its clients and its server, each with Holdfast on the other side."""

from holdfast.adapters.openviking.client import (
    AsyncClient,
    AsyncCommitHandle,
    Client,
    CommitHandle,
    CommitReport,
    DeliveryReport,
    MessageRefused,
    UnsentSession,
)

__all__ = [
    "AsyncClient",
    "AsyncCommitHandle",
    "Client",
    "CommitHandle",
    "CommitReport",
    "DeliveryReport",
    "MessageRefused",
    "UnsentSession",
]
