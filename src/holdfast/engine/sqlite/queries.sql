-- Every statement the engine runs, by name. The same names stand in the other engine's file, and a question has the same
-- values in both: they are asked by `engine/reads`.

-- name: add_session
-- A new session, its row number given back.
INSERT INTO session (id, tenant, key, epoch, fence, origin, opened_at, active_at, parent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_entry
-- An entry; the unique index repeats I-1.
INSERT INTO entry (session, seq, kind, turn, id, at, note, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_waiting
-- A message into the inbox.
INSERT OR REPLACE INTO inbox (session, seq, message, waiter, tenant, lease_until, lease_clock, lease_s, lease_calendar)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: remove_waiting
-- A message out of the inbox.
DELETE FROM inbox WHERE session = ? AND seq = ?;

-- name: add_debt
-- A reply is owed.
INSERT INTO outbox (session, id, turn, reply_to, at, tenant, claim, claim_until, claim_clock)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: remove_debt
-- A reply was sent.
DELETE FROM outbox WHERE session = ? AND id = ?;

-- name: debt
-- Whether a reply is owed, and the token of the sender that has it at this moment.
SELECT iif(claim_until > ?3 AND claim_clock IS ?4, claim, NULL) FROM outbox WHERE session = ?1 AND id = ?2;

-- name: claim_debt
-- A sender has a reply until then, by this clock. Where there is another one, nobody has it.
UPDATE outbox SET claim = ?, claim_until = ?, claim_clock = ? WHERE session = ? AND id = ?;

-- name: outbox
-- A page of the replies that are owed, oldest first, a session's in the order of its turns. If only free ones are asked
-- for, without those that a sender has at this moment, by this clock.
SELECT outbox.id, session.id, outbox.turn, outbox.reply_to, outbox.at
FROM outbox JOIN session ON session.n = outbox.session
WHERE outbox.tenant = :tenant AND outbox.at >= :at
  AND (outbox.at, outbox.session, outbox.turn, outbox.id)
      > (:at, ifnull((SELECT n FROM session WHERE id = :session), 0), :turn, :id)
  AND (NOT :free OR ifnull(outbox.claim_until, 0) <= :tick OR outbox.claim_clock IS NOT :clock)
ORDER BY outbox.at, outbox.session, outbox.turn, outbox.id LIMIT :limit;

-- name: pending
-- A page of what waits in all inboxes, oldest first, each message with its session and its key.
SELECT session.id, session.key, log.seq, log.kind, log.turn, log.id, log.at, log.note, log.body
FROM inbox INDEXED BY inbox_by_age
JOIN session ON session.n = inbox.session
JOIN log ON log.session = inbox.session AND log.seq = inbox.seq
WHERE inbox.tenant = :tenant AND inbox.message >= :message
  AND (inbox.message, inbox.session, inbox.seq)
      > (:message, ifnull((SELECT n FROM session WHERE id = :session), 0), :seq)
ORDER BY inbox.message, inbox.session, inbox.seq LIMIT :limit;

-- name: running
-- The sessions in which a turn runs.
SELECT id FROM session WHERE tenant = :tenant AND turn IS NOT NULL;

-- name: add_event
-- An event is accepted.
INSERT INTO event (name, session, seq, message) VALUES (?, ?, ?, ?);

-- name: add_blob
-- A large part of a payload.
INSERT INTO blob (name, body) VALUES (?, ?);

-- name: blob
-- A large part of a payload, by its name.
SELECT body FROM blob WHERE name = :name;

-- name: save_activity
-- A session had news.
UPDATE session SET active_at = ? WHERE n = ?;

-- name: save_turn
-- What changes when a turn starts, is seized, renewed or ends, and when the session ends.
UPDATE session SET ended = ?, fence = ?, turn = ?, holder = ?, lease_until = ?, lease_clock = ?, lease_s = ?,
                   lease_calendar = ?, journal = ?, base = ?, active_at = ?
WHERE n = ?;

-- name: session_by_id
-- A session by its id.
SELECT * FROM session_state WHERE id = :id;

-- name: session_by_key
-- The current session of a key.
SELECT * FROM session_state WHERE tenant = :tenant AND key = :key ORDER BY epoch DESC LIMIT 1;

-- name: sessions_by_prefix
-- Sessions whose ids begin so. The upper bound is the prefix with the largest character behind it. `+tenant`: by the id
-- alone, or a file without statistics is read through for all sessions of the tenant.
SELECT * FROM session_state WHERE id >= :first AND id < :last AND +tenant = :tenant ORDER BY id LIMIT :limit;

-- name: sessions_under
-- The current sessions of the keys that begin so, by key, without those that have ended. The upper bound is the prefix with
-- the largest character behind it.
SELECT * FROM session_state
WHERE tenant = :tenant AND key >= :first AND key < :last AND key > :after AND ended = 0
  AND epoch = (SELECT max(epoch) FROM session AS other WHERE other.tenant = :tenant AND other.key = session_state.key)
ORDER BY key LIMIT :limit;

-- name: sessions_by_activity
-- A page of sessions, newest first, after the one with this time and id. Those that run are few among many, and have an
-- index of their own: without it all sessions of the tenant would be gone through. A damaged time that is no number stands
-- behind all numbers in the index, and counts as 0.
SELECT * FROM session_state WHERE n IN (
    SELECT n FROM (
        SELECT n FROM session
        WHERE :state IS NOT 'running' AND tenant = :tenant
          AND (active_at, n) < (:at, ifnull((SELECT n FROM session WHERE id = :id), 0))
          AND (:state IS NULL OR :state = iif(ended, 'ended', iif(turn IS NULL, 'open', 'running')))
        ORDER BY active_at DESC, n DESC LIMIT :limit
    )
    UNION ALL
    SELECT n FROM (
        SELECT n FROM session
        WHERE :state IS NOT 'running' AND tenant = :tenant AND active_at > 9223372036854775807
          AND (0, n) < (:at, ifnull((SELECT n FROM session WHERE id = :id), 0))
          AND (:state IS NULL OR :state = iif(ended, 'ended', iif(turn IS NULL, 'open', 'running')))
        ORDER BY n DESC LIMIT :limit
    )
    UNION ALL
    SELECT n FROM (
        SELECT n FROM session
        WHERE :state IS 'running' AND tenant = :tenant AND turn IS NOT NULL AND NOT ended
          AND (iif(typeof(active_at) = 'integer', active_at, 0), n)
              < (:at, ifnull((SELECT n FROM session WHERE id = :id), 0))
        ORDER BY iif(typeof(active_at) = 'integer', active_at, 0) DESC, n DESC LIMIT :limit
    )
) ORDER BY iif(typeof(active_at) = 'integer', active_at, 0) DESC, n DESC LIMIT :limit;

-- name: sessions_of_key
-- The same for the sessions of one key.
SELECT * FROM session_state
WHERE tenant = :tenant
  AND (iif(typeof(active_at) = 'integer', active_at, 0), n) < (:at, ifnull((SELECT n FROM session WHERE id = :id), 0))
  AND (:state IS NULL OR :state = iif(ended, 'ended', iif(turn IS NULL, 'open', 'running')))
  AND key = :key
ORDER BY iif(typeof(active_at) = 'integer', active_at, 0) DESC, n DESC LIMIT :limit;

-- name: sessions_kept
-- The same for the sessions that are not erased: an index has no others.
SELECT * FROM session_state WHERE n IN (
    SELECT n FROM session INDEXED BY session_kept
    WHERE tenant = :tenant AND (active_at, n) < (:at, ifnull((SELECT n FROM session WHERE id = :id), 0)) AND ended < 2
    ORDER BY active_at DESC, n DESC LIMIT :limit
) ORDER BY active_at DESC, n DESC;

-- name: forks
-- Sessions that share the past of one of these, given as a list in JSON.
SELECT * FROM session_state WHERE tenant = :tenant AND parent IN (SELECT value FROM json_each(:parent)) ORDER BY opened_at, id;

-- name: weigh
-- Entries, messages, bytes of a session, blobs included, and the number of blobs that no other session of its tenant has:
-- what other tenants have is not told.
SELECT count(*), ifnull(sum(kind IN ('', 'message')), 0),
       ifnull(sum(ifnull(octet_length(note), 0) + ifnull(octet_length(body), 0)), 0)
       + ifnull((SELECT sum(octet_length(blob.body)) FROM blob_use JOIN blob ON blob.name = blob_use.blob
                 WHERE blob_use.session = :session), 0),
       (SELECT count(*) FROM blob_use AS own WHERE own.session = :session AND NOT EXISTS (
            SELECT 1 FROM blob_use AS other JOIN session ON session.n = other.session
            WHERE other.blob = own.blob AND other.session <> :session
              AND session.tenant = (SELECT tenant FROM session WHERE n = :session)))
FROM entry WHERE session = :session;

-- name: entry_by_id
-- Where an entry with this id stands, newest first: the answer to doubt about a commit.
SELECT seq, turn FROM (SELECT seq, turn, id FROM log WHERE session = ?1 ORDER BY seq DESC LIMIT 5000) WHERE id = ?2;

-- name: entries
-- A page of the log.
SELECT seq, kind, turn, id, at, note, body FROM log WHERE session = :session AND seq > :after ORDER BY seq LIMIT :limit;

-- name: entries_bare
-- A page of the log without the payloads of messages: they are not read from the disk.
SELECT seq, kind, turn, id, at, note, iif(kind = 'message', x'', body) FROM log
WHERE session = :session AND seq > :after ORDER BY seq LIMIT :limit;

-- name: labels
-- What was noted about messages of a session: few entries, with an index of their own.
SELECT seq, kind, turn, id, at, ifnull(note, x''), x'' FROM entry
WHERE session = :session AND seq > :after AND kind = 'label' ORDER BY seq;

-- name: inbox
-- What waits, in the order of acceptance.
SELECT message, waiter, seq, lease_until, lease_clock, lease_s, lease_calendar FROM inbox
WHERE session = :session ORDER BY seq;

-- name: journal
-- A page of a session's journal rows, over both generations.
SELECT position, turn, message, idx, body FROM (
    SELECT position, turn, message, idx, body FROM journal_a WHERE position > :after AND session = :session
    UNION ALL
    SELECT position, turn, message, idx, body FROM journal_b WHERE position > :after AND session = :session
) ORDER BY position LIMIT :limit;

-- name: accepted
-- Where an event was accepted.
SELECT session.id, event.seq, event.message FROM event JOIN session ON session.n = event.session
WHERE event.name = :name;

-- name: get_fact
-- A fact about the store.
SELECT value FROM store WHERE name = ?;

-- name: set_fact
-- States a fact about the store.
INSERT INTO store (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: blank_entries
-- Zeros in place of all notes and bodies of a session.
UPDATE entry SET note = iif(typeof(note) = 'blob', zeroblob(length(note)), note),
                 body = iif(body IS NULL, NULL, zeroblob(octet_length(body))) WHERE session = ?;

-- name: save_note
-- What is left of an entry.
UPDATE entry SET note = ?, body = NULL WHERE session = ? AND seq = ?;

-- name: empty_blobs
-- Those blobs are empty rows without a name.
UPDATE blob SET name = NULL, body = x'' WHERE name IN (
    SELECT own.blob FROM blob_use AS own WHERE own.session = ?1 AND NOT EXISTS (
        SELECT 1 FROM blob_use AS other WHERE other.blob = own.blob AND other.session <> ?1)
);

-- name: forget_events
-- The events that a session has accepted.
DELETE FROM event WHERE session = ?;

-- name: remove_all_waiting
-- A session's inbox.
DELETE FROM inbox WHERE session = ?;
