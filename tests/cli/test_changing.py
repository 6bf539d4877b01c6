"""What the command line changes: told first as a plan, done only with consent, and told in JSON
either way (I-21).
"""

import re
import shlex

import pytest

import holdfast
from commanding import command, on_terminal
from looking import raw_entries
from talking import texts, told
from thorough import few_cases
from worlds import HandWorld


def current(path) -> holdfast.Session:
    """The session of `k`, read through a handle that is closed again; its reads open their own."""
    return holdfast.open(path, durability="process").session("k", create=False)


PLANS = {
    "rewind": ("sessions", "rewind", "key:k", "4"),
    "compact": ("sessions", "compact", "key:k", "--summary", "It's all said.", "--keep-turns", "1"),
    "reset": ("reset", "k"),
    "rm": ("sessions", "rm", "key:k"),
    "rm idle": ("sessions", "rm", "--idle-days", "30"),
}
plans = pytest.mark.parametrize("arguments", PLANS.values(), ids=PLANS)


@plans
def test_without_consent_and_without_a_terminal_the_plan_is_told_and_nothing_is_done(
    path, arguments
):
    before = _log(path)
    done = command(*arguments, "--store", path)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith("Nothing was done. To do it: holdfast ")
    assert len(done.err.splitlines()) > 1
    assert _log(path) == before


@plans
def test_the_line_that_a_plan_ends_with_does_it(path, arguments):
    before = _log(path)
    line = command(*arguments, "--store", path).err.splitlines()[-1].partition("To do it: ")[2]
    done = command(*shlex.split(line)[1:])
    assert done.code == 0, done.err
    assert _log(path) != before


@plans
def test_json_says_whether_it_was_done_and_what_was_planned(path, arguments):
    planned = command(*arguments, "--store", path, "--json")
    assert (planned.code, planned.json["done"]) == (1, False)
    done = command(*arguments, "--store", path, "--json", "--yes")
    assert (done.code, done.json["done"]) == (0, True)
    assert set(planned.json) <= set(done.json)


ANSWERS = {"y\n": 0, "yes\n": 0, "n\n": 1, "\n": 1, "\x04": 1}
ASKED = [(plan, answer) for plan in PLANS for answer in ("y\n", "n\n")] + [
    ("reset", answer) for answer in ANSWERS
][1:]


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("plan, answer", ASKED)
def test_on_a_terminal_one_is_asked(path, plan, answer):
    arguments, code = PLANS[plan], ANSWERS[answer]
    before = _log(path)
    done = on_terminal(*arguments, "--store", path, typed=answer)
    assert done.code == code, done.out
    assert "Do it? [y/N]" in done.out
    assert (_log(path) == before) == (code == 1)


def _log(path):
    with holdfast.open(path, durability="process") as store:
        return [(session.id, raw_entries(store, session.id)) for session in store.sessions()]


def test_a_rewind_takes_the_view_back_and_forward_again(path):
    back = command("sessions", "rewind", "key:k", "4", "--store", path, "--yes", "--json").json
    assert texts(current(path)) == ["Question 0.", "Answer 0."]
    assert len(back["hidden"]) == 4 and back["restored"] == []
    seq = list(current(path).transcript())[-1].seq
    forward = command("sessions", "rewind", "key:k", seq, "--store", path, "--yes", "--json").json
    assert len(forward["restored"]) == 4 and forward["hidden"] == []
    assert len(texts(current(path))) == 6


def test_a_message_can_be_named_by_its_id_too(path):
    message = list(current(path).transcript())[1]
    assert command("sessions", "rewind", "key:k", message.id, "--store", path, "--yes").code == 0
    assert texts(current(path)) == ["Question 0.", "Answer 0."]
    assert command("sessions", "fork", "key:k", "--at", message.id[:31], "--store", path).code == 0


def test_a_compaction_covers_what_its_plan_said(path):
    arguments = (
        "sessions",
        "compact",
        "key:k",
        "--summary-file",
        "-",
        "--keep-turns",
        "1",
        "--store",
        path,
        "--json",
    )
    planned = command(*arguments, stdin="Two questions.\n").json
    done = command(*arguments, "--yes", stdin="Two questions.\n").json
    assert len(planned["covered"]) == 4
    assert done["covered"] == planned["covered"]
    assert texts(current(path))[0].startswith("Summary of what was said before:\n\nTwo questions.")
    assert len(told(current(path))) == 6


def test_a_compaction_with_nothing_to_cover_is_no_error(path):
    done = command("sessions", "compact", "key:k", "--summary", "x", "--store", path, "--json")
    assert done.code == 0
    assert (done.json["done"], done.json["covered"]) == (False, [])


def test_a_fork_shares_the_past_and_tells_its_id(path):
    done = command("sessions", "fork", "key:k", "--at", "4", "--key", "branch", "--store", path)
    assert done.code == 0
    with holdfast.open(path, durability="process") as store:
        branch = store.session("branch", create=False)
        assert done.out == branch.id + "\n"
        assert texts(branch) == ["Question 0.", "Answer 0."]
        assert len(texts(store.session("k"))) == 6
    told_of = command("sessions", "fork", "key:branch", "--store", path, "--json").json
    assert told_of["parent"] == branch.id
    assert set(told_of) == {"id", "key", "epoch", "tenant", "parent", "at"}


def test_a_reset_ends_the_session_of_a_key_and_begins_another(path):
    old = current(path)
    done = command("reset", "k", "--reason", "a new day", "--store", path, "--yes")
    new = current(path)
    assert done.out == new.id + "\n"
    assert (new.epoch, texts(new)) == (2, [])
    assert "ended: a new day" in command("sessions", "show", old.id, "--store", path).out


def test_a_reset_says_that_it_interrupts_what_runs(path):
    with holdfast.open(path, durability="process") as store, store.session("k").turn("busy"):
        done = command("reset", "k", "--store", path)
    assert "The turn that is running in it will be interrupted." in done.err


def test_what_was_removed_is_nowhere_and_the_session_says_so(path):
    fork = command("sessions", "fork", "key:k", "--store", path).out.strip()
    done = command("sessions", "rm", "key:k", "--store", path)
    assert re.search(r"1 session will be erased for good, 6 messages, ", done.err)
    assert f"lose the past they share: {fork[:8]}" in done.err
    assert command("sessions", "rm", "key:k", "--store", path, "--yes").code == 0
    out = command("sessions", "show", "key:k", "--store", path, "--full").out
    assert "Question" not in out
    assert "ended: erased" in out
    assert "6 messages of it were erased" in out
    assert b"Question 1." not in b"".join(file.read_bytes() for file in path.parent.iterdir())
    markdown = command("sessions", "export", "key:k", "--as", "markdown", "--store", path)
    assert markdown.code == 0 and "Question" not in markdown.out
    told_of = command("sessions", "show", "key:k", "--store", path, "--json").json
    assert (told_of["messages"], told_of["erased"]) == ([], 6)
    assert "6 messages of it were erased" in command("sessions", "show", fork, "--store", path).out


def test_only_idle_sessions_are_removed_by_age(tmp_path):
    world = HandWorld()
    path = tmp_path / "old.db"
    with holdfast.open(path, durability="process") as store:
        with store.session("young").turn("new") as turn:
            turn.say("yes")
    # its clock is years behind
    with holdfast.open(path, durability="process", world=world) as store:
        with store.session("old").turn("long ago") as turn:
            turn.say("yes")
    done = command("sessions", "rm", "--idle-days", "30", "--store", path, "--yes", "--json").json
    assert [erasure["key"] for erasure in done["erasures"]] == ["old"]
    assert command("sessions", "rm", "--idle-days", "30", "--store", path, "--yes").code == 0
    assert "young" in command("sessions", "list", "--store", path, "--state", "open").out
