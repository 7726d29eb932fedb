-- Holdpoint's database, whole. One file holds everything that a thread needs to go on.
--
-- Conventions
--   * Ids (run, task, checkpoint, interrupt) are UUIDs as 16-byte blobs; digests are SHA-256, 32 bytes.
--   * Times are milliseconds since the Unix epoch.
--   * JSON is UTF-8 text in canonical form (sorted keys, no white space, numbers as written).
--   * The tenant is part of every key. A thread's number belongs to one tenant, so a key that starts
--     with the thread says the tenant too; what is looked up by an id alone has the tenant in front,
--     because an id grants nothing.
--   * A table whose rows can be large (text of a node's making) keeps its rowid: SQLite then stores up
--     to a page of a row in place, where a WITHOUT ROWID table moves all above a quarter of a page to
--     pages of their own. Small rows are WITHOUT ROWID.
--   * `seq` is an order of insertion. It tells older from newer without trusting a clock.
--   * Nothing stored is ever executed, but components, which are checked against their digest.

CREATE TABLE tenants (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- Whoever names no tenant is this one. Others appear when something is first written for them.
INSERT INTO tenants (name) VALUES ('default');

-- Installed components. Kept by tenant, also where two have the same bytes: a digest grants nothing.
CREATE TABLE components (
    tenant       INTEGER NOT NULL REFERENCES tenants,
    digest       BLOB    NOT NULL,
    info         TEXT    NOT NULL,   -- JSON: what the component says it needs
    size         INTEGER NOT NULL,
    installed_at INTEGER NOT NULL,
    bytes        BLOB    NOT NULL,   -- last, so that the columns before it are read without it
    PRIMARY KEY (tenant, digest)
) STRICT;

-- Compiled graphs. A run is pinned to one, and through it to the digests of its components.
CREATE TABLE graphs (
    tenant     INTEGER NOT NULL REFERENCES tenants,
    digest     BLOB    NOT NULL,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    graph      TEXT    NOT NULL,     -- JSON; its SHA-256 is the digest
    PRIMARY KEY (tenant, digest)
) STRICT;

-- Threads: the one row that every change of a thread is guarded by.
CREATE TABLE threads (
    thread     INTEGER PRIMARY KEY,  -- compact, since it stands in the key of every row below
    tenant     INTEGER NOT NULL REFERENCES tenants,
    name       TEXT    NOT NULL,     -- what its caller calls it
    secret     BLOB    NOT NULL,     -- 32 bytes: seeds its guests' random numbers; no guest sees it
    -- The compare-and-swap: a batch says which head and epoch it was made for, and goes in only there.
    head       BLOB    NOT NULL,     -- the latest checkpoint
    epoch      INTEGER NOT NULL,     -- grows whenever the right to run the thread changes hands
    owner      BLOB,                 -- the process that runs it now, and how long its word is good
    until      INTEGER,
    status     TEXT    NOT NULL
        CHECK (status IN ('running', 'completed', 'interrupted', 'failed', 'diverged', 'cancelled')),
    run        BLOB    NOT NULL,     -- the latest root run
    version    INTEGER NOT NULL,     -- the highest number that a boundary of this thread ever had
    created_at INTEGER NOT NULL,
    pruned     BLOB,                 -- the latest checkpoint that was dropped; ids are in time order
    UNIQUE (tenant, name),
    CHECK ((owner IS NULL) = (until IS NULL))
) STRICT;

CREATE INDEX threads_by_status ON threads (tenant, status, name);

-- Runs, and child runs under the task that started them.
CREATE TABLE runs (
    tenant      INTEGER NOT NULL,
    run         BLOB    NOT NULL,
    thread      INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    parent_run  BLOB,
    parent_task BLOB,
    graph       BLOB    NOT NULL,
    namespace   TEXT    NOT NULL,    -- JSON: the path of subgraph nodes from the root
    agent       TEXT,                -- the sub-agent that the parent's graph names here
    given       TEXT    NOT NULL,    -- JSON: of a child run, its input: channel to version
    head        BLOB,                -- of a child run, its latest checkpoint; a root run's is its thread's head
    gates       TEXT    NOT NULL,    -- JSON: the nodes that this run stops at, beside those of its graph
    status      TEXT    NOT NULL
        CHECK (status IN ('running', 'completed', 'interrupted', 'failed', 'diverged', 'cancelled')),
    error       TEXT,                -- JSON
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    PRIMARY KEY (tenant, run),
    -- A thread can be resumed from this file alone, so a run whose graph is not here is refused.
    FOREIGN KEY (tenant, graph) REFERENCES graphs (tenant, digest),
    CHECK ((parent_run IS NULL) = (parent_task IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_by_thread ON runs (thread);

-- Checkpoints: the states a thread was in. A boundary ends a step. A pause shows how far the tasks of
-- its boundary are, changes no channel, and so has neither plan nor channels of its own.
CREATE TABLE checkpoints (
    seq        INTEGER PRIMARY KEY,
    thread     INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    checkpoint BLOB    NOT NULL,
    parent     BLOB,                 -- the one before; of a fork's first, one of another thread
    run        BLOB    NOT NULL,
    boundary   BLOB,                 -- of a pause: its boundary
    step       INTEGER NOT NULL,
    version    INTEGER NOT NULL,     -- the boundary's number, which the channel values it wrote bear
    status     TEXT    NOT NULL
        CHECK (status IN ('running', 'completed', 'interrupted', 'failed', 'diverged', 'cancelled')),
    created_at INTEGER NOT NULL,
    plan       TEXT,                 -- JSON: the tasks of the next step, and what waits for more
    channels   TEXT,                 -- JSON: channel to the version that holds its value
    UNIQUE (thread, checkpoint),
    CHECK ((boundary IS NULL) = (plan IS NOT NULL) AND (boundary IS NULL) = (channels IS NOT NULL))
) STRICT;

-- For a page of history; the index ends in `seq`, as every index of a rowid table does.
CREATE INDEX checkpoints_by_thread ON checkpoints (thread);

-- Channel values: one row for each change, so that what a thread stores grows with what it writes.
CREATE TABLE channel_values (
    thread    INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    channel   TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    whole     INTEGER NOT NULL CHECK (whole IN (0, 1)),
    continues INTEGER,               -- of what is not whole: the earlier version it is put behind, if any
    value     TEXT    NOT NULL,      -- whole: a JSON value; else the text between an array's brackets
    PRIMARY KEY (thread, channel, version),
    -- A chain leads back and ends; nothing that follows it can go round.
    CHECK (continues IS NULL OR (whole = 0 AND continues < version))
) STRICT;

-- Tasks: how far each activation of a node is.
CREATE TABLE tasks (
    tenant     INTEGER NOT NULL,
    task       BLOB    NOT NULL,
    thread     INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    run        BLOB    NOT NULL,
    boundary   BLOB    NOT NULL,     -- the checkpoint whose plan it stands in,
    place      INTEGER NOT NULL,     -- and where
    node       TEXT    NOT NULL,
    component  BLOB    NOT NULL,     -- what it runs: a component's digest, or a subgraph's
    child      BLOB,                 -- the child run, once a subgraph's is started
    attempts   INTEGER NOT NULL,
    generation INTEGER NOT NULL,     -- grows whenever it is begun anew
    settings   INTEGER NOT NULL,     -- fingerprint of the determinism settings that its journal was written under
    failures   INTEGER NOT NULL,     -- that may pass, since a person last said to try again
    state      TEXT    NOT NULL CHECK (state IN ('started', 'paused', 'finished', 'failed')),
    outcome    TEXT,                 -- JSON: finished: the held update and the routes; failed: the error
    PRIMARY KEY (tenant, task),
    UNIQUE (thread, boundary, place),
    CHECK ((outcome IS NULL) = (state IN ('started', 'paused')))
) STRICT;

-- Journals: a task's host calls, in order, with what was asked and what is known of the reply.
CREATE TABLE journal (
    tenant     INTEGER NOT NULL,
    task       BLOB    NOT NULL,
    entry      INTEGER NOT NULL,
    call       TEXT    NOT NULL,     -- JSON: the request, which a replay must make again byte for byte
    -- 'answers'   what people said; kept once, in `interrupts`, and put together when it is read
    -- 'begun'     an effect was asked for
    -- 'asked'     a person is asked about an effect; `reply` is the question's kind, the answer is in
    --             `interrupts`
    -- 'known'     `reply` is the effect's outcome, as the guest saw it. It also stands in `effects`, under
    --             a scope that this row does not know; outcomes are small, and a copy keeps each reader
    --             of a journal independent of graphs.
    -- 'retryable' likewise, of an effect that failed and may be sent again by another attempt
    -- 'steering'  `reply` is the instructions that the guest was given
    -- 'attempt'   no call: another attempt begins here, at this time
    reply_kind TEXT    NOT NULL
        CHECK (reply_kind IN ('answers', 'begun', 'asked', 'known', 'retryable', 'steering', 'attempt')),
    reply      TEXT,
    at         INTEGER NOT NULL,     -- of 'answers' and 'asked', the latest answer's time counts if later
    PRIMARY KEY (tenant, task, entry),
    FOREIGN KEY (tenant, task) REFERENCES tasks (tenant, task) ON DELETE CASCADE,
    CHECK ((reply IS NULL) = (reply_kind IN ('answers', 'begun', 'attempt')))
) STRICT;

-- Questions, and what became of each. An answer is given once: only a pending row takes one.
CREATE TABLE interrupts (
    seq            INTEGER PRIMARY KEY,
    tenant         INTEGER NOT NULL,
    interrupt      BLOB    NOT NULL,
    thread         INTEGER NOT NULL,
    run            BLOB    NOT NULL,
    task           BLOB    NOT NULL,
    node           TEXT    NOT NULL,
    boundary       BLOB    NOT NULL,
    checkpoint     BLOB    NOT NULL, -- the pause that showed it first
    kind           TEXT    NOT NULL CHECK (kind IN ('node', 'before', 'after', 'approve', 'in-doubt')),
    asked_order    INTEGER NOT NULL, -- counts the node's own questions from 0
    entry          INTEGER NOT NULL, -- the journal entry that asked,
    place          INTEGER NOT NULL, -- and the question's place in it
    payload        TEXT    NOT NULL, -- JSON
    answer_schema  TEXT,             -- JSON
    asked_at       INTEGER NOT NULL,
    expires_at     INTEGER,
    default_answer TEXT,             -- JSON
    state          TEXT    NOT NULL CHECK (state IN ('pending', 'answered', 'withdrawn')),
    settled_at     INTEGER,          -- when it was answered or withdrawn
    settled_by     TEXT,             -- who answered or withdrew it
    answer         TEXT,             -- JSON
    reason         TEXT,             -- why it was withdrawn, or what an answer to something else came with
    UNIQUE (tenant, interrupt),
    FOREIGN KEY (tenant, task) REFERENCES tasks (tenant, task) ON DELETE CASCADE,
    CHECK ((state = 'pending') = (settled_at IS NULL)),
    CHECK ((state = 'answered') = (answer IS NOT NULL)),
    CHECK (state <> 'pending' OR (settled_by IS NULL AND reason IS NULL)),
    CHECK (state <> 'withdrawn' OR reason IS NOT NULL)
) STRICT;

CREATE INDEX interrupts_by_task ON interrupts (tenant, task, entry, place);
CREATE INDEX interrupts_pending ON interrupts (thread) WHERE state = 'pending';
-- For whoever looks for what is due.
CREATE INDEX interrupts_expiring ON interrupts (expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;

-- What people added beside their answers, or to a live run; never an answer, and recorded apart from them.
CREATE TABLE steering (
    seq       INTEGER PRIMARY KEY,
    thread    INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    run       BLOB    NOT NULL,
    id        BLOB    NOT NULL,      -- tells a row from itself, where one is at hand before it is durable
    task      BLOB,                  -- for whom; NULL: every task of the run
    interrupt BLOB,                  -- the question that it came with an answer to
    actor     TEXT    NOT NULL,      -- who said it, as far as the host knows; may be empty
    text      TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    delivered INTEGER,               -- when a node was first told; NULL: it is pending
    UNIQUE (thread, run, id)
) STRICT;

CREATE INDEX steering_by_run ON steering (thread, run);

-- Effects under their keys: done once, whoever asks again.
CREATE TABLE effects (
    tenant     INTEGER NOT NULL,
    thread     INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    node       TEXT    NOT NULL,
    effect     TEXT    NOT NULL,
    effect_key TEXT    NOT NULL,
    input      BLOB    NOT NULL,     -- digest; another input under this key is a conflict
    task       BLOB    NOT NULL,     -- who asked first
    state      TEXT    NOT NULL CHECK (state IN ('intended', 'known')),
    outcome    TEXT,                 -- JSON
    at         INTEGER NOT NULL,
    PRIMARY KEY (thread, node, effect, effect_key),
    CHECK ((state = 'known') = (outcome IS NOT NULL))
) STRICT;

-- New input that waits until its thread is free, in this order.
CREATE TABLE inputs (
    seq    INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    graph  BLOB    NOT NULL,
    input  TEXT    NOT NULL,         -- JSON: channel to value
    gates  TEXT    NOT NULL,         -- JSON: as those of a run
    at     INTEGER NOT NULL
) STRICT;

CREATE INDEX inputs_by_thread ON inputs (thread);

-- Requests that named themselves, so that one sent twice gets the first reply twice.
CREATE TABLE requests (
    thread  INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
    request TEXT    NOT NULL,
    command BLOB    NOT NULL,        -- digest of what it asked; another command under this name is a mistake
    at      INTEGER NOT NULL,
    reply   TEXT,                    -- JSON; without one it was accepted and is not finished
    PRIMARY KEY (thread, request)
) STRICT;
