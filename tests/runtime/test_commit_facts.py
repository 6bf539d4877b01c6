"""What a commit tells of turns and tools, and how little of it is put on a span: pure, without a store."""

import pytest

from holdfast.domain.entry import STARTING, CallStarted, Draft, TurnEnded, TurnStarted, noted
from holdfast.domain.message import CallNote, MessageNote, Usage
from holdfast.engine.protocol import Chunk, ChunkWrite, Laid, Start, Write
from holdfast.runtime.tracing import attributes
from holdfast.runtime.tracing.commit_facts import facts_of

S = "00000000-0000-4000-8000-000000000000"


def draft(kind, note=None, turn=None):
    return Draft(kind, turn, b"\0" * 16, 1, noted(note) if note is not None else b"", b"{}")


def test_what_puts_nothing_into_a_log_tells_nothing():
    chunk = Chunk(b"\0" * 16, 0, b"a")
    for write in (
        Write(S, fence=3, renew_s=30, fleeting=True),
        Write(S, fence=3, renew_s=0, ended_too=True),
        ChunkWrite(S, fence=3, chunk=chunk),
    ):
        assert facts_of((write,)) is None


def test_a_start_tells_what_the_turn_is_asked():
    message = draft("message", MessageNote(inbox=True))
    started = draft("turn", TurnStarted(), STARTING)
    facts = facts_of((Write(S, (message, started), idle=True, start=Start("me", 30)),))
    assert facts.starts and facts.turn is None
    assert facts.kinds == ("message", "turn")
    assert [said.note.role for said in facts.messages] == ["user"]


@pytest.mark.parametrize(
    "write, is_own",
    [
        ({"fence": 3, "finish": True}, True),
        ({"fence": 3, "seize": True}, False),  # somebody stops it
        ({"fence": 4, "finish": True}, False),  # somebody has seized it before
    ],
)
def test_an_end_is_its_owners_only_under_the_owners_own_fence(write, is_own):
    end = draft("end", TurnEnded("interrupted", reason="stopped: user"), 3)
    facts = facts_of((Write(S, (end,), **write),))
    [ended] = facts.ends
    assert (ended.session, ended.number, ended.is_own) == (S, 3, is_own)
    assert ended.ending.end == "interrupted"


def test_what_is_laid_down_from_another_store_does_not_happen_now():
    old = [draft("turn", TurnStarted(), 1), draft("message", turn=1), draft("end", TurnEnded(), 1)]
    facts = facts_of((Write(S, tuple(old), head=0, idle=True, lay=Laid(fence=1, active_at=1)),))
    assert facts.kinds == ("turn", "message", "end")
    assert not facts.messages and not facts.calls and not facts.ends


def test_a_call_runs_from_its_own_entry_or_message_on_and_not_while_it_is_asked_about():
    own = MessageNote(role="assistant", format="holdfast", calls=(CallNote("c1", "look"),))
    made = draft("message", own, 3)
    [call] = facts_of((Write(S, (made,), fence=3),)).calls
    assert (call.turn, call.call_id, call.name) == (3, "c1", "look")
    started = draft("call", CallStarted("c2", "0" * 32), 3)
    [call] = facts_of((Write(S, (started,), fence=3),)).calls
    assert (call.call_id, call.name) == ("c2", None)
    asked = Draft("ask", 3, b"\0" * 16, 1)
    assert facts_of((Write(S, (made, asked), fence=3),)).calls == ()
    # The model has made it, and nobody has started it yet.
    said = MessageNote(role="assistant", calls=(CallNote("c3", "look"),))
    assert facts_of((Write(S, (draft("message", said, 3),), fence=3),)).calls == ()


@pytest.mark.parametrize(
    "ending, told",
    [
        (TurnEnded(), {"holdfast.turn.end": "completed"}),
        (
            TurnEnded("abandoned", reason="its lease ran out"),
            {
                "holdfast.turn.end": "abandoned",
                "holdfast.turn.reason": "its lease ran out",
                "error.type": "abandoned",
            },
        ),
        (
            TurnEnded("failed", error="RateLimitError: key sk-1"),
            {"holdfast.turn.end": "failed", "error.type": "RateLimitError"},
        ),
        (
            TurnEnded("failed", error="my password"),
            {"holdfast.turn.end": "failed", "error.type": "_OTHER"},
        ),
        (
            TurnEnded("failed", error="hunter2: it says"),
            {"holdfast.turn.end": "failed", "error.type": "_OTHER"},
        ),
        (
            TurnEnded("interrupted", reason="stopped: she said no"),
            {"holdfast.turn.end": "interrupted"},
        ),
    ],
)
def test_an_ending_is_told_by_its_kind(ending, told):
    assert attributes.of_ending(ending, content=False) == told


def test_a_reason_is_told_where_content_is():
    ending = TurnEnded("interrupted", reason="she said no")
    assert attributes.of_ending(ending, content=True)["holdfast.turn.reason"] == "she said no"


def test_the_input_has_what_was_in_the_cache_whoever_counts():
    counted = Usage(input=5, output=7, cached=90)
    assert attributes.usage_in(counted, "anthropic")["input"] == 95
    assert attributes.usage_in(counted, "openai.chat")["input"] == 5
    assert attributes.of_usage({"input": 0, "output": 7}) == {"gen_ai.usage.output_tokens": 7}
