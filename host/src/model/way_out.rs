//! What there is to do about a refusal, as a thing and not in words: the command line has a command for it, HTTP a
//! route, and an embedder a call. So a message names none of them, and whoever shows it says the way in their words.

use super::ids::{CheckpointId, TaskId, ThreadId};

/// What whoever was refused can do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// Look which threads there are.
    Threads,
    /// Look what waits for an answer.
    Pending,
    /// Look which checkpoints a thread has.
    Checkpoints { thread: ThreadId },
    /// Go on from this state on another thread.
    Fork { thread: ThreadId, checkpoint: CheckpointId },
    /// The same, from a state before.
    ForkEarlier { thread: ThreadId },
    /// Go on with a run whose process died, or whose question has expired.
    Continue { thread: ThreadId },
    /// Have new input wait until the run is over, or take its place.
    Queue,
    /// Delete the thread though it runs.
    DeleteRunning,
    /// Have a task begin anew from an entry of its journal, or this one from the first.
    CutJournal { task: Option<TaskId> },
    /// Install a component, so that its digest names one.
    Install,
    /// Build a component from a node's source.
    Build,
    /// Have whoever runs the host open an address.
    Open { authority: String },
    /// Have them give the tenant a secret.
    GiveSecret { name: String },
}
