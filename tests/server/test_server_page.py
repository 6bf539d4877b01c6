"""`docs/server.md`: its lines are run."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from wire_server import WireServer

PAGE = Path(__file__).parents[2] / "docs" / "server.md"


@pytest.mark.slow
def test_the_lines_of_the_page_hold_a_conversation(tmp_path):
    [script] = [
        block for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.S)
        if "curl" in block
    ]  # fmt: skip
    with WireServer(tmp_path / "s.db") as server:
        surroundings = {"URL": f"http://127.0.0.1:{server.port}", "TOKEN": server.key}
        done = subprocess.run(
            ["bash", "-euc", script],
            env={**os.environ, **surroundings},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert '"messages":[{"role":"user","content":"Book a table for two."}]' in done.stdout
        session = server.ask("POST", "/v1/sessions", {"key": "telegram:dm:42"}).done["id"]
        said = [
            ("Book a table for two.", "complete"),
            ("Casa Lola has a table at eight.", "complete"),
        ]
        assert server.texts(session) == said
