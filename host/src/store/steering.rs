//! Instructions: what people added beside their answers, or to a live run.

use super::codec::{BlobId, Columns};
use super::error::StoreError;
use super::reader::thread;
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::SteeringRow;
use crate::model::ids::{RunId, TenantId, ThreadId};

pub(super) const OF_RUN: &str = concat!(
    "SELECT s.seq, s.run, s.id, s.task, s.interrupt, s.actor, s.text, s.at FROM steering s WHERE s.thread = ",
    thread!(),
    " AND s.run = ?3 ORDER BY s.seq"
);
const INSERT: &str = "INSERT INTO steering (thread, run, id, task, interrupt, actor, text, at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

impl Store {
    /// All instructions of a run, the oldest first.
    pub async fn steering(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        run: RunId,
    ) -> Result<Vec<SteeringRow>, StoreError> {
        let sql = sql(OF_RUN).bind(tenant.as_str()).bind(thread.as_str()).bind(run.blob());
        self.view().await?.list("steering", sql, read).await
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &SteeringRow) -> Result<(), Stop> {
    let sql = sql(INSERT)
        .bind(pen.thread)
        .bind(row.run.blob())
        .bind(row.id.blob())
        .bind(row.task.as_ref().map(BlobId::blob))
        .bind(row.interrupt.as_ref().map(BlobId::blob))
        .bind(row.actor.as_str())
        .bind(row.text.as_str())
        .bind(row.at.0);
    pen.one_row(sql).await
}

fn read(row: &Columns<'_>) -> Result<SteeringRow, StoreError> {
    Ok(SteeringRow {
        run: row.id("run")?,
        id: row.id("id")?,
        task: row.id_or_null("task")?,
        interrupt: row.id_or_null("interrupt")?,
        actor: row.text("actor")?,
        text: row.text("text")?,
        at: row.at("at")?,
    })
}
