"""Vetting a commit that came over HTTP: whose sessions it names, and whether what it stores could
have been written by Holdfast (I-19, I-25).

What an engine stores is bytes to it. A client's own runtime has looked at them; whether it was one,
nobody knows here. So the decoders that will read them read them once before.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.domain.chunk import unpack
from holdfast.domain.entry import STARTING, Draft, Entry, entry_of
from holdfast.engine.protocol import Chunk, Commit, Engine, Outcome, Refused, Write
from holdfast.errors import Damaged, HoldfastError, InvalidMessage, StoreUnavailable
from holdfast.runtime.border import LEASE_MAX_S
from holdfast.runtime.transfer.vet import (
    COUNT_MAX,
    NAME_MAX,
    vet_entry,
    vet_key,
    vet_session_id,
)
from holdfast.server.auth import Identity
from holdfast.server.remote.requester import Ownership, is_own_scope, sees_all

Verdict = Outcome | HoldfastError | None
"""Why a commit is not to be done; None when it may be."""
DESTROYING = ("erase", "blank", "forget_events")
"""What takes words out of the store: it needs the scope `admin`."""
LAYING = "what is laid down as another store kept it needs the operator's token"


class Vetting:
    """Looks at the commits of one request, in order, for one who is not the operator."""

    def __init__(self, engine: Engine, ownership: Ownership, who: Identity) -> None:
        self._engine, self._ownership, self._who = engine, ownership, who
        # Sessions that earlier commits of the request open. Nothing has been submitted
        # while the request is vetted, so the store does not know them yet.
        self._opened: set[str] = set()

    def verdicts(self, commits: Sequence[Commit]) -> list[Verdict]:
        """What is to be said of each; it may read from the store."""
        found: list[Verdict] = []
        for commit in commits:
            try:
                found.append(None if sees_all(self._who) else self._refusal(commit))
            except Damaged as error:
                found.append(_invalid(error.problem))
            except HoldfastError as error:
                found.append(error)
        return found

    def _refusal(self, commit: Commit) -> Refused | None:
        _vet_ids(commit)
        _vet_together(commit)
        for write in commit:
            if write.open is not None:
                self._vet_opening(write)
            elif write.session not in self._opened and not self._ownership.owns(
                self._who.tenant, write.session
            ):
                return Refused("missing", write.session)
            self._vet_rights(write)
            _vet_numbers(write)
            self._vet_drafts(write)
            if write.chunk is not None:
                _vet_chunk(write.chunk)
        return None

    def _vet_opening(self, write: Write) -> None:
        opening, tenant = write.open, self._who.tenant
        assert opening is not None
        if opening.tenant != tenant:
            raise _refused("the token is for another tenant")
        vet_session_id(write.session)
        vet_key(opening.key)
        _insist(bool(write.drafts), "a session is opened without an entry")
        parent = opening.parent
        if parent is not None and parent not in self._opened:
            if not self._ownership.owns(tenant, parent):
                raise Damaged(where="", problem="it shares a past that is not there")
        # Unless there is one already, whosever it is: then the engine refuses to open it, and
        # later commits of this request must not reach it.
        if self._engine.state(write.session) is None:
            self._opened.add(write.session)

    def _vet_rights(self, write: Write) -> None:
        if write.lay is not None:
            raise _refused(LAYING)
        if "admin" not in self._who.scopes:
            if any(getattr(write, name) for name in DESTROYING):
                raise _refused("the token does not allow to erase")
        if write.event is not None and not is_own_scope(
            write.event[0], self._who.tenant
        ):
            raise Damaged(where="", problem="its event is in no scope of this tenant")

    def _vet_drafts(self, write: Write) -> None:
        if not write.drafts:
            return
        head = self._head(write)
        for seq, draft in enumerate(write.drafts, head + 1):
            vet_entry(_as_entry(draft, seq, starts=write.start is not None))

    def _head(self, write: Write) -> int:
        """The seq after which the drafts will stand at the earliest."""
        if write.head is not None:
            return write.head
        if write.open is not None:
            return write.open.head
        state = self._engine.state(write.session)
        return state.head if state is not None else 0


def _vet_ids(commit: Commit) -> None:
    """Within the commit alone: whether a session has an id already, only its whole log tells."""
    seen: set[tuple[str, bytes]] = set()
    for write in commit:
        for draft in write.drafts:
            name = (write.session, draft.id)
            _insist(name not in seen, "two of its drafts have the same id")
            seen.add(name)


def _vet_together(commit: Commit) -> None:
    """All writes of a commit are judged by what was there before it, so of two that do what can be
    done once, neither would see the other.
    """
    seen: set[tuple[Any, ...]] = set()
    for write in commit:
        for name in _done_once(write):
            _insist(name not in seen, f"it does the same thing twice ({name[0]})")
            seen.add(name)


def _done_once(write: Write) -> Iterator[tuple[Any, ...]]:
    """What this write does that nothing else of its commit may do, too."""
    session = write.session
    if write.open is not None:
        yield "open", session
        if write.open.key is not None:
            yield "key", write.open.tenant, write.open.key
    if write.event is not None:
        yield "event", *write.event
    if write.start is not None:
        yield "start", session
    if write.chunk is not None:
        yield "chunk", session, write.chunk.message, write.chunk.index
    for taken in write.takes:
        yield "take", session, taken
    reply = write.claim.id if write.claim is not None else write.pays
    if reply is not None:
        yield "reply", session, reply


def _as_entry(draft: Draft, seq: int, *, starts: bool) -> Entry:
    turn = draft.turn
    if turn == STARTING and starts:
        turn = 1  # the engine puts the real number in
    return entry_of(draft, seq, turn)


def _vet_numbers(write: Write) -> None:
    counts = [write.fence, write.head, write.position, write.event_draft]
    lengths: list[Any] = [write.renew_s]
    names: list[str | None] = []
    if write.open is not None:
        counts += [write.open.epoch, write.open.head, write.open.fence]
    if write.start is not None:
        lengths.append(write.start.lease_s)
        names.append(write.start.holder)
    if write.claim is not None:
        lengths.append(write.claim.seconds)
    for waiting in write.admits:
        counts.append(waiting.seq)
        lengths.append(waiting.lease_s)
        names.append(waiting.waiter)
    for owing in write.owes:
        names.append(owing.reply_to)
    if write.event is not None:
        names += write.event
        _insist(write.event_draft < len(write.drafts), "its event has no draft")
    _vet_each(counts, lengths, names)
    for blob in (*write.takes, *(one.id for one in write.owes)):
        _insist(len(blob) == 16, "an id is not one of sixteen bytes")


def _vet_each(
    counts: Iterable[int | None], lengths: Iterable[Any], names: Iterable[str | None]
) -> None:
    for count in counts:
        _insist(count is None or 0 <= count <= COUNT_MAX, "a number does not count")
    for length in lengths:
        is_time = length is None or (
            math.isfinite(length) and 0 <= length <= LEASE_MAX_S
        )
        _insist(is_time, "a lease is not a time")
    for name in names:
        _insist(name is None or len(name) <= NAME_MAX, "a name is too long")


def _vet_chunk(chunk: Chunk) -> None:
    _insist(len(chunk.message) == 16, "the message of a chunk has no id")
    _insist(0 <= chunk.index <= COUNT_MAX, "the index of a chunk does not count")
    try:
        unpack(chunk.body)
    except (HoldfastError, ValueError, TypeError, RecursionError) as error:
        problem = f"a chunk can't be read ({type(error).__name__})"
        raise Damaged(where="", problem=problem) from None


def _insist(is_so: bool, problem: str) -> None:
    if not is_so:
        raise Damaged(where="", problem=problem)


def _invalid(problem: str) -> InvalidMessage:
    return InvalidMessage(problem=problem, place="commit")


def _refused(problem: str) -> StoreUnavailable:
    return StoreUnavailable(
        where="", problem=problem, remedy="Use a token that allows it"
    )
