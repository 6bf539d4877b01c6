"""The Claude Agent SDK's own conformance suite, on Holdfast."""

import anyio
import pytest
from claude_agent_sdk.testing import run_session_store_conformance

import holdfast
from holdfast.adapters.claude_agent import HoldfastSessionStore


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_sdks_own_suite_passes_with_every_optional_method(where: str, backend: str) -> None:
    """Each of its fourteen contracts gets a store of its own: another tenant of one place."""
    with holdfast.open(where) as store:
        tenants = iter(range(1000))

        def fresh() -> HoldfastSessionStore:
            return HoldfastSessionStore(store.for_tenant(f"contract-{next(tenants)}"))

        anyio.run(run_session_store_conformance, fresh, backend=backend)
        # A probe and one for each contract (one of them needs none of its own).
        assert next(tenants) == 15
