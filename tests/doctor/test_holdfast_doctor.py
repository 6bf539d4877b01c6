"""The doctor and our own stores: each broken promise is named, and the healed copy keeps all that
can be read.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.doctor import detect, exam
from holdfast.doctor.holdfast.rules import RULES
from holdfast.importers.private_copy import PREFIX
from holdfast.testing.oracle import judge

MISSING = "is missing from the store"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all that a store can have; closed."""
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        for number in range(6):
            with session.turn(
                f"question {number}", event_id=f"e{number}", reply_to="somebody"
            ) as turn:
                turn.call("look", "{}", call_id=f"c{number}")
                turn.result(f"c{number}", f"found {number}")
                turn.say(f"answer {number} " + "words " * 200)
        session.compact("what was", keep_turns=2)
        session.append(
            {"role": "user", "content": [{"type": "text", "text": "a large part " * 4000}]}
        )
        first = next(iter(session.transcript()))
        session.label(first.id, starred=True)
        store.session("old").append("said before")
        store.reset("old")
        branch = session.fork(key="branch")
        branch.append("only here")
        store.accept("k", "waits")
        store.accept("branch", "waits here too")
    return path


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(healthy, tmp_path))


def rules(path: Path) -> set[str]:
    [(kind, where)] = detect.stores_at(str(path))
    return {finding.rule.name for finding in exam.examine(kind, where).findings}


def heal(path: Path, out: Path) -> list[str]:
    patient = detect.open_subject("holdfast", str(path))
    try:
        healed = patient.healed(exam.accepting(()))
        healed.write(str(out))
        return [change.rule for change in healed.changes()]
    finally:
        patient.close()


def words(path: Path) -> dict[str, list[str]]:
    """All that was said, session by session."""
    with holdfast.open(path) as store:
        return {
            each.id: [message.text for message in store.get(each.id).transcript()]
            for each in store.sessions()
        }


def tamper(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def overwrite(path: Path, table: str) -> None:
    """Zeros in the place of a leaf page of this table."""
    connection = apsw.Connection(str(path))
    pages = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
    ).fetchall()
    connection.close()
    with open(path, "r+b") as file:
        file.seek((sorted(pages)[len(pages) // 2][0] - 1) * 4096)
        file.write(bytes(4096))


def test_a_healthy_store_has_no_finding(path: Path) -> None:
    assert rules(path) == set()


def test_looking_changes_nothing(path: Path) -> None:
    """I-18."""
    before = (
        path.read_bytes(),
        os.stat(path).st_mtime_ns,
        os.stat(path).st_atime_ns,
        os.listdir(path.parent),
    )
    rules(path)
    assert before[1:] == (
        os.stat(path).st_mtime_ns,
        os.stat(path).st_atime_ns,
        os.listdir(path.parent),
    )
    assert path.read_bytes() == before[0]


def test_a_healed_copy_of_a_healthy_store_is_the_same_store(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "healed.db"
    assert heal(path, out) == []
    assert holdfast.copy(path, out).added == 0
    assert words(out) == words(path)
    with holdfast.open(out) as store:
        found = judge(store)
        assert not found, "\n".join(found)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a gap": (
        lambda path: tamper(path, "DELETE FROM entry WHERE session = 1 AND seq = 5"),
        "gap-in-log",
    ),
    "a payload that is no JSON": (
        lambda path: tamper(path, "UPDATE entry SET body = x'7b' WHERE session = 1 AND seq = 9"),
        "unreadable-entry",
    ),
    "an unknown base": (
        lambda path: tamper(path, "UPDATE session SET base = 400 WHERE n = 1"),
        "lost-base",
    ),
    "an inbox row of nothing": (
        lambda path: tamper(path, "UPDATE inbox SET seq = 3"),
        "stray-inbox",
    ),
    "an event of nothing": (lambda path: tamper(path, "UPDATE event SET seq = 2"), "stray-events"),
    "two sessions of one key": (
        lambda path: tamper(path, "UPDATE session SET ended = 0"),
        "doubled-keys",
    ),
    "a missing large part": (lambda path: tamper(path, "DELETE FROM blob"), "lost-blobs"),
    "a damaged page": (lambda path: overwrite(path, "entry"), "damaged-page"),
    "a file for everybody": (lambda path: os.chmod(path, 0o644), "open-to-others"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage, rule", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_named_and_healed(
    path: Path, tmp_path: Path, damage: Callable[[Path], None], rule: str
) -> None:
    before = words(path)
    damage(path)
    [(kind, where)] = detect.stores_at(str(path))
    told = [str(one) for one in exam.examine(kind, where).findings]
    assert f"holdfast/{rule}" in rules(path)
    # A private copy is examined, in a folder that is gone when this is read.
    assert not any(PREFIX in one for one in told), told
    out = tmp_path / "healed.db"
    assert heal(path, out) or rule in ("damaged-page", "lost-blobs")
    policies = {rule.name: rule.policy for rule in RULES}
    assert {found for found in rules(out) if policies[found] in ("auto", "mark")} == set()
    with holdfast.open(out) as store:
        found = judge(store)
        assert not found, "\n".join(found)
    after = words(out)
    for id, texts in after.items():  # nothing is made up, and nothing stands in another place
        assert all(
            text in ("", told) or MISSING in text
            for text, told in zip(texts, before[id], strict=False)
        )
    kept = sum(bool(text) for texts in after.values() for text in texts)
    assert kept >= sum(bool(text) for texts in before.values() for text in texts) - 12


def test_a_note_that_names_a_message_which_is_not_there_is_told(tmp_path: Path) -> None:
    """I-1: the start of a turn names the message that it takes."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        with store.session("k").turn("Is the berth free?") as turn:
            turn.say("It is.")
        asked = next(iter(store.session("k").transcript()))
    tamper(path, f"UPDATE entry SET id = randomblob(16) WHERE id = x'{asked.id}'")
    [(kind, where)] = detect.stores_at(str(path))
    [found] = exam.examine(kind, where).findings
    assert found.rule.name == "holdfast/names-no-message"
    assert found.measured == f"Here it names message {asked.id}, which is not there."
    assert found.policy == "report"


def test_healing_twice_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    tamper(path, "DELETE FROM entry WHERE session = 1 AND seq IN (5, 9)")
    digests = []
    for name in ("one.db", "two.db"):
        heal(path, tmp_path / name)
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert digests[0] == digests[1]


def test_words_of_a_turn_that_was_running_are_kept(tmp_path: Path) -> None:
    """I-5, I-6: the copy holds what was delivered, and the turn's one end."""
    path, out = tmp_path / "agent.db", tmp_path / "healed.db"
    with holdfast.open(path) as store:
        turn = store.session("k").turn("Tell me.")
        texts = turn.deliver(iter(["Once ", "upon ", "a time"]), format="text")
        assert next(texts) + next(texts) == "Once upon "
        assert rules(path) == set()
        heal(path, out)
        turn.interrupt("enough")
    with holdfast.open(out) as store:
        session = store.session("k", create=False)
        asked, answered = [message.text for message in session.transcript()]
        assert asked == "Tell me." and answered.startswith("Once upon ")
        assert session.info().running is None
        found = judge(store)
        assert not found, "\n".join(found)


def test_a_finished_message_whose_journal_is_still_there_is_told_once(tmp_path: Path) -> None:
    """I-6: what was delivered and stored is not stored again as a part of itself."""
    path, out = tmp_path / "agent.db", tmp_path / "healed.db"
    with holdfast.open(path) as store:
        turn = store.session("k").turn("Tell me.")
        assert list(turn.deliver(iter(["Once ", "upon ", "a time."]), format="text"))
        assert turn.say("The end.")
        heal(path, out)
        turn.interrupt("enough")
    assert list(words(out).values()) == [["Tell me.", "Once upon a time.", "The end."]]


def test_a_fence_that_is_below_the_turns_of_the_log_is_put_above_them(
    path: Path, tmp_path: Path
) -> None:
    """I-6, I-7: the next turn has a number that no turn has had."""
    out = tmp_path / "healed.db"
    tamper(path, "UPDATE session SET fence = 1 WHERE key = 'k'")
    heal(path, out)
    with holdfast.open(out) as store:
        with store.session("k", create=False).turn("next") as turn:
            turn.say("fine")
        assert turn.id.endswith(":7")
        found = judge(store)
        assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 5000, b"{}\n" * 10]
)
def test_what_is_no_store_is_a_finding(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "thing.db").write_bytes(data)
    [(kind, path)] = detect.stores_at(str(tmp_path / "thing.db"))
    report = exam.examine(kind, path)
    assert report.is_unreadable and report.findings


def test_a_store_that_can_t_be_opened_is_a_finding(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(8192)
    [(kind, where)] = detect.stores_at(str(path))
    assert [finding.rule.name for finding in exam.examine(kind, where).findings] == [
        "holdfast/unreadable-store"
    ]


def test_a_fork_and_its_parent_that_both_go_on_are_healthy(tmp_path: Path) -> None:
    """What the parent said after they parted is not the past of the fork, though both have a turn
    of that number.
    """
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        session = store.session("k")
        with session.turn("one") as turn:
            turn.say("two")
        branch = session.fork(key="branch")
        for each in (session, branch):
            with each.turn("three") as turn:
                turn.say("four")
    assert rules(path) == set()


def test_a_fork_that_says_it_is_its_own_parent_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "ring.db"
    with holdfast.open(path, durability="process") as store:
        root = store.session("k")
        root.append("one")
        fork = root.fork(key="fork")
        fork.append("two")
        ids = (root.id, fork.id)
    connection = apsw.Connection(str(path))
    changed = connection.execute(
        "UPDATE entry SET note = CAST(replace(CAST(note AS TEXT), ?, ?) AS BLOB) "
        "WHERE kind = 'opened' RETURNING note",
        ids,
    ).fetchall()
    assert any(ids[1].encode() in note for (note,) in changed)
    connection.close()
    [(kind, where)] = detect.stores_at(str(path))
    assert exam.examine(kind, where).sessions == 2
