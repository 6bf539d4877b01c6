"""A store that can't be opened: what a command of Hermes says about it, in a sentence, in the place of
a traceback.

Hermes is not asked to go on without the store: what it would say and be told were stored nowhere. In a
gateway each message is refused instead (`received.refusal`), and that goes on: the store may be put in
order meanwhile.
"""

import sys
import threading
from types import TracebackType
from typing import NoReturn

from holdfast.errors import HoldfastError

ADVICE = (
    "Hermes answers nothing until this file can be opened or is moved away (a new one is made "
    "then), or until `holdfast hermes uninstall` has taken Holdfast from under it."
)
_MARK = "_holdfast_tells"


def tell_in_a_sentence() -> None:
    """From now on, an error of Holdfast's that ends this process is told without a traceback."""
    before = sys.excepthook
    if hasattr(before, _MARK):
        return

    def tell(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, HoldfastError):
            say(error)
        else:
            before(kind, error, trace)

    setattr(tell, _MARK, True)
    sys.excepthook = tell


def say(error: BaseException) -> None:
    """Says on stderr what is wrong, and what to do about it."""
    words = [f"holdfast: {error}"]
    words += getattr(error, "__notes__", ())
    # The real one: a one-shot command of Hermes sends what is written to the other nowhere.
    print(" ".join(words), file=sys.__stderr__ or sys.stderr)


def is_command() -> bool:
    """Whether this is the thread that a command of Hermes ends with. A gateway makes its agents in
    others.
    """
    return threading.current_thread() is threading.main_thread()


def end_command(error: BaseException) -> NoReturn:
    """Ends a command of Hermes that can't do what it is for."""
    say(error)
    # Not the error itself: Hermes would go on without an agent, and end as if all were well.
    raise SystemExit(1)
