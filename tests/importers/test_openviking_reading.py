"""What an OpenViking directory tells: each message once, in order, as OpenViking shows it; and
nothing can break it.
"""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import openviking_stores as stores
from holdfast.doctor.openviking.subject import OpenVikingSubject
from holdfast.importers.foreign_session import Summary
from holdfast.importers.openviking.reader import OpenVikingReader, recognises
from thorough import examples, few_cases


def told(path):
    shelf = OpenVikingReader(path)
    try:
        return {story.id: list(story.lines) for story in shelf.sessions()}
    finally:
        shelf.close()


def shown(lines):
    """What the model sees: the last summary, what it keeps, and what came after it."""
    at = max((index for index, line in enumerate(lines) if isinstance(line, Summary)), default=None)
    before = lines[:at] if at is not None else []
    kept = [
        line for line in before if not isinstance(line, Summary) and line.origin in lines[at].keeps
    ]
    after = lines if at is None else lines[at + 1 :]
    said = [line.origin for line in (*kept, *after) if line.labels.get("visible_to_model", True)]
    return (lines[at].text if at is not None else None), said


@pytest.mark.parametrize(
    "build, overview, ids",
    [
        (stores.ok_live, None, (1, 2, 3, 4, 5)),
        (stores.ok_committed, stores.OVERVIEW, (3, 4, 5, 6)),
        (stores.ok_partial_turn, stores.OVERVIEW, (1, 3)),
        (stores.ok_memory_off, None, (5, 6)),
        (stores.ok_failed_and_covered, stores.OVERVIEW, (5, 6)),
        (stores.ok_prepared_and_archived_again, stores.OVERVIEW, (5, 6)),
        (stores.lost_clear, stores.OVERVIEW, (1, 2, 3, 4)),
        (stores.prepared_only, None, (1, 2, 3, 4)),
        (stores.failed_hides_messages, None, (5,)),
        (stores.pending_forever, None, (1, 2, 3, 4, 5)),
        (stores.duplicate_ids, None, (1, 2, 3, 4)),
        (stores.torn_tail, None, (1, 2, 3)),
    ],
)
def test_the_model_is_shown_what_openviking_shows(tmp_path, build, overview, ids):
    [lines] = told(stores.made(build, tmp_path)).values()
    assert shown(lines) == (overview, [f"msg_{number:02d}" for number in ids])


def test_a_reset_leaves_what_came_after(tmp_path):
    [lines] = told(stores.made(stores.ok_reset, tmp_path)).values()
    text, ids = shown(lines)
    assert "reset" in text and ids == ["msg_05", "msg_06"]
    assert sum(not isinstance(line, Summary) for line in lines) == 6


@few_cases(every=3)
@pytest.mark.parametrize(
    "build", [*stores.HEALTHY, *(build for _, build in stores.CASES)], ids=lambda b: b.__name__
)
def test_each_message_is_told_once_and_always_the_same_way(tmp_path, build):
    path = stores.made(build, tmp_path)
    first = told(path)
    for lines in first.values():
        origins = [line.origin for line in lines]
        assert len(set(origins)) == len(origins)
    assert told(path) == first


def test_a_payload_is_the_line_as_it_was_stored(tmp_path):
    said = [
        stores.message(1, peer_id="p", turn_id="t", extra={"deep": [1, None]}),
        stores.tool(2, duration_ms=1.5),
    ]
    session = stores.Session(tmp_path, "s").live(said)
    assert [line.payload for line in told(session.path)["s"]] == said


def test_a_session_that_has_grown_tells_what_it_told_before(tmp_path):
    before = stores.Session(tmp_path / "before", "s").live(stores.messages(1, 4))
    after = stores.Session(tmp_path / "after", "s").live(stores.messages(3, 8), total=8, commits=1)
    after.archive(1, stores.messages(1, 2), done=stores.done(1, 2), overview=stores.OVERVIEW)
    old = [line.origin for line in told(before.path)["s"]]
    new = [line.origin for line in told(after.path)["s"] if not isinstance(line, Summary)]
    assert new[: len(old)] == old and len(new) == 8
    [summary] = [line for line in told(after.path)["s"] if isinstance(line, Summary)]
    assert set(old) - set(summary.keeps) == {"msg_01", "msg_02"}


def test_meta_and_large_outputs_come_along(tmp_path):
    shelf = OpenVikingReader(stores.made(stores.ok_tools, tmp_path))
    [story] = shelf.sessions()
    shelf.close()
    assert story.facts["meta"]["session_id"] == "ok-tools"
    assert story.facts["tool_results"] == {"tool-results/tr_call-3_ab/output.txt": "all of it"}
    assert story.opened_at == 1789977600000


def test_what_is_no_session_is_not_recognised(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/messages.jsonl").write_text('{"role": "user"}\nwords\n')
    (tmp_path / "other/.meta.json").write_text('{"title": "something else"}')
    assert not recognises(tmp_path) and not recognises(tmp_path / "other/messages.jsonl")
    for build in (stores.torn_meta, stores.torn_tail, stores.wiped_live, stores.ok_old_format):
        assert recognises(stores.made(build, tmp_path / build.__name__))
        assert recognises(tmp_path / build.__name__)


def test_links_are_not_followed(tmp_path):
    stores.ok_live(tmp_path / "elsewhere")
    (tmp_path / "tree").mkdir()
    os.symlink(tmp_path / "elsewhere/ok-live", tmp_path / "tree/link")
    assert not recognises(tmp_path / "tree")


def looked_at(path):
    """Stories and signs of a path; what is broken must be said and never be raised."""
    patient = OpenVikingSubject(path)
    try:
        signs = [finding.rule.name for one in patient.examine() for finding in one.findings]
        for story in patient.healed(lambda rule: rule.policy != "report").sessions():
            list(story.lines)
        return signs, told(path)
    finally:
        patient.close()


@pytest.mark.slow
def test_a_file_cut_anywhere_is_read_up_to_there(tmp_path):
    session = stores.Session(tmp_path, "s").live(stores.messages(1, 4))
    whole = (session.path / "messages.jsonl").read_bytes()
    ends = [index for index, byte in enumerate(whole) if byte == 10]
    for cut in range(0, len(whole), 7):
        (session.path / "messages.jsonl").write_bytes(whole[:cut])
        signs, lines = looked_at(session.path)
        full = sum(end <= cut for end in ends)
        assert len(lines["s"]) == full and bool(signs) == (full < 4)


def test_a_meta_cut_anywhere_stops_nothing(tmp_path):
    session = stores.Session(tmp_path, "s").live(stores.messages(1, 4))
    whole = (session.path / ".meta.json").read_bytes()
    for cut in range(0, len(whole), 11):
        (session.path / ".meta.json").write_bytes(whole[:cut])
        signs, lines = looked_at(session.path)
        assert signs == ["openviking/torn-meta"] and len(lines["s"]) == 4


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ("id", "role", "parts", "content", "created_at")
LINE = st.one_of(
    JUNK,
    st.fixed_dictionaries({}, optional={name: JUNK for name in FIELDS}),
    st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b"]), "role": st.sampled_from(["user", "assistant", "tool"])},
        optional={
            "parts": st.lists(
                st.fixed_dictionaries(
                    {"type": st.sampled_from(["tool", "text", "x"])},
                    optional={
                        name: JUNK
                        for name in (
                            "tool_id",
                            "tool_status",
                            "tool_output_ref",
                            "text",
                            "tool_input",
                        )
                    },
                ),
                max_size=3,
            )
        },
    ),
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(
    live=st.lists(LINE, max_size=5),
    archived=st.lists(LINE, max_size=3),
    papers=st.lists(JUNK, min_size=4, max_size=4),
)
def test_whatever_the_lines_say_nothing_is_raised(tmp_path_factory, live, archived, papers):
    path = tmp_path_factory.mktemp("fuzz") / "s"
    stores.put(path / "messages.jsonl", stores.lines(live).encode("utf-8", "surrogatepass"))
    under = path / "history/archive_001"
    stores.put(under / "messages.jsonl", stores.lines(archived).encode("utf-8", "surrogatepass"))
    names = (path / ".meta.json", under / ".meta.json", under / ".done", under / ".failed.json")
    for name, paper in zip(names, papers, strict=True):
        if paper is not None:
            stores.put(name, stores.lines([paper]).encode("utf-8", "surrogatepass"))
    looked_at(path)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(raw=st.binary(min_size=1, max_size=300))
def test_random_bytes_are_told_and_stop_nothing(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("fuzz") / "s"
    stores.put(
        path / "messages.jsonl", b"{" + raw + b"\n" + stores.lines(stores.messages(1, 2)).encode()
    )
    stores.put(path / ".meta.json", raw)
    signs, stories = looked_at(path)
    assert "openviking/unreadable-record" in signs
    assert [line.origin for line in stories["s"]][-2:] == ["msg_01", "msg_02"]


@pytest.mark.slow
def test_deep_nesting_and_great_lengths_are_told(tmp_path):
    deep = '{"id": "d", "role": "user", "parts": ' + "[" * 100_000 + "]" * 100_000 + "}"
    barely = '{"id": "e", "role": "user", "parts": ' + "[" * 300 + "]" * 300 + "}"
    session = stores.Session(tmp_path, "s").live(stores.messages(1, 2))
    with open(session.path / "messages.jsonl", "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(f"{deep}\n{barely}\n".encode())
        file.seek(80 << 20, os.SEEK_CUR)  # a hole: 80 MiB of zeros in one line
        file.write(b"\n" + stores.lines([stores.message(3)]).encode())
    signs, stories = looked_at(session.path)
    assert signs.count("openviking/unreadable-record") == 3
    assert [line.origin for line in stories["s"]] == ["msg_01", "msg_02", "msg_03"]


def test_a_folder_full_of_noise_is_looked_at_without_harm(tmp_path):
    dice = random.Random(7)
    session = stores.Session(tmp_path, "s").live(stores.messages(1, 2))
    for name in (
        "history/archive_001/messages.jsonl",
        "history/archive_x/.done",
        "history/archive_2/.done",
        "junk/a/b",
    ):
        stores.put(session.path / name, dice.randbytes(200))
    (session.path / "history/archive_003/.done").mkdir(parents=True)
    os.mkfifo(session.path / "pipe")
    signs, _ = looked_at(session.path)
    assert signs
