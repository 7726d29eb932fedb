//! Tasks: how far each activation of a node is.

use super::codec::{BlobId, Columns, encode, int};
use super::error::StoreError;
use super::reader::{tenant, thread};
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::{TaskRow, TaskState};
use crate::model::ids::{CheckpointId, TaskId, TenantId, ThreadId};

macro_rules! columns {
    () => {
        "t.task, t.run, t.boundary, t.place, t.node, t.component, t.child, t.attempts, t.generation, \
         t.settings, t.failures, t.state, t.outcome"
    };
}

pub(super) const BY_ID: &str = concat!(
    "SELECT ",
    columns!(),
    ", h.name FROM tasks t JOIN threads h ON h.thread = t.thread \
     WHERE t.tenant = ",
    tenant!(),
    " AND t.task = ?2"
);
pub(super) const OF_BOUNDARY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t WHERE t.thread = ",
    thread!(),
    " AND t.boundary = ?3 ORDER BY t.place"
);
pub(super) const BY_NUMBER: &str =
    concat!("SELECT ", columns!(), " FROM tasks t WHERE t.thread = ?1 AND t.boundary = ?2 ORDER BY t.place");
// Where a task stands is part of its id, and is not written again: an index would be with it.
pub(super) const PUT: &str = "INSERT INTO tasks (tenant, task, thread, run, boundary, place, node, component, child, \
        attempts, generation, settings, failures, state, outcome) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
    ON CONFLICT (tenant, task) DO UPDATE SET component = excluded.component, \
        child = excluded.child, attempts = excluded.attempts, generation = excluded.generation, \
        settings = excluded.settings, failures = excluded.failures, state = excluded.state, outcome = excluded.outcome \
    WHERE thread = excluded.thread AND boundary = excluded.boundary AND place = excluded.place";

impl Store {
    /// A task by its id alone, and the thread it is of.
    pub async fn task(
        &self,
        tenant: &TenantId,
        id: TaskId,
    ) -> Result<Option<(ThreadId, TaskRow)>, StoreError> {
        let sql = sql(BY_ID).bind(tenant.as_str()).bind(id.blob());
        self.view().await?.find("tasks", sql, |row| Ok((row.name("name")?, read(row)?))).await
    }

    /// The tasks of a boundary that were started, in the plan's order.
    pub async fn tasks(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        boundary: CheckpointId,
    ) -> Result<Vec<TaskRow>, StoreError> {
        let sql = sql(OF_BOUNDARY).bind(tenant.as_str()).bind(thread.as_str()).bind(boundary.blob());
        self.view().await?.list("tasks", sql, read).await
    }
}

pub(super) async fn put(pen: &mut Pen<'_>, row: &TaskRow) -> Result<(), Stop> {
    let (state, outcome) = match &row.state {
        TaskState::Started => ("started", None),
        TaskState::Paused => ("paused", None),
        TaskState::Finished(finish) => ("finished", Some(encode(finish)?)),
        TaskState::Failed(error) => ("failed", Some(encode(error)?)),
    };
    let sql = sql(PUT)
        .bind(pen.tenant)
        .bind(row.task.blob())
        .bind(pen.thread)
        .bind(row.run.blob())
        .bind(row.boundary.blob())
        .bind(int(row.index))
        .bind(row.node.as_str())
        .bind(row.component.0.as_slice())
        .bind(row.child.as_ref().map(BlobId::blob))
        .bind(row.attempts)
        .bind(row.generation)
        .bind(row.settings)
        .bind(row.failures)
        .bind(state)
        .bind(outcome);
    pen.one_row(sql).await
}

pub(super) fn read(row: &Columns<'_>) -> Result<TaskRow, StoreError> {
    Ok(TaskRow {
        task: row.id("task")?,
        run: row.id("run")?,
        boundary: row.id("boundary")?,
        index: row.int("place")?,
        node: row.name("node")?,
        component: row.digest("component")?,
        child: row.id_or_null("child")?,
        attempts: row.int("attempts")?,
        generation: row.int("generation")?,
        settings: row.get("settings")?,
        failures: row.int("failures")?,
        state: match row.text("state")?.as_str() {
            "started" => TaskState::Started,
            "paused" => TaskState::Paused,
            "finished" => TaskState::Finished(row.decoded("outcome")?),
            "failed" => TaskState::Failed(row.decoded("outcome")?),
            _ => return Err(row.wrong("state", "none of started, paused, finished, failed")),
        },
    })
}
