"""Whole conversations through the providers' own clients, against a server that refuses what the
providers refuse.

Ten turns, with reasoning, parallel calls, a refusal, answers cut off by their limit, an empty one,
one whose connection broke, an agent's own turn, and a change of provider in the middle. A request
that breaks a rule is answered with 400, and the client raises. The same server then cuts each
stream at each of its events.
"""

import asyncio
import json

import pytest

import holdfast
from clients import PATHS, REFUSED, AsyncClients, Clients, script
from holdfast.testing.providers import check
from sse_server import serve
from thorough import SWEEP, few_cases, sample

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
CALLS = [("call_1", "look", ['{"at":', ' "sky"}']), ("call_2", "wait", ["{}"])]
LIMIT = {
    "openai.chat": {"finish": "length"},
    "openai.responses": {"end": "response.incomplete"},
    "anthropic": {"finish": "max_tokens"},
}
REFUSAL = {
    "openai.chat": {"refusal": ["I can", "not."]},
    "openai.responses": {"refusal": ["I can", "not."]},
    "anthropic": {"refusal": ["I can", "not."], "finish": "refusal"},
}


@pytest.fixture(scope="module")
def provider():
    with serve(strict=True) as running:
        yield running


@pytest.fixture(scope="module")
def clients(provider):
    return Clients(provider)


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


def broken(events):
    """The stream up to its middle."""
    return events[: len(events) // 2]


def conversation(format, other):
    """The turns: what is asked, with which provider, and what it answers, stream by stream. A
    stream that is broken off is marked; its turn is interrupted.
    """
    return [
        ("One.", format, [(script(format, ["Hel", "lo."], thinking=["Hm", "m."]), False)]),
        (
            "Two.",
            format,
            [
                (script(format, ["Let me", " look."], thinking=["Hm", "m."], calls=CALLS), False),
                (script(format, ["It is", " blue."]), False),
            ],
        ),
        ("Three.", other, [(script(other, [], **REFUSAL[other]), False)]),
        ("Four.", other, [(script(other, [], calls=CALLS), False), (script(other, []), False)]),
        ("Five.", format, [(script(format, ["Half an", " ans"], **LIMIT[format]), False)]),
        (
            "Six.",
            format,
            [
                (
                    script(format, [], calls=[("call_1", "look", ['{"at": "s'])], **LIMIT[format]),
                    False,
                )
            ],
        ),
        (
            "Seven.",
            other,
            [(broken(script(other, ["Hel", "lo."], thinking=["Hm"], calls=CALLS)), True)],
        ),
        ("Eight.", format, [(script(format, ["Again", "."]), False)]),
        (None, other, [(script(other, ["By my", "self."]), False)]),
        ("Nine.", format, [(script(format, ["The", " end."]), False)]),
    ]


def converse(provider, clients, session, turns):
    for message, format, streams in turns:
        try:
            with session.turn(message, format=format) as turn:
                for events, cut in streams:
                    provider.script(PATHS[format], events, broken=cut)
                    list(turn.deliver(clients.ask(format, turn.context()), format=format))
                    for call in turn.calls():
                        turn.call(call.name, call.arguments, call_id=call.call_id)
                        turn.result(call.call_id, f"result of {call.name}")
        except REFUSED:
            raise
        except Exception:
            if not any(cut for _, cut in streams):
                raise


async def converse_async(provider, clients, session, turns):
    for message, format, streams in turns:
        try:
            async with session.turn(message, format=format) as turn:
                for events, cut in streams:
                    provider.script(PATHS[format], events, broken=cut)
                    reply = await clients.ask(format, await turn.context())
                    _ = [text async for text in turn.deliver(reply, format=format)]
                    for call in await turn.calls():
                        await turn.call(call.name, call.arguments, call_id=call.call_id)
                        await turn.result(call.call_id, f"result of {call.name}")
        except REFUSED:
            raise
        except Exception:
            if not any(cut for _, cut in streams):
                raise


def judge(session, where, format, other):
    """What every conversation comes to: all that was said is there, in every format, for every
    handle.
    """
    said = [message.text for message in session.transcript() if message.role == "user"]
    assert said == ["One.", "Two.", "Three.", "Four.", "Five.", "Six.", "Seven.", "Eight.", "Nine."]
    words = "\n".join(message.text for message in session.transcript())
    for text in (
        "Hello.",
        "It is blue.",
        "I cannot.",
        "Half an ans",
        "Again.",
        "By myself.",
        "The end.",
    ):
        assert text in words
    assert words.count("result of look") >= 2
    with holdfast.open(where) as fresh:
        for target in FORMATS:
            context = session.context(target)
            assert check(target, context) == [], target
            assert list(fresh.get(session.id).context(target)) == list(context), target
            assert "result of wait" in json.dumps(context) and "The end." in json.dumps(context)


PAIRS = [(format, other) for format in PATHS for other in PATHS]
CYCLE = PAIRS if SWEEP else list(zip(PATHS, [*list(PATHS)[1:], *PATHS], strict=False))
"""In asyncio an ordinary run changes from each provider to one other."""


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(("format", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_a_conversation_is_accepted_from_its_first_request_to_its_last(
    provider, clients, where, format, other
):
    with holdfast.open(where) as store:
        session = store.session("k")
        converse(provider, clients, session, conversation(format, other))
        judge(session, where, format, other)


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(("format", "other"), CYCLE, ids=["-".join(pair) for pair in CYCLE])
def test_a_conversation_in_asyncio_is_accepted_from_its_first_request_to_its_last(
    provider, where, format, other
):
    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            await converse_async(
                provider, AsyncClients(provider), session, conversation(format, other)
            )

    asyncio.run(scene())
    with holdfast.open(where) as store:
        judge(store.session("k"), where, format, other)


def cuts(format):
    """A rich stream, cut at each of its events: broken off, and quietly ended."""
    events = script(format, ["Hel", "lo."], thinking=["Hm", "m."], calls=CALLS)
    return [
        (f"{at}-{how}", events[:at], how == "broken")
        for at in range(len(events))
        for how in ("broken", "quiet")
    ]


def whole(format):
    return script(format, ["Well", "."])


def went_on(store, name, format):
    """After a cut: the session goes on, and is valid everywhere."""
    session = store.session(name)
    [asked, *rest] = session.transcript()
    assert (asked.text, rest[-1].text) == ("Ask.", "Well.")
    for target in FORMATS:
        assert check(target, session.context(target)) == [], (name, target)


@pytest.mark.slow
@pytest.mark.parametrize("format", PATHS)
def test_after_a_cut_at_any_event_the_next_request_is_accepted(provider, clients, where, format):
    with holdfast.open(where, durability="process") as store:
        for name, events, is_broken in cuts(format):
            session = store.session(name)
            provider.script(PATHS[format], events, broken=is_broken)
            try:
                with session.turn("Ask.", format=format) as turn:
                    list(turn.deliver(clients.ask(format, turn.context()), format=format))
            except REFUSED:
                raise
            except Exception:
                assert is_broken
            provider.script(PATHS[format], whole(format))
            with session.turn("And?", format=format) as turn:
                list(turn.deliver(clients.ask(format, turn.context()), format=format))
            went_on(store, name, format)


@pytest.mark.slow
@pytest.mark.parametrize("format", PATHS)
def test_after_a_cut_the_same_turn_may_ask_again(provider, clients, where, format):
    """What a retrying agent does: the answer was cut, and the next request goes out in the same
    turn.
    """
    with holdfast.open(where, durability="process") as store:
        for name, events, is_broken in sample(cuts(format), every=3):
            with store.session(name).turn("Ask.", format=format) as turn:
                provider.script(PATHS[format], events, broken=is_broken)
                try:
                    list(turn.deliver(clients.ask(format, turn.context()), format=format))
                except REFUSED:
                    raise
                except Exception:
                    assert is_broken
                for target in FORMATS:
                    assert check(target, turn.context(target), prefill=False) == [], (name, target)
                provider.script(PATHS[format], whole(format))
                list(turn.deliver(clients.ask(format, turn.context()), format=format))
            went_on(store, name, format)


@pytest.mark.slow
@pytest.mark.parametrize("format", PATHS)
def test_after_a_cut_in_asyncio_the_next_request_is_accepted(provider, where, format):
    async def scene():
        clients = AsyncClients(provider)
        async with holdfast.open_async(where, durability="process") as store:
            for name, events, is_broken in sample(cuts(format), every=3):
                session = await store.session(name)
                provider.script(PATHS[format], events, broken=is_broken)
                try:
                    async with session.turn("Ask.", format=format) as turn:
                        reply = await clients.ask(format, await turn.context())
                        _ = [text async for text in turn.deliver(reply, format=format)]
                except REFUSED:
                    raise
                except Exception:
                    assert is_broken
                provider.script(PATHS[format], whole(format))
                async with session.turn("And?", format=format) as turn:
                    reply = await clients.ask(format, await turn.context())
                    _ = [text async for text in turn.deliver(reply, format=format)]

    asyncio.run(scene())
    with holdfast.open(where) as store:
        for name, _, _ in sample(cuts(format), every=3):
            went_on(store, name, format)


@pytest.mark.slow
def test_the_strict_server_refuses_what_it_should(provider, clients):
    """The judge itself: a request that breaks a rule raises in the client."""
    for format in PATHS:
        provider.script(PATHS[format], whole(format))
        asked, answered = (
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello."},
        )
        for wrong in (
            [asked, answered],
            [{**asked, "surprise": 1}],
            [{**asked, "content": " "}],
            [],
        ):
            with pytest.raises(REFUSED):
                clients.ask(format, wrong)
        list(clients.ask(format, [asked, answered, asked]))
