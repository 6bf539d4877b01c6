"""The rules for stores of goose. Issue numbers are those of goose's own tracker."""

from holdfast.doctor.finding import Rule

# In the order of `docs/rules.md`; remedies have an order of their own (`heal.session`).
RULES: tuple[Rule, ...] = (
    Rule(
        name="goose/orphan-tool-request",
        severity="error",
        policy="mark",
        cause="A turn was cancelled or killed while a tool ran; the call was stored, its result "
        "never (#7444, #7914).",
        expected="Every call has one result after it.",
        example="An assistant row with the call `call_o1`; no row holds a result for `call_o1`.",
        remedy="An error result that says `interrupted, outcome unknown` is put after the call. "
        "It is never run again.",
    ),
    Rule(
        name="goose/orphan-tool-response",
        severity="warning",
        policy="mark",
        cause="The call's row was lost or cut out by a rewriting of the history; its result "
        "stayed.",
        expected="Every result that the model sees answers a call.",
        example="A user row with a result for `call_x`; no row holds the call `call_x`.",
        remedy="The result is kept and hidden from the model.",
    ),
    Rule(
        name="goose/result-before-call",
        severity="error",
        policy="auto",
        cause="The call was stamped later than its result, and goose reads rows by their time "
        "(#9461, #9479).",
        expected="A call is read before its result.",
        example="Row 7, the call, has the time 1790010005; row 8, its result, has 1790010004 and "
        "is read first.",
        remedy="The result is put after its call, as the row ids say.",
    ),
    Rule(
        name="goose/duplicate-tool-result",
        severity="error",
        policy="auto",
        cause="A result was stored twice, by a retry or by two loops (#9133); providers refuse "
        "the second.",
        expected="A call has one result.",
        example="Rows 8 and 9 both hold a result for `call_p1`.",
        remedy="The first is kept; later ones are hidden from the model.",
    ),
    Rule(
        name="goose/duplicate-rows",
        severity="warning",
        policy="auto",
        cause="A message was stored again, under its own id and with the same words.",
        expected="A message is stored once.",
        example="Rows 4 and 9 have the same `message_id` and the same content.",
        remedy="The first is kept; the others say nothing that it does not.",
    ),
    Rule(
        name="goose/token-split-rows",
        severity="warning",
        policy="auto",
        cause="A release stored every piece of a streamed answer as a row of its own (#7850, "
        "#7962).",
        expected="One answer is one row.",
        example="Six assistant rows in a row with the id `chatcmpl-bees`, a word or two in each.",
        remedy="The pieces are joined in the order of their rows, under their id.",
    ),
    Rule(
        name="goose/lost-turn",
        severity="error",
        policy="report",
        cause="A turn was cancelled or killed before goose stored what the model had said (#7827, "
        "#11909).",
        expected="A reply that was paid for is in the store.",
        example="Two prompts with nothing between them, and one more paid call in the ledger than "
        "there are replies.",
        remedy="The words are gone; only a recorder in the path has them. Ask again.",
    ),
    Rule(
        name="goose/unanswered-prompt",
        severity="warning",
        policy="mark",
        cause="goose was killed, or the model refused, before anything of an answer was stored.",
        expected="A prompt that began a turn has an answer, unless it is being answered.",
        example="The session ends on `Mow row 4.`, and no program has the store open.",
        remedy="A line is put after it that says that the turn was interrupted.",
    ),
    Rule(
        name="goose/cut-stream",
        severity="warning",
        policy="mark",
        cause="The stream of an answer was cut, and what had arrived was stored as if it were the "
        "whole.",
        expected="An answer that ended well tells its output tokens, as others of its session or "
        "its model do.",
        example="The last answer has no `usage.outputTokens`; those before it have.",
        remedy="The answer is marked incomplete, and a line after it says so.",
    ),
    Rule(
        name="goose/unfinished-turn",
        severity="warning",
        policy="mark",
        cause="The turn was stopped after a tool had answered and before the model went on "
        "(#11996, #12133).",
        expected="A turn ends with what the assistant says.",
        example="The last row of the session is a tool's result.",
        remedy="A line is put at its end that says that the turn was interrupted.",
    ),
    Rule(
        name="goose/merged-users",
        severity="warning",
        policy="ask",
        cause="goose's repair of a request was written back: two user rows became one.",
        expected="A prompt and the context that goose adds to it are rows of their own.",
        example="A user row with two texts, one of them a `<turn-context>` block.",
        remedy="The row is split again, the context block hidden from readers.",
    ),
    Rule(
        name="goose/metadata-clobbered",
        severity="warning",
        policy="ask",
        cause="A stale copy of the history was written back and undid flags written meanwhile "
        "(#7413, #7785).",
        expected="A call and result that a summary stands for are hidden from the model.",
        example="A call and its result are visible to the model, and their summary for the model "
        "follows at once.",
        remedy="The pair is hidden from the model again.",
    ),
    Rule(
        name="goose/summary-deleted",
        severity="error",
        policy="ask",
        cause="A round trip through a client deleted the summary that only the model sees (#7413, "
        "#7414).",
        expected="What is hidden from the model has a summary that stands for it.",
        example="A call and its result are hidden from the model, and no summary follows.",
        remedy="The pair is shown to the model again.",
    ),
    Rule(
        name="goose/compacted-without-summary",
        severity="error",
        policy="ask",
        cause="A compaction hid the history, and its summary is not there.",
        expected="A session has something that the model sees.",
        example="Every row of the session has `agentVisible` false.",
        remedy="The rows are shown to the model again.",
    ),
    Rule(
        name="goose/metadata-unreadable",
        severity="error",
        policy="mark",
        cause="A torn write, or a writer that is not goose; goose takes such a row for visible to "
        "everybody.",
        expected="`metadata_json` is an object with `userVisible` and `agentVisible`.",
        example='`{"userVisible":false,"agentVis`: with it, `goose session list` fails for the '
        "whole store.",
        remedy="The row is shown to readers and hidden from the model; what was found is kept "
        "beside it.",
    ),
    Rule(
        name="goose/unknown-content-type",
        severity="error",
        policy="mark",
        cause="Another release, or another program, wrote a block that goose 1.52 does not know "
        "and can't load.",
        expected="Every block is of a type that goose knows, with the fields of that type.",
        example="A block of type `reasoning`, from a release of 2025; export and resume panic "
        "at it.",
        remedy="The block is carried in the message's metadata as it is; the rest of the message "
        "loads again.",
    ),
    Rule(
        name="goose/content-not-json",
        severity="error",
        policy="mark",
        cause="A torn write or a damaged disk. With such a row in its database, goose can load "
        "nothing of the session; "
        "in a JSONL file of an older release, it passes the line over.",
        expected="Content is a JSON list of blocks.",
        example='`[{"type":"text","te`',
        remedy="A placeholder takes its place, hidden from the model; the bytes are kept "
        "beside it.",
    ),
    Rule(
        name="goose/millisecond-timestamps",
        severity="warning",
        policy="auto",
        cause="A client sent milliseconds where goose counts seconds; later rows were clamped to "
        "them (#12003).",
        expected="Times are in seconds.",
        example="`created_timestamp` is 1790090001000.",
        remedy="They are divided by 1000; clamped rows take the time at which they were stored, "
        "if that is later.",
    ),
    Rule(
        name="goose/duplicate-thinking",
        severity="warning",
        policy="ask",
        cause="The model's signed thinking was stored in two rows of one reply (#10331); "
        "providers refuse the second.",
        expected="A signature stands in one row.",
        example="`sig-1` is in the row with the words and in the row with the call.",
        remedy="It is kept with the call; the other copy is carried in its message's metadata.",
    ),
    Rule(
        name="goose/empty-and-odd-roles",
        severity="warning",
        policy="mark",
        cause="Rows of other writers, and replies that never said anything.",
        expected="A row is the user's or the assistant's, and says something.",
        example="A row of role `tool`; a row whose content is `[]`.",
        remedy="It is kept, hidden from the model, its role noted beside it.",
    ),
    Rule(
        name="goose/stranded-messages",
        severity="error",
        policy="ask",
        cause="The row of the session was deleted and its messages were not: foreign keys were "
        "not enforced (#9121).",
        expected="Every message belongs to a session that is there.",
        example="Messages of session 20260921_7, which `sessions` does not have.",
        remedy="A session is made for them, named as recovered.",
    ),
    Rule(
        name="goose/thread-tables-present",
        severity="warning",
        policy="ask",
        cause="Releases of April and May 2026 kept messages in tables that later ones do not read "
        "(#9078, #9156).",
        expected="What is in `thread_messages` is in `messages` too.",
        example="12 rows of one thread are in `thread_messages` alone.",
        remedy="They are brought over as a session of their own.",
    ),
    Rule(
        name="goose/rewritten-history",
        severity="info",
        policy="report",
        cause="All rows of the session were deleted and written again, by a retry or a client's "
        "own copy.",
        expected="Rows are only ever added; a compaction leaves its summary.",
        example="The session began before its neighbours, its first row id is above theirs, and "
        "ids below it are gone.",
        remedy="Nothing can be undone. Look twice at merged prompts and at flags in this session.",
    ),
    Rule(
        name="goose/unreadable-record",
        severity="error",
        policy="mark",
        cause="A damaged page, a column of the wrong kind, a record too large or nested too deep "
        "to be taken apart.",
        expected="Every record can be read.",
        example="Row 12 lies on a page that is not a page of SQLite any more.",
        remedy="A placeholder takes its place, hidden from the model, with its bytes where there "
        "are any.",
    ),
    Rule(
        name="goose/unreadable-store",
        severity="error",
        policy="report",
        cause="The file is not what its beginning says, or its first pages are damaged.",
        expected="The store can be opened.",
        example="`file is not a database`",
        remedy="Look for a backup; `sqlite3 .recover` may find rows that are left.",
    ),
)

RULE = {rule.name: rule for rule in RULES}
