"""A process that has no file left to open is told so by the store's own errors, and loses nothing."""

from pathlib import Path

from procs import child

NO_FILE_LEFT = """
    import os, resource
    import holdfast
    path = sys.argv[1]
    with holdfast.open(path) as store:
        session = store.session("k")
        session.append("kelp")
        session.context()
        calls = {
            "search": lambda: store.search("kelp"),
            "sessions": lambda: store.sessions(),
            "record": lambda: session.record([{"role": "user", "content": "kelp"}]),
            "compact": lambda: session.compact("All of it.", keep_turns=0),
            "pending": lambda: store.pending(),
            "erase": lambda: store.erase(session.id, preview=True),
            "retain": lambda: store.retain(days=3),
            "check": lambda: store.check(),
            "info": lambda: store.info(),
            "backup": lambda: store.backup(path + "-copy"),
        }
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for name, call in calls.items():
            try:
                call()
                say(name, "done")
            except Exception as error:
                say(name, type(error).__name__)
        for each in taken:
            os.close(each)
        for call in calls.values():
            call()
        say("all", len(list(session.transcript())))
"""


def test_what_is_loaded_late_says_what_is_wrong_when_no_file_can_be_opened(tmp_path: Path) -> None:
    with child(NO_FILE_LEFT, tmp_path / "a.db") as running:
        told = dict((running.line() or "").split() for _ in range(10))
        assert set(told.values()) == {"StoreUnavailable"}, told
        assert running.line() == "all 1"
