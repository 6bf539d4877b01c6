"""Why a view of a session is not what is stored: every reason there is, each a code and a sentence.

What is stored is what the other two are held against: what the user saw and what the model will be
sent each depart from it, and never without one of these reasons. `docs/PROTOCOL.md` lists the codes.
"""

from typing import Literal

import msgspec

Side = Literal["saw", "sent"]
"""What the user saw, what the model will be sent."""


class ViewDifference(msgspec.Struct, frozen=True):
    """Where a view departs from what is stored, and why. `code` is stable, `reason` is for people;
    `routine`: every session has such ones, and nothing was lost or changed that anybody said.
    """

    view: Side
    code: str
    reason: str
    routine: bool


def saw(code: str, **words: object) -> ViewDifference:
    """Why this is not what the user saw."""
    return _because("saw", code, words)


def sent(code: str, **words: object) -> ViewDifference:
    """Why this is not what the model will be sent."""
    return _because("sent", code, words)


def _because(view: Side, code: str, words: dict[str, object]) -> ViewDifference:
    return ViewDifference(view, code, REASONS[code].format(**words), code in ROUTINE)


REASONS = {
    # The user did not see it, or not all of it.
    "call_not_shown": "A tool call is not shown to the user.",
    "thinking_not_shown": "Reasoning is kept, and not shown to the user.",
    "tool_outcome": "What a tool answered is for the model, not for the user.",
    "system_message": "A system message is for the model, not for the user.",
    "instructions": "Instructions are for the model, not for the user.",
    "hidden_from_user": "A label hides it from the user.",
    "summary": "Nobody said this: it is a summary of {stands_for}.",
    "no_words": "It has no words to show.",
    "not_words": "Only the program knows how a part without words was shown.",
    "cut_off": "Its stream was cut: the user saw it up to here, and no more of it is stored.",
    "owed": "It is owed to {whom}, and nobody has confirmed yet that it was sent.",
    "late": "It was stored after its turn had been overtaken: only the program knows whether any of"
    " it was shown.",
    "erased": "Its words were erased from the store.",
    "unreadable": "The entry is damaged in the store; this stands in its place.",
    # The model is not sent it.
    "waiting": "It waits in the inbox: no turn has taken it yet.",
    "elsewhere": "It was waiting when this session was forked: it is answered in the session that"
    " accepted it.",
    "moved": "It waited here, then moved to another session, and is answered there.",
    "still_spoken": "It is still being spoken; it is sent once it has ended.",
    "summarised": "The summary in entry {seq} stands for it.",
    "rewound": "Entry {seq} rewound the session to before it.",
    "retracted": "It was retracted{why}.",
    "hidden": "A label hides it from the model.",
    "left_out": "The list that was recorded last leaves it out.",
    "stray_result": "It answers a call that the model is not sent, or that has been"
    " answered already.",
    "thinking_alone": "Reasoning is sent only before what it led to, and to the provider"
    " that signed it.",
    "blank": "It has nothing in it to send.",
    "not_in_format": "`{format}` can't express it.",
    # The model is sent it in another way.
    "cut_call": "A call that was cut off in the middle can't be sent.",
    "cut_thinking": "Reasoning that was cut off before it was signed can't be sent.",
    "cut_part": "A part that only its provider can read may have been cut off, and is not sent.",
    "edited": "The list that was recorded last words it differently.",
    "merged": "Sent as one message with {others}: providers expect the two sides to alternate.",
    "split": "Tool results are sent next to their calls, apart from the words.",
    "next_to_call": "A tool's result is sent right after its call.",
    "summary_in_front": "A summary is sent before the messages that it does not cover.",
    "reordered": "The list that was recorded last has it in another place.",
    "reshaped": "Stored as `{stored}`, sent as `{format}`.",
    "reduced": "Stored as `{stored}`, sent as `{format}`, which can't express all of it:"
    " without {without}.",
    "adapted": "Changed so that the provider accepts it: {places}.",
    # The model is sent what nobody has stored.
    "interrupted": "No outcome of this call is stored: the model is told that it is unknown.",
    "running": "The call is still running: the model is told so.",
    "waiting_for_approval": "The call waits for approval: the model is told so.",
    "opening": "This provider expects the user to speak first. Nobody said this.",
    "continuation": "The last message is the model's own and its turn is still running, so this"
    " tells it to continue. Nobody said it.",
}

ROUTINE = frozenset(
    {
        "call_not_shown",
        "thinking_not_shown",
        "tool_outcome",
        "system_message",
        "instructions",
        "no_words",
        "not_words",
        "merged",
        "split",
        "next_to_call",
        "reshaped",
        "adapted",
        "still_spoken",
    }
)
