//! Checkpoints: the states that a thread was in.

use super::codec::{BlobId, Columns, encode};
use super::error::StoreError;
use super::reader::thread;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::checkpoint::{CheckpointKind, CheckpointRow};
use crate::model::ids::{CheckpointId, RunId, TenantId, ThreadId};

// A pause stores neither plan nor channels: it is read together with its boundary, `b`, which of a
// boundary is itself.
macro_rules! select {
    () => {
        "SELECT c.checkpoint, c.seq, c.parent, c.run, c.boundary, c.step, c.version, c.status, c.created_at, \
             b.plan, b.channels, b.created_at AS boundary_created_at \
         FROM checkpoints c LEFT JOIN checkpoints b \
             ON b.thread = c.thread AND b.checkpoint = coalesce(c.boundary, c.checkpoint) \
         WHERE c.thread = "
    };
}
pub(super) use select;

pub(super) const BY_ID: &str = concat!(select!(), thread!(), " AND c.checkpoint = ?3");
pub(super) const BY_NUMBER: &str = concat!(select!(), "?1 AND c.checkpoint = ?2");
pub(super) const NEWEST: &str = concat!(select!(), thread!(), " ORDER BY c.seq DESC LIMIT ?3");
pub(super) const BEFORE: &str = concat!(
    select!(),
    thread!(),
    " AND c.seq < (SELECT m.seq FROM checkpoints m WHERE m.thread = ",
    thread!(),
    " AND m.checkpoint = ?4) \
     ORDER BY c.seq DESC LIMIT ?3"
);
// A page of them lies close together, among those of other runs of the tree.
pub(super) const OF_RUN: &str =
    concat!(select!(), thread!(), " AND c.run = ?3 AND c.boundary IS NULL ORDER BY c.seq DESC LIMIT ?4");
pub(super) const INSERT: &str = "INSERT INTO checkpoints (thread, checkpoint, parent, run, boundary, step, version, status, \
    created_at, plan, channels) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

impl Store {
    /// A pause comes with its boundary's plan and channels.
    pub async fn checkpoint(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        id: CheckpointId,
    ) -> Result<Option<CheckpointRow>, StoreError> {
        let sql = sql(BY_ID).bind(tenant.as_str()).bind(thread.as_str()).bind(id.blob());
        self.view().await?.find("checkpoints", sql, read).await
    }

    /// A run's latest boundaries, the newest first.
    pub async fn boundaries(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        run: RunId,
        limit: u32,
    ) -> Result<Vec<CheckpointRow>, StoreError> {
        let sql = sql(OF_RUN).bind(tenant.as_str()).bind(thread.as_str()).bind(run.blob());
        let page = sql.bind(limit.min(PAGE_ROWS_MAX));
        self.view().await?.list("checkpoints", page, read).await
    }

    /// A page of a thread's checkpoints, the newest first: those from before `before`, or the latest.
    pub async fn history(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        before: Option<CheckpointId>,
        limit: u32,
    ) -> Result<Vec<CheckpointRow>, StoreError> {
        let page = sql(if before.is_some() { BEFORE } else { NEWEST })
            .bind(tenant.as_str())
            .bind(thread.as_str())
            .bind(limit.min(PAGE_ROWS_MAX));
        let page = match &before {
            None => page,
            Some(before) => page.bind(before.blob()),
        };
        self.view().await?.list("checkpoints", page, read).await
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &CheckpointRow) -> Result<(), Stop> {
    let (boundary, own) = match &row.kind {
        CheckpointKind::Boundary => (None, Some((encode(&row.plan)?, encode(&row.channels)?))),
        CheckpointKind::Pause { boundary } => (Some(boundary), None),
    };
    let (plan, channels) = own.unzip();
    let sql = sql(INSERT)
        .bind(pen.thread)
        .bind(row.checkpoint.blob())
        .bind(row.parent.as_ref().map(BlobId::blob))
        .bind(row.run.blob())
        .bind(boundary.map(BlobId::blob))
        .bind(row.step)
        .bind(row.version)
        .bind(row.status.as_str())
        .bind(row.created_at.0)
        .bind(plan)
        .bind(channels);
    pen.one_row(sql).await
}

pub(super) fn read(row: &Columns<'_>) -> Result<CheckpointRow, StoreError> {
    Ok(CheckpointRow {
        checkpoint: row.id("checkpoint")?,
        parent: row.id_or_null("parent")?,
        run: row.id("run")?,
        kind: match row.id_or_null("boundary")? {
            None => CheckpointKind::Boundary,
            Some(boundary) => CheckpointKind::Pause { boundary },
        },
        step: row.int("step")?,
        version: row.get("version")?,
        plan: row.decoded("plan")?,
        channels: row.decoded("channels")?,
        status: row.status("status")?,
        created_at: row.at("created_at")?,
    })
}
