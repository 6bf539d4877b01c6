"""The scenes: what happens to a turn. Each leaves nobody connected, and the session as it is then.

Every scene has one quiet turn before the one that something happens to, so that a session is there
to be found again.
"""

import json
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import holdfast
from holdfast.exporters.export import export
from torture.live.acp.agents import Goose
from torture.live.acp.client import Client, answered
from torture.live.acp.stage import HELD, Json, Stage
from torture.systems.judging import Trouble

BRIEFLY_S = 5


def opened(stage: Stage) -> Client:
    """A client in a session in which something was said."""
    client = stage.connect()
    client.say(stage.session, stage.prompt({"think": "A greeting.", "text": "Good morning."}))
    return client


def cancel_mid_stream(stage: Stage) -> None:
    client = opened(stage)
    _cancel_answer(stage, client)
    client.hang_up()


def _cancel_answer(stage: Stage, client: Client) -> None:
    waiting = client.prompt(stage.session, stage.prompt({"hold": HELD}))
    stage.until_held(client)
    client.cancel(stage.session)
    answered(waiting, "the cancelled prompt")


def cancel_in_a_tool(stage: Stage) -> None:
    """goose #7785."""
    client = opened(stage)
    _cancel_tool(stage, client)
    client.hang_up()


def _cancel_tool(stage: Stage, client: Client) -> None:
    step = {"text": "I will look.", "tools": [stage.slow()]}
    waiting = client.prompt(stage.session, stage.prompt(step, {"text": "Never said."}))
    stage.until_running(client)
    client.cancel(stage.session)
    answered(waiting, "the cancelled prompt")
    stage.let_go()


def cancel_twice(stage: Stage) -> None:
    """In an answer, and in a tool."""
    client = opened(stage)
    _cancel_answer(stage, client)
    stage.model.go_on.set()
    _cancel_tool(stage, client)
    client.hang_up()


def cancel_while_asked(stage: Stage) -> None:
    client = opened(stage)
    client.permission = None
    step = {"text": "May I?", "tools": [stage.echo("touch asked; ")]}
    waiting = client.prompt(stage.session, stage.prompt(step, {"text": "Never said."}))
    client.wait(lambda: bool(client.asked), "the question")
    client.cancel(stage.session)
    answered(waiting, "the cancelled prompt")
    client.hang_up()


def held_after_a_tool(stage: Stage) -> Client:
    """A client that is shown an answer after a tool has run."""
    client = opened(stage)
    steps = {"text": "I will look.", "tools": [stage.echo()]}, {"hold": HELD}
    client.prompt(stage.session, stage.prompt(*steps))
    stage.until_held(client)
    return client


def kill_of_the_agent(stage: Stage) -> None:
    stage.kill_agent(held_after_a_tool(stage))


def kill_of_the_client(stage: Stage) -> None:
    held_after_a_tool(stage).kill()


def kill_of_the_recorder(stage: Stage) -> None:
    stage.kill_recorder(held_after_a_tool(stage))


def end_of_input(stage: Stage) -> None:
    held_after_a_tool(stage).hang_up()


def reconnecting(stage: Stage) -> None:
    """Twice, and with a turn in between."""
    client = opened(stage)
    steps = {"think": "Hm.", "text": "I will look.", "tools": [stage.echo()]}, {"text": "A saw."}
    client.say(stage.session, stage.prompt(*steps))
    client.hang_up()
    stage.connect(load=True).hang_up()
    client = stage.connect(load=True)
    client.say(stage.session, stage.prompt({"text": "Still a saw."}))
    client.hang_up()


def second_prompt(stage: Stage) -> None:
    """A prompt while another is being answered: queued, or refused."""
    client = opened(stage)
    first = client.prompt(stage.session, stage.prompt({"hold": HELD}))
    stage.until_held(client)
    second = client.prompt(stage.session, stage.prompt({"text": "The second answer."}))
    if not stage.agent.queues:
        second.get(timeout=BRIEFLY_S * 12)
    stage.let_go()
    answered(first, "the first prompt")
    if stage.agent.queues:
        answered(second, "the second prompt")
    client.hang_up()


def parallel_calls(stage: Stage) -> None:
    """Three calls at once; the agent is killed while the last one runs."""
    client = opened(stage)
    calls = [stage.echo(), stage.echo(), stage.slow()]
    client.prompt(stage.session, stage.prompt({"text": "All three.", "tools": calls}))
    stage.until_running(client)
    client.wait(lambda: len({each["toolCallId"] for each in client.updates("tool_call")}) == 3,
                "three calls")  # fmt: skip
    # Some agents tell of outcomes as they come, others when all are there.
    until = time.monotonic() + BRIEFLY_S
    while _outcomes(client) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    stage.kill_agent(client)


def _outcomes(client: Client) -> int:
    ended = ("completed", "failed")
    return len([each for each in client.updates("tool_call_update") if each.get("status") in ended])


def labels(stage: Stage) -> None:
    """A message is hidden while the agent runs; the session is summed up where the agent can, left
    and loaded again.
    """
    client = opened(stage)
    if stage.served:
        with holdfast.open(stage.store) as store:
            session = stage.the_session(store)
            session.label(greeting_in(session).id, visible_to_model=False, visible_to_user=False)
    elif isinstance(stage.agent, Goose):
        _hide_in_goose(stage, stage.agent)
    client.say(stage.session, stage.prompt({"text": "Good evening."}))
    if isinstance(stage.agent, Goose):
        client.say(stage.session, "/compact")
    client.hang_up()


def greeting_in(session: holdfast.Session) -> holdfast.Message:
    """The answer that is hidden."""
    for message in session.transcript():
        if message.role == "assistant" and "Good morning" in message.text:
            return message
    raise Trouble("the greeting is not stored")


def _hide_in_goose(stage: Stage, agent: Goose) -> None:
    hidden = json.dumps({"userVisible": False, "agentVisible": False})
    with closing(sqlite3.connect(agent.store(stage.home))) as database, database:
        database.execute(
            "UPDATE messages SET metadata_json = ? WHERE content_json LIKE '%Good morning%'"
            " AND role = 'assistant'",
            (hidden,),
        )


def hidden_in_goose(stage: Stage, agent: Goose) -> bool:
    """Whether what was hidden in goose's store still is."""
    with closing(sqlite3.connect(agent.store(stage.home))) as database:
        rows = database.execute(
            "SELECT metadata_json FROM messages WHERE content_json LIKE '%Good morning%'"
            " AND role = 'assistant'"
        ).fetchall()
    flags = [json.loads(row[0]) for row in rows]
    return bool(flags) and not any(each.get("userVisible") for each in flags)


def exported_to_goose(stage: Stage, agent: Goose, file: Path) -> str:
    """The recorded session, exported and imported by goose; goose's name for it."""
    with holdfast.open(stage.store, read_only=True) as store:
        session = stage.the_session(store)
        file.write_bytes(b"".join(export(session, "goose-json")))
    said = _goose(stage, agent, "session", "import", str(file))
    for line in said.splitlines():
        if " - " in line and line[:8].isdigit():
            return line.split()[0]
    raise Trouble(f"goose did not import it: {said[-300:]}")


def carried_on(stage: Stage, agent: Goose, words: str) -> list[Json]:
    """What goose sends to its model when the session is spoken to from the command line. There it
    has the tools of goose's settings; a client has to ask for them.
    """
    number = words.partition(":")[0]
    _goose(stage, agent, "run", "-t", words, "--resume", "--session-id", stage.session)
    return stage.sent_with(number)


def _goose(stage: Stage, agent: Goose, *arguments: str) -> str:
    done = subprocess.run(
        [*agent.program(), *arguments],
        env=stage.settings(),
        cwd=stage.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout
