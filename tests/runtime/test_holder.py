"""Who is alive is judged by proof, and never by a name (I-26, FAULTS F4)."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import holdfast
import namespaces
import procs
from holdfast.runtime.process_identity import is_gone, myself
from thorough import few_cases

NAMES_ITSELF = """
    from holdfast.runtime.process_identity import myself
    say("named", myself())
    hear()
"""
LOOKS = """
    from holdfast.runtime.process_identity import is_gone
    say("gone" if is_gone(sys.argv[1]) else "not proved")
"""


def looked(holder: str, within: Sequence[str] = ()) -> str:
    [said] = procs.run(LOOKS, holder, within=within)
    return said


@pytest.fixture(
    params=[
        "here",
        "other_user",
        "hidden",
        "no_proc",
        "boot",
        "name",
        "container",
        "half_container",
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Sequence[str]]:
    """From where a process is looked at."""
    places: dict[str, Callable[[], Sequence[str]]] = {
        "here": lambda: [],
        "other_user": lambda: namespaces.OTHER_USER,
        "hidden": namespaces.hidden_processes,
        "no_proc": namespaces.no_proc,
        "boot": lambda: namespaces.other_boot(tmp_path),
        "name": namespaces.other_name,
        "container": lambda: namespaces.other_processes(own_proc=True),
        "half_container": lambda: namespaces.other_processes(own_proc=False),
    }
    return request.param, places[request.param]()


@pytest.mark.slow
def test_a_living_process_is_never_taken_for_dead(place: tuple[str, Sequence[str]]) -> None:
    """I-26: wherever it is looked at from."""
    _, within = place
    with procs.child(NAMES_ITSELF) as other:
        assert looked(other.wait_for("named"), within) == "not proved"


@pytest.mark.slow
def test_a_killed_process_is_known_to_be_dead_where_that_can_be_proved(
    place: tuple[str, Sequence[str]],
) -> None:
    """I-26: by whoever shares its kernel and its namespaces, also where /proc hides the processes
    of others.
    """
    name, within = place
    with procs.child(NAMES_ITSELF) as other:
        holder = other.wait_for("named")
        other.kill()
    proved = name in ("here", "other_user", "hidden")
    assert looked(holder, within) == ("gone" if proved else "not proved")


@pytest.mark.slow
@pytest.mark.parametrize("own_proc", [True, False], ids=["own /proc", "the machine's /proc"])
def test_a_living_process_of_another_container_is_not_taken_for_dead(own_proc: bool) -> None:
    """I-26: its number means another process here, or none."""
    with procs.child(NAMES_ITSELF, within=namespaces.other_processes(own_proc=own_proc)) as other:
        assert looked(other.wait_for("named")) == "not proved"


def test_two_processes_of_one_container_know_each_other_though_its_proc_is_the_machines() -> None:
    """I-26: in a namespace without a /proc of its own, numbers in /proc are those of other
    processes.
    """
    script = """
        import os, signal
        from holdfast.runtime.process_identity import is_gone, myself
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, myself().encode())
            signal.pause()
        name = os.read(reader, 4096).decode()
        alive = is_gone(name)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        say(alive, is_gone(name))
    """
    for own_proc in (True, False):
        assert procs.run(script, within=namespaces.other_processes(own_proc=own_proc)) == [
            "False True"
        ]


def test_a_number_that_is_used_again_is_another_process() -> None:
    head, _, _ = myself().rpartition("/")
    assert is_gone(f"{head}/1")
    assert not is_gone(myself())


def test_a_zombie_is_dead_and_one_whose_first_thread_is_over_is_not() -> None:
    with procs.child(NAMES_ITSELF) as other:
        holder = other.wait_for("named")
        other.kill_unreaped()
        assert is_gone(holder)
    threads_live_on = """
        import ctypes, threading
        from holdfast.runtime.process_identity import myself
        threading.Thread(target=lambda: (say("named", myself()), hear())).start()
        libc = ctypes.CDLL(None)
        libc.syscall(60 if __import__("os").uname().machine == "x86_64" else 93, 0)
    """
    with procs.child(threads_live_on) as other:
        assert not is_gone(other.wait_for("named"))


def test_a_child_names_itself_and_not_its_parent() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, myself().encode())
        os._exit(0)
    os.waitpid(child, 0)
    name = os.read(reader, 4096).decode()
    os.close(reader)
    os.close(writer)
    assert name.split("/")[2] == str(child) != myself().split("/")[2]
    assert is_gone(name)


def test_a_living_child_is_not_taken_for_dead_by_its_parent() -> None:
    """It began later than its parent, and says so."""
    assert not is_gone(myself())
    (reader, writer), (hears, told) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, myself().encode())
        os.close(told)
        os.read(hears, 1)
        os._exit(0)
    name = os.read(reader, 4096).decode()
    alive = not is_gone(name)
    for end in (reader, writer, hears, told):
        os.close(end)
    os.waitpid(child, 0)
    assert alive


def test_a_process_that_may_not_be_signalled_is_there() -> None:
    """The first process is root's; whoever runs this, `nobody` may not signal it."""
    script = """
        import os
        from holdfast.runtime.process_identity import _exists
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        say(_exists(1), _exists(os.getpid()))
    """
    assert procs.run(script) == ["True True"]


@pytest.mark.parametrize(
    "odd", [None, "", "x", "a/b/c/d", "a/b/1/x", "a/b/-1/3", f"{myself()[:10]}/1/9999999999/5"]
)
def test_a_name_that_says_nothing_proves_nothing(odd: str | None) -> None:
    assert not is_gone(odd)


HOLDS_A_TURN = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        turn = store.turn("k", "pay")
        say("running")
        hear()
        turn.say("paid")
        say("said")
        hear()
        turn.__exit__(None, None, None)
"""


@pytest.fixture(params=["a file", "PostgreSQL"])
def where(request: pytest.FixtureRequest, path: Path) -> str:
    return (
        str(path)
        if request.param == "a file"
        else request.getfixturevalue("databases")(schema=True)
    )


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("kind", ["boot", "container", "half_container"])
def test_a_living_turn_of_a_clone_with_the_same_name_is_not_overtaken(
    where: str, kind: str, tmp_path: Path
) -> None:
    """I-26, I-7: its tools would run twice."""
    within = {
        "boot": lambda: namespaces.other_boot(tmp_path),
        "container": lambda: namespaces.other_processes(own_proc=True),
        "half_container": lambda: namespaces.other_processes(own_proc=False),
    }[kind]()
    with holdfast.open(where) as store, procs.child(HOLDS_A_TURN, where, within=within) as other:
        other.wait_for("running")
        session = store.session("k")
        assert session.context()  # looking settles what is dead
        with pytest.raises(holdfast.errors.SessionBusy):
            session.turn("mine", on_busy="refuse")
        other.tell()
        other.wait_for("said")
        other.tell()
        other.end()
        assert [message.text for message in session.transcript()] == ["pay", "paid"]
