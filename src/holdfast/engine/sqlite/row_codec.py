"""How an entry lies in its row: what nearly every message repeats is left out, and put back by the
view `log`.

A message of a few words should cost little more than its words. `schema.sql` has the other half of
this, in the same order:

    kind    nothing for a message
    note    1 for a plain answer of an assistant, nothing for a plain message of a user, else as it is
    body    as text, without `{"role":…,"content":"` and `"}`, where that is all there is around it, else as it is
"""

from typing import Any

from holdfast.domain.entry import Draft

ASSISTANT_NOTE = b'{"role":"assistant"}'
USER_HEAD = b'{"role":"user","content":"'
ASSISTANT_HEAD = b'{"role":"assistant","content":"'
TAIL = b'"}'


def packed(draft: Draft, body: bytes) -> tuple[str, Any, Any]:
    """Kind, note and body of an entry as they are kept."""
    note = draft.note
    if draft.kind != "message":
        return draft.kind, note or None, body or None
    if not note:
        return "", None, _words(body, USER_HEAD)
    # 1 stands for this note: it is by far the most frequent one
    if note == ASSISTANT_NOTE:
        return "", 1, _words(body, ASSISTANT_HEAD)
    return "", note, body or None


def _words(body: bytes, head: bytes) -> Any:
    """What stands between this head and the tail; the whole body when it is another one."""
    if (
        body.startswith(head)
        and body.endswith(TAIL)
        and len(body) >= len(head) + len(TAIL)
    ):
        try:
            return body[len(head) : -len(TAIL)].decode()
        # bytes that are no text stay as they were given (I-14)
        except UnicodeDecodeError:
            pass
    return body or None
