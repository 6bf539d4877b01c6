-- Version 2: messages are packed, large parts lie in blobs, an event is known by a digest. What version 1 wrote stays as it is.

CREATE INDEX entry_labels ON entry (session, seq) WHERE kind = 'label';

CREATE VIEW log AS
SELECT n, session, seq, CASE kind WHEN '' THEN 'message' ELSE kind END AS kind, turn, id, at,
       CASE note WHEN 1 THEN CAST('{"role":"assistant"}' AS BLOB) ELSE ifnull(note, x'') END AS note,
       CASE typeof(body)
           WHEN 'text' THEN CAST(
               CASE note WHEN 1 THEN '{"role":"assistant","content":"' ELSE '{"role":"user","content":"' END
               || body || '"}' AS BLOB)
           ELSE ifnull(body, x'')
       END AS body
FROM entry;

-- Large parts of payloads, once for each content, in the order of arrival; `name` is the beginning of their SHA-256.
CREATE TABLE blob (
    n    INTEGER PRIMARY KEY,
    name INTEGER,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX blob_by_name ON blob (name);

-- Which sessions refer to a blob, by its name: its words go with the last of them.
CREATE TABLE blob_use (
    session INTEGER NOT NULL,
    blob    INTEGER NOT NULL,
    PRIMARY KEY (session, blob)
) WITHOUT ROWID;

DROP VIEW transcript;
CREATE VIEW transcript AS
SELECT session.id AS session, session.key, log.seq, log.turn,
       coalesce(CASE WHEN log.note <> x'' THEN json_extract(CAST(log.note AS TEXT), '$.role') END, 'user') AS role,
       CAST(log.body AS TEXT) AS payload,
       datetime(log.at / 1000, 'unixepoch') AS at
FROM log JOIN session ON session.n = log.session
WHERE log.kind = 'message'
ORDER BY session.n, log.seq;

ALTER TABLE event RENAME TO event_1;
CREATE TABLE event (
    name    BLOB    PRIMARY KEY,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message BLOB    NOT NULL
) WITHOUT ROWID;

INSERT INTO event SELECT event_name(scope, event), session, seq, message FROM event_1;
DROP TABLE event_1;
