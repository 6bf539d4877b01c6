-- Searching: the words of messages are read from the log before a search, and in no transaction that somebody waits for.

-- name: unread
-- Sessions whose words were not read to the head of their logs, and those that were and have had no news for a while: they
-- are to be taken off the list of the unread, which is all that is looked at. A row without a session says that all marks are
-- gone: somebody has emptied the index.
(SELECT session.tenant, session.id, session.origin FROM activity
JOIN session ON session.tenant = activity.tenant AND session.id = activity.session
LEFT JOIN mark ON mark.tenant = activity.tenant AND mark.session = activity.session
WHERE activity.tenant = %(tenant)s AND activity.unread
  AND (session.head > coalesce(mark.seq, session.origin)
       OR session.last_at < extract(epoch FROM statement_timestamp()) * 1000 - %(quiet)s)
ORDER BY activity.session LIMIT %(limit)s)
UNION ALL
SELECT %(tenant)s, NULL, NULL
WHERE NOT EXISTS (SELECT 1 FROM mark WHERE tenant = %(tenant)s)
  AND EXISTS (SELECT 1 FROM activity WHERE tenant = %(tenant)s AND NOT unread);

-- name: forget_read
-- No words of this tenant were read.
WITH again AS (UPDATE session SET unread = true WHERE tenant = %(tenant)s AND NOT unread)
UPDATE activity SET unread = true WHERE tenant = %(tenant)s AND NOT unread RETURNING 1;

-- name: note_read
-- All words of these sessions were read, if nothing was added and they are quiet. One that others write to right now stays on the
-- list: its writers remember how it is, and would have to look again.
WITH read AS (
    UPDATE session SET unread = false
    FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[]) AS given (tenant, session, seq)
    WHERE session.tenant = given.tenant AND session.id = given.session AND session.head = given.seq AND session.unread
      AND session.last_at < extract(epoch FROM statement_timestamp()) * 1000 - %(quiet)s
    RETURNING session.tenant, session.id
), listed AS (
    UPDATE activity SET unread = false FROM read
    WHERE activity.tenant = read.tenant AND activity.session = read.id
)
SELECT count(*) FROM read;

-- name: unread_among
-- The same among these sessions, if anybody has searched in their tenant.
SELECT session.tenant, session.id, session.origin FROM session
LEFT JOIN mark ON mark.tenant = session.tenant AND mark.session = session.id
WHERE session.id = ANY (%(id)s::uuid[]) AND session.head > coalesce(mark.seq, session.origin)
  AND EXISTS (SELECT 1 FROM mark AS read WHERE read.tenant = session.tenant)
ORDER BY session.id LIMIT %(limit)s;

-- name: add_marks
-- Places for marks.
INSERT INTO mark (tenant, session, seq)
SELECT * FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[])
ON CONFLICT (tenant, session) DO NOTHING;

-- name: marks
-- How far words were read.
SELECT mark.tenant, mark.session, mark.seq
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
JOIN mark ON mark.tenant = given.tenant AND mark.session = given.session
ORDER BY mark.session;

-- name: unread_entries
-- The next entries of these sessions, so many of each.
SELECT given.tenant, given.session, next.seq, next.kind, next.at, next.note, next.body, next.parted
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[]) AS given (tenant, session, seq)
CROSS JOIN LATERAL (
    SELECT seq, kind, at, note, body, parted FROM entry
    WHERE entry.tenant = given.tenant AND entry.session = given.session AND entry.seq > given.seq
    ORDER BY seq LIMIT %(limit)s
) AS next
ORDER BY given.session, next.seq;

-- name: notes_before
-- Notes of messages that came before one in its session and have these bytes in them, newest first.
SELECT note FROM entry
WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND seq < %(seq)s::bigint AND kind = 'message'
  AND position(%(needle)s::bytea IN note) > 0
ORDER BY seq DESC LIMIT 8;

-- name: add_words
-- The words of messages.
INSERT INTO words (tenant, session, seq, at, lexemes)
SELECT tenant, session, seq, at, lexemes::tsvector
FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[], %(at)s::bigint[], %(lexemes)s::text[])
     AS given (tenant, session, seq, at, lexemes)
ON CONFLICT (tenant, session, seq) DO NOTHING;

-- name: move_marks
-- Words were read so far. It raises unless all marks are where they were: somebody else has read these words, or erased them.
WITH moved AS (
    UPDATE mark SET seq = given.seq
    FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(was)s::bigint[], %(seq)s::bigint[])
         AS given (tenant, session, was, seq)
    WHERE mark.tenant = given.tenant AND mark.session = given.session AND mark.seq = given.was
    RETURNING 1
)
SELECT 1 / (CASE WHEN count(*) = cardinality(%(session)s::uuid[]) THEN 1 ELSE 0 END) FROM moved;

-- name: found
-- A page of messages that have these words, newest first; `seq` and `session` decide between equal times.
SELECT words.at, words.session, words.seq, session.key, entry.kind, entry.turn, entry.id, entry.note, entry.body,
       entry.parted
FROM words
JOIN entry ON entry.tenant = words.tenant AND entry.session = words.session AND entry.seq = words.seq
JOIN session ON session.tenant = words.tenant AND session.id = words.session
WHERE words.tenant = %(tenant)s AND (%(query)s::tsquery IS NULL OR words.lexemes @@ %(query)s::tsquery)
  AND words.at >= %(since)s::bigint AND words.at < %(until)s::bigint
  AND (words.at, words.session, words.seq) < (%(at)s::bigint, %(session_before)s::uuid, %(seq)s::bigint)
  AND (%(session)s::uuid IS NULL OR words.session = %(session)s::uuid)
  AND (%(key)s::bytea IS NULL OR session.key = %(key)s::bytea)
  AND (%(state)s::text IS NULL
       OR %(state)s::text = CASE WHEN session.ended > 0 THEN 'ended' WHEN session.turn IS NULL THEN 'open' ELSE 'running' END)
ORDER BY words.at DESC, words.session DESC, words.seq DESC LIMIT %(limit)s;

-- name: sessions_found
-- Sessions that have messages with these words, those with the newest ones first, and when that was.
SELECT words.session, max(words.at) FROM words
JOIN session ON session.tenant = words.tenant AND session.id = words.session
WHERE words.tenant = %(tenant)s AND (%(query)s::tsquery IS NULL OR words.lexemes @@ %(query)s::tsquery)
  AND words.at >= %(since)s::bigint AND words.at < %(until)s::bigint
  AND (%(session)s::uuid IS NULL OR words.session = %(session)s::uuid)
  AND (%(key)s::bytea IS NULL OR session.key = %(key)s::bytea)
  AND (%(state)s::text IS NULL
       OR %(state)s::text = CASE WHEN session.ended > 0 THEN 'ended' WHEN session.turn IS NULL THEN 'open' ELSE 'running' END)
GROUP BY words.session ORDER BY max(words.at) DESC, words.session LIMIT %(limit)s;

-- name: hold_mark
-- Nobody else reads words of these sessions until this transaction is over.
INSERT INTO mark (tenant, session, seq)
SELECT * FROM unnest(%(tenant)s::bytea[], %(session)s::uuid[], %(seq)s::bigint[])
ON CONFLICT (tenant, session) DO UPDATE SET seq = excluded.seq;

-- name: forget_words
-- The words of sessions.
DELETE FROM words USING unnest(%(tenant)s::bytea[], %(session)s::uuid[]) AS given (tenant, session)
WHERE words.tenant = given.tenant AND words.session = given.session;

-- name: turn_mark_back
-- The words of this session are read again from its first entry on. The mark goes where it has never been: whoever has read them and
-- not stored them yet finds it moved.
INSERT INTO mark (tenant, session, seq) VALUES (%(tenant)s, %(session)s::uuid, -1)
ON CONFLICT (tenant, session) DO UPDATE SET seq = least(mark.seq, 0) - 1;

-- name: forget_some_words
-- The words of some entries.
DELETE FROM words WHERE tenant = %(tenant)s AND session = %(session)s::uuid AND seq = ANY (%(seq)s::bigint[]);
