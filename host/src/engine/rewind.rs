//! Going on from an earlier state of a thread, on that thread. What came after that state stays in its history
//! and is no longer what the thread goes on from.
//!
//! It is a run of its own, which begins at that state as a fork does ([`Host::fork`]), under new ids. What is
//! pending is withdrawn. What was done outside stays done: the thread's record of effects has no branches, so
//! the same key with the same input gives the outcome on record, and with another input it is refused.

use super::error::EngineError;
use super::fork::{not_there, standing};
use super::graph::busy;
use super::host::Host;
use super::offshoot::Offshoot;
use super::resume::{RACES_MAX, refused, refused_as, too_many_races};
use super::state::StateUpdate;
use crate::model::checkpoint::{CheckpointKind, CheckpointRow, InterruptRow, TaskRow, Version};
use crate::model::command::RunConfig;
use crate::model::error::{Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{CheckpointId, RunId, ThreadId};
use crate::model::interrupt::InterruptKind;
use crate::model::json::Json;
use crate::store::{LeaseChange, Origin, Sought, Store, ThreadSnapshot, Write};

/// A way back.
#[derive(Clone, Debug)]
pub struct Rewind {
    /// The state to go on from. Of a pause: its step, from the beginning.
    pub to: CheckpointId,
    /// The id that the run will have, if the caller needs to know it before. If there is such a run already,
    /// the thread was taken back, and only what comes after that is done.
    pub run: Option<RunId>,
    /// Written into that state before anything else happens. Of a root run's checkpoint only.
    pub update: Option<StateUpdate>,
    /// Who takes it back.
    pub actor: Option<String>,
}

impl Rewind {
    pub fn to(checkpoint: CheckpointId) -> Self {
        Self { to: checkpoint, run: None, update: None, actor: None }
    }
}

impl Host {
    /// Takes a thread back to an earlier state, and runs it to where it completes or pauses, or writes into that
    /// state first. A thread that is running is refused.
    pub async fn rewind(&self, config: RunConfig, rewind: Rewind) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        self.may_spend()?;
        self.room_for_bytes(0).await?;
        let run = rewind.run.unwrap_or_else(RunId::fresh);
        let has_begun = store.run(&self.tenant, run).await?.is_some();
        let lock = self.shared.thread_lock(&self.tenant, &thread);
        let _only = match lock.try_lock() {
            Ok(only) => only,
            // By somebody who died, and whoever holds the thread now goes on with it.
            Err(_) if has_begun => lock.lock().await,
            Err(_) => return Err(busy(&thread, None).into()),
        };
        if !has_begun {
            self.take_back(&store, &thread, run, &rewind).await?;
        }
        let Some(update) = rewind.update else {
            return self.onward(&store, &thread).await;
        };
        // Its first checkpoint is the only one of this step: whoever wrote into it moved on.
        let snapshot = self.load(&store, &thread).await?;
        let begun = store.checkpoint(&self.tenant, &thread, rewind.to).await?;
        match snapshot.root.run.run == run && begun.is_some_and(|at| at.step == snapshot.root.checkpoint.step)
        {
            true => self.change_held(&store, &thread, &mut self.set(&update, Some(run))?).await,
            false => self.onward(&store, &thread).await,
        }
    }

    /// Goes on with what was begun, if it is not over already.
    async fn onward(&self, store: &Store, thread: &ThreadId) -> Result<Execution, EngineError> {
        match self.go_on(store, thread, None).await {
            Err(error) if error.kind() == Kind::NotPending => {
                self.execution(RunConfig::thread(thread.as_str())).await
            }
            gone_on => gone_on,
        }
    }

    /// One transaction: what is pending is withdrawn, and the thread stands where it stood. A crash before it
    /// leaves the thread as it was; after it, the run is there to be continued.
    async fn take_back(
        &self,
        store: &Store,
        thread: &ThreadId,
        run: RunId,
        rewind: &Rewind,
    ) -> Result<(), EngineError> {
        for _ in 0..RACES_MAX {
            let origin = match store.origin(&self.tenant, thread, Some(rewind.to)).await? {
                Some(Sought::Found(origin)) => origin,
                // Says that there is no such thread.
                None => return Err(self.load(store, thread).await.err().unwrap_or_else(too_many_races)),
                Some(sought) => {
                    let snapshot = self.load(store, thread).await?;
                    return Err(refused_as(&snapshot, not_there(thread, rewind.to, &sought)).into());
                }
            };
            if origin.now.status == RunStatus::Running {
                return Err(busy(thread, Some(&origin.now)).into());
            }
            if rewind.update.is_some() && origin.path.len() > 1 {
                let what = "a state that is written into is the root run's, not one of a subgraph";
                return Err(refused(&origin.now, Kind::Invalid, what.to_owned()).into());
            }
            let (head, writes) = self.taken_back(run, rewind, &origin).await?;
            let lease = if origin.now.lease.is_some() { LeaseChange::Release } else { LeaseChange::Keep };
            fail::fail_point!("engine::before_rewind");
            let begins = (head, RunStatus::Running, lease);
            if self.commit_at(store, (thread, &origin.now), begins, writes).await?.is_some() {
                fail::fail_point!("engine::after_rewind");
                return Ok(());
            }
        }
        Err(too_many_races())
    }

    /// The checkpoint that the thread stands at then, and what makes it so.
    async fn taken_back(
        &self,
        run: RunId,
        rewind: &Rewind,
        origin: &Origin,
    ) -> Result<(CheckpointId, Vec<Write>), EngineError> {
        let now = self.shared.clock.now();
        let mut writes = Vec::new();
        if origin.now.status == RunStatus::Interrupted {
            let reason = format!("the thread was taken back to checkpoint {}", rewind.to);
            writes = self.calling_off(&origin.now, rewind.actor.as_deref(), &reason).1;
            // The new run's first boundary follows; a checkpoint between would be nobody's head.
            writes.retain(|write| !matches!(write, Write::Checkpoint(_)));
        }
        let stands = standing(origin);
        let mut branch = Offshoot::new(now, run);
        let head = branch.waypoint(&origin.path, &stands, None);
        for graph in branch.graphs() {
            self.shared.graph(&self.tenant, graph).await?;
        }
        branch.steering(origin);
        if rewind.update.is_some() {
            let way = &origin.path[0];
            let graph = self.shared.graph(&self.tenant, way.run.graph).await?;
            let settings = self.shared.sandbox.fingerprint();
            for (index, planned) in way.boundary.plan.tasks.iter().enumerate() {
                let Some(node) = graph.nodes.get(&planned.node) else { continue };
                // Not begun, and not before somebody says so.
                let task =
                    TaskRow::fresh((run, head), (index, &planned.node), (node.work.digest(), settings));
                let sent = planned.arg.clone().unwrap_or_else(Json::null);
                let gate = InterruptRow::fresh(&task, (head, now), InterruptKind::Before, (0, 0, 0), sent);
                branch.writes.extend([Write::Task(task), Write::Interrupt(gate)]);
            }
        }
        numbered(&mut branch.writes, origin.now.version);
        writes.extend(branch.writes);
        Ok((head, writes))
    }

    /// The thread as it stood at an earlier checkpoint of a root run, for new input there.
    pub(super) async fn as_it_stood(
        &self,
        store: &Store,
        thread: &ThreadId,
        now: &ThreadSnapshot,
        at: CheckpointId,
    ) -> Result<ThreadSnapshot, EngineError> {
        let row = match store.checkpoint(&self.tenant, thread, at).await? {
            Some(row) => row,
            None => {
                let sought = store.sought(&self.tenant, thread, at).await?;
                return Err(refused_as(now, not_there(thread, at, &sought)).into());
            }
        };
        let run = store.run(&self.tenant, row.run).await?;
        if run.is_none_or(|(_, run)| run.parent.is_some()) {
            let what = format!("checkpoint {at} is of a subgraph; new input is for a graph's own state");
            return Err(Refused::plain(Kind::Invalid, what).into());
        }
        let mut stood = now.clone();
        stood.head = at;
        stood.root.checkpoint.channels = row.channels;
        Ok(stood)
    }
}

/// Boundaries of this thread have numbers that none had before, although what they hold is older.
fn numbered(writes: &mut [Write], mut version: Version) {
    for write in writes {
        if let Write::Checkpoint(row @ CheckpointRow { kind: CheckpointKind::Boundary, .. }) = write {
            version += 1;
            row.version = version;
        }
    }
}
