"""The programs in `examples/` run as they are; killed or interrupted, they keep what they
promise.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.testing.adapters import ScriptedAnswer, ScriptedProvider, serve
from holdfast.testing.providers import check
from procs import child
from thorough import EXPLORE, few_cases, sample

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60.0
PRESSES = 4
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "BOT_TOKEN")
NO_KEYS: Mapping[str, str] = {}
"""Without keys the programs answer themselves."""


@contextmanager
def example(
    name: str, *arguments: object, cwd: Path, settings: Mapping[str, str] = NO_KEYS
) -> Iterator[subprocess.Popen[str]]:
    """The program, started in this folder; killed when the block is left. `settings` are variables
    of its environment.
    """
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    has_no_keys = {name: value for name, value in os.environ.items() if name not in KEYS}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)],
        cwd=cwd,
        env={**has_no_keys, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output_of(
    name: str, *arguments: object, cwd: Path, settings: Mapping[str, str] = NO_KEYS
) -> str:
    with example(name, *arguments, cwd=cwd, settings=settings) as process:
        out, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, out
        return out


def ended_by(process: subprocess.Popen[str], how: signal.Signals) -> int:
    """Its exit code. Python sees a signal that comes just before a system call only when that
    returns: a user presses Ctrl-C again.
    """
    for _ in range(PRESSES):
        process.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(LIMIT_S / PRESSES)
    raise AssertionError("it does not end")


def until(process: subprocess.Popen[str], words: str) -> str:
    """What the program prints up to and with these words."""
    read = ""
    assert process.stdout is not None
    while not read.endswith(words):
        more = process.stdout.read(1)
        assert more, f"it ended without saying {words!r}: {read}"
        read += more
    return read


# The gateway
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_gateway_answers_every_update_once_and_asks_before_it_refunds(tmp_path: Path):
    said = output_of("gateway.py", cwd=tmp_path)
    assert "accepted update 1 (again)" in said
    assert "refund {'order': 23, 'euros': 20} waits for approval" in said
    assert said.index("ann has approved") < said.index("20 euros for order 23 were refunded")
    assert [(message["chat"], message["text"]) for message in sent(tmp_path)] == [
        ("42", "Good news: order 17 arrives tomorrow."),
        ("7", "I have asked a colleague. You will hear from us."),
        ("7", "Good news: 20 euros for order 23 were refunded."),
    ]
    settled(tmp_path)
    before = sent(tmp_path)
    output_of("gateway.py", cwd=tmp_path)  # all is known
    assert sent(tmp_path) == before


def sent(folder: Path) -> list[dict[str, str]]:
    return [
        json.loads(line) for line in (folder / "gateway.db.sent.jsonl").read_text().splitlines()
    ]


def settled(folder: Path) -> None:
    """Nothing waits, nothing is owed, what users said is there once, and the refund was started
    once.
    """
    with holdfast.open(folder / "gateway.db") as store:
        assert not store.pending() and not store.outbox() and store.check() == []
        sessions = [store.session("chat:42", create=False), store.session("chat:7", create=False)]
        texts = [
            message.text
            for session in sessions
            for message in session.transcript()
            if message.role == "user"
        ]
        assert sorted(texts) == [
            "I want a refund for order 23.",
            "Thank you!",
            "Where is order 17?",
        ]
        assert [call.name for call in sessions[1].calls() if call.state in ("done", "unknown")] == [
            "refund"
        ]


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize(
    "moment",
    [
        "accepted update 2",
        "chat:42: news:",
        "waits for approval",
        "ann has approved",
        "order 23",
        "sent to 7",
    ],
)
def test_a_gateway_that_was_killed_goes_on_when_it_is_started_again(moment: str, tmp_path: Path):
    with example("gateway.py", "--delay", 0.05, cwd=tmp_path) as process:
        until(process, moment)
        process.send_signal(signal.SIGKILL)
        assert process.wait(LIMIT_S) == -signal.SIGKILL
    output_of("gateway.py", cwd=tmp_path)
    settled(tmp_path)
    arrived = sent(tmp_path)
    assert len({message["key"] for message in arrived}) == len(arrived)
    texts = Counter((message["chat"], message["text"]) for message in arrived)
    assert texts["42", "Good news: order 17 arrives tomorrow."] == 1
    assert [text for chat, text in texts if chat == "7"][-1] in (
        "Good news: 20 euros for order 23 were refunded.",
        # killed between the call and its outcome
        "I can't tell whether that went through. A colleague will look.",
    )


# The coding agent
# ----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with three programs, the longest of which is the gateway."""
    folder = tmp_path / "examples"
    folder.mkdir()
    for name in ("coding_agent.py", "gateway.py", "retrofit.py"):
        shutil.copy(ROOT / "examples" / name, folder)
    return folder


def test_the_coding_agent_compacts_in_the_middle_of_its_turn_and_keeps_all_of_it(
    files: Path, tmp_path: Path
):
    said = output_of("coding_agent.py", "--folder", files, cwd=tmp_path)
    assert said.count("[read_file ") == 3 and "[compacted " in said
    assert said.endswith("gateway.py is the longest.\n")
    with holdfast.open(tmp_path / "coding.db") as store:
        session = store.session("code:examples", create=False)
        assert [turn.end for turn in session.turns()] == ["completed", "completed"]
        assert [call.state for call in session.calls()] == ["done"] * 3
        kinds = Counter(entry.kind for entry in session.entries())
        assert kinds["compaction"] == said.count("[compacted ")
        told = [message for message in session.transcript() if message.role == "tool"]
        assert [message.text.partition(":")[0] for message in told] == [
            "coding_agent.py",
            "gateway.py",
            "retrofit.py",
        ]
        size = sum(path.stat().st_size for path in files.glob("*.py"))
        # the summary tells, not the files
        assert len(str(session.context("openai.chat"))) < size / 2


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["has ", "[read_file gateway.py]\n"])
def test_ctrl_c_keeps_what_the_coding_agent_has_shown_and_the_next_prompt_goes_on(
    moment: str, files: Path, tmp_path: Path
):
    with example("coding_agent.py", "--folder", files, "--delay", 0.1, cwd=tmp_path) as process:
        shown = until(process, moment)
        process.send_signal(signal.SIGINT)
        shown += until(process, "[interrupted: what you have seen is kept]")
        rest, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
    assert rest.endswith("gateway.py is the longest.\n")
    with holdfast.open(tmp_path / "coding.db") as store:
        session = store.session("code:examples", create=False)
        assert [turn.end for turn in session.turns()] == ["interrupted", "completed"]
        first = [
            message for message in session.transcript() if message.turn == session.turns()[0].id
        ]
        spoken = "".join(message.text for message in first if message.role == "assistant")
        seen = "".join(line for line in shown.splitlines()[1:-1] if not line.startswith("["))
        assert seen == spoken
        assert "open" not in {call.state for call in session.calls()}


# The retrofit
# --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_retrofitted_agent_loses_nothing_though_it_cuts_its_list(tmp_path: Path):
    first = output_of("retrofit.py", cwd=tmp_path)
    second = output_of("retrofit.py", "Hello.", "Bye.", cwd=tmp_path)
    assert (first + second).count("[2 new]") == 5
    assert second.endswith("The agent's list has 6 messages, the transcript 10.\n")
    with holdfast.open(tmp_path / "retrofit.db") as store:
        session = store.session("parrot", create=False)
        texts = [message.text for message in session.transcript() if message.role == "user"]
        assert texts == ["Hello.", "How are you?", "Hello.", "Hello.", "Bye."]
        assert len(session.context("openai.chat")) == 6
        assert session.instructions() == "You are a parrot with a memory."


# Loops of one's own
# --------------------------------------------------------------------------------------------------

ENDS = [signal.SIGKILL, signal.SIGINT]
CLIENTS = {"openai": "openai.chat", "anthropic": "anthropic"}
FACES = [("openai", ""), ("anthropic", "--asyncio")]
if EXPLORE:
    FACES = [(client, face) for client in CLIENTS for face in ("", "--asyncio")]
WAYS_TO_END = [
    (*each, how)
    for nth, each in enumerate(FACES)
    for how in sample(ENDS if nth % 2 == 0 else ENDS[::-1], every=len(ENDS))
]
"""In an ordinary run one face is ended, in one way: to load a client takes seconds."""
MOMENT = ScriptedAnswer(("One ", "moment. "), [("water", {"row": 7})])


def settings_of(client: str, provider: ScriptedProvider) -> dict[str, str]:
    """What points a client at the strict provider."""
    name = client.upper()
    path = "/v1" if client == "openai" else ""
    return {f"{name}_BASE_URL": provider.url + path, f"{name}_API_KEY": "none"}


def flags(face: str) -> list[str]:
    return [face] if face else []


@pytest.mark.slow
@pytest.mark.parametrize(("client", "face"), sample(FACES, every=2))
def test_a_loop_runs_its_tools_and_goes_on_in_the_next_process(
    client: str, face: str, tmp_path: Path
):
    said = output_of(f"{client}_loop.py", *flags(face), cwd=tmp_path)
    said += output_of(f"{client}_loop.py", *flags(face), "Which row?", cwd=tmp_path)
    assert said.count("One moment. [water {'row': 7}]\nRow 7 is watered.\n") == 1
    assert said.count("It was row 7.\n") == 2
    with holdfast.open(tmp_path / "loop.db") as store:
        session = store.session("garden", create=False)
        assert [turn.end for turn in session.turns()] == ["completed"] * 3
        assert [call.state for call in session.calls()] == ["done"]
        context = session.context(CLIENTS[client])
        assert check(CLIENTS[client], context) == []


@pytest.mark.slow
@pytest.mark.parametrize(("client", "face", "how"), sample(WAYS_TO_END, every=2))
def test_what_a_loop_has_shown_is_told_to_the_model_after_a_kill_and_after_ctrl_c(
    client: str, face: str, how: signal.Signals, tmp_path: Path
):
    with serve() as provider:
        provider.answer("Water", ScriptedAnswer(("One ", "moment. "), stalls_after=1))
        given = {"cwd": tmp_path, "settings": settings_of(client, provider)}
        with example(f"{client}_loop.py", *flags(face), "Water row 7.", **given) as process:
            until(process, "One ")
            assert ended_by(process, how) != 0
        provider.go_on.set()
        output_of(f"{client}_loop.py", *flags(face), "Are you there?", **given)
        asked = provider.asked[-1]
        assert asked.problems == ()
        places = [asked.words.index(words) for words in ("Water row 7.", "One ", "Are you there?")]
        assert places == sorted(places) and "moment" not in asked.words


@pytest.mark.slow
@pytest.mark.parametrize(("client", "face"), sample(FACES[::-1], every=2))
def test_a_loop_that_is_sent_a_request_twice_asks_its_model_once(
    client: str, face: str, tmp_path: Path
):
    with serve() as provider:
        provider.answer("Water", MOMENT, ScriptedAnswer(("Done.",)))
        given = {"cwd": tmp_path, "settings": settings_of(client, provider)}
        request = [*flags(face), "--request", "r-1", "Water row 7."]
        first = output_of(f"{client}_loop.py", *request, **given)
        again = output_of(f"{client}_loop.py", *request, **given)
        assert first.endswith("Done.\n") and again.endswith("One moment. Done.\n")
        assert len(provider.asked) == 2 and "[water" not in again


@pytest.mark.slow
@pytest.mark.parametrize(("client", "face"), sample(FACES, every=2))
def test_a_model_that_calls_what_is_not_there_is_told_so(client: str, face: str, tmp_path: Path):
    with serve() as provider:
        calls = [("fly", {}), ("water", {"column": 7})]
        provider.answer("Water", ScriptedAnswer(("Hm. ",), calls), ScriptedAnswer(("Sorry.",)))
        given = {"cwd": tmp_path, "settings": settings_of(client, provider)}
        output_of(f"{client}_loop.py", *flags(face), "Water row 7.", **given)
        assert provider.asked[-1].problems == ()
        assert "KeyError: 'fly'" in provider.asked[-1].words
        assert "unexpected keyword argument 'column'" in provider.asked[-1].words
    with holdfast.open(tmp_path / "loop.db") as store:
        session = store.session("garden", create=False)
        assert [call.state for call in session.calls()] == ["failed", "failed"]


# The bot
# --------------------------------------------------------------------------------------------------


def chats_of(folder: Path) -> list[tuple[int, str]]:
    """What stands in the chats, in order."""
    kept = json.loads((folder / "bot.db.telegram.json").read_text())
    return [(chat, text) for chat, text in kept["chats"]]


def every_update_is_there_once(folder: Path) -> None:
    with holdfast.open(folder / "bot.db") as store:
        assert not store.pending() and not store.outbox() and store.check() == []
        # What waited while its chat was begun anew is in both logs, as one message.
        texts = {}
        for listed in store.sessions(limit=50):
            for message in store.get(listed.id).transcript():
                if message.role == "user":
                    texts[message.id] = message.text
        asked = ["Where is order 17?", "Hello!", "And order 23?", "/new", "Do you know me?"]
        assert sorted(texts.values()) == sorted([*asked, "Thank you."])
        assert store.session("chat:7", create=False).epoch >= 2


@pytest.mark.slow
def test_the_bot_answers_in_every_chat_and_begins_anew_when_it_is_told_to(tmp_path: Path):
    said = output_of("telegram_bot.py", cwd=tmp_path)
    every_update_is_there_once(tmp_path)
    chats = chats_of(tmp_path)
    told = " ".join(text for chat, text in chats if chat == 42)
    assert "Order 17 arrives tomorrow." in told and "Order 23 arrives tomorrow." in told
    last = [text for chat, text in chats if chat == 7][-2:]
    assert "A new conversation." in last and "I have heard" in " ".join(last)
    assert said.count("accepted") == 5
    assert "accepted" not in output_of("telegram_bot.py", cwd=tmp_path)
    assert chats_of(tmp_path) == chats


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize(
    "moment",
    [
        "accepted 1",
        "accepted 3",
        "to 42: Order 17 \n",
        "Order 23 \n",
        "to 7: A new",
        "accepted 5",
        "to 7: I have heard 1 \n",
        "accepted 6",
    ],
)
def test_a_bot_that_was_killed_goes_on_when_it_is_started_again(moment: str, tmp_path: Path):
    with example("telegram_bot.py", "--delay", 0.02, cwd=tmp_path) as process:
        until(process, moment)
        process.send_signal(signal.SIGKILL)
        assert process.wait(LIMIT_S) == -signal.SIGKILL
    output_of("telegram_bot.py", cwd=tmp_path)
    every_update_is_there_once(tmp_path)
    told = " ".join(text for chat, text in chats_of(tmp_path) if chat == 42)
    assert "Order 17" in told and "Order 23" in told
    assert (7, "A new conversation.") in chats_of(tmp_path)


KILLED = """
    import holdfast
    key, said, *asked = sys.argv[2:]
    with holdfast.open(sys.argv[1]) as store, store.turn(key, *asked, reply_to=42, take=[]) as turn:
        if said:
            turn.stream().push(said)
        say("running")
        hear()
"""


def kill_in_a_turn(where: Path, key: str, *asked: str, said: str = "") -> None:
    with child(KILLED, where, key, said, *asked) as process:
        process.wait_for("running")
        process.kill()


@pytest.fixture
def bot_module() -> ModuleType:
    return module_of("telegram_bot")


def module_of(name: str) -> ModuleType:
    """A program, as a module."""
    path = ROOT / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked_after_a_restart(
    bot: ModuleType, where: Path, chat: dict[int, str] | None = None
) -> list[list[str]]:
    """What the model is told by a gateway that is started again: the words of each request. `chat`
    has the messages that it shows.
    """
    asked: list[list[str]] = []
    shown: dict[int, str] = {} if chat is None else chat

    async def model(messages: Any, delay: float) -> Any:
        asked.append([message["content"] for message in messages])
        yield f"Answer {len(asked)}."

    async def send_message(chat_id: int, text: str) -> Any:
        shown[len(shown) + 1] = text
        return SimpleNamespace(message_id=len(shown))

    async def edit_message_text(text: str, chat_id: int, message_id: int) -> None:
        shown[message_id] = text

    telegram = SimpleNamespace(send_message=send_message, edit_message_text=edit_message_text)

    async def restart() -> None:
        async with holdfast.open_async(where) as store:
            await bot.Gateway(store, telegram).restart()

    bot.model = model  # type: ignore[attr-defined]
    asyncio.run(restart())
    return asked


CUT = ("Where is order 17?", "Order 17 ")
GO_ON = "(There is no new message. Continue.)"


@pytest.mark.parametrize("is_killed_again", [False, True])
def test_an_answer_that_is_gone_on_with_serves_no_question_that_waits(
    is_killed_again: bool, bot_module: ModuleType, tmp_path: Path
):
    where = tmp_path / "bot.db"
    kill_in_a_turn(where, "chat:42", CUT[0], said=CUT[1])
    if is_killed_again:  # as it went on, before it said more
        kill_in_a_turn(where, "chat:42")
    with holdfast.open(where) as store:
        store.accept("chat:42", "And order 23?", event_id=3, reply_to=42)
    asked = asked_after_a_restart(bot_module, where)
    shown = "\n\n".join([CUT[1], "Answer 1."])
    assert asked == [[*CUT, GO_ON], [CUT[0], shown, "And order 23?"]]
    with holdfast.open(where) as store:
        ends = [turn.end for turn in store.session("chat:42").turns()]
        assert ends == ["abandoned"] * (1 + is_killed_again) + ["completed"] * 2


@pytest.mark.parametrize("had_begun", [True, False])
def test_a_gateway_goes_on_with_an_answer_before_it_takes_what_waits(
    had_begun: bool, tmp_path: Path
):
    where = tmp_path / "gateway.db"
    kill_in_a_turn(where, "chat:42", CUT[0], said=CUT[1] if had_begun else "")
    asked: list[list[str]] = []

    def model(messages: Any, delay: float) -> Any:
        asked.append([message["content"] for message in messages])
        delta = {"role": "assistant", "content": f"Answer {len(asked)}."}
        yield {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}

    gateway = module_of("gateway")
    gateway.model = model  # type: ignore[attr-defined]
    with holdfast.open(where) as store:
        store.accept("chat:42", "And order 23?", event_id=3, reply_to=42)
        gateway.work(store, gateway.Platform(tmp_path / "sent.jsonl"), 0.0)
    shown = "\n\n".join([CUT[1], "Answer 1."])
    alone = [[*CUT, GO_ON], [CUT[0], shown, "And order 23?"]]
    assert asked == (alone if had_begun else [[f"{CUT[0]}\n\nAnd order 23?"]])


def test_a_question_whose_answer_had_not_begun_is_asked_with_those_that_wait(
    bot_module: ModuleType, tmp_path: Path
):
    where = tmp_path / "bot.db"
    kill_in_a_turn(where, "chat:42", CUT[0])
    with holdfast.open(where) as store:
        store.accept("chat:42", "And order 23?", event_id=3, reply_to=42)
    assert asked_after_a_restart(bot_module, where) == [[f"{CUT[0]}\n\nAnd order 23?"]]


def test_a_command_that_is_done_again_answers_no_other_one(bot_module: ModuleType, tmp_path: Path):
    where = tmp_path / "bot.db"
    kill_in_a_turn(where, "command:42", "/new", said="A new ")
    with holdfast.open(where) as store:
        store.accept("command:42", "/new", event_id=4, reply_to=42)
    assert asked_after_a_restart(bot_module, where) == []
    with holdfast.open(where) as store:
        said = [message.text for message in store.session("command:42").transcript()]
        assert Counter(said) == {"/new": 2, "A new ": 1, "A new conversation.": 2}


def test_a_restart_that_is_cut_off_leaves_the_other_chats_to_the_next_one(
    bot_module: ModuleType, tmp_path: Path
):
    where = tmp_path / "bot.db"
    for chat in ("chat:7", "chat:42"):
        kill_in_a_turn(where, chat, f"Hello from {chat}!", said="Hello, ")

    class OutOfOrder(Exception):
        pass

    async def model(messages: Any, delay: float) -> Any:
        raise OutOfOrder
        yield

    async def restart() -> None:
        async with holdfast.open_async(where) as store:
            await bot_module.Gateway(store, None).restart()

    bot_module.model = model  # type: ignore[attr-defined]
    with pytest.raises(OutOfOrder):
        asyncio.run(restart())
    # An error of the program's ends its turn; the other chat's answer is still cut off.
    assert len(asked_after_a_restart(bot_module, where)) == 1


def test_words_that_were_durable_and_not_shown_yet_are_shown_with_what_follows(
    bot_module: ModuleType, tmp_path: Path
):
    where = tmp_path / "bot.db"
    kill_in_a_turn(where, "chat:42", CUT[0], said="Order 17 arrives ")
    shown: dict[int, str] = {}
    assert len(asked_after_a_restart(bot_module, where, shown)) == 1
    # The model knows them, and says only what follows.
    assert list(shown.values()) == ["Order 17 arrives Answer 1."]
