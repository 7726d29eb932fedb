//! What is durable of a thread, as plain data. The store writes and reads these; the engine decides them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::error::ErrorRecord;
use super::execution::RunStatus;
use super::ids::{
    ChannelName, CheckpointId, Digest, EffectName, InstructionId, InterruptId, NodeId, RunId, TaskId,
    Timestamp,
};
use super::interrupt::InterruptKind;
use super::journal::{EffectOutcome, Entry};
use super::json::{Json, present};

/// The number of the boundary that wrote a channel's value; unique in its thread, and growing.
pub type Version = i64;

/// One run, or one child run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    pub run: RunId,
    /// The run and task that started this one; `None` at the root.
    pub parent: Option<(RunId, TaskId)>,
    pub graph: Digest,
    /// The path of subgraph nodes from the root.
    pub namespace: Vec<String>,
    /// The sub-agent that the parent's graph names here.
    pub agent: Option<String>,
    /// Of a child run: the channels that it was given, and the version that they have.
    pub given: BTreeMap<ChannelName, Version>,
    /// Of a child run: its latest checkpoint. That of a root run is its thread's head.
    pub head: Option<CheckpointId>,
    /// What this run was told to stop at, beside what its graph says.
    pub gates: Gates,
    pub status: RunStatus,
    pub error: Option<ErrorRecord>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// Nodes to stop at: before they run, or before their updates count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gates {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub before: BTreeSet<NodeId>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub after: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Ends a step: channels as they are folded, and what runs next.
    Boundary,
    /// Changes no channel: shows how far the tasks of `boundary` are.
    Pause { boundary: CheckpointId },
}

/// One state of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointRow {
    pub checkpoint: CheckpointId,
    /// The one before, which may be pruned; of a fork's first, that which it was made from in another thread.
    pub parent: Option<CheckpointId>,
    pub run: RunId,
    pub kind: CheckpointKind,
    /// Counts the run's steps from 0; a pause has its boundary's.
    pub step: u32,
    /// The boundary's own number, which its channel versions bear; a pause has its boundary's.
    pub version: Version,
    /// Of a boundary; empty for a pause, which has its boundary's.
    pub plan: Plan,
    /// For each channel that was ever written, the version that holds its value; as `plan`.
    pub channels: BTreeMap<ChannelName, Version>,
    pub status: RunStatus,
    pub created_at: Timestamp,
}

/// The tasks of a boundary's next step, and what waits for more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub tasks: Vec<PlannedTask>,
    /// Of edges that wait for several nodes: the edge's place in the graph, and those that are there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrived: BTreeMap<usize, Vec<NodeId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    pub node: NodeId,
    /// Of a `send`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub arg: Option<Json>,
}

/// How one channel changed at a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRow {
    pub channel: ChannelName,
    pub version: Version,
    pub value: ChannelValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelValue {
    Whole(Json),
    /// The text between the brackets of an array, to be put behind what `after` holds (`None`: first).
    Appended {
        text: String,
        after: Option<Version>,
    },
}

impl ChannelValue {
    /// What it takes to keep it.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Whole(value) => value.as_str().len() as u64,
            Self::Appended { text, .. } => text.len() as u64,
        }
    }
}

/// How far one task is.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    pub task: TaskId,
    pub run: RunId,
    pub boundary: CheckpointId,
    /// Its place in the boundary's plan.
    pub index: usize,
    pub node: NodeId,
    /// What runs: a component, or a subgraph.
    pub component: Digest,
    /// The child run, once a subgraph's is started.
    pub child: Option<RunId>,
    /// How often it was instantiated so far.
    pub attempts: u32,
    /// Grows whenever it is begun anew, so that what it asks then has new ids.
    pub generation: u32,
    /// Of the determinism settings that its journal was written under.
    pub settings: i64,
    /// Failures that may pass, since a person last said to try again.
    pub failures: u32,
    pub state: TaskState,
}

impl TaskRow {
    /// Planned at a boundary of a run, and not begun.
    pub fn fresh(
        (run, boundary): (RunId, CheckpointId),
        (index, node): (usize, &NodeId),
        (component, settings): (Digest, i64),
    ) -> Self {
        Self {
            task: TaskId::derive(boundary, index, node),
            run,
            boundary,
            index,
            node: node.clone(),
            component,
            child: None,
            attempts: 0,
            generation: 0,
            settings,
            failures: 0,
            state: TaskState::Started,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// It was started, and its process may have died since.
    Started,
    /// It waits for answers.
    Paused,
    /// Its update is held until the step ends.
    Finished(Finish),
    Failed(ErrorRecord),
}

/// What a finished task hands to the fold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// By channel, in the channels' order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub update: Vec<(ChannelName, Json)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Routed>,
    /// It failed with this, and the graph says which node takes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
}

/// A route after its label was looked up; `None` is the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routed {
    Go(Option<NodeId>),
    Send(NodeId, Json),
}

/// One entry of a task's journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalRow {
    pub task: TaskId,
    pub index: usize,
    pub entry: Entry,
}

/// One question, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct InterruptRow {
    pub interrupt: InterruptId,
    pub run: RunId,
    pub task: TaskId,
    pub node: NodeId,
    pub boundary: CheckpointId,
    /// The pause that showed it first.
    pub checkpoint: CheckpointId,
    pub kind: InterruptKind,
    pub order: usize,
    /// The journal entry that asked, and the question's place in it.
    pub entry: usize,
    pub place: usize,
    pub payload: Json,
    pub answer_schema: Option<Json>,
    pub asked_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub default_answer: Option<Json>,
    pub state: InterruptState,
}

impl InterruptRow {
    /// What a task asks now; a pause shows it first.
    pub fn fresh(
        task: &TaskRow,
        (checkpoint, asked_at): (CheckpointId, Timestamp),
        kind: InterruptKind,
        (order, entry, place): (usize, usize, usize),
        payload: Json,
    ) -> Self {
        // The node's own questions are counted by their order alone.
        let counted = if kind == InterruptKind::Node { 0 } else { place };
        Self {
            interrupt: InterruptId::derive(task.task, kind.as_str(), (order, counted), task.generation),
            run: task.run,
            task: task.task,
            node: task.node.clone(),
            boundary: task.boundary,
            checkpoint,
            kind,
            order,
            entry,
            place,
            payload,
            answer_schema: None,
            asked_at,
            expires_at: None,
            default_answer: None,
            state: InterruptState::Pending,
        }
    }

    /// Whether its time is over while nobody has answered: from then on only its expiry counts.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.state == InterruptState::Pending && self.expires_at.is_some_and(|at| at <= now)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum InterruptState {
    Pending,
    Answered(Answer),
    /// It will not be answered any more.
    Withdrawn(Withdrawal),
}

/// An answer, given once.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub value: Json,
    pub at: Timestamp,
    pub by: Option<String>,
    /// Where it was not given to this question by its id: what it came with.
    pub reason: Option<String>,
}

/// Why a question takes no answer any more, and by whose doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    pub at: Timestamp,
    pub by: Option<String>,
    pub reason: String,
}

impl Withdrawal {
    pub fn new(at: Timestamp, by: Option<&str>, reason: impl Into<String>) -> Self {
        Self { at, by: by.map(str::to_owned), reason: reason.into() }
    }
}

/// What a person added beside an answer, or to a live run; never an answer itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SteeringRow {
    pub run: RunId,
    pub id: InstructionId,
    /// For whom; `None`: every task of the run.
    pub task: Option<TaskId>,
    /// The question that it came with an answer to.
    pub interrupt: Option<InterruptId>,
    /// Who said it, as far as the host knows; may be empty.
    pub actor: String,
    pub text: String,
    pub at: Timestamp,
    /// When a node was first told; until then it is pending.
    pub delivered_at: Option<Timestamp>,
}

/// New input that waits until its thread is free.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedInput {
    pub graph: Digest,
    /// An object from channels to values, held to the graph already.
    pub input: Json,
    pub gates: Gates,
    pub at: Timestamp,
}

/// Whose key an effect has: what one node of one thread asks under one name and key, it asks once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectScope {
    /// The node with the subgraph nodes above it, from the root, joined by `/`.
    pub node: String,
    pub effect: EffectName,
    pub key: String,
}

/// An effect under its key, whoever asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectRow {
    pub scope: EffectScope,
    /// Of the input: another input under the same key is a conflict.
    pub input: Digest,
    /// Who asked first.
    pub task: TaskId,
    pub state: EffectState,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectState {
    /// It may have been sent.
    Intended,
    Known(EffectOutcome),
}
