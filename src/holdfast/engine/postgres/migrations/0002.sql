-- A call costs the same however many sessions there are. What lists are made from gets rows of its own, the words of a tenant
-- are found without those of others, and the row of a session is in no index by what changes in it.
--
-- Programs of the version before can't write here any more: the columns that they write have other names. What they
-- would leave out (the rows in `activity`) would be missed.

-- Who still writes is let finish; who comes later finds other names.
LOCK TABLE session, inbox, outbox, mark, words IN ACCESS EXCLUSIVE MODE;

CREATE TABLE activity (
    tenant    bytea    NOT NULL,
    session   uuid     NOT NULL,
    key       bytea,
    state     smallint NOT NULL,
    active_at bigint   NOT NULL,
    unread    boolean  NOT NULL,
    PRIMARY KEY (tenant, session)
);
INSERT INTO activity (tenant, session, key, state, active_at, unread)
SELECT tenant, id, key, CASE WHEN ended > 0 THEN ended + 1 WHEN turn IS NOT NULL THEN 1 ELSE 0 END, active_at, true FROM session;
CREATE INDEX activity_by_state ON activity (tenant, state, active_at, session);
CREATE INDEX activity_by_key ON activity (tenant, key, active_at, session) WHERE key IS NOT NULL;
CREATE INDEX activity_latest ON activity (active_at);
CREATE INDEX activity_unread ON activity (tenant, session) WHERE unread;

DROP VIEW session_state;
DROP INDEX session_by_key;
DROP INDEX session_by_activity;
ALTER TABLE session RENAME COLUMN active_at TO listed_at;
ALTER TABLE session ADD COLUMN unread boolean NOT NULL DEFAULT true;
ALTER TABLE session ADD COLUMN lease_s double precision;

-- The forks of a session and its events are found by indexes. A fork's first own entry says whose past it shares; one that
-- can't be read names nobody. Notes are compact JSON, and a quotation mark inside a key would have a backslash before it.
ALTER TABLE session ADD COLUMN parent uuid;
UPDATE session SET parent = substring(
    encode(entry.note, 'escape')
    FROM '"parent":"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"')::uuid
FROM entry
WHERE session.origin > 0 AND entry.tenant = session.tenant AND entry.session = session.id
  AND entry.seq = session.origin + 1 AND entry.kind = 'opened';
CREATE INDEX session_forks ON session (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX event_by_session ON event (session);
CREATE VIEW session_state AS
SELECT tenant, id, key, epoch, ended, head, fence, turn, holder, position, journal, base, origin, opened_at,
       listed_at AS active_at, last_at, stamp, parent, lease_s, lease_until,
       lease_until - extract(epoch FROM statement_timestamp())::double precision AS lease_left
FROM session;

-- Derived: the next search of each tenant reads them again.
TRUNCATE words, mark;
DROP INDEX words_text;
ALTER TABLE words RENAME COLUMN text TO lexemes;
CREATE INDEX words_lexemes ON words USING gin (lexemes);

-- What waits and what is owed are found by age, and a reply is given to one sender at a time.
CREATE INDEX inbox_by_age ON inbox (tenant, message, session, seq);
ALTER TABLE outbox ADD COLUMN claim bytea;
ALTER TABLE outbox ADD COLUMN claim_until double precision;
CREATE INDEX outbox_by_age ON outbox (tenant, at, session, turn, id);

-- Waiters have leases, too.
ALTER TABLE inbox ADD COLUMN lease_s double precision;
ALTER TABLE inbox ADD COLUMN lease_until double precision;

-- What was said in turns that are over goes with their end from now on. Processes that died have left some.
DELETE FROM journal USING session
WHERE session.tenant = journal.tenant AND session.id = journal.session AND session.turn IS NULL;
