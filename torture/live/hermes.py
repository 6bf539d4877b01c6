"""Hermes Agent 0.19.0 under faults, without Holdfast and with it.

The release is installed unchanged, with Holdfast from this checkout beside it. A scripted model and a
platform that the test plays stand for the world (`hermes_lab`). Each row is played in an empty home, and
its verdict is about what a user has seen: whether all of it is stored, once, in its session, and is in what
Hermes sends to its model next.
"""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from torture.live import hermes_receipts
from torture.live.hermes_lab import Lab, Trouble, fronts
from torture.live.hermes_plays import front_ends, kills, refusals, sessions, soaking
from torture.live.table import Outcome, Row

RELEASE = "0.19.0"
INSTALL = [f"hermes-agent=={RELEASE}", "agent-client-protocol==0.9.0", "aiohttp"]
ROOT = Path(__file__).resolve().parents[2]


def prepare(environment):
    """Installs Holdfast from this checkout, where it is not there as it is now."""
    sources = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql")])
    digest = hashlib.sha256()
    for source in [*sources, ROOT / "pyproject.toml"]:
        digest.update(source.read_bytes())
    stamp = environment / "holdfast-installed"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    pip = [environment / "bin" / "python", "-m", "pip"]
    is_there = stamp.exists()
    again = ["--no-deps", "--force-reinstall"] if is_there else []
    subprocess.run([*pip, "install", "--quiet", *again, str(ROOT)], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    stamp.write_text(digest.hexdigest())


def rows(environment):
    """Every fault that was found in this release, and the ways to start it."""
    played = []
    for name, play, curable in PLAYS:
        played.append(Row(name, _played(environment, play), curable))
    return [*played, *hermes_receipts.rows(environment)]


def _played(environment, play):
    def run(folder, served):
        try:
            return play(lambda **more: Lab(environment, folder, served, **more))
        except Trouble as trouble:
            return Outcome("-", "-", None, False, str(trouble)[:300])

    return run


PLAYS = [
    ("kill -9 in the middle of an answer", kills.kill_in_stream, True),
    ("kill -9 in an answer after a tool", kills.kill_after_tool, True),
    ("kill -9 in teardown, answer shown", kills.kill_in_teardown, True),
    ("kill -9 in teardown, without streaming", kills.kill_unstreamed_in_teardown, True),
    ("lock of state.db held for a turn", refusals.lock_held, True),
    ("disk full in the middle of an answer", refusals.disk_full, True),
    ("rows of the history unreadable (F30)", refusals.rows_unreadable, True),
    ("two processes on one session", sessions.two_processes, True),
    ("/retry after a compaction", sessions.retry_after_compaction, True),
    ("route switched, agent cached (#3220)", sessions.route_switched, True),
    ("/new, agent cached (#3220)", sessions.new_with_a_cached_agent, True),
    ("/new in the middle of an answer", sessions.new_in_stream, True),
    ("repair shortens the list (#44838)", sessions.repair_shortens, True),
    ("interrupted by a message (#43962)", sessions.interrupted_by_a_message, True),
    ("connection cut in an answer (F23)", sessions.socket_cut, True),
    ("hermes chat -q", front_ends.printed(fronts.chat), True),
    ("hermes -z", front_ends.printed(fronts.one_shot), True),
    ("hermes cron tick", front_ends.printed(fronts.cron), True),
    ("TUI server, kill -9 in an answer", front_ends.client_killed(fronts.Tui), True),
    ("ACP, kill -9 in an answer", front_ends.client_killed(fronts.Acp), True),
    ("answer changed after its row (F37)", front_ends.changed_after_its_row, True),
    ("accepted before it is handed on (early 202)", front_ends.answered_early, False),
    ("dropped by the platform at start (F36)", front_ends.dropped_at_start, False),
    ("proxy mode: no agent here", front_ends.behind_a_proxy, False),
]


def soak(environment, messages):
    """So many messages through the gateway, with random kills; a sentence for each thing wrong."""
    with tempfile.TemporaryDirectory(prefix="holdfast-live-") as folder:
        yield from soaking.soak(lambda: Lab(environment, Path(folder), True), messages)
