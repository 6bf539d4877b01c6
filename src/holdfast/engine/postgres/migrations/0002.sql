-- Version 2: what waits and what is owed are found by age, and a reply is given to one sender at a time.

CREATE INDEX session_running ON session (tenant, id) WHERE turn IS NOT NULL;
CREATE INDEX inbox_by_age ON inbox (tenant, substr(message, 1, 6), session, seq);
ALTER TABLE outbox ADD COLUMN claim bytea;
ALTER TABLE outbox ADD COLUMN claim_until double precision;
CREATE INDEX outbox_by_age ON outbox (tenant, at, session, turn, id);
