"""One stored message that comes back as several neighbours, in the same order, is not news (I-12).

An answer with words and calls is one message here. Clients send it back in pieces: the words, and each
call by itself, with or without ids, each call followed by its result or not.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session

Payload = dict[str, Any]
HELLO = {"role": "user", "content": "hello"}
WORDS = "Let me look."


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(tmp_path / "split.db") as opened:
        yield opened


def chat_call(id: str) -> Payload:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": '{"q":1}'}}


def item_call(id: str) -> Payload:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": '{"q":1}'}


def block_call(id: str) -> Payload:
    return {"type": "tool_use", "id": id, "name": "f", "input": {"q": 1}}


def assistant(content: Any, **more: Any) -> Payload:
    return {"role": "assistant", "content": content, **more}


def whole(format: str, *calls: str) -> Any:
    """An answer as a turn stores it."""
    if format == "openai.chat":
        return assistant(WORDS, tool_calls=[chat_call(id) for id in calls])
    if format == "anthropic":
        text = {"type": "text", "text": WORDS}
        return assistant([text, *[block_call(id) for id in calls]])
    said = {"type": "output_text", "text": WORDS, "annotations": []}
    message = assistant([said], id="msg_1", type="message", status="completed")
    return [message, *[{**item_call(id), "id": f"fc_{id}"} for id in calls]]


def pieces(format: str, *calls: str) -> list[Payload]:
    """The same answer as a client sends it back: first its words, then each call."""
    if format == "openai.chat":
        return [assistant(WORDS), *[assistant(None, tool_calls=[chat_call(id)]) for id in calls]]
    if format == "anthropic":
        return [assistant(WORDS), *[assistant([block_call(id)]) for id in calls]]
    return [assistant(WORDS), *map(item_call, calls)]


def result(format: str, id: str) -> Payload:
    if format == "openai.chat":
        return {"role": "tool", "tool_call_id": id, "content": f"result {id}"}
    if format == "anthropic":
        block = {"type": "tool_result", "tool_use_id": id, "content": f"result {id}"}
        return {"role": "user", "content": [block]}
    return {"type": "function_call_output", "call_id": id, "output": f"result {id}"}


def answered(session: Session, format: str, *calls: str) -> None:
    """A turn in which the model has said words and made calls."""
    with session.turn("hello", format=format) as turn:
        turn.add(whole(format, *calls))


def told(session: Session) -> list[tuple[str, list[str]]]:
    found = []
    for message in session.transcript():
        if message.role == "assistant":
            found.append((message.text, [call.call_id for call in message.calls]))
    return found


FORMATS = ["openai.chat", "anthropic", "openai.responses"]


@pytest.mark.parametrize("fresh", [False, True], ids=["same handle", "other handle"])
@pytest.mark.parametrize("format", FORMATS)
def test_words_and_calls_that_come_back_as_several_are_one_message(
    store: holdfast.Store, format: str, fresh: bool
) -> None:
    session = store.session("k")
    answered(session, format, "c1", "c2")
    sent = [HELLO, *pieces(format, "c1", "c2"), result(format, "c1"), result(format, "c2")]
    for number, more in enumerate([[], [assistant("Done.")], [{"role": "user", "content": "So?"}]]):
        sent = [*copy.deepcopy(sent), *more]
        if fresh:
            session = store.get(session.id)
        new = session.record(sent, format=format).new
        assert len(new) == (1 if number else 2)
    assert told(session) == [(WORDS, ["c1", "c2"]), ("Done.", [])]


@pytest.mark.parametrize("format", FORMATS)
def test_calls_that_come_back_each_with_its_result_are_one_message(
    store: holdfast.Store, format: str
) -> None:
    session = store.session("k")
    answered(session, format, "c1", "c2")
    words, first, second = pieces(format, "c1", "c2")
    sent = [HELLO, words, first, result(format, "c1"), second, result(format, "c2")]
    assert len(session.record(sent, format=format).new) == 2
    sent = [*copy.deepcopy(sent), assistant("Done."), {"role": "user", "content": "So?"}]
    assert len(session.record(sent, format=format).new) == 2
    assert told(session) == [(WORDS, ["c1", "c2"]), ("Done.", [])]
    said = [message.text for message in session.transcript()]
    assert said == ["hello", WORDS, "result c1", "result c2", "Done.", "So?"]


@pytest.mark.parametrize("which", ["words", "calls", "all"])
def test_items_that_have_kept_some_of_their_ids_are_one_message(
    store: holdfast.Store, which: str
) -> None:
    format = "openai.responses"
    session = store.session("k")
    answered(session, format, "c1", "c2")
    words, first, second = pieces(format, "c1", "c2")
    stored = whole(format, "c1", "c2")
    if which in ("words", "all"):
        words = stored[0]
    if which in ("calls", "all"):
        first, second = stored[1:]
    sent = [HELLO, words, first, result(format, "c1"), second, result(format, "c2")]
    assert len(session.record(sent, format=format).new) == 2
    assert session.record(copy.deepcopy(sent), format=format).new == ()
    assert told(session) == [(WORDS, ["c1", "c2"])]


def test_pieces_with_thoughts_between_them_are_one_message(store: holdfast.Store) -> None:
    format = "openai.responses"
    session = store.session("k")
    thoughts: Payload = {"id": "rs_1", "type": "reasoning", "summary": []}
    with session.turn("hello", format=format) as turn:
        turn.add([thoughts, *whole(format, "c1")])
    words, call = pieces(format, "c1")
    sent = [HELLO, {**thoughts, "id": "rs_1"}, words, call, result(format, "c1")]
    assert len(session.record(sent, format=format).new) == 1
    assert told(session) == [(WORDS, ["c1"])]


@pytest.mark.parametrize("format", ["openai.chat", "anthropic"])
def test_the_context_has_the_message_in_one_piece(store: holdfast.Store, format: str) -> None:
    session = store.session("k")
    answered(session, format, "c1")
    session.record([HELLO, *pieces(format, "c1"), result(format, "c1")], format=format)
    assert session.context(format)[1:] == [whole(format, "c1"), result(format, "c1")]


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_words_with_another_call_are_another_message(
    store: holdfast.Store, format: str
) -> None:
    session = store.session("k")
    answered(session, format, "c1")
    sent = [HELLO, *pieces(format, "c1"), result(format, "c1"), *pieces(format, "c2")]
    session.record(sent, format=format)
    assert told(session) == [(WORDS, ["c1"]), (WORDS, []), ("", ["c2"])]


@pytest.mark.parametrize("format", FORMATS)
def test_many_answers_in_the_same_words_are_told_by_their_calls(
    store: holdfast.Store, format: str
) -> None:
    session = store.session("k")
    calls = [f"c{number}" for number in range(20)]
    for call in calls:
        with session.turn("hello", format=format) as turn:
            turn.add(whole(format, call))
            turn.add(result(format, call))
    sent: list[Payload] = []
    # Its head was cut off.
    for call in calls[12:]:
        sent += [HELLO, *pieces(format, call), result(format, call)]
    assert session.record(sent, format=format).new == ()
    assert told(session) == [(WORDS, [call]) for call in calls]


def test_results_that_come_back_one_by_one_are_not_news(store: holdfast.Store) -> None:
    format = "anthropic"
    session = store.session("k")
    both = [result(format, id)["content"][0] for id in ("c1", "c2")]
    session.record(
        [HELLO, whole(format, "c1", "c2"), {"role": "user", "content": both}], format=format
    )
    sent = [HELLO, whole(format, "c1", "c2"), result(format, "c1"), result(format, "c2")]
    assert session.record(sent, format=format).new == ()


def test_pieces_of_what_was_recorded_as_several_stay_several(store: holdfast.Store) -> None:
    format = "anthropic"
    session = store.session("k")
    sent = [HELLO, *pieces(format, "c1"), result(format, "c1")]
    assert len(session.record(sent, format=format).new) == 4
    assert store.get(session.id).record(copy.deepcopy(sent), format=format).new == ()
    assert told(session) == [(WORDS, []), ("", ["c1"])]


@pytest.mark.parametrize("format", FORMATS)
def test_pieces_that_are_said_again_after_a_rewind_are_new(
    store: holdfast.Store, format: str
) -> None:
    session = store.session("k")
    sent = [HELLO, *pieces(format, "c1"), result(format, "c1")]
    answered(session, format, "c1")
    assert len(session.record(sent, format=format).new) == 1
    session.rewind(next(iter(session.transcript())).id)
    again = copy.deepcopy(sent)
    session.record(again, format=format)
    assert session.record(copy.deepcopy(again), format=format).new == ()
    assert store.get(session.id).record(copy.deepcopy(again), format=format).new == ()
    # A handle that has gone back itself says it anew, whole or in its pieces.
    assert told(session)[1:] in ([(WORDS, []), ("", ["c1"])], [(WORDS, ["c1"])])


def test_pieces_with_other_ids_are_other_messages(store: holdfast.Store) -> None:
    format = "openai.responses"
    session = store.session("k")
    answered(session, format, "c1")
    words, call = whole(format, "c1")
    again = [{**words, "id": "msg_2"}, {**call, "id": "fc_2"}]
    sent = [HELLO, words, call, result(format, "c1"), *again]
    assert len(session.record(sent, format=format).new) == 3
    # Without the first, too: what has another id is another message.
    sent = [HELLO, {**words, "id": "msg_3"}, {**call, "id": "fc_3"}]
    assert len(session.record(sent, format=format).new) == 2


@pytest.mark.parametrize("fresh", [False, True], ids=["same handle", "other handle"])
@pytest.mark.parametrize("between", [False, True], ids=["results after", "results between"])
@pytest.mark.parametrize("first", ["words apart", "joined"])
@pytest.mark.parametrize("format", ["openai.chat", "anthropic"])
def test_calls_that_were_recorded_together_and_come_back_one_by_one_are_not_news(
    store: holdfast.Store, format: str, first: str, between: bool, fresh: bool
) -> None:
    """Whether a context shows them with the words before them or not."""
    session = store.session("k")
    calls = ["c1", "c2", "c3"]
    results = [result(format, id) for id in calls]
    if format == "anthropic":
        blocks = [each["content"][0] for each in results]
        results = [{"role": "user", "content": blocks}]
    said = [whole(format, *calls)]
    if first == "words apart":
        together = [block_call(id) for id in calls]
        said = [assistant(WORDS), assistant(together)]
        if format == "openai.chat":
            said[1] = assistant(None, tool_calls=[chat_call(id) for id in calls])
    session.record([HELLO, *said, *results, assistant("Done.")], format=format)
    words, *apart = pieces(format, *calls)
    answers = [result(format, id) for id in calls]
    sent = [HELLO, words, *apart, *answers, assistant("Done.")]
    if between:
        sent[2:-1] = [each for pair in zip(apart, answers, strict=True) for each in pair]
    for _ in range(2):
        if fresh:
            session = store.get(session.id)
        assert session.record(copy.deepcopy(sent), format=format).new == ()
    assert [call.call_id for call in session.calls()] == calls
    assert store.get(session.id).record(copy.deepcopy(sent), format=format).new == ()


THOUGHT = {"type": "thinking", "thinking": "Where is it?", "signature": "s1"}


@pytest.mark.parametrize(
    "rest",
    [
        [assistant("Done.")],
        [assistant([{**THOUGHT, "signature": "s2"}, {"type": "text", "text": "Done."}])],
        [assistant([block_call("c1")]), result("anthropic", "c1"), assistant("Done.")],
    ],
    ids=["words", "thoughts and words", "a call"],
)
def test_thoughts_that_stand_by_themselves_are_stored_once(
    store: holdfast.Store, rest: list[Payload]
) -> None:
    """A context shows them in one payload with what follows them."""
    sent = [HELLO, assistant([THOUGHT]), *rest]
    session = store.session("k")
    new = []
    for _ in range(3):
        again = store.get(session.id)
        new.append(len(again.record(copy.deepcopy(sent), format="anthropic").new))
    assert new == [len(sent), 0, 0]


@pytest.mark.parametrize("format", FORMATS)
def test_a_summary_that_is_joined_to_what_it_kept_is_stored_once(
    store: holdfast.Store, format: str
) -> None:
    """The view shows it before what was said long before it: there it is known."""
    ask, answer = {"role": "user", "content": "Where is it?"}, assistant("On its way.")
    session = store.session("k")
    session.record([HELLO, assistant("Hi."), ask, answer], format=format)
    sent = [{"role": "user", "content": "In short: hello.\n\nWhere is it?"}, answer]
    new = []
    for more in ([], [], [assistant("Here."), HELLO], [assistant("Hi again.")]):
        sent = [*copy.deepcopy(sent), *more]
        new.append(len(store.get(session.id).record(sent, format=format).new))
    assert new == [1, 0, 2, 1]


def test_results_of_one_payload_that_come_back_each_after_its_call_are_not_news(
    store: holdfast.Store,
) -> None:
    format, calls = "anthropic", ["c1", "c2", "c3"]
    words, *apart = pieces(format, *calls)
    answers = [result(format, id) for id in calls]
    together = {"role": "user", "content": [each["content"][0] for each in answers]}
    session = store.session("k")
    session.record([HELLO, words, *apart, together, assistant("Done.")], format=format)
    each = [one for pair in zip(apart, answers, strict=True) for one in pair]
    sent = [HELLO, words, *each, assistant("Done.")]
    for _ in range(2):
        again = store.get(session.id)
        assert again.record(copy.deepcopy(sent), format=format).new == ()


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("format", ["openai.chat", "anthropic"])
def test_calls_that_another_handle_has_put_into_one_message_are_shown_once(
    store: holdfast.Store, format: str, words: bool
) -> None:
    """A handle goes on with a list in which they stand as they were said, or in two pieces."""
    calls = ["c1", "c2"]
    said, *apart = pieces(format, *calls)
    answers = [result(format, id) for id in calls]
    session = store.session("k")
    each = [one for pair in zip(apart, answers, strict=True) for one in pair]
    session.record([HELLO, *[said] * words, *each, assistant("Done.")], format=format)
    both = assistant([block_call(id) for id in calls])
    if format == "openai.chat":
        both = assistant("", tool_calls=[chat_call(id) for id in calls])
    sent = [HELLO, *[said] * words, both, *answers, assistant("Done.")]
    handle = store.get(session.id)
    assert handle.record(sent, format=format).new == ()
    joined = [HELLO, whole(format, *calls) if words else both, *answers, assistant("Done.")]
    assert store.get(session.id).record(copy.deepcopy(joined), format=format).new == ()
    for more in ("One.", "Two."):
        sent += [{"role": "user", "content": more}]
        assert len(handle.record(sent, format=format).new) == 1
        for one in (handle, store.get(session.id)):
            # A second one would have been given another id.
            assert str(list(one.context(format))).count("'name': 'f'") == 2


def spoken(format: str, role: str, text: str) -> Payload:
    """A text as a client of this format writes it."""
    if format == "anthropic":
        return {"role": role, "content": [{"type": "text", "text": text}]}
    if format == "openai.responses":
        kind = "output_text" if role == "assistant" else "input_text"
        return {"role": role, "content": [{"type": kind, "text": text}]}
    return {"role": role, "content": text}


@pytest.mark.parametrize("fresh", [False, True], ids=["same handle", "other handle"])
@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("cut", [["A", "B\n\nC"], ["A\n\nB", "C"], ["A", "B", "C"]])
def test_a_text_that_comes_back_in_paragraphs_is_one_message(
    store: holdfast.Store, cut: list[str], format: str, role: str, fresh: bool
) -> None:
    session = store.session("k")
    before, behind = spoken(format, "user", "hello"), spoken(format, "user", "So?")
    session.record([before, spoken(format, role, "A\n\nB\n\nC"), behind], format=format)
    sent = [before, *[spoken(format, role, text) for text in cut], behind]
    for number in range(3):
        if fresh:
            session = store.get(session.id)
        more = [spoken(format, "assistant", f"Done {number}.")]
        sent = [*copy.deepcopy(sent), *more]
        assert len(session.record(sent, format=format).new) == 1
    said = [message.text for message in session.transcript()]
    assert said == ["hello", "A\n\nB\n\nC", "So?", "Done 0.", "Done 1.", "Done 2."]


@pytest.mark.parametrize(
    "after",
    [
        ["A\n\nB", "A", "B"],  # the whole is there, so these are said again
        ["A", "something else", "B"],
        ["B", "A"],
        ["A", "B", "A", "B"],  # one of these pairs is the message, the other is said again
    ],
)
def test_paragraphs_that_are_not_the_whole_text_are_messages(
    store: holdfast.Store, after: list[str]
) -> None:
    session = store.session("k")
    session.record([HELLO, assistant("A\n\nB")])
    session.record([HELLO, *map(assistant, after)])
    shown = [message["content"] for message in session.context("openai.chat")]
    assert "\n\n".join(shown) == "\n\n".join(["hello", *after])


def test_paragraphs_beside_the_whole_text_are_messages(store: holdfast.Store) -> None:
    session = store.session("k")
    session.record([HELLO, assistant("A\n\nB")])
    session.record([HELLO, *map(assistant, ["A", "B", "A\n\nB"])])
    assert [text for text, _ in told(session)] == ["A\n\nB", "A", "B"]


def test_a_text_in_paragraphs_that_another_message_claims_is_stored(store: holdfast.Store) -> None:
    session = store.session("k")
    two, ok = {"role": "user", "content": "two"}, {"role": "user", "content": "ok"}
    merged = {"role": "user", "content": "two\n\nI see."}
    session.record([two, assistant("ok\n\nyes"), merged, ok])
    seen = {"role": "user", "content": "I see."}
    joined = {"role": "user", "content": "two\n\nI see.\n\nok"}
    session.record(copy.deepcopy([two, seen, assistant("ok"), assistant("yes"), joined]))
    shown = [message["content"] for message in session.context("openai.chat")]
    assert shown[:2] == ["two\n\nI see.", "ok\n\nyes"]
    assert "\n\n".join(shown[2:]) == "two\n\nI see.\n\nok"
