"""Who asks an engine's verbs, and which sessions there are for them (I-19).

A token is for one tenant: sessions, keys, events and replies of others are not there. One whose
tenant is `*` and whose scope is `admin` is the operator's: it is trusted as a process is that opens
the store itself.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict

from holdfast.domain.reset_policy import asking_scope, scope_of
from holdfast.engine.protocol import Engine
from holdfast.engine.remote.verbs import LIMIT_MAX, Verb
from holdfast.errors import BadArgument
from holdfast.runtime.live.tenancy import owned
from holdfast.server.auth import Identity
from holdfast.server.problems import WireProblem

ALL_TENANTS = "*"
COUNT_MAX = 1 << 62
OWNED_MAX = 20_000
NOT_THERE: dict[str, Any] = {}
"""The arguments of a question whose answer is that there is nothing."""


class Ownership:
    """Which sessions are known to be whose. A session's tenant never changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, str] = {}

    def owns(self, tenant: str, session: str) -> bool:
        """Whether there is such a session and it is this tenant's; it may read from the store."""
        known = self._known.get(session)
        if known is not None:
            return known == tenant
        state = owned(self._engine, tenant, session)
        if state is None:
            return False
        # All at once: which of them come again is not known, and each costs one look.
        if len(self._known) >= OWNED_MAX:
            self._known.clear()
        self._known[session] = tenant
        return True

    def own(self, tenant: str, sessions: Iterable[str]) -> list[str]:
        """Those of these sessions that are this tenant's."""
        return [session for session in sessions if self.owns(tenant, session)]


def sees_all(who: Identity) -> bool:
    """Whether it is the operator who asks."""
    return who.tenant == ALL_TENANTS and "admin" in who.scopes


def insist_on_all(who: Identity) -> None:
    """Refuses whoever is not the operator: what is asked is about the whole store."""
    if not sees_all(who):
        detail = "This is about the whole store; it needs the operator's token."
        raise WireProblem("forbidden", detail, scope="admin")


def fitting(
    verb: Verb[Any], asked: Any, who: Identity, ownership: Ownership
) -> dict[str, Any]:
    """The arguments of a question, with nothing in them that is another tenant's; `NOT_THERE` when
    nothing is left to ask about.
    """
    fields = asdict(asked)
    _insist_on_counts(fields)
    if sees_all(who):
        return fields
    tenant = who.tenant
    sought = fields.get("sought")
    if fields.get("tenant", tenant) != tenant or (
        sought is not None and sought.tenant != tenant
    ):
        return NOT_THERE
    if "session" in fields and not ownership.owns(tenant, fields["session"]):
        return NOT_THERE
    if "scope" in fields and not is_own_scope(fields["scope"], tenant):
        return NOT_THERE
    # The others are left out and not refused: it must not be told which of them exist.
    if "sessions" in fields:
        fields["sessions"] = ownership.own(tenant, fields["sessions"])
    return fields


def is_own_scope(scope: str, tenant: str) -> bool:
    """Whether events of this scope are this tenant's."""
    # As `scope_of` begins, with a key or without one.
    whose = scope_of(tenant, key="", session="").removesuffix("key ")
    return scope.startswith((whose, asking_scope(whose)))


def _insist_on_counts(fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        most = LIMIT_MAX if name == "limit" else COUNT_MAX
        # Not `isinstance`: True is an int, too, and is no count.
        if type(value) is int and not 0 <= value <= most:
            takes = f"a number from 0 to {most}"
            raise BadArgument(parameter=name, takes=takes, given=str(value)[:40])
        if isinstance(value, list) and len(value) > LIMIT_MAX:
            takes = f"at most {LIMIT_MAX} of them"
            raise BadArgument(parameter=name, takes=takes, given=str(len(value)))
