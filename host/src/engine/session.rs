//! One invocation of a run, from its boundary on: run what is ready, commit what came of it, again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;

use super::channels::Channels;
use super::host::locked;
use super::ledger::Lost;
use super::matching::Delivery;
use super::plan;
use super::slot::{Gated, Slot, pending};
use super::task::{Fault, Invocation, TaskOutside, take_journal};
use super::watch::Watched;
use crate::model::channel::{Change, INPUT};
use crate::model::checkpoint::{
    Answer, CheckpointKind, CheckpointRow, Finish, Gates, InterruptRow, InterruptState, Plan, RunRow,
    SteeringRow, TaskRow, TaskState,
};
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{
    ChannelName, CheckpointId, Digest, InstructionId, NodeId, RunId, TaskId, ThreadId, Timestamp,
};
use crate::model::interrupt::InterruptKind;
use crate::model::journal::Journal;
use crate::model::json::Json;
use crate::sandbox::{Attempt, Component, Context, End, Ran};
use crate::store::{ThreadSnapshot, Write};

/// How an invocation ended without an execution.
#[derive(Debug)]
pub enum Ended {
    Fault(Fault),
    Engine(super::EngineError),
    /// Told to stop; what was done is durable.
    Stopped,
}

impl From<Lost> for Ended {
    fn from(lost: Lost) -> Self {
        Self::Fault(Fault::Lost(lost))
    }
}

/// The boundary that the tasks of a step start from.
struct Boundary {
    checkpoint: CheckpointId,
    step: u32,
    version: i64,
    created_at: Timestamp,
    plan: Plan,
}

/// What comes with answers.
#[derive(Default)]
pub struct With {
    pub actor: Option<String>,
    pub steer: Option<String>,
    pub request: Option<Request>,
}

/// A request that named itself, and what it is for: another one under the same name is a mistake.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: String,
    pub command: Digest,
}

pub struct Session {
    invocation: Arc<Invocation>,
    thread: Option<ThreadId>,
    secret: [u8; 32],
    run: RunRow,
    boundary: Boundary,
    head: CheckpointId,
    channels: Channels,
    slots: Vec<Slot>,
    request: Option<Request>,
}

/// Writes of a run's start or of accepted answers go out with the first commit.
impl Session {
    /// A new run, from an input that was accepted. `before`: how the thread stood.
    pub async fn start(
        invocation: Arc<Invocation>,
        thread: Option<ThreadId>,
        secret: [u8; 32],
        before: Option<&ThreadSnapshot>,
        ids: (RunId, CheckpointId),
        (input, gates): (Vec<(ChannelName, Json)>, Gates),
    ) -> Result<Self, Ended> {
        let now = invocation.shared.clock.now();
        let graph = invocation.graph.clone();
        let run = RunRow {
            run: ids.0,
            parent: None,
            graph: graph.digest(),
            namespace: Vec::new(),
            gates,
            status: RunStatus::Running,
            error: None,
            created_at: now,
            ended_at: None,
        };
        let mut session = Self {
            invocation,
            thread,
            secret,
            run: run.clone(),
            boundary: Boundary {
                checkpoint: ids.1,
                step: 0,
                version: before.map_or(0, |snapshot| snapshot.version),
                created_at: now,
                plan: Plan::default(),
            },
            head: before.map_or(ids.1, |snapshot| snapshot.head),
            channels: Channels::at(
                before.map(|snapshot| snapshot.checkpoint.channels.clone()).unwrap_or_default(),
            ),
            slots: Vec::new(),
            request: None,
        };
        let updates = [(INPUT, input.as_slice())];
        let parent = before.map(|snapshot| snapshot.head);
        let changes = session
            .fold(updates)
            .await?
            .map_err(|error| Ended::Engine(Refused::plain(error.kind, error.message).into()))?;
        let (version, plan) = (session.boundary.version + 1, plan::entry(&graph));
        let first = Boundary { checkpoint: ids.1, step: 0, version, created_at: now, plan };
        session.advance(first, parent, changes, RunStatus::Running, vec![Write::Run(run)]).await;
        Ok(session)
    }

    /// A run that was left: paused, failed, or by a process that died.
    pub fn reopen(invocation: Arc<Invocation>, thread: ThreadId, snapshot: ThreadSnapshot) -> Self {
        let boundary = Boundary {
            checkpoint: snapshot.boundary,
            step: snapshot.checkpoint.step,
            version: snapshot.version,
            created_at: snapshot.boundary_created_at,
            plan: snapshot.checkpoint.plan,
        };
        let mut session = Self {
            invocation,
            thread: Some(thread),
            secret: snapshot.secret,
            run: snapshot.run,
            boundary,
            head: snapshot.head,
            channels: Channels::at(snapshot.checkpoint.channels),
            slots: Vec::new(),
            request: None,
        };
        let mut slots = session.fresh_slots();
        for row in snapshot.tasks {
            let Some(slot) = slots.get_mut(row.index) else { continue };
            slot.changed = false;
            slot.ready = matches!(row.state, TaskState::Started);
            slot.row = row;
        }
        for row in snapshot.interrupts {
            if let Some(slot) = slots.iter_mut().find(|slot| slot.row.task == row.task) {
                slot.interrupts.push(row);
            }
        }
        let mut journals = snapshot.journal.into_iter().peekable();
        for slot in &mut slots {
            let mut entries = Vec::new();
            while let Some(row) = journals.next_if(|row| row.task == slot.row.task) {
                entries.push(row.entry);
            }
            let journal = Journal::recorded(entries, slot.row.generation);
            slot.journal = Arc::new(Mutex::new(journal));
            slot.ready |= slot.is_answered();
        }
        session.slots = slots;
        session
    }

    /// Takes accepted answers down; they are durable with the first commit.
    pub async fn accept(&mut self, deliveries: Vec<Delivery>, with: With) {
        let With { actor: by, steer, request } = with;
        let now = self.invocation.shared.clock.now();
        let mut writes = Vec::new();
        if let Some(text) = steer {
            // For the one task that is answered; where several are, for all of them, and so for the run.
            let answered = |row: &&InterruptRow| deliveries.iter().any(|d| d.interrupt == row.interrupt);
            let mut rows = self.slots.iter().flat_map(|slot| &slot.interrupts).filter(answered);
            let (first, more) = (rows.next(), rows.next());
            let only = first.filter(|_| more.is_none());
            let row = SteeringRow {
                run: self.run.run,
                id: InstructionId::fresh(),
                task: only.map(|row| row.task),
                interrupt: only.map(|row| row.interrupt),
                actor: by.clone().unwrap_or_default(),
                text,
                at: now,
            };
            locked(&self.invocation.steered).push(row.clone());
            writes.push(Write::Steer(row));
        }
        for Delivery { interrupt, value } in deliveries {
            let answer = Answer { value: value.clone(), at: now, by: by.clone() };
            for slot in &mut self.slots {
                let Some(row) = slot.interrupts.iter_mut().find(|row| row.interrupt == interrupt) else {
                    continue;
                };
                row.state = InterruptState::Answered(answer.clone());
                if !row.kind.is_gate() {
                    locked(&slot.journal).answer(row.entry, row.place, value.clone(), now);
                }
                slot.ready |= slot.is_answered();
            }
            writes.push(Write::Answer { interrupt, answer });
        }
        if let Some(Request { id, command }) = request.clone() {
            writes.push(Write::Request { request_id: id, command, at: now, reply: None });
        }
        self.request = request;
        self.push(writes).await;
    }

    /// Does what follows from questions whose time is over: their default answer is given, or their task
    /// fails and asks nothing any more. Durable with the first commit, as answers are: if somebody answers
    /// at the same moment, one of the two commits wins.
    pub async fn expire(&mut self) {
        let now = self.invocation.shared.clock.now();
        let mut writes = Vec::new();
        for slot in &mut self.slots {
            let mut unanswered = None;
            for row in slot.interrupts.iter_mut().filter(|row| row.is_due(now)) {
                let Some(value) = row.default_answer.clone() else {
                    unanswered = Some((row.interrupt, row.order));
                    continue;
                };
                let answer = Answer { value: value.clone(), at: now, by: None };
                row.state = InterruptState::Answered(answer.clone());
                locked(&slot.journal).answer(row.entry, row.place, value, now);
                writes.push(Write::Answer { interrupt: row.interrupt, answer });
            }
            if let Some((interrupt, order)) = unanswered {
                for row in slot.interrupts.iter_mut().filter(|row| row.state == InterruptState::Pending) {
                    let reason = match row.is_due(now) {
                        true => "it expired".to_owned(),
                        false => format!("its task failed when interrupt {interrupt} expired"),
                    };
                    row.state = InterruptState::Withdrawn { at: now, reason: reason.clone() };
                    writes.push(Write::Withdraw { interrupt: row.interrupt, at: now, reason });
                }
                let node = &slot.row.node;
                let what = format!("node {node}: interrupt {interrupt} (order {order}) expired unanswered");
                let error = ErrorRecord::new(Kind::Expired, what)
                    .with("node", node.as_str())
                    .with("task_id", slot.row.task.to_string());
                slot.end(TaskState::Failed(error));
            }
            slot.ready |= slot.is_answered();
        }
        self.push(writes).await;
    }

    /// Runs until the run completes, pauses or fails, and makes that durable.
    pub async fn drive(mut self) -> Result<Execution, Ended> {
        let invocation = self.invocation.clone();
        let driven = {
            let stop = invocation.shared.stopped();
            tokio::select! {
                biased;
                () = stop => None,
                lost = keep(&invocation) => Some(Err(Ended::from(lost))),
                driven = self.steps() => Some(driven),
            }
        };
        let ended = match driven {
            Some(Ok(execution)) => return Ok(execution),
            Some(Err(ended)) => ended,
            None => Ended::Stopped,
        };
        // The thread is let go with what was done so far, so that it can be continued at once. Where the
        // guard or the store is what failed, this fails as well, and says nothing new.
        if let (
            Some(ledger),
            Ended::Stopped | Ended::Fault(Fault::HandlerPanicked { .. } | Fault::Attempt { .. }),
        ) = (&invocation.ledger, &ended)
        {
            ledger.finish(RunStatus::Running).await?;
        }
        Err(ended)
    }

    async fn steps(&mut self) -> Result<Execution, Ended> {
        loop {
            if self.slots.is_empty() {
                return self.end(RunStatus::Completed, None).await;
            }
            self.run_ready().await?;
            let finished: Option<Vec<&Finish>> = self
                .slots
                .iter()
                .map(|slot| match &slot.row.state {
                    TaskState::Finished(finish) if slot.gate().is_none() => Some(finish),
                    _ => None,
                })
                .collect();
            let Some(finished) = finished else {
                return self.pause().await;
            };
            let graph = self.invocation.graph.clone();
            let next = plan::next(&graph, &self.boundary.plan, &finished);
            let limits = &self.invocation.limits;
            if next.tasks.len() > limits.step_tasks as usize {
                let (limit, step) = (limits.step_tasks, self.boundary.step + 1);
                let what = format!(
                    "step {step} would have {} tasks; {limit} are the most (step_tasks)",
                    next.tasks.len()
                );
                let error = ErrorRecord::limit("step_tasks", limit.into(), what);
                return self.fail(error).await;
            }
            if !next.tasks.is_empty() && self.boundary.step + 1 >= limits.steps {
                let error = ErrorRecord::limit(
                    "steps",
                    limits.steps.into(),
                    format!(
                        "the run took {} steps, which is the most (steps); a loop without an end?",
                        limits.steps
                    ),
                );
                return self.fail(error).await;
            }
            let updates: Vec<(String, Vec<(ChannelName, Json)>)> = self
                .slots
                .iter()
                .zip(finished)
                .map(|(slot, finish)| (slot.row.node.to_string(), finish.update.clone()))
                .collect();
            let changes = match self.fold(updates.iter().map(|(w, u)| (w.as_str(), u.as_slice()))).await? {
                Ok(changes) => changes,
                Err(error) => return self.fail(error).await,
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
            let next = Boundary {
                checkpoint: CheckpointId::fresh(),
                step: self.boundary.step + 1,
                version: self.boundary.version + 1,
                created_at: self.invocation.shared.clock.now(),
                plan: next,
            };
            self.advance(next, Some(self.head), changes, status, tasks).await;
        }
    }

    /// Runs every ready task, all at once; each ends in its slot.
    async fn run_ready(&mut self) -> Result<(), Ended> {
        let graph = self.invocation.graph.clone();
        for slot in self.slots.iter_mut().filter(|slot| slot.ready) {
            if slot.gate() == Some(InterruptKind::Before) {
                slot.end(TaskState::Paused);
            }
        }
        let ready: Vec<usize> = (0..self.slots.len()).filter(|&i| self.slots[i].ready).collect();
        if ready.is_empty() {
            return Ok(());
        }
        let reads: BTreeSet<&ChannelName> =
            ready.iter().flat_map(|&i| graph.nodes[&self.slots[i].row.node].reads.values()).collect();
        self.channels.load(reads.into_iter(), self.invocation.ledger.as_ref()).await?;
        self.watch(Watched::Step { step: self.boundary.step, tasks: ready.len() });
        let mut attempts = JoinSet::new();
        let mut running = HashMap::new();
        for i in ready {
            let component = self.component(i).await?;
            let attempt = match self.attempt(i) {
                Ok(attempt) => attempt,
                Err(error) => {
                    self.slots[i].end(TaskState::Failed(error));
                    continue;
                }
            };
            let slot = &self.slots[i];
            let (node, task, attempt_number) = (&slot.row.node, slot.row.task, slot.row.attempts);
            self.watch(Watched::TaskStarted { node, task, attempt: attempt_number });
            let sandbox = self.invocation.shared.sandbox.clone();
            let spawned = attempts.spawn(async move { (i, sandbox.run(&component, attempt).await) });
            running.insert(spawned.id(), i);
        }
        while let Some(joined) = attempts.join_next().await {
            match joined {
                Ok((i, ran)) => self.ran(i, ran)?,
                // Nothing in an attempt panics on a guest's account; should the host itself, this
                // invocation ends and the host lives.
                Err(error) => {
                    let node = self.slots[running[&error.id()]].row.node.clone();
                    return Err(Ended::Fault(Fault::Attempt { node }));
                }
            }
        }
        Ok(())
    }

    fn attempt(&mut self, i: usize) -> Result<Attempt, ErrorRecord> {
        let invocation = &self.invocation;
        let slot = &mut self.slots[i];
        slot.row.attempts += 1;
        slot.row.state = TaskState::Started;
        let node = &invocation.graph.nodes[&slot.row.node];
        let state = Json::object(
            node.reads.iter().filter_map(|(own, channel)| Some((own.as_str(), self.channels.get(channel)?))),
        );
        let limits = node.limits.within(&invocation.limits);
        if state.as_str().len() as u64 > limits.state_bytes {
            return Err(ErrorRecord::limit(
                "state_bytes",
                limits.state_bytes,
                format!(
                    "what node {} reads has {} bytes; at most {} are handed over (state_bytes)",
                    slot.row.node,
                    state.as_str().len(),
                    limits.state_bytes
                ),
            )
            .with("node", slot.row.node.as_str())
            .with("task_id", slot.row.task.to_string()));
        }
        locked(&slot.journal).rewind();
        let context = Context {
            thread_id: invocation.thread.clone(),
            run_id: self.run.run.to_string(),
            task_id: slot.row.task.to_string(),
            node: slot.row.node.to_string(),
            path: self.run.namespace.clone(),
            step: self.boundary.step,
            arg: slot.arg.clone(),
        };
        let seed = crate::model::Digest::of_parts([
            self.secret.as_slice(),
            b"seed",
            slot.row.task.0.as_bytes().as_slice(),
        ]);
        Ok(Attempt {
            tenant: invocation.tenant.clone(),
            context,
            state,
            journal: slot.journal.clone(),
            outside: Arc::new(TaskOutside {
                invocation: invocation.clone(),
                row: slot.row.clone(),
                journal: slot.journal.clone(),
            }),
            clock: self.boundary.created_at,
            seed: seed.0,
            limits,
        })
    }

    async fn component(&self, i: usize) -> Result<Component, Ended> {
        let row = &self.slots[i].row;
        self.invocation
            .shared
            .component((&self.invocation.tenant, &self.invocation.limits), row.component, row.node.as_str())
            .await
            .map_err(Ended::Engine)
    }

    fn ran(&mut self, i: usize, ran: Ran) -> Result<(), Ended> {
        let invocation = self.invocation.clone();
        let slot = &mut self.slots[i];
        let node_id = slot.row.node.clone();
        let state = match ran.end {
            End::Fault => {
                let mut fault = locked(&invocation.fault);
                return Err(Ended::Fault(fault.take().unwrap_or(Fault::Attempt { node: node_id })));
            }
            End::Finished { update, routes } => {
                let node = &invocation.graph.nodes[&node_id];
                match plan::accept(&invocation.graph, &node_id, node, update, routes) {
                    Ok(finish) => TaskState::Finished(finish),
                    Err(error) => TaskState::Failed(error),
                }
            }
            End::Paused => TaskState::Paused,
            End::Failed { error, retryable: true } => TaskState::Failed(error.with("retryable", true)),
            End::Failed { error, retryable: false } => TaskState::Failed(error),
            End::Diverged(divergence) => {
                let mut error = ErrorRecord::new(
                    Kind::Diverged,
                    format!("node {node_id} did not do again what it did before: {divergence}"),
                );
                if let serde_json::Value::Object(more) = divergence.to_value() {
                    error.more = more;
                }
                TaskState::Failed(error)
            }
        };
        let state = match state {
            TaskState::Failed(error) => TaskState::Failed(
                error.with("node", node_id.as_str()).with("task_id", slot.row.task.to_string()),
            ),
            state => state,
        };
        let how = match &state {
            TaskState::Finished(_) => "finished",
            TaskState::Paused => "paused",
            TaskState::Failed(error) if error.kind == Kind::Diverged => "diverged",
            _ => "failed",
        };
        slot.end(state);
        let task = slot.row.task;
        self.watch(Watched::TaskEnded { node: &node_id, task, how });
        Ok(())
    }

    /// Not all tasks are done: a pause shows how far they are, and changes no channel.
    async fn pause(&mut self) -> Result<Execution, Ended> {
        let now = self.invocation.shared.clock.now();
        let pause = CheckpointId::fresh();
        let invocation = self.invocation.clone();
        let shown = |node: &NodeId, name: &str, key: &str| invocation.what_is_sent(node, name, key);
        let asked: Vec<InterruptRow> =
            self.slots.iter_mut().flat_map(|slot| slot.ask(pause, now, shown)).collect();
        let pending = self.slots.iter().any(Slot::is_pending);
        if pending && self.invocation.ledger.is_none() {
            return self.end(RunStatus::Failed, Some(self.resume_error())).await;
        }
        let error = self.slots.iter().find_map(|slot| match &slot.row.state {
            TaskState::Failed(error) => Some(error.clone()),
            _ => None,
        });
        let status = match &error {
            _ if pending => RunStatus::Interrupted,
            Some(error) if error.kind == Kind::Diverged => RunStatus::Diverged,
            _ => RunStatus::Failed,
        };
        let asked = asked.into_iter().map(Write::Interrupt).collect();
        self.pause_at(pause, status, now, asked).await;
        self.end(status, error).await
    }

    /// The step's tasks are done, and the step cannot be.
    async fn fail(&mut self, error: ErrorRecord) -> Result<Execution, Ended> {
        let now = self.invocation.shared.clock.now();
        self.pause_at(CheckpointId::fresh(), RunStatus::Failed, now, Vec::new()).await;
        self.end(RunStatus::Failed, Some(error)).await
    }

    async fn pause_at(&mut self, pause: CheckpointId, status: RunStatus, now: Timestamp, asked: Vec<Write>) {
        let row = CheckpointRow {
            checkpoint: pause,
            parent: Some(self.head),
            run: self.run.run,
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

    /// Rule 1 of interrupts: without durability there is no interrupted execution.
    fn resume_error(&self) -> ErrorRecord {
        let node = self.slots.iter().find(|slot| slot.is_pending()).map(|slot| slot.row.node.to_string());
        let node = node.unwrap_or_default();
        let (missing, way_out) = if self.invocation.shared.store.is_none() {
            ("the host has no database", "open it with one (Host::open)")
        } else {
            ("the run has no thread", "name one (RunConfig::thread)")
        };
        ErrorRecord::new(
            Kind::Resume,
            format!("node {node} asked a question, but {missing} to resume from; {way_out}"),
        )
        .with("node", node)
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
        self.boundary = next;
        self.slots = self.fresh_slots();
        let row = CheckpointRow {
            checkpoint: self.boundary.checkpoint,
            parent,
            run: self.run.run,
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

    /// Makes the end of the invocation durable, and only then hands it out.
    async fn end(&mut self, status: RunStatus, error: Option<ErrorRecord>) -> Result<Execution, Ended> {
        let now = self.invocation.shared.clock.now();
        self.run.status = status;
        self.run.error.clone_from(&error);
        let execution = self.execution(status, error.clone());
        let Some(ledger) = &self.invocation.ledger else {
            return Ok(execution);
        };
        let mut writes = vec![Write::RunStatus {
            run: self.run.run,
            status,
            error,
            ended_at: (status == RunStatus::Completed).then_some(now),
        }];
        if let Some(Request { id, command }) = self.request.take() {
            let reply = serde_json::to_value(&execution).ok();
            let reply = reply.and_then(|reply| Json::from_value(&reply).ok());
            writes.push(Write::Request { request_id: id, command, at: now, reply });
        }
        ledger.push(writes).await;
        fail::fail_point!("engine::before_end");
        ledger.finish(status).await?;
        fail::fail_point!("engine::after_end");
        Ok(execution)
    }

    /// How the run stands, from what is at hand.
    pub fn execution(&self, status: RunStatus, error: Option<ErrorRecord>) -> Execution {
        let durable = self.invocation.ledger.is_some();
        let interrupts =
            if durable { pending(self.slots.iter().flat_map(|slot| &slot.interrupts)) } else { Vec::new() };
        Execution {
            thread: self.thread.clone(),
            run_id: self.run.run,
            checkpoint_id: durable.then_some(self.head),
            status,
            interrupts,
            error,
        }
    }

    /// Folds updates into the channels, loading those whose present value the fold needs.
    async fn fold<'a>(
        &mut self,
        updates: impl IntoIterator<Item = (&'a str, &'a [(ChannelName, Json)])>,
    ) -> Result<Result<BTreeMap<ChannelName, Change>, ErrorRecord>, Ended> {
        let graph = self.invocation.graph.clone();
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
        let graph = &self.invocation.graph;
        let planned = self.boundary.plan.tasks.iter().enumerate();
        planned
            .map(|(index, planned)| Slot {
                row: TaskRow {
                    task: TaskId::derive(self.boundary.checkpoint, index, &planned.node),
                    run: self.run.run,
                    boundary: self.boundary.checkpoint,
                    index,
                    node: planned.node.clone(),
                    component: graph.nodes[&planned.node].component,
                    attempts: 0,
                    generation: 0,
                    state: TaskState::Started,
                },
                arg: planned.arg.clone(),
                gated: Gated {
                    before: graph.nodes[&planned.node].interrupt_before
                        || self.run.gates.before.contains(&planned.node),
                    after: graph.nodes[&planned.node].interrupt_after
                        || self.run.gates.after.contains(&planned.node),
                },
                journal: Arc::default(),
                interrupts: Vec::new(),
                ready: true,
                changed: true,
            })
            .collect()
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

    async fn push(&self, writes: impl IntoIterator<Item = Write>) {
        if let Some(ledger) = &self.invocation.ledger {
            ledger.push(writes).await;
        }
    }

    async fn move_to(&mut self, head: CheckpointId, writes: impl IntoIterator<Item = Write>) {
        self.head = head;
        if let Some(ledger) = &self.invocation.ledger {
            ledger.advance(head, writes).await;
        }
    }

    fn watch(&self, watched: Watched<'_>) {
        self.invocation.shared.watch(watched);
    }
}

/// Makes a long invocation durable once it outlives its budget, and keeps the thread's lease. Ends only
/// when that fails.
async fn keep(invocation: &Invocation) -> Lost {
    let Some(ledger) = &invocation.ledger else {
        return std::future::pending().await;
    };
    let mut wait = invocation.shared.settings.budget_ms;
    loop {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if let Err(lost) = ledger.hold().await {
            return lost;
        }
        wait = (invocation.shared.settings.lease_ms / 3).max(1);
    }
}
