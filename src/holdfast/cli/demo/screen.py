"""How the demo looks to a person: the talk as it happens, then three columns, what belongs together
side by side.
"""

import json
import os
from typing import Any

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.scenario import CHECKS, Audience, Facts, MessageFact, TurnFact
from holdfast.domain.repair import INTERRUPTED

WIDTH_MAX = 110
MARGIN = 9
WORD_MAX = 14

USER = "cyan"
AGENT = "green"
TOOL = "yellow"
BAD = "bold red"
GOOD = "bold green"
QUIET = "dim"
ROLES = {"user": USER, "assistant": AGENT, "tool": TOOL}


class Screen(Audience):
    """A terminal, or what stands in for one; plain when it is not a terminal or colour is not
    wanted.
    """

    def __init__(self, store: str | None) -> None:
        # rich leaves bold and dim in place under NO_COLOR; without a colour system
        # nothing is styled.
        colours: Any = None if os.environ.get("NO_COLOR") else "auto"
        self._console = Console(highlight=False, color_system=colours)
        self._console.width = min(self._console.width, WIDTH_MAX)
        self._store = store
        self._column = 0
        self.is_live = self._console.is_terminal

    def asked(self, question: str) -> None:
        self._line("user", USER, question)

    def started(self, pid: int) -> None:
        self._line(
            "", QUIET, f"The agent answers in a process of its own, {pid}.", QUIET
        )

    def heard(self, text: str) -> None:
        """Words as they come. They arrive in pieces, so lines are broken by hand, where a long word
        might not fit.
        """
        out = ""
        if self._column == 0:
            self._console.print(Text("agent".ljust(MARGIN), AGENT), end="")
            self._column = MARGIN
        for letter in text:
            if letter == " " and self._column > self._console.width - WORD_MAX:
                letter = "\n" + " " * MARGIN
                self._column = MARGIN - 1
            out += letter
            self._column += 1
        # `soft_wrap`: rich takes each piece for the beginning of a line, and would
        # break it in the wrong place.
        self._console.print(Text(out, AGENT), end="", soft_wrap=True)
        self._console.file.flush()

    def killed(self, seen: str) -> None:
        self._console.print(Text("▌", BAD))
        self._column = 0
        self._line(
            "SIGKILL", BAD, "The process is gone, in the middle of a sentence.", BAD
        )

    def reopened(self, facts: Facts) -> None:
        said = f"in {facts.reopened_ms:.0f} ms, by another process."
        for turn in facts.turns:
            said += f" The turn has ended as {_ends(turn)}: {turn.reason}."
        self._line("reopened", GOOD, said)
        self._console.print()
        self._console.print(_side_by_side(facts))
        self._console.print()

    def ended(self, turn: TurnFact) -> None:
        self._console.print()
        self._column = 0
        self._line("", QUIET, f"The second turn has ended as {_ends(turn)}.", QUIET)

    def judged(self, checks: dict[str, bool]) -> None:
        """The promises, each kept or broken."""
        self._console.print()
        self._console.print(Rule(style=QUIET))
        for name, held in checks.items():
            pieces = [("✓ ", GOOD), (CHECKS[name], "")]
            if not held:
                pieces = [("✗ ", BAD), (CHECKS[name], BAD)]
            self._console.print(Text.assemble(*pieces))
        broken = list(checks.values()).count(False)
        verdict = ("All promises kept.", GOOD)
        if broken:
            verdict = (f"{broken} of {len(checks)} promises broken.", BAD)
        store = f" The store is kept in {self._store}" if self._store else ""
        self._console.print(Text.assemble(verdict, store), soft_wrap=True)

    def _line(self, label: str, style: str, text: str, text_style: str = "") -> None:
        grid = Table.grid(padding=0)
        grid.add_column(width=MARGIN)
        grid.add_column()
        grid.add_row(Text(label, style), Text(text, text_style))
        self._console.print(grid)


def _ends(turn: TurnFact) -> str:
    return " and ".join(turn.ends) or "nothing"


def _side_by_side(facts: Facts) -> Table:
    """A row for each message the model will be sent. A result that repair made has nothing stored
    beside it.
    """
    table = Table(
        box=box.ROUNDED,
        expand=True,
        show_lines=True,
        border_style=QUIET,
        header_style="bold",
    )
    for title in ("The user had seen", "The store holds", "The model is sent next"):
        table.add_column(title, ratio=1, overflow="fold")
    stored = iter(facts.stored.messages)
    for payload in facts.context:
        message = None if payload.get("content") == INTERRUPTED else next(stored, None)
        seen = Text()
        held = Text("no result: the process died first", QUIET)
        if message is not None:
            seen = _seen(message, facts)
            held = _stored(message, facts)
        table.add_row(seen, held, _sent(payload))
    # What is stored and not sent has a row, too: the demo hides nothing.
    for message in stored:
        table.add_row(_seen(message, facts), _stored(message, facts), "")
    return table


def _seen(message: MessageFact, facts: Facts) -> Text:
    if message.role == "user":
        return Text(message.text, USER)
    if message.state == "partial":
        return Text.assemble((facts.seen, AGENT), ("▌", BAD))
    return Text()


def _stored(message: MessageFact, facts: Facts) -> Text:
    states = {call.call_id: call.state for call in facts.stored.calls}
    about = []
    words = [message.text]
    for call in message.calls:
        about.append(states[call.id])
        words.append(_call(call.name, call.arguments))
    for result in message.results:
        words.append(result.content)
    if message.state != "complete":
        about.append(message.state)
    return _cell(f"{message.seq} {message.role}", about, words, ROLES[message.role])


def _sent(payload: dict[str, Any]) -> Text:
    calls = [_call(**call["function"]) for call in payload.get("tool_calls") or ()]
    words = [payload.get("content") or "", *calls]
    role = payload["role"]
    style = BAD if INTERRUPTED in words else ROLES[role]
    return _cell(role, [], words, style)


def _call(name: str, arguments: str) -> str:
    """A call as a person would write it."""
    given = [f"{key}={value}" for key, value in json.loads(arguments).items()]
    return f"{name}({', '.join(given)})"


def _cell(name: str, about: list[str], words: list[str], style: str) -> Text:
    state = f"· {', '.join(about)} " if about else ""
    return Text.assemble(
        (name + " ", QUIET),
        (state, GOOD if about == ["done"] else BAD),
        (" ".join(filter(None, words)), style),
    )
