"""The exit codes of the command line, and which error ends with which."""

from typing import Any

from holdfast import errors

DONE = 0
WRONG = 1
USAGE = 2
NOT_FOUND = 3
BUSY = 4
OPERATOR = 5
# As sysexits.h and shells have them: an internal error, and 128 plus the number of SIGINT.
DEFECT = 70
INTERRUPTED = 130

MEANINGS = {
    DONE: "done",
    WRONG: "problems were found, or a plan was not confirmed",
    USAGE: "wrong usage or input; nothing was done",
    NOT_FOUND: "nothing has that name, or several things have it",
    BUSY: "the session is busy, has ended or has changed; look again, then retry",
    OPERATOR: "the store can't be used, is damaged, or was written by a newer release",
    DEFECT: "a bug in Holdfast; HOLDFAST_DEBUG=1 shows the traceback",
    INTERRUPTED: "interrupted with Ctrl-C",
}

# Every class by itself, though `code_of` would find one of its bases: a new error is to
# be given its code on purpose, and a test sees to that.
OF_ERROR: dict[type[errors.HoldfastError], int] = {
    errors.HoldfastError: DEFECT,
    errors.CallerMistake: USAGE,
    errors.BadArgument: USAGE,
    errors.InvalidMessage: USAGE,
    errors.NotFound: NOT_FOUND,
    errors.NotApproved: BUSY,
    errors.ReadOnlyStore: OPERATOR,
    errors.AlreadyAccepted: BUSY,
    errors.TryAgain: BUSY,
    errors.SessionBusy: BUSY,
    errors.Conflict: BUSY,
    errors.Overtaken: BUSY,
    errors.TurnInterrupted: BUSY,
    errors.SessionEnded: BUSY,
    errors.OperatorNeeded: OPERATOR,
    errors.StoreUnavailable: OPERATOR,
    errors.SchemaMismatch: OPERATOR,
    errors.Damaged: OPERATOR,
    errors.ReaderBehind: NOT_FOUND,
    errors.CursorExpired: NOT_FOUND,
}


class Stop(Exception):
    """A command ends here, with this code and one sentence."""

    def __init__(self, code: int, sentence: str, *, more: tuple[Any, ...] = ()) -> None:
        super().__init__(sentence)
        self.code, self.more = code, more


def code_of(error: errors.HoldfastError) -> int:
    """The exit code for an error, by the nearest class that has one."""
    return next(OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR)


def listed() -> str:
    """The codes as a help text shows them."""
    return "exit codes:\n" + "\n".join(
        f"  {code:<4} {meaning}" for code, meaning in MEANINGS.items()
    )
