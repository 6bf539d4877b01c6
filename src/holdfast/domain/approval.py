"""Approvals: whether a call may be run, from all that was asked and decided about its id (I-22).

A call id that was ever put to somebody for approval is bound. The same call, approved and not
started yet, may be started once. Everything else waits, or is refused with the reason: there is no
way to run a bound call but through an approval of exactly this name and these arguments. A call
that was answered meanwhile, by anybody, is done: it waits no more and no approval starts it. A call
that the model has made anew with a bound id is a question of its own, whatever became of the one
before. An id that was never asked about is the caller's own affair, but for one thing: what was
started or finished in a turn is not started again in it.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from holdfast.domain.message import freeze
from holdfast.domain.turn import Ask, Place

Here = Literal["started", "done"]
"""What the turn knows of a call id that the model has not made anew."""


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done about a call: start it, start it with an approval, let it wait, ask about
    it, or refuse it.
    """

    act: Literal["start", "use", "wait", "ask", "refuse"]
    ask: Ask | None = None
    why: str = ""

    @property
    def place(self) -> Place | None:
        """The call that was asked about."""
        return None if self.ask is None else _place(self.ask)


def digests_of(name: str, arguments: str) -> tuple[str, ...]:
    """What an approval of this call may be bound to: first its name and what its arguments say,
    however they are spaced; then what releases before this one noted, the very text.
    """
    said = _canonical(arguments)
    # An approval of no arguments was for empty text.
    spelled = [said, arguments, ""] if said == "{}" else [said, arguments]
    return tuple(_digest(name, each) for each in spelled)


def _digest(name: str, arguments: str) -> str:
    from hashlib import sha256  # for those who ask about calls: it takes 4 ms to load

    # A model may say half of a character, and its call must still be asked about.
    return sha256(f"{name}\n{arguments}".encode(errors="surrogatepass")).hexdigest()


def read_arguments(text: str) -> Any:
    """What a call's arguments say: `{}` where they are blank, and their value where they are JSON in
    one way only and a caller could give it to `Turn.call`; otherwise the text itself. A JSON string
    stays as it was said, for its value would be taken for other text. So what a tool is handed is
    what was approved: to `Turn.call`, the text and what it is read as are the same call.
    """
    value, _ = _read(text)
    return text if isinstance(value, str) else value


def _canonical(text: str) -> str:
    """The arguments as we would write them: the same for a text and for what it is read as, and
    another one for whatever means something else.
    """
    return _read(text)[1]


def _read(text: str) -> tuple[Any, str]:
    if not text or text.isspace():
        return {}, "{}"
    import json  # not before there is a call to be read

    try:
        value = json.loads(text, object_pairs_hook=_unambiguous)
        return value, freeze(value).decode()
    except Exception:
        # Cut off or never JSON, a key twice, numbers or depths that can't be frozen: then the text
        # is what counts, and it is for the tool to complain.
        return text, text


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def judge_call(
    asks: Sequence[Ask],
    digests: Collection[str],
    *,
    needs_approval: bool,
    made: Collection[str] | None = None,
    here: Here | None = None,
    was_asked: bool = False,
    answered: Collection[Place] = (),
    named: Place | None = None,
) -> Verdict:
    """What is to be done about a call with one of these digests.

    `asks` are those for its id, oldest first, without those that the view has gone back from.
    `made`: the digests of the calls of this id that the model has made in this turn and nobody has
    started; None when there are none. `was_asked`: somebody was asked about this id where `asks` do
    not tell of it, before a reset or a rewind. `answered`: places of calls that have an outcome.
    `named`: the place of the call that is meant, if its caller has said that.
    """
    fitting = [ask for ask in asks if ask.digest in digests]
    # The one that is meant comes before all others.
    fitting.sort(key=lambda ask: _place(ask) == named)
    standing = unanswered(asks, answered)
    # The latest: an id is reused, and an earlier approval was for an earlier call.
    for ask in reversed(fitting):
        if ask.may_start and ask in standing:
            return Verdict("use", ask)
    waiting = [ask for ask in standing if ask.approved is None]
    if waiting and not _is_another(made, waiting, digests):
        return _about_waiting(waiting, digests)
    if needs_approval:
        return Verdict("ask")
    if asks or was_asked:
        # Ids are reused (FAULTS E4): what the model has made anew is another call, and is asked
        # about as the first was.
        if made is not None:
            return Verdict("ask")
        return Verdict("refuse", why=_why(asks, fitting, answered))
    # Nobody was ever asked about this id: it is the caller's own affair.
    if made is not None:
        return Verdict("start")
    return _about_own(here)


def _about_own(here: Here | None) -> Verdict:
    """A call that its turn makes itself, and which it may have made before."""
    if here is None:
        return Verdict("start")
    if here == "done":
        return Verdict("refuse", why="it is done")
    return Verdict("refuse", why="it was started in this turn already")


def _place(ask: Ask) -> Place:
    return ask.message, ask.index


def unanswered(asks: Sequence[Ask], answered: Collection[Place]) -> list[Ask]:
    """Those that are still questions: a call that has an outcome is neither approved nor run."""
    return [ask for ask in asks if _place(ask) not in answered]


def _is_another(
    made: Collection[str] | None, waiting: Sequence[Ask], digests: Collection[str]
) -> bool:
    """Whether a call that the model has made anew is meant, and none of those that wait."""
    if made is None:
        return False
    # The same question once more is for the one that waits, unless the model has made just
    # this call again.
    if any(ask.digest in digests for ask in waiting):
        return any(digest in digests for digest in made)
    return True


def _about_waiting(waiting: Sequence[Ask], digests: Collection[str]) -> Verdict:
    for ask in reversed(waiting):
        if ask.digest in digests:
            return Verdict("wait", ask)
    # What the agent calls by itself is asked about one at a time under an id: a decision is
    # about what was shown.
    return Verdict("refuse", why="it waits for approval with other arguments")


def _why(
    asks: Sequence[Ask], fitting: Sequence[Ask], answered: Collection[Place]
) -> str:
    if not asks:
        return "it was asked for before the session was reset or rewound"
    if not fitting:
        return "it was asked for with other arguments"
    last = fitting[-1]
    if last.approved is False:
        return "it was denied"
    if _place(last) in answered:
        return "it is done"
    return "its approval was used"
