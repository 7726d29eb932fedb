//! What a thread's runs ask, all through the tree: each question with the way to it. Pure.

use crate::model::checkpoint::{InterruptRow, InterruptState, RunRow};
use crate::model::ids::{RunId, TaskId};
use crate::model::interrupt::{Interrupt, PendingInterrupt};
use crate::model::json::Json;
use crate::store::RunSnapshot;

/// One question, whatever became of it, and whose it is.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    pub row: &'a InterruptRow,
    pub run: &'a RunRow,
    /// From the root run to the one that asks.
    pub run_path: Vec<RunId>,
    /// The tasks whose child runs those are, but the root's: one fewer.
    pub run_tasks: Vec<TaskId>,
}

impl Asked<'_> {
    pub fn is_pending(&self) -> bool {
        self.row.state == InterruptState::Pending
    }

    /// As it is shown while it waits.
    pub fn shown(&self) -> PendingInterrupt {
        let row = self.row;
        PendingInterrupt {
            interrupt: Interrupt {
                id: row.interrupt,
                node: row.node.clone(),
                task_id: row.task,
                payload: row.payload.value(),
                order: row.order,
            },
            kind: row.kind,
            namespace: self.run.namespace.clone(),
            run_path: self.run_path.clone(),
            agent: self.run.agent.clone(),
            checkpoint_id: row.checkpoint,
            answer_schema: row.answer_schema.as_ref().map(Json::value),
            expires_at: row.expires_at,
        }
    }
}

/// All that a run and those below it ask at their boundaries, in task order and then in the order asked.
pub fn asked(root: &RunSnapshot) -> Vec<Asked<'_>> {
    let mut all = Vec::new();
    gather(root, (&[], &[]), &mut all);
    all
}

fn gather<'a>(run: &'a RunSnapshot, (runs, tasks): (&[RunId], &[TaskId]), all: &mut Vec<Asked<'a>>) {
    let path: Vec<RunId> = runs.iter().copied().chain([run.run.run]).collect();
    let tasks: Vec<TaskId> = tasks.iter().copied().chain(run.run.parent.map(|(_, task)| task)).collect();
    let of = |task: TaskId| {
        let rows = run.interrupts.iter().filter(move |row| row.task == task);
        rows.map(|row| Asked { row, run: &run.run, run_path: path.clone(), run_tasks: tasks.clone() })
    };
    for task in &run.tasks {
        all.extend(of(task.task));
        let child = run.children.iter().find(|child| Some(child.run.run) == task.child);
        if let Some(child) = child {
            gather(child, (&path, &tasks), all);
        }
    }
}

/// What waits for an answer, as it is shown.
pub fn pending(root: &RunSnapshot) -> Vec<PendingInterrupt> {
    asked(root).iter().filter(|asked| asked.is_pending()).map(Asked::shown).collect()
}

/// The run of this id in a tree.
pub fn find(root: &RunSnapshot, run: RunId) -> Option<&RunSnapshot> {
    if root.run.run == run {
        return Some(root);
    }
    root.children.iter().find_map(|child| find(child, run))
}
