"""`holdfast sessions tail`: a session as it happens, from another process."""

import json
import signal

import pytest

import holdfast
from commanding import LIMIT_S, command, started


def read_until(stream, end: bytes) -> bytes:
    """What a command says, up to and with these bytes."""
    said = b""
    while not said.endswith(end):
        piece = stream.read(1)
        assert piece, f"it ended after {said!r}"
        said += piece
    return said


@pytest.mark.slow
def test_words_are_told_as_they_are_spoken(path):
    """Each piece is seen before the next one is said: nothing waits for a line to be full."""
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        with started("sessions", "tail", "key:k", "-n", "1", "--store", path) as tail:
            read_until(tail.stdout, b"Answer 2.\n")
            with session.turn("Go on.") as turn:
                for text in turn.deliver(["One, ", "two, ", "three."]):
                    read_until(tail.stdout, text.encode())
            read_until(tail.stdout, b"completed")
            session.end("over")
            rest = tail.stdout.read().decode()
            assert tail.wait(LIMIT_S) == 0
    assert "the session has ended: over" in rest


def test_the_end_of_a_session_ends_the_tail(world):
    done = command("sessions", "tail", world.fork, "-n", "3", "--store", world.path)
    assert (done.code, done.err) == (0, "")
    said = [line.split()[0] for line in done.out.splitlines() if line[0] not in "─ "]
    assert said == ["assistant", "user", "assistant"]
    assert done.out.splitlines()[-1].startswith("── the session has ended: done with it")


def test_json_lines_resume_where_their_cursor_says_and_tell_each_word_once(world):
    """I-15, through the command line: cut anywhere, nothing is told twice and nothing is
    missing.
    """
    whole = command(
        "sessions", "tail", world.fork, "-n", "1000", "--store", world.path, "--json"
    ).lines
    assert set(whole[0]) == {"cursor", "kind", "entry", "message_id", "text"}
    for at in range(0, len(whole), 5):
        rest = command(
            "sessions",
            "tail",
            world.fork,
            "--after",
            whole[at]["cursor"],
            "--store",
            world.path,
            "--json",
        )
        assert rest.lines == whole[at + 1 :]


@pytest.mark.slow
def test_live_chunks_and_entries_join_to_each_message_once(path):
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        with started("sessions", "tail", "key:k", "-n", "1", "--store", path, "--json") as tail:
            while json.loads(tail.stdout.readline())["entry"]["kind"] != "end":
                pass  # it has caught up
            events = []
            with session.turn("Go on.") as turn:
                for text in turn.deliver(["One, ", "two."]):
                    while (
                        "".join(e["text"] for e in events if e["kind"] == "chunk")[-len(text) :]
                        != text
                    ):
                        events.append(json.loads(tail.stdout.readline()))
            session.end("over")
            events += [json.loads(line) for line in tail.stdout.read().splitlines()]
            assert tail.wait(LIMIT_S) == 0
    texts = {}
    for event in events:
        if event["message_id"] is not None:
            texts[event["message_id"]] = texts.get(event["message_id"], "") + event["text"]
    assert list(texts.values()) == ["Go on.", "One, two."]
    assert [event["entry"]["kind"] for event in events if event["entry"]][-2:] == ["end", "closed"]


@pytest.mark.slow
def test_ctrl_c_ends_a_tail_quietly_with_130_and_stops_nothing(path):
    """I-16."""
    with holdfast.open(path, durability="process") as store:
        with store.session("k").turn("Go on.") as turn:
            with started("sessions", "tail", "key:k", "--store", path) as tail:
                read_until(tail.stdout, b"turn 4")
                tail.send_signal(signal.SIGINT)
                assert tail.wait(LIMIT_S) == 130
                assert tail.stderr.read() == b""
            turn.say("Still here.")
        assert [message.state for message in store.session("k").transcript()][-1] == "complete"


@pytest.mark.slow
def test_a_tail_that_nobody_reads_any_more_ends_quietly(path):
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        with started("sessions", "tail", "key:k", "-n", "1", "--store", path) as tail:
            read_until(tail.stdout, b"Answer 2.\n")
            tail.stdout.close()
            while tail.poll() is None:
                with session.turn("Are you there?") as turn:
                    turn.say("Yes.")
            assert tail.returncode == 0
            assert tail.stderr.read() == b""


def test_calls_outcomes_and_cuts_are_told(world):
    with started("sessions", "tail", world.table, "-n", "100", "--store", world.path) as tail:
        told = read_until(tail.stdout, b"Are you there?").decode()
        tail.send_signal(signal.SIGINT)
        tail.wait(LIMIT_S)
    for words in (
        "▸ find_table(people=2)",
        "→ Casa Lola: table 12.",
        "have conf▌ cut off",
        "── failed: RuntimeError: the provider went away",
        "── call c4 waits for approval",
        "── call c5 was denied by ann",
        "── retracted: empty answer",
    ):
        assert words in told
