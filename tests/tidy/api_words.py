"""What each parameter of the public face means, said once for `docs/api.md`.

By its name; where the same name means something else in one call, that call stands before it.
"""

_INBOUND = (
    "what came in: text, a payload in `format`, or an object of the provider's SDK; without it, "
    "the turn takes what "
    "waits in the inbox, or is the agent's own"
)

PARAMETERS = {
    # Stores
    "where": "where the store is: a path, `sqlite:///…`, `postgresql://…`, or `http://…` of a server",
    "source": "the store to copy from, an address as for `open`",
    "target": "the store to copy into, an address as for `open`",
    "to": "the path of the new file; it must not exist",
    "durability": '`"power"` survives a power cut; `"process"` survives a killed process alone, '
    "and is faster",
    "tenant": "whose sessions these are; the tenants of a store see nothing of each other",
    "copy.tenant": "the tenant whose sessions are copied; all tenants when it is left out",
    "Store.for_tenant.name": "the name of the other tenant",
    "ca": "the authorities to believe at https://…: a file of certificates (PEM)",
    "read_only": "with True, nothing is made, locked or changed",
    "token": "the token for a server; nothing else takes one",
    "tracing": "a `Tracing`: what happens is told to OpenTelemetry",
    "world": "clock and randomness, for tests; leave it out",
    "progress": "a function that is called with a `Progress` from time to time",
    # Names and identities
    "key": 'the stable name of a conversation, such as `"telegram:dm:42"`, of at most 1,024 bytes; '
    "it is bound to one current session",
    "Store.sessions.key": "only sessions of this key",
    "Store.search.key": "only sessions of this key",
    "Session.fork.key": "a key for the new session; one that has a session which has not ended "
    "raises `Conflict`",
    "session_id": "`Session.id`, or an unambiguous beginning of it",
    "Store.search.session": "only this session: its id, or an unambiguous beginning of it",
    "message_id": "the id of a message (`Message.id`)",
    "to_message": "the id of the message that will be the last one the model sees",
    "at": "the id of the last message that the two sessions share; all of the past when it is "
    "left out",
    "event_id": "your identity for something that came in (an update id, a message id): the same "
    "one is accepted once",
    "platform_id": "the id that the platform gave to the sent message, kept in the log",
    "reply_to": "the address to which the answer is owed; the answer is in the outbox until its "
    "sending is confirmed",
    "call_id": "the id of a tool call, the provider's or your own",
    "Turn.call.call_id": "the provider's id of the call, or your own; without one, an id is made",
    "by": "who has decided, for the log",
    "name": "the name of the tool",
    # Words
    "text": "the words",
    "Store.sessions.text": "only sessions in which these words were said",
    "Store.search.text": "the words to look for",
    "Session.instructions.text": "the new system prompt; without it, the present one is returned",
    "reason": "a few words for the log",
    "message": "text, a payload in `format`, or an object of the provider's SDK",
    "Session.decide.message": "the id of the message that makes the call (`ToolCall.message`)",
    "Turn.result.message": "the id of the message that makes the call (`CallToRun.message`)",
    "Session.turn.message": _INBOUND,
    "Store.turn.message": _INBOUND,
    "messages": "a list of messages: texts, payloads in `format`, or objects of the provider's SDK",
    "format": "how messages are shaped: `openai.chat`, `openai.responses`, `anthropic`, "
    "`holdfast`, …",
    "Turn.context.format": "how messages are shaped; by default as the turn's own message",
    "Turn.add.format": "how the message is shaped; by default as the turn's own message",
    "Turn.add_all.format": "how the messages are shaped; by default as the turn's own message",
    "Turn.stream.format": 'how the chunks are shaped: `"text"` for plain strings, or the name of '
    "a format",
    "Turn.deliver.format": 'how the chunks are shaped: `"text"` for plain strings, or the name of '
    "a format",
    "chunks": "the stream: an iterable of strings, of a provider's chunks as dicts, or of its "
    "SDK's objects",
    "summary": "the text of the summary, or a function that gets the list of messages it covers "
    "and returns that text",
    "arguments": "the tool's arguments: values of JSON, or the text that the model said",
    "content": "what the tool answered: text, or values of JSON",
    "error": "what went wrong: an exception or text",
    "Turn.result.error": "whether the tool failed",
    "labels": "the labels, as keyword arguments",
    "Store.accept.labels": "labels of the message by name, values of JSON; they are not for the model",
    # Rules and choices
    "reset": "when the key gets a new session: a policy, such as `Idle(hours=4) | Daily()`",
    "take": "just these messages: those of the inbox by ids, messages or receipts, those that wait in "
    "another session by receipts; without it, all that wait here",
    "chunk": "what comes next: text, or a chunk of the stream's format as a dict or SDK object",
    "on_busy": 'while another turn runs: `"wait"` for it, `"interrupt"` it, or `"refuse"` with '
    "`SessionBusy`",
    "state": "only sessions in this state",
    "Store.search.state": 'only sessions in this state, or messages that are `"complete"` or '
    '`"partial"`',
    "role": "only messages of this role: `system`, `user`, `assistant` or `tool`",
    "tool": "only messages that call this tool or answer for it",
    "create": "with False, a key without a session raises `NotFound`, and an ended session is "
    "given as it is",
    "preview": "with True, tells what would be done and does nothing",
    "approved": "True to allow the call, False to deny it",
    "needs_approval": "whether somebody must allow the call before it is run",
    "prefill": "keep the model's own message as the last one, for providers that go on with it",
    # Numbers and positions
    "lease_s": "how many seconds a turn counts as alive after its machine has vanished; a living "
    "process renews it",
    "claim_s": "for how many seconds each reply is this caller's alone",
    "days": "how many days without news",
    "index": "the place of the call among the calls of its message, from 0",
    "keep_turns": "how many of the last turns stay as they are",
    "limit": "how many at most",
    "after": "the seq after which to begin",
    "Store.sessions.after": "the `next` of the page before",
    "Store.pending.after": "the `next` of the page before",
    "Session.follow.after": "the `cursor` of an earlier event, to resume right after it",
    "Session.turns.after": "the number of the turn after which to begin",
    "since": "only messages from this time on: a datetime with a time zone, or milliseconds since "
    "1970",
    "until": "only messages before this time: a datetime with a time zone, or milliseconds since "
    "1970",
    # Agents
    "factory": "a function that gets the session and makes its agent",
    "size": "how many agents at most",
    "idle_s": "after how many seconds without use an agent leaves the cache",
    "session": "a `Session` or an `AsyncSession`",
    "config": "anything hashable that the agent depends on, such as the name of its model",
    # Reset policies
    "Idle.hours": "hours without activity",
    "Idle.minutes": "minutes without activity, added to the hours",
    "Daily.at": 'the time of day, such as `"04:00"`',
    "Daily.tz": 'the time zone, such as `"Europe/Berlin"`',
    "active_at": "the time of the session's last activity, in milliseconds since 1970",
    "now": "the time now, in milliseconds since 1970",
    "World.chance.size": "how many bytes",
}
