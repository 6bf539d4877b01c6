"""OpenViking's client, and answers that leave it open what was done: looked for, and waited for."""

import socket
import ssl
from http.client import HTTPConnection

import pytest

from holdfast.adapters.openviking.client.visit import Visit
from viking_clients import KEY, add, client_of

TASK = {"archived": True, "task_id": "t"}
STRANGE = [
    None,
    {},
    [],
    "done",
    {"session_id": KEY, "message_count": "x", "archived": "maybe", "task_id": []},
    {"message_count": True, "archived": 0},
    {"archived": True},
    {"archived": True, "task_id": 7, "archive_uri": None},
    {**TASK, "archive_uri": "viking://elsewhere"},
    {**TASK, "task_id": "", "archive_uri": "viking://user/u/sessions/s/history/archive_001"},
]


pytestmark = pytest.mark.usefixtures("impatient")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["orphan", "proxy"])
@pytest.mark.parametrize("what", ["message", "commit"])
def test_what_goes_on_behind_a_proxy_is_waited_for(viking, store, fault, what):
    viking.slow_s = 0.6
    with client_of(viking, store, grace_s=3) as client:
        add(client, "m0")
        assert client.flush()
        viking.next(fault)
        if what == "commit":
            client.commit(KEY)
        add(client, "m1")
        assert client.flush()
        viking.wait_until_idle()
        assert client.report(KEY).lost == []
    assert viking.everything(KEY) == ["m0", "m1"]
    assert viking.archives(KEY) == ([["m0"]] if what == "commit" else [])


@pytest.mark.parametrize("fault", ["", "error", "busy", "hiccup"])
def test_what_openviking_says_itself_is_not_waited_for(viking, store, fault):
    """With a grace of a day: whatever were in doubt would not be sent."""
    with client_of(viking, store, grace_s=86_400) as client:
        if fault:
            viking.next(fault)
        else:
            viking.kill()
        add(client, "m0")
        assert not client.flush(0)
        if not fault:
            viking.start()
        assert client.flush()
        viking.next(fault or "busy")
        commit = client.commit(KEY)
        assert commit.wait(20).state == "completed"
    assert viking.archives(KEY) == [["m0"]]


UNTRUSTED = ssl.SSLCertVerificationError()
UNTRUSTED.verify_message = "self-signed certificate"  # as a real handshake sets it
UNSENT = {
    "nobody listens": ConnectionRefusedError(),
    "nobody answers": TimeoutError(),
    "no such name": socket.gaierror(),
    "a name that is none": UnicodeError("label empty or too long"),
    "no handshake": ssl.SSLError(),
    "the certificate is another's": UNTRUSTED,
    "broken before the first byte": BrokenPipeError(),
}


@pytest.mark.parametrize("what", ["message", "commit"])
@pytest.mark.parametrize("trouble", UNSENT)
def test_what_was_never_sent_is_not_waited_for(viking, store, monkeypatch, trouble, what):
    """Neither by this client nor by the next one, which knows only what is stored: with a grace of a
    day, whatever were in doubt would not be sent.
    """
    fails = "send" if isinstance(UNSENT[trouble], BrokenPipeError) else "connect"
    about_to_send = Visit.about_to_send

    def unsendable(visit):
        about_to_send(visit)
        if fails == "connect":
            visit.http.close()
        patched.setattr(HTTPConnection, fails, fail)

    def fail(connection, *data):
        raise UNSENT[trouble]

    with client_of(viking, store, grace_s=86_400) as client:
        add(client, "m0")
        assert client.flush()
        if what == "commit":
            client.commit(KEY)
        add(client, "m1")
        with monkeypatch.context() as patched:
            patched.setattr(Visit, "about_to_send", unsendable)
            assert not client.flush(0)
    with client_of(viking, store, grace_s=86_400) as next:
        next.resume()
        assert next.flush(5)
    assert viking.everything(KEY) == ["m0", "m1"]
    assert viking.archives(KEY) == ([["m0"]] if what == "commit" else [])


def test_a_refusal_of_a_proxy_is_not_waited_for(viking, store, monkeypatch):
    """One that takes no large requests: the messages go in smaller ones."""
    answer = viking.answer

    def small(method, path, body):
        is_large = method == "POST" and len(body["messages"]) > 2
        return (413, None) if is_large else answer(method, path, body)

    monkeypatch.setattr(viking, "answer", small)
    with client_of(viking, store, grace_s=86_400) as client:
        add(client, *"abcdefgh")
        assert client.flush()
    assert viking.live(KEY) == [*"abcdefgh"]


@pytest.mark.parametrize("what", ["message", "commit"])
@pytest.mark.parametrize("fault", ["strange", "liar"])
@pytest.mark.parametrize("result", STRANGE, ids=str)
def test_an_answer_that_is_not_openvikings_is_not_believed(viking, store, fault, result, what):
    viking.strange = result
    with client_of(viking, store, grace_s=0.2) as client:
        if what == "commit":
            add(client, "m0")
            assert client.flush()
            viking.next(fault)
            commit = client.commit(KEY)
        else:
            viking.next(fault)
            add(client, "m0")
            assert client.flush()
        add(client, "m1")
        if what == "commit":
            assert commit.wait(20).state == "completed"
        assert client.flush()
        assert client.report(KEY).lost == []
    assert viking.everything(KEY) == ["m0", "m1"]
    assert viking.archives(KEY) == ([["m0"]] if what == "commit" else [])
    asked = [path for _, path in viking.requests]
    assert not [path for path in asked if "None" in path or "tasks/t" in path or "[" in path]


@pytest.mark.parametrize("result", [None, [], {"messages": 3}, {"status": 7}, "x"], ids=str)
def test_what_is_read_and_is_not_openvikings_says_nothing(viking, store, monkeypatch, result):
    """Of sessions, contexts, archives and tasks, each asked for when there is something to send."""
    answer = viking.answer
    is_strange = []

    def strange(method, path, body):
        return (200, result) if is_strange and method == "GET" else answer(method, path, body)

    monkeypatch.setattr(viking, "answer", strange)
    with client_of(viking, store, grace_s=0.1) as client:
        add(client, "m0")
        commit = client.commit(KEY)
        is_strange.append(1)
        client.flush(0.1)
        add(client, "m1")
        client.flush(0.1)
        assert commit.report().state in ("owed", "accepted")
        is_strange.clear()
        assert client.flush()
        assert commit.wait(20).state == "completed"
        assert client.report(KEY).lost == []
    assert viking.archives(KEY) == [["m0"]] and viking.live(KEY) == ["m1"]
