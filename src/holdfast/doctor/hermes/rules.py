"""What must not be so in Hermes Agent's `state.db`."""

from holdfast.doctor.finding import Rule

# In the order of `docs/rules.md`; healing goes by that of `detect.all`.
RULES: tuple[Rule, ...] = (
    Rule(
        name="hermes/orphan-user",
        severity="error",
        policy="mark",
        cause="The turn ended without an answer in the store: the process was killed, or its "
        "writes failed.",
        expected="Every user row is answered before the next one, or before its session ends.",
        example="user 'Which berth is free?', then user 'And tomorrow?'. The next prompt glues "
        "the two together.",
        remedy="A row 'no answer is stored' is put after the question; the answer itself is gone.",
    ),
    Rule(
        name="hermes/merged-user-blob",
        severity="warning",
        policy="ask",
        cause="An unanswered question was glued to the next one when the history was repaired, "
        "and stored like that.",
        expected="A user row holds what the user said then, and not the row before it too.",
        example="user 'Log the tug.', then user 'Log the tug.\\n\\nHow many so far?'",
        remedy="The old text is cut from the front of the later row; the old row is kept.",
    ),
    Rule(
        name="hermes/partial-unmarked",
        severity="warning",
        policy="mark",
        cause="The turn was interrupted while the answer was streamed, and what there was of it "
        "is stored as if whole. "
        "This is not proof: some recovery paths close a turn in the same way.",
        expected="A finished answer has a finish_reason.",
        example="assistant 'Berth 4 is fr' with finish_reason NULL, before a user row",
        remedy="The message is marked as incomplete (finish_reason 'interrupted').",
    ),
    Rule(
        name="hermes/split-by-stream-cut",
        severity="warning",
        policy="auto",
        cause="The stream was cut or the answer too long, and the request to go on was stored as "
        "a user row.",
        expected="One answer is one row, and a user row is something that the user said.",
        example="assistant (finish_reason length), user '[System: The previous response was cut "
        "off …', assistant",
        remedy="The two texts are joined without a separator; the row between them is kept, "
        "hidden from the model.",
    ),
    Rule(
        name="hermes/duplicate-tool-call-row",
        severity="error",
        policy="auto",
        cause="A stored tool call got its text later, lost its mark and was stored again.",
        expected="A tool call is stored once.",
        example="assistant '' with call_7, then assistant 'Let me look.' with the same call_7",
        remedy="The second row is kept, the first folded into it; a call without a result gets "
        "'outcome unknown'.",
    ),
    Rule(
        name="hermes/repeated-tail",
        severity="warning",
        policy="auto",
        cause="Each compaction stores the messages that it keeps once more.",
        expected="A message has at most one copy, the live one.",
        example="'Log the barge at 12.' three times after two compactions; a search finds it "
        "three times",
        remedy="The first and the live copy are kept; the others are folded into the first.",
    ),
    Rule(
        name="hermes/written-after-end",
        severity="error",
        policy="ask",
        cause="A cached agent still wrote to the session that the chat had left.",
        expected="A question goes to the session that its chat is in.",
        example="a user row later than ended_at, while the chat's route names a session that "
        "began after it",
        remedy="The turn is moved to the session that the route names.",
    ),
    Rule(
        name="hermes/interleaved-turns",
        severity="error",
        policy="ask",
        cause="Two processes worked on one session at the same time.",
        expected="An answer follows its question.",
        example="user, user, assistant, assistant; the next load makes one exchange of them",
        remedy="Questions and answers are paired in order.",
    ),
    Rule(
        name="hermes/double-user-row",
        severity="warning",
        policy="ask",
        cause="Two threads stored the same inbound message; without a platform id nothing could "
        "tell.",
        expected="A message is stored once.",
        example="two user rows 'Hello' within 0.1 s",
        remedy="The first is kept. It is one question for the whole store: every such row, or "
        "none.",
    ),
    Rule(
        name="hermes/tool-result-without-call",
        severity="error",
        policy="mark",
        cause="The call was lost, or its result stored twice or in another place.",
        expected="A tool row answers a call just above it.",
        example="a tool row for call_9 where no call_9 is open",
        remedy="It is kept for the reader and hidden from the model.",
    ),
    Rule(
        name="hermes/tool-call-without-result",
        severity="error",
        policy="mark",
        cause="The process was killed, or the turn interrupted, while the tool ran.",
        expected="Every call has its result before the next user or assistant row.",
        example="assistant with call_3, then a user row",
        remedy="A result 'interrupted, outcome unknown' is added. The tool is never run again by "
        "itself.",
    ),
    Rule(
        name="hermes/session-meta-repeated",
        severity="warning",
        policy="mark",
        cause="The history could not be loaded, and the turn ran as if it were the session's "
        "first.",
        expected="One session_meta row in a session, after its first turn.",
        example="a second session_meta row after the ninth turn",
        remedy="It is kept, and it is recorded at that turn that the model had no history.",
    ),
    Rule(
        name="hermes/compression-without-child",
        severity="error",
        policy="ask",
        cause="A compaction ended the session and stopped before it had made the next one.",
        expected="A session that ended with reason 'compression' is continued by another.",
        example="end_reason compression, and no session has it as parent",
        remedy="The chat's next session is linked to it; if there is none, it is opened again.",
    ),
    Rule(
        name="hermes/message-count-drift",
        severity="info",
        policy="auto",
        cause="The counter and the rows are written by different paths.",
        expected="message_count is the number of live rows, or that and those that were taken "
        "back.",
        example="message_count 12 with 9 live rows",
        remedy="The rows are counted again.",
    ),
    Rule(
        name="hermes/replaced-characters",
        severity="warning",
        policy="auto",
        cause="Half a character reached the store, which can't hold it, and was replaced.",
        expected="No U+FFFD in what a user or the assistant said.",
        example="'Sure �� tonight'",
        remedy="The text is taken from codex_message_items or reasoning_details when it agrees "
        "everywhere else. "
        "Otherwise the character is beyond recovery, and the row is noted as known.",
    ),
    Rule(
        name="hermes/tool-calls-not-json",
        severity="error",
        policy="mark",
        cause="The column was cut or damaged.",
        expected="tool_calls is a JSON list.",
        example='tool_calls = \'[{"id": "call_1", "function": {"na\'',
        remedy="A call in its place holds the raw text, and the result stays with it.",
    ),
    Rule(
        name="hermes/ghost-route",
        severity="error",
        policy="report",
        cause="The session was deleted, or never stored, while its chat still points to it.",
        expected="A route names a session of this store.",
        example="entry_json.session_id is not in sessions",
        remedy="None: what the chat said is not in this store.",
    ),
    Rule(
        name="hermes/lost-turn",
        severity="error",
        policy="ask",
        cause="The model answered, and no row of the session was ever written: a lock was held, "
        "or the disk was full.",
        expected="A session with model calls has rows.",
        example="no rows, api_call_count 2",
        remedy="The texts in the delivery ledger are put back as recovered answers, each after "
        "'question not stored'.",
    ),
    Rule(
        name="hermes/answer-only-in-ledger",
        severity="error",
        policy="ask",
        cause="The answer was delivered and never stored.",
        expected="What was delivered is stored.",
        example="user, user; between their times the ledger has a text that no row has",
        remedy="The text is put back as a recovered answer. Do it before a gateway starts: the "
        "ledger forgets.",
    ),
    Rule(
        name="hermes/stale-compression-lock",
        severity="info",
        policy="auto",
        cause="The process that compacted was killed.",
        expected="No lock is older than the newest row.",
        example="compression_locks.expires_at before the newest row of the store",
        remedy="The lock is left out of the healed copy; reading needs nothing.",
    ),
    Rule(
        name="hermes/review-harness-turn",
        severity="warning",
        policy="auto",
        cause="A review of the session by the program itself was stored as a turn of it.",
        expected="A user row is something that the user said.",
        example="user 'Review the conversation above and update the skill library …'",
        remedy="The row and its reply are kept and hidden from the model.",
    ),
    Rule(
        name="hermes/history-stored-twice",
        severity="error",
        policy="auto",
        cause="Two writers stored the same history.",
        expected="A message is live once.",
        example="user, assistant, user, assistant, and the same four once more, with the very "
        "same times",
        remedy="The first is kept, the rest folded into it.",
    ),
    Rule(
        name="hermes/summary-without-source",
        severity="warning",
        policy="report",
        cause="The archived rows were deleted, by /retry for one.",
        expected="A summary has the rows that it stands for behind it, or a parent session.",
        example="a live summary row, no archived row, no parent",
        remedy="None: the summary is all there is.",
    ),
    Rule(
        name="hermes/unreadable-record",
        severity="error",
        policy="report",
        cause="A page of the file is damaged, or a value is not what its column holds.",
        expected="Every record can be read.",
        example="a message whose content is bytes, or lies on a damaged page",
        remedy="None: it is left out of a healed copy, and stays in the original.",
    ),
    Rule(
        name="hermes/unreadable-store",
        severity="error",
        policy="report",
        cause="The file is cut, damaged or not a database.",
        expected="The store can be opened.",
        example="a state.db whose first page is gone",
        remedy="None from here: restore a backup, or try SQLite's own `.recover`.",
    ),
)

RULE = {rule.name: rule for rule in RULES}
