//! What those who watch a run are shown while it goes on. Provisional: nothing of it need be durable.

use crate::model::ids::{TaskId, TenantId, ThreadId};
use crate::model::json::Json;
use crate::sandbox::LogLevel;

/// `node`: with the subgraph nodes above it, from the root, joined by `/`.
#[derive(Debug)]
pub enum Watched<'a> {
    /// A component has no compiled artifact yet; this may take seconds.
    Compiling {
        name: &'a str,
        bytes: usize,
    },
    Step {
        step: u32,
        tasks: usize,
    },
    TaskStarted {
        node: &'a str,
        task: TaskId,
        attempt: u32,
    },
    /// `how`: finished, paused, failed or diverged.
    TaskEnded {
        node: &'a str,
        task: TaskId,
        how: &'static str,
    },
    Log {
        node: &'a str,
        task: TaskId,
        level: LogLevel,
        message: &'a str,
    },
    /// What a node said for those who watch; provisional, and said again by another attempt.
    Emitted {
        tenant: &'a TenantId,
        thread: Option<&'a ThreadId>,
        node: &'a str,
        task: TaskId,
        attempt: u32,
        event: Json,
    },
}

/// Called from whatever thread a task runs on; it must not block.
pub type Watcher = std::sync::Arc<dyn Fn(&Watched<'_>) + Send + Sync>;
