//! Another thread from a state of this one. The thread that it is made from is only read.
//!
//! What lies before that state comes along as it is: channels, and effects under their keys. What does not is
//! done anew, under new ids: an id names a question of one thread, and a guest's random numbers hang on its
//! task's. A run that is forked where it stands brings along what its step has done so far: updates that are
//! held, child runs as far as they got. One that is taken back to an earlier state begins that step anew.

use super::error::EngineError;
use super::graph::{busy, rand_secret};
use super::host::Host;
use super::offshoot::Offshoot;
use super::resume::refused_as;
use super::tree;
use crate::model::checkpoint::{ChannelRow, ChannelValue, EffectRow, EffectState};
use crate::model::command::RunConfig;
use crate::model::compile::Work;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::graph::EffectMode;
use crate::model::ids::{CheckpointId, Digest, RunId, ThreadId};
use crate::model::way_out::WayOut;
use crate::store::{
    Batch, CommitError, Expect, LeaseChange, Lineage, Origin, Place, RunSnapshot, Sought, Store, Waypoint,
    Write,
};

impl Host {
    /// Makes a new thread from a checkpoint of another (`None`: its latest), and runs it to where it completes
    /// or pauses. The other thread, what it asks and what it is answered stay as they are.
    ///
    /// A checkpoint of a child run is taken up in that child run: those above it wait for it, as they did.
    pub async fn fork(
        &self,
        from: RunConfig,
        at: Option<CheckpointId>,
        to: ThreadId,
    ) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&from)?;
        self.may_spend()?;
        self.room_for_thread().await?;
        self.room_for_bytes(0).await?;
        let lock = self.shared.thread_lock(&self.tenant, &to);
        let Ok(_only) = lock.try_lock() else {
            return Err(taken(&to));
        };
        let mut batch = self.forked(&store, &thread, at, to.clone()).await?;
        batch.writes.extend(self.call.map(|call| call.guard()));
        fail::fail_point!("engine::before_fork");
        match store.commit(batch).await {
            Ok(_) => {}
            Err(CommitError::Conflict) => {
                self.is_wanted().await?;
                return Err(taken(&to));
            }
            Err(CommitError::Store(error)) => return Err(error.into()),
        }
        fail::fail_point!("engine::after_fork");
        self.go_on(&store, &to, None).await
    }

    /// The new thread, as one transaction. Channels' values are put down whole: one row for each that the new
    /// thread starts with costs what the state weighs, however long its past was.
    async fn forked(
        &self,
        store: &Store,
        thread: &ThreadId,
        at: Option<CheckpointId>,
        to: ThreadId,
    ) -> Result<Batch, EngineError> {
        let mut origin = match store.origin(&self.tenant, thread, at).await? {
            Some(Sought::Found(origin)) => origin,
            // Says that there is no such thread.
            None => return Err(self.load(store, thread).await.err().unwrap_or_else(|| gone(thread))),
            Some(sought) => {
                let snapshot = self.load(store, thread).await?;
                let error = not_there(thread, at.unwrap_or(snapshot.head), &sought);
                return Err(refused_as(&snapshot, error).into());
            }
        };
        let stands = standing(&origin);
        if origin.now.status == RunStatus::Running && origin.checkpoint.checkpoint == origin.now.head {
            let mut refusal = busy(thread, Some(&origin.now));
            refusal.error.ways_out.push(WayOut::ForkEarlier { thread: thread.clone() });
            return Err(refusal.into());
        }
        let mut effects = Vec::new();
        let root = origin.path[0].run.graph;
        for (row, place) in &origin.effects {
            if place.is_none_or(|place| lies_before(&origin, &stands, place))
                && self.inherits(root, row).await?
            {
                effects.push(row.clone());
            }
        }
        let mut fork = Offshoot::new(self.shared.clock.now(), RunId::fresh());
        let head = fork.waypoint(&origin.path, &stands, None);
        for run in fork.graphs() {
            self.shared.graph(&self.tenant, run).await?;
        }
        fork.steering(&origin);
        let wanted: Vec<_> = fork.wanted.into_iter().collect();
        let values = origin.values(&wanted).await?;
        let mut writes = fork.writes;
        writes.extend(wanted.into_iter().zip(values).map(|((channel, version), value)| {
            Write::Channel(ChannelRow { channel, version, value: ChannelValue::Whole(value) })
        }));
        writes.extend(effects.into_iter().map(Write::Effect));
        Ok(Batch {
            tenant: self.tenant.clone(),
            thread: to,
            expect: Expect::Absent { secret: rand_secret() },
            head,
            status: RunStatus::Running,
            lease: LeaseChange::Keep,
            writes,
        })
    }

    /// Whether a fork takes over what is on record of an effect that lies before it. What may have been sent,
    /// and nobody knows: where that is to happen at most once, the fork must not send it unasked either.
    async fn inherits(&self, root: Digest, row: &EffectRow) -> Result<bool, EngineError> {
        if matches!(row.state, EffectState::Known(_)) {
            return Ok(true);
        }
        let mut graph = self.shared.graph(&self.tenant, root).await?;
        let mut steps = row.scope.node.split('/').peekable();
        while let Some(step) = steps.next() {
            let node = graph.nodes.get(step);
            match node.map(|node| &node.work) {
                Some(Work::Subgraph { graph: below, .. }) if steps.peek().is_some() => {
                    graph = self.shared.graph(&self.tenant, *below).await?;
                }
                _ => break,
            }
        }
        // Of another graph that the thread was run on before: to ask is safe.
        let spec = graph.effects.get(&row.scope.effect);
        Ok(spec.is_none_or(|spec| spec.mode == EffectMode::AtMostOnce))
    }
}

/// Of the runs on the way to the checkpoint those that are forked where they stand, with how they do. The
/// last is where it was when the checkpoint was made, and nothing has happened in it since; those above it
/// are still at the step that the child run belongs to.
pub(super) fn standing(origin: &Origin) -> Vec<Option<&RunSnapshot>> {
    // What happens right now in a run is nowhere yet.
    let is_still = origin.now.status != RunStatus::Running;
    let stands = |(i, way): (usize, &Waypoint)| {
        let run = tree::find(&origin.now.root, way.run.run).filter(|_| is_still)?;
        let here = match i + 1 == origin.path.len() {
            true => run.checkpoint.checkpoint == origin.checkpoint.checkpoint,
            false => run.boundary == way.boundary.checkpoint,
        };
        here.then_some(run)
    };
    origin.path.iter().enumerate().map(stands).collect()
}

/// Whether what a step did lies before the fork.
fn lies_before(origin: &Origin, stands: &[Option<&RunSnapshot>], mut place: Place) -> bool {
    let root = &origin.path[0];
    // A line of runs is no longer than there are runs; damage could make it a circle.
    for _ in 0..=origin.runs.len() {
        let on_path = origin.path.iter().position(|way| way.run.run == place.run);
        if let Some(i) = on_path {
            return stands[i].is_some() || place.seq < origin.path[i].seq;
        }
        match origin.runs.get(&place.run) {
            Some(Lineage::ChildOf(above)) => place = *above,
            // An earlier run of the thread, or a later one.
            Some(Lineage::Root) => return place.seq < root.seq,
            Some(Lineage::Lost) | None => return true,
        }
    }
    false
}

impl Host {
    /// That a thread has this checkpoint; else the reason why not.
    pub async fn checkpoint(&self, config: RunConfig, id: CheckpointId) -> Result<(), EngineError> {
        let (store, thread) = self.durable(&config)?;
        match store.sought(&self.tenant, &thread, id).await? {
            Sought::Found(()) => Ok(()),
            sought => {
                let snapshot = self.load(&store, &thread).await?;
                Err(refused_as(&snapshot, not_there(&thread, id, &sought)).into())
            }
        }
    }
}

/// Why a checkpoint cannot be had.
pub(super) fn not_there<T>(thread: &ThreadId, id: CheckpointId, sought: &Sought<T>) -> ErrorRecord {
    let error = match sought {
        Sought::Pruned => {
            let what =
                format!("checkpoint {id} is not there: if thread {thread} had it, it was pruned of it");
            ErrorRecord::new(Kind::Pruned, what)
        }
        Sought::Found(_) | Sought::Unknown => {
            ErrorRecord::new(Kind::NotFound, format!("checkpoint {id} is none of thread {thread}"))
        }
    };
    error.way_out(WayOut::Checkpoints { thread: thread.clone() })
}

fn gone(thread: &ThreadId) -> EngineError {
    Refused::plain(Kind::NotFound, format!("there is no thread {thread} any more")).into()
}

fn taken(to: &ThreadId) -> EngineError {
    let what = format!("there is a thread {to} already, and a fork makes a new one: name it differently");
    Refused::plain(Kind::Invalid, what).into()
}
