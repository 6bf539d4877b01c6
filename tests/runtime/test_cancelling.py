"""Cancelling any await at any point leaves a consistent store and usable handles (I-3 to I-7,
FAULTS A3, I7, I8).

A life is a script of steps over the asyncio face. It is run as a task and cancelled at the first
place where it waits, then, in a session of its own, at the second, and so on until it runs clean;
`cutting` says how. After each cancellation the same handles on the same loop must go on at once,
and a judge looks: what was acknowledged is there once and in order, what was handed on is a prefix
of what is stored, every turn has one end, contexts are valid and another handle computes the same,
no task and no thread is left, and nobody complains of an error that was never retrieved.
"""

import asyncio
import contextlib
import gc
import itertools
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from cutting import MOMENTS, Cut
from holdfast.errors import SessionEnded, TurnInterrupted
from holdfast.testing import oracle
from holdfast.testing.providers import check
from looking import ends
from talking import FORMATS
from thorough import SWEEP, examples, few_cases

LIMIT_S = 60


class Life:
    """One session of one store, lived step by step. What was acknowledged is noted only after the
    await returned.
    """

    def __init__(self, store, key):
        self.store, self.key = store, key
        self.words = 0
        self.said = []  # (session id, text) that was acknowledged as stored
        self.shown = {}  # a stream's first word: what was handed on of it
        self.ended = {}  # turn id: the end that was acknowledged
        self.facts = {}  # what must hold from its acknowledgement on: how to see that
        self.others = []  # tasks that are to end by themselves
        self.forgets = False

    def word(self, about):
        """Words like no others."""
        self.words += 1
        return f"{about} {self.key}.{self.words}"

    def holds(self, what, check):
        """From now on this must hold; it takes the place of what was said of the same before."""
        self.facts[what] = check

    async def known(self):
        """The id of a message of the session."""
        return (
            self.messages[0] if self.messages else await self.session.append(self.word("appended"))
        )

    def heard(self, text, session=None):
        self.said.append(((session or self.session).id, text))

    async def prepare(self):
        """A past: two whole turns, a call that waits for approval, a message in the inbox, a reply
        that is owed.
        """
        self.session = await self.store.session(self.key)
        async with self.session.turn(question := self.word("question"), reply_to="ann") as turn:
            await turn.say(answer := self.word("answer"))
        async with self.session.turn(self.word("question")) as turn:
            await turn.call("pay", {"sum": 1}, call_id="asked", needs_approval=True)
            await turn.say(self.word("answer"))
        await self.store.accept(self.key, waiting := self.word("accepted"))
        for text in (question, answer, waiting):
            self.heard(text)
        self.messages = [message.id async for message in self.session.transcript()]


# The steps of a life
# -------------------------------------------------------------------------------------------------


async def take_a_turn(life):
    turn_id = None
    async with life.session.turn(question := life.word("question"), reply_to="bob") as turn:
        turn_id = turn.id
        life.heard(question)
        await turn.context("anthropic")
        await deliver(life, turn)
        await turn.result(await turn.call("look", {"at": 1}), found := life.word("found"))
        life.heard(found)
        life.heard(await turn.say(life.word("said")))
        await turn.add({"role": "assistant", "content": (added := life.word("added"))})
        life.heard(added)
        await life.store.accept(life.key, steering := life.word("steering"))
        life.heard(steering)
        assert [message.text for message in await turn.inbox()][-1:] == [steering]
        assert not await turn.stopped
    life.ended[turn_id] = "completed"


async def deliver(life, turn):
    first = life.word("stream")

    async def source():
        for number in range(3):
            yield f"{first} " if number == 0 else f"{number} "
            await asyncio.sleep(0)

    async for text in turn.deliver(source()):
        life.shown[first] = life.shown.get(first, "") + text
        await asyncio.sleep(0)


async def leave_a_stream(life):
    """The loop is left and the generator forgotten: the turn's end settles it."""
    async with life.session.turn(life.word("question")) as turn:
        async for text in turn.deliver([life.word("stream") + " ", "never shown"]):
            life.shown[text[:-1]] = text
            break
    life.ended[turn.id] = "interrupted"


async def try_again_and_fail(life):
    async with life.session.turn(life.word("question")) as turn:
        life.heard(await turn.say(life.word("wrong")))
        await turn.retract("wrong")
        await turn.fail("no more")
    life.ended[turn.id] = "failed"


async def interrupt(life):
    async with life.session.turn(life.word("question")) as turn:
        life.heard(await turn.say(life.word("said")))
        await turn.interrupt("enough")
        life.ended[turn.id] = "interrupted"


async def be_stopped(life):
    with contextlib.suppress(TurnInterrupted):
        async with life.session.turn(life.word("question")) as turn:
            other = await life.store.get(life.session.id)
            assert await other.stop("enough")
            life.ended[turn.id] = "interrupted"


async def be_stopped_while_speaking(life):
    """Whoever was cancelled hears of that, and not that its turn was over as well."""
    with contextlib.suppress(TurnInterrupted):
        async with life.session.turn(life.word("question")) as turn:
            stream, other = life.word("stream"), await life.store.get(life.session.id)
            async for text in turn.deliver([f"{stream} ", "and so on ", "and so on"]):
                life.shown[stream] = life.shown.get(stream, "") + text
                await other.stop("enough")
                life.ended[turn.id] = "interrupted"
        raise AssertionError("it was stopped")


async def take_over(life):
    with contextlib.suppress(TurnInterrupted):
        async with life.session.turn(life.word("question")) as old:
            async with life.session.turn(life.word("question"), on_busy="interrupt") as turn:
                life.ended[old.id] = "interrupted"
                life.heard(await turn.say(life.word("said")))
            life.ended[turn.id] = "completed"


async def forget_a_turn(life):
    """Without a block, a turn is its caller's to end; one that is forgotten is ended when somebody
    looks.
    """
    life.forgets = True
    # so that the keeper looks often
    turn = await life.session.turn(life.word("question"), lease_s=0.3)
    life.heard(await turn.say(life.word("said")))


async def wait_for_a_turn(life):
    """Another task is in a turn, and leaves it when this one waits with its message in
    the inbox.
    """
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def hold():
        async with life.session.turn(life.word("question")):
            begun.set()
            while not let_go.is_set() and not await life.session.pending():
                await asyncio.sleep(0)

    life.others.append(asyncio.create_task(hold()))
    try:
        await begun.wait()
        async with life.session.turn(question := life.word("question")) as turn:
            life.heard(question)
            life.heard(await turn.say(life.word("said")))
        life.ended[turn.id] = "completed"
    finally:
        let_go.set()


async def accept(life):
    receipt = await life.store.accept(
        life.key, text := life.word("accepted"), event_id=text, reply_to="cas"
    )
    life.said.append((receipt.session_id, text))
    again = await life.store.accept(life.key, "another text", event_id=text)
    assert again.again and again.message_id == receipt.message_id
    await life.session.pending()


async def send_what_is_owed(life):
    for owed in [owed for owed in await life.store.outbox(10_000) if owed.key == life.key]:
        await owed.failed("no line")
        await owed.sent("p-1")
        life.holds(f"{owed.id} is paid", paid(life, owed.id))


def paid(life, id):
    async def holds():
        return id not in {owed.id for owed in await life.store.outbox(10_000)}

    return holds


async def append(life):
    await life.session.append(text := life.word("appended"), event_id=text)
    life.heard(text)


async def record(life):
    messages = list(await life.session.context())
    messages += [
        {"role": "user", "content": life.word("recorded")},
        {"role": "assistant", "content": life.word("recorded")},
    ]
    await life.session.record(messages)
    for message in messages[-2:]:
        life.heard(message["content"])
    del messages[:-2]
    await life.session.record(messages)


async def compact(life):
    async def summarise(messages):
        await asyncio.sleep(0)
        return f"Summary of {len(messages)}."

    done = await life.session.compact(summarise, keep_turns=1)
    if done is not None:
        life.holds(f"the compaction at {done.seq}", entry_is(life, done.seq, "compaction"))


def entry_is(life, seq, kind):
    session = life.session

    async def holds():
        return [entry.kind async for entry in session.entries(seq - 1)][:1] == [kind]

    return holds


async def rewind(life):
    await life.session.rewind(await life.known())


async def fork(life):
    branch = await life.session.fork(at=await life.known())
    async with branch.turn(question := life.word("question")) as turn:
        life.heard(question, branch)
        life.heard(await turn.say(life.word("said")), branch)
    life.ended[turn.id] = "completed"


async def label(life):
    id = await life.known()
    await life.session.label(id, mark=(mark := life.word("mark")))

    async def holds(session=life.session):
        return [
            message.labels.get("mark") async for message in session.transcript() if message.id == id
        ] == [mark]

    life.holds("label", holds)


async def instruct(life):
    await life.session.instructions(prompt := life.word("prompt"))

    async def holds(session=life.session):
        return await session.instructions() == prompt

    life.holds("prompt", holds)


async def decide(life):
    if any(call.state == "waiting" for call in await life.session.calls()):
        await life.session.decide("asked", True, by="ann")
        async with life.session.turn(life.word("question")) as turn:
            if not (await turn.call("pay", {"sum": 1}, call_id="asked")).waiting:
                await turn.result("asked", found := life.word("found"))
                life.heard(found)
        life.ended[turn.id] = "completed"


async def read(life):
    """All that reads, and following up to what was the last entry when it began."""
    info = await life.session.info()
    assert len([message async for message in life.session.transcript()]) <= info.messages
    assert [entry.seq async for entry in life.session.entries()][-1] >= info.head
    async for event in life.session.follow():
        if event.entry is not None and event.entry.seq >= info.head:
            break
    for format in FORMATS:
        await life.session.context(format)


async def reset(life):
    new = await life.store.reset(life.key)
    life.holds("reset", ended(life.session))
    life.session, life.messages = new, []


async def end(life):
    with contextlib.suppress(TurnInterrupted):
        async with life.session.turn(life.word("question")):
            await life.session.end("done")
    life.holds("end", ended(life.session))
    life.session, life.messages = await life.store.session(life.key), []


def ended(session):
    async def holds():
        return (await session.info()).state == "ended"

    return holds


async def erase(life):
    """Another session, so that this one can go on."""
    session = await life.store.session(f"{life.key} for a while")
    with contextlib.suppress(TurnInterrupted):
        async with session.turn(canary := life.word("canary")):
            await life.store.erase(session.id, preview=True)
            await life.store.erase(session.id)

    async def holds():
        return canary not in str([message.payload async for message in session.transcript()])

    life.holds("erase", holds)


async def look_around(life):
    first = await life.store.sessions(limit=1)
    await life.store.sessions(after=first.next, limit=1, state="open")
    await life.store.retain(1)


STEPS = [
    take_a_turn,
    leave_a_stream,
    try_again_and_fail,
    interrupt,
    be_stopped,
    be_stopped_while_speaking,
    take_over,
    forget_a_turn,
    wait_for_a_turn,
    accept,
    send_what_is_owed,
    append,
    record,
    compact,
    rewind,
    fork,
    label,
    instruct,
    decide,
    read,
    reset,
    end,
    erase,
    look_around,
]


async def live(life, steps):
    for step in steps:
        await step(life)


# The judge
# -----------------------------------------------------------------------------------------------------------


async def judge(life, eye):
    """What must hold after a life, cut short or not."""
    told = {
        id: await transcript(life, id) for id in {id for id, _ in life.said} | {life.session.id}
    }
    for id, messages in told.items():
        texts = [text_of(message) for message in messages]
        once = [text for at, text in life.said if at == id]
        assert [text for text in once if texts.count(text) != 1] == [], (
            "acknowledged, and not there once"
        )
        assert once == sorted(once, key=texts.index), "acknowledged, and not in order"
        assert len(set(texts)) == len(texts), "said twice"
        found = ends(eye, id)
        assert all(len(each) == 1 for each in found.values()), f"one end each: {found}"
        assert {turn: end for turn, end in life.ended.items() if turn.startswith(id)}.items() <= {
            f"{id}:{number}": end for number, (end,) in found.items()
        }.items()
        await judge_contexts(life, eye, id)
    stored = [text_of(message) for messages in told.values() for message in messages]
    for shown in life.shown.values():
        assert any(text.startswith(shown) for text in stored), (
            f"{shown!r} was handed on, and is not stored"
        )
    for what, holds in life.facts.items():
        assert await holds(), what


async def transcript(life, id):
    return [message async for message in (await life.store.get(id)).transcript()]


def text_of(message):
    return (
        message.text
        or "".join(getattr(part, "content", "") for part in message.parts)
        or message.id
    )


async def judge_contexts(life, eye, id):
    session, other = await life.store.get(id), eye.get(id)
    for format in FORMATS:
        context = list(await session.context(format))
        assert check(format, context) == []
        assert context == list(other.context(format)), "another handle computes another context"


async def go_on(life):
    """The same handles, the same loop, at once."""
    session, on_busy = life.session, "wait" if life.forgets else "refuse"
    try:
        starting = await session.turn(text := life.word("next"), on_busy=on_busy)
    except SessionEnded:
        starting = await life.store.turn(life.key, text := life.word("next"), on_busy=on_busy)
        session = life.session = await life.store.session(life.key)
    async with starting as turn:
        life.heard(text, session)
        assert text in str(await turn.context())
        await deliver(life, turn)
        life.heard(await turn.say(life.word("said")), session)
    life.ended[turn.id] = "completed"
    assert (await session.info()).running is None
    assert await session.pending() == []


def wait_for_end(thread):
    """The thread has ended, or LIMIT_S have passed: also for one that is just being started,
    which is in the list of threads already and can't be joined yet.
    """
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        try:
            return thread.join(LIMIT_S)
        except RuntimeError:  # it is being started
            time.sleep(0.001)


async def left_over(before):
    """Tasks and threads that do not end by themselves. The thread that closes what is dropped is
    one for the whole process, and stays.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        _, tasks = await asyncio.wait(tasks, timeout=LIMIT_S)
    threads = [
        thread
        for thread in set(threading.enumerate()) - before
        if not thread.name.startswith(("holdfast-reader", "holdfast-closer"))
    ]
    for thread in threads:
        await asyncio.to_thread(wait_for_end, thread)
    return [*tasks, *(thread.name for thread in threads if thread.is_alive())]


@contextlib.contextmanager
def no_complaints():
    """Neither the loop nor the interpreter complains: of errors never retrieved, of coroutines
    never awaited.
    """
    heard: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield lambda _loop, context: heard.append(str(context))
        gc.collect()
    assert [*heard, *(str(warning.message) for warning in warned)] == []


def run_cut(where, scenes):
    """Runs `scenes(store, eye)` on a loop of its own, with an eye on the store; then looks at the
    whole store.
    """

    async def run(complain, eye):
        asyncio.get_running_loop().set_exception_handler(complain)
        async with holdfast.open_async(where, durability="process") as store:
            await scenes(store, eye)

    with no_complaints() as complain, holdfast.open(where, durability="process") as eye:
        asyncio.run(run(complain, eye))
        assert oracle.judge(eye) == []


def places(when):
    """The places to be tried at this moment: in an ordinary run the first, and every eighth one of
    the others at one moment of the three.
    """
    if SWEEP:
        return itertools.count(1)
    others = itertools.count(2 + 8 * MOMENTS.index(when), 8 * len(MOMENTS))
    return itertools.chain([1], others)


async def cut_at_every_place(store, eye, lives):
    """`lives` gives, again and again, a prepared life and what it is to do; each is cut a place
    later than the last.
    """
    for when in MOMENTS:
        for at in places(when):
            life, doing = await lives(f"{when} {at}")
            if not await cut_at(life, eye, doing, at=at, when=when):
                break


async def cut_at(life, eye, doing, *, at, when):
    """One life, cut there and judged; whether there was such a place."""
    before = set(threading.enumerate())
    cut = Cut(at=at, when=when)
    task = asyncio.create_task(cut.drive(doing))
    await asyncio.wait([task])
    try:
        assert task.cancelled() == cut.reached, (
            f"the cancellation was swallowed or replaced: {task}"
        )
        if not task.cancelled():
            task.result()
        if life.others:
            await asyncio.wait(life.others, timeout=LIMIT_S)
        if life.forgets:
            del task
            gc.collect()  # an exception and its traceback know each other, and the turn
        await go_on(life)
        assert await left_over(before) == []
        await judge(life, eye)
    except BaseException as error:
        error.add_note(f"cut {when} place {at}")
        raise
    return cut.reached


# The laws
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_each_call_can_be_cancelled_wherever_it_waits(tmp_path, step):
    async def scenes(store, eye):
        async def lives(name):
            life = Life(store, name)
            await life.prepare()
            return life, step(life)

        await cut_at_every_place(store, eye, lives)

    run_cut(tmp_path / "agent.db", scenes)


@pytest.mark.slow
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=6),
    at=st.integers(1, 60),
    when=st.sampled_from(MOMENTS),
)
@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
def test_a_whole_life_can_be_cancelled_anywhere(steps, at, when):
    """Whatever came before, and whatever it left behind."""

    async def live(life):
        for step in steps:
            await step(life)

    async def scenes(store, eye):
        life = Life(store, "k")
        await life.prepare()
        await cut_at(life, eye, live(life), at=at, when=when)

    with tempfile.TemporaryDirectory() as folder:
        run_cut(Path(folder) / "agent.db", scenes)


async def take_from_the_inbox(life, turn):
    await turn.inbox()


async def look(life, turn):
    await turn.context()
    assert not await turn.stopped


async def use_a_tool(life, turn):
    await turn.result(await turn.call("look", {}, call_id="c1"), life.word("found"))


async def ask_for_approval(life, turn):
    await turn.call("pay", {}, call_id="c2", needs_approval=True)


async def say(life, turn):
    life.heard(await turn.say(life.word("said")))


async def add(life, turn):
    await turn.add({"role": "assistant", "content": life.word("added")})


async def retract(life, turn):
    await turn.say(life.word("wrong"))
    await turn.retract("wrong")


async def speak(life, turn):
    await deliver(life, turn)


CALLS = [take_from_the_inbox, look, use_a_tool, ask_for_approval, say, add, retract, speak]


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_turn_goes_on_after_any_call_of_it_was_cancelled(tmp_path, call):
    """A caller that waits no longer for one call (a time limit) has a turn all the same. What the
    turn took from the inbox it owes an answer to, whether or not the one who took it was still
    there (I-23).
    """

    async def scenes(store, eye):
        async def lives(name):
            life = Life(store, name)
            await life.prepare()
            await go_on(life)  # nothing waits any more
            turn = life.turn = await life.session.turn(life.word("question"))
            await store.accept(name, life.word("accepted"), reply_to="dan")
            return life, call(life, turn)

        for when in MOMENTS:
            for at in places(when):
                life, doing = await lives(f"{when} {at}")
                cut = Cut(at=at, when=when)
                task = asyncio.create_task(cut.drive(doing))
                await asyncio.wait([task])
                assert task.cancelled() == cut.reached, task
                async with life.turn as turn:
                    await turn.inbox()
                    life.heard(await turn.say(life.word("said")))
                life.ended[turn.id] = "completed"
                assert [
                    owed.reply_to for owed in await store.outbox(10_000) if owed.turn_id == turn.id
                ] == ["dan"]
                await go_on(life)
                await judge(life, eye)
                if not cut.reached:
                    break

    run_cut(tmp_path / "agent.db", scenes)


@pytest.mark.slow
@pytest.mark.parametrize("when", MOMENTS)
def test_opening_and_closing_can_be_cancelled_and_leave_no_thread(tmp_path, when):
    """A store that nobody got is closed; one whose closing nobody waits for is closed all
    the same.
    """

    async def open_and_close(at):
        async with holdfast.open_async(tmp_path / f"{when}{at}.db") as store:
            async with store.turn("k", "Hi") as turn:
                await turn.say("Hello.")

    async def scenes():
        for at in itertools.count(1):
            before, cut = set(threading.enumerate()), Cut(at=at, when=when)
            task = asyncio.create_task(cut.drive(open_and_close(at)))
            await asyncio.wait([task])
            assert task.cancelled() == cut.reached, task
            assert await left_over(before) == []
            if not cut.reached:
                return

    with no_complaints() as complain:

        async def run():
            asyncio.get_running_loop().set_exception_handler(complain)
            await scenes()

        asyncio.run(run())
