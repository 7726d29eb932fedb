//! Questions: what a task asks, and how one is shown while it waits.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{CheckpointId, InterruptId, NodeId, RunId, TaskId, Timestamp};
use super::json::{Json, present};

/// A question that a task asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    pub id: InterruptId,
    pub node: NodeId,
    pub task_id: TaskId,
    /// What the person sees.
    pub payload: Value,
    /// Counts the node's own questions from 0.
    pub order: usize,
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptKind {
    /// The node, through `interrupt` or `interrupt-all`.
    Node,
    /// The graph, before the node runs.
    Before,
    /// The graph, before the node's update counts.
    After,
    /// The host, before it sends an effect.
    Approve,
    /// The host, after a crash between sending an effect and knowing how it went.
    InDoubt,
}

impl InterruptKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Before => "before",
            Self::After => "after",
            Self::Approve => "approve",
            Self::InDoubt => "in-doubt",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Node, Self::Before, Self::After, Self::Approve, Self::InDoubt]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }

    /// A gate is passed, not answered.
    pub fn is_gate(self) -> bool {
        matches!(self, Self::Before | Self::After)
    }
}

/// An interrupt with everything that a caller wants to know of it while it is pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingInterrupt {
    #[serde(flatten)]
    pub interrupt: Interrupt,
    pub kind: InterruptKind,
    /// The path of subgraph nodes from the root.
    pub namespace: Vec<String>,
    /// The run tree from the root run to the one that asks.
    pub run_path: Vec<RunId>,
    /// The sub-agent that the graph names for this namespace.
    pub agent: Option<String>,
    /// The pause that shows this question.
    pub checkpoint_id: CheckpointId,
    pub answer_schema: Option<Value>,
    pub expires_at: Option<Timestamp>,
}

/// What a node asks, checked and canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub payload: Json,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after_ms: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub default_answer: Option<Json>,
}
