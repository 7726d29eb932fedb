//! Instructions: what people added beside their answers, or to a live run.

use super::codec::{BlobId, Columns, encode};
use super::error::StoreError;
use super::reader::thread;
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::SteeringRow;
use crate::model::ids::{InstructionId, RunId, TenantId, ThreadId, Timestamp};

pub(super) const OF_RUNS: &str = concat!(
    "SELECT s.seq, s.run, s.id, s.task, s.interrupt, s.actor, s.text, s.at, s.delivered FROM steering s WHERE s.thread = ",
    thread!(),
    " AND s.run IN (SELECT unhex(value) FROM json_each(?3)) ORDER BY s.seq"
);
const INSERT: &str = "INSERT INTO steering (thread, run, id, task, interrupt, actor, text, at, delivered) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
// The first time counts.
const DELIVERED: &str = "UPDATE steering SET delivered = coalesce(delivered, ?4) \
    WHERE thread = ?1 AND run = ?2 AND id = ?3";

impl Store {
    /// All instructions of these runs, the oldest first.
    pub async fn steering(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        runs: &[RunId],
    ) -> Result<Vec<SteeringRow>, StoreError> {
        let hexes: Vec<String> = runs.iter().map(|run| run.0.simple().to_string()).collect();
        let sql = sql(OF_RUNS).bind(tenant.as_str()).bind(thread.as_str()).bind(encode(&hexes)?);
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
        .bind(row.at.0)
        .bind(row.delivered_at.map(|at| at.0));
    pen.one_row(sql).await
}

pub(super) async fn delivered(
    pen: &mut Pen<'_>,
    run: RunId,
    id: InstructionId,
    at: Timestamp,
) -> Result<(), Stop> {
    pen.one_row(sql(DELIVERED).bind(pen.thread).bind(run.blob()).bind(id.blob()).bind(at.0)).await
}

pub(super) fn read(row: &Columns<'_>) -> Result<SteeringRow, StoreError> {
    Ok(SteeringRow {
        run: row.id("run")?,
        id: row.id("id")?,
        task: row.id_or_null("task")?,
        interrupt: row.id_or_null("interrupt")?,
        actor: row.text("actor")?,
        text: row.text("text")?,
        at: row.at("at")?,
        delivered_at: row.at_or_null("delivered")?,
    })
}
