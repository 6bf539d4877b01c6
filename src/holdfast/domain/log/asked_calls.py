"""What a session asked somebody to approve, and what became of it (I-22)."""

from holdfast.domain.entry import Asked, CallStarted, Decided
from holdfast.domain.turn import Ask, Place


class AskedCalls(dict[Place, Ask]):
    """What was asked about calls, by their places, oldest first. What takes an entry says whether
    the view is another one after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._about: dict[str, dict[Place, Ask]] = {}
        # the turns that started a call with an approval
        self._used_in: set[int | None] = set()

    def about(self, call_id: str) -> list[Ask]:
        """What was asked about this id, oldest first. An id may be used again."""
        return list(self._about.get(call_id, {}).values())

    def add(self, note: Asked) -> None:
        place = (note.message, note.index)
        ask = Ask(note.call_id, note.message, note.index, note.digest)
        self[place] = ask
        self._about.setdefault(note.call_id, {})[place] = ask

    def decide(self, note: Decided) -> bool:
        ask = self.get((note.message, note.index))
        # The first decision counts: somebody may have acted on it already.
        if ask is None or ask.approved is not None:
            return False
        ask.approved = note.approved
        return True

    def start(self, note: CallStarted, turn: int | None) -> bool:
        ask = self.get((note.message, note.index))
        if ask is None:
            return False
        ask.started_in = turn
        self._used_in.add(turn)
        return True

    def are_used_in(self, turn: int) -> bool:
        """Whether this turn started a call with an approval."""
        return turn in self._used_in

    def marks(self, running: int | None) -> dict[str, dict[str, tuple[str, ...]]]:
        """By message, the calls that wait, and those that the running turn has started with an
        approval from before it.
        """
        marks: dict[str, dict[str, tuple[str, ...]]] = {}
        for ask in self.values():
            if ask.is_open:
                mark = "waiting"
            elif ask.started_in is not None and ask.started_in == running:
                mark = "started"
            else:
                continue
            mine = marks.setdefault(ask.message, {})
            mine[mark] = (*mine.get(mark, ()), ask.call_id)
        return marks
