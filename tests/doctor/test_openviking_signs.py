"""Every way in which an OpenViking session breaks is named, and nothing else is said of it."""

import json
import shutil
import subprocess
import sys

import pytest

import openviking_stores as stores
from holdfast.doctor.openviking.rules import RULES
from holdfast.doctor.openviking.subject import OpenVikingSubject


def examined(path):
    patient = OpenVikingSubject(path)
    try:
        return list(patient.examine())
    finally:
        patient.close()


def rules_at(path):
    return sorted({finding.rule.name for one in examined(path) for finding in one.findings})


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule, build", stores.CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_a_defect_is_named_and_nothing_else(tmp_path, rule, build):
    assert rules_at(stores.made(build, tmp_path)) == [rule]


@pytest.mark.parametrize("build", stores.HEALTHY, ids=lambda build: build.__name__)
def test_a_healthy_session_gives_no_finding(tmp_path, build):
    assert rules_at(stores.made(build, tmp_path)) == []


def test_every_rule_has_a_case():
    assert sorted(stores.DAMAGED) == sorted(rule.name for rule in RULES)


def test_every_beginning_of_a_healthy_session_is_healthy(tmp_path):
    """A live store stops anywhere: after each append, its counters with it."""
    said = [
        *stores.messages(1, 4),
        stores.tool(5),
        stores.tool(6, "a", "running"),
        stores.tool(7, "b", "running"),
        stores.tool(8, "a", text=""),
        stores.tool(9, "b", text=""),
        *stores.messages(10, 12),
    ]
    for length in range(len(said) + 1):
        session = stores.Session(tmp_path, f"beginning-{length}").live(said[:length])
        assert rules_at(session.path) == [], length


def test_every_commit_leaves_a_healthy_session(tmp_path):
    for commits in range(4):
        last = 2 * commits
        session = stores.Session(tmp_path, f"commits-{commits}")
        session.live(stores.messages(last + 1, last + 3), total=last + 3, commits=commits)
        for number in range(1, commits + 1):
            ends = 2 * number - 1, 2 * number
            marker = stores.done(*ends, number)
            session.archive(number, stores.messages(*ends), done=marker, overview=stores.OVERVIEW)
        assert rules_at(session.path) == []


def test_a_tree_is_looked_at_session_by_session(tmp_path):
    tree = tmp_path / "viking/default/user/default/sessions"
    for build in (*stores.HEALTHY, stores.lost_clear, stores.torn_tail):
        build(tree)
    found = {
        one.session: {finding.rule.name for finding in one.findings} for one in examined(tmp_path)
    }
    assert found.pop("lost-clear") == {"openviking/lost-clear"}
    assert found.pop("torn-tail") == {"openviking/torn-tail"}
    assert len(found) == len(stores.HEALTHY) and not any(found.values())


def test_one_session_can_be_asked_for(tmp_path):
    stores.lost_clear(tmp_path)
    stores.torn_tail(tmp_path)
    patient = OpenVikingSubject(tmp_path)
    assert [one.session for one in patient.examine("torn-tail")] == ["torn-tail"]
    patient.close()


def test_an_append_that_was_cut_never_looks_like_a_lost_clear(tmp_path):
    """Lines beyond the counter are no proof: an archive has to say that it moved them."""
    session = stores.Session(tmp_path, "s").live(
        stores.messages(5, 9), total=8, commits=1, message_count=4
    )
    session.archive(1, stores.messages(1, 4), done=stores.done(1, 4), overview=stores.OVERVIEW)
    assert rules_at(session.path) == ["openviking/append-crash-meta-behind"]


def test_a_file_is_no_session(tmp_path):
    (tmp_path / "file").write_text("words")
    assert rules_at(tmp_path / "file") == ["openviking/unreadable-store"]


def test_sessions_of_one_name_are_told_apart(tmp_path):
    for user in ("ann", "bob"):
        stores.ok_live(tmp_path / user / "sessions")
    assert [one.session for one in examined(tmp_path)] == [
        "ann/sessions/ok-live",
        "bob/sessions/ok-live",
    ]


@pytest.mark.parametrize(
    "build", [stores.stale_locks, stores.pending_forever, stores.append_crash_meta_behind]
)
def test_of_a_store_in_use_nothing_is_said_that_may_be_under_way(tmp_path, build):
    """Some process has a file of it open: this one's child does."""
    path = stores.made(build, tmp_path)
    assert rules_at(path)
    with open(path / "messages.jsonl", "rb") as held:
        command, kept = [sys.executable, "-c", "input()"], (held.fileno(),)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=kept
        ) as user:
            assert rules_at(path) == []
            user.communicate()


def test_what_a_counter_misses_is_still_missed_beside_other_damage(tmp_path):
    session = stores.Session(tmp_path, "s").live(
        [*stores.messages(1, 2), stores.message(2)], message_count=9, total=9
    )
    assert rules_at(session.path) == ["openviking/duplicate-ids", "openviking/wiped-live"]
    shutil.rmtree(session.path)
    again = stores.Session(tmp_path, "s").live(stores.messages(1, 2))
    (again.path / ".meta.json").write_text(json.dumps({"session_id": "s", "message_count": "many"}))
    assert rules_at(again.path) == []
