-- Every statement the engine runs, by name. The same names stand in the other engine's file; `batching.sql` has those that
-- only this one needs.
--
-- What is written comes in arrays, one element for each row, however many there are: one statement for each table.

-- name: add_session
-- New sessions, as they are at the end of their batch. The primary key repeats that an id is used once.
INSERT INTO session (tenant, id, key, epoch, ended, head, fence, turn, holder, lease_s, lease_until, position, journal, base,
                     origin, opened_at, listed_at, last_at, parent, stamp)
SELECT tenant, id, key, epoch, ended, head, fence, turn, holder, CASE WHEN turn IS NOT NULL THEN lease_s END,
       CASE WHEN turn IS NOT NULL THEN extract(epoch FROM statement_timestamp())::double precision + lease_s END,
       position, journal, base, origin, opened_at, active_at, last_at, parent, %(stamp)s::bigint
FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[], %(key)s::bytea[], %(epoch)s::bigint[], %(ended)s::bigint[],
            %(head)s::bigint[], %(fence)s::bigint[], %(turn)s::bigint[], %(holder)s::bytea[],
            %(lease_s)s::double precision[], %(position)s::bigint[], %(journal)s::bigint[], %(base)s::bigint[],
            %(origin)s::bigint[], %(opened_at)s::bigint[], %(active_at)s::bigint[], %(last_at)s::bigint[],
            %(parent)s::uuid[])
     AS given (tenant, id, key, epoch, ended, head, fence, turn, holder, lease_s, position, journal, base, origin,
               opened_at, active_at, last_at, parent);

-- name: save_activity
-- Sessions had news. It raises unless all of them are as they were when they were judged. A search that has read the words of
-- one leaves its stamp alone, for nothing that others know has changed; so what it changes is compared too.
WITH given AS (
    SELECT * FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[], %(was)s::bigint[], %(head)s::bigint[],
                         %(position)s::bigint[], %(active_at)s::bigint[], %(last_at)s::bigint[],
                         %(was_unread)s::boolean[], %(unread)s::boolean[])
        AS given (tenant, id, was, head, position, active_at, last_at, was_unread, unread)
), moved AS (
    UPDATE session SET head = given.head, position = given.position, listed_at = given.active_at,
                       last_at = given.last_at, stamp = %(stamp)s::bigint, unread = given.unread
    FROM given WHERE session.tenant = given.tenant AND session.id = given.id AND session.stamp = given.was
                 AND session.unread = given.was_unread
    RETURNING 1
)
SELECT 1 / (CASE WHEN count(*) = cardinality(%(id)s::uuid[]) THEN 1 ELSE 0 END) FROM moved;

-- name: save_turn
-- The same, with what changes when a turn starts, is seized, renewed or ends, and when the session ends.
WITH given AS (
    SELECT * FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[], %(was)s::bigint[], %(head)s::bigint[],
                         %(position)s::bigint[], %(active_at)s::bigint[], %(last_at)s::bigint[],
                         %(was_unread)s::boolean[], %(unread)s::boolean[], %(ended)s::bigint[],
                         %(fence)s::bigint[], %(turn)s::bigint[], %(holder)s::bytea[], %(lease_s)s::double precision[],
                         %(journal)s::bigint[], %(base)s::bigint[])
        AS given (tenant, id, was, head, position, active_at, last_at, was_unread, unread, ended, fence, turn, holder,
                  lease_s, journal, base)
), moved AS (
    UPDATE session SET head = given.head, position = given.position, listed_at = given.active_at,
                       last_at = given.last_at, ended = given.ended, fence = given.fence, turn = given.turn,
                       holder = given.holder, journal = given.journal, base = given.base, stamp = %(stamp)s::bigint,
                       unread = given.unread,
                       lease_s = CASE
                           WHEN given.turn IS NULL THEN NULL ELSE coalesce(given.lease_s, session.lease_s)
                       END,
                       lease_until = CASE
                           WHEN given.turn IS NULL THEN NULL
                           WHEN given.lease_s IS NULL THEN session.lease_until
                           ELSE extract(epoch FROM statement_timestamp())::double precision + given.lease_s
                       END
    FROM given WHERE session.tenant = given.tenant AND session.id = given.id AND session.stamp = given.was
                 AND session.unread = given.was_unread
    RETURNING 1
)
SELECT 1 / (CASE WHEN count(*) = cardinality(%(id)s::uuid[]) THEN 1 ELSE 0 END) FROM moved;

-- name: add_entry
-- Entries; the primary key repeats I-1. No turn is 0 here.
INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body, parted)
SELECT tenant, session, seq, kind, nullif(turn, 0), id, at, note, body, parted
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[], %(kind)s::text[], %(turn)s::bigint[],
            %(id)s::bytea[], %(at)s::bigint[], %(note)s::bytea[], %(body)s::bytea[], %(parted)s::boolean[])
     AS given (tenant, session, seq, kind, turn, id, at, note, body, parted);

-- name: add_waiting
-- Messages into inboxes; one that still waits has another waiter now.
INSERT INTO inbox (tenant, session, seq, message, waiter, lease_s, lease_until)
SELECT *, extract(epoch FROM statement_timestamp())::double precision + lease_s
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[], %(message)s::bytea[], %(waiter)s::bytea[],
            %(lease_s)s::double precision[]) AS given (tenant, session, seq, message, waiter, lease_s)
ON CONFLICT (tenant, session, seq) DO UPDATE SET message = excluded.message, waiter = excluded.waiter,
                                                 lease_s = excluded.lease_s, lease_until = excluded.lease_until;

-- name: remove_waiting
-- Messages out of inboxes.
DELETE FROM inbox
USING unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[]) AS given (tenant, session, seq)
WHERE inbox.tenant = given.tenant AND inbox.session = given.session AND inbox.seq = given.seq;

-- name: add_debt
-- Replies are owed.
INSERT INTO outbox (tenant, session, id, turn, reply_to, at)
SELECT * FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(id)s::bytea[], %(turn)s::bigint[],
                     %(reply_to)s::bytea[], %(at)s::bigint[])
ON CONFLICT (tenant, session, id) DO UPDATE SET turn = excluded.turn, reply_to = excluded.reply_to, at = excluded.at;

-- name: remove_debt
-- Replies were sent.
DELETE FROM outbox
USING unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(id)s::bytea[]) AS given (tenant, session, id)
WHERE outbox.tenant = given.tenant AND outbox.session = given.session AND outbox.id = given.id;

-- name: debt
-- Which of these replies are owed, and the tokens of the senders that have them at this moment.
SELECT outbox.session, outbox.id,
       CASE WHEN claim_until > extract(epoch FROM statement_timestamp())::double precision THEN claim END
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(id)s::bytea[]) AS given (tenant, session, id)
JOIN outbox ON outbox.tenant = given.tenant AND outbox.session = given.session AND outbox.id = given.id;

-- name: claim_debt
-- Senders have these replies from now on, for so many seconds each.
UPDATE outbox SET claim = given.token,
                  claim_until = extract(epoch FROM statement_timestamp())::double precision + given.seconds
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(id)s::bytea[], %(token)s::bytea[],
            %(seconds)s::double precision[]) AS given (tenant, session, id, token, seconds)
WHERE outbox.tenant = given.tenant AND outbox.session = given.session AND outbox.id = given.id;

-- name: outbox
-- A page of the replies that are owed, oldest first, a session's in the order of its turns. If only free ones are asked
-- for, without those that a sender has at this moment.
SELECT id, session, turn, reply_to, at FROM outbox
WHERE tenant = %(tenant)s
  AND (at, session, turn, id) > (%(at)s::bigint, %(session)s::uuid, %(turn)s::bigint, %(id)s::bytea)
  AND (NOT %(free)s::boolean OR claim_until IS NULL
       OR claim_until <= extract(epoch FROM statement_timestamp())::double precision)
ORDER BY at, session, turn, id LIMIT %(limit)s;

-- name: pending
-- A page of what waits in all inboxes, oldest first, each message with its session and its key.
SELECT inbox.session, session.key, entry.seq, entry.kind, entry.turn, entry.id, entry.at, entry.note, entry.body,
       entry.parted
FROM inbox
JOIN session ON session.tenant = inbox.tenant AND session.id = inbox.session
JOIN entry ON entry.tenant = inbox.tenant AND entry.session = inbox.session AND entry.seq = inbox.seq
WHERE inbox.tenant = %(tenant)s
  AND (inbox.message, inbox.session, inbox.seq) > (%(message)s::bytea, %(session)s::uuid, %(seq)s::bigint)
ORDER BY inbox.message, inbox.session, inbox.seq LIMIT %(limit)s;

-- name: running
-- The sessions in which a turn runs.
SELECT session FROM activity WHERE tenant = %(tenant)s AND state = 1;

-- name: add_event
-- Events are accepted. The primary key repeats that each is accepted once.
INSERT INTO event (name, session, seq, message)
SELECT * FROM unnest(%(name)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[], %(message)s::bytea[]);

-- name: accepted
-- Where events were accepted.
SELECT name, session, seq, message FROM event WHERE name = ANY (%(name)s::bytea[]);

-- name: add_blob
-- Large parts of payloads.
INSERT INTO blob (tenant, session, name, digest, body)
SELECT * FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(name)s::bigint[], %(digest)s::bytea[],
                     %(body)s::bytea[]);

-- name: blob
-- Large parts of one payload, by name.
SELECT name, body FROM blob
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND name = ANY (%(name)s::bigint[]);

-- name: session_by_id
-- A session by its id.
SELECT * FROM session_state WHERE id = %(id)s::uuid LIMIT 1;

-- name: session_by_key
-- The current session of a key: first the binding, then the session by its id. The two may lie on different shards, so they
-- are not joined.
SELECT * FROM session_state
WHERE tenant = %(tenant)s AND id = (SELECT session FROM binding WHERE tenant = %(tenant)s AND key = %(key)s);

-- name: sessions_by_prefix
-- Sessions whose ids lie between the two that a prefix stands for.
SELECT * FROM session_state
WHERE tenant = %(tenant)s AND id BETWEEN %(first)s::uuid AND %(last)s::uuid ORDER BY id LIMIT %(limit)s;

-- name: sessions_under
-- The current sessions of the keys that begin so, by key, without those that have ended. The upper bound is the prefix with
-- the largest character behind it.
SELECT session_state.* FROM binding JOIN session_state ON session_state.id = binding.session
WHERE binding.tenant = %(tenant)s AND binding.key >= %(first)s AND binding.key < %(last)s AND binding.key > %(after)s
  AND session_state.tenant = %(tenant)s AND session_state.ended = 0
ORDER BY binding.key LIMIT %(limit)s;

-- name: sessions_by_activity
-- A page of sessions, newest first, after the one with this time and id. An index has those of each state in order; a page of
-- all is made from a page of each.
WITH page AS MATERIALIZED (
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 0 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
       AND (%(state)s::text IS NULL OR %(state)s::text = 'open')
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 1 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
       AND (%(state)s::text IS NULL OR %(state)s::text = 'running')
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 2 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
       AND (%(state)s::text IS NULL OR %(state)s::text = 'ended')
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 3 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
       AND (%(state)s::text IS NULL OR %(state)s::text = 'ended')
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    ORDER BY active_at DESC, session DESC LIMIT %(limit)s
)
SELECT session_state.* FROM page JOIN session_state ON session_state.id = page.session
WHERE session_state.tenant = %(tenant)s
ORDER BY page.active_at DESC, page.session DESC;

-- name: sessions_of_key
-- The same for the sessions of one key.
WITH page AS MATERIALIZED (
    SELECT active_at, session FROM activity
    WHERE tenant = %(tenant)s AND key = %(key)s AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
      AND (%(state)s::text IS NULL OR %(state)s::text = (ARRAY['open', 'running', 'ended', 'ended'])[state + 1])
    ORDER BY active_at DESC, session DESC LIMIT %(limit)s
)
SELECT session_state.* FROM page JOIN session_state ON session_state.id = page.session
WHERE session_state.tenant = %(tenant)s
ORDER BY page.active_at DESC, page.session DESC;

-- name: sessions_kept
-- The same for the sessions that are not erased.
WITH page AS MATERIALIZED (
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 0 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 1 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT active_at, session FROM activity
     WHERE tenant = %(tenant)s AND state = 2 AND (active_at, session) < (%(at)s::bigint, %(id)s::uuid)
     ORDER BY active_at DESC, session DESC LIMIT %(limit)s)
    ORDER BY active_at DESC, session DESC LIMIT %(limit)s
)
SELECT session_state.* FROM page JOIN session_state ON session_state.id = page.session
WHERE session_state.tenant = %(tenant)s
ORDER BY page.active_at DESC, page.session DESC;

-- name: forks
-- Sessions that share the past of one of these.
SELECT * FROM session_state WHERE tenant = %(tenant)s AND parent = ANY (%(parent)s::uuid[]) ORDER BY opened_at, id;

-- name: weigh
-- Entries, messages, bytes of these sessions, blobs included, and the number of their blobs: none is shared.
SELECT given.session, log.entries, log.messages, log.bytes + large.bytes, large.blobs
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
CROSS JOIN LATERAL (
    SELECT count(*) AS entries, count(*) FILTER (WHERE kind = 'message') AS messages,
           coalesce(sum(octet_length(note) + octet_length(body)), 0)::bigint AS bytes
    FROM entry WHERE entry.tenant = given.tenant AND entry.session = given.session
) AS log
CROSS JOIN LATERAL (
    SELECT count(*) AS blobs, coalesce(sum(octet_length(body)), 0)::bigint AS bytes
    FROM blob WHERE blob.tenant = given.tenant AND blob.session = given.session
) AS large;

-- name: entry_by_id
-- Whether an entry stands where a commit in doubt would have put it: then the whole batch was done.
SELECT 1 FROM entry
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND seq = %(seq)s::bigint AND id = %(id)s;

-- name: entries
-- A page of the log.
SELECT seq, kind, turn, id, at, note, body, parted FROM entry
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND seq > %(after)s::bigint ORDER BY seq LIMIT %(limit)s;

-- name: entries_bare
-- A page of the log without the payloads of messages: they are not read from the disk.
SELECT seq, kind, turn, id, at, note, CASE kind WHEN 'message' THEN ''::bytea ELSE body END,
       parted AND kind <> 'message'
FROM entry
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND seq > %(after)s::bigint ORDER BY seq LIMIT %(limit)s;

-- name: labels
-- What was noted about messages of a session: few entries, with an index of their own.
SELECT seq, kind, turn, id, at, note, ''::bytea FROM entry
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND seq > %(after)s::bigint AND kind = 'label' ORDER BY seq;

-- name: inbox
-- What waits in these sessions, in the order of acceptance.
SELECT inbox.session, inbox.message, inbox.waiter, inbox.seq, inbox.lease_s,
       inbox.lease_until - extract(epoch FROM statement_timestamp())::double precision, inbox.lease_until
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
JOIN inbox ON inbox.tenant = given.tenant AND inbox.session = given.session ORDER BY inbox.session, inbox.seq;

-- name: journal
-- A page of a session's journal rows.
SELECT position, turn, message, idx, body FROM journal
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND position > %(after)s::bigint
ORDER BY position LIMIT %(limit)s;

-- name: get_fact
-- A fact about the store.
SELECT value FROM store WHERE name = %(name)s;

-- name: set_fact
-- States a fact about the store.
INSERT INTO store (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- Erasing. PostgreSQL overwrites nothing: what goes is gone from every query at once, and from the disk when the server has
-- vacuumed and its log has moved on.

-- name: blank_entries
-- Nothing in place of all notes and bodies of sessions of which not every entry is told of.
UPDATE entry SET note = '', body = '', parted = false
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
WHERE entry.tenant = given.tenant AND entry.session = given.session;

-- name: save_note
-- What is left of entries. One that is so already is not written again.
UPDATE entry SET note = given.note, body = '', parted = false
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[], %(note)s::bytea[])
     AS given (tenant, session, seq, note)
WHERE entry.tenant = given.tenant AND entry.session = given.session AND entry.seq = given.seq
  AND (entry.note <> given.note OR entry.body <> '' OR entry.parted);

-- name: empty_blobs
-- The large parts of sessions.
DELETE FROM blob USING unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
WHERE blob.tenant = given.tenant AND blob.session = given.session;

-- name: forget_events
-- The events that sessions have accepted.
DELETE FROM event USING unnest(%(session)s::uuid[]) AS given (session) WHERE event.session = given.session;

-- name: remove_all_waiting
-- The inboxes of sessions.
DELETE FROM inbox USING unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
WHERE inbox.tenant = given.tenant AND inbox.session = given.session;
