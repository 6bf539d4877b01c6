"""The commands there are: their names, a line about each, and the module of each, which is loaded
when it is called.

A command's module has `options(parser)`, which says what it takes, and `run(options, out)`, which
does it and gives the exit code; the docstring of `run` is its help.
"""

from typing import NamedTuple

GROUPS = {
    "sessions": "Look into sessions; fork, rewind, compact, export and remove them.",
    "store": "Look after the store itself.",
}


class Command(NamedTuple):
    module: str
    about: str


COMMANDS = {
    "sessions list": Command(
        "commands.sessions.list", "List sessions, newest activity first."
    ),
    "sessions show": Command(
        "commands.sessions.show", "Show what happened in a session, for people."
    ),
    "sessions search": Command(
        "commands.sessions.search", "Find messages by their words, in all sessions."
    ),
    "sessions tail": Command("commands.sessions.tail", "Follow a session live."),
    "sessions fork": Command(
        "commands.sessions.fork", "Start a new session that shares the past of one."
    ),
    "sessions rewind": Command(
        "commands.sessions.rewind",
        "Take the model's view back to a message, or forward again.",
    ),
    "sessions compact": Command(
        "commands.sessions.compact", "Put a summary in the place of older turns."
    ),
    "sessions export": Command(
        "commands.sessions.export", "Write a session out, for programs or for people."
    ),
    "sessions rm": Command("commands.sessions.rm", "Erase sessions for good."),
    "reset": Command(
        "commands.reset", "End a key's current session and begin a new one."
    ),
    "copy": Command("commands.copy", "Copy the sessions of a store into another."),
    "store info": Command(
        "commands.store.info", "Show what is in a store and how large it is."
    ),
    "store check": Command(
        "commands.store.check", "Look for damage and broken invariants; change nothing."
    ),
    "store backup": Command(
        "commands.store.backup", "Copy a store while it is in use, and verify the copy."
    ),
    "store migrate": Command(
        "commands.store.migrate", "Bring a store of an older release up to date."
    ),
    "store vacuum": Command(
        "commands.store.vacuum", "Give back the room that erased words took."
    ),
    "doctor": Command(
        "commands.doctor",
        "Find out what is wrong with a store, and write a healed copy.",
    ),
    "import": Command(
        "commands.import_stores", "Import the sessions of another program."
    ),
    "export": Command(
        "commands.sessions.export", "Write a session out, for programs or for people."
    ),
    "completion": Command(
        "commands.completion", "Print a script that completes commands in your shell."
    ),
    "demo": Command(
        "demo.command", "Kill an agent in the middle of a sentence; see what is kept."
    ),
}


def below(group: str) -> dict[str, str]:
    """The names that may follow this group of words (nothing: the first words), with a line about
    each.
    """
    found: dict[str, str] = {}
    for name, command in COMMANDS.items():
        words = name.split()
        if len(words) > bool(group) and (not group or words[0] == group):
            word = words[bool(group)]
            found[word] = (
                command.about if len(words) == 1 + bool(group) else GROUPS[word]
            )
    return found
