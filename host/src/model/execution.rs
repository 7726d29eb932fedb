//! What a caller gets back.

use serde::{Deserialize, Serialize};

use super::error::ErrorRecord;
use super::ids::{CheckpointId, RunId, ThreadId};
use super::interrupt::PendingInterrupt;

/// How a run stands when the host hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Somebody works on it, or died while working on it.
    Running,
    Completed,
    /// Questions are pending.
    Interrupted,
    Failed,
    /// A replay did not fit its journal.
    Diverged,
    Cancelled,
}

impl RunStatus {
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Completed, Self::Interrupted, Self::Failed, Self::Diverged, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Diverged => "diverged",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// What came of one invocation. An interrupted one is handed out only after everything that its
/// resume needs is durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    pub thread: Option<ThreadId>,
    pub run_id: RunId,
    /// The checkpoint that this is the picture of; `None` without durability.
    pub checkpoint_id: Option<CheckpointId>,
    pub status: RunStatus,
    /// What is pending, in task order and then in the order asked.
    pub interrupts: Vec<PendingInterrupt>,
    pub error: Option<ErrorRecord>,
}
