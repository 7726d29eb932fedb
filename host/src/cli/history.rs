//! `holdpoint history`: the states that a thread was in, the tasks that led from one to the next, what they asked
//! and who answered.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{prose, store, tenant};
use crate::engine::path_of;
use crate::model::checkpoint::{
    CheckpointKind, CheckpointRow, Finish, InterruptRow, InterruptState, TaskRow, TaskState,
};
use crate::model::interrupt::InterruptKind;
use crate::model::{CheckpointId, RunConfig, RunId, ThreadId};
use crate::store::PAGE_ROWS_MAX;

pub const ABOUT: &str = "\
List the checkpoints of a thread, the newest first.

A boundary ends a step and has the tasks of the next; a pause shows how far the tasks of its boundary were
when they had to wait, and changes no channel. RUN is the path of subgraph nodes that the checkpoint is in.
Any of them can be forked (`holdpoint fork`) or gone back to (`holdpoint rewind`). Below stands what was asked from each boundary, and what became of it.

    holdpoint history --thread support-123 --limit 20";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_ROWS_MAX)))]
    limit: u32,

    /// Only those from before this checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    before: Option<CheckpointId>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let thread = &args.thread;
    // For the error, if there is no such thread.
    host.execution(RunConfig::thread(thread.as_str())).await?;
    if let Some(before) = args.before {
        host.checkpoint(RunConfig::thread(thread.as_str()), before).await?;
    }
    let store = store(&host)?;
    let runs = store.runs(&tenant(), thread).await?;
    let namespaces: HashMap<RunId, Vec<String>> =
        runs.into_iter().map(|run| (run.run, run.namespace)).collect();
    let namespace = |row: &CheckpointRow| namespaces.get(&row.run).map(Vec::as_slice).unwrap_or_default();
    let mut checkpoints = Vec::new();
    for row in store.history(&tenant(), thread, args.before, args.limit).await? {
        let of = match row.kind {
            CheckpointKind::Boundary => Of {
                tasks: store.tasks(&tenant(), thread, row.checkpoint).await?,
                asked: store.asked(&tenant(), thread, row.checkpoint).await?,
            },
            CheckpointKind::Pause { .. } => Of::default(),
        };
        checkpoints.push((row, of));
    }
    host.close().await;

    let last = checkpoints.last().filter(|_| checkpoints.len() == args.limit as usize);
    let before = last.map(|(row, _)| row.checkpoint);
    let rows: Vec<Vec<String>> =
        checkpoints.iter().map(|(row, of)| cells(row, &of.tasks, namespace(row))).collect();
    let mut text = prose::table(&["MADE", "RUN", "KIND", "STEP", "STATUS", "CHECKPOINT", "TASKS"], &rows);
    let asked: Vec<Vec<String>> = checkpoints
        .iter()
        .flat_map(|(at, of)| of.asked.iter().map(|asked| asked_cells(asked, namespace(at))))
        .collect();
    if !asked.is_empty() {
        text.push('\n');
        text.push_str(&prose::table(&["ASKED", "NODE", "QUESTION", "WHAT BECAME OF IT"], &asked));
    }
    if let Some(before) = before {
        text.push_str(&format!("\nthere may be more: --before {before}\n"));
    }
    let checkpoints: Vec<Value> =
        checkpoints.iter().map(|(row, of)| document(row, of, namespace(row))).collect();
    let document = json!({ "thread": thread, "checkpoints": checkpoints, "before": before });
    Ok(Said::new(Exit::Completed, &document, text))
}

/// What hangs on a boundary.
#[derive(Default)]
struct Of {
    tasks: Vec<TaskRow>,
    asked: Vec<InterruptRow>,
}

fn cells(row: &CheckpointRow, tasks: &[TaskRow], namespace: &[String]) -> Vec<String> {
    let (kind, tasks) = match row.kind {
        CheckpointKind::Boundary => ("boundary", tasks_text(row, tasks)),
        CheckpointKind::Pause { .. } => ("pause", String::new()),
    };
    vec![
        row.created_at.to_string(),
        format!("/{}", namespace.join("/")),
        kind.to_owned(),
        row.step.to_string(),
        row.status.as_str().to_owned(),
        row.checkpoint.to_string(),
        tasks,
    ]
}

fn tasks_text(row: &CheckpointRow, tasks: &[TaskRow]) -> String {
    let one = |(index, planned): (usize, &crate::model::checkpoint::PlannedTask)| match tasks
        .iter()
        .find(|task| task.index == index)
    {
        Some(task) => format!("{} {}", planned.node, told(&task.state)),
        None => format!("{} not started", planned.node),
    };
    let all: Vec<String> = row.plan.tasks.iter().enumerate().map(one).collect();
    if all.is_empty() { "none: the end".to_owned() } else { all.join(", ") }
}

/// How far a task is, and why it failed, for a person. A failure that the graph takes elsewhere (`on_error`) is one
/// all the same, though the task is done.
pub fn told(state: &TaskState) -> String {
    match state {
        TaskState::Failed(error) => format!("failed ({})", error.kind),
        TaskState::Finished(Finish { error: Some(error), .. }) => {
            format!("failed ({}), taken by on_error", error.kind)
        }
        state => word(state).to_owned(),
    }
}

/// How far a task is.
pub fn word(state: &TaskState) -> &'static str {
    match state {
        TaskState::Started => "started",
        TaskState::Paused => "paused",
        TaskState::Finished(_) => "finished",
        TaskState::Failed(_) => "failed",
    }
}

fn asked_cells(row: &InterruptRow, namespace: &[String]) -> Vec<String> {
    let by = |by: &Option<String>| by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let became = match &row.state {
        InterruptState::Pending => "pending".to_owned(),
        InterruptState::Answered(answer) => {
            let why = answer.reason.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
            format!("answered {}{}: {}{why}", answer.at, by(&answer.by), prose::short(&answer.value.value()))
        }
        InterruptState::Withdrawn(left) => {
            format!("withdrawn {}{}: {}", left.at, by(&left.by), harmless(&left.reason))
        }
    };
    let path = path_of(namespace, &row.node);
    let node = match row.kind {
        InterruptKind::Node => path,
        kind => format!("{path} ({})", kind.as_str()),
    };
    vec![row.asked_at.to_string(), node, prose::short(&row.payload.value()), became]
}

fn asked_document(row: &InterruptRow) -> Value {
    let mut document = json!({
        "id": row.interrupt, "task_id": row.task, "node": row.node, "order": row.order, "kind": row.kind,
        "payload": row.payload, "asked_at": row.asked_at, "status": "pending",
    });
    match &row.state {
        InterruptState::Pending => {}
        InterruptState::Answered(answer) => {
            document["status"] = "answered".into();
            document["answer"] = answer.value.value();
            (document["at"], document["by"], document["reason"]) =
                (json!(answer.at), json!(answer.by), json!(answer.reason));
        }
        InterruptState::Withdrawn(left) => {
            document["status"] = "withdrawn".into();
            (document["at"], document["by"], document["reason"]) =
                (json!(left.at), json!(left.by), json!(left.reason));
        }
    }
    document
}

fn document(row: &CheckpointRow, of: &Of, namespace: &[String]) -> Value {
    let (kind, boundary) = match row.kind {
        CheckpointKind::Boundary => ("boundary", row.checkpoint),
        CheckpointKind::Pause { boundary } => ("pause", boundary),
    };
    let mut document = json!({
        "checkpoint_id": row.checkpoint,
        "parent_id": row.parent,
        "boundary_id": boundary,
        "run_id": row.run,
        "namespace": namespace,
        "kind": kind,
        "step": row.step,
        "status": row.status,
        "created_at": row.created_at,
    });
    if row.kind == CheckpointKind::Boundary {
        document["tasks"] = of.tasks.iter().map(task_document).collect();
        document["interrupts"] = of.asked.iter().map(asked_document).collect();
    }
    document
}

pub fn task_document(task: &TaskRow) -> Value {
    let error = match &task.state {
        TaskState::Failed(error) => Some(error),
        TaskState::Finished(finish) => finish.error.as_ref(),
        _ => None,
    };
    json!({
        "task_id": task.task,
        "node": task.node,
        "component": task.component,
        "attempts": task.attempts,
        "status": word(&task.state),
        "error": error,
    })
}
