//! What became of a thread since a mark, in order; and what is asked at one boundary, or by one tenant.

use super::checkpoints::select;
use super::codec::{BlobId, Columns};
use super::error::StoreError;
use super::interrupts::columns;
use super::reader::{tenant, thread};
use super::{PAGE_ROWS_MAX, Store, checkpoints, interrupts, sql};
use crate::model::checkpoint::{CheckpointRow, InterruptRow};
use crate::model::ids::{CheckpointId, TenantId, ThreadId, Timestamp};

const SINCE: &str = concat!(select!(), thread!(), " AND c.seq > ?3 AND c.seq <= ?4 ORDER BY c.seq LIMIT ?5");
const ROOTS: &str = concat!(
    select!(),
    thread!(),
    " AND c.run IN (SELECT r.run FROM runs r WHERE r.thread = c.thread AND r.parent_run IS NULL) \
      AND c.seq < coalesce((SELECT m.seq FROM checkpoints m WHERE m.thread = c.thread AND m.checkpoint = ?4), \
          9223372036854775807) ORDER BY c.seq DESC LIMIT ?3"
);
const ASKED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t JOIN interrupts i ON i.tenant = t.tenant AND i.task = t.task \
     WHERE t.thread = ",
    thread!(),
    " AND t.boundary = ?3 ORDER BY t.place, i.entry, i.place, i.seq"
);
const WAITING_AT: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t JOIN interrupts i ON i.tenant = t.tenant AND i.task = t.task \
     WHERE t.thread = ",
    thread!(),
    " AND i.asked_at <= ?3 AND (i.state = 'pending' OR i.settled_at > ?3) ORDER BY i.seq"
);
// On no thread that is completed anything waits, and of those there are many: by status, not by name, which
// SQLite takes for an order that is there already (`+`).
pub(super) const WAITING: &str = concat!(
    "SELECT h.name FROM threads h WHERE h.tenant = ",
    tenant!(),
    " AND h.status IN ('running', 'interrupted', 'failed', 'diverged', 'cancelled') AND h.name > ?2 \
     AND h.pending > 0 ORDER BY +h.name LIMIT ?3"
);

impl Store {
    /// A thread's checkpoints, child runs' included, in the order in which they became durable: those after
    /// `after` and up to `until`, each with its number.
    pub async fn checkpoints_since(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        (after, until): (i64, i64),
        limit: u32,
    ) -> Result<Vec<(i64, CheckpointRow)>, StoreError> {
        let sql = sql(SINCE)
            .bind(tenant.as_str())
            .bind(thread.as_str())
            .bind(after)
            .bind(until)
            .bind(limit.min(PAGE_ROWS_MAX));
        let read = |row: &Columns<'_>| Ok((row.get("seq")?, checkpoints::read(row)?));
        self.view().await?.list("checkpoints", sql, read).await
    }

    /// A page of the checkpoints of a thread's root runs, the newest first.
    pub async fn root_history(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        before: Option<CheckpointId>,
        limit: u32,
    ) -> Result<Vec<CheckpointRow>, StoreError> {
        let sql = sql(ROOTS)
            .bind(tenant.as_str())
            .bind(thread.as_str())
            .bind(limit.min(PAGE_ROWS_MAX))
            .bind(before.map(|before| before.blob().to_vec()));
        self.view().await?.list("checkpoints", sql, checkpoints::read).await
    }

    /// What the tasks of a boundary ask, whatever became of it.
    pub async fn asked(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        boundary: CheckpointId,
    ) -> Result<Vec<InterruptRow>, StoreError> {
        let sql = sql(ASKED).bind(tenant.as_str()).bind(thread.as_str()).bind(boundary.blob().to_vec());
        self.view().await?.list("interrupts", sql, interrupts::read).await
    }

    /// What waited for an answer anywhere on a thread at this time. Its cost grows with the thread's past.
    pub async fn waiting_at(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        at: Timestamp,
    ) -> Result<Vec<InterruptRow>, StoreError> {
        let sql = sql(WAITING_AT).bind(tenant.as_str()).bind(thread.as_str()).bind(at.0);
        self.view().await?.list("interrupts", sql, interrupts::read).await
    }

    /// A page of the threads, by name, on which something waits for an answer.
    pub async fn waiting_threads(
        &self,
        tenant: &TenantId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<ThreadId>, StoreError> {
        let sql = sql(WAITING).bind(tenant.as_str()).bind(after.to_owned()).bind(limit.min(PAGE_ROWS_MAX));
        self.view().await?.list("threads", sql, |row| row.name("name")).await
    }
}
