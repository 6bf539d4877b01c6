"""The scripted model, for agents that also ask for titles: those are answered in a few words, and
play no step of the prompt that they quote.
"""

from typing import Any

from torture.systems.scripted import Scripted


class Model(Scripted):
    """The model of one agent."""

    def step(self, body: dict[str, Any]) -> dict[str, Any]:
        form = (body.get("text") or {}).get("format") or {}
        if not body.get("tools") or form.get("type") == "json_schema":
            return {"text": "A title"}
        return super().step(body)

    def hold_again(self) -> None:
        """The next answer with `hold` in it is held, as the first was."""
        self.halfway.clear()
        self.go_on.clear()
