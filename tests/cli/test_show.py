"""`holdfast sessions show`: a session as a person reads it."""

import re

import pytest

import holdfast
from commanding import command, on_terminal
from holdfast.exporters.safe_text import cells


@pytest.fixture(scope="module")
def shown(world):
    done = command("sessions", "show", world.table, "--store", world.path)
    assert (done.code, done.err) == (0, "")
    return done.out


def section(text: str, begins: str) -> str:
    """From the line that begins so to the next blank one."""
    return next(part for part in text.split("\n\n") if part.startswith(begins))


def test_the_header_says_who_it_is(shown, world):
    header = section(shown, "telegram:dm:42")
    assert "telegram:dm:42 · epoch 1 · open" in header
    assert world.table in header
    for fact in ("opened", "active"):
        assert re.search(rf"^{fact} +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d$", header, re.M)
    assert re.search(r"system +You book tables. Be brief.", header)


def test_turns_have_their_numbers_times_and_ends(shown):
    assert re.search(r"^turn 1 · 20\d\d-.* · completed$", shown, re.M)
    assert re.search(r"^turn 2 · .* · failed: RuntimeError: the provider went away$", shown, re.M)


def test_a_call_stands_with_its_outcome_and_its_state(shown):
    """I-22, for people."""
    lines = [line.strip() for line in section(shown, "turn 1 ").splitlines()]
    at = lines.index("▸ find_table(people=2)  done")
    assert lines[at + 1].endswith("Casa Lola: table 12.")
    assert lines[at + 2] == '▸ weather(city="Ö")  failed'
    assert lines[at + 3].endswith("no network")
    assert not any(line.endswith(" tool") for line in lines)
    assert (
        'hold_table(place="Casa Lola")  unknown: no outcome was stored; it may have run'
        in section(shown, "turn 2 ")
    )
    assert "▸ pay(euros=80)  waiting for approval" in section(shown, "turn 3 ")
    denied = section(shown, "turn 4 ")
    assert "▸ tip(euros=8)  denied" in denied
    assert "Denied by ann." in denied


def test_a_partial_message_ends_where_the_user_saw_it_end_and_says_so(shown):
    """I-5, for people: no letter more than was delivered."""
    told = section(shown, "turn 2 ")
    assert "assistant · cut off: the user saw no more of it" in told
    assert told.splitlines()[-1].strip() == "As soon as they have conf▌"


def test_what_the_model_no_longer_sees_is_marked_with_the_reason(shown, world):
    assert "assistant · retracted: empty answer" in shown
    assert "assistant · hidden from the model · topic=food" in shown
    long = command("sessions", "show", world.long, "--store", world.path, "--full").out
    assert len(re.findall(r"· summarised$", long, re.M)) == 12
    assert len(re.findall(r"· rewound: the model does not see it$", long, re.M)) == 2
    assert re.search(r"summary of 12 messages \(2–24\)", long)
    assert "Six questions were asked." in long


def test_the_inbox_stands_at_the_end(shown):
    last = shown.rstrip("\n").split("\n\n")[-1]
    assert last.startswith("inbox · 1 message waiting for a turn")
    assert last.endswith("Are you there?")


def test_a_fork_says_whose_past_it_shares_and_an_ended_session_why(world):
    out = command("sessions", "show", world.fork, "--store", world.path).out
    assert "cli:fork · epoch 1 · ended: done with it" in out
    assert re.search(rf"fork of +{world.long}, up to 12", out)
    assert "Question 0." in out


def test_an_abandoned_turn_and_a_late_outcome_are_told(path):
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        old = session.turn("slow")
        old.call("fetch", {}, call_id="c9")
        with session.turn("quick", on_busy="interrupt") as turn:
            turn.say("here")
        with pytest.raises(holdfast.errors.TurnInterrupted):
            old.result("c9", "at last")
    out = command("sessions", "show", "key:k", "--store", path).out
    assert re.search(r"^turn \d+ · .* · interrupted: ", out, re.M)
    assert re.search(r"at last +late: its turn had been overtaken", out)


def test_only_the_last_turns_are_shown_unless_all_are_asked_for(tmp_path):
    with holdfast.open(tmp_path / "many.db", durability="process") as store:
        session = store.session("k")
        for number in range(25):
            with session.turn(f"Question {number}.") as turn:
                turn.say("x" * 5000 if number == 24 else "Yes.")
    usual, last, full = (
        command("sessions", "show", "@latest", "--store", tmp_path / "many.db", *more).out
        for more in ((), ("--last", "2"), ("--full",))
    )
    assert "… 5 turns before these; --full shows all" in usual
    assert "Question 4." not in usual and "Question 5." in usual
    assert re.search(r"… [\d,]+ characters left out; --full shows them …", usual)
    assert re.findall(r"Question (\d+)\.", last) == ["23", "24"]
    assert [int(n) for n in re.findall(r"Question (\d+)\.", full)] == list(range(25))
    assert "x" * 5000 in full


def test_json_has_everything_under_the_names_of_the_library(world):
    told = command("sessions", "show", world.table, "--store", world.path, "--json").json
    with holdfast.open(world.path) as store:
        session = store.get(world.table)
        assert set(told["session"]) == set(holdfast.SessionInfo.__struct_fields__)
        messages = {message.id: message for message in session.transcript()}
        for fact in (*told["messages"], *told["pending"]):
            message = messages.pop(fact["id"])
            for name in (
                "seq",
                "role",
                "text",
                "turn",
                "state",
                "late",
                "at",
                "labels",
                "format",
                "event_id",
            ):
                assert fact[name] == getattr(message, name)
        assert not messages
        assert [call["state"] for call in told["calls"]] == [call.state for call in session.calls()]
    assert [turn["end"] for turn in told["turns"]] == ["completed", "failed", *["completed"] * 4]
    assert {fact["view"] for fact in told["messages"]} == {"shown", "retracted", "hidden"}


def test_lines_keep_to_the_terminal_in_any_script(path):
    with (
        holdfast.open(path, durability="process") as store,
        store.session("k").turn("日本語のテキスト " * 30) as turn,
    ):
        turn.say("long words " * 60 + "x" * 300)
    out = on_terminal("sessions", "show", "key:k", "--store", path, columns=60, NO_COLOR="1").out
    assert max(cells(line) for line in out.splitlines()) <= 60
    assert "日本語のテキスト" in out


def test_long_labels_are_cut_and_shown_whole_when_all_is_asked_for(tmp_path):
    beside = {"key": "agent:main:wire:dm:c1", "source": {"platform": "wire", "chat_id": "c" * 300}}
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        labels = {"hermes": beside, "words": "long " * 40, "few": {"a": 1}, "short": "yes"}
        store.accept("k", "Hi.", labels=labels)
        with session.turn():
            pass
    lines = {}
    for more in ((), ("--full",)):
        done = command("sessions", "show", "key:k", *more, "--store", tmp_path / "agent.db")
        lines[more] = next(line for line in done.out.splitlines() if "hermes=" in line)
    assert "hermes={…}" in lines[()] and "few={'a': 1}, short=yes" in lines[()]
    assert "words=long long" in lines[()] and cells(lines[()]) < 160
    assert str(beside) in lines["--full",]
