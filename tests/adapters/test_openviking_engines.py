"""The sessions of OpenViking's clients on both engines: what can't be read, what is copied, and two
servers on one store.
"""

import pytest

import holdfast
from holdfast.adapters.openviking.server.incoming import message_in
from holdfast.adapters.openviking.server.sessions.directory import Directory, Requester
from holdfast.runtime.open_store import open_at
from spoiling import place  # noqa: F401, a fixture

pytestmark = pytest.mark.slow
ME = Requester()


def said(*texts):
    messages = []
    for text in texts:
        messages += message_in({"role": "user", "content": text}, now="2026-11-16")
    return messages


def texts(messages):
    return [message.payload["parts"][0]["text"] for message in messages]


def _committed(handle, rounds=3):
    for number in range(rounds):
        handle.append(said(f"{number} a", f"{number} b", f"{number} c"))
        archive = handle.archive(1, is_finished=False, reset=False)
        if number < rounds - 1:
            assert handle.finish(archive, {"overview": f"Round {number}."})
    return archive


def test_an_entry_that_can_not_be_read_takes_away_nothing_but_itself(place):  # noqa: F811
    """I-25."""
    store = open_at(place.where, tenant="default")
    handle = Directory(store).make(ME, "s")
    archive = _committed(handle)
    [first, second, *_] = handle.messages_of(archive)
    place.spoil(handle.log.id, second.seq, "note", b"{broken")
    handle = Directory(store).find(ME, "s")
    served = handle.served()
    shown = texts(served.messages)
    assert (shown[0], shown[2:]) == ("1 c", ["2 b", "2 c"])
    assert "2 a" not in shown[1] and len(shown) == 4
    assert served.overview == "Round 1." and list(served.unfinished) == [3]
    assert texts(handle.messages_of(handle.extracted(1).archive)) == ["0 a", "0 b"]
    handle.append(said("more"))
    assert handle.finish(archive, {"overview": "Round 2."})
    assert texts(Directory(store).find(ME, "s").served().messages) == ["2 c", "more"]
    store.close()


def test_a_copy_is_served_as_the_original_is(place, tmp_path):  # noqa: F811
    store = open_at(place.where, tenant="default")
    archive = _committed(Directory(store).make(ME, "s"))
    store.close()
    holdfast.copy(place.where, tmp_path / "copy.db")
    copied = open_at(tmp_path / "copy.db", tenant="default")
    handle = Directory(copied).find(ME, "s")
    assert texts(handle.served().live) == ["2 c"] and handle.served().commits == 3
    assert texts(handle.messages_of(handle.extracted(2).archive)) == ["0 c", "1 a", "1 b"]
    assert handle.finish(archive, {"overview": "Round 2."})
    assert handle.served().overview == "Round 2."
    copied.close()


def test_two_servers_on_one_store_see_what_the_other_has_done(place):  # noqa: F811
    one, other = (open_at(place.where, tenant="default") for _ in range(2))
    here, there = (Directory(store).make(ME, "s") for store in (one, other))
    assert here.log.id == there.log.id
    here.append(said("a"))
    there.append(said("b"))
    archive = here.archive(0, is_finished=False, reset=False)
    assert there.archive(0, is_finished=False, reset=False) is None
    there.append(said("c"))
    assert here.finish(archive, {"overview": "Both."})
    assert not there.finish(archive, {"overview": "Again."})
    assert there.served().overview == here.served().overview == "Both."
    assert texts(there.served().messages) == texts(here.served().messages) == ["c"]
    one.close()
    other.close()
