"""Which rows this engine has committed itself: those who watch were told of them by its writer, and
the poller leaves them out.

The writer says so before a commit can be seen, and the poller asks after it has looked at the file:
what it sees of ours, it knows. Rows are numbered as they come, and nobody else has a number between
two of one commit, so a few spans tell all of them. They are replaced in one step, by the writer
alone, and need no lock.
"""

Span = tuple[int, int]
"""The first row and the last one."""
SPANS_MAX = 250
"""So many are kept when nobody looks for long; what is forgotten is told once more."""


class RowSpans:
    """Rows of one kind, by their numbers, which only grow."""

    def __init__(self) -> None:
        self._spans: tuple[Span, ...] = ()
        self.seen = 0
        """The last row that need not be known any more; the poller's to say."""

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, first: int, last: int) -> None:
        """These are ours."""
        spans = self._spans
        if spans and spans[-1][1] + 1 == first:
            first = spans[-1][0]
            spans = spans[:-1]
        # Once for each look, not for each commit.
        if spans and spans[0][1] <= self.seen:
            spans = tuple(span for span in spans if span[1] > self.seen)
        self._spans = (*spans[-SPANS_MAX:], (first, last))

    def forget(self) -> None:
        """None is, for all that is known."""
        self._spans = ()

    def others(self, seen: int, last: int) -> list[Span]:
        """Which rows behind `seen`, up to the last one, are not ours."""
        found: list[Span] = []
        for first, end in self._spans:
            if first > last:
                break
            if first > seen + 1:
                found.append((seen + 1, first - 1))
            seen = max(seen, end)
        if seen < last:
            found.append((seen + 1, last))
        return found


class OwnRows:
    """The entries and the rows of the journal that are ours."""

    def __init__(self) -> None:
        self.entries, self.chunks = RowSpans(), RowSpans()

    def add(self, entries: Span | None, chunks: Span | None) -> None:
        """A commit that is about to be made adds these."""
        if entries is not None:
            self.entries.add(*entries)
        if chunks is not None:
            self.chunks.add(*chunks)

    def seen(self, entry: int, position: int) -> None:
        """The poller has looked at all up to these."""
        self.entries.seen, self.chunks.seen = entry, position

    def forget(self) -> None:
        """A commit has failed: others may get the numbers that its rows had."""
        self.entries.forget()
        self.chunks.forget()
