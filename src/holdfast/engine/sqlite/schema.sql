-- A Holdfast store in SQLite. Owner-only file, WAL, written by one thread per process.

-- One row for each session. `ended` is 1 when it was closed and 2 when it was erased. `turn` is the running turn's number; a turn may write while turn = fence.
-- `origin` is the seq after which its own entries begin, more than 0 if it shares the past of another, whose id `parent` is.
-- `base` is the seq of the entry that a load begins with, 0 for the first one. `active_at` is the time of its last turn or
-- append, to the second.
-- A lease runs until `lease_until` by `lease_clock`, which is that of one boot of one machine; elsewhere until
-- `lease_calendar`, in seconds since 1970, and for no longer than `lease_s`.
-- The head is not here: it is the last seq in `entry`, so an append touches one table only.
CREATE TABLE session (
    n           INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    tenant      TEXT    NOT NULL,
    key         TEXT,
    epoch       INTEGER NOT NULL CHECK (epoch >= 1),
    ended       INTEGER NOT NULL DEFAULT 0,
    fence       INTEGER NOT NULL DEFAULT 0,
    turn        INTEGER CHECK (turn <= fence),
    holder      TEXT,
    lease_until REAL,
    journal     INTEGER NOT NULL DEFAULT 0,
    base        INTEGER NOT NULL DEFAULT 0,
    origin      INTEGER NOT NULL DEFAULT 0,
    opened_at   INTEGER NOT NULL,
    active_at   INTEGER NOT NULL,
    lease_clock    TEXT,
    lease_s        REAL,
    lease_calendar REAL,
    parent         TEXT
);

-- The current session of a key is the one with its highest epoch: there is no second place to say so.
CREATE UNIQUE INDEX session_by_key ON session (tenant, key, epoch);
CREATE INDEX session_by_activity ON session (tenant, active_at, n);
CREATE INDEX session_kept ON session (tenant, active_at, n) WHERE ended < 2;
CREATE INDEX session_running ON session (tenant) WHERE turn IS NOT NULL;
CREATE INDEX session_forks ON session (tenant, parent) WHERE parent IS NOT NULL;

-- The entries of all logs, in the order of arrival: appends of many sessions share pages. Clustering by session writes four
-- times as much. Read them through `log`: most messages are packed.
CREATE TABLE entry (
    n       INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    turn    INTEGER,
    id      BLOB    NOT NULL,
    at      INTEGER NOT NULL,
    note    BLOB,
    body    BLOB
);
CREATE UNIQUE INDEX entry_by_seq ON entry (session, seq);
CREATE INDEX entry_labels ON entry (session, seq) WHERE kind = 'label';

-- Entries as they were given. A row without a kind is a packed message: `packing.py` says what was left out.
-- A body that begins with a zero byte has large parts cut out of it: they are in `blob`.
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
CREATE INDEX blob_use_by_blob ON blob_use (blob);

-- A session with its head, as of one moment.
CREATE VIEW session_state AS
SELECT n, id, tenant, key, epoch, ended, fence, turn, holder, lease_until, lease_clock, lease_s, lease_calendar,
       journal, base, origin, opened_at, active_at, parent,
       coalesce((SELECT seq FROM entry WHERE entry.session = session.n ORDER BY seq DESC LIMIT 1), origin) AS head,
       (SELECT at FROM entry WHERE entry.session = session.n ORDER BY seq DESC LIMIT 1) AS last_at
FROM session;

-- Chunks of messages still being spoken, in order of arrival and without a second index, in two generations: one is
-- written, the other is emptied whole once no running turn began before it was left.
CREATE TABLE journal_a (
    position INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    turn     INTEGER NOT NULL,
    message  BLOB    NOT NULL,
    idx      INTEGER NOT NULL,
    body     BLOB    NOT NULL
);
CREATE TABLE journal_b (
    position INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    turn     INTEGER NOT NULL,
    message  BLOB    NOT NULL,
    idx      INTEGER NOT NULL,
    body     BLOB    NOT NULL
);

-- Accepted messages that no turn has taken yet. `waiter` is the live caller that a message waits with, for as long as its
-- lease runs; it is kept as that of a turn is. An id begins with its time, so the index has
-- them oldest first.
CREATE TABLE inbox (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message BLOB    NOT NULL,
    waiter  TEXT,
    tenant  TEXT    NOT NULL,
    lease_until    REAL,
    lease_clock    TEXT,
    lease_s        REAL,
    lease_calendar REAL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE INDEX inbox_by_age ON inbox (tenant, message, session, seq);

-- Replies that are owed to somebody, from the end of their turn until their sending is confirmed. While `claim_until` has
-- not come by `claim_clock`, one sender has it, whose token is `claim`.
CREATE TABLE outbox (
    session     INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    turn        INTEGER NOT NULL,
    reply_to    TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    claim       BLOB,
    claim_until REAL,
    claim_clock TEXT,
    PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX outbox_by_age ON outbox (tenant, at, session, turn, id);

-- Inbound events that were accepted: the same one is accepted once, until its session is forgotten by a retention. `name`
-- is a digest of the scope and the event id.
CREATE TABLE event (
    name    BLOB    PRIMARY KEY,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message BLOB    NOT NULL
) WITHOUT ROWID;
CREATE INDEX event_by_session ON event (session);

-- Facts about the store itself.
CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- For people who open the file by hand.
CREATE VIEW transcript AS
SELECT session.id AS session, session.key, log.seq, log.turn,
       coalesce(CASE WHEN log.note <> x'' THEN json_extract(CAST(log.note AS TEXT), '$.role') END, 'user') AS role,
       CAST(log.body AS TEXT) AS payload,
       datetime(log.at / 1000, 'unixepoch') AS at
FROM log JOIN session ON session.n = log.session
WHERE log.kind = 'message'
ORDER BY session.n, log.seq;
