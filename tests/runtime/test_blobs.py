"""Large parts: kept once, by their content, and given back byte for byte (FAULTS J1, J2, J5)."""

import apsw
import pytest

import holdfast
from holdfast.engine import blobs as codec
from looking import other_handle

IMAGE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 20_000},
}


def blobs(path):
    return (
        apsw.Connection(str(path))
        .execute("SELECT count(*), ifnull(sum(length(body)), 0) FROM blob")
        .fetchone()
    )


def test_a_large_part_comes_back_as_it_was_given(session, path):
    said = {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}
    session.append(said)
    assert next(session.transcript()).payload == said
    assert list(session.context()) == [said]
    with other_handle(path) as far:
        assert list(far.get(session.id).context()) == [said]


def test_a_part_that_is_said_often_is_kept_once(store, session, path):
    for other in (session, store.session("other"), session):
        other.append({"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]})
    assert blobs(path) == (1, len(IMAGE["image_url"]["url"]))


def test_a_part_ends_where_its_string_does_whatever_is_escaped_in_it(store, session):
    words = "x" * 40_000 + '"y' + "\\\\" + "z" * 40_000 + "\\"
    session.append(words)
    assert next(session.transcript()).text == words
    assert store.check() == []


def test_a_short_message_has_no_blob(session, path):
    session.append("x" * 30_000)
    assert blobs(path) == (0, 0)


def test_a_long_tool_output_in_a_turn_is_a_blob_and_its_pair_is_whole(session, path):
    output = 'line "quoted" \\ \n\0 é ' * 10_000
    with session.turn("run it") as turn:
        call = turn.call("run", {"command": "make"})
        turn.result(call, output)
        turn.say("done")
    assert blobs(path)[0] == 1
    [result] = [message for message in session.transcript() if message.role == "tool"]
    assert result.parts[0].content == output
    assert [payload["role"] for payload in session.context()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_blob_that_is_gone_is_said_to_be_missing_and_the_next_request_is_valid(session, path):
    session.append({"role": "user", "content": "x" * 50_000})
    session.append("and now?")
    vandal = apsw.Connection(str(path))
    vandal.execute("DELETE FROM blob")
    vandal.close()
    with other_handle(path) as far:
        first, second = far.get(session.id).transcript()
        assert "missing" in first.payload["content"] and second.text == "and now?"
        assert "missing" in far.get(session.id).context()[0]["content"]


@pytest.mark.slow
def test_a_page_of_large_messages_ends_early_and_nothing_is_left_out(session, path):
    """Twelve messages of four megabytes are more than a page holds; contexts, transcripts,
    followers get all.
    """
    texts = [f"{number:04d}" * 1_000_000 for number in range(12)]
    for number, text in enumerate(texts):
        session.append({"role": "assistant" if number % 2 else "user", "content": text})
    page = session._log.page(0)
    assert 1 < len(page) < 13
    with other_handle(path) as far:
        fresh = far.get(session.id)
        assert [message.text[:4] for message in fresh.transcript()] == [text[:4] for text in texts]
        assert [message["content"][:4] for message in fresh.context()] == [
            text[:4] for text in texts
        ]
        events = fresh.follow()
        told = [event.text[:4] for event in (next(events) for _ in range(13)) if event.text]
        assert told == [text[:4] for text in texts]


def test_one_part_that_a_provider_refuses_can_be_taken_out_of_the_view_and_is_kept(session, path):
    """FAULTS J1: the picture is too large for the provider; the words beside it go on, with a note
    in its place.
    """
    words = {"type": "text", "text": "look at this"}
    session.append({"role": "user", "content": [words, IMAGE]})
    session.append({"role": "assistant", "content": "I can't."})
    view = session.context()
    view[0] = {
        "role": "user",
        "content": [words, {"type": "text", "text": "[a picture was too large]"}],
    }
    session.record(view)
    session.append("then without it")
    with other_handle(path) as far:
        shown = list(far.get(session.id).context())
        assert [part.get("text") for part in shown[0]["content"]] == [
            "look at this",
            "[a picture was too large]",
        ]
        assert shown[-1]["content"] == "then without it"
        assert next(far.get(session.id).transcript()).payload["content"][1] == IMAGE


def test_another_part_of_the_same_name_is_not_taken_for_it(where, monkeypatch):
    """Names are short digests: that two parts have one is next to impossible, and harmless. Here
    all have one.
    """
    monkeypatch.setattr(codec, "name_of", lambda part: 7)
    said = ["x" * 40_000, "y" * 40_000, "x" * 40_000]
    with holdfast.open(where, durability="process") as store:
        store.session("k").append_all([{"role": "user", "content": words} for words in said])
        store.session("k").append({"role": "user", "content": "z" * 40_000})
        store.session("other").append({"role": "user", "content": "y" * 40_000})
    with holdfast.open(where, durability="process") as store:
        assert [message.text for message in store.session("k").transcript()] == [
            *said,
            "z" * 40_000,
        ]
        assert [message.text for message in store.session("other").transcript()] == ["y" * 40_000]
