-- What only this engine needs: how a batch is loaded, locked and written in few round trips.

-- name: tenants
-- Whose sessions these are. An id is looked for without its tenant once: then it is known for good.
SELECT id, tenant FROM session WHERE id = ANY (%(id)s::uuid[]);

-- name: sessions_now
-- Sessions as they are. What is written from it is guarded by their stamps, so no lock is held while it is judged.
SELECT session.tenant, session.id, session.key, session.epoch, session.ended, session.head, session.fence, session.turn,
       session.holder, session.position, session.journal, session.base, session.origin, session.opened_at,
       session.listed_at, session.last_at, session.stamp, session.parent, session.unread
FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[]) AS given (tenant, id)
JOIN session ON session.tenant = given.tenant AND session.id = given.id;

-- name: free_sessions
-- Those of these sessions whose rows nobody holds.
SELECT session.id FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[]) AS given (tenant, id)
JOIN session ON session.tenant = given.tenant AND session.id = given.id
FOR UPDATE OF session SKIP LOCKED;

-- name: limits
-- Nothing that we do in a transaction takes long, and nobody is to wait for us when we are frozen in the middle of one.
SELECT set_config('lock_timeout', %(lock)s, %(once)s), set_config('idle_in_transaction_session_timeout', %(whole)s, %(once)s),
       CASE WHEN current_setting('server_version_num')::integer >= 170000
            THEN set_config('transaction_timeout', %(whole)s, %(once)s) END;

-- name: lock_sessions
-- The same, locked in the order of their ids, so that two batches don't wait for each other: for a batch that others were
-- quicker than again and again, and to wait for one whose answer was lost.
SELECT session.tenant, session.id, session.key, session.epoch, session.ended, session.head, session.fence, session.turn,
       session.holder, session.position, session.journal, session.base, session.origin, session.opened_at,
       session.listed_at, session.last_at, session.stamp, session.parent, session.unread
FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[]) AS given (tenant, id)
JOIN session ON session.tenant = given.tenant AND session.id = given.id
ORDER BY session.id FOR UPDATE OF session;

-- name: bindings
-- Keys and their current sessions.
SELECT binding.tenant, binding.key, binding.session, binding.epoch
FROM unnest(%(tenant)s::bytea[], %(key)s::bytea[]) AS given (tenant, key)
JOIN binding ON binding.tenant = given.tenant AND binding.key = given.key;

-- name: list_sessions
-- How these sessions stand in lists.
INSERT INTO activity (tenant, session, key, state, active_at, unread)
SELECT * FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(key)s::bytea[], %(state)s::bigint[],
                     %(active_at)s::bigint[], %(unread)s::boolean[])
ON CONFLICT (tenant, session) DO UPDATE
SET state = excluded.state, active_at = excluded.active_at, unread = excluded.unread;

-- name: bind
-- Keys have these sessions now. It raises unless each of these epochs is the next.
WITH bound AS (
    INSERT INTO binding (tenant, key, session, epoch)
    SELECT * FROM unnest(%(tenant)s::bytea[], %(key)s::bytea[], %(session)s::uuid[], %(epoch)s::bigint[])
    ON CONFLICT (tenant, key) DO UPDATE SET session = excluded.session, epoch = excluded.epoch
    WHERE binding.epoch < excluded.epoch
    RETURNING 1
)
SELECT 1 / (CASE WHEN count(*) = cardinality(%(key)s::bytea[]) THEN 1 ELSE 0 END) FROM bound;

-- name: blob_digests
-- The digests of these parts, where they are known.
SELECT blob.session, blob.name, blob.digest
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(name)s::bigint[]) AS given (tenant, session, name)
JOIN blob ON blob.tenant = given.tenant AND blob.session = given.session AND blob.name = given.name;

-- name: beginnings
-- The first entries of these sessions, so many of each; if asked, without the payloads of messages, which are then not
-- read from the disk.
SELECT given.tenant, given.session, first.seq, first.kind, first.turn, first.id, first.at, first.note,
       CASE WHEN %(bodies)s::boolean OR first.kind <> 'message' THEN first.body ELSE ''::bytea END,
       first.parted AND (%(bodies)s::boolean OR first.kind <> 'message')
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[]) AS given (tenant, session, seq)
CROSS JOIN LATERAL (
    SELECT seq, kind, turn, id, at, note, body, parted FROM entry
    WHERE entry.tenant = given.tenant AND entry.session = given.session AND entry.seq > given.seq
    ORDER BY seq LIMIT %(limit)s
) AS first
ORDER BY given.session, first.seq;

-- name: add_chunk
-- Journal rows.
INSERT INTO journal (tenant, session, position, turn, message, idx, body)
SELECT * FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(position)s::bigint[], %(turn)s::bigint[],
                     %(message)s::bytea[], %(idx)s::bigint[], %(body)s::bytea[]);

-- name: chunk_is
-- Whether a journal row stands where a commit in doubt would have put it.
SELECT 1 FROM journal
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND position = %(position)s::bigint
  AND message = %(message)s AND idx = %(idx)s::bigint;

-- name: append
-- The usual batch in one statement, which is one round trip and one transaction: sessions move on, entries are added. It
-- raises unless all of the sessions are as they are remembered. What is added is unread: a session whose words were all
-- read when it was remembered is one of those that are listed; one that was read since is not as it is remembered.
WITH given AS (
    SELECT * FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[], %(was)s::bigint[], %(head)s::bigint[],
                         %(active_at)s::bigint[], %(last_at)s::bigint[])
        AS given (tenant, id, was, head, active_at, last_at)
), moved AS (
    UPDATE session SET head = given.head, listed_at = given.active_at, last_at = given.last_at, stamp = %(stamp)s::bigint,
                       unread = true
    FROM given WHERE session.tenant = given.tenant AND session.id = given.id AND session.stamp = given.was
                 AND (session.unread OR session.id = ANY (%(l_session)s::uuid[]))
    RETURNING 1
), listed AS (
    UPDATE activity SET active_at = given.active_at, unread = true
    FROM unnest(%(l_tenant)s::bytea[], %(l_session)s::uuid[], %(l_active_at)s::bigint[])
         AS given (tenant, session, active_at)
    WHERE activity.tenant = given.tenant AND activity.session = given.session
), said AS (
    INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body)
    SELECT tenant, session, seq, kind, nullif(turn, 0), entry_id, at, note, body
    FROM unnest(%(e_tenant)s::bytea[], %(e_session)s::uuid[], %(e_seq)s::bigint[], %(e_kind)s::text[],
                %(e_turn)s::bigint[], %(e_id)s::bytea[], %(e_at)s::bigint[], %(e_note)s::bytea[], %(e_body)s::bytea[])
         AS given (tenant, session, seq, kind, turn, entry_id, at, note, body)
)
SELECT 1 / (CASE WHEN count(*) = cardinality(%(id)s::uuid[]) THEN 1 ELSE 0 END),
       CASE WHEN %(lasting)s THEN '' ELSE set_config('synchronous_commit', 'off', true) END
FROM moved;

-- name: append_chunk
-- The same for what is being said, of which nothing shows in lists.
WITH given AS (
    SELECT * FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[], %(was)s::bigint[], %(position)s::bigint[])
        AS given (tenant, id, was, position)
), moved AS (
    UPDATE session SET position = given.position, stamp = %(stamp)s::bigint
    FROM given WHERE session.tenant = given.tenant AND session.id = given.id AND session.stamp = given.was
    RETURNING 1
), said AS (
    INSERT INTO journal (tenant, session, position, turn, message, idx, body)
    SELECT * FROM unnest(%(e_tenant)s::bytea[], %(e_session)s::uuid[], %(e_position)s::bigint[], %(e_turn)s::bigint[],
                         %(e_message)s::bytea[], %(e_idx)s::bigint[], %(e_body)s::bytea[])
)
SELECT 1 / (CASE WHEN count(*) = cardinality(%(id)s::uuid[]) THEN 1 ELSE 0 END),
       CASE WHEN %(lasting)s THEN '' ELSE set_config('synchronous_commit', 'off', true) END
FROM moved;

-- name: append_one
-- As `append`, for one entry: a session is found by its key sooner than it is joined to an array of one.
WITH moved AS (
    UPDATE session SET head = (%(head)s::bigint[])[1], listed_at = (%(active_at)s::bigint[])[1],
                       last_at = (%(last_at)s::bigint[])[1], stamp = %(stamp)s::bigint, unread = true
    WHERE tenant = (%(tenant)s::bytea[])[1] AND id = (%(id)s::uuid[])[1] AND stamp = (%(was)s::bigint[])[1]
      AND (unread OR id = ANY (%(l_session)s::uuid[]))
    RETURNING 1
), listed AS (
    UPDATE activity SET active_at = (%(l_active_at)s::bigint[])[1], unread = true
    WHERE tenant = (%(l_tenant)s::bytea[])[1] AND session = (%(l_session)s::uuid[])[1]
), said AS (
    INSERT INTO entry (tenant, session, seq, kind, turn, id, at, note, body)
    VALUES ((%(e_tenant)s::bytea[])[1], (%(e_session)s::uuid[])[1], (%(e_seq)s::bigint[])[1], (%(e_kind)s::text[])[1],
            nullif((%(e_turn)s::bigint[])[1], 0), (%(e_id)s::bytea[])[1], (%(e_at)s::bigint[])[1],
            (%(e_note)s::bytea[])[1], (%(e_body)s::bytea[])[1])
)
SELECT 1 / (CASE WHEN count(*) = 1 THEN 1 ELSE 0 END),
       CASE WHEN %(lasting)s THEN '' ELSE set_config('synchronous_commit', 'off', true) END
FROM moved;

-- name: append_one_chunk
-- As `append_chunk`, for one chunk.
WITH moved AS (
    UPDATE session SET position = (%(position)s::bigint[])[1], stamp = %(stamp)s::bigint
    WHERE tenant = (%(tenant)s::bytea[])[1] AND id = (%(id)s::uuid[])[1] AND stamp = (%(was)s::bigint[])[1]
    RETURNING 1
), said AS (
    INSERT INTO journal (tenant, session, position, turn, message, idx, body)
    VALUES ((%(e_tenant)s::bytea[])[1], (%(e_session)s::uuid[])[1], (%(e_position)s::bigint[])[1],
            (%(e_turn)s::bigint[])[1], (%(e_message)s::bytea[])[1], (%(e_idx)s::bigint[])[1], (%(e_body)s::bytea[])[1])
)
SELECT 1 / (CASE WHEN count(*) = 1 THEN 1 ELSE 0 END),
       CASE WHEN %(lasting)s THEN '' ELSE set_config('synchronous_commit', 'off', true) END
FROM moved;

-- name: steady
-- On this connection a statement is planned once, and reaches rows by their keys though there may be few of them yet.
SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false);

-- name: begin
-- A transaction, in the isolation that this database gives.
BEGIN;

-- name: fleeting
-- This transaction need not wait for the disk.
SET LOCAL synchronous_commit = off;

-- name: commit
-- Never cancelled from here: it may be waiting for other servers.
COMMIT;

-- name: touch
-- Writes a session's row as it is. Its commit waits until the servers that must know of it know of all that came before.
UPDATE session SET stamp = stamp WHERE tenant = %(tenant)s AND id = %(id)s::uuid;

-- name: sweep
-- Journal rows of turns that are over.
DELETE FROM journal
USING unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(position)s::bigint[]) AS given (tenant, session, position)
WHERE journal.tenant = given.tenant AND journal.session = given.session AND journal.position <= given.position;

-- name: remove_all_debts
-- The outbox of sessions.
DELETE FROM outbox USING unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
WHERE outbox.tenant = given.tenant AND outbox.session = given.session;

-- name: blank_some
-- A note and nothing else in place of some entries of a session.
UPDATE entry SET note = given.note, body = '', parted = false
FROM unnest(%(seq)s::bigint[], %(note)s::bytea[]) AS given (seq, note)
WHERE entry.tenant = %(tenant)s AND entry.session = %(session)s::uuid AND entry.seq = given.seq;

-- name: remove_unused_blobs
-- Large parts that no entry of their session refers to: an entry has their names in its first line.
DELETE FROM blob WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND NOT EXISTS (
    SELECT 1 FROM entry
    WHERE entry.tenant = blob.tenant AND entry.session = blob.session AND entry.parted
      AND position(convert_to(',' || blob.name || ']', 'UTF8')
                   IN substring(entry.body FROM 1 FOR position('\x0a'::bytea IN entry.body))) > 0
);

-- name: sync_state
-- How this server's standbys are replicated to, and whether it waits for them. A role without pg_read_all_stats sees that
-- there are some, and no more.
SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       count(*) FILTER (WHERE state = 'streaming'),
       count(*) FILTER (WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')),
       count(*) FILTER (WHERE state IS NULL)
FROM pg_stat_replication;

-- name: backend
-- Which of the server's processes answers.
SELECT pg_backend_pid();

-- name: stalled
-- How many commits have waited for standbys for so long, and the longest of them.
SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - query_start)), 0)::double precision
FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'SyncRep'
  AND query_start < clock_timestamp() - make_interval(secs => %(seconds)s::double precision);

-- name: lock_format
-- Who migrates the store holds this row until it is done.
SELECT 1 FROM store WHERE name = 'format' FOR UPDATE;
