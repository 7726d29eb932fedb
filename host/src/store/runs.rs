//! Runs and child runs.

use super::codec::{BlobId, Columns, encode};
use super::error::StoreError;
use super::reader::{tenant, thread};
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::RunRow;
use crate::model::ids::{CheckpointId, Digest, RunId, TenantId, ThreadId, Timestamp};
use crate::model::{ErrorRecord, RunStatus};

macro_rules! columns {
    () => {
        "r.run, r.parent_run, r.parent_task, r.graph, r.namespace, r.agent, r.given, r.head, r.gates, r.status, \
         r.error, r.created_at, r.ended_at"
    };
}

pub(super) const BY_ID: &str = concat!(
    "SELECT ",
    columns!(),
    ", h.name FROM runs r JOIN threads h ON h.thread = r.thread \
     WHERE r.tenant = ",
    tenant!(),
    " AND r.run = ?2"
);
pub(super) const OF_THREAD: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM runs r WHERE r.thread = ",
    thread!(),
    " ORDER BY r.created_at, r.run"
);
pub(super) const BY_NUMBER: &str =
    concat!("SELECT ", columns!(), " FROM runs r WHERE r.tenant = ?1 AND r.run = ?2");
// Child runs of a boundary's tasks that are not done.
pub(super) const OF_BOUNDARY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t JOIN runs r ON r.tenant = t.tenant AND r.run = t.child \
     WHERE t.thread = ?1 AND t.boundary = ?2 AND t.state <> 'finished' ORDER BY t.place"
);
pub(super) const INSERT: &str = "INSERT INTO runs (tenant, run, thread, parent_run, parent_task, graph, namespace, agent, \
    given, head, gates, status, error, created_at, ended_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
const SET_GRAPH: &str = "UPDATE runs SET graph = ?4 WHERE tenant = ?1 AND run = ?2 AND thread = ?3";
pub(super) const SET_HEAD: &str = "UPDATE runs SET head = ?4 WHERE tenant = ?1 AND run = ?2 AND thread = ?3";
pub(super) const SET_STATUS: &str = "UPDATE runs SET status = ?4, error = ?5, ended_at = ?6 \
    WHERE tenant = ?1 AND run = ?2 AND thread = ?3";

impl Store {
    /// A run by its id alone, and the thread it is of.
    pub async fn run(&self, tenant: &TenantId, id: RunId) -> Result<Option<(ThreadId, RunRow)>, StoreError> {
        let sql = sql(BY_ID).bind(tenant.as_str()).bind(id.blob());
        self.view().await?.find("runs", sql, |row| Ok((row.name("name")?, read(row)?))).await
    }

    /// All runs of a thread, the earliest first.
    pub async fn runs(&self, tenant: &TenantId, thread: &ThreadId) -> Result<Vec<RunRow>, StoreError> {
        let sql = sql(OF_THREAD).bind(tenant.as_str()).bind(thread.as_str());
        self.view().await?.scan("runs", sql, read).await
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &RunRow) -> Result<(), Stop> {
    let (parent_run, parent_task) = row.parent.unzip();
    let sql = sql(INSERT)
        .bind(pen.tenant)
        .bind(row.run.blob())
        .bind(pen.thread)
        .bind(parent_run.as_ref().map(BlobId::blob))
        .bind(parent_task.as_ref().map(BlobId::blob))
        .bind(row.graph.0.as_slice())
        .bind(encode(&row.namespace)?)
        .bind(row.agent.as_deref())
        .bind(encode(&row.given)?)
        .bind(row.head.as_ref().map(BlobId::blob))
        .bind(encode(&row.gates)?)
        .bind(row.status.as_str())
        .bind(row.error.as_ref().map(encode).transpose()?)
        .bind(row.created_at.0)
        .bind(row.ended_at.map(|at| at.0));
    pen.one_row(sql).await
}

pub(super) async fn set_graph(pen: &mut Pen<'_>, run: RunId, graph: Digest) -> Result<(), Stop> {
    let sql = sql(SET_GRAPH).bind(pen.tenant).bind(run.blob()).bind(pen.thread).bind(graph.0.to_vec());
    pen.one_row(sql).await
}

pub(super) async fn set_head(pen: &mut Pen<'_>, run: RunId, head: CheckpointId) -> Result<(), Stop> {
    let sql = sql(SET_HEAD).bind(pen.tenant).bind(run.blob()).bind(pen.thread).bind(head.blob());
    pen.one_row(sql).await
}

pub(super) async fn set_status(
    pen: &mut Pen<'_>,
    run: RunId,
    status: RunStatus,
    error: Option<&ErrorRecord>,
    ended_at: Option<Timestamp>,
) -> Result<(), Stop> {
    let sql = sql(SET_STATUS)
        .bind(pen.tenant)
        .bind(run.blob())
        .bind(pen.thread)
        .bind(status.as_str())
        .bind(error.map(encode).transpose()?)
        .bind(ended_at.map(|at| at.0));
    pen.one_row(sql).await
}

pub(super) fn read(row: &Columns<'_>) -> Result<RunRow, StoreError> {
    Ok(RunRow {
        run: row.id("run")?,
        parent: row.id_or_null("parent_run")?.zip(row.id_or_null("parent_task")?),
        graph: row.digest("graph")?,
        namespace: row.decoded("namespace")?,
        agent: row.get("agent")?,
        given: row.decoded("given")?,
        head: row.id_or_null("head")?,
        gates: row.decoded("gates")?,
        status: row.status("status")?,
        error: row.decoded_or_null("error")?,
        created_at: row.at("created_at")?,
        ended_at: row.at_or_null("ended_at")?,
    })
}
