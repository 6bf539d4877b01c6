-- What the upkeep of a store asks: its size, its health, what a copy must hold.

-- name: info_rows
-- How many rows there are, by the last row number where none is ever removed; and when the last entry was made.
SELECT (SELECT ifnull(max(n), 0) FROM session), (SELECT ifnull(max(n), 0) FROM entry),
       (SELECT count(*) FROM journal_a) + (SELECT count(*) FROM journal_b),
       (SELECT at FROM entry ORDER BY n DESC LIMIT 1);

-- name: info_tenants
-- How many tenants there are: from each to the next, by the index.
WITH RECURSIVE each (tenant) AS (
    SELECT min(tenant) FROM session
    UNION ALL
    SELECT (SELECT min(tenant) FROM session WHERE session.tenant > each.tenant) FROM each WHERE each.tenant IS NOT NULL
)
SELECT count(tenant) FROM each;

-- name: tables
-- Which table or index has its root on which page.
SELECT rootpage, name FROM sqlite_master WHERE rootpage > 0;

-- name: session_name
-- The id of a session, by its row number.
SELECT id FROM session WHERE n = ?;

-- name: some_sessions
-- A page of all sessions.
SELECT n, CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(key AS BLOB), ended, fence, turn, base, origin FROM session WHERE n > ? ORDER BY n LIMIT ?;

-- name: columns
-- Nothing, of every column that is read of sessions and entries: it fails where a table has lost one.
SELECT 1 FROM (SELECT * FROM log LIMIT 0), (SELECT * FROM session_state LIMIT 0);

-- name: bare_sessions
-- All sessions, as far as they can be told without a look at an entry: their heads come from the index. Texts come as
-- bytes, which a damaged one is too.
SELECT n, CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(key AS BLOB), epoch, ended, fence, turn, CAST(holder AS BLOB),
       lease_until, CAST(lease_clock AS BLOB), lease_s, lease_calendar, journal, base, origin, opened_at, active_at,
       CAST(parent AS BLOB),
       coalesce((SELECT max(seq) FROM entry WHERE entry.session = session.n AND typeof(seq) = 'integer'), origin),
       opened_at
FROM session ORDER BY n;

-- name: seqs
-- How many entries a session has, the first and the last; from the index alone.
SELECT count(*), min(seq), max(seq) FROM entry WHERE session = ? AND typeof(seq) = 'integer';

-- name: odd_seqs
-- How many entries of a session have no number for a place; from the index alone.
SELECT count(*) FROM entry WHERE session = ? AND typeof(seq) <> 'integer';

-- name: odd_sessions
-- Sessions with a cell that is not what it was written as.
SELECT n, CAST(id AS BLOB) FROM session
WHERE typeof(id) <> 'text' OR typeof(tenant) <> 'text' OR typeof(key) NOT IN ('text', 'null')
   OR typeof(epoch) <> 'integer' OR typeof(ended) <> 'integer' OR typeof(fence) <> 'integer'
   OR typeof(turn) NOT IN ('integer', 'null') OR typeof(holder) NOT IN ('text', 'null')
   OR typeof(lease_until) NOT IN ('real', 'null') OR typeof(lease_clock) NOT IN ('text', 'null')
   OR typeof(lease_s) NOT IN ('real', 'null') OR typeof(lease_calendar) NOT IN ('real', 'null')
   OR typeof(journal) <> 'integer' OR typeof(base) <> 'integer' OR typeof(origin) <> 'integer'
   OR typeof(opened_at) <> 'integer' OR typeof(active_at) <> 'integer' OR typeof(parent) NOT IN ('text', 'null')
LIMIT 100;

-- name: named_sessions
-- All sessions by their names, from the table alone: an index may be damaged.
SELECT n, typeof(id), CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(key AS BLOB), active_at FROM session NOT INDEXED;

-- name: found_by_id
-- The row number of a session, by the index of ids.
SELECT n FROM session INDEXED BY sqlite_autoindex_session_1 WHERE id = ?;

-- name: found_by_activity
-- Whether a session is in the list of its tenant.
SELECT 1 FROM session INDEXED BY session_by_activity WHERE tenant = ? AND active_at = ? AND n = ?;

-- name: misled_entries
-- Sessions with entries that the index does not lead to, of some rows.
SELECT DISTINCT session FROM entry AS own NOT INDEXED
WHERE n BETWEEN ? AND ? AND NOT EXISTS (
    SELECT 1 FROM entry AS told INDEXED BY entry_by_seq
    WHERE told.session = own.session AND told.seq = own.seq AND told.n = own.n);

-- name: entry_span
-- The first and the last row number of the entries.
SELECT min(n), max(n) FROM entry NOT INDEXED;

-- name: odd_rows
-- How many rows of each other table have a cell that is not what it was written as.
SELECT 'journal_a', count(*) FROM journal_a WHERE typeof(session) <> 'integer' OR typeof(turn) <> 'integer'
   OR typeof(message) <> 'blob' OR typeof(idx) <> 'integer' OR typeof(body) <> 'blob'
UNION ALL
SELECT 'journal_b', count(*) FROM journal_b WHERE typeof(session) <> 'integer' OR typeof(turn) <> 'integer'
   OR typeof(message) <> 'blob' OR typeof(idx) <> 'integer' OR typeof(body) <> 'blob'
UNION ALL
SELECT 'inbox', count(*) FROM inbox WHERE typeof(session) <> 'integer' OR typeof(seq) <> 'integer'
   OR typeof(message) <> 'blob' OR typeof(waiter) NOT IN ('text', 'null') OR typeof(tenant) <> 'text'
   OR typeof(lease_until) NOT IN ('real', 'null') OR typeof(lease_clock) NOT IN ('text', 'null')
   OR typeof(lease_s) NOT IN ('real', 'null') OR typeof(lease_calendar) NOT IN ('real', 'null')
UNION ALL
SELECT 'outbox', count(*) FROM outbox WHERE typeof(session) <> 'integer' OR typeof(id) <> 'blob'
   OR typeof(turn) <> 'integer' OR typeof(reply_to) NOT IN ('text', 'blob') OR typeof(at) <> 'integer' OR typeof(tenant) <> 'text'
   OR typeof(claim) NOT IN ('blob', 'null') OR typeof(claim_until) NOT IN ('real', 'null')
   OR typeof(claim_clock) NOT IN ('text', 'null')
UNION ALL
SELECT 'event', count(*) FROM event WHERE typeof(name) <> 'blob' OR typeof(session) <> 'integer'
   OR typeof(seq) <> 'integer' OR typeof(message) <> 'blob'
UNION ALL
SELECT 'blob', count(*) FROM blob WHERE typeof(name) NOT IN ('integer', 'null') OR typeof(body) <> 'blob'
UNION ALL
SELECT 'blob_use', count(*) FROM blob_use WHERE typeof(session) <> 'integer' OR typeof(blob) <> 'integer'
UNION ALL
SELECT 'entry', count(*) FROM entry WHERE typeof(session) <> 'integer';

-- name: whole_log
-- All entries of a session after a seq.
SELECT seq, kind, turn, id, at, note, body FROM log WHERE session = ? AND seq > ? AND typeof(seq) = 'integer'
ORDER BY seq;

-- name: doubled_ids
-- Entries of a session that have the same id.
SELECT min(seq), max(seq) FROM log WHERE session = ? GROUP BY id HAVING count(*) > 1 ORDER BY 1 LIMIT 10;

-- name: odd_turns
-- Turns of a session that did not start once, or whose ends are not one. The one that is running has none, but that it may
-- have been seized: then its end may be there before it is finished. One that was running when its session was forked off
-- is over there without an end: so it is in a fork that was brought back with the past it shared.
SELECT turn, sum(kind = 'turn'), sum(kind = 'end') FROM log WHERE session = ?1 AND kind IN ('turn', 'end')
GROUP BY turn HAVING sum(kind = 'turn') <> 1
    OR (sum(kind = 'end') < (turn IS NOT ?2)
        AND max(seq) > (SELECT coalesce(max(seq), 0) FROM log WHERE session = ?1 AND kind = 'opened'))
    OR sum(kind = 'end') > (turn IS NOT ?2 OR ?2 IS NOT ?3) ORDER BY turn LIMIT 10;

-- name: turn_started
-- Whether a turn of a session has started.
SELECT 1 FROM log WHERE session = ? AND turn = ? AND kind = 'turn' LIMIT 1;

-- name: past_in
-- The last seq of the session with this id, and whether it is of the same tenant as the one with this number.
SELECT ifnull((SELECT max(seq) FROM entry WHERE entry.session = past.n AND typeof(seq) = 'integer'), past.origin),
       past.tenant IS own.tenant
FROM session AS own, session AS past WHERE own.n = ? AND past.id = ?;

-- name: blobs_of
-- Which large parts a session says that it refers to.
SELECT blob FROM blob_use WHERE session = ?;

-- name: stray_entries
-- Entries of no session.
SELECT DISTINCT session FROM entry WHERE session NOT IN (SELECT n FROM session) LIMIT 10;

-- name: stray_chunks
-- Journal rows of no session.
SELECT DISTINCT session FROM (SELECT session FROM journal_a UNION ALL SELECT session FROM journal_b)
WHERE session NOT IN (SELECT n FROM session) LIMIT 10;

-- name: stray_inbox
-- Inbox rows that name no message.
SELECT coalesce(session.id, inbox.session), inbox.seq FROM inbox
LEFT JOIN session ON session.n = inbox.session
LEFT JOIN log ON log.session = inbox.session AND log.seq = inbox.seq
WHERE session.n IS NULL OR log.kind IS NOT 'message' OR log.id IS NOT inbox.message LIMIT 10;

-- name: stray_outbox
-- Replies owed by no turn.
SELECT coalesce(session.id, outbox.session), outbox.turn FROM outbox LEFT JOIN session ON session.n = outbox.session
WHERE session.n IS NULL OR outbox.turn NOT BETWEEN 1 AND session.fence LIMIT 10;

-- name: other_tenants
-- Sessions whose inbox or outbox is kept under another tenant than they are.
SELECT DISTINCT session.id, 'inbox' FROM inbox JOIN session ON session.n = inbox.session
WHERE inbox.tenant IS NOT session.tenant
UNION ALL
SELECT DISTINCT session.id, 'outbox' FROM outbox JOIN session ON session.n = outbox.session
WHERE outbox.tenant IS NOT session.tenant LIMIT 10;

-- name: stray_events
-- Events that name no entry.
SELECT coalesce(session.id, event.session), event.seq FROM event
LEFT JOIN session ON session.n = event.session
LEFT JOIN log ON log.session = event.session AND log.seq = event.seq
WHERE session.n IS NULL OR log.id IS NOT event.message LIMIT 10;

-- name: doubled_keys
-- Keys with more than one session that has not ended.
SELECT tenant, key FROM session WHERE ended = 0 AND key IS NOT NULL GROUP BY tenant, key HAVING count(*) > 1 LIMIT 10;

-- name: lost_blobs
-- Large parts that are referred to and not there.
SELECT coalesce(session.id, blob_use.session), blob_use.blob FROM blob_use
LEFT JOIN session ON session.n = blob_use.session LEFT JOIN blob ON blob.name = blob_use.blob
WHERE typeof(blob_use.blob) = 'integer' AND (session.n IS NULL OR blob.name IS NULL) LIMIT 10;

-- name: all_blobs
-- Large parts and their names.
SELECT name, body FROM blob WHERE typeof(name) = 'integer' AND typeof(body) = 'blob';

-- name: copied_sessions
-- What a copy must hold of the sessions; texts as bytes, which a damaged one is too.
SELECT n, CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(key AS BLOB), epoch FROM session ORDER BY n;

-- name: copied_entries
-- What a copy must hold of the entries.
SELECT n, session, seq, id FROM entry ORDER BY n;
