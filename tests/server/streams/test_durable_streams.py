"""Durable Streams on the store: what may be done to a stream, and what is there after a kill.

`./dev streams` runs the protocol's public suite, all of it.
"""

import asyncio
import http.client
import json
import re
import signal
import socket
import threading
from collections import Counter

import pytest

import holdfast
from holdfast.server.durable import streams_of_tenant
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
from holdfast.server.durable.streams_of_tenant import TenantStreams
from thorough import few_cases
from wire_server import WireServer, new_token

LIMIT_S = 20
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


@pytest.mark.parametrize("body", [b"NaN", b"[1, -Infinity]", b'{"a": Infinity}', b"1e400"])
def test_what_no_reader_of_json_can_read_is_refused(body):
    """Python reads it. One such value, and the array that it is told in is no JSON for anybody else."""
    log = _log(content_type="application/json")
    assert _refused(log, _asked(body, content_type="application/json"))[0] == 400
    with pytest.raises(StreamRefusal):
        packed(body, is_json=True, is_first=True)


def test_half_of_a_character_is_told_as_json_in_utf_8():
    kept = packed('["\\ud83d", "\\ud83d\\ude00é"]'.encode(), is_json=True)
    assert shown([kept], is_json=True).decode() == '["\\ud83d","😀é"]'
    assert beginning(kept, 1, is_json=True) == b'"\\ud83d",'


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


@pytest.mark.slow
@pytest.mark.parametrize("starts", [1, 2], ids=["one server", "started again"])
def test_the_address_of_a_stream_whose_session_is_over_can_be_used_again(tmp_path, starts):
    """Whether it was deleted or has forks, and whether its session was ended or erased."""
    with WireServer(tmp_path / "s.db") as server:
        paths = []
        for way in ("end", "erase"):
            for state in ("as-it-was", "deleted", "forked"):
                paths.append(path := f"{state}/{way}")
                assert _stream(server, "PUT", path, "secret").status == 201
                if state == "deleted":
                    assert _stream(server, "DELETE", path).status == 204
                elif state == "forked":
                    fork = {"Stream-Forked-From": f"/v1/stream/{path}"}
                    assert _stream(server, "PUT", f"fork/{way}", headers=fork).status == 201
                key = f"/v1/sessions?key=durable-stream:{path}"
                [session] = server.ask("GET", key).done["items"]
                ending = {"preview": False} if way == "erase" else {"reason": "over"}
                done = server.ask("POST", f"/v1/sessions/{session['id']}/{way}", ending)
                assert done.status == 200
        if starts == 2:
            server.kill()
            server.start()
        for path in paths:
            assert _stream(server, "GET", path).status == 404
            assert _stream(server, "POST", path, "more").status == 404
            assert _stream(server, "PUT", path, "mine").status == 201
            assert _stream(server, "GET", path).body == "mine"
        for way in ("end", "erase"):
            assert _stream(server, "DELETE", f"fork/{way}").status == 204


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


def _counted(server):
    """How many requests were answered, by method and pattern; and how many were timed."""
    told = server.ask("GET", "/metrics").body
    line = r'^holdfast_requests_total{method="(.*)",path="(.*)",status=".*"} (\d+)$'
    counts = Counter()
    for method, path, count in re.findall(line, told, re.M):
        counts[method, path] += int(count)
    timed = re.search(r"^holdfast_request_seconds_count (\d+)$", told, re.M)
    return counts, int(timed[1]), "under_way 2\n" in told


def _watched(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    told = {"Authorization": f"Bearer {server.key}", "Holdfast-Protocol": "1"}
    body = json.dumps({"sessions": {}, "wait_s": 0.01})
    told["Content-Type"] = "application/json"
    connection.request("POST", "/v1/engine/watch", body, told)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.slow
def test_what_waits_or_goes_on_is_counted_by_its_pattern_and_not_timed(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        for path in ("waited-for", "told"):
            assert _stream(server, "PUT", path, "a").status == 201
        heard = []

        def wait():
            path = f"waited-for?offset={written(1)}&live=long-poll"
            heard.append(_stream(server, "GET", path).status)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not _counted(server)[2]:
            pass
        assert _stream(server, "POST", "waited-for", "b").status == 204
        waiting.join(LIMIT_S)
        assert _stream(server, "POST", "told", headers={"Stream-Closed": "true"}).status == 204
        assert "data:a" in _stream(server, "GET", "told?offset=-1&live=sse").body
        assert _watched(server) == 200
        assert heard == [200]
        counts, timed, _ = _counted(server)
    untimed = {("GET", "/v1/stream/{path}"): 2, ("POST", "/v1/engine/watch"): 1}
    assert {each: counts[each] for each in untimed} == untimed
    assert counts["POST", "/v1/stream/{path}"] == counts["PUT", "/v1/stream/{path}"] == 2
    assert timed == counts.total() - 3


@pytest.mark.slow
def test_a_server_that_is_told_to_end_does_not_wait_for_a_reader_that_takes_nothing(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        assert _stream(server, "PUT", "large", "x" * 10_000_000).status == 201
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            head = "GET /v1/stream/large?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n"
            deaf.sendall(f"{head}Authorization: Bearer {server.key}\r\n\r\n".encode())
            assert deaf.recv(1) == b"H"
            _, said = server.end()
            assert said == ""


def test_who_leaves_while_it_waits_for_two_streams_holds_none(tmp_path):
    """Else whoever comes for one of them would wait for ever."""

    async def wait_and_leave():
        async with holdfast.open_async(tmp_path / "s.db") as store:
            streams = TenantStreams(store)

            async def change(*paths):
                async with streams.alone(*paths):
                    return paths

            async with streams.alone("b"):
                waiting = asyncio.create_task(change("a", "b"))
                first = streams._lock("a")
                while not first.locked():
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
                return waiting.cancelled(), await asyncio.wait_for(change("a"), LIMIT_S)

    assert asyncio.run(wait_and_leave()) == (True, ("a",))


def test_a_stream_that_is_being_read_lives_on_however_many_others_are(tmp_path, monkeypatch):
    """Each read extends its time, and only this process knows of them."""
    monkeypatch.setattr(streams_of_tenant, "KNOWN_MAX", 1)

    async def read():
        async with holdfast.open_async(tmp_path / "s.db") as store:
            streams = TenantStreams(store)
            for path in ("a", "b", "c"):
                created = StreamCreated("text/plain", ttl_s=1)
                await streams.write(await streams.fresh(path), lambda _, made=created: [made])
            being_read = await streams.find("a")
            being_read.last_at = streams.now + 3_600_000
            for path in ("b", "c"):
                await streams.find(path)
            return await streams.get("a") is being_read

    assert asyncio.run(read())


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with WireServer(tmp_path_factory.mktemp("named") / "s.db") as server:
        yield server
