"""The transcripts of a store: where each lies, and what is done with its lines."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import anyio.to_thread
from claude_agent_sdk import fold_session_summary

from holdfast.adapters.framework import (
    Named,
    append_once,
    key_of,
    names_of,
    sessions_under,
)
from holdfast.domain.arguments import kind_of
from holdfast.engine.protocol import Commit, Write
from holdfast.errors import BadArgument, NotFound, SessionEnded
from holdfast.formats.anthropic.claude_code import NAME, is_spoken
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.plans.plan import run
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

MAIN, ASIDE, SUMMARY, SHOWN = "claude", "claude.sub", "claude.summary", "claude.shown"
"""The first names of keys: transcripts, those of sub-agents, what is folded of a transcript, and
what a query has shown before Claude Code's own line of it was stored.
"""
KNOWN_MAX = 10_000
UNREADABLE = "unreadable"
HIDDEN = {"visible_to_model": False}

Line = dict[str, Any]
T = TypeVar("T")


async def on_thread(work: Callable[..., T], *given: Any) -> T:
    """What this gives, on a thread: asyncio and trio go on meanwhile."""
    found: T = await anyio.to_thread.run_sync(partial(work, *given))
    return found


class TranscriptPlace(NamedTuple):
    """Which transcript is meant."""

    project: str
    session: str
    subpath: str | None = None

    @classmethod
    def of(cls, key: Any) -> "TranscriptPlace":
        """The place that a `SessionKey` names."""
        if not isinstance(key, dict):
            raise BadArgument(parameter="key", takes="a dict", given=kind_of(key))
        names: list[Any] = [key.get("project_key"), key.get("session_id")]
        if key.get("subpath") is not None:
            names.append(key["subpath"])
        for name in names:
            if not isinstance(name, str) or not name:
                takes = "a project_key and a session_id, and a subpath where it has one"
                raise BadArgument(parameter="key", takes=takes, given=kind_of(name))
        return cls(*names)

    @property
    def key(self) -> str:
        """The key of its session."""
        if self.subpath is None:
            return key_of(MAIN, self.project, self.session)
        return key_of(ASIDE, self.project, self.session, self.subpath)


class Transcripts:
    """All transcripts of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def append(self, place: TranscriptPlace, lines: list[Line]) -> None:
        """Stores what is new in a batch of lines, in one commit."""
        session = self._own(place)
        aside = place.subpath is not None
        named = [_named(line, aside=aside) for line in lines]
        while True:
            also = () if aside else self._folded(place, lines)
            # Refused, somebody else has folded the summary meanwhile: it is folded again.
            if run(append_once(session, named, format=NAME, also=also)):
                return

    def load(self, place: TranscriptPlace) -> list[Line] | None:
        """The lines of a transcript; None when there are none. From now on it is known which
        session is meant.
        """
        session = self.find(place.key)
        self._remember(place.key, session)
        if session is None:
            return None
        lines = self.after(session, 0)
        return lines or None

    def after(self, session: Session, seq: int) -> list[Line]:
        """The lines after this entry; one that can't be read is a note that says so."""
        lines = []
        for message in session.transcript(after=seq):
            if message.format != NAME:
                continue
            line = message.payload
            if not isinstance(line, dict):
                line = {
                    "type": "system",
                    "subtype": UNREADABLE,
                    "content": message.text,
                }
            lines.append(line)
        return lines

    def find(self, key: str) -> Session | None:
        """The current session of a key, if there is one that was not deleted."""
        try:
            found = self.store.session(key, create=False)
        except NotFound:
            return None
        return None if found._log.state().ended else found

    def of_project(self, project: str) -> dict[str, int]:
        """The main transcripts of a project: their ids, and when each was last written."""
        found = {}
        for state in sessions_under(self.store, MAIN, project):
            found[names_of(state.key or "")[2]] = state.last_at
        return found

    def summaries(self, project: str) -> list[Line]:
        """What was folded of each main transcript of a project."""
        times = self.of_project(project)
        found = []
        for state in sessions_under(self.store, SUMMARY, project):
            session_id = names_of(state.key or "")[2]
            summary = _last(self.store.get(state.id), state.head)
            if summary is not None and session_id in times:
                # The summary is as old as the lines it was last folded with, changed or not.
                found.append({**summary, "mtime": times[session_id]})
        return found

    def subpaths(self, place: TranscriptPlace) -> list[str]:
        """The sub-agents' transcripts of a session."""
        states = sessions_under(self.store, ASIDE, place.project, place.session)
        return [names_of(state.key or "")[3] for state in states]

    def delete(self, place: TranscriptPlace) -> None:
        """Erases a transcript. The main one comes last: killed before that, it is still there to
        be deleted again.
        """
        keys = [place.key]
        if place.subpath is None:
            names = place.project, place.session
            for kind in (ASIDE, SHOWN):
                under = sessions_under(self.store, kind, *names)
                keys[:0] = [state.key or "" for state in under]
            keys.insert(0, key_of(SUMMARY, *names))
        for key in keys:
            session = self.find(key)
            if session is not None:
                self.store.erase(session.id)
            self._remember(key, None)

    def _own(self, place: TranscriptPlace) -> Session:
        """The session to write to: that which was meant when this process first used it."""
        known = self._known.get(place.key)
        # Looked up first: a transcript that is over must not come into being again.
        session = None if known is None else self.find(place.key)
        current = None if session is None else session.id
        if known != current:
            reason = "its transcript was deleted"
            raise SessionEnded(session_id=known, reason=reason, current_id=current)
        session = session or self.store.session(place.key)
        self._remember(place.key, session)
        return session

    def _remember(self, key: str, session: Session | None) -> None:
        with self._lock:
            self._known.pop(key, None)
            if session is not None:
                self._known[key] = session.id
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def _folded(self, place: TranscriptPlace, lines: list[Line]) -> Commit:
        """The write that keeps the summary, refused if it is not what it was folded from."""
        log = self.store.session(key_of(SUMMARY, place.project, place.session))._log
        state = log.engine.state(log.id)
        assert state is not None
        known = _last(Session(log), state.head)
        key = {"project_key": place.project, "session_id": place.session}
        folded = fold_session_summary(known, key, lines)
        if known is not None and folded["data"] == known["data"]:
            # Nothing to store, but a guard all the same: the summary must still be the
            # one that the lines were folded onto.
            return (Write(log.id, head=state.head),)
        draft = log.message(speak({"type": "summary", **folded}, NAME), turn=None)
        return (Write(log.id, (draft,), head=state.head),)


def _named(line: Line, *, aside: bool) -> Named:
    uuid = line.get("uuid")
    labels = None if is_spoken(line, aside=aside) else HIDDEN
    return Named(line, uuid if isinstance(uuid, str) and uuid else None, labels)


def _last(session: Session, head: int) -> Line | None:
    """The summary that was stored last."""
    for message in session.transcript(after=head - 1):
        summary = message.payload
        if isinstance(summary, dict) and isinstance(summary.get("data"), dict):
            del summary["type"]
            return summary
    return None
