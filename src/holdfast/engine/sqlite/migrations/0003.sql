-- Version 3: what waits and what is owed are found by age, and a reply is given to one sender at a time.

CREATE INDEX session_running ON session (tenant) WHERE turn IS NOT NULL;

ALTER TABLE inbox RENAME TO inbox_2;
CREATE TABLE inbox (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message BLOB    NOT NULL,
    waiter  TEXT,
    tenant  TEXT    NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE INDEX inbox_by_age ON inbox (tenant, substr(message, 1, 6), session, seq);

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
    PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX outbox_by_age ON outbox (tenant, at, session, turn, id);

INSERT INTO outbox (session, id, turn, reply_to, at, tenant)
SELECT outbox_2.session, outbox_2.id, outbox_2.turn, reply_to, at, tenant
FROM outbox_2 JOIN session ON session.n = outbox_2.session;
DROP TABLE outbox_2;
