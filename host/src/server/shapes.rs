//! The documents of the field's protocol, made from what is stored.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::model::checkpoint::{InterruptRow, InterruptState};
use crate::model::{PendingInterrupt, RunStatus, ThreadId, Timestamp};
use crate::store::{AssistantRow, InvocationRow, ListedThread};

/// To the millisecond, UTC.
pub fn time(at: Timestamp) -> String {
    let since = std::time::Duration::from_millis(at.0.max(0).unsigned_abs());
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since).to_string()
}

/// A thread.
#[derive(Debug, Serialize, ToSchema)]
pub struct Thread {
    pub thread_id: String,
    pub created_at: String,
    pub updated_at: String,
    #[schema(value_type = Object)]
    pub metadata: Value,
    pub status: ThreadStatus,
    #[schema(value_type = Object)]
    pub config: Value,
    /// The channels, as of the end of the latest step; null before the first run.
    #[schema(value_type = Option<Object>)]
    pub values: Value,
    /// What waits for an answer, by the task that asks: a list of `{id, value}`.
    #[schema(value_type = Object)]
    pub interrupts: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ThreadStatus {
    Idle,
    Busy,
    Interrupted,
    Error,
}

impl ThreadStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Interrupted => "interrupted",
            Self::Error => "error",
        }
    }

    pub fn of(thread: &ListedThread) -> Self {
        match thread.status {
            Some(RunStatus::Running) => Self::Busy,
            Some(RunStatus::Interrupted) => Self::Interrupted,
            _ if thread.is_open => Self::Busy,
            Some(RunStatus::Failed | RunStatus::Diverged) => Self::Error,
            Some(RunStatus::Completed | RunStatus::Cancelled) | None => Self::Idle,
        }
    }
}

impl Thread {
    pub fn of(thread: &ListedThread, values: Value, pending: &[PendingInterrupt]) -> Self {
        let mut interrupts = Map::new();
        for asked in pending {
            let of_task = interrupts.entry(asked.interrupt.task_id.to_string()).or_insert_with(|| json!([]));
            if let Value::Array(all) = of_task {
                all.push(json!(Interrupt::of(asked)));
            }
        }
        Self {
            thread_id: thread.note.thread.to_string(),
            created_at: time(thread.note.created_at),
            updated_at: time(thread.note.updated_at),
            metadata: thread.note.metadata.value(),
            status: ThreadStatus::of(thread),
            config: json!({}),
            values,
            interrupts: Value::Object(interrupts),
        }
    }
}

/// A question as the protocol shows one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Interrupt {
    pub id: String,
    pub value: Value,
    /// JSON Schema that an answer must meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
}

impl Interrupt {
    pub fn of(asked: &PendingInterrupt) -> Self {
        Self {
            id: asked.interrupt.id.to_string(),
            value: asked.interrupt.payload.clone(),
            response_schema: asked.answer_schema.clone(),
        }
    }

    pub fn of_row(row: &InterruptRow) -> Self {
        Self {
            id: row.interrupt.to_string(),
            value: row.payload.value(),
            response_schema: row.answer_schema.as_ref().map(crate::model::Json::value),
        }
    }
}

/// Whether a question waited at this time.
pub fn waited_at(row: &InterruptRow, at: Timestamp) -> bool {
    row.asked_at <= at
        && match &row.state {
            InterruptState::Pending => true,
            InterruptState::Answered(answer) => answer.at > at,
            InterruptState::Withdrawn(withdrawal) => withdrawal.at > at,
        }
}

/// One state that a thread was in.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ThreadState {
    #[schema(value_type = Object)]
    pub values: Value,
    /// The nodes that run next, or wait.
    pub next: Vec<String>,
    pub tasks: Vec<Task>,
    #[schema(value_type = Object)]
    pub metadata: Value,
    pub created_at: Option<String>,
    pub checkpoint: Checkpoint,
    pub parent_checkpoint: Option<Checkpoint>,
    pub interrupts: Vec<Interrupt>,
}

/// One activation of a node.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Task {
    pub id: String,
    pub name: String,
    pub path: Vec<Value>,
    pub error: Option<String>,
    pub interrupts: Vec<Interrupt>,
    /// Of a subgraph: where its state is.
    pub checkpoint: Option<Checkpoint>,
    /// Of a subgraph, if it was asked for: its state.
    #[schema(no_recursion)]
    pub state: Option<Box<ThreadState>>,
    /// What it wrote, once it is done.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

/// Names a state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Checkpoint {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    pub checkpoint_ns: String,
    pub checkpoint_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub checkpoint_map: Option<Value>,
}

impl Checkpoint {
    pub fn new(thread: &ThreadId, namespace: &str, id: Option<String>) -> Self {
        Self {
            thread_id: Some(thread.to_string()),
            checkpoint_ns: namespace.to_owned(),
            checkpoint_id: id,
            checkpoint_map: None,
        }
    }
}

/// A call on a thread.
#[derive(Debug, Serialize, ToSchema)]
pub struct Run {
    /// This call's; each answer is a call of its own.
    pub run_id: String,
    pub thread_id: String,
    pub assistant_id: String,
    pub created_at: String,
    pub updated_at: String,
    pub status: CallStatus,
    #[schema(value_type = Object)]
    pub metadata: Value,
    pub multitask_strategy: String,
    /// The host's run: from its input until it completes or fails, across all its answers.
    pub holdpoint_run_id: Option<String>,
    /// Who called.
    pub actor: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    Pending,
    Running,
    Success,
    Error,
    Interrupted,
}

impl Run {
    pub fn of(row: &InvocationRow) -> Self {
        use crate::store::InvocationStatus as Of;
        let status = match row.status {
            Of::Pending => CallStatus::Pending,
            Of::Running => CallStatus::Running,
            Of::Success => CallStatus::Success,
            Of::Error => CallStatus::Error,
            Of::Interrupted => CallStatus::Interrupted,
        };
        Self {
            run_id: row.invocation.to_string(),
            thread_id: row.thread.to_string(),
            assistant_id: row.assistant.to_string(),
            created_at: time(row.created_at),
            updated_at: time(row.updated_at),
            status,
            metadata: row.metadata.value(),
            multitask_strategy: row.strategy.clone(),
            holdpoint_run_id: row.run.map(|run| run.to_string()),
            actor: row.actor.clone(),
            error: row.error.as_ref().map(|error| json!(error)),
        }
    }
}

/// A deployed graph, as something to run.
#[derive(Debug, Serialize, ToSchema)]
pub struct Assistant {
    pub assistant_id: String,
    pub graph_id: String,
    #[schema(value_type = Object)]
    pub config: Value,
    #[schema(value_type = Object)]
    pub context: Value,
    #[schema(value_type = Object)]
    pub metadata: Value,
    pub name: String,
    pub description: Option<String>,
    pub version: u32,
    pub created_at: String,
    pub updated_at: String,
}

impl Assistant {
    pub fn of(row: &AssistantRow) -> Self {
        Self {
            assistant_id: row.assistant.to_string(),
            graph_id: row.graph.clone(),
            config: row.config.value(),
            context: row.context.value(),
            metadata: row.metadata.value(),
            name: row.name.clone(),
            description: row.description.clone(),
            version: row.version,
            created_at: time(row.created_at),
            updated_at: time(row.updated_at),
        }
    }
}

/// Only the fields that were asked for.
pub fn select(document: &impl Serialize, fields: Option<&[String]>) -> Value {
    let mut value = json!(document);
    if let (Value::Object(members), Some(fields)) = (&mut value, fields) {
        members.retain(|name, _| fields.iter().any(|field| field == name));
    }
    value
}
