//! The tasks of one step: whatever is ready runs, each in an attempt or a child run, and what came of it is
//! taken down in its slot.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::{Run, RunEnd};
use crate::engine::host::locked;
use crate::engine::plan;
use crate::engine::session::Ended;
use crate::engine::slot::Slot;
use crate::engine::task::{Fault, TaskOutside, path_of};
use crate::engine::watch::Watched;
use crate::model::checkpoint::{EffectScope, Finish, InterruptRow, Routed, TaskState, Withdrawal};
use crate::model::compile::{CompiledNode, Work};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::ChannelName;
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{Call, EffectReply, Journal, Reply};
use crate::model::json::Json;
use crate::model::way_out::WayOut;
use crate::sandbox::{Attempt, Component, Context, End, Outside, Ran};

/// What becomes of a task that is started.
enum Started {
    Attempt(Component, Box<Attempt>),
    Child(Box<Run>),
}

/// What came back of it.
enum Came {
    Ran(Ran),
    Child(Box<Run>, Result<RunEnd, Ended>),
}

impl Run {
    /// Runs every ready task, all at once; each ends in its slot.
    pub(super) async fn run_ready(&mut self) -> Result<(), Ended> {
        for slot in self.slots.iter_mut().filter(|slot| slot.ready) {
            if slot.gate() == Some(InterruptKind::Before) {
                slot.end(TaskState::Paused);
            }
        }
        let ready: Vec<usize> = (0..self.slots.len()).filter(|&i| self.slots[i].is_ready()).collect();
        if ready.is_empty() {
            return Ok(());
        }
        let graph = self.graph.clone();
        // A child that is started has read what it was given.
        let readers = ready.iter().map(|&i| &self.slots[i]).filter(|slot| slot.child.is_none());
        let reads: BTreeSet<&ChannelName> =
            readers.flat_map(|slot| graph.nodes[&slot.row.node].reads.values()).collect();
        self.channels.load(reads.into_iter(), self.invocation.ledger.as_ref()).await?;
        self.watch(Watched::Step { step: self.boundary.step, tasks: ready.len() });
        if let [alone] = ready[..] {
            return self.run_alone(alone).await;
        }
        let mut tasks = JoinSet::new();
        let mut running = HashMap::new();
        for i in ready {
            self.go(i, Duration::ZERO, &mut tasks, &mut running).await?;
        }
        while let Some(joined) = tasks.join_next().await {
            match joined {
                Ok((i, came)) => {
                    if let Some(wait) = self.came(i, came).await? {
                        self.go(i, wait, &mut tasks, &mut running).await?;
                    }
                }
                Err(error) => return Err(self.panicked(running[&error.id()])),
            }
        }
        Ok(())
    }

    /// Questions about an effect that another task has settled meanwhile, under the same key, are not asked
    /// any more: an answer could change nothing. Their tasks go on with that outcome. Crash before the commit:
    /// the outcome is not recorded either, and both are asked.
    pub(super) async fn settled_by_others(&mut self) -> bool {
        let (now, mut any, mut writes) = (self.invocation.shared.clock.now(), false, Vec::new());
        for slot in &mut self.slots {
            let mut journal = locked(&slot.journal);
            let (TaskState::Paused, Some((index, entry))) = (&slot.row.state, journal.waiting()) else {
                continue;
            };
            let Call::Effect { name, key, .. } = &entry.call else { continue };
            let granted = &self.graph.nodes[&slot.row.node].effects;
            let Some(effect) = granted.get(name).filter(|_| !entry.is_answered()) else { continue };
            let node = path_of(&self.row.namespace, &slot.row.node);
            let scope = EffectScope { node, effect: effect.clone(), key: key.clone() };
            if !self.invocation.desk.is_known(&scope) {
                continue;
            }
            journal.settle(index, Reply::Effect(EffectReply::Begun), now);
            drop(journal);
            let reason = format!("effect {effect} was settled by another task under the same key");
            let of_effect = |row: &InterruptRow| !row.kind.is_gate() && row.entry == index;
            writes.extend(slot.withdraw(|row| of_effect(row).then(|| Withdrawal::new(now, None, &reason))));
            (slot.ready, any) = (true, true);
        }
        if any {
            self.invocation.push(writes).await;
        }
        any
    }

    /// What is alone needs no task of its own.
    async fn run_alone(&mut self, i: usize) -> Result<(), Ended> {
        let mut wait = Some(Duration::ZERO);
        while let Some(long) = wait {
            let Some(running) = self.begun(i, long).await? else { break };
            wait = match AssertUnwindSafe(running).catch_unwind().await {
                Ok((_, came)) => self.came(i, came).await?,
                Err(_) => return Err(self.panicked(i)),
            };
        }
        Ok(())
    }

    async fn go(
        &mut self,
        i: usize,
        wait: Duration,
        tasks: &mut JoinSet<(usize, Came)>,
        running: &mut HashMap<tokio::task::Id, usize>,
    ) -> Result<(), Ended> {
        if let Some(task) = self.begun(i, wait).await? {
            running.insert(tasks.spawn(task).id(), i);
        }
        Ok(())
    }

    /// Takes down what came of a task; or says after how long it is tried again.
    async fn came(&mut self, i: usize, came: Came) -> Result<Option<Duration>, Ended> {
        match came {
            Came::Ran(ran) => match self.again(i, &ran).await {
                Some(wait) => return Ok(Some(wait)),
                None => self.ran(i, ran)?,
            },
            Came::Child(child, end) => self.returned(i, child, end?).await?,
        }
        Ok(None)
    }

    /// Nothing in an attempt panics on a guest's account; should the host itself, this invocation ends and
    /// the host lives.
    fn panicked(&self, i: usize) -> Ended {
        Ended::Fault(Fault::Attempt { node: self.slots[i].row.node.clone() })
    }

    /// A task that is started, after a while. `None`: it could not be, and has failed.
    async fn begun(
        &mut self,
        i: usize,
        wait: Duration,
    ) -> Result<Option<BoxFuture<'static, (usize, Came)>>, Ended> {
        let started = match self.graph.nodes[&self.slots[i].row.node].work {
            Work::Component(digest) => {
                let component = self.component(i, digest).await?;
                self.attempt(i).map(|attempt| Started::Attempt(component, Box::new(attempt)))
            }
            Work::Subgraph { .. } => self.child(i).await?.map(Started::Child),
        };
        let started = match started {
            Ok(started) => started,
            Err(error) => {
                self.task_failed(i, error);
                return Ok(None);
            }
        };
        let slot = &self.slots[i];
        let (task, number) = (slot.row.task, slot.row.attempts);
        let span = tracing::info_span!("task", node = %slot.row.node, %task);
        Ok(Some(match started {
            Started::Attempt(component, attempt) => {
                self.watch(Watched::TaskStarted { node: &self.path_of(i), task, attempt: number });
                let invocation = self.invocation.clone();
                let ran = async move {
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                    let span = tracing::info_span!("attempt", number);
                    (i, Came::Ran(invocation.run(&component, *attempt).instrument(span).await))
                };
                Box::pin(ran.instrument(span))
            }
            Started::Child(child) => Box::pin(Self::drive(i, child).instrument(span)),
        }))
    }

    /// A child run, which may be a task of its own.
    fn drive(i: usize, mut child: Box<Self>) -> BoxFuture<'static, (usize, Came)> {
        Box::pin(async move {
            let end = child.steps().await;
            (i, Came::Child(child, end))
        })
    }

    fn attempt(&mut self, i: usize) -> Result<Attempt, ErrorRecord> {
        let slot = &mut self.slots[i];
        same_settings(slot, self.invocation.shared.sandbox.fingerprint())?;
        slot.row.attempts += 1;
        slot.row.state = TaskState::Started;
        let outside = TaskOutside {
            invocation: self.invocation.clone(),
            graph: self.graph.clone(),
            path: path_of(&self.row.namespace, &slot.row.node),
            run_path: self.path.clone(),
            row: slot.row.clone(),
            journal: slot.journal.clone(),
        };
        let (node, journal) = (&self.graph.nodes[&slot.row.node], slot.journal.clone());
        self.attempt_of(i, node, journal, Arc::new(outside))
    }

    /// An attempt of a task, of this node, with this outside.
    pub fn attempt_of(
        &self,
        i: usize,
        node: &CompiledNode,
        journal: Arc<Mutex<Journal>>,
        outside: Arc<dyn Outside>,
    ) -> Result<Attempt, ErrorRecord> {
        let (invocation, slot) = (&self.invocation, &self.slots[i]);
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
            ));
        }
        let begun = locked(&journal).rewind();
        let context = Context {
            thread_id: invocation.thread_name(),
            run_id: self.row.run.to_string(),
            task_id: slot.row.task.to_string(),
            node: slot.row.node.to_string(),
            path: self.row.namespace.clone(),
            step: self.boundary.step,
            arg: slot.arg.clone(),
        };
        let seed = crate::model::Digest::of_parts([
            invocation.secret.as_slice(),
            b"seed",
            slot.row.task.0.as_bytes().as_slice(),
        ]);
        Ok(Attempt {
            tenant: invocation.tenant.clone(),
            context,
            state,
            journal,
            outside,
            clock: begun.map_or(self.boundary.created_at, |begun| begun.max(self.boundary.created_at)),
            seed: seed.0,
            limits,
        })
    }

    pub async fn component(&self, i: usize, digest: crate::model::Digest) -> Result<Component, Ended> {
        let node = self.slots[i].row.node.as_str();
        let whose = (&self.invocation.tenant, &*self.invocation.limits);
        let component = self.invocation.shared.component(whose, digest, node).await;
        component.map_err(Ended::Engine)
    }

    /// Whether a failure may pass and the graph says to try again: then after how long.
    async fn again(&mut self, i: usize, ran: &Ran) -> Option<Duration> {
        let End::Failed { retryable: true, .. } = ran.end else {
            return None;
        };
        let slot = &mut self.slots[i];
        slot.row.failures += 1;
        let wait = self.graph.nodes[&slot.row.node].retry?.wait_ms(slot.row.failures)?;
        let task = slot.row.task;
        let writes = slot.retry(self.invocation.shared.clock.now().plus_ms(wait));
        self.invocation.push(writes).await;
        self.watch(Watched::TaskEnded { node: &self.path_of(i), task, how: "tried again" });
        Some(Duration::from_millis(wait))
    }

    fn ran(&mut self, i: usize, ran: Ran) -> Result<(), Ended> {
        let node_id = self.slots[i].row.node.clone();
        let state = match ran.end {
            End::Fault => {
                let mut fault = locked(&self.invocation.fault);
                return Err(Ended::Fault(fault.take().unwrap_or(Fault::Attempt { node: node_id })));
            }
            End::Finished { update, routes } => {
                let node = &self.graph.nodes[&node_id];
                match plan::accept(&self.graph, &node_id, node, update, routes) {
                    Ok(finish) => Ok(TaskState::Finished(finish)),
                    Err(error) => Err(error),
                }
            }
            End::Paused => Ok(TaskState::Paused),
            End::Failed { error, retryable: true } => Err(error.with("retryable", true)),
            End::Failed { error, retryable: false } => Err(error),
            End::Diverged(divergence) => {
                let mut error = ErrorRecord::new(
                    Kind::Diverged,
                    format!("node {node_id} did not do again what it did before: {divergence}"),
                );
                if let serde_json::Value::Object(more) = divergence.to_value() {
                    error.more = more;
                }
                Err(error)
            }
        };
        match state {
            Ok(state) => self.task_ended(i, state),
            Err(error) => self.task_failed(i, error),
        }
        Ok(())
    }

    pub fn task_ended(&mut self, i: usize, state: TaskState) {
        let how = match &state {
            TaskState::Finished(Finish { error: Some(_), .. }) => "failed",
            TaskState::Finished(_) => "finished",
            TaskState::Paused => "paused",
            TaskState::Failed(error) if error.kind == Kind::Diverged => "diverged",
            _ => "failed",
        };
        let slot = &mut self.slots[i];
        let task = slot.row.task;
        slot.end(state);
        self.watch(Watched::TaskEnded { node: &self.path_of(i), task, how });
    }

    /// A task failed for good: the node that the graph names takes that, or the run does not get further.
    pub fn task_failed(&mut self, i: usize, error: ErrorRecord) {
        let slot = &self.slots[i];
        let node = &slot.row.node;
        let error = error.with("node", node.as_str()).with("task_id", slot.row.task.to_string());
        let handler = &self.graph.nodes[node].on_error;
        let state = match handler {
            // A replay that does not fit is the host's to report, whatever the graph says.
            Some(handler) if !matches!(error.kind, Kind::Diverged | Kind::EngineMismatch) => {
                let told = serde_json::json!({ "error": error, "node": node });
                let told = Json::from_value(&told).unwrap_or_else(|_| Json::null());
                let routes = vec![Routed::Send(handler.clone(), told)];
                TaskState::Finished(Finish { update: Vec::new(), routes, error: Some(error) })
            }
            _ => TaskState::Failed(error),
        };
        self.task_ended(i, state);
    }
}

/// What is on record was asked under these determinism settings; under others a replay would say nothing.
pub(in crate::engine) fn same_settings(slot: &mut Slot, present: i64) -> Result<(), ErrorRecord> {
    if slot.row.settings == present {
        return Ok(());
    }
    if locked(&slot.journal).entries().is_empty() {
        slot.row.settings = present;
        return Ok(());
    }
    let what = format!(
        "node {} was begun under other determinism settings than this host has; go on with a host that has those, or \
         have the task begin anew (an upgrade that cuts its journal)",
        slot.row.node
    );
    let cut = WayOut::CutJournal { task: Some(slot.row.task) };
    Err(ErrorRecord::new(Kind::EngineMismatch, what).way_out(cut))
}
