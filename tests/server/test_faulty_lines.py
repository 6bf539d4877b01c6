"""The laws of the engines through HTTP, on a line that loses, delays and cuts: nothing is lost, doubled or
misplaced, by the ledgers of the clients (I-2, I-3, I-4, I-5, I-6, I-15).
"""

import asyncio
import http.client
import itertools
import random
import threading

import pytest

import holdfast
from event_reader import EventReader, words
from faulty_line import FaultyLine, Trouble
from holdfast.engine.protocol import Opening, Write, Written
from holdfast.engine.remote import calls
from holdfast.engine.remote.engine import RemoteEngine
from holdfast.errors import StoreUnavailable
from holdfast.runtime.clock import RealWorld
from holdfast.testing.conformance.builders import drafts, named
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from holdfast.testing.oracle import judge
from line_pusher import LinePusher
from remote_server import OPERATOR, TOKEN, KilledServer
from servers import waiting_until
from thorough import few_cases
from wire_ledger import LossyClient, WireLedger
from wire_server import WireServer, new_token

pytestmark = pytest.mark.slow

CUTS = (100, 1000, 10_000, 100_000)
TROUBLES = {
    "late": Trouble(latency_s=0.002, jitter_s=0.004),
    "narrow": Trouble(bytes_per_s=300_000),
    "cut on the way there": lambda dice: Trouble(cut_up=dice.choice(CUTS)),
    "cut on the way back": lambda dice: Trouble(cut_down=dice.choice(CUTS)),
    "closed late": lambda dice: Trouble(cut_down=dice.choice(CUTS), slow_close_s=0.05),
}


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with KilledServer(tmp_path_factory.mktemp("remote") / "agent.db") as running:
        yield running


@few_cases(every=2)
@pytest.mark.parametrize("name", TROUBLES)
def test_a_whole_life_over_such_a_line_is_stored_once(tmp_path, name):
    """The client that `holdfast.open` gives, sync."""
    with KilledServer(tmp_path / "agent.db") as server, FaultyLine(server.port) as line:
        line.trouble = TROUBLES[name]
        life = ScriptedWorkload()
        life.live(line.url, token=TOKEN)
        assert life.troubles == []
        assert line.lost > 0 or not name.startswith("cut")
        with holdfast.open(server.url, token=TOKEN) as store:
            assert judge(store, life.acknowledged) == []


def test_many_tasks_over_a_line_that_is_cut_all_the_time(remote):
    """The client that `holdfast.open_async` gives: what a delivery has yielded is in the transcript, once."""
    shown: dict[str, list[str]] = {}
    progress: list[str] = []
    over = threading.Event()

    async def talk(store, key):
        for number in range(4):
            async with await store.turn(key, f"ask {key} {number}") as turn:
                said = []
                async for text in turn.deliver([f"{key}-{number}", " and", " more"]):
                    said.append(text)
                    progress.append(text)
            shown.setdefault(key, []).append("".join(said))

    async def live(url):
        async with holdfast.open_async(url, token=TOKEN) as store:
            await asyncio.gather(*(talk(store, f"task {number}") for number in range(6)))

    with FaultyLine(remote.port) as line:

        def spoil():
            # Not before something was stored again: nobody could do more than ask again.
            for faults in itertools.count(1):
                if faults % 2:
                    line.cut_all()
                else:
                    line.lose_next(b"/engine/commit")
                before = len(progress)
                while len(progress) < before + 3:
                    if over.wait(0.01):
                        return

        spoiler = threading.Thread(target=spoil)
        spoiler.start()
        try:
            asyncio.run(live(line.url))
        finally:
            over.set()
            spoiler.join()
    with holdfast.open(remote.url, token=TOKEN) as store:
        assert judge(store) == []
        for key, answers in shown.items():
            expected = []
            for number, answer in enumerate(answers):
                assert answer == f"{key}-{number} and more"
                expected += [f"ask {key} {number}", answer]
            assert [each.text for each in store.session(key).transcript()] == expected


def test_a_half_open_line_is_given_up_and_what_was_sent_on_it_is_stored_once(remote, monkeypatch):
    """Nothing comes back and nobody is told: the client waits for as long as it waits, and asks again."""
    monkeypatch.setattr(calls, "ANSWER_S", 0.5)
    with FaultyLine(remote.port) as line:
        engine = RemoteEngine(line.url, token=OPERATOR, chance=RealWorld().chance)
        engine.commit([(Write(named(7), drafts=drafts(), open=Opening("red", None, 1)),)])
        given = []
        for _ in range(3):
            line.deafen()
            draft = drafts()
            [outcome] = engine.commit([(Write(named(7), drafts=draft),)])
            assert isinstance(outcome, Written)
            given.append(draft[0].id)
        assert [entry.id for entry in engine.entries(named(7), after=1)] == given
        engine.close()


def test_a_server_that_stands_still_is_given_up_after_two_tries(tmp_path, monkeypatch):
    """Each try waits for as long as any answer may take: thirty of them would be half an hour."""
    monkeypatch.setattr(calls, "ANSWER_S", 0.5)
    with KilledServer(tmp_path / "agent.db") as server:
        engine = RemoteEngine(server.url, token=OPERATOR, chance=RealWorld().chance)
        engine.commit([(Write(named(1), drafts=drafts(), open=Opening("red", None, 1)),)])
        tries, post = [], engine._calls.post
        engine._calls.post = lambda *a, **b: tries.append(a[0]) or post(*a, **b)
        server.freeze()
        with pytest.raises(StoreUnavailable, match="not known whether it was stored"):
            engine.commit([(Write(named(1), drafts=drafts()),)])
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            engine.state(named(1))
        assert tries == ["commit"] * 2 + ["state"] * 2
        engine.close()


def test_a_commit_that_arrives_after_it_was_sent_again_done_and_forgotten_is_not_done_once_more(
    tmp_path, monkeypatch
):
    """A first try waits somewhere in the line. The second one is answered, the server is killed and
    started, and then the first one arrives.
    """
    monkeypatch.setattr(calls, "ANSWER_S", 1.0)
    with KilledServer(tmp_path / "agent.db") as server, FaultyLine(server.port) as line:
        engine = RemoteEngine(line.url, token=OPERATOR, chance=RealWorld().chance)
        engine.commit([(Write(named(1), drafts=drafts(), open=Opening("red", None, 1)),)])
        held = line.hold_next(b"/engine/commit")
        [outcome] = engine.commit([(Write(named(1), drafts=drafts()),)])
        assert held.caught.is_set()
        assert outcome == Written(2)
        server.kill()
        server.start()
        held.release()
        assert held.answered.wait(60)
        assert len(engine.entries(named(1))) == 2
        # It has learnt which process answers now.
        assert engine.commit([(Write(named(1), drafts=drafts()),)]) == [Written(3)]
        engine.close()


@few_cases(every=2)
@pytest.mark.parametrize("name", ["cut on the way there", "cut on the way back", "answers lost"])
def test_what_is_asked_again_with_its_key_is_done_once(tmp_path, name):
    ledger = WireLedger("k")
    with WireServer(tmp_path / "s.db") as server, FaultyLine(server.port) as line:
        client = _Spoiled(line, server.key, ledger, name)
        client.work(turns=4)
        assert client.tries > 40
        assert line.lost >= 10
        assert ledger.contradictions(_transcript(server, "k")) == []


class _Spoiled(LossyClient):
    """A client whose every request but each third meets trouble."""

    def __init__(self, line, token, ledger, name):
        super().__init__(lambda: [line.port], token, ledger)
        self._line, self._name, self._dice = line, name, random.Random(5)

    def ask(self, path, body, **more):
        fate = self._dice.randrange(3)
        if self._name == "answers lost" and fate:
            self._line.lose_next(path.encode())
        elif fate:
            # A head has some 150 bytes, an answer's some 450: in it, behind it, and in the body.
            cut = self._dice.choice((0, 60, 170, 230, 460, 520))
            there = self._name.endswith("there")
            spoiled = Trouble(cut_up=cut) if there else Trouble(cut_down=cut)
            self._line.trouble = spoiled
            threading.Timer(0.1, self._mend).start()
        return super().ask(path, body, **more)

    def _mend(self):
        self._line.trouble = Trouble()


def _transcript(server, key):
    """All that was said under a key, in all of its sessions, oldest first."""
    page = server.ask("GET", f"/v1/sessions?key={key}").done["items"]
    found = []
    for each in reversed(page):
        for _ in waiting_until("its turns are over"):
            path = f"/v1/sessions/{each['id']}"
            if server.ask("GET", path).done["running"] is None:
                break
        found += [text for text, _ in server.texts(each["id"])]
    return found


def test_keys_outlive_the_server_that_took_them(tmp_path):
    """Each answer is lost, and the server killed, before it is asked again: messages, several at once
    among them, an acceptance and a start are there once, and other words under the same key are refused.
    """
    key = {"Idempotency-Key": "once"}
    with WireServer(tmp_path / "s.db") as server:
        session = server.ask("POST", "/v1/sessions", {"key": "k"}).done["id"]
        asked = [
            (f"/v1/sessions/{session}/messages", {"messages": ["a", "b", "c"]}),
            ("/v1/inbox", {"key": "other", "message": "d"}),
            ("/v1/turns", {"key": "third", "message": "e"}),
        ]
        first = [server.ask("POST", path, body, headers=key).done for path, body in asked]
        server.kill()
        server.start()
        again = [server.ask("POST", path, body, headers=key) for path, body in asked]
        assert again[0].done == first[0]
        assert again[0].headers["idempotency-replayed"] == "true"
        assert again[1].done["message_id"] == first[1]["message_id"]
        assert again[2].done["session_id"] == first[2]["session_id"]
        for path, body in asked:
            name = "messages" if "messages" in body else "message"
            changed = {**body, name: ["a", "b", "x"] if name == "messages" else "x"}
            server.kill()
            server.start()
            told = server.ask("POST", path, changed, headers=key)
            assert (told.status, told.code) == (422, "key_reused")
        assert [text for text, _ in server.texts(session)] == ["a", "b", "c"]
        assert [text for text, _ in server.texts(first[2]["session_id"])] == ["e"]


def test_of_two_servers_on_one_database_one_is_killed_and_the_ledger_holds(database, tmp_path):
    """The client asks either of them in turn; the line in front of one loses answers, the other is
    killed in the middle, and started again.
    """
    ledgers = [WireLedger(f"k{number}") for number in range(3)]
    file = tmp_path / "tokens.txt"
    token = new_token(file, "default", "admin")
    with (
        WireServer(database, "--tokens", file, key=token) as one,
        WireServer(database, "--tokens", file, key=token) as other,
        FaultyLine(one.port) as line,
    ):
        is_up = [True]

        def ports():
            return [line.port, other.port] if is_up[0] else [line.port]

        clients = [LossyClient(ports, token, ledger) for ledger in ledgers]
        threads = [threading.Thread(target=each.work, args=(3,)) for each in clients]
        for each in threads:
            each.start()
        for path in (b"/v1/turns", b"/v1/inbox", b"/messages", b"/streams/", b"/end"):
            line.lose_next(path)
            for _ in waiting_until("it was lost"):
                if line.lost or not any(each.is_alive() for each in threads):
                    break
        is_up[0] = False
        other.kill()
        for each in threads:
            each.join(90)
            assert not each.is_alive()
        for ledger in ledgers:
            assert ledger.contradictions(_transcript(one, ledger.key)) == []


def test_a_client_behind_a_half_open_line_loses_its_turn_and_not_its_words(tmp_path):
    """I-6: no end of the connection comes; the lease decides."""
    with WireServer(tmp_path / "s.db") as server, FaultyLine(server.port) as line:
        turn = server.turn("k", lease_s=1)
        message = server.ask("POST", f"/v1/turns/{turn['id']}/streams").done["message_id"]
        path = f"/v1/turns/{turn['id']}/streams/{message}"
        with LinePusher(line.port, server.key, path) as pusher:
            pusher.say(0, "Half of ")
            assert pusher.answer()["index"] == 1
            line.deafen()
            pusher.say(1, "nothing")
            waiting = server.turn("k", "And now?")
            assert waiting["session_id"] == turn["session_id"]
        assert server.ask("GET", f"/v1/turns/{turn['id']}").done["end"] == "abandoned"
        # What waited was durable before the words that were left were made a message.
        told = [("Hello.", "complete"), ("And now?", "complete"), ("Half of ", "partial")]
        assert server.texts(turn["session_id"]) == told


def test_a_reader_behind_such_a_line_is_told_each_piece_once(tmp_path):
    spoken = [f"{number} " for number in range(30)]
    with WireServer(tmp_path / "s.db") as server, FaultyLine(server.port) as line:
        turn = server.turn("k", "Count.")
        path = f"/v1/turns/{turn['id']}/streams"
        message = server.ask("POST", path).done["message_id"]
        seen, last_id = [], ""
        heard = threading.Semaphore(1)  # a piece for each event: a late reader is told many in one

        def speak():
            for index, text in enumerate(spoken):
                heard.acquire()
                push = {"index": index, "chunks": [text], "close": index == len(spoken) - 1}
                server.ask("POST", f"{path}/{message}", push).done  # noqa: B018
            server.end(turn["id"])

        speaker = threading.Thread(target=speak)
        speaker.start()
        dice = random.Random(11)
        while not (seen and seen[-1].event == "entry" and seen[-1].data["kind"] == "end"):
            line.trouble = Trouble(jitter_s=0.003, cut_down=dice.randrange(300, 1200))
            stream = f"/v1/sessions/{turn['session_id']}/stream"
            try:
                with EventReader(line.port, server.key, stream, last_id=last_id) as reader:
                    for event in reader:
                        seen.append(event)
                        last_id = reader.last_id
                        if event.event == "chunk":
                            heard.release()
                        if event.event == "entry" and event.data["kind"] == "end":
                            break
            except (OSError, http.client.HTTPException):
                continue  # it comes back with what it has
            assert len(seen) < 1000
        speaker.join(60)
    ids = [event.id for event in seen]
    assert len(ids) == len(set(ids)), "something was told twice"
    assert words(seen)[message] == "".join(spoken)
    assert line.lost > 3
