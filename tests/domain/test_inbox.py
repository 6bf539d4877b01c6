"""The inbox as the log tells it is what the fold tells, after every entry (I-4)."""

import holdfast
from copies import fill
from holdfast.domain.inbox import Inbox, NamedMessage, to_take
from holdfast.domain.log.fold import Log
from holdfast.engine.protocol import Write


def test_what_waits_is_told_from_the_log_alone_after_every_entry(tmp_path):
    path = tmp_path / "agent.db"
    fill(path)
    with holdfast.open(path) as store:
        session = store.session("given back")
        session.turn("Never answered.").interrupt("at once")
        left = session.turn("Given back.")
        session_log = session._log
        session_log.submit(
            Write(session_log.id, fence=left._work.number, seize=True, renew_s=0)
        ).result()
        # whoever looks settles the turn, which has used nothing of what it took
        session.transcript()
        assert [message.text for message in session.pending()] == ["Given back."]
        store.accept("given back", "Wait.")
        store.accept("given back", "Wait too.")
        with session.turn(None) as turn:
            store.accept("given back", "And this.")
            turn.inbox()
            turn.say("All of it.")
        waited = 0
        for state in store._work.engine.sessions("default"):
            if state.origin == 0:
                log, inbox = Log(), Inbox()
                for entry in store.get(state.id).entries():
                    log.add([entry])
                    inbox.add([entry])
                    assert set(inbox.waiting) == log.waiting, (state.key, entry.seq)
                    waited += len(inbox.waiting)
        assert waited > 5


def test_a_turn_takes_all_that_is_free_or_what_was_named() -> None:
    assert to_take(["a", "b"], None) == (["a", "b"], set())
    b, gone = NamedMessage("b"), NamedMessage("gone", "elsewhere")
    assert to_take(["a", "b"], [b]) == ({"b"}, set())
    assert to_take(["a", "b"], []) == (set(), set())
    assert to_take(["b"], [b, gone]) == ({"b", "gone"}, {"gone"})
