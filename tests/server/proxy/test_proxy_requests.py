"""What a request is, before anything is stored: whose session, which kind, which conversation."""

import gzip
import json
import tracemalloc
from typing import Any

import pytest

from holdfast.errors import BadArgument
from holdfast.server.proxy.answers import (
    AnswerReader,
    EventReader,
    EventTooLarge,
    is_code,
    looks_like_events,
    whole_chunks,
    whole_events,
)
from holdfast.server.proxy.app import passed_headers
from holdfast.server.proxy.dialects import (
    ANTHROPIC,
    CHAT,
    RESPONSES,
    Dialect,
    Request,
    dialect_of,
    error_body,
    read_request,
)
from holdfast.server.proxy.kinds import Before, kind_of, told_kind
from holdfast.server.proxy.list_index import ListIndex
from holdfast.server.proxy.marks import chains, marks_of
from holdfast.server.proxy.naming import NamedSession, name_of
from holdfast.server.proxy.upstream import end_to_end, origin_of
from proxied_samples import AGENTS, sent


def request(dialect: Dialect = CHAT, **body: Any) -> Request:
    if dialect is RESPONSES:
        body.setdefault("input", [{"role": "user", "content": "Hi"}])
    else:
        body.setdefault("messages", [{"role": "user", "content": "Hi"}])
    found = read_request(dialect, json.dumps(body).encode())
    assert found is not None
    return found


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def model(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


class TestDialects:
    def test_a_path_tells_the_dialect(self) -> None:
        assert dialect_of("POST", "/v1/chat/completions") is CHAT
        assert dialect_of("POST", "/v1/responses") is RESPONSES
        assert dialect_of("POST", "/v1/messages/") is ANTHROPIC
        for path in ("/v1/messages/count_tokens", "/v1/messages/batches", "/v1/models", "/"):
            assert dialect_of("POST", path) is None
        assert dialect_of("GET", "/v1/responses") is None

    def test_instructions_stand_before_the_list(self) -> None:
        blocks = [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325.4fb;"},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ]
        found = request(ANTHROPIC, system=blocks)
        assert found.messages == [{"role": "system", "content": "Be brief."}, user("Hi")]
        found = request(RESPONSES, instructions="Be brief.", input="Hi")
        assert found.messages == [{"role": "system", "content": "Be brief."}, user("Hi")]
        assert request(messages=[{"role": "system", "content": "S"}]).instructions == "S"

    def test_what_is_no_list_of_messages_is_nothing(self) -> None:
        for raw in (b"", b"[]", b"{", b'{"messages": "x"}', b'{"messages": ["x"]}', b"\xff"):
            assert read_request(CHAT, raw) is None
        assert read_request(CHAT, b"[" * 200_000) is None

    def test_marks_for_a_cache_are_not_kept(self) -> None:
        marked = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
        plain = request(ANTHROPIC, messages=[user("Hi")]).messages
        assert (
            request(ANTHROPIC, messages=[{"role": "user", "content": [marked]}]).messages == plain
        )

    def test_an_error_speaks_the_dialect(self) -> None:
        assert json.loads(error_body(ANTHROPIC, "No.", "c"))["type"] == "error"
        assert json.loads(error_body(CHAT, "No.", "c"))["error"]["message"] == "No."


class TestNaming:
    @pytest.mark.parametrize(
        ("headers", "body", "key"),
        [
            ({"holdfast-session": "mine", "agent-session-id": "1"}, {"user": "u"}, "mine"),
            ({"x-session-id": "s1"}, {"user": "u"}, "s1"),
            ({}, {"metadata": {"session_id": "m1"}, "user": "u"}, "m1"),
            ({"agent-session-id": "20261115_6"}, {}, "goose:20261115_6"),
            ({"x-claude-code-session-id": "c"}, {}, "claude-code:c"),
            (
                {"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"},
                {},
                "claude-code:c/agent:a",
            ),
            ({"holdfast-session": "mine", "x-claude-code-agent-id": "a"}, {}, "mine/agent:a"),
            ({}, {"metadata": {"user_id": '{"session_id": "c2"}'}}, "claude-code:c2"),
            ({}, {"metadata": {"user_id": "user_f_account_a_session_c3"}}, "claude-code:c3"),
            ({"x-codex-turn-metadata": "{}", "thread-id": "t"}, {}, "codex:t"),
        ],
    )
    def test_a_strong_name(self, headers: dict[str, str], body: Any, key: str) -> None:
        name = name_of(headers, request(**body))
        assert name is not None and (name.key, name.is_strong) == (key, True)

    @pytest.mark.parametrize(
        ("body", "key"),
        [
            ({"user": "ada"}, "ada"),
            ({"prompt_cache_key": "k", "user": "ada"}, "k"),
            ({"metadata": {"user_id": "ada"}}, "ada"),
            ({"metadata": {"user_id": '{"broken'}}, '{"broken'),
        ],
    )
    def test_a_weak_name(self, body: Any, key: str) -> None:
        assert name_of({}, request(**body)) == NamedSession(key, is_strong=False)

    def test_a_conversation_of_the_provider_is_a_name(self) -> None:
        name = name_of({}, request(RESPONSES, conversation={"id": "conv_1"}))
        assert name is not None and name.key == "conv_1"

    def test_no_name(self) -> None:
        assert (
            name_of({"session-id": "s", "user-agent": "x"}, request(user="", metadata=[])) is None
        )

    def test_a_name_that_can_be_no_key_is_one_all_the_same(self) -> None:
        for odd in ("a\nb", "x" * 1000, " a "):
            name = name_of({"holdfast-session": odd}, request())
            assert name is not None and name.key.startswith("~") and len(name.key) == 33


class TestMarks:
    def test_what_clients_put_around_words_counts_for_nothing(self) -> None:
        plain = marks_of([user("Fix it.")])
        reminded = "<system-reminder>\nA reminder\n</system-reminder>\n Fix  it.\n"
        assert marks_of([user(reminded)]) == plain
        assert marks_of([user("Fix it.\n<turn-context>now</turn-context>")]) == plain
        blocks = [{"type": "text", "text": "Fix it.", "cache_control": {}}]
        assert marks_of([{"role": "user", "content": blocks}]) == plain
        assert marks_of([{"role": "system", "content": "anywhere"}, user("Fix it.")]) == plain

    def test_calls_are_known_by_their_ids_however_they_are_split(self) -> None:
        calls = [{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ("a", "b")]
        together = marks_of([{"role": "assistant", "content": None, "tool_calls": calls}])
        split = marks_of(
            [{"role": "assistant", "content": "", "tool_calls": [call]} for call in calls]
        )
        assert together == split == (("call", "a"), ("call", "b"))
        result = {"role": "tool", "tool_call_id": "a", "content": "out"}
        assert marks_of([result]) == (("result", "a"),)

    def test_words_beside_results_count(self) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": "a", "content": "out"},
            {"type": "text", "text": "And now?"},
        ]
        marks = marks_of([{"role": "user", "content": blocks}])
        assert marks == (("result", "a"), ("user", "And now?"))

    def test_a_chain_for_each_answer_the_longest_first(self) -> None:
        marks = marks_of([user("1"), model("2"), user("3"), model("4"), user("5")])
        assert chains(marks)[1] == chains(marks[:2])[0]
        assert len(chains(marks)) == 2


class TestListIndex:
    def test_a_list_that_goes_on_is_the_same_session(self) -> None:
        index = ListIndex()
        index.learn("", "s1", marks_of([user("Hi")]), marks_of([model("Hello.")]))
        assert index.find("", marks_of([user("Hi"), model("Hello."), user("A?")])) == "s1"
        # The same first words again are another conversation.
        assert index.find("", marks_of([user("Hi")])) is None
        assert index.find("ada", marks_of([user("Hi"), model("Hello."), user("A?")])) is None

    def test_the_same_opening_is_the_same_session_until_it_is_settled(self) -> None:
        index = ListIndex()
        index.learn("", "s1", marks_of([user("Hi")]), is_open=True)
        assert index.find("", marks_of([user("Hi")])) == "s1"
        index.learn("", "s1", marks_of([user("Hi")]), marks_of([model("Hello.")]))
        assert index.find("", marks_of([user("Hi")])) is None
        # Unless the client says that it tries again.
        assert index.find("", marks_of([user("Hi")]), is_retry=True) == "s1"

    def test_of_two_that_said_the_same_one_whose_tip_it_is(self) -> None:
        index = ListIndex()
        said = marks_of([user("Hi")]), marks_of([model("Hello.")])
        index.learn("", "s1", *said)
        index.learn("", "s2", *said)
        index.learn(
            "", "s2", marks_of([user("Hi"), model("Hello."), user("A?")]), marks_of([model("A.")])
        )
        index.learn("", "s1", *said)
        assert index.find("", marks_of([user("Hi"), model("Hello."), user("B?")])) == "s1"

    def test_who_goes_on_from_a_session_as_it_is_does_not_change_another(self) -> None:
        index = ListIndex()
        said = marks_of([user("Hi")]), marks_of([model("Hello.")])
        index.learn("", "s1", *said)
        index.learn("", "s2", *said)
        on = [user("Hi"), model("Hello."), user("A?")]
        assert index.find("", marks_of(on)) == "s2"
        # While that is being answered, and afterwards.
        index.learn("", "s2", marks_of(on), is_open=True)
        other = marks_of([user("Hi"), model("Hello."), user("B?")])
        assert index.find("", other) == "s1"
        assert index.find("", marks_of(on)) == "s2"
        index.learn("", "s2", marks_of(on), marks_of([model("A.")]))
        assert index.find("", other) == "s1"
        # A change is one of the session that has the most of the list.
        changed = [*on, model("A."), user("C?")]
        assert index.find("", marks_of([*changed, model("C."), user("D?")])) == "s2"
        index.learn("", "s2", marks_of(changed), marks_of([model("C.")]))
        assert index.find("", marks_of([*changed[:-1], user("E?")])) == "s2"

    def test_ids_of_calls_that_two_have_used_tell_nothing_by_themselves(self) -> None:
        index = ListIndex()
        call = {"id": "call_1", "function": {"name": "f", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "call_1", "content": "out"}
        lists = {key: [user(key), model("Hello."), user("Go."), asked, result] for key in "ab"}
        for key, said in lists.items():
            index.learn("", key, marks_of(said), marks_of([model("Done.")]))
        for key, said in lists.items():
            assert index.find("", marks_of([*said, model("Done."), user("More.")])) == key

    def test_calls_say_more_than_words(self) -> None:
        index = ListIndex()
        call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        index.learn("", "s1", marks_of([user("Hi")]), marks_of([asked]))
        result = {"role": "tool", "tool_call_id": "c1", "content": "out"}
        assert index.find("", marks_of([user("reworded"), asked, result])) == "s1"

    def test_a_list_without_its_head_is_told_by_the_newest_words_of_one(self) -> None:
        index = ListIndex()
        said = [user("A?"), model("A."), user("B?"), model("B."), user("C?")]
        index.learn("", "k", marks_of(said), marks_of([model("C.")]))
        cut = [*said[2:], model("C."), user("D?")]
        assert index.find("", marks_of(cut)) == "k"
        assert index.find("other", marks_of(cut)) is None
        # Too few, not the newest, or words besides: nobody's.
        assert index.find("", marks_of(cut[2:])) is None
        assert index.find("", marks_of([*said[2:], user("D?")])) is None
        assert index.find("", marks_of([user("X?"), *cut[1:]])) is None
        # The same list again.
        index.learn("", "k", marks_of(cut), is_open=True)
        assert index.find("", marks_of(cut)) == "k"
        # Of two with the same end it is neither.
        index.learn("", "k", marks_of(cut), marks_of([model("D.")]))
        index.learn("", "l", marks_of([user("Z?"), model("Z."), *cut]), marks_of([model("D.")]))
        assert index.find("", marks_of([*cut[2:], model("D."), user("E?")])) is None

    def test_it_knows_so_many_and_no_more(self) -> None:
        index = ListIndex(most=2)
        for number in range(4):
            index.learn("", f"s{number}", marks_of([user("Hi")]), marks_of([model(str(number))]))
        found = [index.find("", marks_of([user("Hi"), model(str(n)), user("?")])) for n in range(4)]
        assert found == [None, None, "s2", "s3"]


class TestKinds:
    @pytest.mark.parametrize("agent", AGENTS)
    def test_side_calls_of_real_agents_tell_what_they_are(self, agent: str) -> None:
        found = []
        for each in sent(agent):
            kind = told_kind(each.headers, each.request, marks_of(each.request.messages))
            found.append({None: ".", "title": "T", "compaction": "C"}[kind])
        assert (
            "".join(found)
            == {
                "claude-code-2.1.325-interactive": "T.T..",
                "claude-code-2.1.325-print": "...........CC..",
                "codex-0.166": "......C.C....",
                "goose": "T.T......C.",
                "hermes-0.19": "......",
            }[agent]
        )

    def test_an_agent_without_tools_is_aside(self) -> None:
        name = NamedSession("goose:1", client="goose")
        assert kind_of(request(), name, marks_of([user("Hi")]), None) == "aside"
        assert kind_of(request(tools=[{}]), name, marks_of([user("Hi")]), None) == "turn"

    def test_a_summary_of_hermes_and_a_warm_up(self) -> None:
        asked = [user("You are a summarization agent creating a summary.")]
        assert told_kind({}, request(messages=asked), marks_of(asked)) == "compaction"
        assert told_kind({}, request(RESPONSES, generate=False), ()) == "warm-up"
        warm = {"x-codex-turn-metadata": '{"request_kind": "prewarm"}'}
        assert told_kind(warm, request(RESPONSES), ()) == "warm-up"

    def test_json_with_a_title_and_nothing_else_is_a_title(self) -> None:
        schema = {"type": "object", "properties": {"title": {"type": "string"}}}
        shape = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}
        asked = request(response_format=shape)
        assert told_kind({}, asked, marks_of(asked.messages)) == "title"
        schema["properties"]["author"] = {"type": "string"}  # type: ignore[index]
        asked = request(response_format=shape)
        assert told_kind({}, asked, marks_of(asked.messages)) is None

    def test_a_person_may_ask_for_a_title(self) -> None:
        said = [user("Hi"), model("Hello."), user("Generate a short title for my book.")]
        assert told_kind({}, request(messages=said), marks_of(said)) is None

    def test_the_list_before_decides_what_the_request_does_not_tell(self) -> None:
        marks = marks_of([user("A?")])
        before = Before(marks, marks_of([model("A.")]), is_answered=True, has_tools=True)
        grown = marks_of([user("A? Now summarise.")])
        tools = request(tools=[{}])
        # Answered, and asked again with more words: somebody wants a summary.
        assert kind_of(tools, None, grown, before) == "compaction"
        # Not answered: the next prompt was joined to the one before.
        assert kind_of(tools, None, grown, before._replace(is_answered=False)) == "turn"
        assert kind_of(tools, None, marks, before) == "turn"
        on = marks_of([user("A?"), model("A."), user("B?")])
        assert kind_of(tools, None, on, before) == "turn"
        assert kind_of(request(), None, on, before) == "turn"
        # Without tools, where there had been some, and not the same list: aside.
        assert kind_of(request(), None, marks_of([user("Name this.")]), before) == "aside"

    def test_one_question_under_other_instructions_is_aside(self) -> None:
        before = Before(marks_of([user("A?")]), is_answered=True, instructions="Be kind.")
        name = NamedSession("mine")
        other = request(messages=[{"role": "system", "content": "Rate this."}, user("A.")])
        assert kind_of(other, name, marks_of([user("A.")]), before) == "aside"
        # Under the same, it is a list that was begun again.
        same = request(messages=[{"role": "system", "content": "Be kind."}, user("B?")])
        assert kind_of(same, name, marks_of([user("B?")]), before) == "turn"

    def test_words_behind_results_that_were_answered_ask_for_a_summary(self) -> None:
        result = {"type": "tool_result", "tool_use_id": "a", "content": "out"}
        call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        said: list[Any] = [user("A?"), {"role": "assistant", "content": [call]}]
        marks = marks_of([*said, {"role": "user", "content": [result]}])
        before = Before(marks, marks_of([model("Done.")]), is_answered=True, has_tools=True)
        more = [result, {"type": "text", "text": "Tell it in short."}]
        grown = marks_of([*said, {"role": "user", "content": more}])
        assert kind_of(request(tools=[{}]), None, grown, before) == "compaction"


class TestAnswers:
    def test_events_are_whole_or_held_back(self) -> None:
        raw = b'data: {"a": 1}\n\nevent: x\ndata: {"b":\ndata:  2}\r\n\r\n: ping\n\ndata: {"c'
        for size in (1, 2, 3, 7, len(raw)):
            reader, events, passed = EventReader(""), [], b""
            for start in range(0, len(raw), size):
                found, data = reader.feed(raw[start : start + size])
                events += found
                passed += data
            assert events == ['{"a": 1}', '{"b":\n 2}']
            assert passed + reader.rest() == raw and passed == raw[:-9]

    def test_characters_that_only_look_like_line_breaks(self) -> None:
        raw = 'data: "a\u2028b\x0bc"\n\n'.encode()
        assert whole_events(raw) == (['"a\u2028b\x0bc"'], len(raw))

    def test_an_event_without_an_end_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdfast.server.proxy.answers.EVENT_MAX", 1000)
        reader = EventReader("")
        assert reader.feed(b"data: 1\n\n" * 500)[1] == b"data: 1\n\n" * 500
        with pytest.raises(EventTooLarge):
            for _ in range(20):
                reader.feed(b"data: " + b"x" * 100 + b"\n")

    def test_a_large_event_is_not_copied_for_each_of_its_pieces(self) -> None:
        reader, piece, count, made = EventReader(""), b"x" * 65_536, 64, 0
        reader.feed(b"data: ")
        tracemalloc.start()
        try:
            for _ in range(count):
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                assert reader.feed(piece) == ([], b"")
                made += tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        # Twice what was fed, and room; a copy for each piece makes half of its square.
        assert made < 8 * count * len(piece)
        events, passed = reader.feed(b"\n\n")
        assert events == ["x" * count * len(piece)]
        assert passed == b"data: " + piece * count + b"\n\n"

    def test_compressed_bytes_pass_when_all_that_is_in_them_is_whole(self) -> None:
        packed = gzip.compress(b"data: 1\n\n" * 50 + b"data: 2\n\n")
        reader, passed, events = EventReader("gzip"), b"", []
        for byte in packed:
            found, data = reader.feed(bytes([byte]))
            events += found
            passed += data
        assert passed == packed and len(events) == 51

    @pytest.mark.parametrize(
        ("dialect", "data", "ends"),
        [
            (CHAT, "[DONE]", True),
            (CHAT, '{"choices": [{"finish_reason": "stop"}]}', True),
            (CHAT, '{"choices": [{"finish_reason": null}]}', False),
            (CHAT, '{"choices": [{"index": 1, "finish_reason": "stop"}]}', True),
            (CHAT, '{"choices": [{"index": 1, "finish_reason": "stop"}, {"index": 0}]}', False),
            (ANTHROPIC, '{"type": "message_stop"}', True),
            (ANTHROPIC, '{"type": "message_delta"}', False),
            (RESPONSES, '{"type": "response.completed", "response": {"id": "r"}}', True),
            (RESPONSES, '{"type": "response.created", "response": {"id": "r"}}', False),
            (RESPONSES, "not json", False),
        ],
    )
    def test_its_own_mark_ends_an_answer(self, dialect: Dialect, data: str, ends: bool) -> None:
        reader = AnswerReader(dialect)
        reader.read([data])
        assert (reader.is_ended, reader.error) == (ends, None)

    def test_an_error_among_events(self) -> None:
        for dialect, data, error in (
            (CHAT, {"error": {"type": "server_error"}}, "server_error"),
            (
                ANTHROPIC,
                {"type": "error", "error": {"type": "overloaded_error"}},
                "overloaded_error",
            ),
            (RESPONSES, {"type": "error", "code": "rate_limit"}, "error"),
            (RESPONSES, {"type": "response.failed", "response": {"error": {"code": "x"}}}, "x"),
        ):
            reader = AnswerReader(dialect)
            reader.read([json.dumps(data)])
            assert reader.is_ended and reader.error == error

    def test_a_beginning_tells_whether_a_body_is_events(self) -> None:
        for begun in (
            b"data: {",
            b"event: x\n",
            b": ping\n\n",
            b"\xef\xbb\xbf\r\nid: 1",
            b"\n\ndata:",
        ):
            assert looks_like_events(begun) is True
        for begun in (b"", b"\n", b"da", b"event", b"\xef\xbb\xbf"):
            assert looks_like_events(begun) is None
        for begun in (b"{", b'{"data":', b"[", b"<html>", b"dates", b" data:"):
            assert looks_like_events(begun) is False

    def test_what_looks_like_the_name_of_an_error(self) -> None:
        for told in ("rate_limit_exceeded", "overloaded_error", "429", "invalid_base64_image"):
            assert is_code(told)
        for told in ("", "Bad key", "sk-abc", "a1b2c3d4", "x" * 21, "12345", "a-1b", "Rate_Limit"):
            assert not is_code(told)

    def test_what_is_no_message_gives_no_chunks(self) -> None:
        assert whole_chunks(CHAT, {"object": "list"}) == []
        assert whole_chunks(RESPONSES, {"status": "failed", "output": []}) == []
        assert whole_chunks(ANTHROPIC, {"type": "error"}) == []


class TestPassedOn:
    def test_headers_of_one_connection_and_ours_stay_here(self) -> None:
        given = [
            (b"Connection", b"keep-alive, X-Mine"),
            (b"X-Mine", b"1"),
            (b"Holdfast-Session", b"s"),
            (b"holdfast-token", b"t"),
            (b"Authorization", b"Bearer k"),
            (b"Accept-Encoding", b"zstd, gzip;q=0.5, br"),
            (b"X-Other", b"2"),
        ]
        assert end_to_end(passed_headers(given)) == [
            (b"authorization", b"Bearer k"),
            (b"accept-encoding", b"gzip;q=0.5"),
            (b"x-other", b"2"),
        ]
        assert passed_headers([(b"accept-encoding", b"br")]) == [(b"accept-encoding", b"identity")]

    @pytest.mark.parametrize(
        ("address", "path", "named"),
        [
            ("https://api.openai.com", "/v1/models", b"api.openai.com"),
            ("https://api.openai.com/v1", "/v1/models", b"api.openai.com"),
            ("https://api.openai.com/v1/", "/v1/models", b"api.openai.com"),
            ("http://127.0.0.1:8080", "/v1/models", b"127.0.0.1:8080"),
            ("https://openrouter.ai/api", "/api/v1/models", b"openrouter.ai"),
            ("http://[::1]:80", "/v1/models", b"[::1]"),
        ],
    )
    def test_where_a_provider_is(self, address: str, path: str, named: bytes) -> None:
        origin = origin_of(address)
        assert (origin.path("/v1/models"), origin.named) == (path, named)

    @pytest.mark.parametrize("address", ["", "api.openai.com", "ftp://x", "http://", "http://x:y"])
    def test_what_is_no_address_is_refused(self, address: str) -> None:
        with pytest.raises(BadArgument):
            origin_of(address)
