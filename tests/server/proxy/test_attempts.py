"""The same request again: another attempt at the same turn, whatever the request names and however the one
before it ended.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

import holdfast
from clients import SCRIPTS
from holdfast.runtime.aio import open_async
from holdfast.server.proxy import proxied_sessions
from holdfast.server.proxy.answers import whole_chunks
from holdfast.server.proxy.dialects import CHAT, read_request
from holdfast.server.proxy.proxied_sessions import ProxiedSessions
from proxied_samples import whole
from proxy_world import (
    LIMIT_S,
    HeldProvider,
    ProxyClients,
    ProxyProcess,
    cut_off,
    half_heard_of,
    provider,
    proxied,
)
from servers import waiting_until

RESPONSES = "openai.responses"
script = SCRIPTS[RESPONSES]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def model(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def only(store: Path) -> tuple[list[tuple[str, str]], list[Any], list[str | None]]:
    """What the one session has: its messages, what the model sees of it, and the ends of its turns."""
    with holdfast.open(store) as opened:
        [info] = opened.sessions()
        session = opened.get(info.id)
        said = [(each.role, each.text) for each in session.transcript()]
        view = [each.get("content") for each in session.context()]
        return said, view, [turn.end for turn in session.turns()]


def texts(store: Path) -> list[list[str]]:
    """The words of each session."""
    with holdfast.open(store) as opened:
        found = [opened.get(info.id).transcript() for info in opened.sessions(limit=100)]
        return [[each.text for each in session] for session in found]


def ask(
    upstream: HeldProvider, port: int, text: str, answer: str, number: int, **more: Any
) -> None:
    upstream.answer(script([answer], number=number))
    list(ProxyClients(port).stream(RESPONSES, [user(text)], **more))


@contextmanager
def half(upstream: HeldProvider, port: int, text: str, **more: Any) -> Iterator[Any]:
    """The stream of an answer of which "one two " was heard; its provider waits."""
    told = script(["one ", "two ", "three"], number=2)
    ask = partial(ProxyClients(port).stream, RESPONSES, [user(text)], **more)
    yield half_heard_of(upstream, told, ask)


NAMES = pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param({}, {"previous_response_id": "resp_1"}, id="response"),
        pytest.param({"conversation": "c"}, {"conversation": "c"}, id="conversation"),
    ],
)


@NAMES
class TestNewsAlone:
    """A request of the Responses API that goes on from what the provider keeps."""

    def test_what_is_asked_again_after_errors_is_stored_once(
        self, tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
    ) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            ask(upstream, port, "A?", "A.", 1, **first)
            for status in (500, 429):
                upstream.answer_whole({"error": {"message": "Later."}}, status=status)
                with pytest.raises((openai.InternalServerError, openai.RateLimitError)):
                    ProxyClients(port).stream(RESPONSES, [user("B?")], **then)
            told = script(["one "], number=2)[:-2]
            upstream.answer(told, ending="cut")
            with cut_off():
                list(ProxyClients(port).stream(RESPONSES, [user("B?")], **then))
            ask(upstream, port, "B?", "B.", 3, **then)
        said, view, ends = only(store)
        assert [text for _, text in said] == ["A?", "A.", "B?", "one ", "B."]
        assert view == ["A?", "A.", "B?", "B."]
        assert ends == ["completed", "completed"]

    def test_results_are_stored_once(
        self, tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
    ) -> None:
        store = tmp_path / "a.db"
        news: list[Any] = [
            {"type": "function_call_output", "call_id": "call_1", "output": "There."},
            user("And hurry."),
        ]
        with provider(strict=False) as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port)
            upstream.answer(script([], calls=[("call_1", "look", ["{}"])]))
            list(clients.stream(RESPONSES, [user("A?")], instructions="Be brief.", **first))
            upstream.answer_whole({"error": {"message": "Later."}}, status=503)
            with pytest.raises(openai.InternalServerError):
                clients.stream(RESPONSES, news, instructions="Be brief.", **then)
            upstream.answer(script(["Done."], number=2))
            list(clients.stream(RESPONSES, news, instructions="Be brief.", **then))
        said, _, ends = only(store)
        assert [text for _, text in said] == ["A?", "", "There.", "And hurry.", "Done."]
        assert ends == ["completed"]

    def test_what_a_client_left_and_asks_again_is_stored_once(
        self, tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
    ) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            ask(upstream, port, "A?", "A.", 1, **first)
            with half(upstream, port, "B?", **then) as stream:
                stream.close()
            ask(upstream, port, "B?", "B.", 3, **then)
            upstream.go_on()
        said, view, _ = only(store)
        assert [text for _, text in said] == ["A?", "A.", "B?", "one two ", "B."]
        assert view == ["A?", "A.", "B?", "B."]

    def test_what_a_killed_proxy_was_asked_is_stored_once(
        self, tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
    ) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, ProxyProcess(store, upstream) as proxy:
            ask(upstream, proxy.port, "A?", "A.", 1, **first)
            with half(upstream, proxy.port, "B?", **then) as stream:
                proxy.kill()
                with cut_off():
                    list(stream)
            upstream.go_on()
            with proxy:
                ask(upstream, proxy.port, "B?", "B.", 3, **then)
                proxy.end()
        said, view, ends = only(store)
        assert [text for _, text in said] == ["A?", "A.", "B?", "one two ", "B."]
        assert view == ["A?", "A.", "B?", "B."]
        assert ends == ["completed", "abandoned", "completed"]

    def test_the_same_words_after_an_answer_are_said_again(
        self, tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
    ) -> None:
        store = tmp_path / "a.db"
        for number in (1, 2, 3):
            # Each in a process that knows nothing of the one before.
            more = then if number > 1 else first
            if "previous_response_id" in more:
                more = {"previous_response_id": f"resp_{number - 1}"}
            with provider() as upstream, proxied(store, upstream) as port:
                ask(upstream, port, "Go on.", f"{number}.", number, **more)
        said, view, _ = only(store)
        assert [text for _, text in said] == ["Go on.", "1.", "Go on.", "2.", "Go on.", "3."]
        assert view == [text for _, text in said]


def test_an_answer_that_somebody_went_back_from_leaves_the_view(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        ask(upstream, port, "A?", "A.", 1)
        ask(upstream, port, "Left?", "Left.", 2, previous_response_id="resp_1")
        ask(upstream, port, "Right?", "Right.", 3, previous_response_id="resp_1")
        ask(upstream, port, "On?", "On.", 4, previous_response_id="resp_3")
    said, view, _ = only(store)
    assert [text for _, text in said] == [
        "A?",
        "A.",
        "Left?",
        "Left.",
        "Right?",
        "Right.",
        "On?",
        "On.",
    ]
    assert view == ["A?", "A.", "Right?", "Right.", "On?", "On."]


class TestTheSameSoFar:
    """Conversations that have said the same words so far, and then do not any more."""

    def say(self, upstream: HeldProvider, port: int, said: list[Any], **more: Any) -> None:
        """Asks the next of these; the answer stands behind it."""
        *asked, answer = said
        upstream.answer(SCRIPTS["openai.chat"]([answer["content"]]))
        list(ProxyClients(port).stream("openai.chat", asked, **more))

    @pytest.mark.parametrize("named", [{}, {"user": "ada"}], ids=["unnamed", "user"])
    @pytest.mark.parametrize("order", ["ABABABA", "ABBABA", "ABBBA"])
    def test_each_goes_on_in_its_own_session(
        self, tmp_path: Path, order: str, named: dict[str, Any]
    ) -> None:
        store = tmp_path / "a.db"
        told = {
            "A": ["Hi", "Hello.", "Weather?", "Sunny.", "Thanks", "Bye.", "Now?", "Still."],
            "B": ["Hi", "Hello.", "News?", "None.", "Thanks", "Bye."],
        }
        stands = {"A": 0, "B": 0}
        with provider() as upstream, proxied(store, upstream) as port:
            for who in order:
                stands[who] += 2
                said = [
                    {"role": ("user", "assistant")[place % 2], "content": text}
                    for place, text in enumerate(told[who][: stands[who]])
                ]
                self.say(upstream, port, said, **named)
        assert sorted(texts(store)) == sorted(told[who][: stands[who]] for who in "AB")

    def test_the_same_question_at_once_is_two_questions(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        begun = [user("Hi"), model("Hello.")]
        asked = [*begun, user("And?")]
        told = SCRIPTS["openai.chat"](["one ", "two"])
        with provider() as upstream, proxied(store, upstream) as port:
            for _ in range(2):
                self.say(upstream, port, begun)
            upstream.answer(told, hold_after=2)
            first = iter(ProxyClients(port).stream("openai.chat", asked))
            next(first)
            upstream.held.get(timeout=LIMIT_S)
            upstream.answer(told)
            list(ProxyClients(port).stream("openai.chat", asked))
            upstream.go_on()
            list(first)
        assert texts(store) == [["Hi", "Hello.", "And?", "one two"]] * 2

    def test_two_that_go_on_at_the_same_moment_do_not_meet(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        begun = [user("Hi"), model("Hello.")]

        async def say(sessions: ProxiedSessions, asked: list[Any], answer: str) -> None:
            request = read_request(CHAT, json.dumps({"messages": asked}).encode())
            assert request is not None
            recording = await sessions.begin({}, request)
            await recording.push(whole_chunks(CHAT, whole(CHAT, [model(answer)])))
            await recording.finish()

        async def play() -> None:
            async with open_async(store) as opened:
                sessions = ProxiedSessions(opened)
                for _ in range(2):
                    await say(sessions, begun[:1], "Hello.")
                await asyncio.gather(
                    say(sessions, [*begun, user("A?")], "A."),
                    say(sessions, [*begun, user("B?")], "B."),
                )
                await sessions.close()

        asyncio.run(play())
        assert sorted(texts(store)) == [["Hi", "Hello.", f"{who}?", f"{who}."] for who in "AB"]


class TestFirstQuestions:
    """The first question of a conversation that nobody has named, asked again."""

    def test_after_a_kill_it_is_another_attempt(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, ProxyProcess(store, upstream) as proxy:
            with half(upstream, proxy.port, "A?") as stream:
                proxy.kill()
                with cut_off():
                    list(stream)
            upstream.go_on()
            with proxy:
                ask(upstream, proxy.port, "A?", "A.", 3)
                proxy.end()
        said, view, ends = only(store)
        assert [text for _, text in said] == ["A?", "one two ", "A."]
        assert view == ["A?", "A."] and ends == ["abandoned", "completed"]

    @pytest.mark.parametrize("named", [{}, {"user": "ada"}], ids=["unnamed", "user"])
    @pytest.mark.parametrize("status", [200, 400, 500])
    def test_whenever_it_is_asked_again(
        self,
        tmp_path: Path,
        named: dict[str, Any],
        status: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(proxied_sessions, "RETRY_S", 0.0)
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port)
            if status == 200:
                upstream.answer(script(["one "], number=2)[:-2], ending="cut")
                with cut_off():
                    list(clients.stream(RESPONSES, [user("A?")], **named))
            else:
                upstream.answer_whole({"error": {"message": "No."}}, status=status)
                with pytest.raises(openai.APIStatusError):
                    clients.stream(RESPONSES, [user("A?")], **named)
            with holdfast.open(store) as opened:
                [info] = opened.sessions()
                for _ in waiting_until("its turn has ended"):
                    if [turn.end for turn in opened.get(info.id).turns()] == ["failed"]:
                        break
            ask(upstream, port, "A?", "A.", 3, **named)
        said, view, ends = only(store)
        assert [text for _, text in said if text != "one "] == ["A?", "A."]
        assert view == ["A?", "A."] and ends == ["failed", "completed"]

    def test_one_that_was_answered_is_another_conversation(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        for _ in range(2):
            with provider() as upstream, proxied(store, upstream) as port:
                ask(upstream, port, "A?", "A.", 1)
                ask(upstream, port, "A?", "A.", 2)
        assert texts(store) == [["A?", "A."]] * 4
