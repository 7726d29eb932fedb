//! The kinds of error, the same in Rust, in documents and over HTTP, and the record of one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ids::{CheckpointId, RunId};
use super::interrupt::PendingInterrupt;
use super::way_out::WayOut;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// What went wrong, as one word that programs can rely on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $text)] $name),* }
        impl Kind {
            pub fn as_str(self) -> &'static str { match self { $(Self::$name => $text),* } }
        }
    };
}

kinds! {
    /// An interrupt without the durability that its resume needs.
    Resume = "resume",
    /// One value, and several questions that it could be for.
    Ambiguous = "ambiguous",
    NotPending = "not-pending",
    /// The target was right once; the thread has moved on.
    Stale = "stale",
    /// An answer that its question's schema does not take.
    Schema = "schema",
    GateTakesNoValue = "gate-takes-no-value",
    /// A replay that did not do again what was done before.
    Diverged = "diverged",
    Limit = "limit",
    Trap = "trap",
    NodeFailed = "node-failed",
    /// A name that the node did not declare or was not granted.
    Undeclared = "undeclared",
    Denied = "denied",
    KeyConflict = "key-conflict",
    InDoubt = "in-doubt",
    Expired = "expired",
    /// Somebody called it off.
    Cancelled = "cancelled",
    /// It was there once, and its thread was pruned since.
    Pruned = "pruned",
    /// Determinism settings or the engine changed under a paused task.
    EngineMismatch = "engine-mismatch",
    /// Somebody else runs this thread, or it waits for something else.
    Busy = "busy",
    NotFound = "not-found",
    Invalid = "invalid",
    Store = "store",
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as it is recorded with a task or a run, and shown to whoever asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorRecord {
    pub kind: Kind,
    /// One sentence: what, which, the limit, the way out. It names no command and no route: see [`WayOut`].
    pub message: String,
    /// The kind's own particulars: `limit` and `value`, `index`, `expected` and `actual`, `frames`, …
    #[serde(flatten)]
    pub more: Map<String, Value>,
    /// What there is to do about it, of a refusal. It is for whoever is refused, and kept with nothing.
    #[serde(skip)]
    pub ways_out: Vec<WayOut>,
}

impl ErrorRecord {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), more: Map::new(), ways_out: Vec::new() }
    }

    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.into(), value.into());
        self
    }

    pub fn way_out(mut self, way: WayOut) -> Self {
        self.ways_out.push(way);
        self
    }

    /// `name` is the field of [`super::limits::Limits`].
    pub fn limit(name: &str, limit: u64, message: impl Into<String>) -> Self {
        Self::new(Kind::Limit, message).with("limit", name).with("value", limit)
    }
}

impl std::fmt::Display for ErrorRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// The caller asked for something that does not fit the thread as it is. Nothing was written,
/// nothing was run, the pause is as it was; here is how it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    pub error: ErrorRecord,
    /// The thread's latest run, if it has one.
    pub run_id: Option<RunId>,
    /// The thread's latest checkpoint, if it has one.
    pub checkpoint_id: Option<CheckpointId>,
    pub step: Option<u32>,
    /// What is pending on the thread now.
    pub pending: Vec<PendingInterrupt>,
}

impl Refused {
    /// About no thread in particular, or one that is not there.
    pub fn plain(kind: Kind, message: impl Into<String>) -> Self {
        Self::of(ErrorRecord::new(kind, message))
    }

    /// Likewise, with more particulars than a kind.
    pub fn of(error: ErrorRecord) -> Self {
        Self { error, run_id: None, checkpoint_id: None, step: None, pending: Vec::new() }
    }
}
