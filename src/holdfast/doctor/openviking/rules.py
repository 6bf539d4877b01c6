"""The rules for OpenViking's session directories."""

from holdfast.doctor.finding import Rule

# The order matters: healing applies the first rule that is broken, and looks again.
LIVE = (
    Rule(
        name="openviking/lost-clear",
        severity="error",
        policy="ask",
        cause="A commit archived these messages, but the rewriting of `messages.jsonl` never "
        "reached the disk.",
        expected="A message that an archive took out of the live file is not live any more, "
        "unless it was retained.",
        example="archive_001 is ready and lists msg_01 to msg_04 as archived; all four still "
        "stand in messages.jsonl.",
        remedy="Exactly these messages leave the live file; the archive has them.",
    ),
    Rule(
        name="openviking/append-crash-meta-behind",
        severity="warning",
        policy="auto",
        cause="The process died between the two writes of an append: the message was stored, the "
        "counter was not.",
        expected="`message_count` in `.meta.json` is the number of lines in `messages.jsonl`.",
        example="messages.jsonl has 5 lines, message_count says 4, and no archive holds any of "
        "them.",
        remedy="The counter is raised; no message is touched.",
    ),
    Rule(
        name="openviking/wiped-live",
        severity="error",
        policy="report",
        cause="The live file was emptied to be written anew, and the process died before it was.",
        expected="There are as many messages as `.meta.json` counts.",
        example="messages.jsonl is empty, and message_count says 12.",
        remedy="None: the words are in no file of this store. What is there is brought over as "
        "it is.",
    ),
    Rule(
        name="openviking/torn-tail",
        severity="error",
        policy="mark",
        cause="The process was killed, or the disk was full, while the file was written.",
        expected="Every line of a `messages.jsonl` is a whole JSON object.",
        example='The last line ends after `"created_at":`.',
        remedy="The whole lines stay; the bytes of the torn one are kept aside, hidden from the "
        "model.",
    ),
    Rule(
        name="openviking/torn-meta",
        severity="error",
        policy="mark",
        cause="The process was killed, or the disk was full, while `.meta.json` or a marker of an "
        "archive was written.",
        expected="`.meta.json`, `.done` and `.failed.json` are JSON objects.",
        example=".meta.json ends in the middle of a word; OpenViking can't load the session.",
        remedy="The file is rebuilt from the messages; its bytes are kept aside.",
    ),
    Rule(
        name="openviking/duplicate-ids",
        severity="warning",
        policy="auto",
        cause="A write was applied twice.",
        expected="An id stands once in a file.",
        example="msg_03 and msg_04 stand twice in messages.jsonl, with the same words.",
        remedy="The first one stays; one with other words under the same id stays too, under an "
        "id of its own.",
    ),
    Rule(
        name="openviking/replayed-batch",
        severity="warning",
        policy="ask",
        cause="A client got no answer to an append and sent the same messages again; OpenViking "
        "gave them new ids.",
        expected="The same messages do not follow each other as a block, word for word.",
        example="msg_05 to msg_08 say what msg_01 to msg_04 say.",
        remedy="The first block stays, the repeated one leaves the live file.",
    ),
    Rule(
        name="openviking/tool-never-finished",
        severity="warning",
        policy="mark",
        cause="The agent was stopped while a tool ran, and the session went on without its "
        "outcome.",
        expected="A call that others came after has an outcome.",
        example="The part call-7 is still running, and the user has spoken since.",
        remedy="The part becomes an error that says that the outcome is unknown.",
    ),
    Rule(
        name="openviking/tool-result-missing",
        severity="warning",
        policy="mark",
        cause="A large output was moved out of its message, and the file is gone or was never "
        "written.",
        expected="What `tool_output_ref` points to is in `tool-results/`.",
        example="call-7 refers to tool-results/tr_call-7_ab12/output.txt, which is not there.",
        remedy="The preview in the message stays; the reference is replaced by a word that it "
        "leads nowhere.",
    ),
)

ARCHIVES = (
    Rule(
        name="openviking/prepared-only",
        severity="warning",
        policy="auto",
        cause="A commit died after it had copied messages into an archive, before it took them "
        "out of the live file.",
        expected="An archive took effect, or is not there.",
        example="archive_002 is preparing, and all its messages are still live.",
        remedy="The copy is left out; the messages stay live.",
    ),
    Rule(
        name="openviking/failed-hides-messages",
        severity="error",
        policy="ask",
        cause="The extraction from an archive failed, or a file of the commit could not be "
        "written.",
        expected="Messages that no overview stands for are in the model's view.",
        example="archive_001 has .failed.json; its 4 messages are in no context and no endpoint "
        "shows them.",
        remedy="The raw messages become live again.",
    ),
    Rule(
        name="openviking/pending-forever",
        severity="error",
        policy="mark",
        cause="A commit died before its work was queued. The next one will mark this archive as "
        "failed and hide it.",
        expected="An archive that took messages out of the live file has `.done` or "
        "`.failed.json`.",
        example="archive_001 is ready, has no marker, and its 4 messages are not live.",
        remedy="The raw messages become live again. If OpenViking is at work on this archive "
        "right now, wait for it.",
    ),
    Rule(
        name="openviking/done-without-overview",
        severity="error",
        policy="mark",
        cause="The overview was not written, or was lost, after its archive had been marked as "
        "done.",
        expected="An archive that is done with working memory has an overview.",
        example="archive_001/.done says enable_working_memory, and there is no .overview.md.",
        remedy="The raw messages become live again.",
    ),
    Rule(
        name="openviking/done-without-messages",
        severity="error",
        policy="report",
        cause="The archive's messages were deleted, or never reached the disk.",
        expected="An archive that is done holds the messages that it took.",
        example="archive_001 has .done and no messages.jsonl.",
        remedy="None: the words are in no file of this store. An overview, where there is one, "
        "stays.",
    ),
    Rule(
        name="openviking/archive-gap",
        severity="warning",
        policy="report",
        cause="An archive was deleted by hand, or its writing was lost.",
        expected="Archives are numbered from 1 without a gap.",
        example="There is archive_002, and no archive_001.",
        remedy="None: what the missing archive held is in no file of this store.",
    ),
)

STORE = (
    Rule(
        name="openviking/stale-locks",
        severity="info",
        policy="report",
        cause="A process that held a lock was killed.",
        expected="A store that nobody uses has no lock files.",
        example=".path.ovlock is left; the first write afterwards waits for it to run out.",
        remedy="Remove the file when no OpenViking runs on this store. A healed copy has no lock "
        "files.",
    ),
    Rule(
        name="openviking/torn-lock",
        severity="warning",
        policy="report",
        cause="A process was killed while it wrote its lock.",
        expected="A lock file says who holds it and since when.",
        example=".path.ovlock is empty; the first write afterwards waits for 20 seconds.",
        remedy="Remove the file when no OpenViking runs on this store. A healed copy has no lock "
        "files.",
    ),
    Rule(
        name="openviking/unreadable-record",
        severity="error",
        policy="mark",
        cause="A line was damaged, is too large or too deeply nested, or is not a message.",
        expected="Every line of a `messages.jsonl` is a message with an id, a role and parts.",
        example="Line 7 of messages.jsonl is a list.",
        remedy="The line leaves the file; its bytes are kept aside, hidden from the model.",
    ),
    Rule(
        name="openviking/unreadable-store",
        severity="error",
        policy="report",
        cause="The directory holds no session, or can't be read.",
        expected="A session's directory has `messages.jsonl`, `.meta.json` or archives.",
        example="The path is a file.",
        remedy="None: check the path and its rights.",
    ),
)

RULES = (*LIVE, *ARCHIVES, *STORE)

RULE = {rule.name: rule for rule in RULES}
