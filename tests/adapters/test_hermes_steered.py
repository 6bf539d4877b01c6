"""Words that steer a run are a message of the user's: in the transcript, in Hermes' rows, and in the
history of the next turn.
"""

import hermes_gateway
import hermes_modules
import pytest

from holdfast.adapters.hermes import receipts
from holdfast.adapters.hermes.received.gateway import current
from holdfast.adapters.hermes.serving import serving_at
from holdfast.testing.oracle import judge

CALLS = [
    {"id": id, "type": "function", "function": {"name": "todo", "arguments": "{}"}}
    for id in ("c1", "c2")
]


@pytest.fixture
def hermes(tmp_path):
    """The modules of Hermes, with receipts, and a database that they keep."""
    modules = hermes_modules.patched()
    receipts.patch_run_agent(modules)
    modules.db = modules.SessionDB(db_path=tmp_path / "state.db")
    modules.db.create_session("s1", "cli")
    yield modules
    store = serving_at(modules.db.db_path).store
    assert judge(store) == []
    store.close()


def session_of(hermes):
    return serving_at(hermes.db.db_path).conversation("s1")


def rows(hermes):
    loaded = hermes.db.get_messages_as_conversation("s1")
    return [(each["role"], each["content"]) for each in loaded]


def steering(hermes, agent, *texts):
    """Has these come in and steer the agent, as the busy handler of the gateway does it."""

    def steer():
        inbox = serving_at(hermes.db.db_path).inbox
        for number, text in enumerate(texts):
            source = hermes_gateway.SessionSource(hermes_gateway.Platform.STUB, "c1")
            event = hermes_gateway.MessageEvent(text, source=source, message_id=f"m{number}")
            inbox.receive(event, "key")
            token = current.set(tuple(inbox.of(event)))
            assert agent.steer(text.removeprefix("/steer "))
            current.reset(token)

    return steer


def steered_turn(hermes, *texts):
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = [].append
    steer = steering(hermes, agent, *texts)
    agent.script = [{"pieces": ["Wait. ", steer], "tools": CALLS}, ["Done."]]
    result = agent.run_conversation("Look.")
    assert texts[-1].removeprefix("/steer ") in agent.requests[1][2]["content"]
    return agent, result


SAID = [("user", "Look."), ("assistant", "Wait."), ("tool", "ok"), ("tool", "ok")]


@pytest.mark.parametrize("text", ["The blue one.", "/steer The blue one."])
def test_words_that_steered_are_in_the_rows_and_in_the_next_turns_history(hermes, text):
    agent, _ = steered_turn(hermes, text)
    expected = [*SAID, ("user", "The blue one."), ("assistant", "Done.")]
    assert rows(hermes) == expected
    agent.script = [["Blue."]]
    agent.run_conversation(
        "Which?", conversation_history=hermes.db.get_messages_as_conversation("s1")
    )
    assert [(m["role"], m["content"]) for m in agent.requests[-1]] == [
        *expected,
        ("user", "Which?"),
    ]


def test_words_that_steered_are_in_the_context_and_the_result_is_the_tools_own(hermes):
    agent, result = steered_turn(hermes, "The blue one.", "And the red one.")
    for _ in range(2):
        session = session_of(hermes)
        said = [(each["role"], (each["content"] or "").strip()) for each in session.context()]
        assert said[:4] == SAID
        assert "The blue one." in str(said[4:]) and "And the red one." in str(said[4:])
        texts = [message.text for message in session.transcript() if message.role == "user"]
        assert texts[:3] == ["Look.", "The blue one.", "And the red one."]
        assert sum("blue" in message.text for message in session.transcript()) == 1
        # The list that the agent has in memory tells them with the result, also in the next turn.
        agent.script = [["Blue."]]
        agent.run_conversation("Which?", conversation_history=result["messages"])
    assert [text for role, text in rows(hermes) if role == "user"][1:3] == texts[1:3]


def test_a_turn_that_is_cut_after_it_was_steered_leaves_one_row_of_the_words(hermes):
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = [].append
    steer = steering(hermes, agent, "The blue one.")
    agent.script = [{"pieces": ["Wait. ", steer, agent.interrupt], "tools": CALLS}]
    agent.run_conversation("Look.")
    history = hermes.db.get_messages_as_conversation("s1")
    agent.script = [["Blue."]]
    agent.run_conversation("Which?", conversation_history=history)
    texts = [text for role, text in rows(hermes) if role == "user"]
    assert texts == ["Look.", "The blue one.", "Which?"]
