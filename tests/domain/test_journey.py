"""What a log tells of messages that come and go."""

from holdfast.domain.entry import (
    Closed,
    Entry,
    Erased,
    Labelled,
    Opened,
    Taken,
    TurnEnded,
    TurnStarted,
    noted,
)
from holdfast.domain.log.journey import Stays, brought_in, carried_in, passed_on
from holdfast.domain.message import MessageNote

ID = "0" * 31 + "1"
OTHER = "0" * 31 + "2"
WAITS = MessageNote(inbox=True)


def log(*told):
    """Entries of these kinds, turns and notes; a message is given by its id."""
    entries = []
    for seq, (kind, turn, note, *id) in enumerate(told, 1):
        name = bytes.fromhex(id[0]) if id else seq.to_bytes(16, "big", signed=False)[::-1]
        entries.append(Entry(seq, kind, turn, name, 0, noted(note), b""))
    return entries


def stay(entries, after=0):
    stays = Stays({ID: after})
    for entry in entries:
        stays.add(entry)
    return stays.of[ID]


CAME = ("message", None, WAITS, ID)
ROUND = log(
    ("opened", None, Opened("k")),
    CAME,
    ("take", None, Taken((ID,), session="b")),
    CAME,
    ("turn", 1, TurnStarted((ID,), brought={ID: "b"})),
    ("end", 1, TurnEnded("abandoned", returns=(ID,))),
    ("closed", None, Closed("reset", (ID,), session="c")),
)
"""A log of an older release, to which a message came back; newer ones have each once."""


def test_a_message_waits_until_a_turn_has_it():
    entries = log(("opened", None, Opened("k")), CAME, ("turn", 1, TurnStarted((ID,))))
    assert stay(entries[:2]).waits and not stay(entries[:2]).is_over
    assert (stay(entries).turn, stay(entries).waits, stay(entries).is_over) == (1, False, False)


def test_a_turn_has_used_what_it_does_not_give_back():
    started = ("turn", 1, TurnStarted((ID, OTHER)))
    assert stay(log(CAME, started, ("end", 1, TurnEnded("completed")))).is_over
    given_back = stay(log(CAME, started, ("end", 1, TurnEnded("abandoned", returns=(ID,)))))
    assert given_back.waits and given_back.turn is None
    assert stay(log(CAME, started, ("end", 2, TurnEnded("completed")))).turn == 1


def test_where_it_went_last_counts():
    assert [stay(ROUND[:count]).to for count in range(2, 8)] == [None, "b", None, None, None, "c"]
    told = stay(ROUND)
    assert (told.origins, told.departures, told.is_gone) == (["b"], ["b", "c"], True)
    assert (told.left_for("b"), told.left_for("c"), told.left_for("d")) == (1, 1, 0)


def test_what_was_read_before_is_not_told_again():
    assert stay(ROUND, after=3).departures == ["c"]
    assert not stay(ROUND, after=7).is_known


def test_an_older_log_does_not_name_the_next_session():
    told = stay(log(CAME, ("closed", None, Closed("reset", (ID,)))))
    assert told.is_gone and told.to is None and told.left_for("any") == 1


def test_what_waits_goes_with_the_words_of_its_session_and_what_was_used_does_not():
    erased = ("erased", None, Erased())
    assert stay(log(CAME, erased)).is_erased
    used = stay(log(CAME, ("turn", 1, TurnStarted((ID,))), ("end", 1, TurnEnded()), erased))
    assert used.turn == 1 and not used.is_erased


def test_what_was_appended_waits_for_nobody():
    told = stay(log(("message", None, MessageNote(), ID)))
    assert told.is_known and told.is_over and not told.waits and told.turn is None


def test_a_note_that_can_not_be_read_tells_nothing():
    entries = log(CAME, ("closed", None, Closed("reset", (ID,))))
    entries[1] = Entry(2, "closed", None, b"2" * 16, 0, b'{"moved":7}', b"")
    assert stay(entries).waits and passed_on(entries) == set()


def test_what_a_session_begins_with_may_have_been_carried_along():
    label = ("label", None, Labelled(ID, {"a": 1}))
    own = ("message", None, WAITS, OTHER)
    opened = ("opened", None, Opened("k", 2, previous="a"))
    turn = ("turn", 1, TurnStarted((ID,)))
    assert carried_in(log(opened, CAME, label, own)) == ("a", {ID, OTHER})
    assert carried_in(log(opened, CAME, turn, own)) == ("a", {ID})
    assert carried_in(log(("opened", None, Opened("k")), CAME)) == (None, set())
    assert carried_in([]) == (None, set())


def test_what_was_brought_and_what_was_passed_on_is_told_by_notes():
    assert brought_in(ROUND) == {ID} and passed_on(ROUND) == {ID}
    assert brought_in(ROUND[:4]) == set() and passed_on(ROUND[:4]) == set()
