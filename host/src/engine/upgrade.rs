//! Another graph, and so other components, for a run that waits: first its unfinished tasks replay under it,
//! and only if all of them do again what is on record does the run change over.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::json;

use super::error::EngineError;
use super::graph::Graph;
use super::host::{Host, locked};
use super::idle::{Applied, OnIdle};
use super::run::{Run, same_settings};
use super::session::{Ended, Session};
use super::slot::Slot;
use super::task::Invocation;
use crate::model::checkpoint::{Routed, TaskState, Withdrawal};
use crate::model::command::RunConfig;
use crate::model::compile::{CompiledGraph, CompiledNode, Work};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{TaskId, Timestamp};
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{Instruction, Journal};
use crate::model::json::Json;
use crate::model::way_out::WayOut;
use crate::sandbox::{End, LogLevel, Outside, Performed};
use crate::store::Write;

/// From which entry on a task's journal is dropped: what it asked or did there, it does anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub task: TaskId,
    pub entry: usize,
}

/// What to do with a run beside changing its graph.
#[derive(Clone, Debug, Default)]
pub struct Upgrade {
    pub cuts: Vec<Cut>,
    /// Who changes it.
    pub actor: Option<String>,
}

/// A task that does not do under the new graph what is on record.
#[derive(Clone, Debug)]
pub struct Misfit {
    pub node: String,
    pub task: TaskId,
    pub error: ErrorRecord,
}

impl Host {
    /// Changes the graph that a paused or failed run is pinned to. Refused as `diverged`, with every task that
    /// does not fit under `tasks`, if the replay of any differs; then nothing is changed.
    pub async fn upgrade(
        &self,
        config: RunConfig,
        graph: &Graph,
        upgrade: Upgrade,
    ) -> Result<Execution, EngineError> {
        self.change(&config, &mut Change { graph: graph.compiled.clone(), upgrade }).await
    }
}

/// A change of graphs.
struct Change {
    graph: Arc<CompiledGraph>,
    upgrade: Upgrade,
}

impl OnIdle for Change {
    fn refuses(&self, status: RunStatus) -> Option<&'static str> {
        matches!(status, RunStatus::Completed | RunStatus::Cancelled)
            .then_some("a new run takes the new graph")
    }

    fn apply<'a>(&'a mut self, session: &'a mut Session) -> BoxFuture<'a, Result<Applied, Ended>> {
        Box::pin(async move {
            let mut tried =
                Tried { upgrade: &self.upgrade, misfits: Vec::new(), writes: Vec::new(), used: Vec::new() };
            session.root.change(self.graph.clone(), &mut tried).await?;
            if let Some(cut) = self.upgrade.cuts.iter().find(|cut| !tried.used.contains(&cut.task)) {
                let what =
                    format!("task {} is no unfinished task of the run; nothing of it can be cut", cut.task);
                return Ok(Err(ErrorRecord::new(Kind::NotFound, what)));
            }
            if !tried.misfits.is_empty() {
                let error = ErrorRecord::new(Kind::Diverged, told(&tried.misfits))
                    .way_out(WayOut::CutJournal { task: None });
                let tasks = tried.misfits.iter().map(
                    |misfit| json!({ "node": misfit.node, "task_id": misfit.task, "error": misfit.error }),
                );
                return Ok(Err(error.with("tasks", tasks.collect::<Vec<_>>())));
            }
            session.root.invocation().push(tried.writes).await;
            Ok(Ok(()))
        })
    }
}

fn told(misfits: &[Misfit]) -> String {
    let each: Vec<String> = misfits
        .iter()
        .map(|misfit| format!("{} (task {}): {}", misfit.node, misfit.task, misfit.error.message))
        .collect();
    format!(
        "under the new graph the run would not do again what it did: {}; nothing is changed",
        each.join("; ")
    )
}

/// How far the change fits.
struct Tried<'a> {
    upgrade: &'a Upgrade,
    misfits: Vec<Misfit>,
    writes: Vec<Write>,
    /// Tasks whose journals were cut.
    used: Vec<TaskId>,
}

impl Run {
    fn change<'a>(
        &'a mut self,
        graph: Arc<CompiledGraph>,
        tried: &'a mut Tried<'_>,
    ) -> BoxFuture<'a, Result<(), Ended>> {
        Box::pin(async move {
            for &edge in self.plan().arrived.keys() {
                if self.graph.edges.get(edge) != graph.edges.get(edge) {
                    let what = format!("edge {edge} waits for more, and is another one in the new graph");
                    let task = self.slots.first().map(|slot| slot.row.task);
                    tried.misfits.extend(task.map(|task| Misfit {
                        node: self.row.namespace.join("/"),
                        task,
                        error: ErrorRecord::new(Kind::Invalid, what),
                    }));
                }
            }
            for i in 0..self.slots.len() {
                self.change_task(i, &graph, tried).await?;
            }
            self.row.graph = graph.digest();
            tried.writes.push(Write::RunGraph { run: self.row.run, graph: self.row.graph });
            self.take_graph(graph);
            Ok(())
        })
    }

    async fn change_task(
        &mut self,
        i: usize,
        graph: &Arc<CompiledGraph>,
        tried: &mut Tried<'_>,
    ) -> Result<(), Ended> {
        let now = self.invocation().shared.clock.now();
        let (task, node_id) = (self.slots[i].row.task, self.slots[i].row.node.clone());
        let (path, granted) = (self.path_of(i), self.graph.clone());
        let misfit =
            |kind, what: String| Misfit { node: path.clone(), task, error: ErrorRecord::new(kind, what) };
        let Some(node) = graph.nodes.get(&node_id) else {
            tried.misfits.push(misfit(Kind::NotFound, format!("the new graph has no node {node_id}")));
            return Ok(());
        };
        let old = &granted.nodes[&node_id];
        match (&old.work, &node.work) {
            (Work::Component(_), Work::Component(_)) => {}
            (Work::Subgraph { .. }, Work::Subgraph { graph: below, .. }) => {
                if let Some(mut child) = self.slots[i].child.take() {
                    let invocation = self.invocation().clone();
                    let below =
                        invocation.shared.graph(&invocation.tenant, *below).await.map_err(Ended::Engine)?;
                    child.change(below, tried).await?;
                    self.slots[i].child = Some(child);
                }
            }
            _ => {
                let what = format!("node {node_id} is a component in one graph and a subgraph in the other");
                tried.misfits.push(misfit(Kind::Invalid, what));
                return Ok(());
            }
        }
        if let TaskState::Finished(finish) = &self.slots[i].row.state {
            // Its update and its routes count when the step ends: the new graph must take them as the old would.
            let channel = finish.update.iter().map(|(channel, _)| channel);
            let mut lost =
                channel.filter(|channel| granted.channels.get(*channel) != graph.channels.get(*channel));
            let mut targets = finish.routes.iter().filter_map(|routed| match routed {
                Routed::Go(target) => target.as_ref(),
                Routed::Send(target, _) => Some(target),
            });
            if let Some(channel) = lost.next() {
                let what =
                    format!("it has written the channel {channel}, which is not in the new graph as it was");
                tried.misfits.push(misfit(Kind::Invalid, what));
            } else if let Some(gone) = targets.find(|target| !graph.nodes.contains_key(*target)) {
                let what = format!("it goes on to the node {gone}, which the new graph has not");
                tried.misfits.push(misfit(Kind::NotFound, what));
            }
            // Seen again, where the new graph has a gate behind it; one that it has not is gone.
            let slot = &mut self.slots[i];
            slot.changed = true;
            if !node.interrupt_after && !self.row.gates.after.contains(&node_id) {
                let by = tried.upgrade.actor.as_deref();
                tried.writes.extend(no_gate(slot, InterruptKind::After, (now, by)));
            }
            return Ok(());
        }
        if let Some(cut) = tried.upgrade.cuts.iter().find(|cut| cut.task == task) {
            tried.used.push(task);
            let (writes, has) = self.cut(i, cut.entry, tried.upgrade.actor.as_deref());
            if !has {
                let what = format!("its journal has no entry {}", cut.entry);
                tried.misfits.push(misfit(Kind::NotFound, what));
                return Ok(());
            }
            tried.writes.extend(writes);
        }
        // Settings of another host: what it says then is an error of its own.
        let is_of_other = self.slots[i].row.settings != self.invocation().shared.sandbox.fingerprint();
        if matches!(node.work, Work::Component(_))
            && (old != node || is_of_other || tried.used.contains(&task))
            && let Some(error) = self.replays(i, node).await?
        {
            tried.misfits.push(Misfit { node: self.path_of(i), task, error });
        }
        let slot = &mut self.slots[i];
        slot.row.component = node.work.digest();
        slot.changed = true;
        // A gate that it stands at, and that the new graph has not.
        if slot.row.attempts == 0 && !node.interrupt_before && !self.row.gates.before.contains(&node_id) {
            slot.row.state = TaskState::Started;
            slot.ready = true;
            let by = tried.upgrade.actor.as_deref();
            tried.writes.extend(no_gate(slot, InterruptKind::Before, (now, by)));
        }
        Ok(())
    }

    /// Drops a task's journal from an entry on: what is pending is withdrawn, and the task runs.
    fn cut(&mut self, i: usize, entry: usize, by: Option<&str>) -> (Vec<Write>, bool) {
        let now = self.invocation().shared.clock.now();
        let slot = &mut self.slots[i];
        let mut journal = locked(&slot.journal);
        if entry >= journal.entries().len() {
            return (Vec::new(), false);
        }
        journal.cut(entry);
        slot.row.generation = journal.generation();
        drop(journal);
        slot.row.state = TaskState::Started;
        slot.ready = true;
        let mut writes = vec![Write::Cut { task: slot.row.task, kept: entry }, Write::Task(slot.row.clone())];
        let reason = format!("its task's journal was cut at entry {entry}");
        writes.extend(slot.withdraw(|_| Some(Withdrawal::new(now, by, &reason))));
        (writes, true)
    }

    /// Whether a task does under this node what is on record: if not, how it differs. Nothing is done outside.
    async fn replays(&mut self, i: usize, node: &CompiledNode) -> Result<Option<ErrorRecord>, Ended> {
        let invocation = self.invocation().clone();
        self.channels.load(node.reads.values(), invocation.ledger.as_ref()).await?;
        let journal = locked(&self.slots[i].journal).clone();
        let recorded = journal.entries().len();
        if recorded == 0 {
            return Ok(None);
        }
        if let Err(error) = same_settings(&mut self.slots[i], invocation.shared.sandbox.fingerprint()) {
            return Ok(Some(error));
        }
        let component = self.component(i, node.work.digest()).await?;
        let journal = Arc::new(Mutex::new(journal));
        let attempt = match self.attempt_of(i, node, journal.clone(), Arc::new(Beyond(invocation.clone()))) {
            Ok(attempt) => attempt,
            Err(error) => return Ok(Some(error)),
        };
        let ran = invocation.shared.sandbox.run(&component, attempt).await;
        let journal = locked(&journal);
        Ok(match ran.end {
            End::Diverged(divergence) => {
                let mut error = ErrorRecord::new(Kind::Diverged, divergence.to_string());
                if let serde_json::Value::Object(more) = divergence.to_value() {
                    error.more = more;
                }
                Some(error)
            }
            End::Failed { error, .. } if is_short(&journal, recorded) => {
                let what =
                    format!("before it has done again all that is on record, it fails: {}", error.message);
                Some(ErrorRecord { message: what, ..error })
            }
            // It is past what is on record, or waits where it waited.
            End::Failed { .. } | End::Finished { .. } | End::Paused | End::Fault => None,
        })
    }
}

/// Withdraws a gate that a task stands at, and that the new graph has not.
fn no_gate(slot: &mut Slot, kind: InterruptKind, (at, by): (Timestamp, Option<&str>)) -> Vec<Write> {
    slot.withdraw(|row| {
        (row.kind == kind).then(|| Withdrawal::new(at, by, "the run's new graph has no gate here"))
    })
}

fn is_short(journal: &Journal, recorded: usize) -> bool {
    journal.is_replaying() && journal.entries().len() == recorded
}

/// The outside of a replay: there is none, but for who pays.
struct Beyond(Arc<Invocation>);

impl Outside for Beyond {
    fn perform<'a>(&'a self, _: usize, _: &'a str, _: &'a str, _: &'a Json) -> BoxFuture<'a, Performed> {
        Box::pin(std::future::ready(Performed::Fault))
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        Box::pin(std::future::ready(None))
    }

    fn log(&self, _: LogLevel, _: &str) {}

    fn emit(&self, _: Json) {}

    fn charge(&self, amount: u64) {
        self.0.charge(amount);
    }
}
