"""A client that leaves a list for another one and comes back to it: what it has said is stored once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from clients import SCRIPTS
from holdfast.runtime.aio import open_async
from holdfast.server.proxy import proxied_sessions
from holdfast.server.proxy.answers import whole_chunks
from holdfast.server.proxy.dialects import RESPONSES, read_request
from holdfast.server.proxy.lists import branches
from holdfast.server.proxy.naming import HEADER
from holdfast.server.proxy.proxied_sessions import ProxiedSessions
from holdfast.testing.providers import check
from proxied_samples import whole
from proxy_world import HeldProvider, ProxyClients, cut_off, provider, proxied

FORMATS = ("openai.chat", "openai.responses", "anthropic")
NAMES = pytest.mark.parametrize("name", ["mine", None], ids=["named", "unnamed"])


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


class Talk:
    """One client and its lists."""

    def __init__(self, upstream: HeldProvider, port: int, name: str | None, format: str) -> None:
        self._upstream, self._format = upstream, format
        self._name, self._clients = name, ProxyClients(port, name)
        self._number = 0
        self.said: list[str] = []

    def move(self, port: int) -> None:
        """Another proxy is asked from now on."""
        self._clients = ProxyClients(port, self._name)

    def ask(self, messages: list[dict[str, str]], question: str | None) -> list[dict[str, str]]:
        """The list with this question, if there is one, and its answer."""
        self._number += 1
        answer = f"Answer {self._number}."
        messages = [*messages, *([] if question is None else [user(question)])]
        self._upstream.answer(SCRIPTS[self._format]([answer], number=self._number))
        list(self._clients.stream(self._format, messages))
        self.said += [*([] if question is None else [question]), answer]
        return [*messages, {"role": "assistant", "content": answer}]


def words(context: Any) -> list[str]:
    """The words of a context, whatever its format makes of them."""
    said = [message["content"] for message in context]
    return [each if isinstance(each, str) else each[0]["text"] for each in said]


def texts(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


def looked_at(store: Path, format: str) -> tuple[list[str], list[str]]:
    """The words of the one session, and of what its model sees."""
    with holdfast.open(store) as opened:
        [info] = opened.sessions()
        session = opened.get(info.id)
        context = session.context(format)
        assert check(format, context) == []
        return [message.text for message in session.transcript()], words(context)


@NAMES
@pytest.mark.parametrize("format", FORMATS)
def test_branches_that_are_gone_back_to_are_stored_once(
    tmp_path: Path, format: str, name: str | None
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        talk = Talk(upstream, port, name, format)
        trunk = talk.ask([], "Where?")
        one = talk.ask(talk.ask(trunk, "When?"), "With whom?")
        other = talk.ask(trunk, "Why?")
        for number in range(3):
            one = talk.ask(one, f"One, {number}?")
            other = talk.ask(other, f"Other, {number}?")
    stored, seen = looked_at(store, format)
    assert stored == talk.said
    assert seen == texts(other)


@NAMES
@pytest.mark.parametrize("format", FORMATS)
def test_branches_that_another_process_has_left_are_stored_once(
    tmp_path: Path, format: str, name: str | None
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream:
        with proxied(store, upstream) as port:
            talk = Talk(upstream, port, name, format)
            trunk = talk.ask([], "Where?")
            left = [talk.ask(trunk, f"Way {number}?") for number in range(3)]
        with proxied(store, upstream) as port:
            talk.move(port)
            for number in (2, 0, 1):
                left[number] = talk.ask(left[number], f"On with {number}?")
    stored, seen = looked_at(store, format)
    assert stored == talk.said
    assert seen == texts(left[1])


def test_branches_of_a_session_that_was_forgotten_for_others_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied_sessions, "KNOWN_MAX", 1)
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        talk = Talk(upstream, port, "mine", "openai.chat")
        trunk = talk.ask([], "Where?")
        one = talk.ask(trunk, "When?")
        other = talk.ask(trunk, "Why?")
        Talk(upstream, port, "another", "openai.chat").ask([], "Who?")
        one = talk.ask(one, "And then?")
    with holdfast.open(store) as opened:
        session = opened.session("mine")
        assert [message.text for message in session.transcript()] == talk.said
        assert words(session.context("openai.chat")) == texts(one)
    assert texts(other)[:2] == texts(one)[:2]


def test_a_list_that_was_asked_again_after_a_cut_was_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt takes what was said in the one before out of the view. It is the same list."""
    monkeypatch.setattr(branches, "BRANCHES_MAX", 1)
    store = tmp_path / "a.db"
    with provider() as upstream:
        with proxied(store, upstream) as port:
            talk = Talk(upstream, port, "mine", "openai.chat")
            trunk = talk.ask([], "Where?")
            left = talk.ask(trunk, "When?")
            here = talk.ask(trunk, "Why?")
            upstream.answer(SCRIPTS["openai.chat"](["Half ", "of it."])[:2], ending="cut")
            with cut_off():
                list(ProxyClients(port, "mine").stream("openai.chat", [*here, user("Who?")]))
            here = talk.ask([*here, user("Who?")], None)
        talk.said[-1:] = ["Who?", "Half ", talk.said[-1]]
        with proxied(store, upstream) as port:
            talk.move(port)
            talk.ask(here, "And then?")
            left = talk.ask(left, "On?")
    stored, seen = looked_at(store, "openai.chat")
    assert stored == talk.said
    assert seen == texts(left)


def test_a_list_whose_results_came_in_another_order_goes_on_where_it_is(tmp_path: Path) -> None:
    """A context has the results of parallel calls in the order of the calls, its client as they came."""
    calls = [{"type": "function_call", "call_id": id, "name": "look"} for id in ("one", "two")]
    asked = [{**each, "id": f"fc_{each['call_id']}", "arguments": "{}"} for each in calls]
    results = [
        {"type": "function_call_output", "call_id": id, "output": f"Saw {id}."}
        for id in ("two", "one")
    ]

    def model(text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": f"a_{text}", "role": "assistant", "content": content}

    async def ask(store: holdfast.AsyncStore, messages: list[Any], *answer: Any) -> list[Any]:
        # Each time in another process.
        sessions = ProxiedSessions(store)
        body = json.dumps({"input": messages, "tools": [{"type": "function", "name": "look"}]})
        request = read_request(RESPONSES, body.encode())
        assert request is not None
        recording = await sessions.begin({HEADER: "mine"}, request)
        await recording.push(whole_chunks(RESPONSES, whole(RESPONSES, list(answer))))
        await recording.finish()
        await sessions.close()
        return [*messages, *answer]

    async def play() -> None:
        async with open_async(tmp_path / "a.db") as store:
            trunk = await ask(store, await ask(store, [user("A?")], *asked) + results, model("A."))
            left = await ask(store, [*trunk, user("B?")], model("B."))
            await ask(store, [*trunk, user("C?")], model("C."))
            for more in ("D", "E"):
                left = await ask(store, [*left, user(f"{more}?")], model(f"{more}."))

    asyncio.run(play())
    with holdfast.open(tmp_path / "a.db") as opened:
        said = [message.text for message in opened.session("mine").transcript()]
    assert said == [
        "A?",
        "",
        "Saw two.",
        "Saw one.",
        "A.",
        *["B?", "B.", "C?", "C.", "D?", "D.", "E?", "E."],
    ]


def test_an_answer_that_was_made_anew_is_left_for_the_first_one(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        talk = Talk(upstream, port, "mine", "openai.chat")
        one = talk.ask(talk.ask([], "Where?"), "When?")
        anew = talk.ask(one[:-1], None)
        one = talk.ask(one, "And then?")
        anew = talk.ask(anew, "And what then?")
    stored, seen = looked_at(store, "openai.chat")
    assert stored == talk.said
    assert seen == texts(anew)


@pytest.mark.parametrize("format", FORMATS)
def test_branches_that_went_on_through_another_proxy_are_stored_once(
    tmp_path: Path, format: str
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        with proxied(store, upstream) as other:
            talk = Talk(upstream, port, "mine", format)
            trunk = talk.ask([], "Where?")
            one = talk.ask(trunk, "When?")
            here = talk.ask(trunk, "Why?")
            talk.move(other)
            one = talk.ask(one, "With whom?")
            here = talk.ask(here, "Why not?")
            third = talk.ask(trunk, "Who?")
            talk.move(port)
            one = talk.ask(one, "And then?")
            third = talk.ask(third, "Who else?")
            here = talk.ask(here, "Well?")
    stored, seen = looked_at(store, format)
    assert stored == talk.said
    assert seen == texts(here)


@NAMES
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("is_new", [False, True], ids=["same process", "another"])
def test_a_part_of_a_list_that_was_left_is_stored_once(
    tmp_path: Path, format: str, name: str | None, is_new: bool
) -> None:
    """An older question of a branch is worded anew, or its answer made anew, right when it comes back."""
    store = tmp_path / "a.db"
    with provider() as upstream:
        with proxied(store, upstream) as port:
            talk = Talk(upstream, port, name, format)
            trunk = talk.ask([], "Where?")
            whole = talk.ask(talk.ask(talk.ask(trunk, "When?"), "With whom?"), "What for?")
            here = talk.ask(talk.ask(trunk, "Why?"), "Why not?")
            if not is_new:
                here = _back_to_parts(talk, trunk, whole, here)
        if is_new:
            with proxied(store, upstream) as port:
                talk.move(port)
                here = _back_to_parts(talk, trunk, whole, here)
    stored, seen = looked_at(store, format)
    assert stored == talk.said
    assert seen == texts(here)


def _back_to_parts(talk: Talk, trunk: Any, whole: Any, here: Any) -> Any:
    worded = talk.ask(whole[:6], "What next?")
    here = talk.ask(here, "And then?")
    talk.ask(whole[:5], None)
    talk.ask(trunk, "Who?")
    talk.ask(whole[:4], "With whom else?")
    here = talk.ask(here, "So what?")
    talk.ask(whole, "On?")
    talk.ask(worded, "And after that?")
    return talk.ask(here, "Well?")


def test_what_is_asked_in_one_branch_is_asked_in_another_too(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        talk = Talk(upstream, port, "mine", "openai.chat")
        trunk = talk.ask([], "Where?")
        left = talk.ask(trunk, "When?")
        here = talk.ask(trunk, "Why?")
        for _ in range(3):
            here = talk.ask(here, "When?")
        left = talk.ask(left, "When?")
    stored, seen = looked_at(store, "openai.chat")
    assert stored == talk.said
    assert seen == texts(left)


def test_the_branch_that_was_left_longest_ago_is_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "BRANCHES_MAX", 2)
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        talk = Talk(upstream, port, "mine", "openai.chat")
        trunk = talk.ask([], "Where?")
        left = [talk.ask(trunk, f"Way {number}?") for number in range(4)]
        for number in (2, 1):
            talk.ask(left[number], f"On with {number}?")
        assert looked_at(store, "openai.chat")[0] == talk.said
        talk.ask(left[0], "On with 0?")
    stored, seen = looked_at(store, "openai.chat")
    assert stored == [*talk.said[:-2], "Way 0?", "Answer 2.", "On with 0?", "Answer 8."]
    assert seen == [*texts(left[0]), "On with 0?", "Answer 8."]
