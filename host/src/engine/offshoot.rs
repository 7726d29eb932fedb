//! The rows that a fork begins with: runs of the first thread under new ids, each at a boundary of its own
//! with what its step has done so far.

use std::collections::BTreeSet;

use crate::model::checkpoint::{
    CheckpointKind, CheckpointRow, InterruptRow, InterruptState, RunRow, SteeringRow, TaskRow, TaskState,
    Version,
};
use crate::model::execution::RunStatus;
use crate::model::ids::{ChannelName, CheckpointId, Digest, InterruptId, NodeId, RunId, TaskId, Timestamp};
use crate::model::interrupt::InterruptKind;
use crate::store::{Origin, RunSnapshot, Waypoint, Write};

/// What a new thread begins with.
pub struct Offshoot {
    now: Timestamp,
    /// The id of its root run.
    root: RunId,
    pub writes: Vec<Write>,
    /// The channel values that its runs start from.
    pub wanted: BTreeSet<(ChannelName, Version)>,
    /// Its runs: which they were, what they are now, and until when what was said to them lies before.
    runs: Vec<(RunId, RunRow, Option<Timestamp>)>,
}

impl Offshoot {
    pub fn new(now: Timestamp, root: RunId) -> Self {
        Self { now, root, writes: Vec::new(), wanted: BTreeSet::new(), runs: Vec::new() }
    }

    /// The first run of the way and those below it. Returns the checkpoint that it starts from. `stands`: of
    /// each run, how it does, if it is taken as it stands.
    pub fn waypoint(
        &mut self,
        path: &[Waypoint],
        stands: &[Option<&RunSnapshot>],
        parent: Option<(RunId, TaskId)>,
    ) -> CheckpointId {
        let way = &path[0];
        let until = stands[0].is_none().then_some(way.boundary.created_at);
        let run = self.run(&way.run, &way.boundary, parent, until);
        let (row, checkpoint) = (run.run, run.head);
        let below = path.get(1).and_then(|below| below.task.as_ref());
        if let Some((task, asked)) = below {
            let new = self.started(&run, task, asked);
            self.waypoint(&path[1..], &stands[1..], Some((row, new)));
        }
        if let Some(stands) = stands[0] {
            self.step(&run, stands, below.map(|(task, _)| task.index));
        }
        checkpoint
    }

    /// A run at a boundary of its own, as the first was at that one.
    fn run(
        &mut self,
        was: &RunRow,
        boundary: &CheckpointRow,
        parent: Option<(RunId, TaskId)>,
        until: Option<Timestamp>,
    ) -> At {
        let checkpoint = CheckpointId::fresh();
        let row = RunRow {
            run: parent.map_or(self.root, |(_, task)| RunId::derive(task, 0)),
            parent,
            head: parent.map(|_| checkpoint),
            status: RunStatus::Running,
            error: None,
            created_at: self.now,
            ended_at: None,
            ..was.clone()
        };
        let at = At { run: row.run, head: checkpoint };
        let values = boundary.channels.iter().chain(&row.given);
        self.wanted.extend(values.map(|(channel, version)| (channel.clone(), *version)));
        self.runs.push((was.run, row.clone(), until));
        self.writes.push(Write::Run(row));
        self.writes.push(Write::Checkpoint(CheckpointRow {
            checkpoint,
            // Of a fork, in the other thread: where this one comes from.
            parent: Some(boundary.checkpoint),
            run: at.run,
            kind: CheckpointKind::Boundary,
            status: RunStatus::Running,
            created_at: self.now,
            ..boundary.clone()
        }));
        at
    }

    /// What a step has done so far, but for the task at `but`.
    fn step(&mut self, run: &At, was: &RunSnapshot, but: Option<usize>) {
        for task in was.tasks.iter().filter(|task| Some(task.index) != but) {
            let asked: Vec<InterruptRow> =
                was.interrupts.iter().filter(|row| row.task == task.task).cloned().collect();
            if matches!(task.state, TaskState::Finished(_)) {
                let new = run.task(task.index, &task.node);
                let row =
                    TaskRow { task: new, run: run.run, boundary: run.head, child: None, ..task.clone() };
                self.passed(run, &row, InterruptKind::After, &asked);
                self.writes.push(Write::Task(row));
                continue;
            }
            // A node that is not done begins anew; a subgraph goes on where it is.
            let child = was.children.iter().find(|child| Some(child.run.run) == task.child);
            let Some(child) = child.filter(|child| child.run.status != RunStatus::Completed) else {
                continue;
            };
            let new = self.started(run, task, &asked);
            let boundary =
                CheckpointRow { created_at: child.boundary_created_at, ..child.checkpoint.clone() };
            let below = self.run(&child.run, &boundary, Some((run.run, new)), None);
            self.step(&below, child, None);
        }
    }

    /// A subgraph's task whose child run comes along. Returns its new id.
    fn started(&mut self, run: &At, was: &TaskRow, asked: &[InterruptRow]) -> TaskId {
        let task = run.task(was.index, &was.node);
        let row = TaskRow {
            task,
            run: run.run,
            boundary: run.head,
            child: Some(RunId::derive(task, 0)),
            attempts: 1,
            generation: 0,
            failures: 0,
            state: TaskState::Started,
            ..was.clone()
        };
        self.passed(run, &row, InterruptKind::Before, asked);
        self.writes.push(Write::Task(row));
        task
    }

    /// A gate that somebody let the task pass.
    fn passed(&mut self, run: &At, task: &TaskRow, gate: InterruptKind, asked: &[InterruptRow]) {
        let passed =
            |row: &&InterruptRow| row.kind == gate && matches!(row.state, InterruptState::Answered(_));
        if let Some(row) = asked.iter().rev().find(passed) {
            self.writes.push(Write::Interrupt(InterruptRow {
                interrupt: InterruptId::derive(task.task, gate.as_str(), (0, 0), task.generation),
                run: run.run,
                task: task.task,
                boundary: run.head,
                checkpoint: run.head,
                ..row.clone()
            }));
        }
    }

    /// What was said to its runs; what came with an answer is said again with the next.
    pub fn steering(&mut self, origin: &Origin) {
        for (was, row, until) in &self.runs {
            let said = origin.steering.iter().filter(|said| said.run == *was && said.task.is_none());
            let before = said.filter(|said| until.is_none_or(|until| said.at <= until));
            self.writes.extend(
                before
                    .map(|said| Write::Steer(SteeringRow { run: row.run, interrupt: None, ..said.clone() })),
            );
        }
    }

    /// What its runs are pinned to.
    pub fn graphs(&self) -> BTreeSet<Digest> {
        self.runs.iter().map(|(_, row, _)| row.graph).collect()
    }
}

/// A run of the new thread, and where it starts.
struct At {
    run: RunId,
    head: CheckpointId,
}

impl At {
    fn task(&self, index: usize, node: &NodeId) -> TaskId {
        TaskId::derive(self.head, index, node)
    }
}
