"""Lists that are given just as they are stored: all at once, from their bytes.

Nearly all are. What is left out of a list, or closed in it, is found by `chat_store`, message by
message.
"""

from collections.abc import Sequence

from llama_index.core.llms import ChatMessage

from holdfast.adapters.framework import bodies_of
from holdfast.domain.repair import StoredMessage
from holdfast.formats.frameworks.llama_index import NAME

_OLDER = b'"content"'
"""A message of an older release may have its words in a field that only `__init__` reads."""


def in_one_go(stored: Sequence[StoredMessage]) -> list[ChatMessage] | None:
    """These messages as LlamaIndex's; None where one is not LlamaIndex's own or can't be read, or
    something has to be left out or closed.
    """
    bodies = bodies_of(stored, NAME)
    if bodies is None or not _are_settled(stored):
        return None
    if any(_OLDER in body for body in bodies):
        return None
    make, read = ChatMessage.__new__, ChatMessage.__pydantic_validator__.validate_json
    try:
        # As its `__init__` does it. That is Python, and `model_validate` looks at all a second time
        # in there.
        return [read(body, self_instance=make(ChatMessage)) for body in bodies]
    except ValueError:
        return None


def _are_settled(stored: Sequence[StoredMessage]) -> bool:
    """Whether each call of a run has its outcome, and no words may stand twice: streamed, and in
    the whole message after them.
    """
    waiting: set[str] = set()
    before: StoredMessage | None = None
    for seen in stored:
        note = seen.note
        if waiting:
            if not note.answers:
                return False
            waiting.difference_update(note.answers)
        # What was added by itself may be answered yet.
        if seen.turn is not None:
            if before is not None and before.turn == seen.turn:
                if before.note.role == note.role == "assistant":
                    return False
            waiting.update(call.id for call in note.calls)
        before = seen
    return not waiting
