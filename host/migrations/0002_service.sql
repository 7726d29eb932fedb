-- What the service keeps beside the threads: who may call it, what is deployed under which name, and the
-- calls that it accepted. Conventions as in the first migration; a thread is named here, not numbered,
-- because it may be created before its first run.

-- Keys: the part that is secret is kept as its hash only.
CREATE TABLE keys (
    tenant     INTEGER NOT NULL REFERENCES tenants,
    key        BLOB    NOT NULL UNIQUE,  -- the public half
    hash       BLOB    NOT NULL,         -- SHA-256 of the secret half, which has 256 random bits
    name       TEXT    NOT NULL,         -- whose it is; recorded with what is done with it
    scopes     TEXT    NOT NULL,         -- JSON: of admin, deploy, run, answer
    only_for   TEXT    NOT NULL,         -- JSON: the graphs, nodes, agents whose questions it may answer
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Graphs under their names: which digest a name stands for now.
CREATE TABLE deployments (
    tenant     INTEGER NOT NULL REFERENCES tenants,
    name       TEXT    NOT NULL,
    graph      BLOB    NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name),
    FOREIGN KEY (tenant, graph) REFERENCES graphs (tenant, digest)
) STRICT, WITHOUT ROWID;

-- Assistants: a deployed graph as the field's clients name one.
CREATE TABLE assistants (
    tenant      INTEGER NOT NULL REFERENCES tenants,
    assistant   BLOB    NOT NULL,
    graph       TEXT    NOT NULL,        -- the name that it is deployed under
    name        TEXT    NOT NULL,
    description TEXT,
    config      TEXT    NOT NULL,        -- JSON
    context     TEXT    NOT NULL,        -- JSON
    metadata    TEXT    NOT NULL,        -- JSON
    version     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, assistant),
    FOREIGN KEY (tenant, graph) REFERENCES deployments (tenant, name)
) STRICT;

-- What a client says about a thread; also of one that has not run yet.
CREATE TABLE thread_notes (
    tenant     INTEGER NOT NULL REFERENCES tenants,
    thread     TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,         -- JSON
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread)
) STRICT;

-- Calls on threads that were accepted: a start, an answer, a word to go on. What stands here as pending or
-- running is carried out, by this process or the next.
CREATE TABLE invocations (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL REFERENCES tenants,
    invocation BLOB    NOT NULL,
    thread     TEXT    NOT NULL,
    assistant  BLOB    NOT NULL,
    ask        TEXT    NOT NULL,         -- JSON: what is to be done
    strategy   TEXT    NOT NULL,         -- what becomes of it where the thread is not free
    actor      TEXT,                     -- whose key it came with
    metadata   TEXT    NOT NULL,         -- JSON
    webhook    TEXT,                     -- who is told when it is over
    status     TEXT    NOT NULL
        CHECK (status IN ('pending', 'running', 'success', 'error', 'interrupted')),
    run        BLOB,                     -- the run that it started or went on with, once that is known
    error      TEXT,                     -- JSON
    from_seq   INTEGER,                  -- the thread's checkpoints after this one are its own,
    to_seq     INTEGER,                  -- up to this one
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (tenant, invocation),
    CHECK ((status = 'pending') <= (from_seq IS NULL)),
    CHECK (status NOT IN ('pending', 'running') OR to_seq IS NULL)
) STRICT;

CREATE INDEX invocations_by_thread ON invocations (tenant, thread, seq);
CREATE INDEX invocations_open ON invocations (seq) WHERE status IN ('pending', 'running');

-- What is to be told to others, until they have taken it.
CREATE TABLE deliveries (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL REFERENCES tenants,
    thread     TEXT    NOT NULL,         -- in order within one thread
    delivery   BLOB    NOT NULL,         -- names it, so that a receiver knows one that comes twice
    url        TEXT    NOT NULL,
    body       TEXT    NOT NULL,         -- JSON
    attempts   INTEGER NOT NULL,
    next_at    INTEGER NOT NULL,
    error      TEXT,                     -- why the last attempt did not arrive
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX deliveries_by_thread ON deliveries (tenant, thread, seq);

-- What an operator sets for one tenant.
CREATE TABLE tenant_settings (
    tenant         INTEGER PRIMARY KEY REFERENCES tenants,
    quotas         TEXT    NOT NULL,     -- JSON
    webhook        TEXT,                 -- who is told of every question that waits
    webhook_secret BLOB    NOT NULL      -- signs what is told; 32 bytes
) STRICT;
