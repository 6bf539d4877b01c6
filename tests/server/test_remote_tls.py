"""A store that a server has, over TLS: who can't show that it is the server that was meant is told nothing."""

import asyncio
import select
import socket
import ssl
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

import holdfast
from holdfast.engine.remote.http_connection import RawConnection
from holdfast.errors import BadArgument, StoreUnavailable
from holdfast.server.app import Settings, make_app
from remote_server import TOKEN, TOKENS
from wire_server import served_in_thread

TLS = Path(__file__).parents[1] / "samples" / "tls"
CA = TLS / "authority.pem"


@contextmanager
def served(folder, certificate="server.pem"):
    """A server with this certificate; its port."""

    def make(opened):
        app = make_app(opened, Settings(tokens=TOKENS))
        return uvicorn.Server(
            uvicorn.Config(app, log_level="critical", ssl_certfile=TLS / certificate)
        )

    with served_in_thread(folder / "served.db", make) as port:
        yield port


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with served(tmp_path_factory.mktemp("tls")) as listening:
        yield listening


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_store_is_worked_with_over_tls(port, host):
    with holdfast.open(f"https://{host}:{port}", token=TOKEN, ca=CA) as store:
        session = store.session(host)
        with session.turn("Hello.") as turn:
            assert list(turn.deliver(["Good ", "day."])) == ["Good ", "day."]
        assert [message.text for message in session.transcript()] == ["Hello.", "Good day."]


def test_a_follower_is_told_what_others_write(port):
    url = f"https://127.0.0.1:{port}"
    with (
        holdfast.open(url, token=TOKEN, ca=str(CA)) as mine,
        holdfast.open(url, token=TOKEN, ca=CA) as other,
    ):
        session = mine.session("followed")
        following = session.follow()
        assert next(following).entry.kind == "opened"
        told = []
        reader = threading.Thread(target=lambda: told.append(next(following)))
        reader.start()
        other.get(session.id).append("Here.")
        reader.join(30)
        assert told[0].text == "Here."


def test_the_async_store_takes_the_same(port):
    async def look():
        url = f"https://127.0.0.1:{port}"
        async with holdfast.open_async(url, token=TOKEN, ca=CA) as store:
            session = await store.session("async")
            await session.append("Hello.")
            return [message.text async for message in session.transcript()]

    assert asyncio.run(look()) == ["Hello."]


def test_a_server_that_nobody_vouches_for_is_not_told_the_token(port):
    with pytest.raises(StoreUnavailable, match="certificate is not to be trusted") as refused:
        holdfast.open(f"https://127.0.0.1:{port}", token=TOKEN)
    assert "`ca`" in str(refused.value) and TOKEN not in str(refused.value)


def test_a_certificate_of_another_place_is_refused(tmp_path):
    with served(tmp_path, "elsewhere.pem") as port:
        with pytest.raises(StoreUnavailable, match="is not valid for '127.0.0.1'"):
            holdfast.open(f"https://127.0.0.1:{port}", token=TOKEN, ca=CA)


def test_a_server_that_speaks_no_tls_is_told(port, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.engine.remote.engine.OPENING_S", 0.0)
    with pytest.raises(StoreUnavailable):
        holdfast.open(f"http://127.0.0.1:{port}", token=TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.listen()
        answering = threading.Thread(target=_answers_in_plain_words, args=(plain,))
        answering.start()
        with pytest.raises(StoreUnavailable, match="no connection"):
            holdfast.open(f"https://127.0.0.1:{plain.getsockname()[1]}", token=TOKEN, ca=CA)
        answering.join(30)


def _answers_in_plain_words(listener):
    said, _ = listener.accept()
    with said:
        said.recv(1000)
        said.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


def test_what_tls_says_by_itself_is_no_answer_to_nothing(port):
    """A server sends tickets after the handshake: the connection is not taken for a spoilt one."""
    trusts = ssl.create_default_context(cafile=CA)
    parts = urlsplit(f"https://127.0.0.1:{port}")
    connection = RawConnection(parts, {}, timeout_s=30, trusts=trusts)
    assert connection.connect() is None
    assert select.select([connection._connection.sock], [], [], 30)[0]
    for _ in range(3):
        assert connection.ask("GET", "/health").status == 200
    assert connection.made == 1
    connection.close()


@pytest.mark.parametrize(
    ("where", "ca", "says"),
    [
        ("https://127.0.0.1:1", "nowhere.pem", "certificates"),
        ("https://127.0.0.1:1", __file__, "certificates"),
        ("http://127.0.0.1:1", CA, "https"),
        ("agent.db", CA, "https"),
        ("https://127.0.0.1:1", 7, "path"),
    ],
)
def test_a_wrong_authority_is_told_before_anybody_is_asked(tmp_path, monkeypatch, where, ca, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match=says) as refused:
        holdfast.open(where, ca=ca)
    assert refused.value.parameter == "ca"
    assert list(tmp_path.iterdir()) == []
