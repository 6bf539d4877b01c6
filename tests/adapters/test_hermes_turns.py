"""What an agent of Hermes says is in Holdfast first, once, in its turn; then in Hermes' own rows."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import hermes_modules
import pytest

import holdfast
from holdfast.adapters.hermes import receipts, turns
from holdfast.adapters.hermes.rows import backlog
from holdfast.adapters.hermes.serving import serving_at

TODO = {"id": "c1", "type": "function", "function": {"name": "todo", "arguments": "{}"}}


@pytest.fixture
def hermes(tmp_path):
    """The modules of Hermes, and a database that they keep."""
    modules = hermes_modules.patched()
    modules.db = modules.SessionDB(db_path=tmp_path / "state.db")
    modules.db.create_session("s1", "cli")
    yield modules
    serving_at(modules.db.db_path).store.close()


def session_of(hermes, id="s1"):
    return serving_at(hermes.db.db_path).conversation(id)


def transcript(hermes, id="s1"):
    return [
        (message.role, message.text, message.state)
        for message in session_of(hermes, id).transcript()
    ]


def rows(hermes, id="s1", **more):
    loaded = hermes.db.get_messages_as_conversation(id, **more)
    return [(each["role"], each["content"]) for each in loaded]


def say(hermes, text, *script, history=None, shown=None, **more):
    agent = more.pop("agent", None) or hermes.AIAgent(session_db=hermes.db)
    agent.script = list(script)
    agent.stream_delta_callback = (shown if shown is not None else []).append
    return agent, agent.run_conversation(text, conversation_history=history, **more)


def test_a_turn_is_stored_as_it_was_said_and_its_rows_as_hermes_writes_them(hermes):
    agent, result = say(hermes, "Hi.", ["Hello ", "there."])
    assert transcript(hermes) == [
        ("user", "Hi.", "complete"),
        ("assistant", "Hello there.", "complete"),
    ]
    assert rows(hermes) == [("user", "Hi."), ("assistant", "Hello there.")]
    assert [turn.end for turn in session_of(hermes).turns()] == ["completed"]
    say(hermes, "And?", ["So."], agent=agent, history=result["messages"])
    assert [text for _, text, _ in transcript(hermes)] == ["Hi.", "Hello there.", "And?", "So."]


def test_a_call_and_the_words_beside_it_are_one_message_of_the_turn(hermes):
    say(hermes, "Look.", {"pieces": ["Let me ", "look. "], "tools": [TODO]}, ["\n\nDone."])
    session = session_of(hermes)
    found = [
        (each.role, each.text, [call.call_id for call in each.calls])
        for each in session.transcript()
    ]
    assert found == [
        ("user", "Look.", []),
        ("assistant", "Let me look. ", ["c1"]),
        ("tool", "ok", []),
        ("assistant", "Done.", []),
    ]
    assert len({message.turn for message in session.transcript()}) == 1
    assert [each["role"] for each in session.context()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_nothing_is_shown_before_it_is_stored(hermes):
    stored = []

    def look(text):
        with holdfast.open(hermes.db.db_path.with_name("holdfast.db")) as other:
            events = other.session("hermes:s1").follow()
            said = ""
            for event in events:
                if event.kind == "chunk":
                    said += event.text
                if said.endswith(text):
                    break
            stored.append(said)

    agent = hermes.AIAgent(session_db=hermes.db, script=[["Hello ", "there."]])
    agent.stream_delta_callback = look
    agent.run_conversation("Hi.")
    assert stored == ["Hello ", "Hello there."]


def test_a_piece_that_goes_to_a_screen_and_a_voice_is_stored_once(hermes):
    voice = []
    agent = hermes.AIAgent(session_db=hermes.db, script=[["Hello."]])
    agent.stream_delta_callback = [].append
    agent._stream_callback = voice.append
    agent.run_conversation("Hi.")
    assert voice == ["Hello."]
    assert transcript(hermes)[1:] == [("assistant", "Hello.", "complete")]


def test_text_that_was_not_streamed_is_stored_when_it_is_shown(hermes):
    agent = hermes.AIAgent(session_db=hermes.db)
    shown = []
    agent.interim_assistant_callback = lambda text, already_streamed=False: shown.append(text)
    say_it = lambda: agent.interim_assistant_callback("Let me look.", already_streamed=False)  # noqa: E731
    agent.script = [{"pieces": [say_it], "text": "Let me look.", "tools": [TODO]}, ["Done."]]
    agent.run_conversation("Look.")
    assert shown == ["Let me look."]
    assert [text for _, text, _ in transcript(hermes)] == ["Look.", "Let me look.", "ok", "Done."]


def test_an_answer_that_hermes_words_otherwise_is_one_message(hermes):
    agent, _ = say(
        hermes, "Hi.", {"pieces": ["I think so."], "text": "<think>hm</think>I think so."}
    )
    assert [text for _, text, _ in transcript(hermes)] == ["Hi.", "I think so."]
    assert session_of(hermes).context()[-1]["content"] == "<think>hm</think>I think so."


def test_what_the_model_is_told_besides_is_not_what_the_user_said(hermes):
    say(hermes, "[ada] Hi.", ["Hello."], persist_user_message="Hi.")
    assert transcript(hermes)[0] == ("user", "Hi.", "complete")


def test_an_attempt_that_is_given_up_was_shown_and_is_kept(hermes):
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = [].append
    agent.script = [
        {
            "pieces": ["Half of ", agent._reset_stream_delivery_tracking, "All of it."],
            "text": "All of it.",
        }
    ]
    agent.run_conversation("Hi.")
    assert transcript(hermes)[1:] == [
        ("assistant", "Half of ", "partial"),
        ("assistant", "All of it.", "complete"),
    ]
    assert [each["content"] for each in session_of(hermes).context()] == ["Hi.", "All of it."]


def test_an_interrupted_turn_says_so_and_its_words_are_kept(hermes):
    agent = hermes.AIAgent(session_db=hermes.db)
    shown = []
    agent.stream_delta_callback = shown.append
    agent.script = [["Half ", lambda: agent.interrupt("Stop requested"), "never"]]
    agent.run_conversation("Hi.")
    assert shown == ["Half "]
    assert transcript(hermes)[1:] == [("assistant", "Half ", "partial")]
    assert [turn.end for turn in session_of(hermes).turns()] == ["interrupted"]


def test_the_last_answer_is_stored_before_the_teardown(hermes):
    seen = []
    agent = hermes.AIAgent(session_db=hermes.db, script=[["Hello."]])
    agent.torn_down = lambda: seen.extend([transcript(hermes)[-1], rows(hermes)[-1]])
    agent.run_conversation("Hi.")
    assert seen == [("assistant", "Hello.", "complete"), ("user", "Hi.")]


def test_a_store_that_fails_stops_the_turn_and_tells_the_user(hermes):
    shown = []
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = shown.append
    fail = serving_at(hermes.db.db_path).store.close
    agent.script = [["Half ", fail, "never ", "never"]]
    result = agent.run_conversation("Hi.")
    assert shown[0] == "Half " and shown[1].startswith("\n\n⚠️ Stopped") and len(shown) == 2
    assert agent.interrupts == [None]
    assert result["failed"] and result["final_response"].startswith("⚠️ Stopped")


def test_a_message_that_cant_be_stored_is_not_answered(hermes):
    serving_at(hermes.db.db_path).store.close()
    agent, result = say(hermes, "Hi.", ["Hello."])
    assert agent.requests == []
    assert result["failed"] and "can't be stored" in result["final_response"]


def test_a_fork_that_shares_a_session_stores_nothing(hermes):
    agent = hermes.AIAgent(session_db=hermes.db, script=[["Hello."]])
    agent._persist_disabled = True
    agent.run_conversation("Review the conversation above.")
    assert transcript(hermes) == []


def test_a_turn_that_hermes_resumes_by_itself_has_no_question(hermes):
    say(hermes, "[System note: resumed]", ["Where were we?"], persist_user_message="")
    assert transcript(hermes) == [("assistant", "Where were we?", "complete")]


@pytest.mark.parametrize(
    "text",
    [
        "Which?",
        "Which?\n\n[System note: resumed.]",
        "[System note: resumed.]\n\nWhich?",
        "[System note: one.]\n\nWhich?\n\n[System note: two [sic].\n\nMore.]",
    ],
)
def test_notes_of_hermes_are_no_words_of_the_user(text):
    assert turns.without_notes(text) == "Which?"
    assert turns.without_notes("[System note: resumed.]") == ""
    assert turns.without_notes("[System note: what is that?") == "[System note: what is that?"


def test_what_was_said_before_holdfast_was_there_stands_first(hermes):
    history = [{"role": "user", "content": "Old."}, {"role": "assistant", "content": "Yes."}]
    say(hermes, "New.", ["Now."], history=history)
    assert [text for _, text, _ in transcript(hermes)] == ["Old.", "Yes.", "New.", "Now."]


def test_what_was_said_while_holdfast_was_not_there_stands_in_its_place(hermes):
    say(hermes, "One.", ["First."])
    alone = [{"role": "user", "content": "Alone."}, {"role": "assistant", "content": "Still."}]
    history = [*hermes.db.get_messages_as_conversation("s1"), *alone]
    say(hermes, "Two.", ["Second."], history=history)
    said = [text for _, text, _ in transcript(hermes)]
    assert said == ["One.", "First.", "Alone.", "Still.", "Two.", "Second."]


def said_to(agent):
    return [each["content"] for each in agent.requests[0]]


def test_a_second_turn_waits_for_the_first_and_knows_what_it_said(hermes, monkeypatch):
    has_begun, may_go_on, waits = threading.Event(), threading.Event(), threading.Event()
    patience = turns._patience

    def wait():
        has_begun.set()
        may_go_on.wait(20)

    def waiting(*given):
        waits.set()
        return patience(*given)

    monkeypatch.setattr(turns, "_patience", waiting)
    first = threading.Thread(target=say, args=(hermes, "One.", ["First ", wait, "answer."]))
    first.start()
    assert has_begun.wait(20)
    done = []
    second = threading.Thread(target=lambda: done.append(say(hermes, "Two.", ["Second."])))
    second.start()
    assert waits.wait(20)
    may_go_on.set()
    first.join(20)
    second.join(20)
    [[agent, _]] = done
    assert said_to(agent) == ["One.", "First answer.", "Two."]
    assert [text for _, text in rows(hermes)] == ["One.", "First answer.", "Two.", "Second."]


def test_a_turn_that_ends_while_the_next_one_is_opened_is_known_to_it(hermes, monkeypatch):
    claim = receipts.claim

    def meanwhile(*given):
        monkeypatch.setattr(receipts, "claim", claim)
        say(hermes, "One.", ["First answer."])
        return claim(*given)

    monkeypatch.setattr(receipts, "claim", meanwhile)
    agent, _ = say(hermes, "Two.", ["Second."], history=[])
    assert said_to(agent) == ["One.", "First answer.", "Two."]


@pytest.mark.parametrize("load", ["get_messages_as_conversation", "get_resume_conversations"])
def test_a_turn_that_ends_after_the_history_was_loaded_is_known_to_the_next_one(hermes, load):
    say(hermes, "Before.", ["Yes."])
    history = getattr(hermes.db, load)("s1")
    say(hermes, "One.", ["First answer."])
    agent, _ = say(hermes, "Two.", ["Second."], history=history)
    assert said_to(agent) == ["Before.", "Yes.", "One.", "First answer.", "Two."]


def test_a_history_that_nobody_has_added_to_is_taken_as_it_is(hermes):
    say(hermes, "Before.", ["Yes."])
    history = hermes.db.get_messages_as_conversation("s1")
    agent, _ = say(hermes, "Two.", ["Second."], history=history[:1])
    assert said_to(agent) == ["Before.", "Two."]


def test_an_answer_that_is_changed_on_its_way_out_is_kept_as_the_user_gets_it(hermes):
    agent = hermes.AIAgent(session_db=hermes.db, script=[["Hello."]])
    agent.transform = lambda text: f"{text} (signed)"
    assert agent.run_conversation("Hi.")["final_response"] == "Hello. (signed)"
    [_, answer] = session_of(hermes).transcript()
    assert answer.text == "Hello." and answer.labels == {"hermes_delivered": "Hello. (signed)"}
    agent.transform = str
    say(hermes, "And?", ["So. "], agent=agent)
    assert list(session_of(hermes).transcript())[-1].labels == {}


def test_a_history_that_cant_be_read_is_taken_from_holdfast(hermes):
    say(hermes, "Before.", ["Yes."])
    hermes.db._conn.execute("ALTER TABLE messages RENAME TO elsewhere")
    history = hermes.db.get_messages_as_conversation("s1", repair_alternation=True)
    assert [(each["role"], each["content"]) for each in history] == [
        ("user", "Before."),
        ("assistant", "Yes."),
    ]
    with pytest.raises(sqlite3.OperationalError):
        hermes.db.get_messages_as_conversation("never heard of")
    hermes.db._conn.execute("ALTER TABLE elsewhere RENAME TO messages")
    agent, _ = say(hermes, "And?", ["So."], history=history)
    assert said_to(agent) == ["Before.", "Yes.", "And?"]
    assert [text for _, text, _ in transcript(hermes)] == ["Before.", "Yes.", "And?", "So."]


def test_an_agent_goes_on_with_its_list_after_its_own_turns(hermes):
    agent, result = say(hermes, "One.", ["First."])
    kept = [*result["messages"], {"role": "user", "content": "In memory alone."}]
    say(hermes, "Two.", ["Second."], agent=agent, history=kept)
    assert [each["content"] for each in agent.requests[-1]][2:] == ["In memory alone.", "Two."]


CHILD = """
import sys, time
sys.path[:0] = [{tests!r}]
import hermes_modules
modules = hermes_modules.patched()
db = modules.SessionDB(db_path={path!r})
agent = modules.AIAgent(session_db=db)
agent.stream_delta_callback = lambda text: print(text, flush=True)
agent.script = [[{pieces}, lambda: time.sleep(60)]]
agent.run_conversation("Hi.")
"""


def killed(hermes, pieces):
    """What an agent had shown when it was killed, two lines after it began."""
    code = CHILD.format(
        tests=str(Path(__file__).parent), path=str(hermes.db.db_path), pieces=pieces
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    shown = child.stdout.readline()[:-1] + child.stdout.readline()[:-1]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    return shown


@pytest.mark.slow
def test_a_question_that_a_kill_left_unanswered_is_stored_once(hermes):
    killed(hermes, "lambda: print('asked\\n', flush=True)")
    history = hermes.db.get_messages_as_conversation("s1")
    assert rows(hermes) == [("user", "Hi.")]
    say(hermes, "And?", ["Both."], history=history)
    assert [text for _, text, _ in transcript(hermes)] == ["Hi.", "And?", "Both."]
    assert [text for _, text in rows(hermes)] == ["Hi.", "And?", "Both."]
    assert session_of(hermes).pending() == []


@pytest.mark.slow
def test_a_killed_answer_is_kept_and_loaded_once(hermes):
    assert killed(hermes, "'Half of ', 'it '") == "Half of it "
    for _ in range(2):
        assert rows(hermes) == [("user", "Hi."), ("assistant", "Half of it")]
    history = hermes.db.get_messages_as_conversation("s1")
    say(hermes, "Go on.", ["Yes."], history=history)
    assert transcript(hermes) == [
        ("user", "Hi.", "complete"),
        ("assistant", "Half of it ", "partial"),
        ("user", "Go on.", "complete"),
        ("assistant", "Yes.", "complete"),
    ]
    loaded = hermes.db.get_messages_as_conversation("s1")
    say(hermes, "More.", ["Fine."], history=loaded)
    assert len(transcript(hermes)) == 6


def test_rows_that_a_lock_refuses_are_written_later_in_order(hermes, monkeypatch):
    monkeypatch.setattr(backlog, "AGAIN_S", 0)
    agent, _ = say(hermes, "One.", ["First."])
    with sqlite3.connect(hermes.db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        _, result = say(hermes, "Two.", ["Second."], agent=agent)
        other.execute("ROLLBACK")
    assert [text for _, text, _ in transcript(hermes)][-2:] == ["Two.", "Second."]
    assert [text for _, text in rows(hermes)] == ["One.", "First.", "Two.", "Second."]
    say(hermes, "Three.", ["Third."], agent=agent, history=result["messages"])
    assert [text for _, text in rows(hermes)][-2:] == ["Three.", "Third."]
