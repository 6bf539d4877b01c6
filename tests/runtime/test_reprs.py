"""What is printed says what it is: which store, which turn and how it stands, never an address in
memory.
"""

import asyncio

import holdfast
from holdfast import errors
from holdfast.domain.message import Usage


def test_everything_a_caller_holds_says_what_it_is(tmp_path):
    place = tmp_path / "a.db"
    with holdfast.open(place, tenant="blue") as store:
        receipt = store.accept("k", "Hello", reply_to="room 7")
        with store.turn("k") as turn:
            stream = turn.deliver(["Hi", "!"])
            assert repr(turn) == f"<Turn {turn.id} running>"
            assert repr(stream) == f"<Delivery of turn {turn.id}, open>"
            assert "".join(stream) == "Hi!"
            assert repr(stream) == f"<Delivery of turn {turn.id}, over>"
            context = turn.context()
        session = store.session("k")
        assert repr(store) == f"<Store {place} tenant='blue'>"
        assert repr(turn) == f"<Turn {turn.id} ended>"
        assert repr(session) == f"<Session {session.id[:8]} key='k' epoch=1>"
        assert (
            repr(receipt)
            == f"Receipt(session_id='{session.id}', message_id='{receipt.message_id}', again=False)"
        )
        assert repr(context[:1]) == repr([{"role": "user", "content": "Hello"}])
        [owed] = store.outbox()
        assert "'room 7'" in repr(owed) and "'Hi!'" in repr(owed)
        assert repr(holdfast.AgentCache(str, size=3)) == "<AgentCache of 0 agents, at most 3>"
        assert "'Hello'" in repr(next(session.transcript()))
        assert repr(store.sessions()) == "<Page of 1>"


def test_the_async_faces_say_what_they_are(tmp_path):
    async def look():
        opening = holdfast.open_async(tmp_path / "a.db")
        assert "OpeningStore" in repr(opening) and "a.db" in repr(opening)
        async with opening as store:
            session = await store.session("k")
            starting = session.turn("Hello")
            assert repr(starting) == "<StartingTurn: await it, or enter it with `async with`>"
            async with starting as turn:
                stream = turn.deliver(["Hi"])
                assert repr(stream) == f"<AsyncDelivery of turn {turn.id}, open>"
                assert [text async for text in stream] == ["Hi"]
                assert repr(turn) == f"<AsyncTurn {turn.id} running>"
            assert repr(store) == f"<AsyncStore {tmp_path / 'a.db'} tenant='default'>"
            assert repr(session) == f"<AsyncSession {session.id[:8]} key='k' epoch=1>"

    asyncio.run(look())


def test_no_password_is_printed():
    opening = holdfast.open_async("postgresql://me:secret@host/db")
    assert "secret" not in repr(opening)


def test_public_names_say_that_they_are_public():
    assert repr(holdfast.Page) == "<class 'holdfast.Page'>"
    assert (
        repr(holdfast.parts.Text("x")) == "Text(text='x')"
        and holdfast.parts.Text.__module__ == "holdfast.parts"
    )
    assert Usage is holdfast.Usage and issubclass(errors.BadArgument, holdfast.HoldfastError)
