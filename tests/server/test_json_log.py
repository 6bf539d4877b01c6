"""Logs for machines: each line is an object, each request has one, and nobody's words are in any."""

import http.client
import json
import logging
import subprocess
import sys
from contextlib import suppress

from clients import chat_script
from holdfast.server.serving.json_log import JsonLines
from proxy_world import KEY, ProxyProcess, provider
from wire_server import ask

SECRET = "the code is 7F3K"


def test_each_request_is_a_line_and_no_word_of_it_is(tmp_path):
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", str(tmp_path / "s.db")]
    served = subprocess.Popen(
        [*command, "--port", "0", "--log", "json", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        told = json.loads(served.stdout.readline())
        port, token = int(told["address"].rpartition(":")[2]), told["token"]
        turn = ask(port, token, "POST", "/v1/turns", {"key": SECRET, "message": SECRET}).done
        session = turn["session_id"]
        ask(port, token, "GET", f"/v1/sessions/{session}/transcript").done  # noqa: B018
        assert ask(port, "hf_wrong", "GET", f"/v1/sessions/{session}").status == 401
        assert ask(port, token, "GET", f"/v1/nothing?{session}").status == 404
    finally:
        served.terminate()
        _, log = served.communicate(timeout=60)
    lines = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line["logger"] == "holdfast.requests"]
    assert [(each["method"], each["path"], each["status"]) for each in requests] == [
        ("POST", "/v1/turns", 201),
        ("GET", "/v1/sessions/{session}/transcript", 200),
        ("other", "other", 401),
        ("other", "other", 404),
    ]
    assert all(each["ms"] >= 0 and each["at"].endswith("Z") for each in requests)
    for words in (SECRET, "7F3K", token, "hf_wrong", session):
        assert words not in log


def test_each_request_of_a_proxy_is_a_line_that_says_whether_it_was_answered_whole(tmp_path):
    asked = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": SECRET}], "stream": True}
    )
    headers = {"Holdfast-Session": SECRET, "Authorization": f"Bearer {KEY}"}
    with (
        provider() as upstream,
        ProxyProcess(tmp_path / "a.db", upstream, "--log", "json") as proxy,
    ):
        script = chat_script(["Hel", "lo."])
        # The second is cut off in the middle: behind its mark of the end, nothing would be missing.
        for said, ending in ((script, "well"), (script[:2], "cut")):
            upstream.answer(said, ending=ending)
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
            connection.request("POST", f"/v1/chat/completions?q={SECRET[:3]}", asked, headers)
            with suppress(http.client.HTTPException, ConnectionError):
                assert connection.getresponse().read()
            connection.close()
        upstream.answer_whole({"data": []})
        assert ask(proxy.port, None, "GET", f"/v1/models/{SECRET[-4:]}").status == 200
        _, log = proxy.end()
    requests = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in requests if line["logger"] == "holdfast.requests"]
    facts = ("method", "path", "status", "whole")
    assert [tuple(each[name] for name in facts) for each in requests] == [
        ("POST", "/chat/completions", 200, True),
        ("POST", "/chat/completions", 200, False),
        ("other", "other", 200, True),
    ]
    for words in (SECRET, "7F3K", KEY, "Hel"):
        assert words not in log


def test_an_error_is_told_by_its_kind_alone():
    try:
        raise ValueError(SECRET)
    except ValueError:
        record = logging.LogRecord(
            "holdfast.server", logging.ERROR, __file__, 1, "a %s", ("bug",), sys.exc_info()
        )
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["message"], line["error"]) == ("error", "a bug", "ValueError")
    assert SECRET not in json.dumps(line)
