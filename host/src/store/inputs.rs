//! New input that waits until its thread is free.

use super::codec::{Columns, encode};
use super::error::StoreError;
use super::reader::thread;
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::QueuedInput;
use crate::model::ids::{TenantId, ThreadId};

pub(super) const NEXT: &str = concat!(
    "SELECT q.seq, q.graph, q.input, q.gates, q.at FROM inputs q WHERE q.thread = ",
    thread!(),
    " ORDER BY q.seq LIMIT 1"
);
const INSERT: &str = "INSERT INTO inputs (thread, graph, input, gates, at) VALUES (?1, ?2, ?3, ?4, ?5)";
const DELETE: &str = "DELETE FROM inputs WHERE seq = ?1 AND thread = ?2";

impl Store {
    /// What was enqueued first on a thread, with the number that takes it off.
    pub async fn next_input(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<(i64, QueuedInput)>, StoreError> {
        let sql = sql(NEXT).bind(tenant.as_str()).bind(thread.as_str());
        self.view().await?.find("inputs", sql, |row| Ok((row.get("seq")?, read(row)?))).await
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &QueuedInput) -> Result<(), Stop> {
    let sql = sql(INSERT)
        .bind(pen.thread)
        .bind(row.graph.0.as_slice())
        .bind(row.input.as_str())
        .bind(encode(&row.gates)?)
        .bind(row.at.0);
    pen.one_row(sql).await
}

/// Of two who take one off, one finds no row.
pub(super) async fn remove(pen: &mut Pen<'_>, seq: i64) -> Result<(), Stop> {
    match pen.change(sql(DELETE).bind(seq).bind(pen.thread)).await? {
        1 => Ok(()),
        _ => Err(Stop::Conflict),
    }
}

fn read(row: &Columns<'_>) -> Result<QueuedInput, StoreError> {
    Ok(QueuedInput {
        graph: row.digest("graph")?,
        input: row.json("input")?,
        gates: row.decoded("gates")?,
        at: row.at("at")?,
    })
}
