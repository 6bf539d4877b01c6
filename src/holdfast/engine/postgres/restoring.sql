-- What a copy from another store needs.

-- name: all_tenants
-- Whose sessions there are. Each is found by one step in an index, whatever the number of its sessions.
WITH RECURSIVE each_one (tenant) AS (
    (SELECT tenant FROM session ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT session.tenant FROM session WHERE session.tenant > each_one.tenant ORDER BY session.tenant LIMIT 1)
    FROM each_one WHERE each_one.tenant IS NOT NULL
)
SELECT tenant FROM each_one WHERE tenant IS NOT NULL ORDER BY tenant;

-- name: events
-- A page of all events, in the order of their names.
SELECT name, session, seq, message FROM event WHERE name > %(after)s ORDER BY name LIMIT %(limit)s;

-- name: debts_of
-- All replies that these sessions owe.
SELECT outbox.session, outbox.id, outbox.turn, outbox.reply_to, outbox.at
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
JOIN outbox ON outbox.tenant = given.tenant AND outbox.session = given.session ORDER BY outbox.at, outbox.turn, outbox.id;
