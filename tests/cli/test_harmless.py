"""Stored text on a terminal: it is shown, and it steers nothing (I-20)."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
import holdfast.exporters.safe_text as harmless_module
from commanding import command, on_terminal, process
from exhibits import HOSTILE
from holdfast.exporters.safe_text import cells, cut, escaped, harmless, one_line, wrapped
from thorough import few_cases

STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
OWN_COLOURS = re.compile(r"\x1b\[[\d;]+m")
any_text = st.text(st.characters(exclude_categories=())) | st.text("a \n\t\r\x1b\x9b\u202e\ud800日")


@pytest.mark.slow
@given(any_text)
def test_nothing_that_steers_is_left_and_it_can_be_written(text):
    shown = harmless(text)
    assert not STEERS.search(shown)
    shown.encode()


@given(any_text)
def test_what_steers_nothing_is_left_as_it_is(text):
    plain = STEERS.sub("", text)
    assert harmless(plain) == plain


@given(any_text, any_text)
def test_text_may_come_in_pieces(first, second):
    # one line break; in two pieces its half is shown
    if not (first.endswith("\r") and second.startswith("\n")):
        assert harmless(first) + harmless(second) == harmless(first + second)


@given(any_text)
def test_escaped_json_means_the_same_and_steers_nothing(text):
    encoded = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(escaped(encoded)) == {"text": text}
    assert not STEERS.search(escaped(encoded))


@given(any_text, st.integers(2, 40))
def test_a_cut_text_fits_and_a_line_is_a_line(text, width):
    line = one_line(text)
    assert "\n" not in line
    assert cells(cut(line, width)) <= width


@given(st.text(st.characters(exclude_categories=("C",))) | st.text("ab 日\n"), st.integers(2, 40))
def test_wrapped_lines_fit_and_lose_no_letter(text, width):
    lines = wrapped(text, width)
    assert all(cells(line) <= width for line in lines)
    assert [letter for line in lines for letter in line if not letter.isspace()] == [
        letter for letter in text if not letter.isspace()
    ]


def test_signs_can_be_read():
    assert harmless("\x1b[0m\x00\x7f\x9b\u202e\ud800\r") == "␛[0m␀␡\\x9b\\u202e\\ud800␍"
    assert harmless("a\r\nb\tc") == "a\nb\tc"


def commands(world):
    return [
        ("list",),
        ("show", world.table),
        ("show", world.table, "--full"),
        ("show", world.table, "--json"),
        ("list", "--json"),
        ("search", "hostile"),
        ("search", "hostile", "--json"),
        ("export", world.table, "--as", "markdown"),
        ("export", world.table),
        ("export", world.table, "--as", "openai.chat"),
        ("rewind", world.table, "3"),
    ]


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("which", range(11))
def test_no_command_lets_stored_text_steer_a_terminal(world, which):
    arguments = commands(world)[which]
    done = on_terminal("sessions", *arguments, "--store", world.path, columns=100, typed="n\n")
    assert done.code == (1 if arguments[0] == "rewind" else 0), done.out
    assert done.out
    assert not STEERS.search(OWN_COLOURS.sub("", done.out).replace("\n", ""))


def test_a_tail_of_hostile_words_is_harmless(tmp_path):
    with holdfast.open(tmp_path / "h.db", durability="process") as store:
        session = store.session(f"key {HOSTILE}")
        with session.turn(HOSTILE) as turn:
            list(turn.deliver([HOSTILE, "\x1b", "[2J"]))
        session.end(HOSTILE)
    for more in ((), ("--json",)):
        done = command(
            "sessions", "tail", "@latest", "-n", "9", "--store", tmp_path / "h.db", *more
        )
        assert done.code == 0
        assert not STEERS.search(done.out)
        assert "over" in done.out


def test_halves_of_characters_come_through_every_command(tmp_path):
    """FAULTS H7."""
    path = tmp_path / "half.db"
    with holdfast.open(path, durability="process") as store:
        with store.session("k").turn("half \ud83d and NUL \x00") as turn:
            turn.say("\udc00 yes")
    for arguments in (
        ("list",),
        ("show", "@latest"),
        ("export", "@latest", "--as", "markdown"),
        ("tail", "@latest"),
    ):
        if arguments[0] == "tail":
            with holdfast.open(path) as store:
                store.get(store.sessions()[0].id).end("over")
        done = command("sessions", *arguments, "--store", path)
        assert done.code == 0, done.err
        assert "half \\ud83d" in done.out
    told = command("sessions", "show", "@latest", "--store", path, "--json").json
    assert [message["text"] for message in told["messages"]] == [
        "half \ud83d and NUL \x00",
        "\udc00 yes",
    ]
    events = command("sessions", "tail", "@latest", "--store", path, "--json").lines
    assert [event["text"] for event in events if event["message_id"]] == [
        "half \ud83d and NUL \x00",
        "\udc00 yes",
    ]
    assert events[1]["entry"]["body"]["content"] == "half \ud83d and NUL \x00"
    lines = command("sessions", "export", "@latest", "--store", path).lines
    assert lines[2]["body"]["content"] == "half \ud83d and NUL \x00"


@pytest.mark.slow
def test_a_terminal_that_can_not_show_a_letter_ends_nothing(world):
    done = process("sessions", "show", world.table, "--store", world.path, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "\\u25b8 find_table" in done.out
    told = process(
        "sessions", "show", world.table, "--store", world.path, "--json", PYTHONIOENCODING="ascii"
    )
    assert told.json["messages"][1]["parts"][1]["name"] == "find_table"


def test_wide_letters_take_two_columns_and_marks_none():
    assert cells("日本") == 4
    assert cells("e\u0301") == 1
    assert unicodedata.east_asian_width("日") == "W"


def test_nothing_that_is_stored_can_pass_for_a_line_of_ours(tmp_path):
    """Keys, reasons, errors, labels and names may hold line breaks, too; what they hold begins no
    line.
    """
    forged = "x\nturn 99 · completed\nDo it? [y/N] y\n── forged"
    path = tmp_path / "f.db"
    with holdfast.open(path, durability="process") as store:
        session = store.session(forged)
        with session.turn(forged) as turn:
            turn.say(forged)
            turn.retract(forged)
            turn.call(forged, forged, call_id=forged, needs_approval=True)
        session.decide(forged, False, by=forged)
        with pytest.raises(RuntimeError), session.turn("Again."):
            raise RuntimeError(forged)
        session.label(next(session.transcript()).id, topic=forged)
        fork = session.fork(key=f"fork {forged}")
        session.end(forged)
    looks = [
        ("sessions", "list"),
        ("sessions", "show", session.id, "--full"),
        ("sessions", "search", "forged"),
        ("sessions", "tail", session.id, "-n", "99"),
        ("sessions", "rm", session.id),
        ("sessions", "rewind", fork.id, "2"),
        ("reset", f"fork {forged}"),
    ]
    for arguments in looks:
        done = command(*arguments, "--store", path)
        lines = [*done.out.splitlines(), *done.err.splitlines()]
        # The line to run is quoted for the shell: it may go on over several lines, inside the
        # quotes.
        lines = lines[: next((at for at, line in enumerate(lines) if "To do it:" in line), None)]
        assert lines
        assert not [line for line in lines if re.match("turn 99|Do it|── forged", line)], arguments


def test_a_long_line_is_wrapped_in_one_pass(monkeypatch):
    """A tool's output may be one line of megabytes: each letter is measured about once."""
    measured = 0
    measure = harmless_module._cells

    def counting(letter):
        nonlocal measured
        measured += 1
        return measure(letter)

    monkeypatch.setattr(harmless_module, "_cells", counting)
    text = "é漢 " * 5000
    wrapped(text, 80)
    assert measured < 3 * len(text)


def test_a_letter_wider_than_the_terminal_is_shown_all_the_same():
    assert wrapped("漢漢", 1) == ["漢", "漢"]
