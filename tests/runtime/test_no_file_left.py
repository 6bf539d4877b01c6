"""A process that has no file left to open is told so by the store's own errors, and loses nothing."""

from pathlib import Path

from procs import child

NO_FILE_LEFT = """
    import os, resource
    import holdfast
    from taken_files import take_all
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
        taken = take_all()
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


FEW_FILES_LEFT = """
    import os, resource
    import holdfast
    from taken_files import take_all
    path, names = sys.argv[1], sys.argv[2].split(",")
    with holdfast.open(path) as store:  # what is loaded then is loaded
        store.session("k").append("kelp")
        store.search("kelp")
        store.backup(path + "-copy")
    calls = {
        "open": lambda: holdfast.open(path).close(),
        "open new": lambda: holdfast.open(f"{path}-{spare}").close(),
        "read": lambda: holdfast.open(path, read_only=True).close(),
        "search": lambda: store.search("kelp"),
        "backup": lambda: store.backup(f"{path}-copy-{spare}"),
    }
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    for name in names:
        for spare in range(20):
            with holdfast.open(path) as store:
                taken = take_all(but=spare)
                try:
                    calls[name]()
                    told = "done"
                except holdfast.errors.StoreUnavailable as error:
                    told = f"{error.problem} | {error.remedy}"
                for each in taken:
                    os.close(each)
            say(name.replace(" ", "_"), told)
    say("end")
"""


def test_too_many_open_files_are_told_as_that_however_many_are_left(tmp_path: Path) -> None:
    """Neither the folder nor the disk is to blame, and the remedy says what helps."""
    names = ("open", "open new", "read", "search", "backup")
    with child(FEW_FILES_LEFT, tmp_path / "a.db", ",".join(names)) as running:
        lines = []
        while (line := running.line()) not in ("end", None):
            lines.append((line or "").split(" ", 1))
        assert line == "end", running.errors()
    for name in names:
        told = [told for called, told in lines if called == name.replace(" ", "_")]
        assert told[-1] == "done", "there are enough"
        refused = [each for each in told if each != "done"]
        assert refused, name
        for each in refused:
            problem, remedy = each.split(" | ")
            assert "too many" in problem.lower() and "limit of open files" in remedy, (name, each)
