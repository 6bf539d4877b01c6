-- The statements of the search file, by name, and those that read the log for it. `{volume}` is the number of a volume:
-- so many entries of the log, in the order of their arrival, have their words in one table.

-- name: schema
-- `mark` is the last entry of the log that was read, by its number and its id: a log that has another entry there, or none,
-- is not the one that was read. `sealed` when the disk keeps the time that a file is given. A volume knows the times of its
-- first and its last message, by their clocks. Each word in it is listed with it, so that volumes
-- without a word need not be opened, and the words with a beginning are known; facets behind a colon, as no word begins with.
CREATE TABLE mark (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    n      INTEGER NOT NULL,
    id     BLOB    NOT NULL,
    sealed INTEGER NOT NULL
);
INSERT INTO mark VALUES (1, 0, x'', 1);
CREATE TABLE volume (
    number   INTEGER PRIMARY KEY,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL
);
CREATE TABLE word (
    text   TEXT    NOT NULL,
    volume INTEGER NOT NULL,
    PRIMARY KEY (text, volume)
) WITHOUT ROWID;

-- name: add_words_table
-- The words of a volume, by the numbers of their entries; `facet` has a word for each thing one can filter by. The text
-- itself is not kept. What a word is was decided before: `wording.spaced`.
CREATE VIRTUAL TABLE IF NOT EXISTS words_{volume}
USING fts5(text, facet, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE IF NOT EXISTS terms_{volume} USING fts5vocab(words_{volume}, 'col');

-- name: add_volume
-- A volume has messages of these times too.
INSERT INTO volume (number, first_at, last_at) VALUES (?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at);

-- name: add_words
-- The words of a message.
INSERT INTO words_{volume} (rowid, text, facet) VALUES (?, ?, ?);

-- name: list_word
-- A volume has this word.
INSERT OR IGNORE INTO word (text, volume) VALUES (?, ?);

-- name: list_words
-- Lists what is in a volume now, and nothing else.
DELETE FROM word WHERE volume = {volume};
INSERT INTO word (text, volume)
SELECT iif(col = 'facet', ':' || term, term), {volume} FROM terms_{volume};

-- name: remove_words
-- Takes the words of a message out; they stay in the file until `optimize`.
DELETE FROM words_{volume} WHERE rowid = ?;

-- name: optimize
-- Writes a volume anew, in one piece and without what was taken out of it.
INSERT INTO words_{volume} (words_{volume}) VALUES ('optimize');

-- name: mark
-- How far the log was read.
SELECT n, id FROM mark;

-- name: seal
-- How far the log was read, and whether the file's time says so too.
SELECT n, sealed FROM mark;

-- name: unseal
-- The disk does not keep the times of files.
UPDATE mark SET sealed = 0;

-- name: set_mark
-- The log was read up to here.
UPDATE mark SET n = ?, id = ?;

-- name: volumes
-- Volumes that have messages of this time, newest first.
SELECT number FROM volume WHERE last_at >= ? AND first_at < ? ORDER BY number DESC;

-- name: volumes_of
-- The volumes that have a word.
SELECT volume FROM word WHERE text = ?;

-- name: beginnings
-- The words from one up to another, each with every volume that has it, and no more than so many.
SELECT text, volume FROM word WHERE text >= ? AND text < ? LIMIT ?;

-- name: all_volumes
-- Every volume.
SELECT number FROM volume ORDER BY number;

-- name: words
-- Messages of a volume whose words match, newest first.
SELECT rowid FROM words_{volume} WHERE words_{volume} MATCH ? ORDER BY rowid DESC;

-- name: words_at
-- A message of a volume, if its words are there.
SELECT rowid FROM words_{volume} WHERE rowid = ?;

-- name: log_wordless
-- The messages of a session that have lost their words.
SELECT n FROM entry WHERE session = ? AND kind IN ('', 'message') AND body IS NULL;

-- name: log_head
-- The number of the last entry.
SELECT coalesce(max(n), 0) FROM entry;

-- name: log_id
-- The id of an entry.
SELECT id FROM log WHERE n = ?;

-- name: log_after
-- What comes next in the log, in order of arrival: the bodies of messages only.
SELECT log.n, session.n, session.tenant, session.key, log.seq, log.kind, log.id, log.at, log.note,
       CASE log.kind WHEN 'message' THEN log.body ELSE x'' END
FROM log JOIN session ON session.n = log.session
WHERE log.n > ? ORDER BY log.n LIMIT ?;

-- name: log_pick
-- These entries (a JSON list of numbers) as far as they are messages of this tenant and pass the filters, newest first.
SELECT log.n, session.n, session.id, session.key, log.seq, log.kind, log.turn, log.id, log.at, log.note, log.body
FROM json_each(?1) AS picked CROSS JOIN log ON log.n = picked.value CROSS JOIN session ON session.n = log.session
WHERE session.tenant = ?2 AND log.kind = 'message' AND log.at >= ?3 AND log.at < ?4
      AND (?5 IS NULL OR session.key = ?5) AND (?6 IS NULL OR session.id = ?6)
      AND (?7 IS NULL OR ?7 = CASE WHEN session.ended THEN 'ended' WHEN session.turn IS NULL THEN 'open' ELSE 'running' END)
ORDER BY log.n DESC;

-- name: log_pick_sessions
-- The sessions of those, by their newest: no word is read.
SELECT session.id
FROM json_each(?1) AS picked CROSS JOIN entry ON entry.n = picked.value CROSS JOIN session ON session.n = entry.session
WHERE session.tenant = ?2 AND entry.body IS NOT NULL AND entry.at >= ?3 AND entry.at < ?4
      AND (?5 IS NULL OR session.key = ?5) AND (?6 IS NULL OR session.id = ?6)
      AND (?7 IS NULL OR ?7 = CASE WHEN session.ended THEN 'ended' WHEN session.turn IS NULL THEN 'open' ELSE 'running' END)
GROUP BY session.n ORDER BY max(entry.n) DESC;

-- name: log_back
-- The same of all entries after one and up to another, some at a time.
SELECT log.n, session.n, session.id, session.key, log.seq, log.kind, log.turn, log.id, log.at, log.note, log.body
FROM log CROSS JOIN session ON session.n = log.session
WHERE log.n > ?1 AND log.n <= ?8
      AND session.tenant = ?2 AND log.kind = 'message' AND log.at >= ?3 AND log.at < ?4
      AND (?5 IS NULL OR session.key = ?5) AND (?6 IS NULL OR session.id = ?6)
      AND (?7 IS NULL OR ?7 = CASE WHEN session.ended THEN 'ended' WHEN session.turn IS NULL THEN 'open' ELSE 'running' END)
ORDER BY log.n DESC LIMIT ?9;

-- name: log_notes
-- Notes of earlier messages of a session that have these bytes in them, newest first. A call stands near its result.
SELECT note FROM log
WHERE session = ?1 AND seq < ?2 AND seq >= ?2 - 1000 AND kind = 'message' AND instr(note, ?3)
ORDER BY seq DESC LIMIT 8;

-- name: session_sought
-- The number of a session of this tenant.
SELECT n FROM session WHERE tenant = ? AND id = ?;

-- name: sessions_in_state
-- Some sessions of a tenant in a state, of all.
SELECT n FROM session
WHERE tenant = ?1 AND ?2 = CASE WHEN ended THEN 'ended' WHEN turn IS NULL THEN 'open' ELSE 'running' END LIMIT ?3;
