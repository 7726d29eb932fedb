//! Effects under their keys: done once, whoever asks again.

use super::codec::{BlobId, Columns, encode};
use super::error::StoreError;
use super::reader::thread;
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::{EffectRow, EffectScope, EffectState};
use crate::model::ids::{TenantId, ThreadId};

pub(super) const BY_SCOPE: &str = concat!(
    "SELECT e.effect_key, e.input, e.task, e.state, e.outcome, e.at FROM effects e \
     WHERE e.thread = ",
    thread!(),
    " AND e.node = ?3 AND e.effect = ?4 AND e.effect_key = ?5"
);
// With where the task stands that asked first, if it is of this thread and there.
pub(super) const OF_THREAD: &str = concat!(
    "SELECT e.effect_key, e.node, e.effect, e.input, e.task, e.state, e.outcome, e.at, t.run, c.seq \
     FROM effects e \
         LEFT JOIN tasks t ON t.tenant = e.tenant AND t.task = e.task AND t.thread = e.thread \
         LEFT JOIN checkpoints c ON c.thread = t.thread AND c.checkpoint = t.boundary \
     WHERE e.thread = ",
    thread!()
);
// Who asked first, and with what, stays as it was.
pub(super) const PUT: &str = "INSERT INTO effects (tenant, thread, node, effect, effect_key, input, task, state, outcome, at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
    ON CONFLICT (thread, node, effect, effect_key) DO UPDATE SET state = excluded.state, \
        outcome = excluded.outcome, at = excluded.at";
impl Store {
    pub async fn effect(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        scope: &EffectScope,
    ) -> Result<Option<EffectRow>, StoreError> {
        let sql = sql(BY_SCOPE)
            .bind(tenant.as_str())
            .bind(thread.as_str())
            .bind(scope.node.as_str())
            .bind(scope.effect.as_str())
            .bind(scope.key.as_str());
        self.view().await?.find("effects", sql, |row| read(row, scope)).await
    }
}

pub(super) async fn put(pen: &mut Pen<'_>, row: &EffectRow) -> Result<(), Stop> {
    let (state, outcome) = match &row.state {
        EffectState::Intended => ("intended", None),
        EffectState::Known(outcome) => ("known", Some(encode(outcome)?)),
    };
    let sql = sql(PUT)
        .bind(pen.tenant)
        .bind(pen.thread)
        .bind(row.scope.node.as_str())
        .bind(row.scope.effect.as_str())
        .bind(row.scope.key.as_str())
        .bind(row.input.0.as_slice())
        .bind(row.task.blob())
        .bind(state)
        .bind(outcome)
        .bind(row.at.0);
    pen.one_row(sql).await
}

/// A row with its scope.
pub(super) fn read_scoped(row: &Columns<'_>) -> Result<EffectRow, StoreError> {
    let (node, effect, key) = (row.text("node")?, row.name("effect")?, row.text("effect_key")?);
    read(row, &EffectScope { node, effect, key })
}

fn read(row: &Columns<'_>, scope: &EffectScope) -> Result<EffectRow, StoreError> {
    Ok(EffectRow {
        scope: scope.clone(),
        input: row.digest("input")?,
        task: row.id("task")?,
        state: match row.text("state")?.as_str() {
            "intended" => EffectState::Intended,
            "known" => EffectState::Known(row.decoded("outcome")?),
            _ => return Err(row.wrong("state", "none of intended, known")),
        },
        at: row.at("at")?,
    })
}
