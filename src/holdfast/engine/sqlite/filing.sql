-- Statements that only a file needs: the journal in generations, blobs that sessions share, rows taken out without a trace.

-- name: session_number
-- The row number of a session.
SELECT n FROM session WHERE id = :id;

-- name: places
-- The last place of a session's log, as far as this one, how many entries have one, and how many have none: before the
-- first one, or no number. All from the index.
SELECT ifnull((SELECT CAST(max(seq) AS INTEGER) FROM entry WHERE session = :session AND seq > :origin AND seq <= :head), :origin),
       (SELECT count(*) FROM entry WHERE session = :session AND seq > :origin AND seq <= :head),
       (SELECT count(*) FROM entry WHERE session = :session AND seq <= :origin)
       + (SELECT count(*) FROM entry WHERE session = :session AND seq > 9223372036854775807);

-- name: add_chunk_a
-- A journal row in the first generation.
INSERT INTO journal_a (position, session, turn, message, idx, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: add_chunk_b
-- A journal row in the second generation.
INSERT INTO journal_b (position, session, turn, message, idx, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: journal_spans
-- First and last position of each generation.
SELECT (SELECT min(position) FROM journal_a), (SELECT max(position) FROM journal_a),
       (SELECT min(position) FROM journal_b), (SELECT max(position) FROM journal_b);

-- name: journal_needed
-- The earliest journal position that a running turn may still need.
SELECT min(journal) FROM session WHERE turn IS NOT NULL;

-- name: blob_is
-- Whether the blob of this name has these bytes; nothing when there is none.
SELECT body = ? FROM blob WHERE name = ?;

-- name: add_blob_use
-- A session refers to a blob.
INSERT OR IGNORE INTO blob_use (session, blob) VALUES (?, ?);

-- name: has_blobs
-- Whether bodies of this session may have parts cut out.
SELECT 1 FROM blob_use WHERE session = :session LIMIT 1;

-- name: remove_blob_uses
-- What a session refers to.
DELETE FROM blob_use WHERE session = ?;

-- Erasing. What goes is overwritten where it lies, at its own length, and only then made short; rows that have words in them
-- are never deleted from among others. Both would move rows about, and leave copies in the gaps of pages.

-- name: blank_blobs
-- Zeros in place of the blobs that no other session refers to.
UPDATE blob SET body = zeroblob(length(body)) WHERE name IN (
    SELECT own.blob FROM blob_use AS own WHERE own.session = ?1 AND NOT EXISTS (
        SELECT 1 FROM blob_use AS other WHERE other.blob = own.blob AND other.session <> ?1)
);

-- name: blank_entry
-- Zeros in place of the note and the body of one entry.
UPDATE entry SET note = iif(typeof(note) = 'blob', zeroblob(length(note)), note),
                 body = iif(body IS NULL, NULL, zeroblob(octet_length(body))) WHERE session = ? AND seq = ?;

-- name: empty_untold
-- Nothing in place of the zeros of entries of which no note tells what is left.
UPDATE entry SET note = NULL, body = NULL
WHERE session = ? AND (body IS NOT NULL OR typeof(note) = 'blob' AND substr(note, 1, 1) = x'00');

-- name: skeletons
-- The bodies of a session that refer to blobs, and where they stand.
SELECT seq, body FROM entry WHERE session = :session AND typeof(body) = 'blob' AND substr(body, 1, 1) = x'00';

-- name: blobs_of
-- The blobs that a session refers to.
SELECT blob FROM blob_use WHERE session = :session;

-- name: blank_blob
-- Zeros in place of one blob, unless another session refers to it.
UPDATE blob SET body = zeroblob(length(body))
WHERE name = ?2 AND NOT EXISTS (SELECT 1 FROM blob_use WHERE blob = ?2 AND session <> ?1);

-- name: empty_blob
-- That blob is an empty row without a name.
UPDATE blob SET name = NULL, body = x''
WHERE name = ?2 AND NOT EXISTS (SELECT 1 FROM blob_use WHERE blob = ?2 AND session <> ?1);

-- name: remove_blob_use
-- A session refers to a blob no longer.
DELETE FROM blob_use WHERE session = ? AND blob = ?;

-- name: debts_of_others
-- The outbox without that of some sessions, given as a list in JSON: it is emptied and written anew.
SELECT session, id, turn, reply_to, at, tenant, claim, claim_until, claim_clock FROM outbox
WHERE session NOT IN (SELECT value FROM json_each(?));

-- name: empty_outbox
-- The whole outbox.
DELETE FROM outbox;

-- name: chunks_of_others
-- The same for the journal, both generations, as far as running turns may need it.
SELECT position, session, turn, message, idx, body FROM (SELECT * FROM journal_a UNION ALL SELECT * FROM journal_b)
WHERE session NOT IN (SELECT value FROM json_each(?)) AND position > (SELECT ifnull(min(journal), 1 << 62) FROM session WHERE turn IS NOT NULL)
ORDER BY position;

-- name: empty_journal_a
-- The first generation of the journal.
DELETE FROM journal_a;

-- name: empty_journal_b
-- The second generation of the journal.
DELETE FROM journal_b;
