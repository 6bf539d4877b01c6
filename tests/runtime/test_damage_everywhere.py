"""Every kind of damage, and every call that meets it (I-18, I-25): each call works, all else is
there, the damage is told where a person would see it, and `check` names its place. On both engines,
through the library and the command line.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from commanding import command
from spoiling import Spoiled, place
from thorough import few_cases

__all__ = ["place"]

DEEP = b"[" * 100_000 + b"]" * 100_000
NOBODY = "00" * 16
FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
EXPORTS = ("holdfast", "goose-json", "openai.chat", "markdown", "html")


class Damage(NamedTuple):
    """What is spoiled: the column of an entry, by its kind or, for messages, by its words."""

    entry: str
    column: str
    value: Any
    told: bool = True
    """Whether it is a message, whose place in the transcript says that it can't be read."""
    read: bool = False
    """Whether it can be read, and names a message that is not there."""


DAMAGES = {
    "a bare scalar": Damage("words of three", "body", b"5"),
    "a bare string": Damage("words of three", "body", b'"words"'),
    "flipped bytes": Damage(
        "words of three", "body", b'{"role":"assistant","content":"w\xff\xfe"}'
    ),
    "half of it": Damage("words of three", "body", b'{"role":"assistant","con'),
    "another shape": Damage("words of three", "body", b'{"role":"assistant","content":{"a":1}}'),
    "nested too deep": Damage("words of three", "body", DEEP),
    "no note": Damage("words of three", "note", b"{"),
    "a note of other types": Damage("words of three", "note", b'{"role":5}'),
    "a format of a newer release": Damage(
        "words of three", "note", b'{"role":"assistant","format":"newer"}'
    ),
    "a kind of a newer release": Damage("label", "kind", "hologram", told=False),
    "a summary": Damage("compaction", "body", b"5", told=False),
    "a summary's note": Damage("compaction", "note", b"{", told=False),
    "instructions": Damage("instructions", "body", b"5", told=False),
    "a label of nobody": Damage(
        "label", "note", b'{"message":"%s"}' % NOBODY.encode(), told=False, read=True
    ),
    "a rewind to nobody": Damage(
        "rewind", "note", b'{"to":"%s"}' % NOBODY.encode(), told=False, read=True
    ),
    "a turn that took nobody": Damage(
        "turn", "note", b'{"takes":["%s"]}' % NOBODY.encode(), told=False, read=True
    ),
    "a summary of nothing": Damage(
        "compaction", "note", b'{"covers":[[1,1]],"ranges":[[2,2]]}', told=False, read=True
    ),
}


def furnished(store: holdfast.Store) -> tuple[str, dict[str, int]]:
    """A session with much in it, and one beside it; where its entries are, by kind or by words."""
    session = store.session("bad")
    session.instructions("Be brief.")
    with session.turn("kelp and salt", reply_to="r1") as turn:
        turn.say("words of one")
    with session.turn("second", reply_to="r2") as turn:
        turn.say("words of three")
    [first, *_, last] = session.transcript()
    session.label(first.id, star=True)
    session.compact("in short", keep_turns=1)
    session.rewind(last.id)
    with session.turn("third") as turn:
        turn.say("kelp again")
    store.accept("bad", "waits for a turn")
    with store.session("good").turn("kelp here too", reply_to="q") as turn:
        turn.say("yes")
    places = {entry.kind: entry.seq for entry in session.entries()}
    places |= {message.text: message.seq for message in session.transcript()}
    return session.id, places


class Case(NamedTuple):
    """A spoiled store, for the calls below."""

    store: holdfast.Store
    where: str
    bad: str
    damage: Damage
    told: str
    folder: Path

    @property
    def session(self) -> holdfast.Session:
        return self.store.get(self.bad)

    def texts(self) -> list[str]:
        return [message.text for message in self.session.transcript()]

    def run(self, *arguments: str) -> str:
        done = command(*arguments, "--store", self.where)
        assert done.code == 0, done.err
        return done.out


def whole(case: Case, texts: list[str]) -> None:
    """All but what was spoiled is there, and what was spoiled says so in its place."""
    said = [text for text in texts if text in WORDS]
    expected = [word for word in WORDS if word != case.damage.entry]
    assert said == expected
    if case.damage.told:
        assert sum(case.told in text for text in texts) == 1


WORDS = [
    "kelp and salt",
    "words of one",
    "second",
    "words of three",
    "third",
    "kelp again",
    "waits for a turn",
]


def reads_contexts(case: Case) -> None:
    for format in FORMATS:
        context = case.session.context(format)
        assert all(isinstance(payload, dict) for payload in context)
        shown = str([*context, context.instructions])
        assert "kelp again" in shown
        assert case.told in shown or not case.damage.told


def reads_the_outbox(case: Case) -> None:
    owed = {each.reply_to: each.text for each in case.store.outbox()}
    assert set(owed) == {"r1", "r2", "q"}, "a reply that is owed is not left out in silence"
    assert owed["q"] == "yes" and owed["r1"] == "words of one"
    assert (case.told in owed["r2"]) if case.damage.told else (owed["r2"] == "words of three")


def searches(case: Case) -> None:
    found = [hit.snippet for hit in case.store.search("kelp")]
    assert "kelp here too" in found and "kelp again" in found
    assert "kelp again" in case.run("sessions", "search", "kelp")


def checks(case: Case) -> None:
    problems = [str(problem) for problem in case.store.check()]
    assert any(f"entry {case.told.split()[1]}" in problem for problem in problems), problems
    done = command("store", "check", "--store", case.where)
    assert done.code == 1, done.out + done.err


def shows(case: Case) -> None:
    shown = case.run("sessions", "show", case.bad, "--full")
    assert "kelp again" in shown and "waits for a turn" in shown
    assert case.told in " ".join(shown.split()) or not case.damage.told
    assert "bad" in case.run("sessions", "list") and "good" in case.run("sessions", "list")


def exports(case: Case) -> None:
    for format in EXPORTS:
        written = case.run("sessions", "export", case.bad, "--as", format)
        assert "kelp again" in written
        assert case.told.removesuffix(" can't be read") in written or not case.damage.told


def is_backed_up(case: Case) -> None:
    if "://" in case.where:
        return  # a server's backups are its own
    backup = case.store.backup(case.folder / "backup.db")
    assert backup.sessions == 2
    with holdfast.open(backup.path) as copy:
        whole(case, [message.text for message in copy.get(case.bad).transcript()])


def is_copied(case: Case) -> None:
    """A placeholder is copied for what is damaged, and that is told; all else is copied. A note
    that names a message which is not there can be read, and is copied as it is.
    """
    copied = holdfast.copy(case.where, case.folder / "copy.db")
    assert (copied.sessions, copied.differences) == (2, ())
    told = [(each.session_id, each.seqs) for each in copied.salvaged]
    assert told == ([] if case.damage.read else [(case.bad, (int(case.told.split()[1]),))])
    with holdfast.open(case.folder / "copy.db") as copy:
        whole(case, [message.text for message in copy.get(case.bad).transcript()])
        assert [message.text for message in copy.session("good").transcript()] == [
            "kelp here too",
            "yes",
        ]


def is_recorded(case: Case) -> None:
    """What the context shows, and one message more: that one is new."""
    session = case.session
    recorded = session.record([*session.context(), {"role": "user", "content": "recorded"}])
    assert len(recorded.new) == 1
    assert "recorded" in str(case.session.context())


def is_forked(case: Case) -> None:
    texts = [message.text for message in case.session.fork().transcript()]
    # what waits may stay where it is
    whole(case, [*(text for text in texts if text != WORDS[-1]), WORDS[-1]])


def is_compacted(case: Case) -> None:
    seen: list[str] = []

    def summary(messages: list[holdfast.Message]) -> str:
        seen.extend(message.text for message in messages)
        return "all of it"

    assert case.session.compact(summary, keep_turns=0) is not None
    assert "kelp again" in seen
    assert "all of it" in str(case.session.context())


def is_rewound(case: Case) -> None:
    [first, *_] = case.session.transcript()
    case.session.rewind(first.id)
    assert "kelp again" not in str(case.session.context())


def goes_on(case: Case) -> None:
    session = case.session
    with session.turn("and a turn") as turn:
        turn.context()
        turn.say("as ever")
    assert case.texts()[-2:] == ["and a turn", "as ever"]
    session.append("still here")
    session.info(), session.turns(), session.calls(), list(session.entries())
    assert case.store.reset("bad").epoch == 2
    assert case.store.erase(case.bad).done
    assert not any(case.texts())


CALLS: dict[str, Callable[[Case], Any]] = {
    "transcript": lambda case: whole(case, case.texts()),
    "context": reads_contexts,
    "outbox": reads_the_outbox,
    "pending": lambda case: [each.text for each in case.store.pending()].index("waits for a turn"),
    "search": searches,
    "check": checks,
    "show": shows,
    "export": exports,
    "backup": is_backed_up,
    "copy": is_copied,
    "record": is_recorded,
    "fork": is_forked,
    "compact": is_compacted,
    "rewind": is_rewound,
    "turn": goes_on,
}


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("kind", DAMAGES)
def test_one_bad_record_takes_away_nothing_but_itself_whatever_is_called(
    place: Spoiled, tmp_path: Path, kind: str
) -> None:
    damage = DAMAGES[kind]
    with place.open() as store:
        bad, places = furnished(store)
    seq = places[damage.entry]
    place.spoil(bad, seq, damage.column, damage.value)
    wrong = []
    with place.open() as store:
        case = Case(
            store, os.fspath(place.where), bad, damage, f"Entry {seq} can't be read", tmp_path
        )
        for name, call in CALLS.items():
            try:
                call(case)
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {str(error)[:600]}")
    assert not wrong, "\n".join(wrong)


def test_what_a_fork_names_in_the_past_that_it_shares_is_there_until_it_is_missing(
    place: Spoiled,
) -> None:
    with place.open() as store:
        parent = store.session("parent")
        with parent.turn("one") as turn:
            turn.say("two")
        first, second = parent.transcript()
        parent.append("three")
        fork = parent.fork().fork()
        fork.label(first.id, star=True)
        fork.rewind(second.id)
        assert store.check() == []
        [label] = [entry for entry in fork.entries() if entry.kind == "label"]
    place.spoil(parent.id, first.seq, "id", bytes(15) + b"\1")
    with place.open() as store:
        [found] = [problem for problem in store.check() if problem.session == fork.id]
        assert found.place == f"session {fork.id}, entry {label.seq}"
        assert found.problem == f"it names message {first.id}, which is not there"
