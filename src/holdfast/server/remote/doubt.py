"""A commit that was sent before, and nobody here knows what became of it: it is found in the store,
or done with guards under which it can't be done twice.

The ids of its drafts are its identity, and a chunk's message and index. What was looked through is
named as a guard: the head behind the last entry that was read, the position of the last chunk. If
the first try lands meanwhile, by another server or by a database that is still at it, the guard
refuses the second one, and it is looked for again.
"""

from msgspec.structs import replace

from holdfast.domain.entry import STARTING
from holdfast.engine.protocol import (
    Commit,
    Engine,
    Outcome,
    Refused,
    SessionState,
    Write,
    Written,
)

WINDOW = 5000
"""So many of the last entries are looked through. The first try was sent half a minute ago."""
PAGE = 1000


def settled(engine: Engine, commit: Commit) -> Outcome:
    """What became of the commit, which is done if it was not; it waits for the store."""
    while True:
        found, guarded = _looked_for(engine, commit)
        if found is not None:
            return found
        [outcome] = engine.commit([guarded])
        if isinstance(outcome, Written) or not _is_by_us(outcome, commit, engine):
            return outcome


def _looked_for(engine: Engine, commit: Commit) -> tuple[Written | None, Commit]:
    """What it came to if it was done, and the commit with a guard for all that was looked through."""
    done = False
    outcome = Written()
    guarded = []
    for write in commit:
        state = engine.state(write.session)
        outcome = Written()
        # What is restored, another copy may have restored too: no id tells, its guards do.
        if state is not None and write.lay is None:
            if write.drafts:
                found = _entry_in(engine, state, write)
                done = done or found is not None
                outcome = found or outcome
                # A write that opens its session needs no guard: a session is opened
                # once.
                if write.head is None and write.open is None:
                    write = replace(write, head=state.head)
            if write.chunk is not None:
                position, last = _chunk_in(engine, state, write)
                done = done or position > 0
                outcome = replace(outcome, position=position)
                if write.position is None:
                    write = replace(write, position=last)
        guarded.append(write)
    # All its writes were done or none: any of them tells. What is said is said of the last.
    return (outcome if done else None), tuple(guarded)


def _entry_in(engine: Engine, state: SessionState, write: Write) -> Written | None:
    """Where the drafts of this write stand."""
    first = write.drafts[0].id
    starting = None
    for draft in write.drafts:
        if draft.turn == STARTING and starting is None:
            starting = draft.id
    seq = turn = 0
    # Up to its origin, a fork's log is its parent's: no commit of its own is there.
    after = max(state.origin, state.head - WINDOW)
    while after < state.head:
        page = engine.entries(state.id, after=after, limit=PAGE, bodies=False)
        for entry in page:
            if entry.id == first and not seq:
                seq = entry.seq
            if entry.id == starting and not turn:
                turn = entry.turn or 0
        if not page:
            break
        after = page[-1].seq
    return Written(seq, turn) if seq else None


def _chunk_in(engine: Engine, state: SessionState, write: Write) -> tuple[int, int]:
    """The position of this write's chunk, 0 when it is not there, and that of the last chunk of the
    running turn.
    """
    chunk = write.chunk
    assert chunk is not None
    position, last = 0, state.journal
    while page := engine.journal(state.id, after=last, limit=PAGE):
        for row in page:
            if (row.message, row.index) == (chunk.message, chunk.index):
                position = row.position
        last = page[-1].position
    return position, last


def _is_by_us(refused: Refused, commit: Commit, engine: Engine) -> bool:
    """Whether it was refused by a guard that was put there here: then it is looked for again. The
    same for a session that is there by now, if this commit may have made it.
    """
    for write in commit:
        if write.session != refused.session:
            continue
        if refused.why == "moved":
            is_ours = write.drafts and write.head is None and write.open is None
            return bool(is_ours or (write.chunk is not None and write.position is None))
        if refused.why == "bound" and write.open is not None and write.drafts:
            state = engine.state(write.session)
            return state is not None and _entry_in(engine, state, write) is not None
    return False
