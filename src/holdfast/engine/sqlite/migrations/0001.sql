-- Version 1: sessions and their log.

-- One row for each session. `turn` is the running turn's number; a turn may write while turn = fence.
-- `origin` is the seq after which its own entries begin, more than 0 if it shares the past of another.
-- `base` is the seq of the entry that a load begins with, 0 for the first one.
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
    active_at   INTEGER NOT NULL
);

-- The current session of a key is the one with its highest epoch: there is no second place to say so.
CREATE UNIQUE INDEX session_by_key ON session (tenant, key, epoch);
CREATE INDEX session_by_activity ON session (tenant, active_at, n);

-- The log, in the order of arrival: appends of many sessions share pages. Clustering by session writes four times as much.
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

-- A session with its head, as of one moment.
CREATE VIEW session_state AS
SELECT n, id, tenant, key, epoch, ended, fence, turn, holder, lease_until, journal, base, origin,
       opened_at, active_at,
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

-- Accepted messages that no turn has taken yet.
CREATE TABLE inbox (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message BLOB    NOT NULL,
    waiter  TEXT,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;

-- Replies that are owed to somebody, from the end of their turn until their sending is confirmed.
CREATE TABLE outbox (
    session  INTEGER NOT NULL,
    id       BLOB    NOT NULL,
    turn     INTEGER NOT NULL,
    reply_to TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) WITHOUT ROWID;

-- Inbound events that were accepted: the same one is accepted once, for as long as the store lives.
CREATE TABLE event (
    scope   TEXT    NOT NULL,
    event   TEXT    NOT NULL,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message BLOB    NOT NULL,
    PRIMARY KEY (scope, event)
) WITHOUT ROWID;

-- Facts about the store itself.
CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- For people who open the file by hand.
CREATE VIEW transcript AS
SELECT session.id AS session, session.key, entry.seq, entry.turn,
       coalesce(json_extract(entry.note, '$.role'), 'user') AS role,
       CAST(entry.body AS TEXT) AS payload,
       datetime(entry.at / 1000, 'unixepoch') AS at
FROM entry JOIN session ON session.n = entry.session
WHERE entry.kind = 'message'
ORDER BY session.n, entry.seq;
