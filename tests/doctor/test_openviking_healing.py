"""A healed OpenViking session has nothing left to heal, and lost nothing that could be read."""

import json
import os

import pytest

import openviking_stores as stores
from holdfast.doctor.openviking.rules import RULES
from holdfast.doctor.openviking.subject import OpenVikingSubject
from holdfast.errors import StoreUnavailable
from holdfast.importers.foreign_session import Summary
from holdfast.importers.openviking.reader import recognises
from thorough import few_cases

POLICY = {rule.name: rule.policy for rule in RULES}


def usual(rule):
    return rule.policy in ("auto", "mark")


def every(rule):
    return rule.policy != "report"


def healed(path, out, accepts=usual):
    """Writes a healed copy; its changes and its stories, lines in memory."""
    patient = OpenVikingSubject(path)
    copy = patient.healed(accepts)
    copy.write(str(out))
    changes = copy.changes()
    stories = {story.id: list(story.lines) for story in patient.healed(accepts).sessions()}
    patient.close()
    return changes, stories


def rules_at(path):
    patient = OpenVikingSubject(path)
    found = {finding.rule.name for one in patient.examine() for finding in one.findings}
    patient.close()
    return found


def ids_in(path):
    return [json.loads(line)["id"] for line in path.read_text().split("\n") if line]


def tree(path):
    return {
        str(one.relative_to(path)): (
            one.stat().st_mode & 0o777,
            one.read_bytes() if one.is_file() else None,
        )
        for one in path.rglob("*")
    }


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize(
    "rule, build", stores.CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_nothing_is_left_that_needs_no_question(tmp_path, rule, build):
    path = stores.made(build, tmp_path / "in")
    changes, _ = healed(path, tmp_path / "out")
    if rule != "openviking/unreadable-store":
        assert not {one for one in rules_at(tmp_path / "out") if POLICY[one] in ("auto", "mark")}
        assert bool(changes) == (POLICY[rule] in ("auto", "mark"))


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(
    "rule, build", stores.CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_with_every_question_answered_only_what_is_gone_is_left(tmp_path, rule, build):
    path = stores.made(build, tmp_path / "in")
    healed(path, tmp_path / "out", every)
    if rule != "openviking/unreadable-store":
        left = rules_at(tmp_path / "out")
        assert left == ({rule} if POLICY[rule] == "report" and "lock" not in rule else set())


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize(
    "build", [*stores.HEALTHY, *(build for _, build in stores.CASES)], ids=lambda b: b.__name__
)
def test_healing_twice_gives_the_same_bytes(tmp_path, build):
    path = stores.made(build, tmp_path / "in")
    healed(path, tmp_path / "one", every)
    healed(path, tmp_path / "two", every)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


@pytest.mark.parametrize("build", stores.HEALTHY, ids=lambda build: build.__name__)
def test_a_healthy_session_is_copied_as_it_is(tmp_path, build):
    path = stores.made(build, tmp_path / "in")
    changes, _ = healed(path, tmp_path / "out", every)
    assert changes == []
    before, after = (
        {name: raw for name, (_, raw) in tree(one).items()} for one in (path, tmp_path / "out")
    )
    assert before == after


def test_only_the_owner_may_read_what_was_healed(tmp_path):
    healed(stores.made(stores.torn_tail, tmp_path / "in"), tmp_path / "out")
    assert {mode for mode, _ in tree(tmp_path / "out").values()} <= {0o600, 0o700}


def test_a_healed_copy_is_never_written_over_something(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreUnavailable):
        healed(stores.made(stores.torn_tail, tmp_path / "in"), tmp_path / "out")


def test_the_original_keeps_its_bytes_and_its_times(tmp_path):
    for _, build in stores.CASES:
        build(tmp_path / "in")
    before = tree(tmp_path / "in")
    paths = [tmp_path / "in", *(tmp_path / "in" / name for name in before)]
    for path in paths:
        os.utime(path, (1_700_000_000, 1_700_000_001))
    assert recognises(tmp_path / "in")
    healed(tmp_path / "in", tmp_path / "out", every)
    assert {(one.stat().st_atime, one.stat().st_mtime) for one in paths} == {
        (1_700_000_000, 1_700_000_001)
    }
    assert tree(tmp_path / "in") == before


def test_a_lost_clear_is_made_good_by_exactly_the_moved_ids(tmp_path):
    path = stores.made(stores.lost_clear_counter_in_step, tmp_path / "in")
    _, stories = healed(path, tmp_path / "out", every)
    assert ids_in(tmp_path / "out/messages.jsonl") == ["msg_05"]
    meta = json.loads((tmp_path / "out/.meta.json").read_text())
    assert (meta["message_count"], meta["total_message_count"]) == (1, 5)
    [summary] = [
        line for line in stories["lost-clear-counter-in-step"] if isinstance(line, Summary)
    ]
    assert summary.keeps == ("msg_05",) and "Orchard notes" in summary.text


def test_a_lost_clear_is_left_alone_unless_told(tmp_path):
    path = stores.made(stores.lost_clear, tmp_path / "in")
    healed(path, tmp_path / "out")
    assert ids_in(tmp_path / "out/messages.jsonl") == ids_in(path / "messages.jsonl")


@pytest.mark.parametrize(
    "build",
    [
        stores.pending_forever, stores.pending_forever_counter_old, stores.failed_hides_messages,
        stores.done_without_overview,
    ],
)  # fmt: skip
def test_messages_that_were_in_nobodys_view_are_live_again(tmp_path, build):
    path = stores.made(build, tmp_path / "in")
    live = ids_in(path / "messages.jsonl")
    _, stories = healed(path, tmp_path / "out", every)
    assert ids_in(tmp_path / "out/messages.jsonl") == [
        "msg_01",
        "msg_02",
        "msg_03",
        "msg_04",
        *live,
    ]
    assert not list((tmp_path / "out").glob("history/*"))
    meta = json.loads((tmp_path / "out/.meta.json").read_text())
    assert (meta["commit_count"], meta["message_count"]) == (0, 4 + len(live))
    [lines] = stories.values()
    assert [line.labels.get("recovered") for line in lines] == ["archive_001"] * 4 + [None] * len(
        live
    )


def test_an_archive_in_the_middle_keeps_its_number(tmp_path):
    path = stores.made(stores.failed_hides_messages_in_the_middle, tmp_path / "in")
    _, stories = healed(path, tmp_path / "out", every)
    assert ids_in(tmp_path / "out/messages.jsonl") == ["msg_03", "msg_04", "msg_07"]
    assert len(list((tmp_path / "out/history").iterdir())) == 3
    [lines] = stories.values()
    assert [line.origin for line in lines if not isinstance(line, Summary)] == [
        f"msg_{n:02d}" for n in range(1, 8)
    ]
    last = [line for line in lines if isinstance(line, Summary)][-1]
    assert last.keeps == ("msg_03", "msg_04", "msg_07")


def test_torn_bytes_are_kept_aside_and_hidden_from_the_model(tmp_path):
    path = stores.made(stores.torn_tail, tmp_path / "in")
    torn = (path / "messages.jsonl").read_bytes().split(b"\n")[-1]
    _, stories = healed(path, tmp_path / "out")
    [kept] = (tmp_path / "out/aside").iterdir()
    assert kept.read_bytes() == torn
    last = stories["torn-tail"][-1]
    assert (
        last.labels["visible_to_model"] is False
        and last.payload["parts"][0]["raw"] == torn.decode()
    )
    assert last.role == "assistant"


def test_a_torn_meta_is_rebuilt_from_the_messages(tmp_path):
    healed(stores.made(stores.torn_meta, tmp_path / "in"), tmp_path / "out")
    meta = json.loads((tmp_path / "out/.meta.json").read_text())
    assert (
        meta["session_id"] == "torn-meta"
        and meta["message_count"] == meta["total_message_count"] == 4
    )
    assert meta["created_at"] == stores.at(1) and meta["updated_at"] == stores.at(4)


def test_other_words_under_the_same_id_are_kept(tmp_path):
    healed(stores.made(stores.duplicate_ids_other_words, tmp_path / "in"), tmp_path / "out")
    said = [
        json.loads(line)
        for line in (tmp_path / "out/messages.jsonl").read_text().split("\n")
        if line
    ]
    assert (
        said[2]["parts"][0]["text"] == "Something else." and len({one["id"] for one in said}) == 3
    )


def test_a_call_that_never_ended_says_so(tmp_path):
    _, stories = healed(stores.made(stores.tool_never_finished, tmp_path / "in"), tmp_path / "out")
    part = json.loads((tmp_path / "out/messages.jsonl").read_text().split("\n")[1])["parts"][1]
    assert part["tool_status"] == "error" and "unknown" in part["tool_output"]
    assert stories["tool-never-finished"][1].labels == {"tool_never_finished": True}


def test_a_lost_output_leaves_its_preview(tmp_path):
    healed(stores.made(stores.tool_result_missing, tmp_path / "in"), tmp_path / "out")
    part = json.loads((tmp_path / "out/messages.jsonl").read_text().split("\n")[1])["parts"][1]
    assert part["tool_output"] == "the first lines" and not part["tool_output_ref"]
    assert "tr_call-7_ab" in part["tool_output_externalization_error"]


def test_what_was_missing_is_still_missing_by_the_same_count(tmp_path):
    session = stores.Session(tmp_path / "in", "s")
    session.live([*stores.messages(1, 2), stores.message(2)], message_count=9, total=9)
    healed(session.path, tmp_path / "out", every)
    meta = json.loads((tmp_path / "out/.meta.json").read_text())
    assert (meta["message_count"], meta["total_message_count"]) == (2 + 6, 9)
    assert rules_at(tmp_path / "out") == {"openviking/wiped-live"}


def test_a_file_that_is_too_large_stays_behind_and_stops_nothing(tmp_path):
    path = stores.made(stores.duplicate_ids, tmp_path / "in")
    archive = path / "history/archive_001"
    stores.put(archive / "messages.jsonl", stores.lines(stores.messages(11, 12)))
    stores.put(archive / ".done", "{}")
    with open(archive / ".overview.md", "wb") as file:
        file.truncate(65 << 20)
    changes, _ = healed(path, tmp_path / "out")
    assert [change.rule for change in changes] == ["openviking/duplicate-ids"] * 2 + [
        "openviking/unreadable-record"
    ]
    assert rules_at(tmp_path / "out") == set()


def test_all_defects_together_are_healed_together(tmp_path):
    for _, build in stores.CASES:
        build(tmp_path / "in")
    healed(tmp_path / "in", tmp_path / "out", every)
    assert {POLICY[rule] for rule in rules_at(tmp_path / "out")} == {"report"}
