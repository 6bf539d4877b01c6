"""The client's end of the wire, as a process of its own that can be killed.

`python relay.py LEDGER COMMAND …` starts the command and passes lines on, both ways. Before a line
goes on it is in the ledger, `>` what the client said and `<` what it was shown; `LEDGER.pid` names
the process that the client talks to. It knows nothing but the standard library: it stands for a
program that does not know Holdfast.
"""

import contextlib
import os
import subprocess
import sys
import threading
from typing import IO


def main() -> None:
    path, *command = sys.argv[1:]
    ledger = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # In a session of its own: a kill of the client must not reach what it talks to.
    agent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert agent.stdin is not None and agent.stdout is not None
    with open(f"{path}.pid", "w") as file:
        file.write(str(agent.pid))
    typed = (sys.stdin.buffer, agent.stdin, ledger, b">")
    threading.Thread(target=pass_on, args=typed, daemon=True).start()
    pass_on(agent.stdout, sys.stdout.buffer, ledger, b"<")
    # Not by the interpreter's way out, which would wait for the thread that reads.
    os._exit(0)


def pass_on(source: IO[bytes], target: IO[bytes], ledger: int, mark: bytes) -> None:
    """Lines from here to there; the end of the one is the end of the other."""
    for line in source:
        os.write(ledger, mark + line)
        try:
            target.write(line)
            target.flush()
        except BrokenPipeError:
            break
    # Somebody who is gone needs no end of input.
    with contextlib.suppress(BrokenPipeError):
        target.close()


if __name__ == "__main__":
    main()
