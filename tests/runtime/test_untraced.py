"""A store that is opened without tracing has nothing of it: no module, no class, no call."""

import subprocess
import sys
import textwrap

import holdfast
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.turns.running_turn import RunningTurn
from spans_seen import SeenSpans

NOTHING_LOADED = """
    import asyncio, sys
    import holdfast

    class Barred:
        def find_spec(self, name, *_):
            if name.partition(".")[0] == "opentelemetry":
                raise ModuleNotFoundError(name, name=name)

    sys.meta_path.insert(0, Barred())
    with holdfast.open(sys.argv[1]) as store:
        with store.session("k").turn("Hello.") as turn:
            turn.say("Hello to you.")

    async def main():
        async with holdfast.open_async(sys.argv[1]) as store:
            session = await store.session("k")
            async with session.turn("Hello.") as turn:
                await turn.say("Hello to you.")

    asyncio.run(main())
    import holdfast.server.app, holdfast.server.proxy.app
    loaded = [name for name in sys.modules if "opentelemetry" in name or "holdfast.runtime.tracing" in name]
    assert not loaded, loaded
    try:
        holdfast.Tracing()
    except ImportError as error:
        print(error)
"""


def test_without_the_extra_nothing_is_loaded_and_the_switch_says_what_to_install(tmp_path):
    code = textwrap.dedent(NOTHING_LOADED)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s.db")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "opentelemetry is not there. Install it with: pip install 'holdfast[otel]'\n"
    )


def test_the_parts_are_chosen_when_a_store_is_opened(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        held = store._work.engine
        assert held.submit == held._engine.submit
        session = store.session("k")
        assert type(session._log) is SessionLog
        with session.turn("Hello.") as turn:
            assert type(turn._work) is RunningTurn
    with holdfast.open(tmp_path / "s.db", tracing=holdfast.Tracing(SeenSpans().provider)) as store:
        held = store._work.engine
        assert held.submit != held._engine.submit


def test_a_turn_that_is_not_traced_calls_nothing_of_it_and_one_that_is_does(tmp_path):
    def called(**opening):
        files = []

        def note(frame, event, _):
            if event == "call":
                files.append(frame.f_code.co_filename)

        with holdfast.open(tmp_path / "s.db", **opening) as store:
            session = store.session("k")
            sys.setprofile(note)
            try:
                with session.turn("Hello.") as turn:
                    turn.say("Hello to you.")
                session.append("More.")
            finally:
                sys.setprofile(None)
        return [each for each in files if "/tracing/" in each or "opentelemetry" in each]

    assert called() == []
    # The measure itself sees what it is to see.
    assert called(tracing=holdfast.Tracing(SeenSpans().provider)) != []
