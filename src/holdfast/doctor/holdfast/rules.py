"""The rules for Holdfast's own stores: the invariants, as a store can be seen to break them."""

from holdfast.doctor.finding import Policy, Rule, Severity
from holdfast.domain.invariants import INVARIANTS

DISK = "A disk, a file system or another program has changed what was written."
DEFECT = "No release of Holdfast is known to do this; another program may have written to the file."


def _rule(
    name: str,
    policy: Policy,
    cause: str,
    expected: str,
    example: str,
    remedy: str,
    severity: Severity = "error",
) -> Rule:
    """A rule. What is expected is one of the invariants, where it is named by its number."""
    # The invariant's own sentence, so that rule and invariant can't drift apart.
    wanted = (
        f"{expected}: {INVARIANTS[expected]}" if expected in INVARIANTS else expected
    )
    return Rule(f"holdfast/{name}", severity, policy, cause, wanted, example, remedy)


TOMBSTONE = (
    "Put a tombstone in the place of what is lost, so that all else keeps its place."
)

RULES: tuple[Rule, ...] = (
    _rule(
        "not-a-store",
        "report",
        "The path is wrong, or the file is of a program that nobody here knows.",
        "A store of Holdfast, Hermes, goose, OpenViking, Claude Code, Codex or the OpenAI Agents "
        "SDK.",
        "A text file, an empty file, random bytes.",
        "Check the path.",
    ),
    _rule(
        "unreadable-store",
        "report",
        f"{DISK} Or a newer release has written it.",
        "A file that can be opened.",
        "A file whose first page was overwritten.",
        "Take it from a backup; update Holdfast if a newer release has written it.",
    ),
    _rule(
        "damaged-page",
        "mark",
        DISK,
        "I-18",
        "A page of the file was overwritten with zeros.",
        "Copy what can be read, session by session. " + TOMBSTONE,
    ),
    _rule(
        "open-to-others",
        "auto",
        "The file was copied or made with other rights.",
        "Files that their owner alone may use.",
        "The file's mode is 644.",
        "Make the copy with mode 600.",
        "warning",
    ),
    _rule(
        "no-entries",
        "auto",
        DISK,
        "I-1",
        "A session without its first entry, `opened`.",
        "Leave the session out of the copy: it has no words.",
    ),
    _rule("gap-in-log", "mark", DISK, "I-1", "Entries 1, 2, 4.", TOMBSTONE),
    _rule(
        "unreadable-entry",
        "mark",
        DISK,
        "I-18",
        "An entry whose payload is no JSON any more.",
        TOMBSTONE + " The report shows what is left of its bytes.",
    ),
    _rule(
        "doubled-id",
        "mark",
        DEFECT,
        "I-2",
        "Entries 4 and 7 have one id.",
        "Give the later one an id of its own, derived from its place.",
    ),
    _rule(
        "turn-without-one-end",
        "mark",
        DEFECT,
        "I-6",
        "A turn with two ends; one without any that is not running.",
        "Keep the first end, or end it as abandoned.",
    ),
    _rule(
        "ended-and-running",
        "auto",
        DEFECT,
        "I-8",
        "A session has ended, and turn 3 is said to run in it.",
        "End the turn as abandoned.",
    ),
    _rule(
        "lost-base",
        "auto",
        DISK,
        "I-11",
        "A load begins with entry 40 of 20.",
        "Load from the first entry.",
    ),
    _rule(
        "lost-past",
        "mark",
        f"{DISK} Or the session it was forked from was taken out by hand.",
        "I-1",
        "A fork shares 12 entries of a session that has 4.",
        "Make it a session of its own, with tombstones in the place of what it shared.",
    ),
    _rule(
        "stray-entries",
        "report",
        DEFECT,
        "I-1",
        "Entries of a session number that no session has.",
        "Leave them out of the copy; the original keeps them.",
    ),
    _rule(
        "stray-chunks",
        "auto",
        DEFECT,
        "I-5",
        "Journal rows of a session number that no session has.",
        "Leave them out of the copy.",
    ),
    _rule(
        "stray-inbox",
        "auto",
        DEFECT,
        "I-4",
        "The inbox names entry 9, which is no message.",
        "Put into the inbox what the log says is waiting.",
    ),
    _rule(
        "stray-outbox",
        "report",
        DEFECT,
        "I-23",
        "A reply is owed by turn 9 of 3.",
        "Leave it out of the copy: nobody can tell whose it was. Look whether somebody still "
        "waits for an answer.",
    ),
    _rule(
        "other-tenants",
        "auto",
        DEFECT,
        "I-19",
        "The reply that a session owes is kept under a tenant that has no such session, so "
        "nobody is given it. A fork is kept under another tenant than the session it was forked "
        "from, so it can't be read.",
        "Keep the inbox and the outbox with their session; if they, or the sessions that share a "
        "past with it, name one tenant and the row of the session alone another, that has no other "
        "session, keep the session with them. If nobody can tell whose a shared past is, the fork "
        "has tombstones in its place.",
    ),
    _rule(
        "stray-events",
        "auto",
        DEFECT,
        "I-2",
        "An event names entry 9, which is another message.",
        "Know the events that the log tells, and forget the others: what they became is not there.",
    ),
    _rule(
        "doubled-keys",
        "mark",
        DEFECT,
        "I-8",
        "Two sessions of `telegram:dm:42` have not ended.",
        "End all but the last one.",
    ),
    _rule(
        "lost-blobs",
        "mark",
        DISK,
        "I-14",
        "An image that a message refers to is missing.",
        "Say in the message which part of it is missing.",
    ),
    _rule(
        "altered-blobs",
        "report",
        DISK,
        "I-14",
        "The bytes of an image are not those it was stored with.",
        "Take the file from a backup: nobody can tell what the bytes were.",
    ),
    _rule(
        "label-of-nothing",
        "mark",
        DEFECT,
        "I-13",
        "A label names a message that is not in the log.",
        "Put a tombstone in the place of the label.",
        "warning",
    ),
    _rule(
        "names-no-message",
        "report",
        f"{DEFECT} Or the store is a healed copy, and the message was lost before.",
        "I-1",
        "The start of turn 4 takes a message that is not in the log.",
        "Nothing else is lost with it; restore the message from a backup.",
        "warning",
    ),
    _rule(
        "words-after-the-end",
        "report",
        DEFECT,
        "I-7",
        "A message of turn 3 stands behind its end and is not late.",
        "Nothing is lost: it is shown in its turn.",
        "warning",
    ),
    _rule(
        "covered-twice",
        "report",
        DEFECT,
        "I-11",
        "A message stands under two summaries.",
        "Nothing is lost: rewind or compact the session to change what the model sees.",
        "warning",
    ),
    _rule(
        "call-decided-twice",
        "report",
        DEFECT,
        "I-22",
        "A call was denied, and started.",
        "Nothing is run again; look what it did.",
        "warning",
    ),
)

RULE = {rule.name: rule for rule in RULES}
