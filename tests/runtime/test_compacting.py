"""Compaction: one entry, nothing lost, the same view for everybody (I-11, I-13, FAULTS
D1-D10, B5).
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
import procs
from holdfast import Session, Store
from holdfast.domain.entry import Entry
from holdfast.errors import BadArgument, Conflict, InvalidMessage, SessionEnded
from looking import other_handle
from talking import (
    assert_same_everywhere,
    assert_valid,
    bodies,
    contexts,
    covered_by,
    named,
    talk,
    texts,
    work,
)
from thorough import few_cases

LIMIT_S = 60


# One entry
# -----------------------------------------------------------------------------------------------------------


def test_a_compaction_is_one_entry_and_the_originals_stay_byte_for_byte(session: Session) -> None:
    """I-11, I-1, D5."""
    talk(session, *range(6))
    before, log = bodies(session), list(session.entries())
    done = session.compact("they greeted", keep_turns=2)
    assert done is not None
    after = list(session.entries())
    assert after[:-1] == log
    assert (after[-1].kind, after[-1].seq) == ("compaction", done.seq)
    assert bodies(session) == before
    assert [message.text for message in session.transcript()] == [
        text for n in range(6) for text in (f"ask {n}", f"answer {n}")
    ]
    assert done.covered == tuple(message.id for message in list(session.transcript())[:8])


def test_the_summary_stands_in_front_of_what_is_kept(session: Session) -> None:
    talk(session, *range(6))
    session.compact("  they greeted\n", keep_turns=2)
    summary, *kept = texts(session)
    assert summary.endswith("they greeted\n\nask 4"), "neighbours of one role are one message"
    assert "answer 3" not in str(session.context())
    assert kept[-3:] == ["answer 4", "ask 5", "answer 5"]


def test_the_summariser_is_told_exactly_what_will_be_covered(session: Session) -> None:
    talk(session, *range(5))
    told: list[Any] = []

    def summarise(messages: list[Any]) -> str:
        told.extend(messages)
        return "a summary"

    done = session.compact(summarise, keep_turns=3)
    assert [message.text for message in told] == ["ask 0", "answer 0", "ask 1", "answer 1"]
    assert done is not None
    assert tuple(message.id for message in told) == done.covered
    assert told[0].turn is not None


def test_every_message_is_shown_or_covered_by_exactly_one_summary_after_ten_compactions(
    path: Path, session: Session
) -> None:
    """I-11, D3: a later compaction covers the earlier summary, so that what that one covers is
    covered once.
    """
    summaries = []
    for n in range(10):
        talk(session, f"{n}a")
        work(session, f"{n}b")
        session.append(f"aside {n}")
        talk(session, f"{n}c")
        done = session.compact(f"summary {n}", keep_turns=n % 4)
        assert done is not None
        summaries.append(done.seq)
        coverage = covered_by(session)
        shown = {seen.seq for seen in session._log.log().visible}
        for seq, compactions in coverage.items():
            assert (seq in shown) + len(compactions) == 1, f"message {seq} in round {n}"
        assert shown <= coverage.keys()
        assert len(shown & set(summaries)) == 1
        assert_valid(session)
        assert_same_everywhere(path, session)
    assert len(bodies(session)) == 10 * (2 + 4 + 1 + 2)
    assert [
        message.text for message in session.transcript() if message.text.startswith("aside")
    ] == [f"aside {n}" for n in range(10)]


def test_the_session_keeps_its_id_however_often_it_is_compacted(
    store: Store, session: Session
) -> None:
    """D8."""
    for n in range(5):
        talk(session, n, f"{n}b")
        session.compact(f"summary {n}", keep_turns=1)
    again = store.session("k")
    assert (again.id, again.epoch) == (session.id, 1)
    assert again.info().messages == 20


# Where it is cut
# -----------------------------------------------------------------------------------------------------

SPOKEN: dict[str, Callable[[int], dict[str, Any]]] = {
    "u": lambda n: {"role": "user", "content": f"ask {n}"},
    "a": lambda n: {"role": "assistant", "content": f"answer {n}"},
    "c": lambda n: {"role": "assistant", "content": None, "tool_calls": [
        {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
    "r": lambda n: {"role": "tool", "tool_call_id": f"c{n - 1}", "content": f"found {n}"},
}  # fmt: skip


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("place", range(8))
def test_no_cut_splits_a_tool_pair_wherever_it_stands(store: Store, path: Path, place: int) -> None:
    """D1: a pair at every index, every number of turns kept; and what comes after is valid too."""
    plan = list("uauauaua")
    plan[place:place] = ["c", "r"]
    for keep in range(7):
        session = store.session(f"{place}/{keep}")
        for n, kind in enumerate(plan):
            session.append(SPOKEN[kind](n))
        session.compact("a summary", keep_turns=keep)
        shown = session.context()
        calls = [call["id"] for message in shown for call in message.get("tool_calls") or ()]
        results = [message for message in shown if message["role"] == "tool"]
        assert [result["tool_call_id"] for result in results] == calls
        assert all("found" in result["content"] for result in results)
        assert_valid(session)
        assert_same_everywhere(path, session)
        work(session, "later")
        session.compact("another summary", keep_turns=keep)
        assert_valid(session)


def test_a_call_without_an_outcome_is_covered_and_its_late_result_breaks_nothing(
    path: Path, session: Session
) -> None:
    """D2: the call is open, a compaction, the result, another compaction."""
    turn = session.turn("ask")
    turn.call("look", {}, call_id="c1")
    session.stop()
    session.compact("they looked", keep_turns=0)
    assert_valid(session)
    with pytest.raises(holdfast.errors.TurnInterrupted):
        turn.result("c1", "found")
    assert_valid(session)
    talk(session, "more")
    assert_valid(session)
    assert_same_everywhere(path, session)
    session.compact("they looked again", keep_turns=1)
    assert_valid(session)
    assert_same_everywhere(path, session)


def test_a_late_answer_of_a_covered_turn_stands_at_the_same_place_for_everybody(
    path: Path, session: Session
) -> None:
    """I-9, I-7: it was said after the cut, in a turn from before it."""
    early = session.turn("the first question")
    session.stop()
    talk(session, "second")
    session.compact("two questions", keep_turns=1)
    running = session.turn("third")
    with pytest.raises(holdfast.errors.TurnInterrupted):
        early.add("a late answer")
    running.say("answer third")
    running.__exit__(None, None, None)
    assert "a late answer" in str(session.context())
    assert_same_everywhere(path, session)
    with other_handle(path) as other:
        fresh = other.get(session.id)
        for n, covered in enumerate((3, 0, 4)):
            talk(fresh, n)
            done = fresh.compact(f"summary {n}", keep_turns=3 + n % 2)
            assert len(done.covered if done else ()) == covered, (
                "the late answer is kept, kept, and covered"
            )
            assert_same_everywhere(path, fresh)
    assert_valid(session)
    assert_same_everywhere(path, session)


# What changes nothing
# ------------------------------------------------------------------------------------------------


class Broken(Exception):
    """The summariser's own."""


def raises(messages: list[Any]) -> str:
    raise Broken


@pytest.mark.parametrize(
    ("summary", "error"),
    [
        (raises, Broken),
        *((lambda _, said=said: said, InvalidMessage) for said in (None, "", " \n\t", 7, b"text")),
    ],
)
def test_a_summariser_that_raises_or_says_nothing_changes_nothing(
    session: Session, summary: Callable[[list[Any]], Any], error: type[Exception]
) -> None:
    """D4, D10."""
    talk(session, *range(4))
    log, shown = list(session.entries()), contexts(session)
    with pytest.raises(error):
        session.compact(summary, keep_turns=1)
    assert (list(session.entries()), contexts(session)) == (log, shown)
    talk(session, "after")
    assert session.compact("a real one", keep_turns=1) is not None


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_blank_summary_is_refused(session: Session, text: str) -> None:
    """D10."""
    talk(session, *range(4))
    head = session.info().head
    with pytest.raises(InvalidMessage):
        session.compact(text, keep_turns=1)
    assert session.info().head == head


def test_a_number_of_turns_below_none_is_refused(session: Session) -> None:
    talk(session, 1)
    with pytest.raises(BadArgument):
        session.compact("a summary", keep_turns=-1)


def test_with_nothing_to_compact_nothing_is_done_and_nobody_is_asked(session: Session) -> None:
    assert session.compact(raises) is None
    talk(session, *range(4))
    assert session.compact(raises, keep_turns=4) is None
    assert session.compact(raises, keep_turns=9) is None
    assert session.compact("a summary", keep_turns=0) is not None
    head = session.info().head
    assert session.compact(raises, keep_turns=0) is None, "a summary is not summarised alone"
    assert session.info().head == head


def test_an_ended_session_is_not_compacted(session: Session) -> None:
    talk(session, *range(4))
    session.end("done")
    with pytest.raises(SessionEnded):
        session.compact(raises, keep_turns=1)


def test_a_session_that_ends_while_the_summariser_runs_is_not_compacted(session: Session) -> None:
    talk(session, *range(4))

    def summarise(messages: list[Any]) -> str:
        session.end("done")
        return "too late"

    with pytest.raises(SessionEnded):
        session.compact(summarise, keep_turns=1)
    assert [entry.kind for entry in session.entries()][-1] == "closed"


# Meanwhile
# -----------------------------------------------------------------------------------------------------------


def test_what_is_said_while_the_summariser_runs_stays(path: Path, session: Session) -> None:
    """D7: appended here, and a whole turn by another handle."""
    talk(session, *range(4))

    def summarise(messages: list[Any]) -> str:
        session.append("meanwhile")
        with other_handle(path, durability="process") as other:
            talk(other.get(session.id), "elsewhere")
        return "a summary"

    done = session.compact(summarise, keep_turns=0)
    assert done is not None
    assert len(done.covered) == 8
    shown = "\n".join(texts(session))
    for text in ("a summary", "meanwhile", "ask elsewhere", "answer elsewhere"):
        assert shown.count(text) == 1
    assert "ask 3" not in shown
    assert_same_everywhere(path, session)


def test_of_two_compactions_of_the_same_messages_one_is_made(session: Session, path: Path) -> None:
    """D7: never two summaries for one message."""
    talk(session, *range(4))

    def summarise(messages: list[Any]) -> str:
        with other_handle(path, durability="process") as other:
            other.get(session.id).compact("the other was first", keep_turns=1)
        return "too late"

    with pytest.raises(Conflict):
        session.compact(summarise, keep_turns=1)
    assert [entry.kind for entry in session.entries()].count("compaction") == 1
    assert "the other was first" in texts(session)[0]


def test_a_compaction_waits_for_the_running_turn_and_both_are_kept(
    session: Session, path: Path
) -> None:
    """D9."""
    talk(session, *range(4))
    turn = session.turn("a long one")
    looked, done = threading.Event(), []
    session_log = session._log
    state = session_log.state

    def looking() -> Any:
        found = state()
        looked.set()
        return found

    session_log.state = looking  # type: ignore[method-assign]
    background = threading.Thread(
        target=lambda: done.append(session.compact("a summary", keep_turns=1))
    )
    background.start()
    assert looked.wait(LIMIT_S)
    turn.call("look", {}, call_id="c1")
    assert [entry.kind for entry in session.entries()].count("compaction") == 0
    turn.result("c1", "found")
    turn.say("a long answer")
    turn.__exit__(None, None, None)
    background.join(LIMIT_S)
    assert done[0] is not None
    assert [entry.kind for entry in session.entries()][-2:] == ["end", "compaction"]
    assert texts(session)[-1] == "a long answer"
    assert "answer 3" not in str(session.context())
    assert_valid(session)
    assert_same_everywhere(path, session)


def test_a_turn_that_starts_while_the_summariser_runs_is_waited_for(session: Session) -> None:
    """D2, D9: the entry never falls into it."""
    talk(session, *range(4))
    turns = []

    def summarise(messages: list[Any]) -> str:
        turns.append(session.turn("in between"))
        turns[0].call("look", {}, call_id="c1")
        finishing.start()
        return "a summary"

    def finish() -> None:
        with turns[0] as turn:
            turn.result("c1", "found")

    finishing = threading.Thread(target=finish)
    assert session.compact(summarise, keep_turns=0) is not None
    finishing.join(LIMIT_S)
    kinds = [entry.kind for entry in session.entries()]
    assert kinds[-1] == "compaction"
    assert_valid(session)
    assert "found" in str(session.context())


def test_a_message_in_the_inbox_is_neither_covered_nor_lost(
    session: Session, path: Path, store: Store
) -> None:
    """I-4: it was accepted before the cut, and is taken after it."""
    talk(session, *range(3))
    store.accept("k", "waiting for an answer")
    done = session.compact("a summary", keep_turns=0)
    assert done is not None
    assert len(done.covered) == 6
    assert [message.text for message in session.pending()] == ["waiting for an answer"]
    with other_handle(path, durability="process") as other:
        fresh = other.get(session.id)
        with fresh.turn() as turn:
            assert "waiting for an answer" in turn.context()[-1]["content"]
            turn.say("here it is")
        assert contexts(fresh) == contexts(session)


# In another process
# --------------------------------------------------------------------------------------------------


def test_a_new_handle_reads_what_is_shown_and_not_the_history(path: Path, session: Session) -> None:
    """Section 6 of the design: the last compaction is the base of a load."""
    session.instructions("be kind")
    talk(session, *range(150))
    session.compact("a long story", keep_turns=3)
    talk(session, "after")
    with other_handle(path) as other:
        engine = other._work.engine
        entries, read = engine.entries, []

        def counted(*args: Any, **options: Any) -> list[Entry]:
            page = entries(*args, **options)
            read.extend(page)
            return page

        engine.entries = counted  # type: ignore[method-assign]
        fresh = other.session("k")
        assert contexts(fresh) == contexts(session)
        assert session.info().head > 600
        assert len(read) < 30
        assert fresh.instructions() == "be kind"
        assert len(list(fresh.transcript())) == 302


def test_a_view_from_before_the_compaction_does_not_make_a_load_read_the_history(
    path: Path, session: Session
) -> None:
    """An agent that records its own trimmed list leaves views in the turns that are kept."""
    talk(session, *range(100))
    listed = list(session.context())
    for n in range(6):
        listed = [
            listed[0],
            *listed[3:],
            *({"role": role, "content": f"{role} {n}"} for role in ("user", "assistant")),
        ]
        session.record(listed)
    assert session.compact("a long story", keep_turns=3) is not None
    with other_handle(path) as other:
        fresh = other.get(session.id)
        assert contexts(fresh) == contexts(session)
        assert fresh._log.log().since > 400
    assert_valid(session)


def test_recording_the_context_and_a_new_message_adds_that_one(
    path: Path, session: Session
) -> None:
    """I-12, with the warm handle and with a new one."""
    talk(session, *range(6))
    session.compact("a summary", keep_turns=2)
    with other_handle(path, durability="process") as other:
        for n, handle in enumerate((session, other.get(session.id), session)):
            listed = [*handle.context(), {"role": "user", "content": f"new {n}"}]
            assert len(handle.record(listed).new) == 1
            listed = [*listed, {"role": "assistant", "content": f"reply {n}"}]
            assert len(handle.record(listed).new) == 1
            assert list(handle.context()) == listed
            assert handle.record(listed).new == ()
    assert [message.text for message in session.transcript()][12:] == [
        text for n in range(3) for text in (f"new {n}", f"reply {n}")
    ]
    assert_same_everywhere(path, session)


def test_openviking_1487_a_lost_clear_can_not_be_expressed(path: Path, session: Session) -> None:
    """D6: the archive is the clear. Once the one entry is there, no process shows what it covers as
    live, and there is no second write that could be lost: the process that compacted is killed
    right after.
    """
    talk(session, *range(4))
    warm = contexts(session)
    head = session.info().head
    script = """
        import holdfast, os, signal
        store = holdfast.open(sys.argv[1], durability="process")
        store.session("k").compact("an archive", keep_turns=1)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with procs.child(script, path) as other:
        other.lines()
        other.kill()
        assert other.code == -9
    assert [entry.kind for entry in session.entries(after=head)] == ["compaction"]
    assert contexts(session) != warm
    for text in ("ask 0", "answer 2"):
        assert text not in str(contexts(session))
    assert_same_everywhere(path, session)
    talk(session, "next")
    assert "ask 0" not in str(contexts(session))
    assert_same_everywhere(path, session)


def test_killed_inside_the_summariser_nothing_has_changed(path: Path, session: Session) -> None:
    """D4, D5."""
    talk(session, *range(4))
    log, shown = list(session.entries()), contexts(session)
    script = """
        import holdfast
        def summarise(messages):
            say("summarising", len(messages))
            hear()
        store = holdfast.open(sys.argv[1], durability="process")
        store.session("k").compact(summarise, keep_turns=1)
    """
    with procs.child(script, path) as other:
        assert other.wait_for("summarising") == "6"
        other.kill()
    assert (list(session.entries()), contexts(session)) == (log, shown)
    assert_same_everywhere(path, session)
    assert session.compact("a summary", keep_turns=1) is not None


def test_goose_7785_a_label_is_not_undone_by_a_writer_with_an_older_view(
    path: Path, session: Session
) -> None:
    """I-13, B5: the other goes on recording its whole list, appending and compacting, and knows
    nothing of the label.
    """
    with other_handle(path, durability="process") as other:
        older = other.session("k")
        listed = [
            {"role": "user", "content": "keep this from the model"},
            {"role": "assistant", "content": "noted"},
            {"role": "user", "content": "and now?"},
        ]
        older.record(listed)
        hidden = next(iter(session.transcript()))
        labels = {"visible_to_model": False, "colour": "red"}
        session.label(hidden.id, **labels)
        listed.append({"role": "assistant", "content": "go on"})
        older.record(listed)
        older.append("an aside")
        listed[1] = {"role": "assistant", "content": "noted, in other words"}
        older.record(listed)
        for handle in (older, session):
            assert "keep this" not in str(contexts(handle))
            assert next(iter(handle.transcript())).labels == labels
        assert older.compact("a summary", keep_turns=1) is not None
        for handle in (older, session):
            assert "keep this" not in str(contexts(handle))
            assert next(iter(handle.transcript())).labels == labels
    assert_same_everywhere(path, session)
    assert [message.text for message in session.transcript()].count("keep this from the model") == 1


def test_a_message_hidden_before_a_compaction_can_be_shown_after_it(
    path: Path, session: Session
) -> None:
    """I-11: it is of the turns that were kept, so it is not covered, and must not be lost."""
    talk(session, *range(4))
    question = next(message for message in session.transcript() if message.text == "ask 3")
    session.label(question.id, visible_to_model=False)
    session.compact("a summary", keep_turns=2)
    assert "ask 3" not in str(contexts(session))
    session.label(question.id, visible_to_model=True)
    assert "ask 3" in str(contexts(session))
    assert_same_everywhere(path, session)


def test_a_message_hidden_among_what_is_covered_is_shown_after_the_summary(
    path: Path, session: Session
) -> None:
    """I-11: the summariser was not told of it, so no summary stands for it; in every handle, over
    compactions.
    """
    talk(session, *range(4))
    question = named(session, "ask 0")
    session.label(question.id, visible_to_model=False)
    first = session.compact("a summary", keep_turns=2)
    assert first is not None
    assert question.id not in first.covered
    with other_handle(path, durability="process") as other:
        began = other.get(session.id)
        assert "ask 0" not in str(contexts(began))
        talk(began, *range(4, 8))
        second = began.compact("another", keep_turns=2)
        assert second is not None
        assert question.id not in second.covered
        assert began._log.log().since > 1, "the hidden message doesn't make a load read the history"
        for handle in (session, began):
            assert "ask 0" not in str(contexts(handle))
        session.label(question.id, visible_to_model=True)
        for handle in (session, began):
            assert texts(handle)[0].endswith("another\n\nask 0\n\nask 6")
        assert_same_everywhere(path, session)
        session.label(question.id, visible_to_model=False)
        assert contexts(began) == contexts(session)
        assert "ask 0" not in str(contexts(began))
    assert_same_everywhere(path, session)
    session.label(question.id, visible_to_model=True)
    done = session.compact("a last one", keep_turns=0)
    assert done is not None
    assert question.id in done.covered
    assert "ask 0" not in str(contexts(session))
    assert_same_everywhere(path, session)


def test_a_label_on_a_covered_message_leaves_it_covered_and_the_load_short(
    path: Path, session: Session
) -> None:
    """I-11: it was shown when the summary was made, and the summary stands for it."""
    talk(session, *range(30))
    session.compact("a summary", keep_turns=2)
    shown = contexts(session)
    for visible in (False, True):
        session.label(named(session, "ask 3").id, visible_to_model=visible)
        assert contexts(session) == shown
        with other_handle(path) as other:
            fresh = other.get(session.id)
            assert contexts(fresh) == shown
            assert fresh._log.log().since > 1


# Async
# ---------------------------------------------------------------------------------------------------------------


def play(scene: Any) -> Any:
    return asyncio.run(asyncio.wait_for(scene, LIMIT_S))


def test_an_async_summariser_is_awaited(path: Path, session: Session) -> None:
    talk(session, *range(4))

    async def summarise(messages: list[Any]) -> str:
        await asyncio.sleep(0)
        return f"{len(messages)} messages"

    async def scene() -> None:
        async with await holdfast.open_async(path, durability="process") as store:
            there = await store.session("k")
            assert (await there.compact(summarise, keep_turns=1)).covered  # type: ignore[union-attr]
            assert await there.compact("nothing left", keep_turns=1) is None
            assert list(await there.context()) == list(session.context())

    play(scene())
    assert "6 messages" in texts(session)[0]


def test_a_cancelled_summariser_changes_nothing_and_the_handle_goes_on(
    path: Path, session: Session
) -> None:
    """D4."""
    talk(session, *range(4))
    log = list(session.entries())

    async def scene() -> None:
        async with await holdfast.open_async(path, durability="process") as store:
            there = await store.session("k")
            begun = asyncio.Event()

            async def summarise(messages: list[Any]) -> str:
                begun.set()
                await asyncio.Event().wait()
                return "never"

            task = asyncio.ensure_future(there.compact(summarise, keep_turns=1))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [entry async for entry in there.entries()] == log
            assert list(await there.context()) == list(session.context())
            assert await there.compact("a summary", keep_turns=1) is not None

    play(scene())
    assert [entry.kind for entry in session.entries()].count("compaction") == 1
