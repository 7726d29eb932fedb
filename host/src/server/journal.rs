//! What a task asked of the host and was told, as it is kept for its replay.

use axum::Json as Reply;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::body::{self, Path};
use super::caller::Caller;
use super::problem::Problem;
use super::shapes::time;
use crate::model::TaskId;
use crate::model::checkpoint::TaskState;
use crate::model::journal::{EffectReply, Reply as Told};

/// A task's journal.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskJournal {
    pub task_id: String,
    pub run_id: String,
    pub thread_id: String,
    pub node: String,
    /// `started`, `paused`, `finished` or `failed`.
    pub state: String,
    pub attempts: u32,
    /// Grows whenever the task is begun anew.
    pub generation: u32,
    pub entries: Vec<JournalEntry>,
}

/// One call of the node, with the reply so far.
#[derive(Debug, Serialize, ToSchema)]
pub struct JournalEntry {
    pub index: usize,
    /// `call` says which; the rest is what was asked.
    #[schema(value_type = Object)]
    pub call: Value,
    /// Null where there is none yet.
    #[schema(value_type = Object)]
    pub reply: Value,
    /// When it was known.
    pub at: String,
}

/// What a task asked of the host and was told, in order.
#[utoipa::path(get, path = "/tasks/{task_id}/journal", tag = "answers", params(("task_id" = String, Path)),
    responses((status = 200, description = "The journal", body = TaskJournal)))]
pub async fn get(caller: Caller, Path(task): Path<String>) -> Result<Reply<TaskJournal>, Problem> {
    let allowed = caller.may_run()?;
    let missing = || Problem::not_found(format_args!("task {:?}", body::clip(&task)));
    let id: TaskId = task.parse().map_err(|_| missing())?;
    let (thread, row) = allowed.store().task(&allowed.tenant, id).await?.ok_or_else(missing)?;
    let entries = allowed.store().journal(&allowed.tenant, id).await?;
    let entries = entries.into_iter().enumerate().map(|(index, row)| JournalEntry {
        index,
        call: json!(row.entry.call),
        reply: told(&row.entry.reply),
        at: time(row.entry.at),
    });
    Ok(Reply(TaskJournal {
        task_id: row.task.to_string(),
        run_id: row.run.to_string(),
        thread_id: thread.to_string(),
        node: row.node.to_string(),
        state: match row.state {
            TaskState::Started => "started",
            TaskState::Paused => "paused",
            TaskState::Finished(_) => "finished",
            TaskState::Failed(_) => "failed",
        }
        .to_owned(),
        attempts: row.attempts,
        generation: row.generation,
        entries: entries.collect(),
    }))
}

fn told(reply: &Told) -> Value {
    match reply {
        Told::Answers(answers) => json!({ "answers": answers }),
        Told::Effect(EffectReply::Begun) => json!({ "effect": "begun" }),
        Told::Effect(EffectReply::Asked { kind, answer }) => {
            json!({ "effect": "asked", "kind": kind.as_str(), "answer": answer })
        }
        Told::Effect(EffectReply::Known(outcome)) => json!({ "effect": "known", "outcome": outcome }),
        Told::Effect(EffectReply::Retryable(outcome)) => json!({ "effect": "retryable", "outcome": outcome }),
        Told::Steering(instructions) => json!({ "steering": instructions }),
        Told::Attempt => json!({ "attempt": true }),
    }
}
