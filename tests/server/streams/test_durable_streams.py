"""Durable Streams on the store: what may be done to a stream, and what is there after a kill.

`./dev streams` runs the protocol's public suite, all of it.
"""

import http.client
import json
import signal
import threading

import pytest

from holdfast.server.durable.stream_log import (
    Append,
    StreamAppended,
    StreamCreated,
    StreamDeleted,
    StreamForked,
    StreamLog,
    StreamRefusal,
    StreamUnforked,
    beginning,
    inherited,
    is_same,
    judge,
    packed,
    read_offset,
    shown,
    written,
)
from thorough import few_cases
from wire_server import WireServer, new_token

TEXT = {"Content-Type": "text/plain"}


def _log(*records, content_type="text/plain"):
    log = StreamLog()
    for place, record in enumerate((StreamCreated(content_type), *records), 1):
        log.fold(record, place)
    return log


def _asked(data=b"x", producer=None, seq=None, close=False, content_type="text/plain"):
    return Append(data, content_type, producer, seq, close)


def _refused(log, asked):
    with pytest.raises(StreamRefusal) as caught:
        judge(log, asked)
    return caught.value.status, caught.value.headers


def test_offsets_count_bytes_and_sort_as_text():
    log = _log(StreamAppended(b"one"), StreamAppended(b"three"))
    assert (log.ends, log.places, log.tail) == ([3, 8], [2, 3], 8)
    assert [log.first_after(offset) for offset in (0, 2, 3, 8)] == [0, 0, 1, 2]
    texts = [written(offset) for offset in (0, 9, 10, 10**15)]
    assert texts == sorted(texts) and [read_offset(text) for text in texts] == [0, 9, 10, 10**15]


def test_a_producer_is_believed_once_in_order_and_in_its_newest_epoch():
    log = _log(StreamAppended(b"a", ("p", 1, 0)), StreamAppended(b"b", ("p", 1, 1)))
    again = judge(log, _asked(producer=("p", 1, 0)))
    assert (again.record, again.status, again.headers["Producer-Seq"]) == (None, 204, "1")
    assert judge(log, _asked(producer=("p", 1, 2))).status == 200
    gap = {"Producer-Expected-Seq": "2", "Producer-Received-Seq": "4"}
    assert _refused(log, _asked(producer=("p", 1, 4))) == (409, gap)
    assert _refused(log, _asked(producer=("p", 0, 2))) == (403, {"Producer-Epoch": "1"})
    assert _refused(log, _asked(producer=("p", 2, 1)))[0] == 400
    assert judge(log, _asked(producer=("p", 2, 0))).record.producer == ("p", 2, 0)
    assert _refused(log, _asked(producer=("other", 0, 3)))[0] == 409


def test_a_closed_stream_takes_nothing_more_and_knows_who_closed_it():
    log = _log(StreamAppended(b"last", ("p", 0, 0), close=True))
    told = judge(log, _asked(b"last", ("p", 0, 0), close=True))
    assert (told.record, told.status, told.headers["Stream-Closed"]) == (None, 204, "true")
    assert judge(log, _asked(b"", close=True)).status == 204
    assert _refused(log, _asked())[1]["Stream-Next-Offset"] == written(4)
    assert _refused(log, _asked(producer=("p", 0, 1)))[0] == 409
    assert _refused(_log(StreamDeleted()), _asked())[0] == 410


def test_what_does_not_fit_the_stream_is_refused():
    assert _refused(_log(), _asked(content_type="application/json"))[0] == 409
    assert judge(_log(), _asked(content_type="Text/Plain; charset=utf-8")).status == 204
    assert _refused(_log(StreamAppended(b"a", seq="2")), _asked(seq="10"))[0] == 409
    log = _log(content_type="application/json")
    for body in (b"{", b"[]", b"\xff", b"[" * 100_000):
        assert _refused(log, _asked(body, content_type="application/json"))[0] == 400


def test_json_is_kept_as_values():
    kept = packed(b'[{"a": 1}, [2],\n "\\u00e9"]', is_json=True)
    assert kept == '{"a":1},[2],"é",'.encode()
    assert shown([kept, b"3,"], is_json=True) == '[{"a":1},[2],"é",3]'.encode()
    assert shown([], is_json=True) == b"[]" and packed(b"[]", is_json=True, is_first=True) == b""
    assert beginning(kept, 2, is_json=True) == b'{"a":1},[2],'
    assert beginning(b"hello", 3, is_json=False) == b"hel"


def test_a_fork_has_what_its_source_had_up_to_an_offset():
    log = _log(StreamAppended(b"one"), StreamAppended(b"three"))
    assert inherited(log, None, 0) == (2, 0) and inherited(log, 3, 2) == (1, 2)
    for offset, sub in ((9, 0), (8, 1), (None, 1)):
        with pytest.raises(StreamRefusal):
            inherited(log, offset, sub)
    log.fold(StreamForked("a"), 4)
    log.fold(StreamForked("b"), 5)
    log.fold(StreamUnforked("a"), 6)
    assert log.forks == {"b"}


def test_a_stream_is_created_again_if_it_is_the_same():
    log = _log()
    same = StreamCreated("TEXT/plain; charset=utf-8")
    assert is_same(log, same, closed=False, has_offset=False)
    for other in (StreamCreated("text/html"), StreamCreated("text/plain", ttl_s=1)):
        assert not is_same(log, other, closed=False, has_offset=False)
    assert not is_same(log, same, closed=True, has_offset=False)


def _stream(server, method, path, body=None, **more):
    headers = {**TEXT, **more.pop("headers", {})}
    token = more.pop("token", server.key)
    raw = None if body is None else body.encode()
    return server.ask(method, f"/v1/stream/{path}", raw=raw, headers=headers, token=token, **more)


def _producer(epoch, seq):
    return {"Producer-Id": "p", "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


@pytest.mark.slow
def test_what_was_answered_is_there_after_a_kill_and_a_producer_is_not_doubled(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        assert _stream(server, "PUT", "a/b", "one ").status == 201
        assert _stream(server, "POST", "a/b", "two ", headers=_producer(0, 0)).status == 200
        server.kill()
        server.start()
        # Its answer was lost, for all it knows.
        assert _stream(server, "POST", "a/b", "two ", headers=_producer(0, 0)).status == 204
        closing = {**_producer(0, 1), "Stream-Closed": "true"}
        done = _stream(server, "POST", "a/b", "three", headers=closing)
        assert done.status == 200 and done.headers["stream-closed"] == "true"
        told = _stream(server, "GET", "a/b")
        assert told.body == "one two three" and told.headers["stream-closed"] == "true"
        assert _stream(server, "POST", "a/b", "more").status == 409
        assert _stream(server, "GET", f"a/b?offset={written(8)}").body == "three"
        _live_reads_end(server)


def _live_reads_end(server):
    """When the server is told to end, and at once."""
    _stream(server, "PUT", "live", "a")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    path = "/v1/stream/live?offset=-1&live=sse"
    connection.request("GET", path, headers={"Authorization": f"Bearer {server.key}"})
    answer = connection.getresponse()
    assert b"event: data\ndata:a\n\nevent: control\n" in answer.read1(1000)
    server.process.send_signal(signal.SIGTERM)
    answer.read()
    connection.close()
    assert server.process.wait(60) == -signal.SIGTERM
    assert server.process.stderr.read() == ""


@pytest.mark.slow
def test_of_two_servers_at_once_each_number_of_a_producer_is_stored_once(database):
    """I-2, through the head's guard: who decided from an old state decides again."""
    with WireServer(database) as one, WireServer(database) as other:
        _stream(one, "PUT", "shared")
        heard, statuses = [], [[], []]

        def write(number, server):
            for seq in range(10):
                while True:
                    answer = _stream(server, "POST", "shared", f"{seq} ", headers=_producer(0, seq))
                    if answer.status != 409:
                        break
                statuses[number].append(answer.status)

        def read():
            path = f"shared?offset={written(0)}&live=long-poll"
            heard.append(_stream(other, "GET", path))

        busy = [threading.Thread(target=read)]
        busy += [threading.Thread(target=write, args=each) for each in enumerate((one, other))]
        for each in busy:
            each.start()
        for each in busy:
            each.join(60)
        assert heard[0].status == 200 and heard[0].body.startswith("0 ")
        whole = "".join(f"{seq} " for seq in range(10))
        assert _stream(one, "GET", "shared").body == whole
        assert _stream(other, "GET", "shared").body == whole
        assert sorted(statuses[0] + statuses[1]) == [200] * 10 + [204] * 10


@pytest.mark.slow
def test_a_stream_is_its_tenants_own_and_an_erased_one_is_gone(tmp_path):
    tokens = tmp_path / "tokens"
    keys = {name: new_token(tokens, name, "admin") for name in ("one", "other")}
    reader = new_token(tokens, "one", "read")
    with WireServer(tmp_path / "s.db", "--tokens", tokens, key=keys["one"]) as server:
        assert _stream(server, "PUT", "a", "secret").status == 201
        assert _stream(server, "GET", "a", token=keys["other"]).status == 404
        assert _stream(server, "PUT", "a", "mine", token=keys["other"]).status == 201
        assert _stream(server, "GET", "a").body == "secret"
        assert _stream(server, "GET", "a", token=reader).body == "secret"
        assert _stream(server, "POST", "a", "x", token=reader).status == 403
        assert server.ask("OPTIONS", "/v1/stream/a", token=None).status == 204
        [session] = server.ask("GET", "/v1/sessions?key=durable-stream:a").done["items"]
        erase = f"/v1/sessions/{session['id']}/erase"
        assert json.dumps(server.ask("POST", erase, {"preview": False}).done)
        assert _stream(server, "GET", "a").status in (404, 410)


@pytest.mark.parametrize(
    "path", ["a%20b", "%C3%A4", "%E2%82%AC/x", "a%3Fb", "a%23b", "100%25", "%F0%9F%8C%8A"]
)
def test_a_stream_with_any_name_is_told_where_it_is(served, path):
    """Its address comes back percent-encoded, as a header can have it, and leads to the stream; a
    fork may be asked for by it.
    """
    made = served.ask("PUT", f"/v1/stream/{path}", raw=b"hello", headers=TEXT)
    assert made.status == 201
    address = made.headers["location"]
    assert address.isascii() and address.endswith(f"/v1/stream/{path}")
    there = address.removeprefix(f"http://127.0.0.1:{served.port}")
    assert served.ask("GET", there).body == "hello"
    fork = {"Stream-Forked-From": there}
    assert served.ask("PUT", f"/v1/stream/fork/{path}", headers=fork).status == 201
    assert served.ask("GET", f"/v1/stream/fork/{path}").body == "hello"
    assert served.ask("DELETE", f"/v1/stream/fork/{path}").status == 204
    assert served.ask("DELETE", there).status == 204


@few_cases(every=2)
@pytest.mark.parametrize(
    "path", ["%ff", "%ed%a0%80", "a%00b", "a%0d%0ab", "a%0ab", "a%7Fb", "%C2%85"]
)
def test_what_is_no_name_is_refused_before_a_stream_is_made(served, path):
    known = served.ask("GET", "/v1/sessions").done["items"]
    for method in ("PUT", "POST", "GET", "DELETE"):
        told = served.ask(method, f"/v1/stream/{path}", raw=b"hello", headers=TEXT)
        # No address has a line break in it.
        assert told.status == (404 if "%0a" in path else 400)
    source = {"Stream-Forked-From": f"/v1/stream/{path}"}
    assert served.ask("PUT", "/v1/stream/a-fork", headers=source).status == 400
    assert served.ask("GET", "/v1/sessions").done["items"] == known


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with WireServer(tmp_path_factory.mktemp("named") / "s.db") as server:
        yield server
