"""Full text over all sessions, as a caller sees it (FAULTS C10, K1, K2, K7)."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import BadArgument, NotFound, StoreUnavailable
from holdfast.formats import registry
from holdfast.formats.neutral import Neutral
from holdfast.runtime.catalog.search import Hit
from thorough import SWEEP
from worlds import HandWorld

SCRIPTS = {
    "Latin with accents": (
        "Ein Café in Łódź, déjà vu",
        ["cafe", "Café", "CAFÉ", "lodz", "déjà", "deja vu"],
    ),
    "Cyrillic": ("Привет, мир! Ещё ёлка.", ["привет", "МИР", "еще", "ёлка", "прив"]),
    "Greek": ("Καλημέρα κόσμε", ["καλημερα", "ΚΟΣΜΕ", "καλ"]),
    "Chinese": ("我喜欢机器学习和自然语言处理。", ["机器学习", "语言", "我", "处理 喜欢"]),
    "Japanese": ("東京タワーへ行きました。ガラス", ["東京", "タワー", "行きました", "ｶﾞﾗｽ"]),
    "Korean": ("안녕하세요 세계", ["안녕", "하세요", "세계", "녕하"]),
    "Thai": ("สวัสดีชาวโลก", ["สวัสดี", "ชาว", "โลก"]),
    "Lao and Khmer": ("ສະບາຍດີ សួស្តីពិភពលោក", ["ສະບາຍ", "ពិភព"]),
    "Arabic": ("السَّلامُ عليكم", ["السلام", "عليكم"]),
    "Hebrew": ("שָׁלוֹם עוֹלָם", ["שלום", "עולם"]),
    "Devanagari": ("हिन्दी में खोजें", ["हिन्दी", "खोजें", "हिन"]),
    "emoji": ("Gut gemacht 👍🏽 🎉 👨\u200d👩\u200d👧", ["👍", "👍🏽", "🎉", "👨\u200d👩\u200d👧"]),
    "code": (
        "self.read_file('src/main.py')  # C:\\temp",
        ["read_file", "main.py", "self.read_file", "src/main.py"],
    ),
    "NUL": ("before\0after", ["before", "after", "before\0after"]),
    "lone surrogates": ("left\ud800right", ["left", "right", "left\udfffright"]),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_any_script_is_found_by_people_s_words(store: holdfast.Store, script: str) -> None:
    text, questions = SCRIPTS[script]
    session = store.session("k")
    session.append("something else entirely")
    session.append(text)
    for question in questions:
        [hit] = store.search(question)
        assert hit.seq == 3, question
        assert hit.marks, question
        assert hit.snippet.encode()


def test_a_hit_says_where_it_is_and_shows_the_words(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    with session.turn("What holds fast?") as turn:
        turn.say("The kelp does, says the kelp.")
    message = list(session.transcript())[-1]
    assert store.search("kelp") == [
        Hit(
            session_id=session.id,
            key="k",
            seq=message.seq,
            message_id=message.id,
            role="assistant",
            at=message.at,
            snippet="The kelp does, says the kelp.",
            marks=((4, 8), (24, 28)),
        )
    ]


@pytest.mark.slow
def test_the_oldest_of_more_sessions_than_a_page_has_is_found_by_its_text(
    store: holdfast.Store,
) -> None:
    """FAULTS C10: a list that is capped first and searched then would not have it."""
    count = 5000 if SWEEP else 1500
    for number in range(count):
        store.accept(f"key {number}", f"message xyz{number * 7919} of many")
    [hit] = store.search('"xyz0"')
    assert hit.key == "key 0"
    assert len(store.search("many", limit=1000)) == 1000
    assert [hit.key for hit in store.search("many", limit=3)] == [
        f"key {count - 1}",
        f"key {count - 2}",
        f"key {count - 3}",
    ]


def test_tools_are_found_by_name_by_arguments_and_by_what_they_answered(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    with session.turn("Look it up.") as turn:
        call = turn.call("read_file", {"path": "données/übersicht.txt"})
        turn.result(call, "the tide table of Brest")
        other = turn.call("list_files", {"path": "."})
        turn.result(other, '{"names": ["tide.txt", "Zür\\u0069ch\\nBern"]}')
        turn.say("The tide turns at noon.")
    assert [hit.role for hit in store.search("read_file")] == ["assistant"]
    assert [hit.role for hit in store.search("ubersicht")] == ["assistant"]
    assert [hit.role for hit in store.search("brest")] == ["tool"]
    assert [hit.role for hit in store.search("zurich bern")] == ["tool"]
    assert [hit.role for hit in store.search("tide", tool="read_file")] == ["tool"]
    assert [hit.role for hit in store.search("", tool="read_file")] == ["tool", "assistant"]
    assert [hit.role for hit in store.search("tide", role="assistant")] == ["assistant"]
    assert store.search("tide", tool="write_file") == []


def test_reasoning_instructions_and_summaries_are_not_found(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    session.instructions("Always think of xyinstruction.")
    thinking = [
        {"type": "thinking", "thinking": "xythought", "signature": "s"},
        {"type": "text", "text": "xysaid"},
    ]
    for number in range(6):
        with session.turn(f"ask {number}") as turn:
            turn.add({"role": "assistant", "content": thinking}, format="anthropic")
    session.compact("xysummary of it all", keep_turns=1)
    assert {hit.snippet for hit in store.search("xy")} == {"xysaid"}


def test_filters_are_for_key_session_state_and_time(path: Path) -> None:
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        began = world.now()
        for key in ("a", "b"):
            with store.turn(key, f"kelp for {key}") as turn:
                turn.say("kelp indeed")
            world.advance(hours=1)
        store.reset("a")
        store.session("a").append("kelp again")
        running = store.turn("c", "kelp in a turn")

        def found(**filters: Any) -> list[str]:
            return [hit.snippet for hit in store.search("kelp", **filters)]

        assert found(key="a") == ["kelp again", "kelp indeed", "kelp for a"]
        assert found(key="b", role="user") == ["kelp for b"]
        assert found(key="nobody") == []
        first = store.search("kelp", key="a")[-1].session_id
        assert found(session=first) == found(session=first[:8]) == ["kelp indeed", "kelp for a"]
        assert found(state="ended") == ["kelp indeed", "kelp for a"]
        assert found(state="running") == ["kelp in a turn"]
        assert found(state="open") == ["kelp again", "kelp indeed", "kelp for b"]
        hour = began + 3_600_000
        assert found(until=hour) == ["kelp indeed", "kelp for a"]
        assert found(since=hour, until=hour + 1) == ["kelp indeed", "kelp for b"]
        assert found(since=datetime.fromtimestamp(hour / 1000, UTC), key="a") == ["kelp again"]
        running.interrupt("enough")


def test_a_message_that_was_cut_is_partial(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    with session.turn("Sing.") as turn:
        for _ in turn.deliver(iter(["kelp ", "and "]), format="text"):
            turn.interrupt("enough")
            break
    session.append("kelp")
    assert [hit.role for hit in store.search("kelp", state="partial")] == ["assistant"]
    assert [hit.role for hit in store.search("kelp", state="complete")] == ["user"]


def test_another_tenant_s_words_never_show(path: Path) -> None:
    """I-19. FAULTS K1, K2."""
    with holdfast.open(path, tenant="red") as red, holdfast.open(path, tenant="blue") as blue:
        session = red.session("k")
        session.append("kelp of red")
        blue.session("k").append("kelp of blue")
        for _ in range(2):
            assert [hit.snippet for hit in blue.search("kelp")] == ["kelp of blue"]
            assert [hit.snippet for hit in blue.search("")] == ["kelp of blue"]
            assert blue.search("red") == blue.search("kelp", key="k", state="ended") == []
            with pytest.raises(NotFound):
                blue.search("kelp", session=session.id)
        assert [hit.snippet for hit in red.search("kelp")] == ["kelp of red"]


def test_a_message_is_found_in_the_session_whose_log_holds_it(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    session.append("kelp before")
    branch = session.fork(key="branch")
    branch.append("kelp after")
    assert [(hit.session_id, hit.snippet) for hit in store.search("kelp")] == [
        (branch.id, "kelp after"),
        (session.id, "kelp before"),
    ]


def test_an_erased_session_is_found_no_more(
    store: holdfast.Store, session: holdfast.Session, path: Path
) -> None:
    """I-21. FAULTS K7."""
    session.append("kelp xylocanary")
    store.session("other").append("kelp")
    assert len(store.search("kelp")) == 2
    store.erase(session.id)
    assert [hit.key for hit in store.search("kelp")] == ["other"]
    assert store.search("xylocanary") == []
    assert b"canary" not in Path(f"{path}-search").read_bytes()


def test_a_long_message_is_found_by_its_beginning(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    session.append("first " + "word " * 20_000 + "last")
    [hit] = store.search("first")
    assert hit.snippet.startswith("first word") and hit.snippet.endswith("…")
    assert store.search("last") == []


def test_a_payload_of_a_format_that_is_not_known_here_is_found_by_its_strings(
    store: holdfast.Store, session: holdfast.Session
) -> None:
    format = Neutral(registry.read)
    format.name = "of.somebody"
    registry.register(format)
    try:
        session.append("kelp holds", format="of.somebody")
        [hit] = store.search("kelp")
    finally:
        del registry._formats["of.somebody"]
    assert [found.message_id for found in store.search("holds")] == [hit.message_id]


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": None},
        {"text": "x", "limit": 0},
        {"text": "x", "limit": 1001},
        {"text": "x", "role": "model"},
        {"text": "x", "state": "asleep"},
        {"text": "x", "since": datetime(2026, 1, 1)},
        {"text": "x", "until": "yesterday"},
        {"text": "x", "until": 1 << 70},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    store: holdfast.Store, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadArgument):
        store.search(**wrong)


def test_a_closed_store_says_so(path: Path) -> None:
    store = holdfast.open(path)
    store.session("k").append("kelp")
    store.close()
    with pytest.raises(StoreUnavailable):
        store.search("kelp")


def test_searches_that_take_long_keep_nobody_on_the_loop_from_reading(path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(path) as store:
            session = await store.session("k")
            await session.append("kelp")
            with store._work.engine._searching.index._alone():  # somebody is indexing a long log
                searches = [asyncio.create_task(store.search("kelp")) for _ in range(20)]
                async with asyncio.timeout(60):
                    assert len([message async for message in session.transcript()]) == 1
                assert not any(search.done() for search in searches)
            assert [len(hits) for hits in await asyncio.gather(*searches)] == [1] * 20

    asyncio.run(main())


def test_the_asyncio_face_finds_the_same(path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(path) as store:
            session = await store.session("k")
            await session.append("kelp one")
            await session.append("kelp two")
            found = await asyncio.gather(*(store.search("kelp", limit=1 + n % 2) for n in range(8)))
            assert [[hit.snippet for hit in hits] for hits in found] == [
                ["kelp two"],
                ["kelp two", "kelp one"],
            ] * 4

    asyncio.run(main())
