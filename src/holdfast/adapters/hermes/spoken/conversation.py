"""What one agent of Hermes says, as it goes into one session of Holdfast.

    begin       a turn was opened for a call of `run_conversation`
    show        a piece of text is about to be shown: it is stored first
    steer       messages of the user's go into a tool's result, on their way to the model
    segment     what is shown next is another message; `retry`: and the model is asked again
    record      Hermes writes its list: what is new in it is stored, its shape becomes the view
    finish      the call is over

Hermes streams on threads of its own, a new one for each attempt, and writes from several: each of
these is done under the lock.
"""

import contextlib
import threading
from typing import Any

from holdfast import Session, Turn
from holdfast.adapters.hermes.spoken.live_list import Live, LiveList, Payload, Said
from holdfast.adapters.hermes.spoken.speech import FORMAT, Speech
from holdfast.adapters.hermes.spoken.steered import SteeredWords
from holdfast.errors import Overtaken


class Conversation:
    """An agent and the session that it speaks in. `failure` says why its turn had to be stopped."""

    def __init__(self, session: Session, session_id: str) -> None:
        self.session = session
        self.session_id = session_id
        self.turn: Turn | None = None
        self.failure: str | None = None
        self.known_to: int | None = None
        """Up to here the agent knows the log; what comes after is of `last_turn`, or of others."""
        self.last_turn: str | None = None
        self.lock = threading.RLock()
        self._list = LiveList()
        self._asked: list[Payload] = []
        self._before: Live | None = None
        """The last dict of the list that is not of the running turn's making."""
        self._speech: Speech | None = None
        self._unclaimed: list[Speech] = []
        self._cut_before: list[Payload] = []
        self._steered = SteeredWords()
        self._is_overtaken = False

    def begin(self, turn: Turn, asked: list[Payload]) -> None:
        """A turn was opened, with these messages of the user's."""
        with self.lock:
            self.turn = turn
            self.failure = None
            self._asked = asked
            self._before = None
            self._speech = None
            self._unclaimed.clear()

    def remember_cut(self, payloads: list[Payload]) -> None:
        """These answers were cut off by a kill: what Hermes loads of them has no blank at its end."""
        with self.lock:
            self._cut_before = payloads

    def steer(
        self, messages: list[Live], stored: list[Payload], words: list[Said]
    ) -> None:
        """Messages that the running turn has taken go into the last result of this list; `words` are
        those of them that the model is told.
        """
        with self.lock:
            for payload, (live, _) in zip(stored, words, strict=True):
                self._list.bind(live, [payload])
            self._steered.note(messages, words)

    def show(self, text: str) -> None:
        """Stores a piece of an answer; raises where it can't be stored, and must not be shown then."""
        with self.lock:
            if self.turn is None:
                return
            if self._speech is not None and self._speech.is_over:
                self._leave(finish="stop")
            if self._speech is None:
                self._speech = Speech(self.turn)
            self._speech.say(text)

    def segment(self) -> None:
        """The message that is being spoken has all its text; its calls may still come."""
        with self.lock:
            if self._speech is not None:
                self._speech.is_over = True

    def retry(self) -> None:
        """The model is asked, perhaps again: what it says belongs to another message."""
        with self.lock:
            if self._speech is not None:
                self._leave(finish=None)
            for speech in self._unclaimed:
                speech.is_given_up = True

    def _leave(self, finish: str | None) -> None:
        speech = self._speech
        assert speech is not None
        self._speech = None
        self._unclaimed.append(speech)
        speech.close(finish=finish)

    def record(self, said: list[Said]) -> None:
        """Stores what is new in the agent's list, and its shape."""
        with self.lock:
            said = self._steered.placed(said)
            self._is_overtaken = self.turn is not None and self.turn.stopped
            self._bind(said)
            # Somebody else has gone on here, and this list has nothing of that: as the view it would
            # drop what the other one has said. What is new in it is stored by now.
            if self._is_overtaken:
                return
            self._present(said)
            # A copy that was known so far may say something else by now: that is an edit.
            if self._list.reword(said):
                self._present(said)

    def _present(self, said: list[Said]) -> None:
        presented = self._list.presented(said)
        # What the turn was opened with is in the view, though Hermes has no dict of it yet.
        presented += self._asked
        self.session.record(presented, format=FORMAT)

    def _bind(self, said: list[Said]) -> None:
        """Finds which of the new dicts are stored already, and stores those of the running turn."""
        fresh = []
        for each in said:
            if not self._list.has(each[0]):
                fresh.append(each)
        self._bind_asked(fresh)
        self._bind_joined(said)
        of_turn = self._of_turn(said)
        # By their addresses: equal words are two messages (I-2).
        own = set()
        for live, _ in of_turn:
            own.add(id(live))
        last = self._last_answer(of_turn)
        # One after the other, in the order of the list: the log has them in that order, too.
        for live, words in fresh:
            speech = self._spoken_as(words)
            # What Hermes has changed the words of: its newest answer is what was spoken last.
            if speech is None and live is last:
                speech = self._speech
            if speech is not None:
                self._claim(live, words, speech)
            elif self._bind_cut(live, words):
                continue
            elif id(live) in own:
                self._add(live, words)

    def _of_turn(self, said: list[Said]) -> list[Said]:
        """What the running turn has added to the list."""
        # Hermes writes its list before it asks the model: at first it ends with the question.
        if self._before is None and said:
            self._before = said[-1][0]
        if self.turn is None:
            return []
        for place in reversed(range(len(said))):
            if said[place][0] is self._before:
                return said[place + 1 :]
        # A compaction has made other dicts of all: `record` knows them by their words.
        return []

    def _last_answer(self, of_turn: list[Said]) -> Live | None:
        for live, _ in reversed(of_turn):
            if live.get("role") == "assistant":
                # One that is known has had its stream.
                if self._list.has(live):
                    return None
                return live
        return None

    def _add(self, live: Live, words: Payload) -> None:
        """Stores a message of the running turn; behind all others, where another has taken over: there
        Hermes has its row, and whoever loads those knows it by that.
        """
        assert self.turn is not None
        if self._is_overtaken:
            self.session.append(words, format=FORMAT)
        else:
            # It is stored also where another takes over just now, late.
            with contextlib.suppress(Overtaken):
                self.turn.add(words, FORMAT)
        self._list.bind(live, [words.copy()])

    def _bind_asked(self, fresh: list[Said]) -> None:
        asked: Live | None = None
        for live, _ in fresh:
            if live.get("role") == "user":
                asked = live
        if asked is not None and self._asked:
            # The last of them: those before it are of a history that was loaded.
            self._before = asked
            self._list.bind(asked, self._asked)
            self._asked = []

    def _bind_joined(self, said: list[Said]) -> None:
        """Hermes joins a question to one that had no answer, and takes its dict away."""
        texts = []
        for each in self._asked:
            texts.append(_text(each))
        words = "\n\n".join(texts)
        if not words:
            return
        for live, now in reversed(said):
            if now["role"] != "user":
                continue
            if _text(now).endswith(f"\n\n{words}"):
                self._before = live
                self._asked = []
                return

    def _spoken_as(self, words: Payload) -> Speech | None:
        text = _text(words)
        if words["role"] != "assistant" or not text:
            return None
        # The oldest first: of two equal answers, the first dict is the first one.
        spoken = list(self._unclaimed)
        if self._speech is not None:
            spoken.append(self._speech)
        for speech in spoken:
            if speech.text.strip() == text:
                return speech
        return None

    def _claim(self, live: Live, words: Payload, speech: Speech) -> None:
        """This dict is what was spoken."""
        # Hermes gives an answer that was cut off no reason for its end.
        finish = live.get("finish_reason")
        if finish is not None:
            finish = str(finish) or None
        speech.close(words, finish=finish)
        # Not before: if the store can't take it now, it is claimed when it is recorded again.
        if speech is self._speech:
            self._speech = None
        else:
            self._unclaimed.remove(speech)
        self._list.bind(live, [speech.payload()])

    def _bind_cut(self, live: Live, words: Payload) -> bool:
        if words["role"] != "assistant":
            return False
        for payload in self._cut_before:
            if _text(payload) == _text(words):
                self._cut_before.remove(payload)
                self._list.bind(live, [payload])
                return True
        return False

    def finish(self, *, cut: bool) -> None:
        """The call is over; what is still being spoken ends here."""
        with self.lock:
            if self._speech is not None:
                self._leave(finish=None if cut else "stop")
            self.turn = None


def _text(payload: Payload) -> str:
    words: Any = payload.get("content")
    return words.strip() if isinstance(words, str) else ""
