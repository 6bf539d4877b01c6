-- Looking after a store.

-- name: info_rows
-- Numbers of sessions, entries, tenants and journal rows, and when something happened last: for a store that is read through in
-- no time.
SELECT (SELECT count(*) FROM session), (SELECT coalesce(sum(head - origin), 0)::bigint FROM session),
       (SELECT count(DISTINCT tenant) FROM session), (SELECT count(*) FROM journal), (SELECT max(last_at) FROM session);

-- name: info_estimates
-- The same as the server's statistics have it. Up to a hundred tenants are counted.
WITH RECURSIVE kept (name, rows) AS (
    SELECT pg_class.relname,
           sum(greatest(leaf.reltuples::bigint, pg_stat_get_live_tuples(leaf.oid), 0))::bigint
    FROM pg_class
    CROSS JOIN LATERAL (SELECT relid FROM pg_partition_tree(pg_class.oid) WHERE isleaf
                        UNION SELECT pg_class.oid WHERE pg_class.relkind = 'r') AS part (relid)
    JOIN pg_class AS leaf ON leaf.oid = part.relid
    WHERE pg_class.relnamespace = current_schema()::regnamespace AND pg_class.relname IN ('session', 'entry', 'journal')
    GROUP BY pg_class.relname
), each_one (tenant) AS (
    (SELECT tenant FROM session ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT session.tenant FROM session WHERE session.tenant > each_one.tenant ORDER BY session.tenant LIMIT 1)
    FROM each_one WHERE each_one.tenant IS NOT NULL
), counted (tenants) AS (
    SELECT count(*) FROM (SELECT 1 FROM each_one WHERE tenant IS NOT NULL LIMIT 100) AS few
), told (tenants) AS (
    SELECT max(CASE WHEN n_distinct < 0 THEN -n_distinct * (SELECT rows FROM kept WHERE name = 'session') ELSE n_distinct END)
    FROM pg_stats WHERE schemaname = current_schema() AND tablename = 'session' AND attname = 'tenant'
)
SELECT (SELECT rows FROM kept WHERE name = 'session'), (SELECT rows FROM kept WHERE name = 'entry'),
       (SELECT CASE WHEN counted.tenants < 100 THEN counted.tenants ELSE greatest(counted.tenants, told.tenants::bigint) END
        FROM counted, told),
       (SELECT rows FROM kept WHERE name = 'journal'), (SELECT max(active_at) FROM activity);

-- name: info_sizes
-- The bytes of each table, its indexes, large values and partitions included.
SELECT relname::text,
       coalesce((SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(pg_class.oid) WHERE isleaf),
                pg_total_relation_size(oid))::bigint
FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname = ANY (%(name)s::text[])
ORDER BY relname;

-- name: info_server
-- What the server says it is, and the size of its pages.
SELECT split_part(version(), ' on ', 1), current_setting('block_size')::bigint;

-- name: torn_logs
-- Sessions whose entries are not dense from their origin to their head.
SELECT session.id, session.origin, session.head, count(entry.seq), min(entry.seq), max(entry.seq)
FROM session LEFT JOIN entry ON entry.tenant = session.tenant AND entry.session = session.id
GROUP BY session.tenant, session.id
HAVING count(entry.seq) <> session.head - session.origin OR min(entry.seq) <> session.origin + 1
    OR max(entry.seq) <> session.head LIMIT 1000;

-- name: odd_turns
-- Turns that don't have one end, or have one and are said to be running. One that was running when its session was forked
-- off is over there without an end: so it is in a fork that was brought back with the past it shared.
SELECT entry.session, entry.turn, count(*) FILTER (WHERE entry.kind = 'end') FROM entry
JOIN session ON session.tenant = entry.tenant AND session.id = entry.session
WHERE entry.kind IN ('turn', 'end') AND entry.turn IS NOT NULL
GROUP BY entry.tenant, entry.session, entry.turn, session.turn, session.fence
HAVING count(*) FILTER (WHERE entry.kind = 'end')
       <> CASE WHEN entry.turn IS DISTINCT FROM session.turn THEN 1 WHEN session.fence <> session.turn
               THEN least(count(*) FILTER (WHERE entry.kind = 'end'), 1) ELSE 0 END
   AND (count(*) FILTER (WHERE entry.kind = 'end') > 0 OR max(entry.seq) > (
        SELECT coalesce(max(opened.seq), 0) FROM entry AS opened
        WHERE opened.tenant = entry.tenant AND opened.session = entry.session AND opened.kind = 'opened')) LIMIT 1000;

-- name: doubled_ids
-- Entries of one session with the same id.
SELECT session, min(seq), max(seq) FROM entry GROUP BY tenant, session, id HAVING count(*) > 1 LIMIT 1000;

-- name: lost_blobs
-- Entries that refer to large parts of which their session has none.
SELECT entry.session, entry.seq FROM entry
WHERE entry.parted AND NOT EXISTS (
    SELECT 1 FROM blob WHERE blob.tenant = entry.tenant AND blob.session = entry.session
) LIMIT 1000;

-- name: stray_bindings
-- Keys whose current session is not there, or is another key's.
SELECT binding.session, binding.key FROM binding
LEFT JOIN session ON session.tenant = binding.tenant AND session.id = binding.session
WHERE session.key IS DISTINCT FROM binding.key OR session.epoch IS DISTINCT FROM binding.epoch LIMIT 1000;

-- name: vacuum_entry
-- Written anew, without what was erased.
VACUUM (FULL) entry;

-- name: vacuum_blob
-- Written anew, without what was erased.
VACUUM (FULL) blob;

-- name: vacuum_words
-- Written anew, without what was erased.
VACUUM (FULL) words;

-- name: vacuum_journal
-- Written anew, without what was erased.
VACUUM (FULL) journal;

-- name: vacuum_inbox
-- Written anew, without what was erased.
VACUUM (FULL) inbox;

-- name: vacuum_event
-- Written anew, without what was forgotten.
VACUUM (FULL) event;

-- name: vacuum_outbox
-- Written anew, without what was erased.
VACUUM (FULL) outbox;
