"""How many of the live messages a commit leaves live; pure."""

from collections.abc import Sequence

from holdfast.adapters.openviking.server.incoming import CommitRequest
from holdfast.adapters.openviking.server.sessions.served_session import ServedMessage


def kept(live: Sequence[ServedMessage], request: CommitRequest) -> int:
    """How many messages, from the end, stay live: so many, or those of the last turns as far as a
    budget of tokens goes.
    """
    if request.mode != "turn_budget":
        return request.keep
    start = _start_of_turns(live, request.keep_turns)
    # No budget, no limit.
    if not request.token_budget:
        return len(live) - start
    tokens = 0
    count = 0
    for message in reversed(live[start:]):
        tokens += message.tokens
        # The end of a turn stays, whatever it costs: the agent is in the middle of it.
        if tokens > request.token_budget and count >= request.tail_min:
            break
        count += 1
    return count


def _start_of_turns(live: Sequence[ServedMessage], turns: int) -> int:
    """Where the last so many turns begin. A turn begins with what a user asks."""
    if turns == 0:
        return len(live)
    for index in range(len(live) - 1, -1, -1):
        payload = live[index].payload
        kind = payload.get("message_kind")
        if payload["role"] == "user" and kind in (None, "user_query"):
            turns -= 1
            if turns == 0:
                return index
    return 0
