//! The end of a thread.

use super::codec::BlobId;
use super::error::CommitError;
use super::write::{Pen, Stop};
use super::writer::Work;
use super::{Store, notes, prune, sql};
use crate::model::ids::{CheckpointId, TenantId, ThreadId};

// All rows of a thread hang on this one.
pub(super) const DELETE: &str = "DELETE FROM threads WHERE thread = ?1";

pub(super) struct Delete {
    pub tenant: TenantId,
    pub thread: ThreadId,
    /// The thread as whoever deletes it knows it.
    pub head: CheckpointId,
    pub epoch: i64,
}

impl Store {
    /// Removes a thread with all its rows, and what the service keeps about it. A conflict: it got further meanwhile, or is gone, and nothing was
    /// removed. Whoever runs it writes nothing more: the row that guards that is gone.
    pub async fn delete(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        head: CheckpointId,
        epoch: i64,
    ) -> Result<(), CommitError> {
        let delete = Delete { tenant: tenant.clone(), thread: thread.clone(), head, epoch };
        self.inner.recent.take(tenant, thread);
        self.inner.work(Work::Delete(Box::new(delete))).await.map(drop)
    }
}

/// Makes it true, or says why not; the caller holds the savepoint.
pub(super) async fn carry_out(pen: &mut Pen<'_>, delete: &Delete) -> Result<(), Stop> {
    let guard = sql(prune::GUARD)
        .bind(pen.tenant)
        .bind(delete.thread.as_str())
        .bind(delete.head.blob())
        .bind(delete.epoch);
    pen.find_thread(guard).await?;
    notes::forget(pen, &delete.thread).await?;
    pen.one_row(sql(DELETE).bind(pen.thread)).await
}
