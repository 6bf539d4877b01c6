-- What a copy from another store needs.

-- name: all_tenants
-- Whose sessions there are. Each is found by one step in an index, whatever the number of its sessions.
WITH RECURSIVE each_one (tenant) AS (
    SELECT min(tenant) FROM session
    UNION ALL
    SELECT (SELECT min(tenant) FROM session WHERE session.tenant > each_one.tenant) FROM each_one
    WHERE each_one.tenant IS NOT NULL
)
SELECT tenant FROM each_one WHERE tenant IS NOT NULL ORDER BY tenant;

-- name: events
-- A page of all events, in the order of their names.
SELECT event.name, session.id, event.seq, event.message FROM event JOIN session ON session.n = event.session
WHERE event.name > :after ORDER BY event.name LIMIT :limit;

-- name: debts_of
-- All replies that a session owes.
SELECT id, turn, reply_to, at FROM outbox WHERE session = :session ORDER BY at, turn, id;

-- name: remove_all_debts
-- A session's outbox.
DELETE FROM outbox WHERE session = ?;

-- name: restore_event
-- An event that was accepted elsewhere. One that is known stays as it is known.
INSERT OR IGNORE INTO event (name, session, seq, message) VALUES (?, ?, ?, ?);
