//! One invocation: the tree of runs of a thread, from what a command changes to what is durable and handed
//! out. Writes of a run's start or of accepted answers go out with the first commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::channels::Channels;
use super::host::locked;
use super::ledger::Lost;
use super::matching::Delivery;
use super::run::{Run, RunEnd, damaged, same_settings};
use super::task::{Fault, Invocation};
use crate::model::channel::INPUT;
use crate::model::checkpoint::{
    Answer, Gates, InterruptRow, InterruptState, RunRow, SteeringRow, TaskState, Withdrawal,
};
use crate::model::compile::CompiledGraph;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{
    ChannelName, CheckpointId, Digest, InstructionId, InterruptId, NodeId, RunId, TaskId,
};
use crate::model::interrupt::PendingInterrupt;
use crate::model::json::Json;
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

/// What a command brings.
#[derive(Default)]
pub struct Brought {
    pub deliveries: Vec<Delivery>,
    /// Answers to what is pending in children, that came with those.
    pub resolved: Vec<Delivery>,
    /// Tasks whose child runs are called off.
    pub cancelled: Vec<TaskId>,
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
    pub(super) root: Run,
    request: Option<Request>,
}

impl Session {
    /// A new run, from an input that was accepted. `before`: how the thread stood.
    pub async fn start(
        invocation: Arc<Invocation>,
        graph: Arc<CompiledGraph>,
        before: Option<&ThreadSnapshot>,
        ids: (RunId, CheckpointId),
        (input, gates): (Vec<(ChannelName, Json)>, Gates),
    ) -> Result<Self, Ended> {
        let row = RunRow {
            run: ids.0,
            parent: None,
            graph: graph.digest(),
            namespace: Vec::new(),
            agent: None,
            given: BTreeMap::new(),
            head: None,
            gates,
            status: RunStatus::Running,
            error: None,
            created_at: invocation.shared.clock.now(),
            ended_at: None,
        };
        let mut channels = Channels::default();
        if let Some(snapshot) = before {
            channels = Channels::at(snapshot.root.checkpoint.channels.clone());
            channels.hold(snapshot.values.clone());
        }
        let first = (ids.1, before.map(|snapshot| snapshot.head));
        let root =
            Run::begin(invocation.clone(), graph, (row, &[], Vec::new()), first, channels, (INPUT, &input));
        let root =
            root.await?.map_err(|error| Ended::Engine(Refused::plain(error.kind, error.message).into()))?;
        Ok(Self { invocation, root, request: None })
    }

    /// A run that was left: paused, failed, or by a process that died.
    pub async fn reopen(
        invocation: Arc<Invocation>,
        snapshot: ThreadSnapshot,
    ) -> Result<Self, super::EngineError> {
        let mut root = Run::reopen(invocation.clone(), (Vec::new(), 1), snapshot.root).await?;
        root.channels.hold(snapshot.values);
        Ok(Self { invocation, root, request: None })
    }

    /// Whether answers would get a run further that was just reopened: refused before they are used up.
    pub fn can_take(&mut self, brought: &Brought) -> Result<(), ErrorRecord> {
        let present = self.invocation.shared.sandbox.fingerprint();
        let mut refused = None;
        self.root.visit(&mut |_, slot| {
            let is_answered = |row: &InterruptRow| {
                let mut deliveries = brought.deliveries.iter().chain(&brought.resolved);
                !row.kind.is_gate() && deliveries.any(|delivery| delivery.interrupt == row.interrupt)
            };
            if refused.is_none() && slot.interrupts.iter().any(is_answered) {
                refused = same_settings(slot, present).err();
            }
        });
        match refused {
            Some(error) => Err(error),
            None => self.root.is_whole(),
        }
    }

    /// Takes down what a command brings; it is durable with the first commit.
    pub async fn accept(&mut self, brought: Brought) {
        let Brought { deliveries, resolved, cancelled, actor: by, steer, request } = brought;
        let now = self.invocation.shared.clock.now();
        let mut writes = Vec::new();
        if let Some(text) = steer {
            let row = self.instruction(&deliveries, by.clone(), text);
            locked(&self.invocation.steered).push(row.clone());
            writes.push(Write::Steer(row));
        }
        let with = deliveries.first().map(|delivery| delivery.interrupt);
        let reason = with.map(|with| format!("resolved with the answer to {with}"));
        let direct = deliveries.into_iter().map(|delivery| (delivery, None));
        let along = resolved.into_iter().map(|delivery| (delivery, reason.clone()));
        for (Delivery { interrupt, value }, reason) in direct.chain(along) {
            let answer = Answer { value: value.clone(), at: now, by: by.clone(), reason };
            self.root.visit(&mut |_, slot| {
                let Some(row) = slot.interrupts.iter_mut().find(|row| row.interrupt == interrupt) else {
                    return;
                };
                row.state = InterruptState::Answered(answer.clone());
                if !row.kind.is_gate() {
                    locked(&slot.journal).answer(row.entry, row.place, value.clone(), now);
                }
                slot.ready |= slot.is_answered();
            });
            writes.push(Write::Answer { interrupt, answer });
        }
        if let Some(with) = with.filter(|_| !cancelled.is_empty()) {
            let reason = format!("called off with the answer to {with}");
            writes.extend(self.root.cancel_children(&cancelled, by.as_deref(), &reason));
        }
        if let Some(Request { id, command }) = request.clone() {
            writes.push(Write::Request { request_id: id, command, at: now, reply: None });
        }
        self.request = request;
        self.invocation.push(writes).await;
    }

    /// For the one task that is answered; where several are, for all of them, and so for the run.
    fn instruction(&mut self, deliveries: &[Delivery], by: Option<String>, text: String) -> SteeringRow {
        let mut answered: Vec<(RunId, TaskId, InterruptId)> = Vec::new();
        self.root.visit(&mut |run, slot| {
            let rows =
                slot.interrupts.iter().filter(|row| deliveries.iter().any(|d| d.interrupt == row.interrupt));
            answered.extend(rows.map(|row| (run.run, row.task, row.interrupt)));
        });
        let only = match answered.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        SteeringRow {
            run: only.map_or(self.root.row.run, |(run, ..)| run),
            id: InstructionId::fresh(),
            task: only.map(|(_, task, _)| task),
            interrupt: only.map(|(.., interrupt)| interrupt),
            actor: by.unwrap_or_default(),
            text,
            at: self.invocation.shared.clock.now(),
            delivered_at: None,
        }
    }

    /// Does what follows from questions whose time is over: their default answer is given, or their task
    /// fails and asks nothing any more. Durable with the first commit, as answers are: if somebody answers
    /// at the same moment, one of the two commits wins.
    pub async fn expire(&mut self) {
        let writes = self.root.expire();
        self.invocation.push(writes).await;
    }

    /// Tries again what failed, all through the tree; what is done stays done. Returns whether there was any.
    pub async fn retry(&mut self) -> bool {
        let (any, writes) = self.root.retry();
        self.invocation.push(writes).await;
        any
    }

    /// Runs until the run completes, pauses or fails, and makes that durable.
    pub async fn drive(mut self) -> Result<Execution, Ended> {
        let invocation = self.invocation.clone();
        let driven = {
            let stop = invocation.shared.stopped();
            let called_off =
                invocation.shared.when_called_off(&invocation.tenant, invocation.thread.as_ref());
            tokio::select! {
                biased;
                () = stop => None,
                () = called_off => Some(Err(Ended::from(Lost::Conflict))),
                lost = keep(&invocation) => Some(Err(Ended::from(lost))),
                driven = self.run() => Some(driven),
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

    async fn run(&mut self) -> Result<Execution, Ended> {
        let RunEnd { status, error } = self.root.steps().await?;
        if status == RunStatus::Interrupted && self.invocation.ledger.is_none() {
            let error = self.resume_error();
            return self.end(RunStatus::Failed, Some(error)).await;
        }
        self.end(status, error).await
    }

    /// Rule 1 of interrupts: without durability there is no interrupted execution.
    fn resume_error(&mut self) -> ErrorRecord {
        let mut asks: Option<NodeId> = None;
        self.root.visit(&mut |_, slot| {
            // The last in a line of subgraphs is who asks.
            if slot.is_pending() && (asks.is_none() || slot.child.is_none()) {
                asks = Some(slot.row.node.clone());
            }
        });
        let node = asks.map(|node| node.to_string()).unwrap_or_default();
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

    /// Makes the end of the invocation durable, and only then hands it out.
    async fn end(&mut self, status: RunStatus, error: Option<ErrorRecord>) -> Result<Execution, Ended> {
        let now = self.invocation.shared.clock.now();
        self.root.row.status = status;
        self.root.row.error.clone_from(&error);
        self.root.row.ended_at = (status == RunStatus::Completed).then_some(now);
        let execution = self.execution(status, error);
        let Some(ledger) = &self.invocation.ledger else {
            return Ok(execution);
        };
        let mut writes = vec![self.root.status_write()];
        if let Some(Request { id, command }) = self.request.take() {
            let reply = serde_json::to_value(&execution).ok();
            let reply = reply.and_then(|reply| Json::from_value(&reply).ok());
            writes.push(Write::Request { request_id: id, command, at: now, reply });
        }
        let over =
            |call: super::call::ForCall| call.over((execution.run_id, status), execution.error.clone(), now);
        writes.extend(self.invocation.call.and_then(over));
        ledger.push(writes).await;
        fail::fail_point!("engine::before_end");
        ledger.finish(status).await?;
        fail::fail_point!("engine::after_end");
        Ok(execution)
    }

    /// How the run stands, from what is at hand.
    fn execution(&self, status: RunStatus, error: Option<ErrorRecord>) -> Execution {
        let durable = self.invocation.ledger.is_some();
        let mut interrupts = Vec::new();
        if durable {
            self.root.pending(&mut interrupts);
        }
        Execution {
            thread: self.invocation.thread.clone(),
            run_id: self.root.row.run,
            checkpoint_id: durable.then_some(self.root.head()),
            status,
            interrupts,
            error,
        }
    }
}

impl Run {
    /// Where a run that was just reopened waits, every task of its step is on record, and all that it waits for is
    /// asked. What a process that died left is so once it was continued.
    fn is_whole(&self) -> Result<(), ErrorRecord> {
        if self.row.status == RunStatus::Interrupted {
            let is_begun = self.slots.iter().any(|slot| !slot.changed);
            for slot in &self.slots {
                if is_begun && slot.changed {
                    return Err(damaged(slot.row.task, "its row is not there"));
                }
                let asked = slot.can_be_answered();
                asked.map_err(|what| {
                    damaged(slot.row.task, &format!("{what} (where it is lost, to continue the run asks it)"))
                })?;
            }
        }
        self.slots.iter().filter_map(|slot| slot.child.as_deref()).try_for_each(Self::is_whole)
    }

    /// See [`Session::expire`].
    fn expire(&mut self) -> Vec<Write> {
        let now = self.invocation().shared.clock.now();
        let mut writes = Vec::new();
        for i in 0..self.slots.len() {
            let slot = &mut self.slots[i];
            let mut unanswered = None;
            for row in slot.interrupts.iter_mut().filter(|row| row.is_due(now)) {
                let Some(value) = row.default_answer.clone() else {
                    unanswered = Some((row.interrupt, row.order));
                    continue;
                };
                let answer =
                    Answer { value: value.clone(), at: now, by: None, reason: Some("it expired".into()) };
                row.state = InterruptState::Answered(answer.clone());
                locked(&slot.journal).answer(row.entry, row.place, value, now);
                writes.push(Write::Answer { interrupt: row.interrupt, answer });
            }
            if let Some((interrupt, order)) = unanswered {
                writes.extend(slot.withdraw(|row| {
                    let reason = match row.is_due(now) {
                        true => "it expired".to_owned(),
                        false => format!("its task failed when interrupt {interrupt} expired"),
                    };
                    Some(Withdrawal::new(now, None, reason))
                }));
                let node = &slot.row.node;
                let what = format!("node {node}: interrupt {interrupt} (order {order}) expired unanswered");
                self.task_failed(i, ErrorRecord::new(Kind::Expired, what));
            }
            let slot = &mut self.slots[i];
            if let Some(child) = &mut slot.child {
                writes.extend(child.expire());
            }
            slot.ready |= slot.is_answered();
        }
        writes
    }

    /// See [`Session::retry`].
    fn retry(&mut self) -> (bool, Vec<Write>) {
        let now = self.invocation().shared.clock.now();
        let (mut any, mut writes) = (false, Vec::new());
        for slot in &mut self.slots {
            if let Some(child) = &mut slot.child
                && child.row.status != RunStatus::Cancelled
            {
                let (below, more) = child.retry();
                any |= below;
                writes.extend(more);
                if below && matches!(slot.row.state, TaskState::Failed(_)) {
                    slot.row.state = TaskState::Started;
                    slot.ready = true;
                    slot.changed = true;
                }
                continue;
            }
            let TaskState::Failed(error) = &slot.row.state else { continue };
            any = true;
            slot.row.failures = 0;
            if matches!(error.kind, Kind::Diverged | Kind::EngineMismatch) {
                // Perhaps the host is another one now; what is on record is not touched for it.
                slot.ready = true;
                slot.changed = true;
            } else {
                slot.child = None;
                slot.row.child = None;
                writes.extend(slot.retry(now));
            }
            // Also of one that diverged.
            slot.row.state = TaskState::Started;
        }
        // Its tasks are done and its step could not be: that is tried again as well.
        any |= self.row.status == RunStatus::Failed;
        (any, writes)
    }

    /// Calls off the child runs of these tasks, wherever they are.
    fn cancel_children(&mut self, tasks: &[TaskId], by: Option<&str>, reason: &str) -> Vec<Write> {
        let now = self.invocation().shared.clock.now();
        let mut writes = Vec::new();
        for i in 0..self.slots.len() {
            let slot = &mut self.slots[i];
            let Some(child) = &mut slot.child else { continue };
            if tasks.contains(&slot.row.task) {
                writes.extend(child.call_off(now, by, reason));
                let node = slot.row.node.clone();
                let error =
                    ErrorRecord::new(Kind::Cancelled, format!("node {node}: its child run was {reason}"));
                self.task_failed(i, error);
            } else {
                writes.extend(child.cancel_children(tasks, by, reason));
            }
        }
        writes
    }

    /// What waits, as it is shown, in task order.
    fn pending(&self, all: &mut Vec<PendingInterrupt>) {
        for slot in &self.slots {
            let asked = slot.interrupts.iter().map(|row| super::tree::Asked {
                row,
                run: &self.row,
                run_path: self.path.clone(),
                run_tasks: Vec::new(),
            });
            all.extend(asked.filter(|asked| asked.is_pending()).map(|asked| asked.shown()));
            if let Some(child) = &slot.child {
                child.pending(all);
            }
        }
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
