"""What of the words of a replay is new.

The chunks of a replay that follow each other, of one kind and under one id, are a run. As long as the
store has the words of a run in the place that the replay has come to, they are held: nothing of
them is new. When a run goes on otherwise than the store does, what is new of it is what comes
after words that were cut off here, or after whole messages; else it is new from its beginning.
"""

from typing import Any

import msgspec

from holdfast.adapters.acp.loading.stored_words import (
    PROMPT,
    FoundWords,
    StoredTranscript,
    dropped,
    part_words,
)
from holdfast.formats.acp.messages import part_of
from holdfast.formats.reading import Block, fields, text

Told = list[Block | None]
"""Updates that are new, in order; None where something came that the store has."""


class HeldChunk(msgspec.Struct, frozen=True):
    """An update, and its words as they are compared."""

    update: Block
    words: str


class Run:
    """Chunks that follow each other. `whole`: how many of them, and letters, were whole messages,
    and where.
    """

    def __init__(self, kind: str, key: Any) -> None:
        self.kind = kind
        self.key = key
        self.held: list[HeldChunk] = []
        self.heard = ""
        self.found: FoundWords | None = None
        self.whole: tuple[int, int, FoundWords] | None = None
        self.is_new = False
        self.is_met = False
        """Of a prompt: whether some of it was known."""

    def restart(self) -> None:
        """What was heard has been told; what comes is looked for anew."""
        self.held = []
        self.heard = ""
        self.found = self.whole = None
        self.is_new = False

    def hold(self, chunk: HeldChunk, found: FoundWords | None) -> None:
        """The store has what was heard and this."""
        self.held.append(chunk)
        self.heard += chunk.words
        self.found = found
        if found is not None and found.is_whole(len(self.heard)):
            self.whole = len(self.held), len(self.heard), found


class ReplayedWords:
    """Is told what is said in a replay; says what of it is new."""

    def __init__(self, stored: StoredTranscript) -> None:
        self._stored = stored
        self._run: Run | None = None

    def take(self, kind: str, key: Any, update: Block) -> Told:
        """One more chunk."""
        told: Told = []
        run = self._run
        if run is None or (run.kind, run.key) != (kind, key):
            told = self.end()
            run = self._run = Run(kind, key)
        chunk = HeldChunk(update, part_words(part_of(fields(update.get("content")))))
        if kind == PROMPT:
            return [*told, *self._asked(run, chunk)]
        return [*told, *self._said(run, chunk)]

    def end(self) -> Told:
        """Something else comes, or nothing more."""
        run, self._run = self._run, None
        # White space alone is no message.
        if run is None or run.is_new or not run.heard:
            return []
        if run.kind == PROMPT:
            return self._asked_all(run)
        found = run.found
        assert found is not None
        if not found.is_near and not found.is_whole(len(run.heard)):
            found = self._stored.find_whole(run.kind, run.heard)
        if found is None:
            return self._parted(run, [])
        self._stored.reach(run.kind, found, len(run.heard))
        return [None]

    # What the agent said.

    def _said(self, run: Run, chunk: HeldChunk) -> Told:
        if run.is_new:
            # A message after a new one may be one that is known, if it comes in one piece.
            found = self._stored.find_whole(run.kind, chunk.words)
            if not chunk.words or found is None:
                return [chunk.update]
            run.restart()
            run.hold(chunk, found)
            return []
        heard = run.heard + chunk.words
        found = run.found
        if found is None or not found.words.startswith(heard):
            found = self._stored.find(run.kind, heard)
        # White space that nothing has come of yet is held as well.
        if found is not None or not heard:
            run.hold(chunk, found)
            return []
        return self._parted(run, [chunk])

    def _parted(self, run: Run, more: list[HeldChunk]) -> Told:
        """The run is not what the store has: what of it is new."""
        chunks = [*run.held, *more]
        heard = "".join(chunk.words for chunk in chunks)
        cut = self._stored.cut_off(run.kind, heard)
        if cut is not None and cut.words:
            self._stored.reach(run.kind, cut, len(cut.words))
            run.is_new = True
            return [None, *_after(chunks, len(cut.words))]
        if run.whole is not None:
            count, letters, found = run.whole
            self._stored.reach(run.kind, found, letters)
            run.restart()
            told: Told = [None]
            for chunk in chunks[count:]:
                told += self._said(run, chunk)
            return told if more else [*told, *self._rest(run)]
        run.is_new = True
        return [chunk.update for chunk in chunks]

    def _rest(self, run: Run) -> Told:
        self._run = run
        return self.end()

    # What the user asked.

    def _asked(self, run: Run, chunk: HeldChunk) -> Told:
        heard = run.heard + chunk.words
        if self._is_begun(heard) and not self._is_next(run.heard, chunk.words):
            run.hold(chunk, None)
            return []
        told = self._asked_all(run) if run.heard else []
        run.restart()
        if chunk.words and self._is_begun(chunk.words):
            run.hold(chunk, None)
            return told
        return [*told, *self._asked_part(run, chunk)]

    def _is_next(self, heard: str, words: str) -> bool:
        """Whether a prompt was heard whole, and these words begin the one after it; a later one may
        begin with the words of both.
        """
        place = self._stored.prompt_with(heard, is_whole=True) if heard else None
        if place is None or not words:
            return False
        longer = self._stored.prompt_with(heard + words, is_whole=False)
        return longer is None or (
            longer > place and self._stored.begins(place + 1, words)
        )

    def _is_begun(self, heard: str) -> bool:
        begun = self._stored.prompt_with(heard, is_whole=False) is not None
        return begun or self._stored.is_loose_prompt(heard, is_whole=False)

    def _asked_all(self, run: Run) -> Told:
        """What was heard of a prompt is all of it."""
        place = self._stored.prompt_with(run.heard, is_whole=True)
        if place is not None:
            self._stored.go_to(place)
            run.is_met = True
            return [None]
        if self._stored.is_loose_prompt(run.heard, is_whole=True):
            run.is_met = True
            return [None]
        told: Told = []
        for chunk in run.held:
            told += self._asked_part(run, chunk)
        return told

    def _asked_part(self, run: Run, chunk: HeldChunk) -> Told:
        """One prompt of several blocks may come back as several messages: each is a part of the
        last one that was met, or of the next.
        """
        place = self._stored.prompt_around(chunk.words)
        if place is not None:
            self._stored.go_to(place)
            run.is_met = True
            return [None]
        # What an agent adds to a prompt does not make another one of it.
        self._stored.is_astray = not run.is_met
        return [chunk.update]


def _after(chunks: list[HeldChunk], letters: int) -> list[Block]:
    """The updates after so many letters."""
    rest = []
    for chunk in chunks:
        update = chunk.update
        if letters >= len(chunk.words) and letters > 0:
            letters -= len(chunk.words)
            continue
        if letters > 0:
            content = fields(update.get("content"))
            left = dropped(text(content.get("text")), letters)
            update = {**update, "content": {**content, "text": left}}
            letters = 0
        rest.append(update)
    return rest
