"""The rows that the guards of a batch are judged by: which are asked for, and where they go.

The sessions come first: their stamps tell later whether anything of what was read after them has
changed.
"""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.accepted_events import event_name
from holdfast.engine.blobs import PART_BYTES_MIN, split
from holdfast.engine.guards import reply_of
from holdfast.engine.postgres.batch import BatchState
from holdfast.engine.postgres.batch_sql import PLACE, Columns, Statement, statements
from holdfast.engine.postgres.restore_state import restored_events, restored_places
from holdfast.engine.postgres.server.binary_arrays import Blobs, Ids, Ints
from holdfast.engine.postgres.server.text_as_bytes import name
from holdfast.engine.protocol import Accepted, Writes

Places = dict[str, bytes]
"""Sessions, each with its tenant."""
Rows = Sequence[Sequence[Any]]


def questions(writes: Writes, places: Places, *, locked: bool) -> list[Statement]:
    """All that these writes ask about, as statements; `locked` keeps others from the sessions until
    the end of the transaction.
    """
    restored = restored_places(writes, places)
    takers = {write.session for write in writes if write.takes} & places.keys()
    opened = [(write.session,) for write in writes if write.open is not None]
    return statements(
        (
            (
                "lock_sessions" if locked else "sessions_now",
                SESSION_PLACE,
                session_places(places),
            ),
            ("bindings", {"tenant": Blobs, "key": Blobs}, _keys(writes)),
            ("tenants", {"id": Ids}, opened),
            ("accepted", {"name": Blobs}, [(event,) for event in _events(writes)]),
            ("inbox", PLACE, [(places[id], id) for id in takers] + restored),
            ("debts_of", PLACE, restored),
            ("debt", PLACE | {"id": Blobs}, _replies(writes, places)),
            ("blob_digests", PLACE | {"name": Ints}, _parts(writes, places)),
        )
    )


def learn(state: BatchState, statement: str, rows: Rows) -> None:
    """Gives the answer to one of the questions to the batch."""
    _LEARN[statement](state, rows)


SESSION_PLACE: Columns = {"tenant": Blobs, "id": Ids}


def session_places(places: Places) -> list[tuple[bytes, str]]:
    """Tenants and ids in one order everywhere, so that no two batches lock rows crosswise."""
    return [(places[id], id) for id in sorted(places)]


def _learn_bindings(state: BatchState, rows: Rows) -> None:
    for tenant, key, session, epoch in rows:
        state.batch.bindings[tenant, key] = (session, epoch)


def _learn_elsewhere(state: BatchState, rows: Rows) -> None:
    for id, _tenant in rows:
        state.batch.elsewhere.add(id)


def _learn_events(state: BatchState, rows: Rows) -> None:
    for event, *accepted in rows:
        state.batch.events[event] = Accepted(*accepted)


def _learn_inboxes(state: BatchState, rows: Rows) -> None:
    for session, message, _waiter, seq, *_lease in rows:
        state.batch.inboxes.setdefault(session, {})[message] = seq


def _learn_debts(state: BatchState, rows: Rows) -> None:
    for session, id, *_ in rows:
        state.batch.debts.add((session, id))


def _learn_claims(state: BatchState, rows: Rows) -> None:
    for session, id, claim in rows:
        state.batch.debts.add((session, id))
        state.batch.claims[session, id] = claim


def _learn_digests(state: BatchState, rows: Rows) -> None:
    for session, part, digest in rows:
        state.batch.digests[session, part] = digest


_LEARN: dict[str, Callable[[BatchState, Rows], None]] = {
    "lock_sessions": BatchState.learn,
    "sessions_now": BatchState.learn,
    "bindings": _learn_bindings,
    "tenants": _learn_elsewhere,
    "accepted": _learn_events,
    "inbox": _learn_inboxes,
    "debts_of": _learn_debts,
    "debt": _learn_claims,
    "blob_digests": _learn_digests,
}


def _keys(writes: Writes) -> list[tuple[bytes, bytes]]:
    """Keys that are to be bound, each once, in order."""
    keys: set[tuple[bytes, bytes]] = set()
    for write in writes:
        if write.open is not None and write.open.key is not None:
            keys.add((name(write.open.tenant, "tenant"), name(write.open.key, "key")))
    return sorted(keys)


def _events(writes: Writes) -> list[bytes]:
    """Events that may have been accepted already."""
    events = [event_name(*write.event) for write in writes if write.event is not None]
    return events + restored_events(writes)


def _replies(writes: Writes, places: Places) -> list[tuple[bytes, str, bytes]]:
    """Replies that are to be paid or claimed."""
    found: list[tuple[bytes, str, bytes]] = []
    for write in writes:
        reply = reply_of(write)
        if reply is not None and write.session in places:
            found.append((places[write.session], write.session, reply))
    return found


def _parts(writes: Writes, places: Places) -> list[tuple[bytes, str, int]]:
    """Large parts that may be stored already, each once."""
    found: dict[tuple[bytes, str, int], None] = {}
    for write in writes:
        if write.session not in places:
            continue
        for draft in write.drafts:
            if len(draft.body) >= PART_BYTES_MIN:
                for part in split(draft.body)[1]:
                    found[places[write.session], write.session, part] = None
    return list(found)
