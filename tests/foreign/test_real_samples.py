"""Files that real programs made (`tests/samples`): recognised, examined, healed, imported, and carried on as the
program itself carries on.

Beside each sample lies `sent.json`: the session, and the messages that the program sent when it was spoken to once
more.
"""

import json
import shutil
from pathlib import Path

import pytest

import holdfast
from commanding import command
from holdfast.testing.providers import check
from torture.systems import claude, codex

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
PROGRAMS = {
    "claude": ("claude-2.1.325", "anthropic", claude),
    "codex": ("codex-0.166.0", "openai.responses", codex),
}
"""Each kind, with its folder, its wire format, and the module that knows what the program says of itself."""
OPEN = {"kill--9-in-a-tool": {"tool-call-without-result"}}
"""What is to be found in a sample; in all others there is nothing."""
ALL = [
    pytest.param(kind, path.name, id=f"{kind}-{path.name}")
    for kind, (folder, _, _) in PROGRAMS.items()
    for path in sorted((SAMPLES / folder).iterdir())
]


@pytest.fixture
def files(kind, name, tmp_path):
    """The files of a sample, without the request beside them."""
    copied = shutil.copytree(SAMPLES / PROGRAMS[kind][0] / name, tmp_path / "sample")
    (copied / "sent.json").unlink()
    return copied


def sent(kind, name):
    told = json.loads((SAMPLES / PROGRAMS[kind][0] / name / "sent.json").read_text())
    return told["session"], told["sent"]


def context(kind, into, session):
    """The context of a session, in the format of its program, without what the program says of itself."""
    _, format, program = PROGRAMS[kind]
    with holdfast.open(into) as store:
        for info in store.sessions(limit=500):
            here = store.get(info.id)
            if any(message.labels.get("story", {}).get("id") == session for message in here.transcript()):
                said = json.loads(json.dumps(list(here.context(format))))
                assert check(format, said) == []
                return program.plain(said)
    raise AssertionError(f"session {session} did not come over")


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_what_a_program_left_is_examined_and_healed(kind, name, files, tmp_path):
    done = command("doctor", files, "--json")
    told = done.json
    expected = {f"{kind}/{rule}" for rule in OPEN.get(name, ())}
    assert set(told["totals"]["rules"]) == expected and done.code == bool(expected)
    assert {store["kind"] for store in told["stores"]} == {kind}
    assert told["totals"]["not_examined"] == {}
    assert command("doctor", files, "--heal", f"{tmp_path / 'healed'}/", "--json").code == 0
    assert command("doctor", tmp_path / "healed").code == 0


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_what_holdfast_sends_next_is_what_the_program_sends_next(kind, name, files, tmp_path):
    into = tmp_path / "agent.db"
    assert command("import", files, "--into", into).code == 0
    session, wanted = sent(kind, name)
    assert context(kind, into, session) == wanted
    again = command("import", files, "--into", into, "--json").json["stores"]
    assert [(store["new"], store["messages"]) for store in again] == [(0, 0)] * len(again)
    assert context(kind, into, session) == wanted
