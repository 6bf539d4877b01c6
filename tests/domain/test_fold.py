"""The fold: from entries to what a session is; the same in every process, however the entries came
(I-9).
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.entry import (
    Asked,
    Closed,
    Decided,
    Edit,
    Entry,
    Labelled,
    Retracted,
    Shape,
    Taken,
    TurnEnded,
    TurnStarted,
    note_of,
    noted,
)
from holdfast.domain.log.compaction import covering, cut
from holdfast.domain.log.fold import Log
from holdfast.domain.log.path import back_to
from holdfast.domain.log.view import ranges
from holdfast.domain.message import CallNote, MessageNote, freeze, target_of, thaw
from thorough import examples


class Telling:
    """A log being told, entry by entry. Message ids are the hex of their seq."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.turn = 0

    def add(
        self, kind: str, note: Any = None, *, turn: int | None = None, body: bytes = b""
    ) -> int:
        seq = len(self.entries) + 1
        encoded = noted(note) if note is not None else b""
        self.entries.append(Entry(seq, kind, turn, seq.to_bytes(16, "big"), seq, encoded, body))
        return seq

    def message(
        self, text: str = "", *, turn: int | None = None, role: str = "user", **note: Any
    ) -> int:
        body = freeze({"role": role, "content": text or f"m{len(self.entries) + 1}"})
        return self.add("message", MessageNote(role=role, **note), turn=turn, body=body)  # type: ignore[arg-type]

    def start(self, *takes: int) -> int:
        self.turn += 1
        self.add("turn", TurnStarted(tuple(name(seq) for seq in takes)), turn=self.turn)
        return self.turn

    def end(self, turn: int, end: Any = "completed", returns: tuple[int, ...] = ()) -> int:
        return self.add(
            "end", TurnEnded(end, returns=tuple(name(seq) for seq in returns)), turn=turn
        )

    def rewind(self, to: int) -> int:
        note = back_to(self.log(), name(to))
        assert note is not None
        return self.add("rewind", note)

    def compact(self, keep: int) -> int:
        log = self.log()
        covered = log.visible[: cut(log.visible, keep_turns=keep)]
        if all(seen.note.origin == "summary" for seen in covered):
            return 0
        note = covering(log, [seen.id for seen in covered])
        assert note is not None
        return self.add("compaction", note, body=freeze({"role": "user", "content": "a summary"}))

    def label(self, seq: int, visible: bool) -> int:
        return self.add("label", Labelled(name(seq), {"visible_to_model": visible}, seq))

    def log(self) -> Log:
        log = Log()
        log.add(self.entries)
        return log

    def loaded(self) -> Log:
        """The log as a load begins it: with the last compaction, unless it turns out that more is
        needed.
        """
        last = next((entry for entry in reversed(self.entries) if entry.kind == "compaction"), None)
        if last is None:
            return self.log()
        note = note_of("compaction", last.note)
        told = self.entries[note.instructions - 1].body if note.instructions else None
        log = Log()
        log.begin(note, thaw(told) if told else None)
        log.add(self.entries[note.since - 1 :])
        return self.log() if log.lost else log


def name(seq: int) -> str:
    return seq.to_bytes(16, "big").hex()


def order(log: Log) -> list[int]:
    return [message.seq for message in log.visible]


# Laws
# ----------------------------------------------------------------------------------------------------------------


def test_turns_stand_in_the_order_they_started_and_late_messages_in_their_own_turn() -> None:
    """I-7: what a superseded turn stored late is where it belongs."""
    told = Telling()
    first = told.start()
    one = told.message(turn=first, role="assistant")
    told.end(first, "interrupted")
    second = told.start()
    two = told.message(turn=second, role="assistant")
    late = told.message(turn=first, role="assistant", late=True)
    aside = told.message()
    assert order(told.log()) == [one, late, two, aside]


def test_a_message_in_the_inbox_stands_nowhere_until_a_turn_takes_it() -> None:
    """I-4."""
    told = Telling()
    waiting = told.message(inbox=True)
    aside = told.message()
    assert order(told.log()) == [aside]
    assert told.log().waiting == {name(waiting)}
    turn = told.start(waiting)
    log = told.log()
    assert order(log) == [aside, waiting]
    assert [seen.id for seen in log.of_turn(turn)] == [name(waiting)]
    assert log.waiting == set()


def test_a_turn_that_gives_back_what_it_took_leaves_it_for_the_next() -> None:
    """I-4: a turn that dies before it has used a message gives it back."""
    told = Telling()
    waiting = told.message(inbox=True)
    first = told.start(waiting)
    told.end(first, "abandoned", returns=(waiting,))
    log = told.log()
    assert (order(log), log.waiting) == ([], {name(waiting)})
    told.start(waiting)
    assert order(told.log()) == [waiting]


def test_a_running_turn_can_take_more() -> None:
    told = Telling()
    turn = told.start()
    said = told.message(turn=turn, role="assistant")
    steering = told.message(inbox=True)
    told.add("take", Taken((name(steering),)), turn=turn)
    assert order(told.log()) == [said, steering]


def test_a_turn_has_one_end_and_a_second_changes_nothing() -> None:
    """I-6."""
    told = Telling()
    turn = told.start()
    told.end(turn, "interrupted")
    told.end(turn, "completed")
    assert told.log().turns[turn].end == "interrupted"
    assert told.log().running is None


def test_a_shape_shows_what_it_names_and_what_comes_after_it() -> None:
    told = Telling()
    seqs = [told.message() for _ in range(4)]
    told.add("view", Shape(((seqs[3], seqs[3]), (seqs[0], seqs[1]))))
    after = told.message()
    assert order(told.log()) == [seqs[3], seqs[0], seqs[1], after]


def test_a_message_that_waited_while_the_view_was_shaped_is_shown_once_a_turn_takes_it() -> None:
    """I-4, I-9: it was accepted before the shape and taken after it; the model must see it, in
    every process.
    """
    told = Telling()
    head = told.message()
    kept = told.message()
    waiting = told.message(inbox=True)
    told.add("view", Shape(((kept, kept),)))
    grown = told.log()
    assert order(grown) == [kept]
    turn = told.start(waiting)
    answer = told.message(turn=turn, role="assistant")
    grown.add(told.entries[-2:])
    assert order(grown) == [kept, waiting, answer]
    assert order(told.log()) == [kept, waiting, answer]
    assert head not in order(told.log())


def test_a_message_given_back_takes_nothing_of_the_view_with_it() -> None:
    """I-4, I-9: a shape has a range that begins with it; the rest of the range stays, also when it
    is taken again.
    """
    told = Telling()
    waiting = told.message(inbox=True)
    turn = told.start(waiting)
    one, two = told.message(), told.message()
    told.add("view", Shape(((waiting, two),)))
    assert order(told.log()) == [waiting, one, two]
    told.end(turn, "abandoned", returns=(waiting,))
    assert order(told.log()) == [one, two]
    told.start(waiting)
    assert order(told.log()) == [one, two, waiting]


def test_edits_reword_the_view_until_they_are_restored() -> None:
    told = Telling()
    seq = told.message("long output")
    short = Edit(MessageNote(), {"role": "user", "content": "short"})
    told.add("view", Shape(((seq, seq),), {seq: short}))
    assert [thaw(message.body)["content"] for message in told.log().visible] == ["short"]
    assert [thaw(message.body)["content"] for message in told.log().natural] == ["long output"]
    told.add("view", Shape(((seq, seq),), {}, (seq,)))
    assert [thaw(message.body)["content"] for message in told.log().visible] == ["long output"]


def test_labels_and_retractions_hide_and_labels_can_show_again() -> None:
    """I-13: labels are entries of their own, the last word counts."""
    told = Telling()
    one, two = told.message(), told.message()
    told.add("label", Labelled(name(one), {"visible_to_model": False, "colour": "red"}))
    told.add("retract", Retracted((name(two),)))
    assert order(told.log()) == []
    told.add("label", Labelled(name(one), {"visible_to_model": True}))
    log = told.log()
    assert order(log) == [one]
    assert log.labels[name(one)] == {"visible_to_model": True, "colour": "red"}
    assert len(log.by_seq) == 2


def test_instructions_are_the_last_that_were_given() -> None:
    told = Telling()
    assert told.log().instructions is None
    for text in ("Be kind.", "Be brief."):
        told.add("instructions", body=freeze(text))
    assert told.log().instructions == "Be brief."


def test_an_unknown_kind_is_passed_over() -> None:
    """A newer release may have written it; the rest stays readable."""
    told = Telling()
    one = told.message()
    told.add("telepathy")
    two = told.message()
    assert order(told.log()) == [one, two]


# Rewinds
# --------------------------------------------------------------------------------------------------------------


def test_what_a_turn_stores_after_it_was_rewound_away_is_gone_with_it() -> None:
    """I9, I-7: late words, a late outcome, a partial that somebody settles only now."""
    told = Telling()
    one = told.message()
    turn = told.start()
    call = told.message(turn=turn, role="assistant", plain=False, calls=(CallNote("c", "look"),))
    told.end(turn, "interrupted")
    told.rewind(one)
    late = [
        told.message(turn=turn, role="assistant", late=True),
        told.message(turn=turn, role="assistant", partial=True),
        told.message(
            turn=turn, role="tool", late=True, answers=("c",), target=target_of(name(call), 0)
        ),
        told.message(turn=turn, role="tool", late=True, answers=("c",)),
    ]
    two = told.message()
    assert order(told.log()) == [one, two]
    told.rewind(late[-1])
    assert order(told.log()) == [one, call, *late]


def test_of_the_turn_that_the_view_went_back_into_only_the_outcome_of_a_shown_call_comes_through() -> (
    None
):
    """I-10, I9."""
    told = Telling()
    turn = told.start()
    calls = (CallNote("c", "look"),)
    first = told.message(turn=turn, role="assistant", plain=False, calls=calls)
    second = told.message(turn=turn, role="assistant", plain=False, calls=(CallNote("d", "look"),))
    told.end(turn, "interrupted")
    told.rewind(first)
    told.message(turn=turn, role="assistant", late=True)
    told.message(turn=turn, role="tool", late=True, answers=("d",))
    told.message(
        turn=turn, role="tool", late=True, answers=("d",), target=target_of(name(second), 0)
    )
    outcome = told.message(turn=turn, role="tool", late=True, answers=("c",))
    assert order(told.log()) == [first, outcome]


def test_a_rewind_to_a_message_that_waits_or_is_unknown_is_none() -> None:
    told = Telling()
    waiting = told.message(inbox=True)
    assert back_to(told.log(), name(waiting)) is None
    assert back_to(told.log(), "nobody") is None


def test_a_rewind_says_little_however_much_it_takes() -> None:
    told = Telling()
    seqs = [told.message() for _ in range(500)]
    told.rewind(seqs[99])
    for _ in range(3):
        told.message()
        told.rewind(seqs[49])
    note = note_of("rewind", told.entries[-1].note)
    assert (note.gone, note.turns, note.cut, note.ranges) == (
        ((seqs[50], told.entries[-2].seq),),
        (),
        (),
        (),
    )


# Any log
# -------------------------------------------------------------------------------------------------------------


DEEDS = [
    "say",
    "say",
    "late",
    "wait",
    "start",
    "end",
    "shape",
    "hide",
    "prompt",
    "take",
    "retract",
    "rewind",
    "compact",
]


@st.composite
def tellings(draw: st.DrawFn, deeds: list[str] = DEEDS) -> Telling:
    """Logs as sessions write them: turns one after another, an inbox, late words, and all that is
    done to a view.
    """
    told = Telling()
    running: int | None = None
    waiting: list[int] = []
    taken: list[int] = []
    for _ in range(draw(st.integers(0, 25))):
        step = draw(st.sampled_from(deeds))
        said = [seen.seq for seen in told.log().natural if seen.note.origin != "summary"]
        if step == "say":
            told.message(turn=running, role="assistant" if running else "user")
        elif step == "late" and told.turn:
            late = draw(st.integers(1, told.turn))
            told.message(turn=late, role="assistant", late=late != running)
        elif step == "wait":
            waiting.append(told.message(inbox=True))
        elif step == "start" and running is None:
            running = told.start(*waiting)
            taken, waiting = waiting, []
        elif step == "take" and running is not None and waiting:
            told.add("take", Taken(tuple(name(seq) for seq in waiting)), turn=running)
            waiting = []
        elif step == "end" and running is not None:
            back = tuple(taken) if draw(st.booleans()) else ()
            told.end(running, "abandoned" if back else "completed", returns=back)
            waiting = [*back, *waiting]
            running, taken = None, []
        elif step == "shape" and said:
            shown = draw(st.permutations(said))[: draw(st.integers(0, len(said)))]
            edits = {
                seq: Edit(MessageNote(), {"role": "user", "content": "edited"}) for seq in shown[:1]
            }
            told.add("view", Shape(ranges(told.log().places, shown), edits))
        elif step == "hide" and said:
            told.label(draw(st.sampled_from(said)), draw(st.booleans()))
        elif step == "retract" and said:
            told.add("retract", Retracted((name(draw(st.sampled_from(said))),)))
        elif step == "prompt":
            told.add("instructions", body=freeze(draw(st.sampled_from(["a", "b"]))))
        elif step == "rewind" and said and running is None:
            told.rewind(draw(st.sampled_from(said)))
        elif step == "compact" and told.log().visible and running is None:
            told.compact(draw(st.integers(0, 3)))
    if running is None and draw(st.booleans()):
        told.add("closed", Closed("done"))
    return told


def logs() -> st.SearchStrategy[list[Entry]]:
    return tellings().map(lambda told: told.entries)


@given(entries=logs(), cuts=st.lists(st.integers(0, 30), max_size=6), looks=st.booleans())
def test_a_log_folded_in_pieces_is_the_log_folded_at_once(
    entries: list[Entry], cuts: list[int], looks: bool
) -> None:
    """I-9: one process has followed along and looked at every step, another loads it whole; both
    see the same.
    """
    whole = Log()
    whole.add(entries)
    grown = Log()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(entries)], strict=True):
        grown.add(entries[start:end])
        if looks:
            assert grown.visible is not None
    for seen in (
        "visible",
        "natural",
        "by_seq",
        "waiting",
        "running",
        "instructions",
        "closed",
        "hidden",
        "labels",
    ):
        assert getattr(grown, seen) == getattr(whole, seen)
    assert grown.turns == whole.turns


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(told=tellings(), more=st.integers(0, 3))
def test_a_log_that_begins_with_the_last_compaction_shows_what_the_whole_one_does(
    told: Telling, more: int
) -> None:
    """I-9, I-11: a load needs no more; what comes after it was made included, late words too."""
    for turn in range(told.turn, max(0, told.turn - more), -1):
        told.message(turn=turn, role="assistant", late=True)
    loaded, whole = told.loaded(), told.log()
    for seen in ("visible", "waiting", "running", "instructions", "closed"):
        assert getattr(loaded, seen) == getattr(whole, seen)


@given(entries=logs())
def test_the_order_only_grows_at_its_end_while_the_revision_stays(entries: list[Entry]) -> None:
    """What was computed from its beginning may be kept."""
    log = Log()
    before, revision = order(log), log.revision
    for entry in entries:
        log.add([entry])
        now = order(log)
        if log.revision == revision:
            assert now[: len(before)] == before
        before, revision = now, log.revision


@given(entries=logs())
def test_every_message_stands_once_or_waits(entries: list[Entry]) -> None:
    """I-1, I-9: nothing told is forgotten, nothing stands twice, and what is shown is a part of
    what stands.
    """
    log = Log()
    log.add(entries)
    told = [entry.seq for entry in entries if entry.kind == "message"]
    assert [message.seq for message in log.by_seq] == told
    assert len(set(order(log))) == len(log.visible)
    assert set(order(log)) <= {message.seq for message in log.natural}


@given(entries=logs())
def test_what_was_said_or_taken_after_the_last_shape_is_shown_unless_hidden_or_gone(
    entries: list[Entry],
) -> None:
    """I-4: a shape says how the past is shown; it can't hide what comes after it."""
    log = Log()
    log.add(entries)
    shapes = [entry.seq for entry in entries if entry.kind in ("view", "compaction", "rewind")]
    if shapes:
        before = Log()
        before.add(entry for entry in entries if entry.seq < shapes[-1])
        back = {
            id
            for entry in entries[shapes[-1] :]
            if entry.kind == "end"
            for id in note_of("end", entry.note).returns
        }
        stood = {message.id for message in before.natural} - back
        joined = (
            {message.id for message in log.natural if message.seq not in log.gone}
            - stood
            - log.hidden
        )
        assert joined <= {message.id for message in log.visible}


@given(entries=logs())
def test_what_the_view_went_back_from_stays_away_until_it_goes_there_again(
    entries: list[Entry],
) -> None:
    """I9: no shape, label, compaction or late word brings it back; nothing that is said anew goes
    with it.
    """
    log = Log()
    gone: set[int] = set()
    begun = {entry.turn: entry.seq for entry in entries if entry.kind == "turn"}
    for entry in entries:
        log.add([entry])
        if entry.kind == "rewind":
            assert (
                order(log)[-1:] == [seen.seq for seen in log.in_view][-1:]
                or log.in_view[-1].id in log.hidden
            )
        elif entry.kind == "message":
            late = entry.turn is not None and log.rewinds and begun[entry.turn] < log.rewinds[-1][0]
            assert log.gone - gone <= ({entry.seq} if late else set())
        else:
            assert log.gone >= gone
        assert not log.gone.intersection(order(log))
        gone = log.gone


UNSHAPED = [deed for deed in DEEDS if deed != "shape"]


@given(told=tellings(UNSHAPED))
def test_every_message_is_shown_hidden_gone_or_covered_by_one_shown_summary(told: Telling) -> None:
    """I-11: as long as no list has dropped anything."""
    log = told.log()
    gone = log.gone
    out = {seen.id for seen in log.natural if seen.seq in gone} | log.hidden
    shown = {seen.id for seen in log.visible}
    for seen in log.natural:
        if seen.note.origin != "summary":
            assert (seen.id in shown) + (seen.id in out) or log.summary_of(
                seen.id, shown | out
            ) is not None
            assert not (seen.id in shown and log.summary_of(seen.id, shown))


@given(told=tellings(UNSHAPED), data=st.data())
def test_the_view_ends_with_the_message_it_goes_back_to_and_leads_to_it_as_before(
    told: Telling, data: st.DataObject
) -> None:
    """Of what is shown, going back takes exactly what comes after; and going forth again brings it
    back.
    """
    shown = order(told.log())
    if shown and told.log().running is None:
        to = data.draw(st.sampled_from(shown))
        told.rewind(to)
        assert order(told.log()) == shown[: shown.index(to) + 1]
        told.rewind(shown[-1])
        assert order(told.log()) == shown


def test_of_two_decisions_about_a_call_the_first_counts() -> None:
    """I-22: whoever decides at the same moment on another machine is too late."""
    for first in (True, False):
        told = Telling()
        turn = told.start(told.message(inbox=True))
        made = told.message(turn=turn, role="assistant", plain=False, calls=(CallNote("c", "pay"),))
        told.add("ask", Asked("c", name(made), "digest"), turn=turn)
        for approved in (first, not first):
            told.add("decision", Decided("c", name(made), approved, "ann"))
        [ask] = told.log().asks_of("c")
        assert ask.approved is first


def test_late_words_stand_in_their_turn_though_somebody_has_looked_before_they_came() -> None:
    told = Telling()
    first = told.start(told.message(inbox=True))
    told.end(first, "interrupted")
    second = told.start(told.message(inbox=True))
    told.message(turn=second, role="assistant")
    log = told.log()
    assert len(log.natural) == 3
    count = len(told.entries)
    late = told.message(turn=first, role="assistant", late=True)
    log.add(told.entries[count:])
    assert [seen.seq for seen in log.natural] == [seen.seq for seen in told.log().natural]
    assert [seen.seq for seen in log.natural][1] == late
