"""The commands there are: their names, a line about each, and the module of each, which is loaded
when it is called.

A command's module has `options(parser)`, which says what it takes, and `run(options, out)`, which
does it and gives the exit code; the docstring of `run` is its help.
"""

GROUPS = {
    "sessions": "Look into sessions; fork, rewind, compact, export and remove them.",
    "store": "Look after the store itself.",
    "hermes": "Run Hermes Agent on Holdfast: `holdfast hermes -- hermes gateway run`.",
}


# Names and sentences only: `--help` and a misspelt command are answered without loading
# the module of any command.
COMMANDS = {
    "sessions list": "List sessions, newest activity first.",
    "sessions show": "Show what happened in a session, for people.",
    "sessions search": "Find messages by their words, in all sessions.",
    "sessions tail": "Follow a session live.",
    "sessions fork": "Start a new session that shares the past of one.",
    "sessions rewind": "Take the model's view back to a message, or forward again.",
    "sessions compact": "Put a summary in the place of older turns.",
    "sessions export": "Write a session out, for programs or for people.",
    "sessions rm": "Erase sessions for good.",
    "reset": "End a key's current session and begin a new one.",
    "copy": "Copy the sessions of a store into another.",
    "store info": "Show what is in a store and how large it is.",
    "store check": "Look for damage and broken invariants; change nothing.",
    "store backup": "Copy a store while it is in use, and verify the copy.",
    "store migrate": "Bring a store of an older release up to date.",
    "store vacuum": "Give back the room that erased words took.",
    "doctor": "Find out what is wrong with a store, and write a healed copy.",
    "import": "Import the sessions of another program.",
    "export": "Write a session out, for programs or for people.",
    "serve": "Serve a store over HTTP.",
    "token": "Make a token for `holdfast serve`.",
    "serve-openviking": "Serve OpenViking's session endpoints from a store.",
    "proxy": "Pass requests on to a provider of models, and record both.",
    "record": "Run an agent for an ACP client, and record both.",
    "hermes run": "Run a command of Hermes on Holdfast, this once.",
    "hermes install": "Put Holdfast under Hermes.",
    "hermes uninstall": "Take Holdfast away from under Hermes.",
    "hermes status": "Show whether Hermes runs on Holdfast.",
    "completion": "Print a script that completes commands in your shell.",
    "demo": "Kill an agent in the middle of a sentence; see what is kept.",
}

# `import` can't be the name of a module, nor one with a hyphen; `export` is the same command
# in two places, and the demo has a folder of its own.
_ELSEWHERE = {
    "import": "commands.import_stores",
    "export": "commands.sessions.export",
    "demo": "demo.command",
    "serve-openviking": "commands.serve_openviking",
}


def module_of(name: str) -> str:
    """The module of a command, below `holdfast.cli`: named as the command is, where that can be a
    name.
    """
    return _ELSEWHERE.get(name) or f"commands.{name.replace(' ', '.')}"


def below(group: str) -> dict[str, str]:
    """The names that may follow this group of words (nothing: the first words), with a line about
    each.
    """
    found: dict[str, str] = {}
    for name, about in COMMANDS.items():
        first, _, second = name.partition(" ")
        if not group:
            found[first] = GROUPS.get(first, about)
        elif first == group:
            found[second] = about
    return found
