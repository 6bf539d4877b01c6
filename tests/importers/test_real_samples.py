"""Files that real programs made (`tests/samples`): recognised, examined, healed, imported, and
carried on as the program itself carries on.

Beside each sample lies `sent.json`: the session, and the messages that the program sent when it was
spoken to once more.
"""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

import holdfast
from commanding import command
from holdfast.testing.providers import check
from thorough import few_cases
from torture.systems import agents, claude, codex, goose, hermes, openviking
from torture.systems.sample_stores import plain_name

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
PROGRAMS = {
    "agents": ("agents-0.24.0", "", agents),
    "claude": ("claude-2.1.325", "anthropic", claude),
    "codex": ("codex-0.166.0", "openai.responses", codex),
    "goose": ("goose-1.52.0", "openai.chat", goose),
    "hermes": ("hermes-0.19.0", "openai.chat", hermes),
    "openviking": ("openviking-0.5.2", "openviking", openviking),
}
"""Each kind, with its folder, its wire format (where that is one), and the module that knows what
the program does and what it says of itself.
"""
OWN_FORMS = {"goose": "goose-json", "hermes": "hermes", "openviking": "openviking"}
PRIVATE = re.compile(rb"(?<![\w<])/(?:tmp|root|home|work|var|Users|private)\b")
SIZE_MAX = 100_000
ALL = [
    pytest.param(kind, path.name, id=f"{kind}-{path.name}")
    for kind, (folder, _, _) in PROGRAMS.items()
    for path in sorted((SAMPLES / folder).iterdir())
]


@pytest.fixture
def files(kind, name, tmp_path):
    """The files of a sample as the program left them, without the request beside them."""
    copied = shutil.copytree(SAMPLES / PROGRAMS[kind][0] / name, tmp_path / "sample")
    (copied / "sent.json").unlink()
    for packed in copied.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return copied


def expected(kind, name):
    """The rules that what the program did breaks."""
    did = name.partition("-")[2] if kind == "agents" else name
    [rules] = [
        rules
        for scenario, (_, rules) in PROGRAMS[kind][2].SCENARIOS.items()
        if plain_name(scenario) == did
    ]
    return rules


def sent(kind, name):
    told = json.loads((SAMPLES / PROGRAMS[kind][0] / name / "sent.json").read_text())
    return told["session"], told.get("format", PROGRAMS[kind][1]), told["sent"]


def context(kind, format, into, session):
    """The context of a session, in the format of its program, without what the program says of
    itself.
    """
    with holdfast.open(into) as store:
        for info in store.sessions(limit=500):
            here = store.get(info.id)
            if any(
                message.labels.get("story", {}).get("id") == session
                for message in here.transcript()
            ):
                # which no provider takes
                sendable = "openai.chat" if format == "openviking" else format
                assert check(sendable, json.loads(json.dumps(list(here.context(sendable))))) == []
                return PROGRAMS[kind][2].plain(json.loads(json.dumps(list(here.context(format)))))
    raise AssertionError(f"session {session} did not come over")


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_what_a_program_left_is_examined_and_healed(kind, name, files, tmp_path):
    done = command("doctor", files, "--json")
    told, rules = done.json, expected(kind, name)
    assert set(told["totals"]["rules"]) == rules and done.code == bool(rules)
    assert {store["kind"] for store in told["stores"]} == {kind}
    assert told["totals"]["not_examined"] == {}
    accepts = ("--accept", f"{kind}/*")
    assert (
        command("doctor", files, "--heal", f"{tmp_path / 'healed'}/", *accepts, "--json").code == 0
    )
    assert command("doctor", tmp_path / "healed").code == 0
    if kind in OWN_FORMS:
        own = (f"{tmp_path / 'own'}/", "--as", OWN_FORMS[kind])
        assert command("doctor", files, "--heal", *own, *accepts, "--json").code == 0
        done = command("doctor", tmp_path / "own", "--json")
        assert done.code == 0 and {store["kind"] for store in done.json["stores"]} == {kind}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_what_holdfast_sends_next_is_what_the_program_sends_next(kind, name, files, tmp_path):
    into = tmp_path / "agent.db"
    assert command("import", files, "--into", into).code == 0
    session, format, wanted = sent(kind, name)
    assert context(kind, format, into, session) == wanted
    again = command("import", files, "--into", into, "--json").json["stores"]
    assert [(store["new"], store["messages"]) for store in again] == [(0, 0)] * len(again)
    assert context(kind, format, into, session) == wanted


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_sample_is_small_and_tells_nothing_of_the_machine_that_made_it(kind, name, files):
    packed = SAMPLES / PROGRAMS[kind][0] / name
    assert sum(path.stat().st_size for path in packed.rglob("*") if path.is_file()) < SIZE_MAX
    for path in [*files.rglob("*"), packed / "sent.json"]:
        if path.is_file():
            assert PRIVATE.findall(path.read_bytes()) == [], path
