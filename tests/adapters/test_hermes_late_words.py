"""Words of Hermes that come when their turn is over: a thread that was left behind, a process that
was stopped while another went on.
"""

import threading

import hermes_modules
import pytest

from holdfast.adapters.hermes import turns
from holdfast.adapters.hermes.serving import serving_at


@pytest.fixture
def hermes(tmp_path):
    """The modules of Hermes, and a database that they keep."""
    modules = hermes_modules.patched()
    modules.db = modules.SessionDB(db_path=tmp_path / "state.db")
    modules.db.create_session("s1", "cli")
    yield modules
    serving_at(modules.db.db_path).store.close()


def transcript(hermes):
    session = serving_at(hermes.db.db_path).conversation("s1")
    return [(message.role, message.text, message.state) for message in session.transcript()]


class LeftBehind:
    """A thread that a turn starts for its stream, and does not wait for when it is interrupted. It
    asks the model again, and speaks, each time that it is told to.
    """

    def __init__(self, agent):
        self.agent = agent
        self.tokens = []
        self._may, self._has = threading.Semaphore(0), threading.Semaphore(0)

    def start(self):
        threading.Thread(target=self._stream, daemon=True).start()
        self.agent.interrupt("Stop requested")

    def _stream(self):
        for text in ("Late ", "words."):
            assert self._may.acquire(timeout=20)
            self.tokens.append(self.agent._claim_stream_writer())
            self.agent._fire_stream_delta(text)
            self._has.release()

    def speaks(self):
        self._may.release()
        assert self._has.acquire(timeout=20)


def test_a_thread_whose_turn_is_over_is_not_heard(hermes):
    shown = []
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = shown.append
    late = LeftBehind(agent)
    agent.script = [["Half ", late.start]]
    agent.run_conversation("One.")
    late.speaks()
    agent.script = [["Of ", agent._claim_stream_writer, late.speaks, "two."]]
    agent.run_conversation("Two.")
    assert shown == ["Half ", "Of ", "two."]
    assert transcript(hermes) == [
        ("user", "One.", "complete"),
        ("assistant", "Half ", "partial"),
        ("user", "Two.", "complete"),
        ("assistant", "Of two.", "complete"),
    ]
    # Nor does Hermes take the stream of the turn that runs for an old one.
    assert agent._stream_writer_token == 1 and late.tokens == [-1, -1]


def test_nothing_is_shown_between_two_turns(hermes):
    shown = []
    agent = hermes.AIAgent(session_db=hermes.db, script=[["Yes."]])
    agent.stream_delta_callback = shown.append
    agent.run_conversation("One.")
    agent._fire_stream_delta("More.")
    agent.stream_delta_callback(None)
    assert shown == ["Yes.", None]


def test_a_thread_of_the_running_turn_is_heard(hermes):
    shown = []
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = shown.append

    def stream():
        thread = threading.Thread(target=agent._fire_stream_delta, args=("Spoken.",))
        thread.start()
        thread.join(20)

    for text in ("One.", "Two."):
        agent.script = [{"pieces": [stream], "text": "Spoken."}]
        agent.run_conversation(text)
    assert shown == ["Spoken.", "Spoken."]
    assert [text for role, text, _ in transcript(hermes) if role == "assistant"] == ["Spoken."] * 2


def another(hermes, text, answer, history=None):
    agent = hermes.AIAgent(session_db=hermes.db, script=[[answer]])
    agent.stream_delta_callback = [].append
    agent.run_conversation(text, conversation_history=history)
    return agent


def test_an_answer_whose_turn_was_overtaken_is_stored_once_and_drops_nothing(hermes, monkeypatch):
    def overtaken():
        # As if this one had been stopped for longer than its lease.
        monkeypatch.setattr(turns, "PATIENCE_S", -1)
        another(hermes, "Two.", "Second.", hermes.db.get_messages_as_conversation("s1"))

    another(hermes, "Zero.", "Nothing.")
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.script = [{"pieces": [overtaken], "text": "First."}]
    history = hermes.db.get_messages_as_conversation("s1")
    agent.run_conversation("One.", conversation_history=history)
    said = ["Zero.", "Nothing.", "One.", "Two.", "Second.", "First."]
    assert [text for _, text, _ in transcript(hermes)] == said
    told = str(serving_at(hermes.db.db_path).conversation("s1").context())
    assert all(text in told for text in ("One.", "Two.", "Second."))
    another(hermes, "Three.", "Third.", hermes.db.get_messages_as_conversation("s1"))
    assert [text for _, text, _ in transcript(hermes)] == [*said, "Three.", "Third."]
    told = str(serving_at(hermes.db.db_path).conversation("s1").context())
    assert all(told.count(text) == 1 for text in said), told
