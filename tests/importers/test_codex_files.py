"""Codex's files: forks, turns taken back, compactions, and what Codex keeps for itself."""

import json

import holdfast
import item_stores as stores
from holdfast.importers import detect
from holdfast.importers.foreign_session import Summary
from holdfast.runtime.transfer.import_store import bring

THREADS = {
    name: f"0199aaaa-0000-7000-8000-00000000000{number}"
    for number, name in enumerate(("old", "new", "third"))
}


def user(text, **more):
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
        **more,
    }


def say(text, **more):
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
        **more,
    }


def context(folder="/orchard"):
    return user(f"<environment_context>\n  <cwd>{folder}</cwd>\n</environment_context>")


def rollout(folder, name, *items, first=0, base=None, segment="", hour=8):
    """A file of a thread, with an item or an event in each line."""
    meta = {"id": THREADS[name], "timestamp": stores.at(0), "cwd": "/orchard"}
    if base is not None:
        meta["history_base"] = {"thread_id": THREADS[base[0]], "end_ordinal_exclusive": base[1]}
    lines = [{"type": "session_meta", "payload": meta}]
    for item in items:
        kind = (
            "event_msg" if item["type"] in ("thread_rolled_back", "telepathy") else "response_item"
        )
        lines.append(
            {"type": "compacted" if "replacement_history" in item else kind, "payload": item}
        )
    day = folder / "sessions" / "2026" / "09" / "21"
    day.mkdir(parents=True, exist_ok=True)
    path = day / f"rollout-2026-09-21T{hour:02d}-00-00-{THREADS[name]}{segment}.jsonl"
    written = [
        {"timestamp": stores.at(n), "ordinal": first + n, **line} for n, line in enumerate(lines)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in written))
    return path


def stories(path):
    shelf = detect.open_reader("codex", path)
    try:
        return [(story, list(story.lines)) for story in shelf.sessions()]
    finally:
        shelf.close()


def texts(context):
    """What a context says, in a few words each."""
    return [(one.get("output") or _words(one.get("content")))[:40] for one in context]


def _words(content):
    return (
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    )


def brought(folder, path, name):
    """The context of a thread after a file was imported."""
    with holdfast.open(folder / "store.db") as store:
        shelf = detect.open_reader("codex", path)
        bring(store, shelf.sessions())
        shelf.close()
        for info in store.sessions(limit=20):
            session = store.get(info.id)
            if any(
                one.labels.get("story", {}).get("id") == THREADS[name]
                for one in session.transcript()
            ):
                return list(session.context("openai.responses"))
    raise AssertionError(f"{name} did not come over")


def test_a_fork_has_the_past_of_its_parent_up_to_where_they_parted(tmp_path):
    rollout(tmp_path, "old", user("One."), say("1."), user("Two."), say("2."))
    fork = rollout(tmp_path, "new", user("Three."), say("3."), first=3, base=("old", 3), hour=9)
    [(parent, _), (story, _)] = stories(fork)
    assert (parent.id, story.id) == (THREADS["old"], THREADS["new"])
    assert (story.parent, story.lineage, story.parent_origin) == (
        THREADS["old"],
        "branch",
        "line 3",
    )
    assert texts(brought(tmp_path, fork, "new")) == ["One.", "1.", "Three.", "3."]


def test_a_fork_of_a_fork_may_part_from_the_first_of_them(tmp_path):
    rollout(tmp_path, "old", user("One."), say("1."), user("Two."), say("2."))
    rollout(tmp_path, "new", user("Three."), say("3."), first=5, base=("old", 5), hour=9)
    third = rollout(tmp_path, "third", user("Four."), first=3, base=("new", 3), hour=10)
    [*_, (story, _)] = stories(third)
    assert (story.parent, story.parent_origin) == (THREADS["old"], "line 3")
    assert texts(brought(tmp_path, third, "third")) == ["One.", "1.", "Four."]


def test_a_fork_whose_parent_is_gone_comes_alone_and_says_so(tmp_path):
    fork = rollout(tmp_path, "new", user("Three."), first=3, base=("old", 3))
    [(story, _)] = stories(fork)
    assert story.parent == THREADS["old"] and texts(brought(tmp_path, fork, "new")) == ["Three."]


def test_a_context_has_nothing_that_codex_keeps_for_itself(tmp_path):
    private = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    path = rollout(tmp_path, "old", user("One.", **private), say("1.", **private))
    [(_, lines)] = stories(path)
    assert lines[0].payload["_internal_chat_message_metadata_passthrough"] == {"turn_id": "t"}
    assert brought(tmp_path, path, "old") == [user("One."), say("1.")]


def test_as_many_turns_are_rolled_back_as_it_says(tmp_path):
    """A turn begins with what a person says, not with what Codex says of itself in their voice."""
    turns = [
        context(),
        user("One."),
        say("1."),
        context("/barn"),
        user("Two."),
        say("2."),
        user("Three."),
        say("3."),
    ]
    for count, left in {1: 2, 2: 4, 3: 7, 9: 7}.items():
        back = {"type": "thread_rolled_back", "num_turns": count}
        [(_, lines)] = stories(rollout(tmp_path, "old", *turns, back))
        assert [one.labels.get("left", False) for one in lines] == [False] * (8 - left) + [
            True
        ] * left, count


def test_turns_that_were_taken_back_into_another_file_are_left(tmp_path):
    first = rollout(tmp_path, "old", user("One."), say("1."), user("Two."), say("2."))
    second = rollout(
        tmp_path,
        "old",
        user("Three."),
        say("3."),
        first=3,
        base=("old", 3),
        segment="_0199bbbb-0000",
        hour=9,
    )
    for path in (first, second):
        [(story, lines)] = stories(path)
        assert story.id == THREADS["old"] and story.parent is None
        assert [one.labels.get("left", False) for one in lines] == [
            False,
            False,
            True,
            True,
            False,
            False,
        ]
        assert len({one.origin for one in lines}) == 6
        assert texts(brought(tmp_path, path, "old")) == ["One.", "1.", "Three.", "3."]


def test_after_a_compaction_the_model_sees_its_new_history_in_its_order(tmp_path):
    said = [user("One.", id="m1"), say("1.", id="m2"), user("Two.", id="m3"), say("2.", id="m4")]
    told = user("A summary of it all.", id="m6")
    history = [said[0], context("/barn"), said[2], told]
    compacted = {"type": None, "message": "A summary of it all.", "replacement_history": history}
    path = rollout(tmp_path, "old", *said, compacted, user("Three.", id="m7"))
    [(_, lines)] = stories(path)
    [summary] = [one for one in lines if isinstance(one, Summary)]
    assert summary.keeps == ("line 2", "line 6, 2", "line 4")
    shown = texts(brought(tmp_path, path, "old"))
    assert [text[:12] for text in shown] == [
        "One.",
        "<environment",
        "Two.",
        "A summary of",
        "Three.",
    ]


def test_a_second_compaction_repeats_what_the_first_one_kept(tmp_path):
    one = user("One.", id="m1")
    histories = [
        [one, user("A first summary.", id="s1")],
        [one, user("Two.", id="m3"), user("A second one.", id="s2")],
    ]
    first, second = (
        {"type": None, "message": _words(told[-1]["content"]), "replacement_history": told}
        for told in histories
    )
    path = rollout(
        tmp_path,
        "old",
        one,
        say("1.", id="m2"),
        first,
        user("Two.", id="m3"),
        say("2.", id="m4"),
        second,
    )
    assert texts(brought(tmp_path, path, "old")) == ["One.", "Two.", "A second one."]


def test_lines_of_a_type_that_nobody_knows_are_counted(tmp_path):
    path = rollout(tmp_path, "old", user("One."), say("1."))
    odd = {"timestamp": stores.at(9), "type": "telepathy", "payload": {}}
    path.write_text(path.read_text() + 2 * (json.dumps(odd) + "\n"))
    shelf = detect.open_reader("codex", path)
    assert [len(list(story.lines)) for story in shelf.sessions()] == [2]
    assert shelf.not_examined() == {"telepathy": 2}
    shelf.close()


def test_a_session_is_called_by_what_was_asked_first(tmp_path):
    aside = user("# AGENTS.md instructions for /orchard")
    both = context()
    both["content"].append({"type": "input_text", "text": "Prune the\npear trees."})
    path = rollout(tmp_path, "old", aside, context(), both, say("Done."))
    brought(tmp_path, path, "old")
    with holdfast.open(tmp_path / "store.db") as store:
        assert [listed.title for listed in store.sessions()] == ["Prune the pear trees."]
