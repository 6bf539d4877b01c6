"""The real Hermes Agent in a folder of its own, with a scripted model and a platform that a test plays.

The gateway's chat is a connection of the stub platform (`stub_platform.py`, which Hermes loads as a
plug-in); what a user would see now is `screen()`. What Hermes has stored is read from `state.db`, what
Holdfast has from its own file, both from outside and while Hermes runs or after it was killed.
"""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import holdfast
from torture.live.hermes_lab.model import Model

HERE = Path(__file__).resolve().parent
CONFIG = """
model: {{default: lantern-1, provider: custom, base_url: "{url}", api_key: none, context_length: 200000}}
streaming: {{enabled: {streaming}, edit_interval: 0.1, buffer_threshold: 1}}
display: {{busy_input_mode: {mode}}}
platforms: {{stub: {{enabled: true}}}}
plugins: {{enabled: [stub-platform]}}
platform_toolsets: {{stub: [todo, terminal]}}
approvals: {{mode: "off", destructive_slash_confirm: false}}
compression: {{protect_first_n: 1, protect_last_n: 2}}
auxiliary: {{compression: {{provider: custom, model: lantern-1, base_url: "{url}", api_key: none}}, title_generation: {{enabled: false}}}}
{extra}
"""  # noqa: E501
PLUGIN = (
    "name: stub-platform\nlabel: Stub\nkind: platform\nversion: 1.0.0\ndescription: For tests.\n"
)
SWITCH_ON = "from holdfast.adapters.hermes.hook import install\n\ninstall()\n"
CURSOR = " ▉"


class Trouble(Exception):
    """Hermes did not do what a row waits for."""


class Lab:
    """One home of Hermes: its gateway, and other programs on the same files."""

    def __init__(
        self, environment, folder, served, *, mode="interrupt", streaming=True, extra="", env=None
    ):
        self.environment, self.folder, self.served = environment, Path(folder), served
        self.home = self.folder / "home"
        plugin = self.home / "plugins" / "stub"
        plugin.mkdir(parents=True)
        shutil.copy(HERE / "stub_platform.py", plugin / "__init__.py")
        (plugin / "plugin.yaml").write_text(PLUGIN)
        self.model = Model()
        self.chat = _Chat()
        (self.home / "config.yaml").write_text(
            CONFIG.format(
                url=self.model.url, mode=mode, streaming=str(streaming).lower(), extra=extra
            )
        )
        site = self.folder / "site"
        site.mkdir()
        if served:
            (site / "sitecustomize.py").write_text(SWITCH_ON)
        self.env = {
            "PATH": f"{environment}/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "HERMES_HOME": str(self.home),
            "PYTHONPATH": str(site),
            "STUB_AT": self.chat.address,
            "STUB_ALLOW_ALL_USERS": "true",
            "HERMES_YOLO_MODE": "1",
            "LANG": "C.UTF-8",
            "OPENAI_API_KEY": "none",
            "TERM": "dumb",
            **(env or {}),
        }
        self.gateway = None
        self._count = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.kill()
        self.model.close()
        self.chat.close()

    # Its processes.

    def program(self, name):
        return str(self.environment / "bin" / name)

    def spawn(self, *command, **more):
        """A process of Hermes in a group of its own, so that it is killed with its children."""
        with open(self.folder / "out.log", "a") as out:
            given = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, **more}
            return subprocess.Popen(
                command, env=self.env, cwd=self.folder, start_new_session=True, **given
            )

    def start(self):
        """Starts the gateway and waits until it is connected."""
        before = self.chat.count("connected")
        self.gateway = self.spawn(self.program("hermes"), "gateway", "run")
        self.until(lambda: self.chat.count("connected") > before, 120, "the gateway")
        return self

    def kill(self):
        """kill -9, of the gateway and all that it has started."""
        if self.gateway is not None and self.gateway.poll() is None:
            kill(self.gateway)
        self.gateway = None
        self.chat.drop()

    # The chat.

    def say(self, text, id=None, **more):
        """Sends a message of the user's; does not wait for anything."""
        self._count += 1
        id = id or f"m{self._count}"
        self.chat.send({"text": text, "id": id, **more})
        return id

    def turn(self, text, answer=None, seconds=60):
        """Sends a message and waits until its answer is on the screen and in `state.db`."""
        answer = answer or f"Noted: {text[:60]}"
        before = len(self.shown(answer))
        self.say(text)
        self.until(
            lambda: len(self.shown(answer)) > before, seconds, f"the answer to {text[:40]!r}"
        )
        self.until(lambda: self.has_row(answer), seconds, f"the row of {answer[:40]!r}")
        time.sleep(0.5)

    def command(self, text, seconds=30):
        """Sends a command and waits for what the gateway says to it."""
        before = self.chat.count("send")
        self.say(text)
        self.until(lambda: self.chat.count("send") > before, seconds, text)
        time.sleep(1)

    def fault(self, words):
        id = self.say(f"!{words}")
        self.until(lambda: any(e["id"] == id for e in self.chat.of("fault")), 20, words)

    def screen(self):
        """What the user sees now: the last text of each message, oldest first."""
        return self.chat.screen()

    def shown(self, text):
        return [each for each in self.screen() if text in each]

    def until(self, true, seconds, what):
        end = time.monotonic() + seconds
        while not true():
            if self.gateway is not None and self.gateway.poll() is not None:
                raise Trouble(f"the gateway ended while waiting for {what}: {self._last_words()}")
            if time.monotonic() > end:
                raise Trouble(f"waited {seconds} s for {what}: {self._last_words()}")
            time.sleep(0.05)

    def _last_words(self):
        out = self.folder / "out.log"
        return out.read_text(errors="replace")[-2000:] if out.exists() else ""

    # What is stored.

    def rows(self, query="role IN ('user', 'assistant', 'tool')"):
        """The rows of `state.db`: session, role, text, whether live."""
        path = self.home / "state.db"
        if not path.exists():
            return []
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as db:
            return db.execute(
                "SELECT session_id, role, coalesce(content, ''), active FROM messages "
                f"WHERE {query} ORDER BY id"
            ).fetchall()

    def has_row(self, text):
        return any(text in row[2] for row in self.rows())

    def messages(self):
        """The messages that Holdfast has: (key, role, text, state), session by session."""
        path = self.home / "holdfast.db"
        if not path.exists():
            return []
        found = []
        with holdfast.open(path) as store:
            for listed in store.sessions(limit=500):
                if (listed.key or "").startswith("hermes:"):
                    session = store.get(listed.id)
                    for message in session.transcript():
                        found.append((listed.key, message.role, message.text, message.state))
        return found

    def labels(self):
        """The labels of all messages that Holdfast has, of those that have any."""
        with holdfast.open(self.home / "holdfast.db") as store:
            found = []
            for listed in store.sessions(limit=500):
                for message in store.get(listed.id).transcript():
                    if message.labels:
                        found.append(message.labels)
        return found

    def stored(self):
        """What is stored: by Holdfast where it is there, else in `state.db`."""
        return self.messages() if self.served else self.rows()

    def said(self, role):
        """All texts of this role that are stored."""
        return [text for _, spoke, text, _ in self.stored() if spoke == role]


def kill(process):
    """kill -9 of a process and its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Chat:
    """The platform's side of the stub's connection."""

    def __init__(self):
        self.events = []
        self.waiting = []
        """What was sent while nobody was connected."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._connection = None
        self._epoch = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._epoch += 1
            self._connection = connection
            threading.Thread(target=self._read, args=(connection, self._epoch), daemon=True).start()

    def _read(self, connection, epoch):
        with connection.makefile("rb") as lines:
            try:
                for line in lines:
                    # Cut off by a kill, it was not sent.
                    if line.endswith(b"\n"):
                        self.events.append({**json.loads(line), "epoch": epoch})
            except OSError:
                return

    def send(self, message):
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def drop(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def of(self, what):
        return [event for event in list(self.events) if event["what"] == what]

    def count(self, what):
        return len(self.of(what))

    def screen(self):
        texts = {}
        for event in list(self.events):
            if event["what"] in ("send", "edit"):
                # Each process counts its messages from 1.
                texts[event["epoch"], event["id"]] = event["text"].replace(CURSOR, "")
        return list(texts.values())

    def close(self):
        self.drop()
        self._server.close()
