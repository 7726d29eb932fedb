//! `holdpoint show`: how a thread's latest run stands, as a tree: its steps, their tasks, and the runs of
//! subgraphs below those.

use std::fmt::Write as _;

use dialoguer::console::style;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::Shell;
use super::document::{Document, Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{history, prose, store, tenant};
use crate::engine::{Host, path_of};
use crate::model::checkpoint::{CheckpointRow, Finish, PlannedTask, RunRow, SteeringRow, TaskRow, TaskState};
use crate::model::{ErrorRecord, PendingInterrupt, RunId, RunStatus, ThreadId};

/// The latest steps of each run; `history` has all.
const STEPS_MAX: u32 = 25;

pub const ABOUT: &str = "\
Show how a thread's latest run stands: its steps, the tasks of each, the runs of subgraphs below them, what
failed, and what waits for an answer with the command that gives it.

    holdpoint show --thread support-123";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let document = Document::now(&host, &args.thread).await?;
    let tree = Tree::load(&host, &args.thread, document.run_id).await?;
    let mut runs = Vec::new();
    tree.runs(&mut runs);
    let ids: Vec<RunId> = runs.iter().map(|run| run.run).collect();
    let said = store(&host)?.steering(&tenant(), &args.thread, &ids).await?;
    host.close().await;
    let text = match shell.options.json {
        true => String::new(),
        false => tree.text(shell, &args.thread, &document) + &steering_text(&said, &runs),
    };
    let mut document = serde_json::to_value(&document).unwrap_or_default();
    if let (Some(object), Value::Object(tree)) = (document.as_object_mut(), tree.document()) {
        object.extend(tree.into_iter().filter(|(name, _)| name == "graph" || name == "steps"));
        object.insert("steering".into(), said.iter().map(|row| steering(row, &runs)).collect());
    }
    Ok(Said::new(Exit::Completed, &document, text))
}

/// A run, its latest steps, and what is below their tasks.
pub struct Tree {
    pub run: RunRow,
    pub graph: String,
    /// Steps that are left out before the first that is shown.
    steps_before: u32,
    steps: Vec<(CheckpointRow, Vec<Task>)>,
}

struct Task {
    planned: PlannedTask,
    /// `None`: it is not started.
    row: Option<TaskRow>,
    child: Option<Tree>,
}

/// What the whole tree is shown with.
struct Page<'a> {
    shell: &'a Shell,
    thread: &'a ThreadId,
    pending: &'a [PendingInterrupt],
    /// Shown below the tree, and so not in it.
    error: Option<&'a ErrorRecord>,
}

impl Tree {
    pub fn load<'a>(
        host: &'a Host,
        thread: &'a ThreadId,
        run: RunId,
    ) -> BoxFuture<'a, Result<Self, Failure>> {
        Box::pin(async move {
            let store = store(host)?;
            let gone = || Failure::NotThere(format!("run {run} is not in this database"));
            let (_, run) = store.run(&tenant(), run).await?.ok_or_else(gone)?;
            let graph = store.graph(&tenant(), run.graph).await?.map(|graph| graph.name).unwrap_or_default();
            let mut boundaries = store.boundaries(&tenant(), thread, run.run, STEPS_MAX).await?;
            boundaries.reverse();
            let steps_before = boundaries.first().map_or(0, |first| first.step);
            let mut steps = Vec::new();
            for boundary in boundaries {
                let mut rows = store.tasks(&tenant(), thread, boundary.checkpoint).await?;
                let mut tasks = Vec::new();
                for (index, planned) in boundary.plan.tasks.iter().enumerate() {
                    let row = rows.iter().position(|row| row.index == index).map(|at| rows.swap_remove(at));
                    let child = match row.as_ref().and_then(|row| row.child) {
                        Some(child) => Some(Self::load(host, thread, child).await?),
                        None => None,
                    };
                    tasks.push(Task { planned: planned.clone(), row, child });
                }
                steps.push((boundary, tasks));
            }
            Ok(Self { run, graph, steps_before, steps })
        })
    }

    /// This run and those below it.
    fn runs<'a>(&'a self, all: &mut Vec<&'a RunRow>) {
        all.push(&self.run);
        for task in self.steps.iter().flat_map(|(_, tasks)| tasks) {
            if let Some(child) = &task.child {
                child.runs(all);
            }
        }
    }

    /// The tasks of the latest step that are not done, here and below, by their paths.
    pub fn unfinished(&self) -> Vec<(String, TaskRow)> {
        let mut found = Vec::new();
        for task in self.steps.last().into_iter().flat_map(|(_, tasks)| tasks) {
            let Some(row) = task.row.as_ref().filter(|row| !matches!(row.state, TaskState::Finished(_)))
            else {
                continue;
            };
            found.push((path_of(&self.run.namespace, &row.node), row.clone()));
            found.extend(task.child.iter().flat_map(Self::unfinished));
        }
        found
    }

    fn text(&self, shell: &Shell, thread: &ThreadId, document: &Document) -> String {
        let mut text = prose::heading(thread, document);
        let _ = writeln!(
            text,
            "graph {}  started {}{}",
            harmless(&self.graph),
            self.run.created_at,
            self.run.ended_at.map(|at| format!("  ended {at}")).unwrap_or_default()
        );
        let error = document.error.as_ref();
        let page = Page { shell, thread, pending: &document.interrupts, error };
        text.push_str(&self.steps_text(&page));
        if let Some(error) = &document.error {
            text.push_str(&prose::error_text(error));
        }
        if matches!(document.status, RunStatus::Failed | RunStatus::Diverged) {
            text.push_str(&prose::retry_text(shell, thread));
        }
        if document.status == RunStatus::Running {
            let _ = writeln!(
                text,
                "\nSome process runs it, or died while it did. If none does, go on with\n    {}",
                prose::continue_command(shell, thread)
            );
        }
        text.push_str(&prose::state(&document.state));
        text
    }

    fn steps_text(&self, page: &Page<'_>) -> String {
        let mut text = String::new();
        if self.steps_before > 0 {
            let before = prose::counted(self.steps_before as usize, "earlier step");
            let command = page.shell.command(["history", "--thread", page.thread.as_str()]);
            let _ = writeln!(text, "\n({before}: {command})");
        }
        let last = self.steps.len().saturating_sub(1);
        for (i, (boundary, tasks)) in self.steps.iter().enumerate() {
            if tasks.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\nstep {}", boundary.step);
            for task in tasks {
                // Only in the step that is open is an update held and a question pending.
                let open = i == last && self.run.status != RunStatus::Completed;
                text.push_str(&task.text(page, open && self.run.status != RunStatus::Cancelled));
            }
        }
        text
    }

    fn document(&self) -> Value {
        let steps = self.steps.iter().filter(|(_, tasks)| !tasks.is_empty()).map(|(boundary, tasks)| {
            json!({
                "step": boundary.step,
                "checkpoint_id": boundary.checkpoint,
                "tasks": tasks.iter().map(Task::document).collect::<Value>(),
            })
        });
        json!({
            "run_id": self.run.run,
            "graph": self.graph,
            "agent": self.run.agent,
            "namespace": self.run.namespace,
            "status": self.run.status,
            "steps": steps.collect::<Value>(),
        })
    }
}

impl Task {
    fn text(&self, page: &Page<'_>, open: bool) -> String {
        let node = self.planned.node.as_str();
        let Some(row) = &self.row else {
            return format!("    · {node}  not started\n");
        };
        let mark = match &row.state {
            TaskState::Started => style("…").cyan(),
            TaskState::Paused => style("?").yellow(),
            TaskState::Finished(Finish { error: Some(_), .. }) => style("!").red(),
            TaskState::Finished(_) => style("✓").green(),
            TaskState::Failed(_) => style("✗").red(),
        };
        let what = match &row.state {
            // Its run was called off, or its thread's state set.
            TaskState::Paused if !open => "left as it was".to_owned(),
            TaskState::Paused if self.child.is_some() => "waits for what is below".to_owned(),
            TaskState::Paused if Self::asked(page, row).next().is_some() => "waits for an answer".to_owned(),
            TaskState::Paused => "was broken off; `continue` goes on with it".to_owned(),
            state => history::told(state),
        };
        let how_often = match &self.child {
            Some(child) => child.run.agent.as_deref().map(|agent| harmless(agent).into_owned()),
            None => Some(prose::counted(row.attempts as usize, "attempt")),
        };
        let how_often = how_often.map(|what| format!("  ({what})")).unwrap_or_default();
        let mut text = format!("    {mark} {node}  {what}{how_often}\n");
        if let Some(child) = &self.child {
            text.push_str(&prose::indented(&prose::indented(
                child.steps_text(page).trim_start_matches('\n'),
            )));
        }
        if open {
            let details = self.details(page, row);
            text.push_str(&prose::indented(&prose::indented(details.trim_start_matches('\n'))));
        }
        text
    }

    fn asked<'a>(page: &Page<'a>, row: &TaskRow) -> impl Iterator<Item = &'a PendingInterrupt> {
        let task = row.task;
        page.pending.iter().filter(move |asked| asked.interrupt.task_id == task)
    }

    fn details(&self, page: &Page<'_>, row: &TaskRow) -> String {
        let asked: String = Self::asked(page, row)
            .map(|question| prose::question_text(page.shell, page.thread, question))
            .collect();
        match &row.state {
            TaskState::Finished(finish) => held(finish) + &asked,
            TaskState::Paused => asked,
            // Of several that failed, one is the run's error, which is shown below.
            TaskState::Failed(error) if page.error != Some(error) && self.child.is_none() => {
                harmless(&error.message).into_owned() + "\n"
            }
            TaskState::Failed(_) | TaskState::Started => String::new(),
        }
    }

    fn document(&self) -> Value {
        let node = &self.planned.node;
        match &self.row {
            None => json!({ "node": node, "status": "not-started" }),
            Some(row) => {
                let mut document = history::task_document(row);
                document["child"] = self.child.as_ref().map(Tree::document).unwrap_or_default();
                document
            }
        }
    }
}

/// Whether a node was told: what no node read before its run was over is refused.
fn told(row: &SteeringRow, runs: &[&RunRow]) -> &'static str {
    let is_over = |run: &RunRow| matches!(run.status, RunStatus::Completed | RunStatus::Cancelled);
    match row.delivered_at {
        Some(_) => "delivered",
        None if runs.iter().any(|run| run.run == row.run && is_over(run)) => "refused",
        None => "pending",
    }
}

fn steering(row: &SteeringRow, runs: &[&RunRow]) -> Value {
    json!({
        "id": row.id, "run_id": row.run, "task_id": row.task, "interrupt_id": row.interrupt, "actor": row.actor,
        "text": row.text, "at": row.at, "status": told(row, runs), "delivered_at": row.delivered_at,
    })
}

fn steering_text(said: &[SteeringRow], runs: &[&RunRow]) -> String {
    let mut text = String::new();
    for row in said {
        if text.is_empty() {
            text.push_str("\nsteering\n");
        }
        let by = if row.actor.is_empty() { String::new() } else { format!(" by {}", harmless(&row.actor)) };
        let what = prose::short(&Value::from(row.text.as_str()));
        let _ = writeln!(text, "    {}  {}{by}: {what}", row.at, told(row, runs));
    }
    text
}

/// What a finished task wrote while others of its step are not done.
fn held(finish: &Finish) -> String {
    let mut text = String::new();
    for (channel, value) in &finish.update {
        let _ = writeln!(text, "held until the step ends: {channel} = {}", prose::short(&value.value()));
    }
    text
}
