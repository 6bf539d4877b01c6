-- Version 3: what waits and what is owed are found by age, and a reply is given to one sender at a time. A lease says by
-- which clock it runs and for how long it was given; waiters have leases, too. What a retention takes is found by indexes:
-- the sessions that are not erased yet, the forks of one, its events, the other sessions that refer to a blob.

CREATE INDEX session_kept ON session (tenant, active_at, n) WHERE ended < 2;
CREATE INDEX session_running ON session (tenant) WHERE turn IS NOT NULL;

ALTER TABLE inbox RENAME TO inbox_2;
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

INSERT INTO inbox (session, seq, message, waiter, tenant)
SELECT inbox_2.session, seq, message, waiter, tenant FROM inbox_2 JOIN session ON session.n = inbox_2.session;
DROP TABLE inbox_2;

ALTER TABLE outbox RENAME TO outbox_2;
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

INSERT INTO outbox (session, id, turn, reply_to, at, tenant)
SELECT outbox_2.session, outbox_2.id, outbox_2.turn, reply_to, at, tenant
FROM outbox_2 JOIN session ON session.n = outbox_2.session;
DROP TABLE outbox_2;


ALTER TABLE session ADD COLUMN lease_clock TEXT;
ALTER TABLE session ADD COLUMN lease_s REAL;
ALTER TABLE session ADD COLUMN lease_calendar REAL;
ALTER TABLE session ADD COLUMN parent TEXT;

-- A note that can't be read names nobody.
UPDATE session SET parent = (
    SELECT CASE WHEN json_valid(CAST(note AS TEXT)) THEN json_extract(CAST(note AS TEXT), '$.parent') END FROM entry
    WHERE entry.session = session.n AND entry.seq = session.origin + 1 AND entry.kind = 'opened'
) WHERE origin > 0;
CREATE INDEX session_forks ON session (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX event_by_session ON event (session);
CREATE INDEX blob_use_by_blob ON blob_use (blob);

DROP VIEW session_state;
CREATE VIEW session_state AS
SELECT n, id, tenant, key, epoch, ended, fence, turn, holder, lease_until, lease_clock, lease_s, lease_calendar,
       journal, base, origin, opened_at, active_at, parent,
       coalesce((SELECT seq FROM entry WHERE entry.session = session.n ORDER BY seq DESC LIMIT 1), origin) AS head,
       (SELECT at FROM entry WHERE entry.session = session.n ORDER BY seq DESC LIMIT 1) AS last_at
FROM session;
