//! Everything that a resume needs of a thread, as it is at one moment. Six statements, and five more for
//! each child run that is not done; each by key: neither other threads nor the thread's own past make it
//! dearer.

use std::collections::{BTreeMap, HashMap};

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::codec::BlobId;
use super::error::StoreError;
use super::journal::Questions;
use super::reader::Snapshot;
use super::threads::Lease;
use super::{Store, checkpoints, interrupts, journal, runs, sql, tasks, threads};
use crate::model::RunStatus;
use crate::model::checkpoint::{
    CheckpointKind, CheckpointRow, InterruptRow, JournalRow, RunRow, TaskRow, TaskState, Version,
};
use crate::model::ids::{ChannelName, CheckpointId, RunId, TaskId, TenantId, ThreadId, Timestamp};
use crate::model::json::Json;

pub(super) const THREAD: &str = "SELECT h.name, h.tenant, h.thread, h.secret, h.head, h.epoch, h.owner, h.until, \
        h.status, h.run, h.version \
    FROM tenants n JOIN threads h ON h.tenant = n.tenant WHERE n.name = ?1 AND h.name = ?2";

/// Damage could make runs each other's children; this is deeper than any limit allows.
pub(super) const DEPTH_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSnapshot {
    /// The latest checkpoint of the latest root run.
    pub head: CheckpointId,
    pub epoch: i64,
    pub lease: Option<Lease>,
    pub secret: [u8; 32],
    pub status: RunStatus,
    /// The highest number that a boundary of this thread ever had.
    pub version: Version,
    /// The latest root run.
    pub root: RunSnapshot,
    /// Values of its channels that are at hand anyway, with their versions; the others are read when they are
    /// needed.
    pub values: BTreeMap<ChannelName, (Version, Json)>,
}

/// One run of the tree, as far as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSnapshot {
    pub run: RunRow,
    /// Its latest; a pause has its boundary's plan and channels filled in.
    pub checkpoint: CheckpointRow,
    /// That checkpoint itself, or the boundary that it is a pause of.
    pub boundary: CheckpointId,
    pub boundary_created_at: Timestamp,
    /// Of that boundary, in the plan's order.
    pub tasks: Vec<TaskRow>,
    /// Of its tasks that are not finished, by task and entry; answers are filled in.
    pub journal: Vec<JournalRow>,
    /// Of that boundary, whatever became of them, by task, entry and place.
    pub interrupts: Vec<InterruptRow>,
    /// Those of its tasks that are not finished, in the plan's order.
    pub children: Vec<RunSnapshot>,
}

impl RunSnapshot {
    /// This run and all below it.
    pub fn visit(&self, seen: &mut dyn FnMut(&RunSnapshot)) {
        seen(self);
        for child in &self.children {
            child.visit(seen);
        }
    }
}

impl Store {
    pub async fn load(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<ThreadSnapshot>, StoreError> {
        let mut view = self.snapshot().await?;
        view.load(tenant, thread).await
    }
}

impl Snapshot {
    /// How a thread stands, seen by this reader.
    pub async fn load(
        &mut self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<ThreadSnapshot>, StoreError> {
        let sql_thread = sql(THREAD).bind(tenant.as_str()).bind(thread.as_str());
        let found = self
            .find("threads", sql_thread, |row| {
                let keys: (i64, i64) = (row.get("tenant")?, row.get("thread")?);
                let ids: (CheckpointId, RunId) = (row.id("head")?, row.id("run")?);
                let rest = (row.bytes("secret")?, row.status("status")?, row.get::<Version>("version")?);
                Ok((keys, ids, threads::lease(row)?, rest))
            })
            .await?;
        let Some(((tenant_key, key), (head, run), lease, (secret, status, version))) = found else {
            return Ok(None);
        };
        let mut tree = Tree { view: self, thread, key };
        let sql_run = sql(runs::BY_NUMBER).bind(tenant_key).bind(run.blob());
        let row = tree.view.find("runs", sql_run, runs::read).await?;
        let row = row.ok_or_else(|| tree.dangling(format!("its run {run} is not there")))?;
        if let Some((parent, _)) = row.parent {
            return Err(tree.dangling(format!("its run {run} says that it is a child of run {parent}")));
        }
        let root = tree.run(row, head, 0).await?;
        Ok(Some(ThreadSnapshot {
            head,
            epoch: lease.epoch,
            lease: lease.lease,
            secret,
            status,
            version,
            root,
            values: BTreeMap::new(),
        }))
    }
}

struct Tree<'a> {
    view: &'a mut Snapshot,
    thread: &'a ThreadId,
    key: i64,
}

impl Tree<'_> {
    fn run(
        &mut self,
        run: RunRow,
        head: CheckpointId,
        depth: usize,
    ) -> BoxFuture<'_, Result<RunSnapshot, StoreError>> {
        async move {
            let sql_head = sql(checkpoints::BY_NUMBER).bind(self.key).bind(head.blob());
            let checkpoint = self
                .view
                .find("checkpoints", sql_head, |row| {
                    Ok((checkpoints::read(row)?, row.at("boundary_created_at")?))
                })
                .await?;
            let (checkpoint, boundary_created_at) = checkpoint
                .ok_or_else(|| self.dangling(format!("the head {head} of run {} is not there", run.run)))?;
            if checkpoint.run != run.run {
                let what = format!("the head {head} of run {} is of run {}", run.run, checkpoint.run);
                return Err(self.dangling(what));
            }
            let boundary = match checkpoint.kind {
                CheckpointKind::Boundary => head,
                CheckpointKind::Pause { boundary } => boundary,
            };
            let key = self.key;
            let of_boundary = |statement| sql(statement).bind(key).bind(boundary.blob());
            let tasks = self.view.list("tasks", of_boundary(tasks::BY_NUMBER), tasks::read).await?;
            let (interrupts, called): (Vec<_>, Vec<_>) = self
                .view
                .list("interrupts", of_boundary(interrupts::BY_NUMBER), interrupts::read_called)
                .await?
                .into_iter()
                .unzip();
            let questions = Questions::of(&interrupts);
            let mut journal = self
                .view
                .list("journal", of_boundary(journal::BY_NUMBER), |row| journal::read(row, &questions))
                .await?;
            let open: HashMap<TaskId, usize> = (0..)
                .zip(&tasks)
                .filter(|(_, task)| !matches!(task.state, TaskState::Finished(_)))
                .map(|(place, task)| (task.task, place))
                .collect();
            let of_open = interrupts.iter().zip(called).filter(|(row, _)| open.contains_key(&row.task));
            if journal::add_implied(&mut journal, of_open, &questions) {
                journal.sort_by_key(|row| (open.get(&row.task), row.index));
            }
            let is_parent =
                |task: &TaskRow| task.child.is_some() && !matches!(task.state, TaskState::Finished(_));
            let mut children = Vec::new();
            if tasks.iter().any(is_parent) {
                if depth == DEPTH_MAX {
                    return Err(self.dangling(format!("run {} is {DEPTH_MAX} levels deep", run.run)));
                }
                let rows = self.view.list("runs", of_boundary(runs::OF_BOUNDARY), runs::read).await?;
                for task in tasks.iter().filter(|task| is_parent(task)) {
                    match rows.iter().find(|row| Some(row.run) == task.child) {
                        Some(row) if row.parent == Some((run.run, task.task)) => {}
                        // A process of an earlier build could die between the two; the child is begun anew.
                        None if task.state == TaskState::Started => {}
                        _ => {
                            let what = format!("task {} has no child run that says it is its own", task.task);
                            return Err(self.dangling(what));
                        }
                    }
                }
                for row in rows {
                    let head =
                        row.head.ok_or_else(|| self.dangling(format!("run {} has no head", row.run)))?;
                    children.push(self.run(row, head, depth + 1).await?);
                }
            }
            Ok(RunSnapshot {
                run,
                checkpoint,
                boundary,
                boundary_created_at,
                tasks,
                journal,
                interrupts,
                children,
            })
        }
        .boxed()
    }

    fn dangling(&self, what: String) -> StoreError {
        StoreError::Corrupt {
            file: self.view.file().to_owned(),
            table: "threads",
            row: self.thread.to_string(),
            what,
        }
    }
}
