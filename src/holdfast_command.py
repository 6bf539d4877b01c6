"""The `holdfast` command before anything of Holdfast is loaded: Ctrl-C ends it quietly while it
loads. A module of its own, because whatever lies in the package loads the package first.
"""

import os

INTERRUPTED = 130
"""As `holdfast.cli.codes` has it, which is not loaded yet."""


def main() -> int:
    """Runs the command line and returns its exit code."""
    try:
        # In here: loading them takes long enough to be interrupted.
        import signal

        before = signal.getsignal(signal.SIGINT)
        # One that is ignored, as in the background of a shell, stays so.
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)
        from holdfast.cli.main import main as run

        signal.signal(signal.SIGINT, before)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _end(number: int, frame: object) -> None:
    # Nothing is open yet, and an exception in the middle of loading an extension written in C
    # may crash it.
    os._exit(INTERRUPTED)
