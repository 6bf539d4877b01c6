"""Requests that are too large, or whose lists can't be read: refused, or passed on and told in the log."""

import gzip
import json
import logging
import zlib
from http.client import HTTPConnection
from pathlib import Path

import pytest

from holdfast.server.proxy.answers import InflatedTooLarge, plain_body
from holdfast.server.proxy.dialects import CHAT
from proxied_samples import say, whole
from proxy_world import LIMIT_S, keys, provider, proxied

SECRET = "words-that-no-log-has"


def post(port: int, raw: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("POST", "/v1/chat/completions", raw, headers)
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, told, answer.read()
    finally:
        connection.close()


def asked(text: str) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_what_a_compressed_request_becomes_has_the_same_limit(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    store = tmp_path / "a.db"
    encoding = {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
    with provider() as upstream, proxied(store, upstream, bytes_max=100_000) as port:
        status, headers, body = post(port, pack(asked("a" * 100_000)), **encoding)
        assert status == 413 and headers["x-should-retry"] == "false"
        assert json.loads(body)["error"]["code"] == "too_large" and upstream.seen.empty()
        upstream.answer_whole(whole(CHAT, [say(CHAT, "Hello.")]))
        status, headers, _ = post(port, pack(asked("a" * 90_000)), **encoding)
        assert status == 200 and "holdfast-session-id" in headers
    assert keys(store) == ["proxy:…"]


def test_no_more_is_inflated_than_may_be() -> None:
    many = gzip.compress(b"a" * 600) * 3
    assert plain_body("gzip", many, 1800) == b"a" * 1800
    for most in (0, 599, 600, 1799):
        with pytest.raises(InflatedTooLarge):
            plain_body("gzip", many, most)


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        pytest.param(b'{"messages": [{"role": "user", "content": "caf\xe9 %s"}]}', {}, id="bytes"),
        pytest.param(b'{"messages": [{"role": "user", "content": "%s"}],}', {}, id="comma"),
        pytest.param(b'{"messages": "%s"}', {}, id="no list"),
        pytest.param(b'["%s"]', {}, id="no object"),
        pytest.param(b'{"messages": [{"role": "wizard", "content": "%s"}]}', {}, id="role"),
        pytest.param(b'{"messages": ["%s"], "x": ' + b"[" * 200_000, {}, id="nested"),
        pytest.param(b"%s", {"Content-Encoding": "zstd"}, id="encoding"),
        pytest.param(b"%s", {"Content-Encoding": "gzip"}, id="no gzip"),
    ],
)
def test_a_list_that_passes_unstored_is_told_in_the_log(
    tmp_path: Path, raw: bytes, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "a.db"
    raw = raw.replace(b"%s", SECRET.encode())
    with provider(strict=False) as upstream, proxied(store, upstream) as port:
        # The provider says what is wrong with it; what it says passes.
        upstream.answer_whole({"error": {"message": "No."}}, status=400)
        with caplog.at_level(logging.WARNING, "holdfast.proxy"):
            status, told, _ = post(port, raw, **headers)
        assert status == 400 and upstream.seen.get(timeout=LIMIT_S).raw == raw
    assert "holdfast-session-id" not in told and keys(store) == []
    [line] = [record.getMessage() for record in caplog.records if record.name == "holdfast.proxy"]
    assert line == "a request passes that can't be read: /chat/completions"
