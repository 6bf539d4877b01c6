-- Every statement the engine runs, by name. The same names stand in the other engine's file.

-- name: add_session
-- A new session, its row number given back.
INSERT INTO session (id, tenant, key, epoch, fence, origin, opened_at, active_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_entry
-- An entry; the unique index repeats I-1.
INSERT INTO entry (session, seq, kind, turn, id, at, note, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_chunk_a
-- A journal row in the first generation.
INSERT INTO journal_a (position, session, turn, message, idx, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: add_chunk_b
-- A journal row in the second generation.
INSERT INTO journal_b (position, session, turn, message, idx, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: add_waiting
-- A message into the inbox.
INSERT OR REPLACE INTO inbox (session, seq, message, waiter) VALUES (?, ?, ?, ?);

-- name: remove_waiting
-- A message out of the inbox.
DELETE FROM inbox WHERE session = ? AND seq = ?;

-- name: add_debt
-- A reply is owed.
INSERT INTO outbox (session, id, turn, reply_to, at) VALUES (?, ?, ?, ?, ?);

-- name: remove_debt
-- A reply was sent.
DELETE FROM outbox WHERE session = ? AND id = ?;

-- name: debt
-- Whether a reply is owed.
SELECT 1 FROM outbox WHERE session = ? AND id = ?;

-- name: outbox
-- Replies that are owed, oldest first. There are few: they are read whole.
SELECT outbox.id, session.id, outbox.turn, outbox.reply_to, outbox.at
FROM outbox JOIN session ON session.n = outbox.session
WHERE session.tenant = ? ORDER BY outbox.at, outbox.id LIMIT ?;

-- name: add_event
-- An event is accepted.
INSERT INTO event (scope, event, session, seq, message) VALUES (?, ?, ?, ?, ?);

-- name: save_turn
-- What changes when a turn starts, is seized, renewed or ends, and when the session ends.
UPDATE session SET ended = ?, fence = ?, turn = ?, holder = ?, lease_until = ?, journal = ?, base = ?, active_at = ?
WHERE n = ?;

-- name: session_by_id
-- A session by its id.
SELECT * FROM session_state WHERE id = ?;

-- name: session_by_key
-- The current session of a key.
SELECT * FROM session_state WHERE tenant = ? AND key = ? ORDER BY epoch DESC LIMIT 1;

-- name: sessions_by_prefix
-- Sessions whose ids begin so. The upper bound is the prefix with the largest character behind it.
SELECT * FROM session_state WHERE id >= ? AND id < ? AND tenant = ? ORDER BY id LIMIT ?;

-- name: sessions_by_activity
-- A page of sessions, newest first.
SELECT * FROM session_state WHERE tenant = ? AND active_at < ? ORDER BY active_at DESC, n DESC LIMIT ?;

-- name: entry_by_id
-- Where an entry with this id stands, newest first: the answer to doubt about a commit.
SELECT seq, turn FROM (SELECT seq, turn, id FROM entry WHERE session = ?1 ORDER BY seq DESC LIMIT 5000) WHERE id = ?2;

-- name: entries
-- A page of the log.
SELECT seq, kind, turn, id, at, ifnull(note, x''), ifnull(body, x'') FROM entry
WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: inbox
-- What waits, in the order of acceptance.
SELECT message, waiter, seq FROM inbox WHERE session = ? ORDER BY seq;

-- name: journal
-- A page of a session's journal rows, over both generations.
SELECT position, turn, message, idx, body FROM (
    SELECT position, turn, message, idx, body FROM journal_a WHERE position > ?1 AND session = ?2
    UNION ALL
    SELECT position, turn, message, idx, body FROM journal_b WHERE position > ?1 AND session = ?2
) ORDER BY position LIMIT ?3;

-- name: journal_spans
-- First and last position of each generation.
SELECT (SELECT min(position) FROM journal_a), (SELECT max(position) FROM journal_a),
       (SELECT min(position) FROM journal_b), (SELECT max(position) FROM journal_b);

-- name: journal_needed
-- The earliest journal position that a running turn may still need.
SELECT min(journal) FROM session WHERE turn IS NOT NULL;

-- name: accepted
-- Where an event was accepted.
SELECT session.id, event.seq, event.message FROM event JOIN session ON session.n = event.session
WHERE event.scope = ? AND event.event = ?;

-- name: get_fact
-- A fact about the store.
SELECT value FROM store WHERE name = ?;

-- name: set_fact
-- States a fact about the store.
INSERT INTO store (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
