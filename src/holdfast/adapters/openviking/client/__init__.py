"""A durable outbox in front of OpenViking's HTTP API.

    your program ──add_message──► Holdfast session ──sender──► POST /sessions/{id}/messages/batch
                 ──commit───────► delivery log     ──sender──► POST /sessions/{id}/commit

A message is durable in Holdfast when the call returns; a sender carries it to OpenViking, which has
no idempotency keys. So our message ids ride along in `source_message_ids`. Before a request is sent,
the delivery log says that it is going to be; when an answer was lost, OpenViking is read first, and
only what did not arrive is sent again.

    outgoing      what a message of ours is in OpenViking
    position      how far a session has come; from what was seen to what is to be stored (pure)
    deliveries    where positions are kept: a session of the same store, whose turn is the lease
    http_connection  requests, and what can be said of one that was not answered
    arrived       what of ours OpenViking has
    sender        one session: load, decide, send, store
    commits       one commit: asked for, accepted, its task followed to its end
    workers       threads that send, and when they try again
    unsent        which sessions have something left
    options       what a client is given
    client        the faces
"""

from holdfast.adapters.openviking.client.client import Client, CommitHandle
from holdfast.adapters.openviking.client.client_async import (
    AsyncClient,
    AsyncCommitHandle,
)
from holdfast.adapters.openviking.client.position import MessageRefused
from holdfast.adapters.openviking.client.reports import CommitReport, DeliveryReport
from holdfast.adapters.openviking.client.unsent import UnsentSession

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
