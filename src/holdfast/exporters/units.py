"""How small things are worded for people: times, calls, sizes, the parts of a message that are not
words.
"""

import json
from datetime import datetime
from typing import Any

from holdfast.domain.message import Call, Image, Other, Part, Refusal, Thinking, Usage

CALL_STATES = {
    "open": "running",
    "waiting": "waiting for approval",
    "approved": "approved, not run yet",
    "denied": "denied",
    "done": "done",
    "failed": "failed",
    "unknown": "unknown: no outcome was stored; it may have run",
}
"""What a call has come to, for people."""
VIEWS = {
    "shown": "",
    "waiting": "",
    "retracted": "retracted",
    "hidden": "hidden from the model",
    "summarised": "summarised",
    "rewound": "rewound: the model does not see it",
    "left out": "left out: a list that was recorded has dropped it",
}
"""Why the model does not see a message, for people; nothing is said of those that it
sees, or will.
"""


def moment(at: int) -> str:
    """A time, as the clock on the wall shows it here."""
    try:
        return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{at} ms"


def lasted(start: int, end: int) -> str:
    """A length of time."""
    seconds = (end - start) / 1000
    if seconds < 0:
        return "the clock went back"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def size(count: int) -> str:
    """A number of bytes."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.1f} {unit}" if isinstance(count, float) else f"{count:,} {unit}"
        count = count / 1000  # type: ignore[assignment]
    raise AssertionError


def many(count: int, one: str, several: str | None = None) -> str:
    """So many of something."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def not_examined(unknown: dict[str, int]) -> str:
    """What a reader met and does not know, by type."""
    counts = (f"{many(count, 'line')} of type `{kind}`" for kind, count in unknown.items())
    return f"Not examined: {', '.join(counts)}"


def tokens(usage: Usage) -> str:
    """What was spent, or nothing when nothing was counted."""
    if not (usage.input or usage.output):
        return ""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    reasoning = f" ({usage.reasoning:,} reasoning)" if usage.reasoning else ""
    return f"{usage.input:,} in{cached}, {usage.output:,} out{reasoning}"


def call(part: Call) -> str:
    """A call as a person would write it."""
    try:
        arguments = json.loads(part.arguments or "{}")
    except ValueError:
        return f"{part.name}({part.arguments})"
    if not isinstance(arguments, dict):
        return f"{part.name}({part.arguments})"
    return (
        f"{part.name}({', '.join(f'{name}={_value(value)}' for name, value in arguments.items())})"
    )


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def aside(part: Part) -> str:
    """A part that is neither words, nor a call, nor a result."""
    match part:
        case Image(url=url):
            return f"[image: {url.partition(',')[0] if url.startswith('data:') else url}]"
        case Thinking(text=text):
            return f"[thinking: {many(len(text), 'character')}]"
        case Refusal(text=text):
            return f"[refused] {text}"
        case Other(kind=kind):
            return f"[{kind}]"
    return ""


def shortened(text: str, limit: int | None) -> str:
    """A long text without its middle: how it begins, and where it ends."""
    if limit is None or len(text) <= limit:
        return text
    first, last = limit * 2 // 3, limit // 6
    left = many(len(text) - first - last, "character")
    return f"{text[:first]}\n… {left} left out; --full shows them …\n{text[-last:]}"
