-- Following what other processes write: asked for by one poller in each process, never in a transaction of a writer.

-- name: stamps
-- By which transactions these sessions were written last: one that others have made is news.
SELECT session.id, session.stamp
FROM unnest(%(tenant)s::bytea[], %(id)s::uuid[]) AS given (tenant, id)
JOIN session ON session.tenant = given.tenant AND session.id = given.id;

-- name: listen
-- Hints of other processes come on this connection from now on.
LISTEN holdfast;

-- name: notify
-- A hint for those who listen. It waits for no disk and no other server, for it holds a lock that all hints take. It gives no
-- row: there is nothing to tell of it.
SELECT WHERE set_config('synchronous_commit', 'off', true) = 'off' AND pg_notify('holdfast', %(payload)s::text) IS NULL;
