"""The programs in `examples/` run as they are; killed or interrupted, they keep what they
promise.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60.0


@contextmanager
def example(name: str, *arguments: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, started in this folder; killed when the block is left."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output_of(name: str, *arguments: object, cwd: Path) -> str:
    with example(name, *arguments, cwd=cwd) as process:
        out, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, out
        return out


def until(process: subprocess.Popen[str], words: str) -> str:
    """What the program prints up to and with these words."""
    read = ""
    assert process.stdout is not None
    while not read.endswith(words):
        more = process.stdout.read(1)
        assert more, f"it ended without saying {words!r}: {read}"
        read += more
    return read


# The gateway
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_gateway_answers_every_update_once_and_asks_before_it_refunds(tmp_path: Path):
    said = output_of("gateway.py", cwd=tmp_path)
    assert "accepted update 1 (again)" in said
    assert "refund {'order': 23, 'euros': 20} waits for approval" in said
    assert said.index("ann has approved") < said.index("20 euros for order 23 were refunded")
    assert [(message["chat"], message["text"]) for message in sent(tmp_path)] == [
        ("42", "Good news: order 17 arrives tomorrow."),
        ("7", "I have asked a colleague. You will hear from us."),
        ("7", "Good news: 20 euros for order 23 were refunded."),
    ]
    settled(tmp_path)
    before = sent(tmp_path)
    output_of("gateway.py", cwd=tmp_path)  # all is known
    assert sent(tmp_path) == before


def sent(folder: Path) -> list[dict[str, str]]:
    return [
        json.loads(line) for line in (folder / "gateway.db.sent.jsonl").read_text().splitlines()
    ]


def settled(folder: Path) -> None:
    """Nothing waits, nothing is owed, what users said is there once, and the refund was started
    once.
    """
    with holdfast.open(folder / "gateway.db") as store:
        assert not store.pending() and not store.outbox() and store.check() == []
        sessions = [store.session("chat:42", create=False), store.session("chat:7", create=False)]
        texts = [
            message.text
            for session in sessions
            for message in session.transcript()
            if message.role == "user"
        ]
        assert sorted(texts) == [
            "I want a refund for order 23.",
            "Thank you!",
            "Where is order 17?",
        ]
        assert [call.name for call in sessions[1].calls() if call.state in ("done", "unknown")] == [
            "refund"
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "accepted update 2",
        "chat:42: news:",
        "waits for approval",
        "ann has approved",
        "order 23",
        "sent to 7",
    ],
)
def test_a_gateway_that_was_killed_goes_on_when_it_is_started_again(moment: str, tmp_path: Path):
    with example("gateway.py", "--delay", 0.05, cwd=tmp_path) as process:
        until(process, moment)
        process.send_signal(signal.SIGKILL)
        assert process.wait(LIMIT_S) == -signal.SIGKILL
    output_of("gateway.py", cwd=tmp_path)
    settled(tmp_path)
    arrived = sent(tmp_path)
    assert len({message["key"] for message in arrived}) == len(arrived)
    texts = Counter((message["chat"], message["text"]) for message in arrived)
    assert texts["42", "Good news: order 17 arrives tomorrow."] == 1
    assert [text for chat, text in texts if chat == "7"][-1] in (
        "Good news: 20 euros for order 23 were refunded.",
        # killed between the call and its outcome
        "I can't tell whether that went through. A colleague will look.",
    )


# The coding agent
# ----------------------------------------------------------------------------------------------------


def test_the_coding_agent_compacts_in_the_middle_of_its_turn_and_keeps_all_of_it(tmp_path: Path):
    said = output_of("coding_agent.py", "--folder", ROOT / "examples", cwd=tmp_path)
    assert said.count("[read_file ") == 3 and "[compacted " in said
    assert said.endswith("gateway.py is the longest.\n")
    with holdfast.open(tmp_path / "coding.db") as store:
        session = store.session("code:examples", create=False)
        assert [turn.end for turn in session.turns()] == ["completed", "completed"]
        assert [call.state for call in session.calls()] == ["done"] * 3
        kinds = Counter(entry.kind for entry in session.entries())
        assert kinds["compaction"] == said.count("[compacted ")
        told = [message for message in session.transcript() if message.role == "tool"]
        assert [message.text.partition(":")[0] for message in told] == [
            "coding_agent.py",
            "gateway.py",
            "retrofit.py",
        ]
        size = sum(path.stat().st_size for path in (ROOT / "examples").glob("*.py"))
        # the summary tells, not the files
        assert len(str(session.context("openai.chat"))) < size / 2


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["has ", "[read_file gateway.py]\n"])
def test_ctrl_c_keeps_what_the_coding_agent_has_shown_and_the_next_prompt_goes_on(
    moment: str, tmp_path: Path
):
    with example(
        "coding_agent.py", "--folder", ROOT / "examples", "--delay", 0.1, cwd=tmp_path
    ) as process:
        shown = until(process, moment)
        process.send_signal(signal.SIGINT)
        shown += until(process, "[interrupted: what you have seen is kept]")
        rest, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
    assert rest.endswith("gateway.py is the longest.\n")
    with holdfast.open(tmp_path / "coding.db") as store:
        session = store.session("code:examples", create=False)
        assert [turn.end for turn in session.turns()] == ["interrupted", "completed"]
        first = [
            message for message in session.transcript() if message.turn == session.turns()[0].id
        ]
        spoken = "".join(message.text for message in first if message.role == "assistant")
        seen = "".join(line for line in shown.splitlines()[1:-1] if not line.startswith("["))
        assert seen == spoken
        assert "open" not in {call.state for call in session.calls()}


# The retrofit
# --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_retrofitted_agent_loses_nothing_though_it_cuts_its_list(tmp_path: Path):
    first = output_of("retrofit.py", cwd=tmp_path)
    second = output_of("retrofit.py", "Hello.", "Bye.", cwd=tmp_path)
    assert (first + second).count("[2 new]") == 5
    assert second.endswith("The agent's list has 6 messages, the transcript 10.\n")
    with holdfast.open(tmp_path / "retrofit.db") as store:
        session = store.session("parrot", create=False)
        texts = [message.text for message in session.transcript() if message.role == "user"]
        assert texts == ["Hello.", "How are you?", "Hello.", "Hello.", "Bye."]
        assert len(session.context("openai.chat")) == 6
        assert session.instructions() == "You are a parrot with a memory."
