"""The command line and its demo, run as a user runs them: real processes, a real SIGKILL (I-5,
I-6).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast.cli.demo import model, scenario
from thorough import few_cases

SOURCE = Path(__file__).resolve().parents[2] / "src"
ANSI = re.compile(r"\x1b\[")


def holdfast_command(*arguments: str, program: str = "-m holdfast.cli.main", **environment: str):
    path = os.pathsep.join(part for part in (str(SOURCE), os.environ.get("PYTHONPATH")) if part)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    return subprocess.run(
        [sys.executable, *program.split(" ", 1), *arguments],
        env={**kept, "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    """What `holdfast demo --json` says, and the store it kept."""
    store = tmp_path_factory.mktemp("demo") / "kept.db"
    done = holdfast_command("demo", "--json", "--store", str(store))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_promise_is_kept_and_the_exit_code_says_so(told):
    assert told["schema"] == "holdfast.demo/1"
    assert told["checks"] == dict.fromkeys(scenario.CHECKS, True)
    assert told["held"] is True


def test_the_process_was_killed_in_the_middle_and_what_was_seen_is_a_prefix_of_what_is_stored(told):
    """I-5, by the words themselves and not by the demo's own judgement."""
    assert told["exit_code"] == -9
    assert model.MIDDLE in told["seen"]
    assert model.ANSWER.startswith(told["seen"])
    assert told["seen"] != model.ANSWER
    assert told["stored"]["text"].startswith(told["seen"])
    assert told["stored"]["messages"][-1]["state"] == "partial"


def test_the_dead_turn_is_abandoned_and_the_second_is_completed(told):
    """I-6."""
    assert [turn["ends"] for turn in told["turns"]] == [["abandoned"], ["completed"]]
    assert " ".join(told["stored"]["text"].split()[-4:]) in told["second_turn"]["answer"]


def test_the_call_that_was_open_is_shown_as_interrupted_and_stays_unknown(told):
    """I-10."""
    assert [call["state"] for call in told["stored"]["calls"]] == ["done", "unknown"]
    results = [message["content"] for message in told["context"] if message["role"] == "tool"]
    assert len(results) == 2
    assert "interrupted" in results[1]


def test_a_kept_store_holds_what_the_demo_told(told):
    with holdfast.open(told["store"]) as store:
        session = store.get(told["session"])
        stored = [message.text for message in session.transcript()]
        assert told["stored"]["text"] in stored
        assert stored[-1] == told["second_turn"]["answer"]


@pytest.mark.slow
def test_a_second_demo_in_the_same_store_starts_a_session_of_its_own(told):
    again = json.loads(holdfast_command("demo", "--json", "--store", told["store"]).stdout)
    assert again["held"] is True
    assert again["session"] != told["session"]


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(
    "environment", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}], ids=["not a terminal", "NO_COLOR"]
)
def test_the_show_is_plain_where_colour_is_not_wanted(environment):
    done = holdfast_command("demo", COLUMNS="90", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not ANSI.search(done.stdout)
    assert "The user had seen" in done.stdout
    assert "All promises kept." in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 90


@pytest.mark.slow
def test_the_show_is_in_colour_where_it_is_wanted():
    done = holdfast_command("demo", FORCE_COLOR="1", TERM="xterm-256color")
    assert ANSI.search(done.stdout)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: setattr(facts, "seen", facts.seen + " and more"),
        lambda facts: setattr(facts, "exit_code", 0),
        lambda facts: facts.stored.messages.append(facts.stored.messages[0]),
        lambda facts: facts.turns[0].ends.append("completed"),
        lambda facts: facts.context.pop(4),
        lambda facts: facts.second_turn.sent.pop(5),
        lambda facts: facts.second_turn.refused.append("a stray result"),
        lambda facts: facts.turns.pop(),
    ],
    ids=[
        "lost words",
        "not killed",
        "doubled",
        "two ends",
        "open call",
        "forgotten",
        "invalid",
        "no second turn",
    ],
)
def test_a_broken_promise_would_be_seen(told, change):
    facts = msgspec.convert(told, scenario.Facts)
    assert all(scenario.check(facts).values())
    change(facts)
    assert not all(scenario.check(facts).values())


def test_its_help_says_what_will_be_seen():
    assert "three columns" in holdfast_command("demo", "--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, code", [(("--nope",), 2), (("--store", "no/such/folder/x.db"), 5)]
)
def test_a_demo_that_can_not_be_run_says_why_on_stderr(arguments, code):
    done = holdfast_command("demo", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_extra_answers_with_its_install_line():
    block = (
        "import sys; sys.modules['rich'] = None; from holdfast.cli.main import main; "
        "sys.exit(main(['demo']))"
    )
    done = holdfast_command(program=f"-c {block}")
    assert done.returncode == 2
    assert "pip install 'holdfast[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
