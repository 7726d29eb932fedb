//! What a fork is made from: one state of a thread, the runs on the way to it, and what the thread had done
//! outside. All of it as of one moment, whatever becomes of the thread meanwhile.

use std::collections::HashMap;

use super::codec::{BlobId, Columns, encode};
use super::error::StoreError;
use super::reader::{Snapshot, View, thread};
use super::snapshot::DEPTH_MAX;
use super::{Store, ThreadSnapshot, checkpoints, effects, interrupts, runs, sql, steering, tasks};
use crate::model::checkpoint::{
    CheckpointKind, CheckpointRow, EffectRow, InterruptRow, RunRow, SteeringRow, TaskRow, Version,
};
use crate::model::ids::{ChannelName, CheckpointId, RunId, TenantId, ThreadId};
use crate::model::json::Json;

pub(super) const SEQ: &str = concat!(
    "SELECT c.checkpoint, c.seq FROM checkpoints c WHERE c.thread = ",
    thread!(),
    " AND c.checkpoint = ?3"
);
// Each run with the run above it, and how far that one was when it started this one.
pub(super) const LINEAGE: &str = concat!(
    "SELECT r.run, r.parent_run, c.seq FROM runs r \
         LEFT JOIN tasks t ON t.tenant = r.tenant AND t.task = r.parent_task \
         LEFT JOIN checkpoints c ON c.thread = r.thread AND c.checkpoint = t.boundary \
     WHERE r.thread = ",
    thread!()
);
pub(super) const PRUNED: &str =
    concat!("SELECT h.name, h.pruned FROM threads h WHERE h.thread = ", thread!());

/// What there is to say of a checkpoint that somebody names.
pub enum Sought<T> {
    Found(T),
    /// It was dropped, as all of its age were that the thread had.
    Pruned,
    /// The thread never had it.
    Unknown,
}

/// A state of a thread that a fork can start from.
pub struct Origin {
    view: Snapshot,
    tenant: TenantId,
    thread: ThreadId,
    /// The thread as it stands now.
    pub now: ThreadSnapshot,
    pub checkpoint: CheckpointRow,
    /// From the root run to the one that the checkpoint is of.
    pub path: Vec<Waypoint>,
    /// All runs of the thread.
    pub runs: HashMap<RunId, Lineage>,
    /// All effects of the thread.
    pub effects: Vec<(EffectRow, Option<Place>)>,
    /// What was said to the runs of the path and to those that are not done.
    pub steering: Vec<SteeringRow>,
}

/// A run on the way to a checkpoint, where it was then.
pub struct Waypoint {
    pub run: RunRow,
    pub boundary: CheckpointRow,
    /// The boundary's place in the thread's history.
    pub seq: i64,
    /// Of a child run: the task that it is, and what that asked.
    pub task: Option<(TaskRow, Vec<InterruptRow>)>,
}

/// Where in the thread's history something belongs: to a step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub run: RunId,
    /// Of the step's boundary.
    pub seq: i64,
}

/// What a run hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lineage {
    Root,
    ChildOf(Place),
    /// What it hung on was pruned.
    Lost,
}

impl Store {
    /// A checkpoint to fork from; `None`: the latest. Returns `None` if there is no such thread.
    pub async fn origin(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<Option<Sought<Box<Origin>>>, StoreError> {
        let mut view = self.snapshot().await?;
        let Some(now) = view.load(tenant, thread).await? else {
            return Ok(None);
        };
        let at = at.unwrap_or(now.head);
        let by_id = |id: &CheckpointId| {
            sql(checkpoints::BY_ID).bind(tenant.as_str()).bind(thread.as_str()).bind(id.blob())
        };
        let Some(checkpoint) = view.find("checkpoints", by_id(&at), checkpoints::read).await? else {
            return Ok(Some(view.missing(tenant, thread, at).await?));
        };
        let mut reading = Reading { view: &mut view, tenant, thread };
        let path = reading.path(&checkpoint).await?;
        let runs = reading.lineage().await?;
        let effects = reading.effects().await?;
        let mut said_to: Vec<RunId> = path.iter().map(|way| way.run.run).collect();
        now.root.visit(&mut |run| said_to.push(run.run.run));
        let steering = reading.steering(&said_to).await?;
        let (tenant, thread) = (tenant.clone(), thread.clone());
        let origin = Origin { view, tenant, thread, now, checkpoint, path, runs, effects, steering };
        Ok(Some(Sought::Found(Box::new(origin))))
    }

    /// Whether a thread has a checkpoint, or had it.
    pub async fn sought(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        id: CheckpointId,
    ) -> Result<Sought<()>, StoreError> {
        let mut view = self.snapshot().await?;
        let found = sql(SEQ).bind(tenant.as_str()).bind(thread.as_str()).bind(id.blob());
        match view.find("checkpoints", found, |_| Ok(())).await? {
            Some(()) => Ok(Sought::Found(())),
            None => view.missing(tenant, thread, id).await,
        }
    }

    /// Whether anything of a thread was pruned.
    pub async fn is_pruned(&self, tenant: &TenantId, thread: &ThreadId) -> Result<bool, StoreError> {
        Ok(self.view().await?.pruned(tenant, thread).await?.is_some())
    }
}

impl Origin {
    /// Channels' values as they were at these versions.
    pub async fn values(&mut self, wanted: &[(ChannelName, Version)]) -> Result<Vec<Json>, StoreError> {
        self.view.values(&self.tenant, &self.thread, wanted).await
    }
}

impl View {
    /// Why a checkpoint is not there. Their ids are in time order, so that what the thread was pruned of is
    /// known by the latest.
    async fn missing<T>(
        &mut self,
        tenant: &TenantId,
        thread: &ThreadId,
        id: CheckpointId,
    ) -> Result<Sought<T>, StoreError> {
        let pruned = self.pruned(tenant, thread).await?;
        Ok(if pruned.is_some_and(|latest| id <= latest) { Sought::Pruned } else { Sought::Unknown })
    }

    async fn pruned(
        &mut self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<CheckpointId>, StoreError> {
        let sql = sql(PRUNED).bind(tenant.as_str()).bind(thread.as_str());
        Ok(self.find("threads", sql, |row| row.id_or_null("pruned")).await?.flatten())
    }
}

struct Reading<'a> {
    view: &'a mut Snapshot,
    tenant: &'a TenantId,
    thread: &'a ThreadId,
}

impl Reading<'_> {
    /// From a checkpoint up to the root: each run at the boundary where it started the one below.
    async fn path(&mut self, checkpoint: &CheckpointRow) -> Result<Vec<Waypoint>, StoreError> {
        let (mut run, mut boundary) = (checkpoint.run, boundary_of(checkpoint));
        let mut path = Vec::new();
        loop {
            if path.len() > DEPTH_MAX {
                return Err(self.dangling(format!("run {run} is {DEPTH_MAX} levels deep")));
            }
            let row = sql(runs::BY_ID).bind(self.tenant.as_str()).bind(run.blob());
            let row = self.view.find("runs", row, runs::read).await?;
            let row = row.ok_or_else(|| self.dangling(format!("run {run} is not there")))?;
            let (tenant, thread) = (self.tenant.as_str(), self.thread.as_str());
            let at = sql(checkpoints::BY_ID).bind(tenant).bind(thread).bind(boundary.blob());
            let at = self.view.find("checkpoints", at, checkpoints::read).await?;
            let seq = sql(SEQ).bind(tenant).bind(thread).bind(boundary.blob());
            let seq = self.view.find("checkpoints", seq, |row| row.get::<i64>("seq")).await?;
            let (Some(at), Some(seq)) = (at, seq) else {
                return Err(self.dangling(format!("boundary {boundary} is not there")));
            };
            let parent = row.parent;
            let task = match parent {
                None => None,
                Some((_, task)) => Some(self.task(task).await?),
            };
            let above = task.as_ref().map(|(task, _)| (task.run, task.boundary));
            path.push(Waypoint { run: row, boundary: at, seq, task });
            match above {
                None => break,
                Some(above) => (run, boundary) = above,
            }
        }
        path.reverse();
        Ok(path)
    }

    async fn task(
        &mut self,
        id: crate::model::ids::TaskId,
    ) -> Result<(TaskRow, Vec<InterruptRow>), StoreError> {
        let task = sql(tasks::BY_ID).bind(self.tenant.as_str()).bind(id.blob());
        let task = self.view.find("tasks", task, tasks::read).await?;
        let task = task.ok_or_else(|| self.dangling(format!("task {id} is not there")))?;
        let asked = sql(interrupts::OF_TASK).bind(self.tenant.as_str()).bind(id.blob());
        Ok((task, self.view.list("interrupts", asked, interrupts::read).await?))
    }

    async fn lineage(&mut self) -> Result<HashMap<RunId, Lineage>, StoreError> {
        let sql = sql(LINEAGE).bind(self.tenant.as_str()).bind(self.thread.as_str());
        let read = |row: &Columns<'_>| {
            let above: (Option<RunId>, Option<i64>) = (row.id_or_null("parent_run")?, row.get("seq")?);
            let lineage = match above {
                (None, _) => Lineage::Root,
                (Some(run), Some(seq)) => Lineage::ChildOf(Place { run, seq }),
                (Some(_), None) => Lineage::Lost,
            };
            Ok((row.id("run")?, lineage))
        };
        Ok(self.view.scan("runs", sql, read).await?.into_iter().collect())
    }

    async fn effects(&mut self) -> Result<Vec<(EffectRow, Option<Place>)>, StoreError> {
        let sql = sql(effects::OF_THREAD).bind(self.tenant.as_str()).bind(self.thread.as_str());
        let read = |row: &Columns<'_>| {
            let place: (Option<RunId>, Option<i64>) = (row.id_or_null("run")?, row.get("seq")?);
            Ok((effects::read_scoped(row)?, place.0.zip(place.1).map(|(run, seq)| Place { run, seq })))
        };
        self.view.scan("effects", sql, read).await
    }

    async fn steering(&mut self, of: &[RunId]) -> Result<Vec<SteeringRow>, StoreError> {
        let hexes: Vec<String> = of.iter().map(|run| run.0.simple().to_string()).collect();
        let (tenant, thread) = (self.tenant.as_str(), self.thread.as_str());
        let sql = sql(steering::OF_RUNS).bind(tenant).bind(thread).bind(encode(&hexes)?);
        self.view.list("steering", sql, steering::read).await
    }

    fn dangling(&self, what: String) -> StoreError {
        StoreError::Corrupt {
            file: self.view.file().to_owned(),
            table: "checkpoints",
            row: self.thread.to_string(),
            what,
        }
    }
}

fn boundary_of(checkpoint: &CheckpointRow) -> CheckpointId {
    match checkpoint.kind {
        CheckpointKind::Boundary => checkpoint.checkpoint,
        CheckpointKind::Pause { boundary } => boundary,
    }
}
