"""What the user saw, what the model will be sent, what is stored: each difference has its reason."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.domain.entry import Entry, TurnStarted, noted
from holdfast.domain.log.explain import Outline
from holdfast.domain.log.fold import Log
from holdfast.errors import TurnInterrupted
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.message import Message
from holdfast.runtime.turns.recovery import journal
from holdfast.server.page.page_sections import chosen, sections_of
from holdfast.server.page.read_views import SessionViews, ViewsPage, WantedPage
from holdfast.server.page.reasons import REASONS, ROUTINE
from holdfast.server.page.sent_list import SentList
from holdfast.server.page.three_views import ThreeViews, ViewRow
from holdfast.testing import strategies
from spoiling import place
from thorough import examples

__all__ = ["place"]
PROTOCOL = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"


@pytest.fixture
def store(tmp_path) -> Iterator[holdfast.Store]:
    with holdfast.open(tmp_path / "s.db", durability="process") as opened:
        yield opened


@pytest.fixture
def session(store) -> holdfast.Session:
    return store.session("k")


def look(session: holdfast.Session, format: str | None = None, **wanted: Any) -> ViewsPage:
    """The views of a session, by a log of their own; what must always hold is looked at."""
    wish = WantedPage(format, wanted.get("before"), wanted.get("after"), wanted.get("limit", 1000))
    log = session._log.other(session._log.state())
    page = SessionViews(log).page(wish, journal(log), log.engine.debts(log.id))
    if not wanted:
        hold(page, session.context(page.format), [message.id for message in session.transcript()])
    return page


def rows_of(page: ViewsPage) -> list[ViewRow]:
    return [*page.lead, *(row for each in page.sections for row in each.rows), *page.tail]


def hold(page: ViewsPage, context: list[Any], said: list[str]) -> None:
    """The laws of all pages that have the whole of a session."""
    rows = rows_of(page)
    # Every payload is in a row, and every message in exactly one.
    places = {place for row in rows if row.sent for place in row.sent.places}
    assert places == set(range(len(context))) and page.sent == len(context)
    stored = [row.id for row in rows if row.kind == "message"]
    assert sorted(stored) == sorted(said)
    for row in rows:
        explain(row)


def explain(row: ViewRow) -> None:
    """No cell is missing, or another one, without a reason."""
    views = {each.view for each in row.differences}
    assert all(each.reason and "{" not in each.reason for each in row.differences)
    if row.stored is None:
        assert row.saw is None and views == {"sent"}
        return
    if row.saw is None or row.saw.parts != row.stored.parts:
        assert "saw" in views, row
    if row.sent is None or row.sent.parts != row.stored.parts:
        assert "sent" in views, row


def by_text(page: ViewsPage) -> dict[str, ViewRow]:
    """The rows by the first words that are stored, or sent."""
    found = {}
    for row in rows_of(page):
        cell = row.stored or row.sent
        assert cell is not None
        words = [part.text or part.name for part in cell.parts]
        found[words[0] if words else ""] = row
    return found


def codes(row: ViewRow) -> list[str]:
    return [each.code for each in row.differences]


def test_a_plain_dialogue_is_the_same_in_all_three_views(session):
    for words in ("One", "Two"):
        with session.turn(words) as turn:
            turn.say(f"{words} it is.")
    page = look(session)
    assert [section.end for section in page.sections] == ["completed"] * 2
    for number, row in enumerate(rows_of(page)):
        assert row.saw.parts == row.sent.parts == row.stored.parts
        assert (row.sent.places, row.differences) == ([number], [])


def test_a_call_stands_with_its_outcome_and_the_user_sees_neither(session):
    with session.turn("Find it.") as turn:
        turn.result(turn.call("search", {"text": "it"}, call_id="c1"), "It is here.")
        turn.say("Found.")
    page = look(session)
    call, outcome = rows_of(page)[1:3]
    assert call.saw is None and codes(call) == ["call_not_shown", "reshaped"]
    [made] = call.calls
    assert (made.name, made.state, made.outcome.message) == ("search", "done", outcome.id)
    assert [part.text for part in made.outcome.parts] == ["It is here."]
    assert outcome.saw is None and codes(outcome) == ["tool_outcome", "reshaped"]
    assert all(each.routine for row in (call, outcome) for each in row.differences)


def test_what_was_cut_off_ends_where_the_user_saw_it_end(session):
    turn = session.turn("Tell me.")
    call = turn.call("look", {}, call_id="c1")
    words = iter(turn.deliver(iter(["Half an ans", "wer."])))
    next(words)
    spoken = rows_of(look(session))[-1]
    assert (spoken.kind, spoken.saw.parts[0].text, spoken.saw.cut) == (
        "spoken",
        "Half an ans",
        False,
    )
    assert codes(spoken) == ["still_spoken"] and spoken.stored.state == "spoken"
    session.stop()
    with pytest.raises(TurnInterrupted):
        turn.result(call, "Too late.")
    page = look(session)
    assert page.sections[-1].end == "interrupted"
    rows = by_text(page)
    cut = rows["Half an ans"]
    assert cut.saw.cut and cut.sent.parts == cut.saw.parts and cut.stored.state == "partial"
    assert codes(cut) == ["cut_off"]
    # The real outcome came late, and stands next to its call.
    late = rows["Too late."]
    assert late.stored.late and codes(late)[:2] == ["tool_outcome", "late"]
    assert "next_to_call" in codes(late)


def test_an_outcome_that_nobody_stored_is_made_up_for_the_model_alone(session):
    turn = session.turn("Look.")
    turn.call("look", {}, call_id="c1")
    assert codes(rows_of(look(session))[-1]) == ["running"]
    session.stop()
    *_, call, made = rows_of(look(session))
    assert (made.kind, made.saw, made.stored, codes(made)) == ("made", None, None, ["interrupted"])
    assert made.sent.places == [call.sent.places[0] + 1]
    with session.turn("And then?") as turn:
        turn.call("rm", {}, call_id="c2", needs_approval=True)
    assert codes(rows_of(look(session))[-1]) == ["waiting_for_approval"]


def test_a_summary_stands_for_what_it_covers_and_in_front_of_the_rest(session):
    session.instructions("Be short.")
    for words in ("One", "Two", "Three"):
        with session.turn(words) as turn:
            turn.say(f"{words} it is.")
    session.compact("One and two.", keep_turns=1)
    page = look(session)
    rows = by_text(page)
    assert rows["Be short."].sent.places == [0] and codes(rows["Be short."]) == ["instructions"]
    summary = next(row for row in rows_of(page) if row.kind == "summary")
    seq = summary.stored.seq
    reason = rows["One"].differences[0]
    assert (reason.code, reason.reason) == (
        "summarised",
        f"The summary in entry {seq} stands for it.",
    )
    assert rows["One"].saw.parts[0].text == "One"
    assert codes(summary) == ["summary", "merged", "summary_in_front"]
    assert "4 messages" in summary.differences[0].reason
    assert codes(rows["Three"]) == ["merged"] and codes(rows["Three it is."]) == []


def test_what_the_view_leaves_out_says_why(store, session):
    ids = session.append_all(["Keep", "Hide", "Rewound"])
    session.label(ids[1], visible_to_model=False)
    session.rewind(ids[1])
    with session.turn("Again?") as turn:
        turn.say("First try.")
        turn.retract("it was empty")
        turn.say("Second try.")
    store.accept("k", "Later.")
    rows = by_text(look(session))
    told = {text: row.differences[-1] for text, row in rows.items() if row.sent is None}
    assert {text: each.code for text, each in told.items()} == {
        "Hide": "hidden",
        "Rewound": "rewound",
        "First try.": "retracted",
        "Later.": "waiting",
    }
    assert told["First try."].reason == "It was retracted: it was empty."
    assert not any(each.routine for each in told.values())
    # The user did see all of these.
    assert all(rows[text].saw for text in told)


def test_what_a_label_hides_from_the_user_is_in_the_other_two_views(session):
    with session.turn("Go on.") as turn:
        hidden = turn.add({"role": "assistant", "content": "A note to myself."})
    session.label(hidden, visible_to_user=False)
    row = by_text(look(session))["A note to myself."]
    [why] = row.differences
    assert (why.view, why.code, why.routine) == ("saw", "hidden_from_user", False)
    assert row.saw is None and row.sent is not None
    session.label(hidden, visible_to_user=True)
    assert codes(by_text(look(session))["A note to myself."]) == []


def test_a_list_that_was_recorded_drops_edits_and_reorders(session):
    texts = ("Charge my card 4111 for the print.", "It is ordered.", "And the frame?", "Oak.")
    said = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": text}
        for number, text in enumerate(texts)
    ]
    session.record(said)
    masked = {"role": "user", "content": "Charge my card **** for the print."}
    session.record([masked, *said[1:]])
    edited = by_text(look(session))[texts[0]]
    assert codes(edited) == ["edited"]
    assert [part.text for part in edited.sent.parts] == [masked["content"]]
    assert edited.saw.parts[0].text == texts[0]
    session.record([masked, said[1], said[3]])
    assert codes(by_text(look(session))["And the frame?"]) == ["left_out"]
    session.record([said[2], said[3], masked, said[1]])
    assert any("reordered" in codes(row) for row in rows_of(look(session)))


def test_what_was_erased_or_taken_elsewhere_is_told_as_such(store, session):
    store.accept("k", "Who answers?")
    later = store.reset("k")
    assert {codes(row)[-1] for row in rows_of(look(session))} == {"moved"}
    with later.turn() as turn:
        turn.say("I do.")
    later.end("done")
    store.erase(later.id)
    page = look(later)
    assert {code for row in rows_of(page) for code in codes(row)} == {"erased"}
    assert all(row.saw is None and row.sent is None for row in rows_of(page))


def test_a_reply_that_is_owed_was_not_seen_for_sure(store, session):
    """I-23"""
    with session.turn("Well?", reply_to="dm:42") as turn:
        turn.say("One moment.")
        turn.sent()
        turn.say("No.")
        turn.retract("rude")
        turn.say("Yes.")
    rows = by_text(look(session))
    [owed] = rows["Yes."].differences
    assert (owed.view, owed.code, owed.routine) == ("saw", "owed", False)
    assert "dm:42" in owed.reason
    others = (rows["Well?"], rows["One moment."], rows["No."])
    assert not any("owed" in codes(row) for row in others)
    [debt] = store.outbox()
    debt.sent()
    assert codes(by_text(look(session))["Yes."]) == []


def test_a_fork_tells_what_its_parent_answers(store, session):
    with session.turn("One") as turn:
        turn.say("One it is.")
    store.accept("k", "Waiting when they parted.")
    session.append("Beside.")
    rows = by_text(look(session.fork()))
    row = rows["Waiting when they parted."]
    assert codes(row) == ["elsewhere"] and row.stored.state == "elsewhere"


def test_reasoning_goes_to_its_own_provider_alone(session):
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "Yes."},
    ]
    session.append("Well?")
    session.append({"role": "assistant", "content": blocks}, format="anthropic")
    page = look(session)
    assert page.format == "anthropic"
    assert codes(rows_of(page)[-1]) == ["thinking_not_shown"]
    [reduced] = [each for each in rows_of(look(session, "openai.chat"))[-1].differences
                 if each.view == "sent"]  # fmt: skip
    assert reduced.code == "reduced" and reduced.reason.endswith("without reasoning.")
    assert not reduced.routine


def test_what_a_provider_would_not_take_is_told_with_its_place(session):
    session.append_all(
        [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c" * 60, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            ]},
            {"role": "tool", "tool_call_id": "c" * 60, "content": ""},
            {"role": "tool", "tool_call_id": "nobody", "content": "Stray."},
            {"role": "assistant", "content": " "},
        ]
    )  # fmt: skip
    _, call, outcome, stray, blank = rows_of(look(session))
    assert "`tool_calls[0].id`" in call.differences[-1].reason
    assert "`content`" in outcome.differences[-1].reason
    assert codes(stray)[-1] == "stray_result" and codes(blank)[-1] == "blank"


def test_outcomes_and_words_of_one_message_part_where_a_provider_wants_it(session):
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    answered = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "Found."},
        {"type": "text", "text": "And now?"},
    ]
    messages = [("user", "Look."), ("assistant", [use]), ("user", answered)]
    session.append_all(
        [{"role": role, "content": content} for role, content in messages], format="anthropic"
    )
    assert codes(rows_of(look(session, "anthropic"))[-1]) == ["tool_outcome"]
    both = rows_of(look(session, "openai.chat"))[-1]
    assert both.sent.places == [2, 3] and "split" in codes(both)


def test_a_cut_message_is_sent_without_what_only_its_provider_can_read(session):
    turn = session.turn("Well?")
    start = {"type": "content_block_start", "index": 0}
    stream = turn.stream(format="anthropic")
    stream.push({**start, "content_block": {"type": "web_search_tool_result", "content": []}})
    stream.push({**start, "index": 1, "content_block": {"type": "thinking", "thinking": "Hm"}})
    stream.push({**start, "index": 2, "content_block": {"type": "text", "text": "So"}})
    session.stop()
    row = rows_of(look(session))[-1]
    assert [part.kind for part in row.sent.parts] == ["text"]
    assert [each.code for each in row.differences if each.view == "sent"] == [
        "cut_part",
        "cut_thinking",
    ]


def test_an_entry_that_is_damaged_takes_away_nothing_but_itself(place):
    """I-25"""
    with place.open() as store:
        session = store.session("k")
        session.append_all(["One", "Two", "Three"])
        place.spoil(session.id, 3, "body", b"\0garbage")
        rows = rows_of(look(store.get(session.id)))
        assert [codes(row) for row in rows] == [
            ["merged"],
            ["unreadable", "unreadable"],
            ["merged"],
        ]
        assert rows[1].saw is None and "can't be read" in rows[1].stored.parts[0].text


def test_a_long_text_is_cut_and_counted(session):
    session.append("x" * 25_000)
    [row] = rows_of(look(session))
    assert len(row.stored.parts[0].text) == 20_000 and row.stored.parts[0].left_out == 5_000


def test_pages_are_whole_turns_and_lead_to_each_other(session):
    session.instructions("Be short.")
    for number in range(7):
        with session.turn(f"Ask {number}") as turn:
            turn.say(f"Answer {number}")
    session.append_all([f"Outside {number}" for number in range(6)])
    whole = look(session)
    found, before = [], None
    while True:
        page = look(session, before=before, limit=4)
        assert sum(len(section.rows) for section in page.sections) <= 5
        assert bool(page.lead) == (page.earlier is None)
        found = page.sections + found
        before = page.earlier
        if before is None:
            break
    assert found == whole.sections
    forward, after = [], 0
    while after is not None:
        page = look(session, after=after, limit=1)
        forward += page.sections
        after = page.later
    assert forward == whole.sections
    # From a message on: the turn that it stands in is the last of a page.
    seq = whole.sections[2].rows[1].stored.seq
    assert look(session, before=seq + 1, limit=1).sections == [whole.sections[2]]


def test_no_sections_are_no_page():
    assert chosen([], limit=5) == ([], None, None)
    assert chosen([], after=3, limit=5) == ([], None, None)


def test_what_is_kept_of_a_session_is_never_older_than_its_log(store, session):
    views = SessionViews(session._log.other(session._log.state()))
    wish = WantedPage(None, None, None, 100)
    for words in ("One", "Two"):
        session.append(words)
        kept = views.page(wish, [])
        assert kept == views.page(wish, []) == look(session)
    anthropic = WantedPage("anthropic", None, None, 100)
    assert views.page(anthropic, []).format == "anthropic"
    fork = session.fork()
    forked = SessionViews(fork._log.other(fork._log.state()))
    assert len(rows_of(forked.page(wish, []))) == 2
    session.end("done")
    store.erase(session.id)
    # I-21: the head of a fork is what it was when its past was erased.
    for each in (views, forked):
        assert {code for row in rows_of(each.page(wish, [])) for code in codes(row)} == {"erased"}


def test_a_look_changes_nothing(session):
    with session.turn("One") as turn:
        turn.say("One it is.")
    head, learned = session._log.state().head, session._log.learned
    look(session, limit=3)
    assert (session._log.state().head, session._log.learned) == (head, learned)


@given(strategies.views())
@settings(max_examples=examples(100), deadline=None)
def test_every_difference_has_a_reason_whatever_the_log_holds(seen):
    """I-9: and every payload of the context is in a row, in every format."""
    entries, turns = [], set()
    for each in seen:
        if each.turn is not None and each.turn not in turns:
            turns.add(each.turn)
            entries.append(_entry(len(entries) + 1, "turn", each.turn, noted(TurnStarted())))
        entries.append(_entry(len(entries) + 1, "message", each.turn, noted(each.note), each.body))
    for format in strategies.FORMATS:
        log = Log()
        log.add(entries)
        context = Contexts().make(log, format)
        goes_on = context._continuation is not None
        outline = Outline(entries)
        sections = sections_of(outline, [])
        views = ThreeViews(outline, SentList(log, context, format, goes_on=goes_on), sections, {})
        stored = {each.id: Message(each, turn=None) for each in log.natural}
        rows = [*views.lead(), *views.tail()]
        for section in sections:
            for message in section.messages:
                rows += views.of_message(message, stored)
        places = {place for row in rows if row.sent for place in row.sent.places}
        assert places == set(range(len(context)))
        for row in rows:
            explain(row)
            if row.kind == "message" and not any(each.view == "sent" for each in row.differences):
                payload = stored[row.id].payload
                sent = [context[place] for place in row.sent.places]
                assert sent == (payload if isinstance(payload, list) else [payload])


class Doings:
    """What can be done to a session, each by one letter's worth of chance."""

    def __init__(self, store: holdfast.Store) -> None:
        self.store, self.session, self.left = store, store.session("k"), []

    def talk(self, where: float) -> None:
        with self.session.turn("Ask.") as turn:
            if where > 0.5:
                turn.say("Tried.")
                turn.retract("empty")
            turn.result(turn.call("look", {}, call_id="call_0"), "Found.")
            turn.say("Answer.")

    def cut(self, where: float) -> None:
        turn = self.session.turn("Cut.")
        id = f"call_{len(self.left) + 1}"
        call = turn.call("look", {}, call_id=id, needs_approval=where > 0.7)
        words = iter(turn.deliver(iter(["Half", " never"])))
        next(words)
        self.session.stop()
        self.left.append((turn, call, words))

    def late(self, where: float) -> None:
        if self.left:
            turn, call, _ = self.left[int(where * len(self.left))]
            with pytest.raises(holdfast.errors.HoldfastError):
                turn.result(call, "Late.") if where > 0.5 else turn.add("Late words.")

    def say(self, where: float) -> None:
        self.session.append({"role": "user" if where > 0.4 else "assistant", "content": "Aside."})

    def accept(self, where: float) -> None:
        self.store.accept("k", "Accepted.")

    def compact(self, where: float) -> None:
        self.session.compact("A summary.", keep_turns=int(where * 3))

    def hide(self, where: float) -> None:
        for message in self._some(where):
            self.session.label(message.id, visible_to_model=where > 0.6)

    def rewind(self, where: float) -> None:
        for message in self._some(where):
            if (
                message.state != "pending"
                and message.id not in self.session._log.history().elsewhere
            ):
                self.session.rewind(message.id)

    def record(self, where: float) -> None:
        messages = list(self.session.context())
        place = int(where * len(messages))
        del messages[place : place + 2]
        self.session.record([*messages[int(where * 2) :], {"role": "user", "content": "New."}])

    def fork(self, where: float) -> None:
        self.session = self.session.fork()

    def reset(self, where: float) -> None:
        if where > 0.7:
            self.session = self.store.reset("k")

    def _some(self, where: float) -> list[holdfast.Message]:
        messages = list(self.session.transcript())
        return messages[int(where * len(messages)) :][:1]


DOINGS = sorted(name for name in vars(Doings) if not name.startswith("_"))


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(DOINGS), st.sampled_from([0.05, 0.35, 0.55, 0.75, 0.95])),
        min_size=3,
        max_size=14,
    )
)
@settings(max_examples=examples(60), deadline=None)
def test_every_difference_has_a_reason_whatever_was_done(done):
    with tempfile.TemporaryDirectory() as folder:
        with holdfast.open(Path(folder) / "s.db", durability="process") as store:
            doings = Doings(store)
            for name, where in done:
                getattr(doings, name)(where)
            for format in ("openai.chat", "anthropic", "openai.responses"):
                look(doings.session, format)


def _entry(seq: int, kind: str, turn: int | None, note: bytes, body: bytes = b"") -> Entry:
    return Entry(seq, kind, turn, seq.to_bytes(16, "big"), 0, note, body)


def test_every_reason_is_in_the_protocol_and_in_no_other_words():
    assert set(REASONS) >= ROUTINE
    _, _, text = PROTOCOL.read_text("utf-8").partition("### Views")
    rows = [row for row in text.splitlines() if row.startswith(("| `s", "| both"))]
    listed = [code for row in rows for code in re.findall(r"`(\w+)`", row.rpartition(" | ")[2])]
    assert sorted(listed) == sorted(REASONS)
