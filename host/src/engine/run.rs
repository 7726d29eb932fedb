//! One run of the tree, from its boundary on: run what is ready, commit what came of it, again. What is
//! written here gathers in the invocation's ledger; the root's session says when it has to be durable.

mod ready;

pub(super) use ready::same_settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tracing::Instrument as _;

use super::channels::Channels;
use super::host::locked;
use super::plan;
use super::session::Ended;
use super::slot::{Gated, Slot};
use super::task::{Invocation, path_of, take_journal};
use super::watch::Watched;
use crate::model::channel::Change;
use crate::model::checkpoint::{
    CheckpointKind, CheckpointRow, Finish, InterruptRow, Plan, PlannedTask, RunRow, TaskRow, TaskState,
    Version,
};
use crate::model::compile::{CompiledGraph, CompiledNode, Work};
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::RunStatus;
use crate::model::ids::{ChannelName, CheckpointId, NodeId, RunId, TaskId, Timestamp};
use crate::model::journal::Journal;
use crate::model::json::Json;
use crate::store::{RunSnapshot, Write};

/// The boundary that the tasks of a step start from.
struct Boundary {
    checkpoint: CheckpointId,
    step: u32,
    version: Version,
    created_at: Timestamp,
    plan: Plan,
}

/// How far a run got: to its end, or to where it waits.
#[derive(Clone, Debug)]
pub struct RunEnd {
    pub status: RunStatus,
    pub error: Option<ErrorRecord>,
}

pub struct Run {
    invocation: Arc<Invocation>,
    pub graph: Arc<CompiledGraph>,
    pub row: RunRow,
    /// From the root run to this one.
    pub path: Vec<RunId>,
    /// How many such runs there may be at once: see `Limits::child_runs`.
    pub width: usize,
    boundary: Boundary,
    /// Its latest checkpoint.
    head: CheckpointId,
    pub channels: Channels,
    /// What a child run was given, where it is at hand.
    pub given: BTreeMap<ChannelName, Json>,
    pub slots: Vec<Slot>,
}

/// An input that does not fit its graph.
pub type Misfit = ErrorRecord;

impl Run {
    /// A new run, its input folded into `channels` and its entry planned. `first`: its first boundary, and
    /// the checkpoint before that. `with`: what becomes true together with it.
    pub async fn begin(
        invocation: Arc<Invocation>,
        graph: Arc<CompiledGraph>,
        (row, above, mut with): (RunRow, &[RunId], Vec<Write>),
        (first, parent): (CheckpointId, Option<CheckpointId>),
        channels: Channels,
        (writer, input): (&str, &[(ChannelName, Json)]),
    ) -> Result<Result<Self, Misfit>, Ended> {
        let now = row.created_at;
        let mut run = Self {
            path: above.iter().copied().chain([row.run]).collect(),
            boundary: Boundary {
                checkpoint: first,
                step: 0,
                version: 0,
                created_at: now,
                plan: Plan::default(),
            },
            head: parent.unwrap_or(first),
            invocation,
            graph,
            row,
            width: 1,
            channels,
            given: BTreeMap::new(),
            slots: Vec::new(),
        };
        let changes = match run.fold([(writer, input)]).await? {
            Ok(changes) => changes,
            Err(error) => return Ok(Err(error)),
        };
        let version = run.invocation.next_version();
        let plan = plan::entry(&run.graph);
        if run.row.parent.is_some() {
            run.row.given = changes.keys().map(|channel| (channel.clone(), version)).collect();
            run.row.head = Some(first);
        }
        let boundary = Boundary { checkpoint: first, step: 0, version, created_at: now, plan };
        with.push(Write::Run(run.row.clone()));
        run.advance(boundary, parent, changes, RunStatus::Running, with).await;
        if run.row.parent.is_some() {
            let given: Vec<ChannelName> = run.row.given.keys().cloned().collect();
            run.channels.load(given.iter(), run.invocation.ledger.as_ref()).await?;
            let value = |name: ChannelName| run.channels.get(&name).cloned().map(|value| (name, value));
            run.given = given.into_iter().filter_map(value).collect();
        }
        Ok(Ok(run))
    }

    /// A run that was left: paused, failed, or by a process that died. With those below it.
    pub fn reopen(
        invocation: Arc<Invocation>,
        (above, width): (Vec<RunId>, usize),
        snapshot: RunSnapshot,
    ) -> BoxFuture<'static, Result<Self, super::EngineError>> {
        Box::pin(async move {
            let graph = invocation.shared.graph(&invocation.tenant, snapshot.run.graph).await?;
            let path: Vec<RunId> = above.into_iter().chain([snapshot.run.run]).collect();
            let mut run = Self {
                boundary: Boundary {
                    checkpoint: snapshot.boundary,
                    step: snapshot.checkpoint.step,
                    version: snapshot.checkpoint.version,
                    created_at: snapshot.boundary_created_at,
                    plan: snapshot.checkpoint.plan,
                },
                head: snapshot.checkpoint.checkpoint,
                channels: Channels::at(snapshot.checkpoint.channels),
                given: BTreeMap::new(),
                slots: Vec::new(),
                row: snapshot.run,
                graph,
                path,
                width,
                invocation,
            };
            if let Err(error) = run.has_nodes_of(run.plan()) {
                return Err(Refused::of(error).into());
            }
            let mut slots = run.fresh_slots();
            for row in snapshot.tasks {
                let Some(slot) = slots.get_mut(row.index) else { continue };
                // Damage, or another graph under the run; its graph would be asked for a node that it has not.
                if row.node != slot.row.node {
                    let what = format!(
                        "it is of node {}, and the plan of its step says {}",
                        row.node, slot.row.node
                    );
                    return Err(Refused::of(damaged(row.task, &what)).into());
                }
                slot.changed = false;
                slot.ready = matches!(row.state, TaskState::Started);
                slot.row = row;
            }
            for row in snapshot.interrupts {
                if let Some(slot) = slots.iter_mut().find(|slot| slot.row.task == row.task) {
                    slot.interrupts.push(row);
                }
            }
            for child in snapshot.children {
                let id = child.run.run;
                let above = (run.path.clone(), run.width_below());
                let child = Self::reopen(run.invocation.clone(), above, child).await?;
                if let Some(slot) = slots.iter_mut().find(|slot| slot.row.child == Some(id)) {
                    slot.child = Some(Box::new(child));
                }
            }
            let mut journals = snapshot.journal.into_iter().peekable();
            for slot in &mut slots {
                let mut entries = Vec::new();
                while let Some(row) = journals.next_if(|row| row.task == slot.row.task) {
                    if row.index != entries.len() {
                        let what = format!("entry {} of its journal is not there", entries.len());
                        return Err(Refused::of(damaged(row.task, &what)).into());
                    }
                    entries.push(row.entry);
                }
                slot.journal = Arc::new(Mutex::new(Journal::recorded(entries, slot.row.generation)));
                slot.asks_what_it_called().map_err(|what| Refused::of(damaged(slot.row.task, &what)))?;
                slot.ready |= slot.is_answered();
            }
            run.slots = slots;
            Ok(run)
        })
    }

    /// Whether running it gets it further than it is: something is ready, or it waits for nothing any more.
    /// Told from what is durable alone, since whoever accepted an answer may be dead.
    pub fn can_move(&self) -> bool {
        let any = |of: fn(&Slot) -> bool| self.slots.iter().any(of);
        any(|slot| slot.is_ready() || slot.changed || slot.can_be_answered().is_err()) || !any(Slot::waits)
    }

    /// Runs until it completes, pauses or fails.
    pub async fn steps(&mut self) -> Result<RunEnd, Ended> {
        loop {
            if self.slots.is_empty() {
                return Ok(self.end(RunStatus::Completed, None).await);
            }
            let span = tracing::info_span!("step", step = self.boundary.step);
            self.run_ready().instrument(span.clone()).await?;
            while self.settled_by_others().await {
                self.run_ready().instrument(span.clone()).await?;
            }
            let finished: Option<Vec<&Finish>> = self
                .slots
                .iter()
                .map(|slot| match &slot.row.state {
                    TaskState::Finished(finish) if slot.is_through() => Some(finish),
                    _ => None,
                })
                .collect();
            let Some(finished) = finished else {
                return self.pause().await;
            };
            let graph = self.graph.clone();
            let next = plan::next(&graph, &self.boundary.plan, &finished);
            if let Err(error) = self.in_bounds(&next) {
                return Ok(self.fail(error).await);
            }
            let updates: Vec<(String, Vec<(ChannelName, Json)>)> = self
                .slots
                .iter()
                .zip(finished)
                .map(|(slot, finish)| (slot.row.node.to_string(), finish.update.clone()))
                .collect();
            let changes = match self.fold(updates.iter().map(|(w, u)| (w.as_str(), u.as_slice()))).await? {
                Ok(changes) => changes,
                Err(error) => return Ok(self.fail(error).await),
            };
            let done = next.tasks.is_empty();
            let status = if done { RunStatus::Completed } else { RunStatus::Running };
            for slot in self.slots.iter_mut().filter(|slot| slot.changed) {
                // It lives on in the channels; it need not be stored twice.
                if let TaskState::Finished(finish) = &mut slot.row.state {
                    finish.update.clear();
                }
            }
            let tasks = self.slot_writes();
            self.move_on(next, changes, status, tasks).await;
        }
    }

    async fn move_on(
        &mut self,
        plan: Plan,
        changes: BTreeMap<ChannelName, Change>,
        status: RunStatus,
        tasks: Vec<Write>,
    ) {
        let next = Boundary {
            checkpoint: CheckpointId::fresh(),
            step: self.boundary.step + 1,
            version: self.invocation.next_version(),
            created_at: self.invocation.shared.clock.now(),
            plan,
        };
        self.advance(next, Some(self.head), changes, status, tasks).await;
    }

    /// A boundary that somebody else than the tasks of this one makes.
    pub async fn step_to(&mut self, plan: Plan, changes: BTreeMap<ChannelName, Change>, writes: Vec<Write>) {
        self.move_on(plan, changes, RunStatus::Running, writes).await;
    }

    /// Of the child runs of its present step. It hangs on plans alone, so it is the same whenever it is asked.
    pub fn width_below(&self) -> usize {
        let is_run = |task: &&PlannedTask| matches!(self.graph.nodes[&task.node].work, Work::Subgraph { .. });
        self.width.saturating_mul(self.plan().tasks.iter().filter(is_run).count())
    }

    pub fn plan(&self) -> &Plan {
        &self.boundary.plan
    }

    /// Only damage, or another graph under the run, can make a plan name a node that is not there.
    fn has_nodes_of(&self, plan: &Plan) -> Result<(), ErrorRecord> {
        match plan.tasks.iter().find(|task| !self.graph.nodes.contains_key(&task.node)) {
            None => Ok(()),
            Some(task) => {
                let what = format!("a step of the run has the node {}, which its graph has not", task.node);
                Err(ErrorRecord::new(Kind::Store, what))
            }
        }
    }

    /// Whether the run may have a step like this.
    pub fn in_bounds(&self, next: &Plan) -> Result<(), ErrorRecord> {
        self.has_nodes_of(next)?;
        self.invocation.has_room()?;
        let limits = &self.invocation.limits;
        let (tasks, step) = (next.tasks.len(), self.boundary.step + 1);
        if tasks > limits.step_tasks as usize {
            let limit = limits.step_tasks;
            let what = format!("step {step} would have {tasks} tasks; {limit} are the most (step_tasks)");
            return Err(ErrorRecord::limit("step_tasks", limit.into(), what));
        }
        if tasks > 0 && step >= limits.steps {
            let limit = limits.steps;
            let what =
                format!("the run took {limit} steps, which is the most (steps); a loop without an end?");
            return Err(ErrorRecord::limit("steps", limit.into(), what));
        }
        Ok(())
    }

    /// Not all tasks are done: a pause shows how far they are, and changes no channel.
    async fn pause(&mut self) -> Result<RunEnd, Ended> {
        let now = self.invocation.shared.clock.now();
        let pause = CheckpointId::fresh();
        let (invocation, graph, namespace) =
            (self.invocation.clone(), self.graph.clone(), self.row.namespace.clone());
        let shown = |node: &NodeId, name: &str, key: &str| {
            invocation.what_is_sent(&graph, &namespace, node, name, key)
        };
        let asked: Vec<InterruptRow> =
            self.slots.iter_mut().flat_map(|slot| slot.ask(pause, now, shown)).collect();
        // A question of this id was settled before, which only damage can do. What brought the run here is not durable
        // yet, and so is not used up.
        for slot in &self.slots {
            slot.can_be_answered()
                .map_err(|what| Ended::Engine(Refused::of(damaged(slot.row.task, &what)).into()))?;
        }
        let pending = self.slots.iter().any(Slot::is_pending);
        let error = self.slots.iter().find_map(|slot| match (&slot.row.state, &slot.child) {
            (TaskState::Failed(error), _) => Some(error.clone()),
            (TaskState::Paused, Some(child)) => child.row.error.clone(),
            _ => None,
        });
        let status = match &error {
            _ if pending => RunStatus::Interrupted,
            Some(error) if error.kind == Kind::Diverged => RunStatus::Diverged,
            _ => RunStatus::Failed,
        };
        let asked = asked.into_iter().map(Write::Interrupt).collect();
        self.pause_at(pause, status, now, asked).await;
        Ok(self.end(status, error).await)
    }

    /// The step's tasks are done, and the step cannot be.
    async fn fail(&mut self, error: ErrorRecord) -> RunEnd {
        let now = self.invocation.shared.clock.now();
        self.pause_at(CheckpointId::fresh(), RunStatus::Failed, now, Vec::new()).await;
        self.end(RunStatus::Failed, Some(error)).await
    }

    async fn pause_at(&mut self, pause: CheckpointId, status: RunStatus, now: Timestamp, asked: Vec<Write>) {
        let row = CheckpointRow {
            checkpoint: pause,
            parent: Some(self.head),
            run: self.row.run,
            kind: CheckpointKind::Pause { boundary: self.boundary.checkpoint },
            step: self.boundary.step,
            version: self.boundary.version,
            plan: Plan::default(),
            channels: Default::default(),
            status,
            created_at: now,
        };
        let tasks = self.slot_writes();
        self.move_to(pause, tasks.into_iter().chain(asked).chain([Write::Checkpoint(row)])).await;
    }

    /// The next boundary, with what changed since the last and `tasks`, the writes that say how its tasks
    /// ended: all of it in one commit, or a crash would leave tasks done whose updates are nowhere.
    async fn advance(
        &mut self,
        next: Boundary,
        parent: Option<CheckpointId>,
        changes: BTreeMap<ChannelName, Change>,
        status: RunStatus,
        tasks: Vec<Write>,
    ) {
        let rows = self.channels.apply(next.version, changes);
        self.invocation.stored(&rows);
        self.boundary = next;
        self.slots = self.fresh_slots();
        let row = CheckpointRow {
            checkpoint: self.boundary.checkpoint,
            parent,
            run: self.row.run,
            kind: CheckpointKind::Boundary,
            step: self.boundary.step,
            version: self.boundary.version,
            plan: self.boundary.plan.clone(),
            channels: self.channels.versions().clone(),
            status,
            created_at: self.boundary.created_at,
        };
        let boundary = std::iter::once(Write::Checkpoint(row)).chain(rows.into_iter().map(Write::Channel));
        self.move_to(self.boundary.checkpoint, tasks.into_iter().chain(boundary)).await;
    }

    /// How it stands from now on. A root's is written by its session, when the invocation ends.
    async fn end(&mut self, status: RunStatus, error: Option<ErrorRecord>) -> RunEnd {
        self.row.status = status;
        self.row.error.clone_from(&error);
        if self.row.parent.is_some() {
            let now = self.invocation.shared.clock.now();
            self.row.ended_at = (status == RunStatus::Completed).then_some(now);
            self.invocation.push([self.status_write()]).await;
        }
        RunEnd { status, error }
    }

    pub fn status_write(&self) -> Write {
        Write::RunStatus {
            run: self.row.run,
            status: self.row.status,
            error: self.row.error.clone(),
            ended_at: self.row.ended_at,
        }
    }

    /// Folds updates into the channels, loading those whose present value the fold needs.
    pub async fn fold<'a>(
        &mut self,
        updates: impl IntoIterator<Item = (&'a str, &'a [(ChannelName, Json)])>,
    ) -> Result<Result<BTreeMap<ChannelName, Change>, ErrorRecord>, Ended> {
        let graph = self.graph.clone();
        let updates: Vec<_> = updates.into_iter().collect();
        let needed: BTreeSet<&ChannelName> = updates
            .iter()
            .flat_map(|(_, update)| update.iter().map(|(channel, _)| channel))
            .filter(|channel| graph.channels.get(*channel).is_some_and(|reducer| reducer.reads_present()))
            .collect();
        self.channels.load(needed.into_iter(), self.invocation.ledger.as_ref()).await?;
        Ok(plan::fold(&graph, &self.channels.present(), updates)
            .map_err(|error| ErrorRecord::new(Kind::Invalid, error.to_string())))
    }

    fn fresh_slots(&self) -> Vec<Slot> {
        let planned = self.boundary.plan.tasks.iter().enumerate();
        planned
            .map(|(index, planned)| {
                let node = &self.graph.nodes[&planned.node];
                Slot {
                    row: TaskRow::fresh(
                        (self.row.run, self.boundary.checkpoint),
                        (index, &planned.node),
                        (node.work.digest(), self.invocation.shared.sandbox.fingerprint()),
                    ),
                    arg: planned.arg.clone(),
                    gated: self.gated(&planned.node, node),
                    journal: Arc::default(),
                    interrupts: Vec::new(),
                    child: None,
                    ready: true,
                    changed: true,
                }
            })
            .collect()
    }

    fn gated(&self, id: &NodeId, node: &CompiledNode) -> Gated {
        Gated {
            before: node.interrupt_before || self.row.gates.before.contains(id),
            after: node.interrupt_after || self.row.gates.after.contains(id),
        }
    }

    /// What changed about this step's tasks.
    fn slot_writes(&mut self) -> Vec<Write> {
        let mut writes = Vec::new();
        for slot in &mut self.slots {
            if std::mem::take(&mut slot.changed) {
                writes.push(Write::Task(slot.row.clone()));
            }
            writes.extend(take_journal(&slot.row, &mut locked(&slot.journal)));
        }
        writes
    }

    /// The run's latest checkpoint from now on; a root's is the thread's head as well.
    async fn move_to(&mut self, head: CheckpointId, writes: impl IntoIterator<Item = Write>) {
        self.head = head;
        let Some(ledger) = &self.invocation.ledger else { return };
        if self.row.parent.is_none() {
            ledger.advance(head, writes).await;
        } else {
            self.row.head = Some(head);
            let moved = Write::RunHead { run: self.row.run, head };
            ledger.push(writes.into_iter().chain([moved])).await;
        }
    }

    /// Goes on as this graph says.
    pub fn take_graph(&mut self, graph: Arc<CompiledGraph>) {
        self.graph = graph;
        for i in 0..self.slots.len() {
            let id = self.slots[i].row.node.clone();
            if let Some(node) = self.graph.nodes.get(&id) {
                self.slots[i].gated = self.gated(&id, node);
            }
        }
    }

    pub fn head(&self) -> CheckpointId {
        self.head
    }

    pub fn invocation(&self) -> &Arc<Invocation> {
        &self.invocation
    }

    /// Every slot of this run and of those below it, each with its run's row.
    pub fn visit(&mut self, seen: &mut dyn FnMut(&RunRow, &mut Slot)) {
        let row = self.row.clone();
        for slot in &mut self.slots {
            seen(&row, slot);
            if let Some(child) = &mut slot.child {
                child.visit(seen);
            }
        }
    }

    pub fn path_of(&self, i: usize) -> String {
        path_of(&self.row.namespace, &self.slots[i].row.node)
    }

    fn watch(&self, watched: Watched<'_>) {
        self.invocation.shared.watch(watched);
    }
}

/// What stands in the database of a task cannot be what was written there.
pub(super) fn damaged(task: TaskId, what: &str) -> ErrorRecord {
    let what = format!("task {task}: {what}; a row was changed, deleted or damaged: restore a backup");
    ErrorRecord::new(Kind::Store, what)
}
