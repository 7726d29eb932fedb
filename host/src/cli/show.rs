//! `holdpoint show`: how a thread's latest run stands, as a tree.

use std::fmt::Write as _;

use dialoguer::console::style;

use super::Shell;
use super::document::{Document, Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{history, prose, store, tenant};
use crate::engine::Host;
use crate::model::checkpoint::{CheckpointKind, CheckpointRow, Finish, RunRow, TaskRow, TaskState};
use crate::model::{RunStatus, ThreadId};

/// The latest steps; `history` has all.
const STEPS_MAX: usize = 25;
const PAGE: u32 = 100;

pub const ABOUT: &str = "\
Show how a thread's latest run stands: its steps, the tasks of each, what failed, and what waits for an
answer with the command that gives it.

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
    let tree = match shell.options.json {
        true => String::new(),
        false => Tree::load(&host, &args.thread, &document).await?.text(shell, &args.thread, &document),
    };
    host.close().await;
    Ok(Said::new(Exit::Completed, &document, tree))
}

/// A run, its latest steps, and their tasks.
struct Tree {
    run: RunRow,
    graph: String,
    /// Steps that are left out before the first that is shown.
    steps_before: u32,
    steps: Vec<(CheckpointRow, Vec<TaskRow>)>,
}

impl Tree {
    async fn load(host: &Host, thread: &ThreadId, document: &Document) -> Result<Self, Failure> {
        let store = store(host)?;
        let gone = || Failure::NotThere(format!("run {} is not in this database", document.run_id));
        let (_, run) = store.run(&tenant(), document.run_id).await?.ok_or_else(gone)?;
        let graph = store.graph(&tenant(), run.graph).await?.map(|graph| graph.name).unwrap_or_default();
        let mut boundaries = boundaries(host, thread, &run).await?;
        boundaries.reverse();
        let steps_before = boundaries.first().map_or(0, |first| first.step);
        let mut steps = Vec::new();
        for boundary in boundaries {
            let tasks = store.tasks(&tenant(), thread, boundary.checkpoint).await?;
            steps.push((boundary, tasks));
        }
        Ok(Self { run, graph, steps_before, steps })
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
        if self.steps_before > 0 {
            let before = prose::counted(self.steps_before as usize, "earlier step");
            let command = shell.command(["history", "--thread", thread.as_str()]);
            let _ = writeln!(text, "\n({before}: {command})");
        }
        let last = self.steps.len().saturating_sub(1);
        for (i, (boundary, tasks)) in self.steps.iter().enumerate() {
            if boundary.plan.tasks.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\nstep {}", boundary.step);
            for (index, planned) in boundary.plan.tasks.iter().enumerate() {
                let task = tasks.iter().find(|task| task.index == index);
                text.push_str(&task_text(planned.node.as_str(), task));
                // Only in the step that is open is an update held and a question pending.
                if i == last {
                    text.push_str(&task_details(shell, thread, document, task));
                }
            }
        }
        if let Some(error) = &document.error {
            text.push_str(&prose::error_text(error));
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
}

/// The run's boundaries, the newest first, as many as are shown.
async fn boundaries(host: &Host, thread: &ThreadId, run: &RunRow) -> Result<Vec<CheckpointRow>, Failure> {
    let mut boundaries = Vec::new();
    let mut before = None;
    loop {
        let page = store(host)?.history(&tenant(), thread, before, PAGE).await?;
        before = page.last().map(|row| row.checkpoint);
        let is_last = page.len() < PAGE as usize;
        for row in page {
            if row.run != run.run {
                return Ok(boundaries);
            }
            if row.kind == CheckpointKind::Boundary {
                boundaries.push(row);
            }
            if boundaries.len() == STEPS_MAX {
                return Ok(boundaries);
            }
        }
        if is_last {
            return Ok(boundaries);
        }
    }
}

fn task_text(node: &str, task: Option<&TaskRow>) -> String {
    let Some(task) = task else {
        return format!("    · {node}  not started\n");
    };
    let mark = match &task.state {
        TaskState::Started => style("…").cyan(),
        TaskState::Paused => style("?").yellow(),
        TaskState::Finished(_) => style("✓").green(),
        TaskState::Failed(_) => style("✗").red(),
    };
    let what = match &task.state {
        TaskState::Paused => "waits for an answer".to_owned(),
        TaskState::Failed(error) => error.kind.to_string(),
        state => history::word(state).to_owned(),
    };
    format!("    {mark} {node}  {what}  ({})\n", prose::counted(task.attempts as usize, "attempt"))
}

fn task_details(shell: &Shell, thread: &ThreadId, document: &Document, task: Option<&TaskRow>) -> String {
    let Some(task) = task else { return String::new() };
    let text = match &task.state {
        TaskState::Finished(finish) => held(finish),
        TaskState::Paused => {
            let asked = document.interrupts.iter().filter(|asked| asked.interrupt.task_id == task.task);
            asked.map(|question| prose::question_text(shell, thread, question)).collect()
        }
        // Of several that failed, one is the run's error, which is shown below.
        TaskState::Failed(error) if document.error.as_ref() != Some(error) => {
            harmless(&error.message).into_owned()
        }
        TaskState::Failed(_) | TaskState::Started => String::new(),
    };
    prose::indented(&prose::indented(text.trim_start_matches('\n')))
}

/// What a finished task wrote while others of its step are not done.
fn held(finish: &Finish) -> String {
    let mut text = String::new();
    for (channel, value) in &finish.update {
        let _ = writeln!(text, "held until the step ends: {channel} = {}", prose::short(&value.value()));
    }
    text
}
