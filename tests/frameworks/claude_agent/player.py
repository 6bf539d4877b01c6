"""`python player.py WHERE HOME API SESSION NEW|RESUME|MIRROR PROMPT [ID]`: asks Claude Code one
prompt through `HoldfastSessionStore.query`, and prints each piece as it is shown. MIRROR is the SDK's
own `query`, in a new session.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, StreamEvent, query

from holdfast.adapters.claude_agent import HoldfastSessionStore


def options(home: Path, api: str, **given: Any) -> ClaudeAgentOptions:
    (home / "work").mkdir(parents=True, exist_ok=True)
    env = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_BASE_URL": api,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return ClaudeAgentOptions(
        cwd=home / "work",
        env=env,
        model="claude-sonnet-4-5",
        allowed_tools=["Bash"],
        setting_sources=[],
        include_partial_messages=True,
        **given,
    )


def text_of(message: Any) -> str:
    if isinstance(message, StreamEvent):
        return str((message.event.get("delta") or {}).get("text") or "")
    return ""


async def ask(
    store: HoldfastSessionStore, prompt: str, options: ClaudeAgentOptions, event_id: Any = None
) -> str:
    """Everything that was shown."""
    shown = ""
    async for message in store.query(prompt=prompt, options=options, event_id=event_id):
        shown += text_of(message)
        if text_of(message):
            print(text_of(message), flush=True)
        if isinstance(message, ResultMessage):
            assert not message.is_error, message
    return shown


async def ask_the_sdk(prompt: str, options: ClaudeAgentOptions) -> None:
    async for message in query(prompt=prompt, options=options):
        if text_of(message):
            print(text_of(message), flush=True)


if __name__ == "__main__":
    where, home, api, session, mode, prompt, *event_id = sys.argv[1:]
    named = {"resume": session} if mode == "RESUME" else {"session_id": session}
    store = HoldfastSessionStore(where)
    if mode == "MIRROR":
        mirrored = options(Path(home), api, session_store=store, **named)
        asyncio.run(ask_the_sdk(prompt, mirrored))
    else:
        asyncio.run(ask(store, prompt, options(Path(home), api, **named), *event_id))
