"""The same request again: another attempt at the same turn, whatever the request names and however the one
before it ended.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

import holdfast
from clients import SCRIPTS
from proxy_world import (
    LIMIT_S,
    HeldProvider,
    ProxyClients,
    ProxyProcess,
    cut_off,
    provider,
    proxied,
)

RESPONSES = "openai.responses"
script = SCRIPTS[RESPONSES]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def only(store: Path) -> tuple[list[tuple[str, str]], list[Any], list[str | None]]:
    """What the one session has: its messages, what the model sees of it, and the ends of its turns."""
    with holdfast.open(store) as opened:
        [info] = opened.sessions()
        session = opened.get(info.id)
        said = [(each.role, each.text) for each in session.transcript()]
        view = [each.get("content") for each in session.context()]
        return said, view, [turn.end for turn in session.turns()]


def ask(
    upstream: HeldProvider, port: int, text: str, answer: str, number: int, **more: Any
) -> None:
    upstream.answer(script([answer], number=number))
    list(ProxyClients(port).stream(RESPONSES, [user(text)], **more))


@contextmanager
def half(upstream: HeldProvider, port: int, text: str, **more: Any) -> Iterator[Any]:
    """The stream of an answer of which "one two " was heard; its provider waits."""
    told = script(["one ", "two ", "three"], number=2)
    place = next(n for n, (_, data) in enumerate(told) if "three" in json.dumps(data))
    upstream.answer(told, hold_after=place)
    stream = ProxyClients(port).stream(RESPONSES, [user(text)], **more)
    seen = ""
    for chunk in stream:
        seen += chunk.to_json()
        if "two" in seen:
            break
    upstream.held.get(timeout=LIMIT_S)
    yield stream


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
