"""Every error Holdfast raises, in one tree.

    HoldfastError
    ├── CallerMistake          the call was wrong; nothing was written
    │   ├── BadArgument
    │   ├── InvalidMessage
    │   ├── NotFound
    │   ├── NotApproved
    │   ├── ReadOnlyStore
    │   └── AlreadyAccepted
    ├── TryAgain               the call was right, the moment was not
    │   ├── SessionBusy
    │   └── Conflict
    ├── Overtaken              somebody else has gone on without you
    │   ├── TurnInterrupted
    │   └── SessionEnded
    ├── OperatorNeeded         the store needs a person
    │   ├── StoreUnavailable
    │   ├── SchemaMismatch
    │   └── Damaged
    └── ReaderBehind           a reader asked for what cannot be served
        └── CursorExpired

and two warnings, of a store which works and is not what it was meant to be: `WeaklyReplicated`, `OpenToOthers`.

The docstring of a class is its message: the fields are put into the braces, long ones shortened.
Each class has a stable `code`, keeps its fields as attributes, and pickles.
"""

import re
from typing import Any, ClassVar

_QUOTED_MAX = 500


class _Coded(Exception):
    """What has a code, fields, and a sentence made of them."""

    code: ClassVar[str]

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self.fields = fields
        super().__init__(_sentence(type(self), fields))

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.fields)


def _revive(kind: type[_Coded], fields: dict[str, Any]) -> _Coded:
    return kind(**fields)


def _sentence(kind: type[_Coded], fields: dict[str, Any]) -> str:
    text = " ".join((kind.__doc__ or "").split())
    told = re.sub(
        r"\{(\w+)\}",
        lambda field: _quoted(fields.get(field[1], getattr(kind, field[1], field[0]))),
        text,
    )
    return told.encode(
        "utf-8", "backslashreplace"
    ).decode()  # lone surrogates could not be printed


def _quoted(value: Any) -> str:
    """A field as it stands in a sentence: an id from outside may be megabytes long, and the
    sentence is for people and their logs. The attribute has all of it.
    """
    text = str(value)
    if len(text) <= _QUOTED_MAX:
        return text
    return f"{text[:_QUOTED_MAX]}… ({len(text):,} characters)"


class HoldfastError(_Coded):
    """Something went wrong in Holdfast."""

    code = "holdfast_error"


class CallerMistake(HoldfastError):
    """The call was wrong; nothing was written."""

    code = "caller_mistake"


class BadArgument(CallerMistake):
    """`{parameter}` takes {takes}, not {given}. Nothing was written."""

    code = "bad_argument"
    parameter: str
    takes: str
    given: str


class InvalidMessage(CallerMistake):
    """This message can't be stored: {problem}, at `{place}`. Nothing was written; fix it and send it again."""

    code = "invalid_message"
    problem: str
    place: str


class NotFound(CallerMistake):
    """There is no {what} `{name}` in this store; {hint}."""

    code = "not_found"
    what: str
    name: str
    hint: str
    candidates = ()
    """What the name could mean, when it is the beginning of several."""


class NotApproved(CallerMistake):
    """Call `{call_id}` may not run: {why}. Do not run the tool; make a new call to ask again."""

    code = "not_approved"
    call_id: str
    why: str


class ReadOnlyStore(CallerMistake):
    """The store at `{where}` was opened read-only. Nothing was written; open it without `read_only` to write."""

    code = "read_only_store"
    where: str


class AlreadyAccepted(CallerMistake):
    """Message `{message_id}` was accepted before and is in session `{session_id}` (event: {event_id}, turn: {turn_id});
    {standing}."""

    code = "already_accepted"
    event_id: str | None
    """The event that it came as; None for a message without one, whose caller has waited with it for a turn."""
    message_id: str
    turn_id: str | None
    """The turn that has taken it; None while it waits in the inbox, and for what no turn will take."""
    session_id: str
    """The session that it is in by now: resets and turns may have taken it there."""
    standing: str


class TryAgain(HoldfastError):
    """The call was right, the moment was not; try again."""

    code = "try_again"


class SessionBusy(TryAgain):
    """Session `{session_id}` is in turn `{turn_id}`; wait for it, interrupt it, or stop it."""

    code = "session_busy"
    session_id: str
    turn_id: str


class Conflict(TryAgain):
    """Session `{session_id}` can't take this as it is now: {problem}."""

    code = "conflict"
    session_id: str
    problem: str


class Overtaken(HoldfastError):
    """Somebody else has gone on without you."""

    code = "overtaken"


class TurnInterrupted(Overtaken):
    """Turn `{turn_id}` is no longer running ({reason}); what it had finished is kept. Stop working on it."""

    code = "turn_interrupted"
    turn_id: str
    reason: str


class SessionEnded(Overtaken):
    """Session `{session_id}` has ended ({reason}); the current session of its key is `{current_id}` (message of yours
    that waits there: {message_id}). Go on there."""

    code = "session_ended"
    session_id: str
    reason: str
    current_id: str | None
    message_id: str | None = None
    """The message that the caller has waited with for a turn, if a reset has taken it along: it waits in the inbox of
    the current session, and is not to be sent again."""


class OperatorNeeded(HoldfastError):
    """The store needs a person."""

    code = "operator_needed"


class StoreUnavailable(OperatorNeeded):
    """The store at `{where}` can't be used now: {problem}. {remedy}."""

    code = "store_unavailable"
    where: str
    problem: str
    remedy: str


class SchemaMismatch(OperatorNeeded):
    """The store at `{where}` has format {found}; this release reads up to {known}. Use a newer Holdfast, or copy the
    store with the release that wrote it."""

    code = "schema_mismatch"
    where: str
    found: int
    known: int


class Damaged(OperatorNeeded):
    """The {what} at `{where}` is damaged: {problem}. It was not changed; {remedy}."""

    code = "damaged"
    where: str
    problem: str
    what: str = "store"
    remedy: str = "keep a copy, then run `holdfast doctor`"


class ReaderBehind(HoldfastError):
    """A reader asked for what cannot be served."""

    code = "reader_behind"


class CursorExpired(ReaderBehind):
    """Cursor `{cursor}` can't be served by session `{session_id}`: {problem}. Start again {resume}."""

    code = "cursor_expired"
    cursor: str
    session_id: str
    problem: str
    resume: str


class WeaklyReplicated(_Coded, UserWarning):
    """The store at `{where}` is not as safe as it was meant to be: {problem}. {remedy}."""

    code = "weakly_replicated"
    where: str
    problem: str
    remedy: str


class OpenToOthers(_Coded, UserWarning):
    """Every user of this machine may use `{where}` (its mode is {mode}). {remedy}."""

    code = "open_to_others"
    where: str
    mode: str
    remedy: str
