"""The rules for stores whose sessions are plain rows of provider messages, worded for each of their
programs.
"""

from holdfast.doctor.finding import Rule


def item_rules(kind: str, *, program: str, record: str) -> tuple[Rule, ...]:
    """The rules for one kind of store; `record` is what a message is kept in."""
    return (
        Rule(
            name=f"{kind}/tool-call-without-result",
            severity="warning",
            policy="mark",
            cause=f"{program} was stopped while a tool ran, and its outcome was never stored.",
            expected="Every call has a result, but for one that is running.",
            example="call_7 has no result, and the user has spoken since; providers refuse such a "
            "history.",
            remedy="A result is added that says that the outcome is unknown.",
        ),
        Rule(
            name=f"{kind}/tool-result-without-call",
            severity="warning",
            policy="mark",
            cause=f"The {record} with the call was lost, or was taken out by hand.",
            expected="Every result answers a call of its session.",
            example="A result names call_7, and no message calls it; providers refuse such a "
            "history.",
            remedy="The result is kept, and hidden from the model.",
        ),
        Rule(
            name=f"{kind}/repeated-message",
            severity="warning",
            policy="auto",
            cause=f"The same {record} was written twice: a retry, or a session that was copied "
            "into itself.",
            expected=f"An id stands in one {record}.",
            example="The same id stands in two rows.",
            remedy="The first one stays.",
        ),
        Rule(
            name=f"{kind}/unreadable-record",
            severity="error",
            policy="mark",
            cause=f"A {record} was cut or damaged, is too large or too deeply nested, or holds no "
            "message.",
            expected=f"Every {record} holds what {program} writes there.",
            example=f"The last {record} ends in the middle of a word.",
            remedy="Its bytes are kept, hidden from the model.",
        ),
        Rule(
            name=f"{kind}/unreadable-store",
            severity="error",
            policy="report",
            cause="The file can't be read, or nothing in it can.",
            expected=f"The file is one that {program} wrote.",
            example="The file is empty.",
            remedy="None: check the path and its rights, and look for a backup.",
        ),
    )


CLAUDE = item_rules("claude", program="Claude Code", record="line")
CODEX = item_rules("codex", program="Codex", record="line")
AGENTS = item_rules("agents", program="The Agents SDK", record="row")
RULES = (*CLAUDE, *CODEX, *AGENTS)
