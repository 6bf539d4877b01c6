"""Data on stdout, talk on stderr, colour where it is wanted, and nothing loaded that is
not needed.
"""

import json
import re
import subprocess
import sys

import pytest

import hermes_environments
import holdfast
from commanding import command, on_terminal, process, surroundings
from goose_stores import built, one_call
from holdfast.cli.command_table import COMMANDS
from thorough import few_cases

NOT_HERE = ("demo", "record", "serve", "serve-openviking", "proxy", "hermes run")
"""What these print is another program's, or a picture."""
ANSI = re.compile(r"\x1b\[")


def lines_of(world, tmp_path):
    """A command line for every command, on a store that may be changed."""
    session = ("key:k",)
    return {
        "sessions list": (),
        "sessions show": session,
        "sessions search": ("Question",),
        "sessions tail": ("key:ended",),
        "sessions fork": session,
        "sessions rewind": ("key:k", "4", "--yes"),
        "sessions compact": ("key:k", "--summary", "x", "--keep-turns", "1", "--yes"),
        "sessions export": session,
        "sessions rm": ("key:ended", "--yes"),
        "reset": ("k", "--yes"),
        "copy": (str(world.path), str(tmp_path / "moved.db")),
        "doctor": (str(world.path),),
        "import": (
            str(built(tmp_path / "sessions.db", one_call)),
            "--into",
            str(tmp_path / "into.db"),
        ),
        "export": session,
        "store info": (),
        "store check": (),
        "store backup": (str(tmp_path / "copy.db"),),
        "store migrate": (),
        "store vacuum": (),
        "completion": ("bash",),
        "demo": (),
        "record": ("--", "true"),
        "serve": (),
        "token": (str(tmp_path / "tokens"),),
        "serve-openviking": (),
        "proxy": (),
        "hermes run": ("--", "true"),
        "hermes install": (),
        "hermes uninstall": (),
        "hermes status": (),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NOT_HERE])
def test_every_command_prints_json_and_only_that_on_stdout(world, path, tmp_path, name):
    with holdfast.open(path, durability="process") as store:
        store.session("ended").end("over")
    arguments = lines_of(world, tmp_path)[name]
    if name.startswith("hermes "):
        python = hermes_environments.made(tmp_path / "env")
        (tmp_path / "home").mkdir()
        arguments = ("--python", str(python), "--home", str(tmp_path / "home"))
    done = command(*name.split(), *arguments, "--json", HOLDFAST_STORE=str(path))
    assert done.code == 0, done.err
    told = done.lines
    assert told and all(isinstance(each, dict) for each in told)
    if name not in ("sessions tail", "sessions export", "export"):
        assert len(told) == 1


def test_every_command_has_a_line_in_these_tests(world, tmp_path):
    assert set(lines_of(world, tmp_path)) == set(COMMANDS)


LOOKS = [
    ("sessions", "list"),
    ("sessions", "show", "key:telegram:dm:42"),
    ("sessions", "search", "Lola"),
    ("store", "info"),
    ("--help",),
    ("sessions", "show", "--help"),
    ("sessions", "show", "nobody"),
]


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_pipes_get_plain_text(world, arguments):
    done = command(*arguments, HOLDFAST_STORE=str(world.path))
    assert not ANSI.search(done.out + done.err)


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("arguments", LOOKS[:3], ids=" ".join)
def test_a_terminal_gets_colour(world, arguments):
    assert ANSI.search(on_terminal(*arguments, HOLDFAST_STORE=str(world.path)).out)


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(
    "plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}], ids=str
)
def test_colour_is_left_out_where_it_is_not_wanted(world, plain):
    assert not ANSI.search(
        on_terminal("sessions", "list", HOLDFAST_STORE=str(world.path), **plain).out
    )


def test_colour_can_be_asked_for_without_a_terminal(world):
    assert ANSI.search(
        command("sessions", "list", FORCE_COLOR="1", HOLDFAST_STORE=str(world.path)).out
    )


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_a_command_quietly(tmp_path):
    """`| head -1`, with far more to say than a pipe holds."""
    with holdfast.open(tmp_path / "much.db", durability="process") as store:
        with store.session("k").turn("Much.") as turn:
            turn.say("word " * 400_000)
    for arguments in (
        ("show", "@latest", "--full"),
        ("export", "@latest"),
        ("show", "@latest", "--json"),
    ):
        line = [
            sys.executable,
            "-m",
            "holdfast.cli.main",
            "sessions",
            *arguments,
            "--store",
            str(tmp_path / "much.db"),
        ]
        with subprocess.Popen(
            line, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            assert child.stdout.read(10)
            child.stdout.close()
            assert child.stderr.read() == b""
            assert child.wait() == 0


@pytest.mark.slow
def test_a_process_without_stdout_ends_well(world):
    line = f'exec "{sys.executable}" -m holdfast.cli.main sessions list --store "{world.path}" >&-'
    done = subprocess.run(
        ["bash", "-c", line], env=surroundings(), stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_no_command_loads_what_it_does_not_need(world):
    """Start-up: a listing has 150 ms, and these alone would take most of it."""
    heavy = [
        "cyclopts",
        "rich",
        "asyncio",
        "inspect",
        "difflib",
        "shutil",
        "traceback",
        "email",
        "http",
        "subprocess",
    ]
    script = (
        "import sys\n"
        "from holdfast.cli.main import main\n"
        "code = main(sys.argv[2:])\n"
        "print([name for name in sys.argv[1].split(',') if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    for arguments in (("--version",), ("sessions", "list", "--store", str(world.path))):
        done = subprocess.run(
            [sys.executable, "-c", script, ",".join(heavy), *arguments],
            env=surroundings(), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        loaded = set(json.loads(done.stderr.splitlines()[-1].replace("'", '"')))
        assert loaded <= {"inspect"}  # msgspec loads it, where typing_extensions is installed


def test_the_version_is_that_of_the_library():
    assert process("--version").out == f"holdfast {holdfast.__version__}\n"
    assert command("--version").out == f"holdfast {holdfast.__version__}\n"
