"""How small things are worded for people: times, calls, sizes, the parts of a message that are not
words.
"""

import json
from datetime import datetime

from holdfast.domain.approval import read_arguments
from holdfast.domain.message import Call, Image, Other, Part, Refusal, Thinking, Usage

# What a call has come to, for people.
CALL_STATES = {
    "open": "running",
    "waiting": "waiting for approval",
    "approved": "approved, not run yet",
    "rewound": "rewound before it was run",
    "denied": "denied",
    "done": "done",
    "failed": "failed",
    "unknown": "unknown: no outcome was stored; it may have run",
}
# Why the model does not see a message, for people; nothing is said of those that it
# sees, or will.
VIEWS = {
    "shown": "",
    "waiting": "",
    "retracted": "retracted",
    "hidden": "hidden from the model",
    "summarised": "summarised",
    "rewound": "rewound: the model does not see it",
    "left out": "left out: a list that was recorded has dropped it",
}


def moment(at: int) -> str:
    """A time, as the clock on the wall shows it here."""
    try:
        return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M:%S")
    # A time that came from another store may be beyond what a calendar holds.
    except (OverflowError, OSError, ValueError):
        return f"{at} ms"


def lasted(start: int, end: int) -> str:
    """A length of time."""
    seconds = (end - start) / 1000
    # Times are those of the wall clock, which may be set back while a turn runs.
    if seconds < 0:
        return "the clock went back"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s"


def size(count: int) -> str:
    """A number of bytes."""
    if count < 1000:
        return f"{count:,} bytes"
    scaled = count / 1000
    for unit in ("KB", "MB"):
        if scaled < 1000:
            return f"{scaled:.1f} {unit}"
        scaled /= 1000
    return f"{scaled:.1f} GB"


def many(count: int, one: str, several: str | None = None) -> str:
    """So many of something."""
    if count == 1:
        return f"1 {one}"
    return f"{count:,} {several or one + 's'}"


def not_examined(unknown: dict[str, int]) -> str:
    """What a reader met and does not know, by type."""
    counts = (
        f"{many(count, 'line')} of type `{kind}`" for kind, count in unknown.items()
    )
    return f"Not examined: {', '.join(counts)}"


def tokens(usage: Usage) -> str:
    """What was spent, or nothing when nothing was counted."""
    if not (usage.input or usage.output):
        return ""
    read = f"{usage.input:,} in"
    if usage.cached:
        read += f" ({usage.cached:,} cached)"
    written = f"{usage.output:,} out"
    if usage.reasoning:
        written += f" ({usage.reasoning:,} reasoning)"
    return f"{read}, {written}"


def call(part: Call) -> str:
    """A call as a person would write it."""
    # They are the model's own words, and may be cut, or no JSON at all.
    arguments = read_arguments(part.arguments)
    if not isinstance(arguments, dict):
        return f"{part.name}({part.arguments})"
    pairs = []
    for name, value in arguments.items():
        pairs.append(f"{name}={json.dumps(value, ensure_ascii=False)}")
    return f"{part.name}({', '.join(pairs)})"


def aside(part: Part) -> str:
    """A part that is neither words, nor a call, nor a result."""
    match part:
        case Image(url=url):
            if url.startswith("data:"):  # the image itself, which is no use to a reader
                url = url.partition(",")[0]
            return f"[image: {url}]"
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
    first = limit * 2 // 3
    last = limit // 6
    left = many(len(text) - first - last, "character")
    return f"{text[:first]}\n… {left} left out; --full shows them …\n{text[-last:]}"
