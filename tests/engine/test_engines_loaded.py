"""What is loaded, and when: a program waits for an engine when it opens a store with it, not
before.
"""

from pathlib import Path

import procs

LOADED = """
    import holdfast
    if len(sys.argv) > 1:
        holdfast.open(sys.argv[1]).close()
    say(*sorted(sys.modules))
"""


def loaded(*args: object) -> set[str]:
    return set(procs.run(LOADED, *args)[0].split())


def of_engines(names: set[str]) -> set[str]:
    places = ("apsw", "psycopg", "holdfast.engine.sqlite", "holdfast.engine.postgres")
    return {
        place
        for place in places
        if any(name == place or name.startswith(f"{place}.") for name in names)
    }


def test_importing_holdfast_loads_no_engine() -> None:
    names = loaded()
    assert "holdfast.runtime.store" in names
    assert of_engines(names) == set()


def test_opening_a_file_loads_no_driver_of_servers(tmp_path: Path) -> None:
    assert of_engines(loaded(tmp_path / "agent.db")) == {"apsw", "holdfast.engine.sqlite"}


def test_what_every_event_needs_is_loaded_before_there_are_threads() -> None:
    """Ctrl-C in the middle of an import leaves half a module to the threads that wait for it: an
    event of theirs raised AttributeError.
    """
    assert "hashlib" in loaded()
