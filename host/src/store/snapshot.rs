//! Everything that a resume needs of a thread, as it is at one moment. Six statements, each by key:
//! neither other threads nor the thread's own past make it dearer.

use super::codec::BlobId;
use super::error::StoreError;
use super::journal::Questions;
use super::threads::Lease;
use super::{Store, checkpoints, interrupts, journal, runs, sql, tasks, threads};
use crate::model::RunStatus;
use crate::model::checkpoint::{
    CheckpointKind, CheckpointRow, InterruptRow, JournalRow, RunRow, TaskRow, Version,
};
use crate::model::ids::{CheckpointId, RunId, TenantId, ThreadId, Timestamp};

pub(super) const THREAD: &str = "SELECT h.name, h.tenant, h.thread, h.secret, h.head, h.epoch, h.owner, h.until, \
        h.status, h.run, h.version \
    FROM tenants n JOIN threads h ON h.tenant = n.tenant WHERE n.name = ?1 AND h.name = ?2";

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSnapshot {
    pub head: CheckpointId,
    pub epoch: i64,
    pub lease: Option<Lease>,
    pub secret: [u8; 32],
    pub status: RunStatus,
    /// The latest root run.
    pub run: RunRow,
    /// The head; a pause has its boundary's plan and channels filled in.
    pub checkpoint: CheckpointRow,
    /// The head itself, or the boundary that it is a pause of.
    pub boundary: CheckpointId,
    pub boundary_created_at: Timestamp,
    /// The highest number that a boundary of this thread ever had.
    pub version: Version,
    /// Of that boundary, in the plan's order.
    pub tasks: Vec<TaskRow>,
    /// Of its tasks that are not finished, by task and entry; answers are filled in.
    pub journal: Vec<JournalRow>,
    /// Of that boundary, whatever became of them, by task, entry and place.
    pub interrupts: Vec<InterruptRow>,
}

impl Store {
    pub async fn load(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<ThreadSnapshot>, StoreError> {
        let mut view = self.snapshot().await?;
        let sql_thread = sql(THREAD).bind(tenant.as_str()).bind(thread.as_str());
        let found = view
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
        let dangling = |file: &str, what: String| StoreError::Corrupt {
            file: file.to_owned(),
            table: "threads",
            row: thread.to_string(),
            what,
        };

        let sql_head = sql(checkpoints::BY_NUMBER).bind(key).bind(head.blob());
        let checkpoint = view
            .find("checkpoints", sql_head, |row| {
                Ok((checkpoints::read(row)?, row.at("boundary_created_at")?))
            })
            .await?;
        let (checkpoint, boundary_created_at) =
            checkpoint.ok_or_else(|| dangling(view.file(), format!("its head {head} is not there")))?;
        let boundary = match checkpoint.kind {
            CheckpointKind::Boundary => head,
            CheckpointKind::Pause { boundary } => boundary,
        };

        let sql_run = sql(runs::BY_NUMBER).bind(tenant_key).bind(run.blob());
        let run_row = view.find("runs", sql_run, runs::read).await?;
        let run = run_row.ok_or_else(|| dangling(view.file(), format!("its run {run} is not there")))?;

        let of_boundary = |statement| sql(statement).bind(key).bind(boundary.blob());
        let tasks = view.list("tasks", of_boundary(tasks::BY_NUMBER), tasks::read).await?;
        let interrupts =
            view.list("interrupts", of_boundary(interrupts::BY_NUMBER), interrupts::read).await?;
        let questions = Questions::of(&interrupts);
        let journal = view
            .list("journal", of_boundary(journal::BY_NUMBER), |row| journal::read(row, &questions))
            .await?;

        Ok(Some(ThreadSnapshot {
            head,
            epoch: lease.epoch,
            lease: lease.lease,
            secret,
            status,
            run,
            checkpoint,
            boundary,
            boundary_created_at,
            version,
            tasks,
            journal,
            interrupts,
        }))
    }
}
