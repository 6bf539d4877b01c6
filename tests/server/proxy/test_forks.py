"""A conversation that its agent forks: a session of its own, under its own name, which shares the past."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.runtime.aio import open_async
from holdfast.server.proxy.answers import whole_chunks
from holdfast.server.proxy.dialects import ANTHROPIC, RESPONSES, Request, read_request
from holdfast.server.proxy.lists.shared_past import Parting, parting
from holdfast.server.proxy.marks import marks_of
from holdfast.server.proxy.naming import HEADER, name_of
from holdfast.server.proxy.proxied_sessions import ProxiedSessions
from proxied_samples import whole

TOOLS = [{"type": "function", "name": "look", "parameters": {}}]
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "Red."}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
USED = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Red."}
Play = Callable[["Threads"], Any]


def user(text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "id": f"u_{text}", "role": "user", "content": content}


def model(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"a_{text}", "role": "assistant", "content": content}


def text(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": words}]}


LOOKING = [model("Looking."), {**CALL, "arguments": "{}"}]
BEGUN = [user("A?"), *LOOKING, RESULT, model("A."), user("B?"), model("B.")]
"""Two turns."""


class Threads:
    """Codex, with some of its threads. `restart` is another proxy on the same store."""

    def __init__(self, store: holdfast.AsyncStore) -> None:
        self._store, self.sessions = store, ProxiedSessions(store)

    async def restart(self) -> None:
        await self.sessions.close()
        self.sessions = ProxiedSessions(self._store)

    async def ask(
        self, thread: str, messages: list[Any], fork_of: str | None = None, kind: str = "turn"
    ) -> Any:
        told = {"turn_id": json.dumps(messages), "request_kind": kind}
        if fork_of is not None:
            told |= {"forked_from_thread_id": fork_of, "history_initialization": "cold_fork"}
        headers = {"thread-id": thread, "x-codex-turn-metadata": json.dumps(told)}
        return await self.sessions.begin(headers, _request(messages))

    async def say(
        self, thread: str, messages: list[Any], *answer: Any, fork_of: str | None = None
    ) -> None:
        """A request that is answered."""
        recording = await self.ask(thread, messages, fork_of)
        await recording.push(whole_chunks(RESPONSES, whole(RESPONSES, list(answer))))
        await recording.finish()

    async def begin(self, thread: str = "one") -> None:
        """Two turns, of which the first has a call."""
        await self.say(thread, BEGUN[:1], *LOOKING)
        await self.say(thread, BEGUN[:4], BEGUN[4])
        await self.say(thread, BEGUN[:6], BEGUN[6])


def _request(messages: list[Any]) -> Request:
    request = read_request(RESPONSES, json.dumps({"input": messages, "tools": TOOLS}).encode())
    assert request is not None
    return request


def played(path: Path, play: Play) -> None:
    async def run() -> None:
        async with open_async(path) as store:
            threads = Threads(store)
            await play(threads)
            await threads.sessions.close()

    asyncio.run(run())


def said(store: holdfast.Store, key: str) -> list[str]:
    return [each.text for each in store.session(key, create=False).transcript()]


def shared(store: holdfast.Store, one: str, other: str) -> list[str]:
    """What is the same message in both."""
    there = {each.id for each in store.session(one, create=False).transcript()}
    past = store.session(other, create=False).transcript()
    return [each.text for each in past if each.id in there]


PAST = ["A?", "Looking.", "Red.", "A.", "B?", "B."]


@pytest.mark.parametrize("restart", [False, True])
def test_a_fork_shares_its_past_and_both_go_on(tmp_path: Path, restart: bool) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        forked, gone_on = [*BEGUN, user("C?")], [*BEGUN, user("D?")]
        for thread, asked, answer in (
            ("two", forked, "C."),
            ("one", gone_on, "D."),
            ("two", [*forked, model("C."), user("E?")], "E."),
            ("one", [*gone_on, model("D."), user("F?")], "F."),
        ):
            if restart:
                await threads.restart()
            fork_of = "one" if thread == "two" else None
            await threads.say(thread, asked, model(answer), fork_of=fork_of)

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        assert {info.key for info in store.sessions()} == {"codex:one", "codex:two"}
        assert said(store, "codex:one") == [*PAST, "D?", "D.", "F?", "F."]
        assert said(store, "codex:two") == [*PAST, "C?", "C.", "E?", "E."]
        assert shared(store, "codex:one", "codex:two") == PAST
        for key in ("codex:one", "codex:two"):
            session = store.session(key)
            assert [turn.end for turn in session.turns()] == ["completed"] * 4
            assert len(session.calls()) == 1
            view = marks_of(session.context("openai.responses"))
            assert [words for kind, words in view if kind in ("user", "assistant")] == [
                text for text in said(store, key) if text != "Red."
            ]


def test_a_fork_whose_first_answer_was_cut_off_is_asked_again(tmp_path: Path) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        asked = [*BEGUN, user("C?")]
        half = await threads.ask("two", asked, "one")
        await half.push(whole_chunks(RESPONSES, whole(RESPONSES, [model("C")]))[:1])
        await half.leave("cut off")
        await threads.restart()
        await threads.say("two", asked, model("C."), fork_of="one")

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        texts = [text for text in said(store, "codex:two") if text not in ("", "C")]
        assert texts == [*PAST, "C?", "C."]
        assert said(store, "codex:one") == PAST


def test_a_fork_of_an_earlier_point_has_nothing_of_what_came_later(tmp_path: Path) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        await threads.say("two", [*BEGUN[:5], user("C?")], model("C."), fork_of="one")

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        assert said(store, "codex:two") == [*PAST[:4], "C?", "C."]
        assert shared(store, "codex:one", "codex:two") == PAST[:4]


def test_a_fork_while_the_other_one_is_being_answered(tmp_path: Path) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        asked = await threads.ask("one", [*BEGUN, user("D?")])
        await threads.say("two", [*BEGUN, user("C?")], model("C."), fork_of="one")
        await asked.push(whole_chunks(RESPONSES, whole(RESPONSES, [model("D.")])))
        await asked.finish()

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        assert said(store, "codex:two") == [*PAST, "C?", "C."]
        assert said(store, "codex:one") == [*PAST, "D?", "D."]


def test_a_fork_right_after_an_answer_has_the_end_of_its_turn(tmp_path: Path) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        last = await threads.ask("one", [*BEGUN, user("C?")])
        await last.push(whole_chunks(RESPONSES, whole(RESPONSES, [model("C.")])))
        # Its client has all of it now.
        last.hear()
        fork = asyncio.create_task(
            threads.say(
                "two", [*BEGUN, user("C?"), model("C."), user("D?")], model("D."), fork_of="one"
            )
        )
        for _ in range(20):
            await asyncio.sleep(0)
        await last.finish()
        await fork

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        assert shared(store, "codex:one", "codex:two") == [*PAST, "C?", "C."]
        ends = [turn.end for turn in store.session("codex:two").turns()]
        assert ends == ["completed"] * 4


@pytest.mark.parametrize("is_erased", [False, True])
def test_a_fork_of_what_is_not_there_has_its_list(tmp_path: Path, is_erased: bool) -> None:
    async def play(threads: Threads) -> None:
        if is_erased:
            await threads.begin()
            for info in await threads._store.sessions():
                await threads._store.erase(info.id)
        await threads.say("two", [*BEGUN, user("C?")], model("C."), fork_of="one")

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        words = [text for text in said(store, "codex:two") if text]
        assert words == [*PAST, "C?", "C."]
        assert [turn.end for turn in store.session("codex:two").turns()] == ["completed"]


def test_a_fork_that_begins_with_something_else_has_its_own_list(tmp_path: Path) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        summed_up = [user("A?"), user("Another language model …"), user("C?")]
        await threads.say("two", summed_up, model("C."), fork_of="one")

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        assert said(store, "codex:two") == ["A?", "Another language model …", "C?", "C."]
        assert shared(store, "codex:one", "codex:two") == []


def test_a_summary_asked_for_in_a_fork_makes_no_session_of_its_name(tmp_path: Path) -> None:
    async def play(threads: Threads) -> None:
        await threads.begin()
        summary = await threads.ask("two", [*BEGUN, user("Sum up.")], "one", "compaction")
        await summary.push(whole_chunks(RESPONSES, whole(RESPONSES, [model("S.")])))
        await summary.finish()

    played(tmp_path / "a.db", play)
    with holdfast.open(tmp_path / "a.db") as store:
        keys = {info.key for info in store.sessions()}
        assert keys == {"codex:one", "codex:two/compaction"}


class TestUntold:
    """Forks of an agent that does not tell: Claude Code's."""

    BEGUN = [
        text("user", "A?"),
        {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, USE]},
        {"role": "user", "content": [USED]},
        text("assistant", "A."),
    ]

    async def say(
        self, threads: Threads, id: str, messages: list[Any], answer: Any, **more: str
    ) -> None:
        body = {"messages": messages, "tools": [{"name": "look"}], "max_tokens": 9}
        request = read_request(ANTHROPIC, json.dumps(body).encode())
        assert request is not None
        headers = {"x-claude-code-session-id": id, **more}
        recording = await threads.sessions.begin(headers, request)
        await recording.push(whole_chunks(ANTHROPIC, whole(ANTHROPIC, [answer])))
        await recording.finish()

    async def begin(self, threads: Threads, id: str) -> None:
        for end in (1, 3):
            await self.say(threads, id, self.BEGUN[:end], self.BEGUN[end])

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_fork_is_known_by_its_list(self, tmp_path: Path, restart: bool) -> None:
        async def play(threads: Threads) -> None:
            await self.begin(threads, "one")
            asked = {"one": [*self.BEGUN, text("user", "D?")]}
            asked["two"] = [*self.BEGUN, text("user", "C?")]
            for id in ("two", "one", "two"):
                if restart:
                    await threads.restart()
                await self.say(threads, id, asked[id], text("assistant", "And."))
                asked[id] = [*asked[id], text("assistant", "And."), text("user", "On?")]

        played(tmp_path / "a.db", play)
        past = ["A?", "Looking.", "Red.", "A."]
        with holdfast.open(tmp_path / "a.db") as store:
            keys = {info.key for info in store.sessions()}
            assert keys == {"claude-code:one", "claude-code:two"}
            assert said(store, "claude-code:one") == [*past, "D?", "And."]
            assert said(store, "claude-code:two") == [*past, "C?", "And.", "On?", "And."]
            assert shared(store, "claude-code:one", "claude-code:two") == past
            ends = [turn.end for turn in store.session("claude-code:two").turns()]
            assert ends == ["completed"] * 3

    def test_of_several_it_is_the_one_that_has_most_of_it(self, tmp_path: Path) -> None:
        async def play(threads: Threads) -> None:
            await self.begin(threads, "one")
            second = [*self.BEGUN, text("user", "C?")]
            await self.say(threads, "two", second, text("assistant", "C."))
            third = [*second, text("assistant", "C."), text("user", "D?")]
            await self.say(
                threads, "one", [*self.BEGUN, text("user", "E?")], text("assistant", "E.")
            )
            await self.say(threads, "three", third, text("assistant", "D."))

        played(tmp_path / "a.db", play)
        with holdfast.open(tmp_path / "a.db") as store:
            found = shared(store, "claude-code:two", "claude-code:three")
            assert found == ["A?", "Looking.", "Red.", "A.", "C?", "C."]

    def test_what_begins_otherwise_and_sub_agents_share_nothing(self, tmp_path: Path) -> None:
        async def play(threads: Threads) -> None:
            await self.begin(threads, "one")
            agent = {"x-claude-code-agent-id": "a"}
            on = [*self.BEGUN, text("user", "C?")]
            await self.say(threads, "one", on, text("assistant", "C."), **agent)
            other = [text("user", "A?"), text("assistant", "B."), text("user", "C?")]
            await self.say(threads, "two", other, text("assistant", "C."))
            await self.say(threads, "three", self.BEGUN[:1], text("assistant", "C."))
            await self.say(threads, "four", on, text("assistant", "C."), **{HEADER: "mine"})

        played(tmp_path / "a.db", play)
        with holdfast.open(tmp_path / "a.db") as store:
            keys = {str(info.key) for info in store.sessions()} - {"claude-code:one"}
            assert len(keys) == 4
            for key in keys:
                assert shared(store, "claude-code:one", key) == [], key


class TestParting:
    """Where a list parts from what another session shows."""

    VIEW = [
        ("1", marks_of([user("A?")])),
        ("2", ()),
        ("3", marks_of(LOOKING)),
        ("4", marks_of([RESULT])),
        ("5", marks_of([model("A.")])),
    ]

    @pytest.mark.parametrize(
        ("messages", "parts"),
        [
            (BEGUN[:5], Parting(5, None)),
            ([*BEGUN[:5], user("B?")], Parting(5, None)),
            ([*BEGUN[:4], user("B?")], Parting(4, "4")),
            # In another order: it is one message.
            ([BEGUN[0], BEGUN[2], BEGUN[1], user("B?")], Parting(3, "3")),
            ([BEGUN[0], BEGUN[1], user("B?")], None),
            ([user("Other.")], None),
            ([], None),
        ],
    )
    def test_it_is_the_last_message_that_both_have(
        self, messages: list[Any], parts: Parting | None
    ) -> None:
        assert parting(self.VIEW, marks_of(messages)) == parts


def test_codex_tells_what_it_was_forked_from() -> None:
    told = json.dumps({"forked_from_thread_id": "one"})
    name = name_of({"thread-id": "two", "x-codex-turn-metadata": told}, _request([user("A?")]))
    assert name is not None and (name.key, name.parent) == ("codex:two", "codex:one")
    # One that names its session is taken at its word.
    headers = {"holdfast-session": "mine", "thread-id": "two", "x-codex-turn-metadata": told}
    name = name_of(headers, _request([user("A?")]))
    assert name is not None and (name.key, name.parent) == ("mine", None)
