"""Whose a session is, where its own row and what is kept beside it disagree (I-19).

A store names the tenant of a session in its row, and again with each message that waits in it and
each reply that it owes; and a past is shared within one tenant. One damaged cell makes a session, or
what waits in it, that of somebody who does not exist: it would vanish from every list, in silence,
and its forks could not be read. Two that agree outweigh it.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from msgspec.structs import replace

from holdfast.engine.protocol import Engine, SessionState
from holdfast.errors import Damaged

PAGE = 1000


class Filing:
    """Under which tenants the inboxes and outboxes of these sessions are kept. `states` are the
    sessions as they are to be healed; `problems` what was wrong with those that were not in order.
    """

    def __init__(self, engine: Engine, states: Sequence[SessionState]) -> None:
        self.problems: dict[str, str] = {}
        self.states = list(states)
        self._found: dict[str, set[str]] = {}
        self._listed: Counter[str] = Counter()
        self._relatives = _relatives(states)
        many = Counter(state.tenant for state in states)
        try:
            for tenant in many:
                self._look(engine, tenant)
            self.states = [self._settled(engine, state, many) for state in states]
        except Damaged:
            # What can't be read says nothing of whose it is.
            self.problems.clear()
            self.states = list(states)

    def _look(self, engine: Engine, tenant: str) -> None:
        for session in (*_waiting(engine, tenant), *_owing(engine, tenant)):
            self._found.setdefault(session, set()).add(tenant)
            self._listed[session] += 1

    def _settled(
        self, engine: Engine, state: SessionState, many: Counter[str]
    ) -> SessionState:
        id = state.id
        named = self._found.get(id, set())
        rows = _kept(engine, id)
        if named <= {state.tenant} and rows == self._listed[id]:
            return state if named else self._with_relatives(state, many)
        # Everything else names one tenant, and nobody but this row its own: that cell is wrong.
        if len(named) == 1 and rows == self._listed[id] and many[state.tenant] == 1:
            [tenant] = named
            was = (
                "the row of the session names another tenant than its inbox and outbox"
            )
            self.problems[id] = f"{was} ({state.tenant!r})"
            return replace(state, tenant=tenant)
        self.problems[id] = "its inbox or its outbox is kept under another tenant"
        return state

    def _with_relatives(self, state: SessionState, many: Counter[str]) -> SessionState:
        """A session that nothing beside it speaks for: those that it shares a past with do, if they
        are of one tenant who has others too, and its own tenant has nobody else.
        """
        tenants = self._relatives.get(state.id, set())
        if len(tenants) != 1 or many[state.tenant] > 1:
            return state
        [tenant] = tenants
        # Two who have nothing but each other: nobody can tell which of the two is wrong.
        if tenant == state.tenant or many[tenant] == 1:
            return state
        was = "the row of the session names another tenant than those it shares a past with"
        self.problems[state.id] = f"{was} ({state.tenant!r})"
        return replace(state, tenant=tenant)


def _relatives(states: Sequence[SessionState]) -> dict[str, set[str]]:
    """The tenants of the sessions that each shares a past with."""
    found: dict[str, set[str]] = {}
    tenants = {state.id: state.tenant for state in states}
    for state in states:
        parent = state.parent if state.origin else None
        if parent in tenants:
            found.setdefault(state.id, set()).add(tenants[parent])
            found.setdefault(parent, set()).add(state.tenant)
    return found


def _kept(engine: Engine, session: str) -> int:
    """How many messages wait in a session, and how many replies it owes. What names no entry is in
    no list, whosever it is.
    """
    count = len(engine.debts(session))
    for waiting in engine.inbox(session):
        page = engine.entries(session, after=waiting.seq - 1, limit=1, bodies=False)
        count += [entry.seq for entry in page] == [waiting.seq]
    return count


def _waiting(engine: Engine, tenant: str) -> Iterator[str]:
    after = None
    met: set[Hashable] = set()
    while page := engine.pending(tenant, after=after, limit=PAGE):
        last = page[-1]
        after = (last.entry.id, last.session, last.entry.seq)
        _insist_on_progress(after, met)
        for pending in page:
            yield pending.session


def _owing(engine: Engine, tenant: str) -> Iterator[str]:
    after = None
    met: set[Hashable] = set()
    while page := engine.outbox(tenant, after=after, limit=PAGE):
        after = page[-1]
        _insist_on_progress(after.id, met)
        for debt in page:
            yield debt.session


def _insist_on_progress(place: Hashable, met: set[Hashable]) -> None:
    """A row that names another entry than its own leads back to a page that was read before."""
    if place in met:
        raise Damaged(where="an inbox or an outbox", problem="its rows have no order")
    met.add(place)
