"""Forks beside a first use: much of the package is imported then, and what is imported may be inside
SQLite as soon as it is there (FAULTS F8).
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from thorough import few_cases

LIMIT_S = 60.0

FIRST_USE = """
    import importlib.abc, os, signal, sys, threading, time
    import holdfast

    name = sys.argv[1]
    importing, over = threading.Event(), threading.Event()

    class Slow(importlib.abc.MetaPathFinder):
        def find_spec(self, sought, path, target=None):
            if sought == name and threading.current_thread() is not threading.main_thread():
                importing.set()
                over.wait(2)  # longer than the child would need
            return None

    sys.meta_path.insert(0, Slow())

    def use():
        with holdfast.open("agent.db", durability="process") as store:
            with store.turn("k", "Hello.") as turn:
                turn.say("Yes.")
            store.search("hello"), store.check(), store.backup(f"{os.getpid()}.db")
            holdfast.copy("agent.db", f"{os.getpid()}-copy.db")

    using = threading.Thread(target=use)
    using.start()
    assert importing.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        use()
        os._exit(0)
    over.set()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    using.join(60)
    print(status)
"""


@few_cases(every=3)
@pytest.mark.parametrize(
    "module",
    [
        "holdfast.engine.sqlite.engine",
        "holdfast.formats.openai.chat",
        "holdfast.runtime.catalog.search",
        "holdfast.engine.sqlite.maintenance.check",
        "holdfast.runtime.transfer.copy_store",
    ],
)
def test_a_fork_waits_for_what_a_thread_imports_as_it_uses_it_first(
    tmp_path: Path, module: str
) -> None:
    """A child would get half a module, and wait for ever for the thread that has the other half."""
    program = [sys.executable, "-c", textwrap.dedent(FIRST_USE), module]
    told = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (told.stdout, told.stderr) == ("0\n", "")


FIRST_GATE = """
    import importlib.abc, os, sys, threading, time
    import holdfast
    from holdfast import forked_imports

    forked_imports.NAP_S = 0.3  # when it looks again, the thread is inside
    begun = threading.Event()
    places = ["outside"]

    class Slow(importlib.abc.MetaPathFinder):
        def find_spec(self, sought, path, target=None):
            if sought == "holdfast.engine.sqlite.engine":
                begun.set()
                time.sleep(0.2)
            return None

    sys.meta_path.insert(0, Slow())

    def use():
        import holdfast.engine.sqlite.engine
        from holdfast.process_fork import inside
        with inside():
            places.append("inside")
            time.sleep(1)
            places.append("outside again")

    using = threading.Thread(target=use)
    using.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        print(places[-1], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    using.join()
"""


def test_a_fork_that_waits_for_the_first_use_keeps_others_out_meanwhile() -> None:
    """As it begins nothing of SQLite is there; when the imports are over, a thread would be inside,
    and the child would get its locks.
    """
    program = [sys.executable, "-c", textwrap.dedent(FIRST_GATE)]
    told = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S)
    assert (told.stdout, told.stderr) == ("outside\n", "")


UNTOLD = """
    import os, sys

    def use_it():
        global holdfast, store
        import holdfast
        store = holdfast.open(sys.argv[1], durability="process")

    os.register_at_fork(before=use_it)
    child = os.fork()
    if child == 0:
        try:
            holdfast.open(sys.argv[1])
        except holdfast.errors.StoreUnavailable as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_child_of_a_fork_that_began_before_the_import_uses_no_locks_of_its_parent(
    path: Path,
) -> None:
    """Python asks whom to call when a fork begins, and the import came after that."""
    program = [sys.executable, "-c", textwrap.dedent(UNTOLD), path]
    told = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S)
    assert "was forked while another thread was at work in SQLite" in told.stdout
    assert told.stderr == ""
