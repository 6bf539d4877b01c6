"""The words that a stored session shows, laid out so that a replay can be found in them.

A session is cut into stretches: what was said before the first prompt, and then each prompt with
what followed it. In a stretch, all words of a kind stand joined, thoughts apart from what was said:
an agent that replays a session cuts its messages otherwise than it did when it said them. Words are
compared without their white space, which agents trim and break anew.
"""

from collections.abc import Iterator

import msgspec

from holdfast.domain.message import freeze
from holdfast.formats.reading import Block, text

MESSAGE = "message"
THOUGHT = "thought"
PROMPT = "prompt"


class StoredWords(msgspec.Struct, frozen=True):
    """The words of one kind in one stored message. `is_cut`: more of it may have been said."""

    kind: str
    words: str
    is_cut: bool = False


class JoinedWords(msgspec.Struct):
    """All words of a kind in a stretch. `ends`: where its messages end; `cuts`: those of them
    that were cut off.
    """

    words: str = ""
    ends: list[int] = []
    cuts: list[int] = []

    def add(self, stored: StoredWords) -> None:
        """One more message."""
        self.words += stored.words
        self.ends.append(len(self.words))
        if stored.is_cut:
            self.cuts.append(len(self.words))

    def starts(self, reached: int) -> Iterator[int]:
        """Where a replay may go on that has reached this place: there, or at a later message."""
        yield reached
        for end in self.ends:
            if reached < end < len(self.words):
                yield end

    def pieces(self) -> Iterator[str]:
        """The messages, each by itself."""
        start = 0
        for end in self.ends:
            yield self.words[start:end]
            start = end


class FoundWords(msgspec.Struct, frozen=True):
    """A place whose words begin with what is heard. `reached`: where the stretch's words are when
    all of these have been heard, of which `own` are the stretch's; `is_near`: it is where the
    replay has come to, so that a replay which ends sooner is one that was cut off.
    """

    words: str
    ends: tuple[int, ...]
    stretch: int | None = None
    start: int = 0
    own: int = 0
    is_near: bool = True

    def is_whole(self, heard: int) -> bool:
        """Whether so many letters are whole messages."""
        return heard in self.ends


class StoredTranscript:
    """What a session shows, and how far a replay of it has come."""

    def __init__(self) -> None:
        self._prompts: list[str | None] = [None]
        self._stretches: list[dict[str, JoinedWords]] = [{}]
        self._loose: list[StoredWords] = []
        self.stretch = 0
        self._reached: dict[str, int] = {}
        self.is_told = False
        """Whether the replay has told anything of the agent's since its last prompt."""
        self.is_astray = False
        """Whether the last prompt of the replay was none that is stored: what follows it does not
        belong where the replay had come to before.
        """

    @property
    def last(self) -> int:
        """The number of the last stretch."""
        return len(self._stretches) - 1

    def add_prompt(self, words: str) -> None:
        """A prompt of the user's: a stretch begins."""
        self._prompts.append(words)
        self._stretches.append({})

    def add(self, stored: StoredWords) -> None:
        """A message of the last stretch."""
        if stored.words:
            shown = self._stretches[-1].setdefault(stored.kind, JoinedWords())
            shown.add(stored)

    def add_loose(self, stored: StoredWords) -> None:
        """A message that stands anywhere: an earlier replay had it where there was no place."""
        if stored.words:
            self._loose.append(stored)

    # Prompts.

    def prompt_with(self, heard: str, *, is_whole: bool) -> int | None:
        """The next prompt that begins with these words, or has no others."""
        for place in range(self.stretch + 1, len(self._prompts)):
            words = self._prompts[place] or ""
            if words == heard or (not is_whole and words.startswith(heard)):
                return place
        return None

    def begins(self, stretch: int, words: str) -> bool:
        """Whether the prompt of this stretch begins with these words."""
        prompts = self._prompts[stretch : stretch + 1]
        return any((prompt or "").startswith(words) for prompt in prompts)

    def prompt_around(self, heard: str) -> int | None:
        """The prompt that these words are a part of: the one that was met last, or the next."""
        for place in (self.stretch, self.stretch + 1):
            # Once it was answered, what the user says is another prompt.
            if place >= len(self._prompts) or (place == self.stretch and self.is_told):
                continue
            words = self._prompts[place] or ""
            if heard in words and heard != words:
                return place
        return None

    def is_loose_prompt(self, heard: str, *, is_whole: bool) -> bool:
        """Whether a prompt that stands anywhere begins with these words, or has no others."""
        for stored in self._loose_words(PROMPT):
            if stored == heard or (not is_whole and stored.startswith(heard)):
                return True
        return False

    def go_to(self, stretch: int) -> None:
        """The replay has come to this prompt."""
        if stretch != self.stretch:
            self._reached = {}
        self.stretch = stretch
        self.is_astray = self.is_told = False

    # What the agent said.

    def find(self, kind: str, heard: str) -> FoundWords | None:
        """The first place from here on whose words begin with what is heard."""
        return next(self._places(kind, heard), None)

    def find_whole(self, kind: str, heard: str) -> FoundWords | None:
        """The first place from here on where what is heard is whole messages."""
        for found in self._places(kind, heard):
            if found.is_whole(len(heard)):
                return found
        return None

    def _places(self, kind: str, heard: str) -> Iterator[FoundWords]:
        near = self._near(kind)
        if near is not None:
            yield from _in_stretch(near, self._here(kind), heard, self.stretch)
            yield from self._beyond_cuts(kind, near, heard)
        for words in self._loose_words(kind):
            if words.startswith(heard):
                yield FoundWords(words, (len(words),))
        for place in range(self.stretch + 1, len(self._stretches)):
            shown = self._stretches[place].get(kind)
            if shown is not None:
                yield from _in_stretch(shown, 0, heard, place, is_near=False)

    def _beyond_cuts(
        self, kind: str, near: JoinedWords, heard: str
    ) -> Iterator[FoundWords]:
        """Words that an earlier replay had beyond those that were cut off stand elsewhere."""
        for start, cut in self._cuts(near, kind):
            own = near.words[start:cut]
            if not heard.startswith(own):
                continue
            for rest in self._elsewhere(kind):
                if rest.startswith(heard[len(own) :]):
                    yield FoundWords(
                        own + rest,
                        (len(own), len(own) + len(rest)),
                        self.stretch,
                        start,
                        len(own),
                        is_near=bool(own),
                    )

    def cut_off(self, kind: str, heard: str) -> FoundWords | None:
        """The longest words that were cut off here, and that what is heard goes on from."""
        best = None
        near = self._near(kind)
        for start, cut in () if near is None else self._cuts(near, kind):
            assert near is not None
            own = near.words[start:cut]
            if heard.startswith(own) and (best is None or len(own) > best.own):
                best = FoundWords(own, (len(own),), self.stretch, start, len(own))
        for loose in self._loose:
            if loose.kind == kind and loose.is_cut and heard.startswith(loose.words):
                if best is None or len(loose.words) > len(best.words):
                    best = FoundWords(loose.words, (len(loose.words),))
        return best

    def reach(self, kind: str, found: FoundWords, heard: int) -> None:
        """The replay has told so many letters of what was found."""
        if found.stretch is not None:
            self.go_to(found.stretch)
            self.is_told = True
            self._reached[kind] = found.start + min(heard, found.own)

    def _near(self, kind: str) -> JoinedWords | None:
        return None if self.is_astray else self._stretches[self.stretch].get(kind)

    def _here(self, kind: str) -> int:
        return self._reached.get(kind, 0)

    def _cuts(self, near: JoinedWords, kind: str) -> Iterator[tuple[int, int]]:
        for start in near.starts(self._here(kind)):
            for cut in near.cuts:
                if cut > start or cut == start == self._here(kind):
                    yield start, cut

    def _elsewhere(self, kind: str) -> Iterator[str]:
        yield from self._loose_words(kind)
        for place in range(self.stretch + 1, len(self._stretches)):
            shown = self._stretches[place].get(kind)
            if shown is not None:
                yield from shown.pieces()

    def _loose_words(self, kind: str) -> Iterator[str]:
        for stored in self._loose:
            if stored.kind == kind:
                yield stored.words


def _in_stretch(
    shown: JoinedWords,
    reached: int,
    heard: str,
    stretch: int,
    *,
    is_near: bool = True,
) -> Iterator[FoundWords]:
    for start in shown.starts(reached):
        if not shown.words.startswith(heard, start):
            continue
        words = shown.words[start:]
        if words:
            ends = tuple(end - start for end in shown.ends if end > start)
            yield FoundWords(words, ends, stretch, start, len(words), is_near)


def squeezed(words: str) -> str:
    """Words as they are compared."""
    return "".join(words.split())


def part_words(part: Block) -> str:
    """A part of a message as it is compared; what is no text is compared as it is."""
    if part.get("type") in ("text", "thinking"):
        return squeezed(text(part.get("text")))
    return squeezed(f"\0{freeze(part)!r}\0") if part else ""


def dropped(words: str, letters: int) -> str:
    """The words without their first letters, white space not counted."""
    for place, letter in enumerate(words):
        if letters == 0:
            return words[place:]
        if not letter.isspace():
            letters -= 1
    return ""
