-- A Holdfast store in PostgreSQL, or in a database that speaks its language.
--
-- Every table about sessions has a primary key that starts with the tenant and the session, so that a session lies on one
-- shard; `binding` and `event` are looked up by names from outside and are keyed by those. There is no sequence, no
-- trigger, no lock that belongs to a connection: a session's own row counts its entries and its journal.
-- Callers' texts (tenant, key, holder, waiter, reply_to) are bytes in UTF-8: PostgreSQL's text can't hold all of them.

-- Facts about the store itself; `format` is the version of these tables.
CREATE TABLE store (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- One row for each session. `ended` is 1 when it was closed and 2 when it was erased. `turn` is the running turn's number;
-- a turn may write while turn = fence. `lease_until` is in seconds by this server's clock, `lease_s` for how long the
-- lease was given: a server that takes over may have another time. `head` is the last seq and
-- `position` the last journal row; `journal` is the position at which the running turn started. `origin` is the seq after
-- which its own entries begin, more than 0 if it shares the past of another, whose id `parent` is. `base` is the seq of the entry that a load
-- begins with, 0 for the first one. `stamp` is that of the transaction that wrote the row last: whoever remembers it knows
-- whether anything has changed, and whether a commit whose answer was lost was done. `listed_at` and `unread` are what its row
-- in `activity` says. No index has a column of it that changes, so that an update touches no index (HOT).
CREATE TABLE session (
    tenant      bytea    NOT NULL,
    id          uuid     NOT NULL,
    key         bytea,
    epoch       bigint   NOT NULL CHECK (epoch >= 1),
    ended       smallint NOT NULL DEFAULT 0,
    head        bigint   NOT NULL,
    fence       bigint   NOT NULL,
    turn        bigint   CHECK (turn <= fence),
    holder      bytea,
    lease_until double precision,
    position    bigint   NOT NULL DEFAULT 0,
    journal     bigint   NOT NULL DEFAULT 0,
    base        bigint   NOT NULL DEFAULT 0,
    origin      bigint   NOT NULL DEFAULT 0,
    opened_at   bigint   NOT NULL,
    listed_at   bigint   NOT NULL,
    last_at     bigint   NOT NULL,
    stamp       bigint   NOT NULL,
    unread      boolean  NOT NULL DEFAULT true,
    lease_s     double precision,
    parent      uuid,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE INDEX session_by_id ON session (id);
CREATE INDEX session_forks ON session (tenant, parent) WHERE parent IS NOT NULL;

-- What lists are made from: one row for each session, apart from it because indexes need it sorted in several ways. `state` is
-- 0 when it is open, 1 when a turn runs in it, 2 when it has ended, 3 when it was erased. `active_at` is the time of its last turn or message, to the
-- second. It is `unread` from when entries are added until a search has read their words.
CREATE TABLE activity (
    tenant    bytea    NOT NULL,
    session   uuid     NOT NULL,
    key       bytea,
    state     smallint NOT NULL,
    active_at bigint   NOT NULL,
    unread    boolean  NOT NULL,
    PRIMARY KEY (tenant, session)
);
CREATE INDEX activity_by_state ON activity (tenant, state, active_at, session);
CREATE INDEX activity_by_key ON activity (tenant, key, active_at, session) WHERE key IS NOT NULL;
CREATE INDEX activity_latest ON activity (active_at);
CREATE INDEX activity_unread ON activity (tenant, session) WHERE unread;

-- The current session of each key.
CREATE TABLE binding (
    tenant  bytea  NOT NULL,
    key     bytea  NOT NULL,
    session uuid   NOT NULL,
    epoch   bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- The entries of all logs. If `parted`, large parts were cut out of the body: they are in `blob`.
CREATE TABLE entry (
    tenant  bytea   NOT NULL,
    session uuid    NOT NULL,
    seq     bigint  NOT NULL CHECK (seq >= 1),
    kind    text    NOT NULL,
    turn    bigint,
    id      bytea   NOT NULL,
    at      bigint  NOT NULL,
    note    bytea   NOT NULL,
    body    bytea   NOT NULL,
    parted  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, session, seq)
);
CREATE INDEX entry_labels ON entry (tenant, session, seq) WHERE kind = 'label';

-- Large parts of payloads, once for each content in a session; `name` is the beginning of their SHA-256, `digest` all of it.
CREATE TABLE blob (
    tenant  bytea  NOT NULL,
    session uuid   NOT NULL,
    name    bigint NOT NULL,
    digest  bytea  NOT NULL,
    body    bytea  NOT NULL,
    PRIMARY KEY (tenant, session, name)
);

-- What is being said: chunks of messages that are not finished. They go with the end of their turn.
CREATE TABLE journal (
    tenant   bytea  NOT NULL,
    session  uuid   NOT NULL,
    position bigint NOT NULL,
    turn     bigint NOT NULL,
    message  bytea  NOT NULL,
    idx      bigint NOT NULL,
    body     bytea  NOT NULL,
    PRIMARY KEY (tenant, session, position)
);

-- Accepted messages that no turn has taken yet. `waiter` is the live caller that a message waits with, for as long as its
-- lease runs; it is kept as that of a turn is. An id begins with its time, so the index has
-- them oldest first.
CREATE TABLE inbox (
    tenant  bytea  NOT NULL,
    session uuid   NOT NULL,
    seq     bigint NOT NULL,
    message bytea  NOT NULL,
    waiter  bytea,
    lease_s     double precision,
    lease_until double precision,
    PRIMARY KEY (tenant, session, seq)
);
CREATE INDEX inbox_by_age ON inbox (tenant, message, session, seq);

-- Replies that are owed to somebody, from the end of their turn until their sending is confirmed. While `claim_until`, in
-- seconds by this server's clock, has not come, one sender has it, whose token is `claim`.
CREATE TABLE outbox (
    tenant      bytea  NOT NULL,
    session     uuid   NOT NULL,
    id          bytea  NOT NULL,
    turn        bigint NOT NULL,
    reply_to    bytea  NOT NULL,
    at          bigint NOT NULL,
    claim       bytea,
    claim_until double precision,
    PRIMARY KEY (tenant, session, id)
);
CREATE INDEX outbox_by_age ON outbox (tenant, at, session, turn, id);

-- Inbound events that were accepted: the same one is accepted once, until its session is forgotten by a retention. `name`
-- is a digest of the scope, which names the tenant, and of the event id.
CREATE TABLE event (
    name    bytea  PRIMARY KEY,
    session uuid   NOT NULL,
    seq     bigint NOT NULL,
    message bytea  NOT NULL
);
CREATE INDEX event_by_session ON event (session);

-- The words of messages, for searching: derived from the log, filled by whoever searches, never by a commit (I-17).
-- `lexemes` has each word once, and facets, which have a colon in them: role, tool, whether it is partial. Each begins with a
-- few characters that stand for the tenant, so that the index finds the words of one tenant among those of all.
CREATE TABLE words (
    tenant  bytea    NOT NULL,
    session uuid     NOT NULL,
    seq     bigint   NOT NULL,
    at      bigint   NOT NULL,
    lexemes tsvector NOT NULL,
    PRIMARY KEY (tenant, session, seq)
);
CREATE INDEX words_lexemes ON words USING gin (lexemes);
CREATE INDEX words_by_time ON words (tenant, at, session, seq);

-- How far the words of each session were read. Who has read them and who erases them both move it, and one of the two finds it
-- moved, so that what is erased never comes back.
CREATE TABLE mark (
    tenant  bytea  NOT NULL,
    session uuid   NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (tenant, session)
);

-- A session as of this moment, with what is left of its lease. A time that may change while a statement runs would keep the
-- planner from looking for one session alone, and other databases from planning it at all.
CREATE VIEW session_state AS
SELECT tenant, id, key, epoch, ended, head, fence, turn, holder, position, journal, base, origin, opened_at,
       listed_at AS active_at, last_at, stamp, parent, lease_s, lease_until,
       lease_until - extract(epoch FROM statement_timestamp())::double precision AS lease_left
FROM session;

-- For people who look by hand.
CREATE VIEW transcript AS
SELECT convert_from(session.tenant, 'UTF8') AS tenant, session.id AS session, convert_from(session.key, 'UTF8') AS key,
       entry.seq, entry.turn,
       CASE WHEN entry.note = '' THEN 'user' ELSE convert_from(entry.note, 'UTF8')::json ->> 'role' END AS role,
       convert_from(entry.body, 'UTF8') AS payload,
       to_timestamp(entry.at / 1000.0) AS at
FROM entry JOIN session ON session.tenant = entry.tenant AND session.id = entry.session
WHERE entry.kind = 'message' AND NOT entry.parted;
