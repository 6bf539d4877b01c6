-- Following what other processes write: asked for by one poller in each process, never in a transaction of a writer.

-- name: last_rows
-- How far the log and the two generations of the journal have got: the ends of three trees, however much is in them.
SELECT (SELECT max(n) FROM entry), (SELECT max(position) FROM journal_a), (SELECT max(position) FROM journal_b);

-- name: written_sessions
-- Whose entries these are: spans of rows, given as a list in JSON. CROSS: span by span, or the log is read through.
SELECT id FROM session WHERE n IN (
    SELECT entry.session FROM json_each(:spans) AS span
    CROSS JOIN entry ON entry.n BETWEEN span.value ->> 0 AND span.value ->> 1
);

-- name: spoken_sessions
-- The same for rows of the journal.
SELECT id FROM session WHERE n IN (
    SELECT journal_a.session FROM json_each(:spans) AS span
    CROSS JOIN journal_a ON journal_a.position BETWEEN span.value ->> 0 AND span.value ->> 1
    UNION
    SELECT journal_b.session FROM json_each(:spans) AS span
    CROSS JOIN journal_b ON journal_b.position BETWEEN span.value ->> 0 AND span.value ->> 1
);
