"""Sessions as OpenViking's clients know them, over a log: what is shown, what it costs, what other
readers of the log see.
"""

import random

import pytest

import holdfast
from holdfast.adapters.openviking.server.incoming import CommitRequest, message_in
from holdfast.adapters.openviking.server.retention import kept
from holdfast.adapters.openviking.server.sessions.directory import Directory, Requester
from holdfast.doctor.holdfast.laws import LAWS
from holdfast.errors import SessionEnded
from holdfast.runtime.open_store import open_at
from thorough import few_cases

ME = Requester()


@pytest.fixture
def store(tmp_path):
    store = open_at(tmp_path / "served.db", tenant="default", durability="process")
    yield store
    store.close()


def said(*texts, **more):
    messages = []
    for text in texts:
        messages += message_in({"role": "user", "content": text, **more}, now="2026-11-16")
    return messages


def texts(messages):
    return [message.payload["parts"][0]["text"] for message in messages]


def anew(store):
    """The session as a process sees it that has just started."""
    return Directory(store).find(ME, "s")


def standing(handle):
    served = handle.served()
    archives = []
    for number in range(1, served.commits + 1):
        archive = served.unfinished.get(number) or handle.extracted(number).archive
        archives.append(texts(handle.messages_of(archive)))
    return {
        "archives": archives,
        "live": texts(served.live),
        "shown": texts(served.messages),
        "overview": served.overview,
        "unfinished": sorted(served.unfinished),
        "settings": served.settings,
        "memories": served.memories,
        "tokens": (served.live_tokens, served.new_tokens),
    }


@few_cases(every=3)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_done_each_message_is_live_or_in_one_archive(store, seed):
    """And a process that starts now sees the same as one that has followed all of it."""
    chance = random.Random(seed)
    handle = Directory(store).make(ME, "s")
    added = shown_from = 0
    for _ in range(60):
        move = chance.choice(["add", "add", "add", "commit", "finish", "reset", "settle", "set"])
        before = handle.served().commits
        if move == "add":
            count = chance.randint(1, 3)
            handle.append(said(*(f"m{added + number}" for number in range(count))))
            added += count
        elif move == "commit":
            handle.archive(chance.randint(0, 2), is_finished=False, reset=False)
        elif move == "settle":
            handle.archive(chance.randint(0, 2), is_finished=True, reset=False)
        elif move == "reset":
            if handle.archive(0, is_finished=False, reset=True) is not None:
                shown_from = added
        elif move == "set":
            handle.set_up({"event_tags": [f"n={chance.randint(0, 9)}"]})
        elif handle.served().unfinished:
            served = handle.served()
            archive = served.unfinished[served.extracted + 1]
            assert handle.finish(archive, {"overview": f"up to {archive.last}"})
            assert not handle.finish(archive, {"overview": "again"})
        seen = standing(handle)
        assert seen == standing(anew(store))
        everything = [text for archive in seen["archives"] for text in archive] + seen["live"]
        assert everything == [f"m{number}" for number in range(added)]
        waiting = [text for number in seen["unfinished"] for text in seen["archives"][number - 1]]
        hidden = [text for text in waiting if int(text[1:]) < shown_from]
        assert seen["shown"] == waiting[len(hidden) :] + seen["live"], "what waits is not hidden"
        assert handle.served().commits in (before, before + 1)
    _lawful(store)


def _lawful(store):
    handle = anew(store)
    entries = handle.log.page(0)
    for name, _, law in LAWS:
        assert list(law(entries)) == [], name
    with holdfast.open(store.engine.where) as public:
        assert public.check() == []
        shown = [each["content"] for each in public.get(handle.log.id).context("openai.chat")]
    for text in texts(handle.served().messages):
        assert any(text in words.split("\n\n") for words in shown), "Holdfast shows it, too"


def test_what_is_archived_is_not_read_again(store):
    """An append, a context and a commit cost what is shown, however long the history is."""
    costs = []
    for rounds in (2, 40):
        directory = Directory(store)
        handle = directory.make(ME, "s")
        for number in range(rounds):
            handle.append(said(*(f"{number} {each}" for each in range(10))))
            handle.archive(2, is_finished=False, reset=False)
            served = handle.served()
            handle.finish(served.unfinished[served.extracted + 1], {"overview": "Fine."})
        handle = anew(store)
        read = _counting(handle)
        handle.served()
        handle.append(said("one more"))
        handle.archive(2, is_finished=False, reset=False)
        costs.append(sum(read))
        served = handle.served()
        handle.finish(served.unfinished[served.extracted + 1], {"overview": "Fine."})
    assert costs[1] <= costs[0] + 2


def test_one_archive_of_many_is_found_in_a_few_steps(store):
    handle = Directory(store).make(ME, "s")
    for number in range(1, 130):
        handle.append(said(f"m{number}"))
        handle.archive(0, is_finished=True, reset=False)
    handle = anew(store)
    handle.served()
    for number in (1, 2, 63, 64, 65, 100, 128, 129):
        read = _counting(handle)
        archive = handle.extracted(number).archive
        assert texts(handle.messages_of(archive)) == [f"m{number}"]
        assert sum(read) < 40, "of 129"
    assert handle.extracted(130) is None and handle.extracted(0) is None


def _counting(handle):
    """How many entries each reading of the log gives from now on."""
    read: list[int] = []
    page = type(handle.log).page.__get__(handle.log)

    def counted(*given, **options):
        found = page(*given, **options)
        read.append(len(found))
        return found

    handle.log.page = counted
    return read


def test_a_message_with_its_senders_id_is_added_once_whoever_asks(store):
    named = said("Hello.", turn_id="t", source_message_ids=["m1"])
    handle = Directory(store).make(ME, "s")
    handle.append(named)
    handle.append([*named, *named, *said("Hello."), *said("Hello.")])
    anew(store).append(named)
    assert texts(handle.served().live) == ["Hello."] * 3
    other = said("Hello.", turn_id="t", source_message_ids=["m2"])
    changed = said("Hello!", turn_id="t", source_message_ids=["m1"])
    assert anew(store).append([*other, *changed, *other]).live_count == 5


def test_a_session_that_was_deleted_takes_no_more_and_begins_anew(store):
    directory = Directory(store)
    handle = directory.make(ME, "s")
    named = said("Hello.", source_message_ids=["m1"])
    handle.append(named)
    other = Directory(store)
    other.delete(other.find(ME, "s"))
    with pytest.raises(SessionEnded):
        handle.append(said("Too late."))
    assert directory.find(ME, "s") is None
    assert directory.make(ME, "s").append(named).live_count == 1, "the new one has not had it"


def test_ids_are_minted_once_and_stay(store):
    handle = Directory(store).make(ME, "s")
    handle.append(said("One.", "Two."))
    before = [message.payload["id"] for message in handle.served().live]
    archive = handle.archive(0, is_finished=False, reset=False)
    assert [message.payload["id"] for message in anew(store).messages_of(archive)] == before
    assert len(set(before)) == 2 and all(id.startswith("msg_") for id in before)


def test_a_user_who_only_carries_tools_is_split_and_an_agent_is_not():
    tools = [{"type": "tool", "tool_id": each, "tool_name": "shell"} for each in "ab"]
    split = message_in({"role": "user", "parts": tools}, now="now")
    assert [each.payload["message_kind"] for each in split] == ["tool_transport"] * 2
    assert [each.payload["parts"][0]["tool_id"] for each in split] == ["a", "b"]
    sent = {"role": "user", "parts": [tools[0], tools[0]], "source_message_ids": ["m1"]}
    first, second = message_in(sent, now="now")
    assert first.event != second.event, "the same tool twice is two messages"
    assert message_in(sent, now="later")[0].event == first.event
    [whole] = message_in({"role": "assistant", "parts": tools}, now="now")
    assert [part["tool_status"] for part in whole.payload["parts"]] == ["pending", "pending"]


def test_the_last_turns_stay_live_as_far_as_the_budget_goes(store):
    handle = Directory(store).make(ME, "s")
    for turn in range(4):
        for role, kind in (("user", "user_query"), ("assistant", "assistant_step")):
            body = {"role": role, "content": "x" * 40, "message_kind": kind, "turn_id": str(turn)}
            handle.append(message_in(body, now="now"))
    live = handle.served().live

    def stays(**asked):
        return kept(live, CommitRequest(mode="turn_budget", **asked))

    assert stays(keep_turns=2) == 4
    assert stays(keep_turns=2, token_budget=1000) == 4
    assert stays(keep_turns=2, token_budget=25) == 2
    assert stays(keep_turns=2, token_budget=1) == 1
    assert stays(keep_turns=2, token_budget=1, tail_min=3) == 3
    assert stays(keep_turns=0) == 0
    assert stays(keep_turns=9) == 8
    assert kept(live, CommitRequest(keep=3)) == 3
