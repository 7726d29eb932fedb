//! What a caller can ask of a thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

use super::ids::{CheckpointId, InterruptId, RunId, TaskId, ThreadId};

/// On which thread, if any, a graph is run.
#[derive(Clone, Debug, Default)]
pub struct RunConfig {
    pub thread: Option<String>,
    /// Nodes that this run stops before, beside those that the graph names. Only a start reads it.
    pub interrupt_before: Vec<String>,
    /// Nodes whose updates this run holds back until somebody lets them pass.
    pub interrupt_after: Vec<String>,
    /// What becomes of new input where the thread is paused or running. Only a start reads it.
    pub if_busy: IfBusy,
    /// The id that the run will have, if the caller needs to know it before: whether a run of this id is
    /// there says whether it was started. Input that waits its turn does not keep it.
    pub run_id: Option<RunId>,
    /// The state that new input is put into, if it is not the thread's latest: see `Host::rewind`. Only a start
    /// reads it; input that waits its turn does not keep it.
    pub from: Option<CheckpointId>,
}

/// What becomes of new input on a thread that is paused or running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfBusy {
    #[default]
    Refuse,
    /// It waits, and is started when the run is over.
    Enqueue,
    /// The run is called off: its questions are withdrawn, and late answers to them are stale.
    Supersede,
}

impl RunConfig {
    /// A durable line of state under a name of the caller's. Interrupts need one.
    pub fn thread(id: impl Into<String>) -> Self {
        Self { thread: Some(id.into()), ..Self::default() }
    }

    /// Without a thread: nothing is kept, and an interrupt fails the run.
    pub fn fleeting() -> Self {
        Self::default()
    }

    /// Stop before this node runs, for one run.
    pub fn interrupt_before(mut self, node: impl Into<String>) -> Self {
        self.interrupt_before.push(node.into());
        self
    }

    /// Stop before this node's update counts, for one run.
    pub fn interrupt_after(mut self, node: impl Into<String>) -> Self {
        self.interrupt_after.push(node.into());
        self
    }

    /// What becomes of the input if the thread is paused or running.
    pub fn if_busy(mut self, policy: IfBusy) -> Self {
        self.if_busy = policy;
        self
    }

    /// The id that the run will have.
    pub fn run_id(mut self, run: RunId) -> Self {
        self.run_id = Some(run);
        self
    }

    /// The state that new input is put into.
    pub fn from(mut self, checkpoint: CheckpointId) -> Self {
        self.from = Some(checkpoint);
        self
    }

    /// The thread's name, if it has one and it is one.
    pub fn thread_id(&self) -> Option<Result<ThreadId, super::ids::InvalidName>> {
        self.thread.clone().map(ThreadId::parse)
    }
}

/// What to resume with. Which it is is said by the caller and never guessed from a value's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub resume: Resume,
    /// Who answers; recorded with the answer.
    pub actor: Option<String>,
    /// What to tell the node beside the answer; recorded apart from it.
    pub steer: Option<String>,
    /// Refuse unless this is the thread's latest checkpoint.
    pub expect_checkpoint: Option<CheckpointId>,
    /// The same request sent twice gets the first reply twice.
    pub request_id: Option<String>,
    /// What becomes of what is pending in the children of the run that is answered.
    pub pending_children: PendingChildren,
}

/// What becomes of the questions of child runs when their parent's is answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PendingChildren {
    /// They stay.
    #[default]
    Leave,
    /// The children are called off: their tasks fail as cancelled.
    Cancel,
    /// This answers each of them.
    Resolve(Value),
    /// Nothing is answered while there are any.
    Refuse,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Resume {
    /// One answer to the one question that the target leaves.
    Value(Value),
    /// Answers by interrupt id, all or none.
    Answers(BTreeMap<InterruptId, Value>),
    /// Pass the one gate that the target leaves.
    Proceed,
}

impl Command {
    /// Answer the one pending question.
    pub fn resume(value: impl Into<Value>) -> Self {
        Self::of(Resume::Value(value.into()))
    }

    /// Answer several questions by their ids.
    pub fn answers(answers: impl IntoIterator<Item = (InterruptId, Value)>) -> Self {
        Self::of(Resume::Answers(answers.into_iter().collect()))
    }

    /// Pass a gate.
    pub fn proceed() -> Self {
        Self::of(Resume::Proceed)
    }

    fn of(resume: Resume) -> Self {
        Self {
            resume,
            actor: None,
            steer: None,
            expect_checkpoint: None,
            request_id: None,
            pending_children: PendingChildren::Leave,
        }
    }

    /// Who answers.
    pub fn by(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Tells the node something beside the answer.
    pub fn steer(mut self, text: impl Into<String>) -> Self {
        self.steer = Some(text.into());
        self
    }

    /// Refuse unless this is the thread's latest checkpoint.
    pub fn expecting(mut self, checkpoint: CheckpointId) -> Self {
        self.expect_checkpoint = Some(checkpoint);
        self
    }

    /// What becomes of what is pending in the children of the run that is answered.
    pub fn pending_children(mut self, policy: PendingChildren) -> Self {
        self.pending_children = policy;
        self
    }

    /// Repeat the first reply if this request was already carried out.
    pub fn request(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }
}

/// What a command is for. Each part narrows; all must agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeTarget {
    /// The run that asks, or any of its ancestors.
    pub run_id: RunId,
    #[serde(default)]
    pub task_id: Option<TaskId>,
    #[serde(default)]
    pub interrupt_id: Option<InterruptId>,
    /// The path of subgraph nodes from the root; empty: anywhere.
    #[serde(default)]
    pub namespace: Vec<String>,
}

impl ResumeTarget {
    pub fn run(run_id: RunId) -> Self {
        Self { run_id, task_id: None, interrupt_id: None, namespace: Vec::new() }
    }

    pub fn task(mut self, task_id: TaskId) -> Self {
        self.task_id = Some(task_id);
        self
    }

    /// The path of subgraph nodes from the root.
    pub fn namespace(mut self, path: &[&str]) -> Self {
        self.namespace = path.iter().map(|&node| node.into()).collect();
        self
    }

    pub fn interrupt(mut self, interrupt_id: InterruptId) -> Self {
        self.interrupt_id = Some(interrupt_id);
        self
    }
}
