"""A store that is opened with `Tracing` tells its turns, tools and commits to OpenTelemetry, and
nobody's words.
"""

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

import holdfast
from holdfast.runtime.plans.plan import run
from holdfast.runtime.turns.recovery import settle
from spans_seen import Failing, Flaky, Raising, SeenSpans, Stuck, is_child, is_error, said

SECRET = "the code is 7F3K"
KEY = "sk-ant-" + "a1" * 20
ANSWER = [
    {"id": "c1", "model": "gpt-5", "choices": [{"index": 0, "delta": {"content": "At eight."}}]},
    {"id": "c1", "model": "gpt-5", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"id": "c1", "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}},
]


@pytest.fixture
def seen():
    return SeenSpans()


@pytest.fixture
def store(tmp_path, seen):
    with holdfast.open(tmp_path / "s.db", tracing=holdfast.Tracing(seen.provider)) as store:
        yield store


def test_a_turn_is_a_span_with_what_the_provider_counted(store, seen):
    session = store.session("k")
    with session.turn("Book a table.") as turn:
        assert "".join(turn.deliver(ANSWER, format="openai.chat")) == "At eight."
    span = seen.one("invoke_agent")
    told = dict(span.attributes)
    assert told.pop("holdfast.turn.chunks") >= 1
    assert told == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": session.id,
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "gpt-5",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "holdfast.tenant": "default",
        "holdfast.turn.id": turn.id,
        "holdfast.turn.end": "completed",
    }
    assert not is_error(span)


def test_commits_are_below_their_turn_and_chunks_have_no_span_each(store, seen):
    with store.session("k").turn("Hello.") as turn:
        for _ in turn.deliver(["a ", "b ", "c"]):
            pass
    span = seen.one("invoke_agent")
    commits = [
        each for each in seen.named("holdfast.commit") if "holdfast.turn.id" in each.attributes
    ]
    assert all(is_child(each, span) for each in commits)
    kinds = [each.attributes["holdfast.commit.kinds"] for each in commits]
    assert kinds == [("message", "turn"), ("message",), ("end",)]
    assert all(
        span.start_time <= each.start_time <= each.end_time <= span.end_time
        for each in commits[:-1]
    )


def test_what_a_program_traces_in_the_block_is_part_of_the_turn(store, seen):
    tracer = seen.provider.get_tracer("program")
    with tracer.start_as_current_span("request"):
        with store.session("k").turn("Hello.") as turn:
            with tracer.start_as_current_span("chat gpt-5"):
                turn.say("Hello to you.")
        with tracer.start_as_current_span("after"):
            pass
    request, turn_span = seen.one("request"), seen.one("invoke_agent")
    assert is_child(turn_span, request)
    assert is_child(seen.one("chat gpt-5"), turn_span)
    assert is_child(seen.one("after"), request)


def test_it_is_the_same_with_asyncio_and_each_task_has_its_own_turn(tmp_path, seen):
    tracer = seen.provider.get_tracer("program")

    async def converse(store, key):
        session = await store.session(key)
        async with session.turn("Hello.") as turn:
            with tracer.start_as_current_span(f"chat {key}"):
                await turn.say("Hello to you.")
                await asyncio.sleep(0)
        return session.id

    async def main():
        tracing = holdfast.Tracing(seen.provider)
        async with holdfast.open_async(tmp_path / "s.db", tracing=tracing) as store:
            return await asyncio.gather(*(converse(store, key) for key in "abc"))

    ids = asyncio.run(main())
    spans = {each.attributes["gen_ai.conversation.id"]: each for each in seen.named("invoke_agent")}
    assert set(spans) == set(ids)
    for key, id in zip("abc", ids, strict=True):
        assert is_child(seen.one(f"chat {key}"), spans[id])


def test_a_tool_is_a_span_from_its_start_to_its_outcome(store, seen):
    with store.session("k").turn("What is the weather?") as turn:
        call = turn.call("weather", {"place": SECRET})
        turn.result(call, SECRET)
        broken = turn.call("broken", {})
        turn.result(broken, "no", error=True)
        turn.call("slow", {}, call_id="c-slow")
    weather, failed, left = (
        seen.one(f"execute_tool {name}") for name in ("weather", "broken", "slow")
    )
    turn_span = seen.one("invoke_agent")
    assert all(is_child(each, turn_span) for each in (weather, failed, left))
    assert dict(weather.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": turn_span.attributes["gen_ai.conversation.id"],
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": str(call),
    }
    assert not is_error(weather)
    assert is_error(failed) and failed.attributes["error.type"] == "tool_error"
    # Whether it was done is not known (I-22).
    assert is_error(left) and left.attributes["error.type"] == "unknown"


def test_a_call_of_the_models_is_named_by_its_message(store, seen):
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    }
    with store.session("k").turn("Look.") as turn:
        turn.add(asked)
        [call] = turn.calls()
        turn.call(call.name, call.arguments, call_id=call.call_id)
        turn.result(call.call_id, "seen")
    assert seen.one("execute_tool look").attributes["gen_ai.tool.call.id"] == "c1"


def test_a_call_that_waits_for_approval_is_no_span_until_it_runs(store, seen):
    session = store.session("k")
    with session.turn("Pay.") as turn:
        assert turn.call("pay", {"sum": 5}, call_id="c1", needs_approval=True).waiting
    assert not seen.named("execute_tool pay")
    session.decide("c1", True, by="me")
    with session.turn() as turn:
        turn.call("pay", {"sum": 5}, call_id="c1")
        turn.result("c1", "paid")
    [span] = [each for each in seen.all if each.name.startswith("execute_tool")]
    assert span.attributes["gen_ai.tool.call.id"] == "c1" and not is_error(span)


@pytest.mark.parametrize(
    "error, end, kind",
    [
        (ValueError(SECRET), "failed", "ValueError"),
        (KeyboardInterrupt(), "interrupted", None),
        (RuntimeError(KEY), "failed", "RuntimeError"),
    ],
)
def test_a_turn_tells_how_it_ended_and_no_words_of_the_error(store, seen, error, end, kind):
    with pytest.raises(type(error)), store.session("k").turn(SECRET):
        raise error
    span = seen.one("invoke_agent")
    assert span.attributes["holdfast.turn.end"] == end
    assert span.attributes.get("error.type") == kind
    assert is_error(span) is (kind is not None)
    assert SECRET not in seen.text and KEY not in seen.text


def test_words_of_a_caller_are_no_kind_of_error_and_no_reason(store, seen):
    session = store.session("k")
    with session.turn("a") as turn:
        turn.fail(SECRET)
    with session.turn("b") as turn:
        turn.interrupt(SECRET)
    failed, interrupted = seen.named("invoke_agent")
    assert failed.attributes["error.type"] == "_OTHER"
    assert "holdfast.turn.reason" not in interrupted.attributes
    assert SECRET not in seen.text


def test_content_is_off_until_one_switch_turns_it_on(tmp_path, seen):
    def converse(tracing, event):
        with holdfast.open(tmp_path / "s.db", tracing=tracing) as store:
            with store.turn("telegram:dm:42", SECRET, event_id=event) as turn:
                call = turn.call("weather", {"place": SECRET, "api_key": KEY})
                turn.result(call, f"{SECRET} {KEY}")
                turn.say(f"{SECRET} {KEY}")

    converse(holdfast.Tracing(seen.provider), "update-17")
    for words in (SECRET, "7F3K", KEY, "telegram", "update-17"):
        assert words not in seen.text
    seen.clear()
    converse(holdfast.Tracing(seen.provider, content=True), "update-18")
    span, tool = seen.one("invoke_agent"), seen.one("execute_tool weather")
    assert said(span, "gen_ai.input.messages") == [
        {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
    ]
    calling, speaking = said(span, "gen_ai.output.messages")
    assert calling["parts"][0]["type"] == "tool_call"
    assert calling["parts"][0]["arguments"]["place"] == SECRET
    assert speaking["parts"][0]["content"].startswith(SECRET)
    assert said(tool, "gen_ai.tool.call.arguments")["place"] == SECRET
    assert tool.attributes["gen_ai.tool.call.result"].startswith(SECRET)
    # What looks like a secret is left out even then; the key of a session is never told.
    assert KEY not in seen.text and "[redacted: " in seen.text
    assert "telegram" not in seen.text


def test_a_turn_that_was_stopped_is_ended_by_whoever_stops_it(store, seen):
    session = store.session("k")
    with pytest.raises(holdfast.errors.TurnInterrupted), session.turn("Hello.") as turn:
        session.stop()
        span = seen.one("invoke_agent")
        turn.say("more")
    assert len(seen.named("invoke_agent")) == 1
    assert span.attributes["holdfast.turn.end"] == "interrupted"
    assert span.attributes["holdfast.turn.reason"] == "stopped: user"
    assert span.attributes["holdfast.turn.settled"] is True


def test_who_has_lost_a_turn_says_so_and_whoever_settles_it_tells_its_end(tmp_path):
    mine, theirs = SeenSpans(), SeenSpans()
    path = tmp_path / "s.db"
    with (
        holdfast.open(path, tracing=holdfast.Tracing(mine.provider)) as here,
        holdfast.open(path, tracing=holdfast.Tracing(theirs.provider)) as there,
    ):
        with pytest.raises(holdfast.errors.TurnInterrupted):
            with here.session("k").turn("Hello.") as turn:
                there.session("k").stop()
                turn.say("more")
    lost, settled = mine.one("invoke_agent"), theirs.one("invoke_agent")
    assert lost.attributes["holdfast.turn.superseded"] is True
    assert lost.attributes["error.type"] == "turn_interrupted" and is_error(lost)
    assert "holdfast.turn.end" not in lost.attributes
    assert settled.attributes["holdfast.turn.settled"] is True
    assert settled.attributes["holdfast.turn.end"] == "interrupted"
    assert settled.attributes["holdfast.turn.id"] == lost.attributes["holdfast.turn.id"] == turn.id


def test_a_turn_that_its_own_process_settles_is_told_once(store, seen):
    """The keeper of leases may see the seizure before its seizer has stored the end."""
    work = store.session("k").turn("Hello.")._work

    def meanwhile(last):
        work._renewed(work.session.submit(work._renewal()))
        assert work.ended
        yield from ()
        return (last,)

    state = work.session.state()
    run(settle(work.session, state, end="abandoned", reason="its lease ran out", also=meanwhile))
    span = seen.one("invoke_agent")
    assert span.attributes["holdfast.turn.end"] == "abandoned"
    assert "holdfast.turn.superseded" not in span.attributes


KILLED = """
    import os, signal, sys
    import holdfast
    store = holdfast.open(sys.argv[1])
    turn = store.session("k").turn("Hello.")
    for text in turn.deliver(iter(["Once ", "upon"])):
        break
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_turn_of_a_killed_process_is_told_when_it_is_settled(tmp_path, seen):
    path = tmp_path / "s.db"
    subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path)], timeout=60)
    assert not seen.all
    with holdfast.open(path, tracing=holdfast.Tracing(seen.provider)) as store:
        session = store.session("k")
        [info] = session.turns()
    span = seen.one("invoke_agent")
    assert info.end == span.attributes["holdfast.turn.end"] == "abandoned"
    assert span.attributes["holdfast.turn.id"] == info.id
    assert span.attributes["holdfast.turn.reason"] == "its process is gone"
    assert span.attributes["holdfast.turn.settled"] is True
    assert is_error(span) and span.attributes["error.type"] == "abandoned"
    # From its start, as the log tells it, to when it was settled.
    assert span.start_time == info.started_at * 1_000_000
    assert span.end_time > span.start_time


def test_a_refused_commit_says_why_and_no_turn_begins(store, seen):
    session = store.session("k")
    with session.turn("Hello."):
        with pytest.raises(holdfast.errors.SessionBusy):
            session.turn("Again.", on_busy="refuse")
    session.end("done")
    seen.clear()
    with pytest.raises(holdfast.errors.SessionEnded):
        session.append("more")
    [span] = seen.all
    assert span.attributes["holdfast.commit.refused"] == "ended"


def test_turns_of_two_tenants_are_told_apart(store, seen):
    other = store.for_tenant("acme")
    with store.session("k").turn("Hello."), other.session("k").turn("Hello."):
        pass
    spans = {each.attributes["holdfast.tenant"]: each for each in seen.named("invoke_agent")}
    assert set(spans) == {"default", "acme"}
    ids = {each.attributes["gen_ai.conversation.id"] for each in spans.values()}
    assert ids == {store.session("k").id, other.session("k").id}


def test_processors_that_raise_and_exporters_that_fail_break_no_turn(tmp_path, caplog):
    seen = SeenSpans(SimpleSpanProcessor(Failing()), Raising())
    with holdfast.open(tmp_path / "s.db", tracing=holdfast.Tracing(seen.provider)) as store:
        session = store.session("k")
        with session.turn("Hello.") as turn:
            call = turn.call("weather", {})
            turn.result(call, "rain")
            assert list(turn.deliver(["Hello ", "to you."]))
        [info] = session.turns()
        assert info.end == "completed"
        assert [each.role for each in session.transcript()] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


def test_a_span_that_is_lost_does_not_make_a_turn_look_lost(tmp_path):
    """One that fails at every other span: those that are told tell the truth."""
    flaky = Flaky()
    seen = SeenSpans(flaky)
    with holdfast.open(tmp_path / "s.db", tracing=holdfast.Tracing(seen.provider)) as store:
        for number in range(10):
            with store.session("k").turn(f"{number}") as turn:
                turn.say("Hello.")
    assert flaky.raised > 5
    spans = seen.named("invoke_agent")
    assert spans and all(each.attributes["holdfast.turn.end"] == "completed" for each in spans)
    assert not any(is_error(each) for each in spans)


def test_an_exporter_that_hangs_keeps_nobody_waiting(tmp_path):
    stuck = Stuck()
    batches = BatchSpanProcessor(stuck, schedule_delay_millis=1)
    seen = SeenSpans(batches)
    try:
        with holdfast.open(tmp_path / "s.db", tracing=holdfast.Tracing(seen.provider)) as store:
            for number in range(20):
                with store.session("k").turn(f"{number}") as turn:
                    turn.say("Hello.")
            assert stuck.asked.wait(60)
            with store.session("k").turn("last") as turn:
                turn.say("Hello.")
            assert not stuck.go_on.is_set()
            assert len(store.session("k").turns()) == 21
    finally:
        stuck.go_on.set()
        seen.provider.shutdown()


def test_turns_of_many_threads_have_a_span_each(store, seen):
    def converse(key):
        with store.session(key).turn("Hello.") as turn:
            turn.say(key)

    threads = [threading.Thread(target=converse, args=(f"k{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = seen.named("invoke_agent")
    assert len({each.context.trace_id for each in spans}) == len(spans) == 8
    for span in spans:
        own = [each for each in seen.named("holdfast.commit") if is_child(each, span)]
        assert {each.attributes["gen_ai.conversation.id"] for each in own} == {
            span.attributes["gen_ai.conversation.id"]
        }


def test_what_is_no_tracing_is_refused(tmp_path):
    with pytest.raises(holdfast.errors.BadArgument, match="Tracing"):
        holdfast.open(tmp_path / "s.db", tracing=True)
