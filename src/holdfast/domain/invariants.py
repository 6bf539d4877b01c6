"""The invariants, a sentence or two each: what holds in every store, at every moment.

Code that keeps one, the doctor's check that finds it broken and the test that proves it cite its
number.
"""

INVARIANTS: dict[str, str] = {
    "I-1": "A session's log only grows; seq is dense; an entry never changes. "
    "(Erasure blanks a payload, leaves a tombstone, and is itself an entry.)",
    "I-2": "Identity is minted at the edge, never taken from position, time or text. "
    "Two equal texts are two messages; one event id is one message.",
    "I-3": "Accepted means durable. No call reports success for what is not written; "
    "payloads are frozen to bytes before the first wait.",
    "I-4": "The user's message is durable before the model is called, and before its acceptance "
    "is confirmed to "
    "its sender. Accepted messages stay in the inbox, in order, until a turn takes them; a turn "
    "that dies "
    "before it has used one gives it back.",
    "I-5": "A chunk is durable before it is handed on to be shown: delivered is a prefix of "
    "stored, always.",
    "I-6": "A turn has exactly one end. A dead writer's turn is ended as abandoned by the next "
    "one who looks, its "
    "chunks kept as a partial message.",
    "I-7": "A superseded writer can neither deliver nor change state. What it did before it knew "
    "(a tool's outcome, "
    "finished text) is still stored, under its own turn, marked late.",
    "I-8": "A key resolves to its current session in the same transaction that starts the turn. "
    "A handle to an ended session cannot start one.",
    "I-9": "The context is a pure function of the log: every process computes the same one. "
    "It is always valid for its format, whatever the log holds.",
    "I-10": "Every tool call in a context has exactly one result, next to it. A missing one is "
    "shown as interrupted; "
    "a late real one takes its place; a call that waits for approval is shown as waiting and "
    "stays open in the log.",
    "I-11": "Compaction is one entry. Every message is in the context or covered by exactly one "
    "summary; a cut never "
    "splits a turn's tool pairs; a blank summary is refused; messages that arrive meanwhile stay.",
    "I-12": "Nothing that was recorded is lost or doubled by recording a list again, in any "
    "shape: merged, trimmed, "
    "reordered at the head, edited, copied, reloaded in another process.",
    "I-13": "Labels on a message are entries of their own: a writer with an older view cannot "
    "undo them.",
    "I-14": "Provider payloads come back byte for byte. A signed group is replayed whole or not "
    "at all.",
    "I-15": "A reader that resumes from a cursor sees each entry and each chunk once. "
    "A cursor that cannot be served is answered with what is missing, never with silence.",
    "I-16": "Stopping is an explicit act. A lost reader stops nothing.",
    "I-17": "Lists, search and usage are derived, can be rebuilt, and can fail without harming "
    "the log.",
    "I-18": "Reading never writes. Damage is reported with its place, never wiped; the rest stays "
    "readable.",
    "I-19": "Every call names its tenant; an id is not a credential.",
    "I-20": "Stored bytes are data, never code.",
    "I-21": "Destroying anything is previewed, whole and leaves an audit entry.",
    "I-22": "A tool call is stored before the tool runs, its outcome after. A call without an "
    'outcome is "unknown" '
    "and is never run again by itself; an approval binds one call and its exact arguments, once.",
    "I-23": "A reply owed to somebody is in the outbox from the transaction that ends its turn "
    "until its sending is "
    "confirmed; both tries carry the same key.",
    "I-24": "Memory is bounded by the page read and the context built, not by the length of the "
    "history.",
    "I-25": "What is written can be read back: notes are decoded before they are stored. "
    "One entry that can't be read takes away nothing but itself.",
    "I-26": "A process is taken for dead only by proof; without proof its lease decides.",
    "I-27": "A call by key, a page, a search cost the same in a store of ten sessions and of a "
    "million.",
}
