"""Long histories, each of one thing: what calls cost is judged on them.

A builder fills the session of a key with `n` of what it is named after. `HISTORIES` are all of
them. Whatever a history is made of, a call on it may cost in proportion to its length, and not
more.
"""

from collections.abc import Callable

from holdfast import Session, Store
from holdfast.testing.completions import Payload, completions_call

Builder = Callable[[Store, Session, int], None]


def said(session: Session, n: int) -> list[str]:
    return session.append_all([f"message {index}" for index in range(n)])


def labelled(store: Store, session: Session, n: int) -> None:
    """Many labels, each with a name of its own, on few messages."""
    ids = said(session, 20)
    for index in range(n):
        session.label(ids[index % 20], **{f"name {index}": index})


def hidden(store: Store, session: Session, n: int) -> None:
    for id in said(session, n):
        session.label(id, visible_to_model=False)


def rewound(store: Store, session: Session, n: int) -> None:
    ids = said(session, n)
    # As many rewinds in a long history as in a short one: `rewound_often` has many.
    for id in ids[:: n // 20]:
        session.rewind(id)
    # Back to the end, so that the view is long again.
    session.rewind(ids[-1])


def rewound_often(store: Store, session: Session, n: int) -> None:
    ids = said(session, 20)
    for index in range(n):
        session.rewind(ids[index % 20])


def one_call_id(store: Store, session: Session, n: int) -> None:
    """A provider that calls every call by the same name (FAULTS E4)."""
    with session.turn("Count.") as turn:
        for index in range(n):
            turn.add(calling("call_0"))
            turn.add(answering("call_0", index))


def calls_without_end(store: Store, session: Session, n: int) -> None:
    with session.turn("Count.") as turn:
        turn.add_all([calling(f"call_{index}") for index in range(n)])


def calls_in_one_message(store: Store, session: Session, n: int) -> None:
    with session.turn("Count.") as turn:
        turn.add(calling(*["call_0"] * n))
        turn.add_all([answering("call_0", index) for index in range(n)])


def waiting_calls(store: Store, session: Session, n: int) -> None:
    with session.turn("Ask.") as turn:
        for index in range(n):
            turn.call("pay", {"amount": index}, needs_approval=True)


def decided_calls(store: Store, session: Session, n: int) -> None:
    with session.turn("Ask.") as turn:
        calls = []
        for index in range(n):
            calls.append(turn.call("pay", {"amount": index}, needs_approval=True))
    for call in calls:
        session.decide(call, True, by="ann")


def turns(store: Store, session: Session, n: int) -> None:
    for index in range(n):
        with session.turn(f"question {index}") as turn:
            turn.say(f"answer {index}")


def retracted(store: Store, session: Session, n: int) -> None:
    for _ in range(n):
        with session.turn("Again.") as turn:
            turn.say("one")
            turn.retract()
            turn.say("two")


def accepted(store: Store, session: Session, n: int) -> None:
    """All that waited was taken by one turn, at the very end."""
    for index in range(n):
        store.accept(session.key or "", f"message {index}")
    with session.turn("All of it.") as turn:
        turn.say("answer")


def given_back(store: Store, session: Session, n: int) -> None:
    """A turn took all that waited, used nothing of it, and gave it back."""
    for index in range(n):
        store.accept(session.key or "", f"message {index}")
    session.turn().interrupt("no time")


def reshaped(store: Store, session: Session, n: int) -> None:
    """A list whose order is not that of the log: as many ranges as messages."""
    messages: list[Payload] = []
    for index in range(n):
        role = ("user", "assistant")[index % 2]
        messages.append({"role": role, "content": f"message {index}"})
    session.record(messages)
    session.record([*messages[::2], *messages[1::2]])


def compacted(store: Store, session: Session, n: int) -> None:
    for index in range(n):
        with session.turn(f"question {index}") as turn:
            turn.say(f"answer {index}")
        if index % 5 == 4:
            session.compact("what was said", keep_turns=1)


def instructed(store: Store, session: Session, n: int) -> None:
    for index in range(n):
        session.instructions(f"version {index}")


def forked(store: Store, session: Session, n: int) -> None:
    """A fork of a fork of a fork; the key leads to the last one."""
    session.append("the first words")
    # A key means one session: it must have ended before a fork takes the key.
    session.end("forked")
    for index in range(n):
        session = session.fork(key=session.key)
        session.append(f"message {index}")
        if index < n - 1:
            session.end("forked")


HISTORIES: tuple[Builder, ...] = (
    labelled,
    hidden,
    rewound,
    rewound_often,
    one_call_id,
    calls_without_end,
    calls_in_one_message,
    waiting_calls,
    decided_calls,
    turns,
    retracted,
    accepted,
    given_back,
    reshaped,
    compacted,
    instructed,
    forked,
)


def calling(*ids: str) -> Payload:
    calls = [completions_call(id, "count", "{}") for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answering(id: str, count: int) -> Payload:
    return {"role": "tool", "tool_call_id": id, "content": f"{count}"}
