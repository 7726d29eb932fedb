//! Calls on threads that were accepted: they are carried out, whoever dies meanwhile.

use uuid::Uuid;

use super::codec::{BlobId, Columns, encode};
use super::error::StoreError;
use super::reader::tenant;
use super::service::one_or_conflict;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::ids::{RunId, TenantId, ThreadId, Timestamp};
use crate::model::json::Json;
use crate::model::{ErrorRecord, Kind, RunStatus};

macro_rules! columns {
    () => {
        "i.seq, i.invocation, i.thread, i.assistant, i.ask, i.strategy, i.actor, i.metadata, i.webhook, i.status, \
         i.run, i.error, i.from_seq, i.to_seq, i.created_at, i.updated_at"
    };
}
macro_rules! of_thread {
    () => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM invocations i WHERE i.tenant = ",
            tenant!(),
            " AND i.thread = ?2"
        )
    };
}
const BY_ID: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM invocations i WHERE i.tenant = ",
    tenant!(),
    " AND i.invocation = ?2"
);
const PAGE: &str =
    concat!(of_thread!(), " AND (?3 IS NULL OR i.status = ?3) ORDER BY i.seq DESC LIMIT ?4 OFFSET ?5");
// Only where nothing else runs: the first in line.
const NEXT: &str = concat!(
    of_thread!(),
    " AND i.status = 'pending' AND NOT EXISTS (SELECT 1 FROM invocations o WHERE o.tenant = i.tenant \
        AND o.thread = i.thread AND o.status = 'running') \
      AND NOT EXISTS (SELECT 1 FROM threads h WHERE h.tenant = i.tenant AND h.name = i.thread \
        AND h.status IN ('running', 'interrupted')) ORDER BY i.seq LIMIT 1"
);
const OPEN: &str = concat!(
    "SELECT ",
    columns!(),
    ", n.name AS tenant FROM invocations i JOIN tenants n ON n.tenant = i.tenant \
     WHERE i.status IN ('pending', 'running') AND i.seq > ?1 ORDER BY i.seq LIMIT ?2"
);
const COUNT_OPEN: &str = "SELECT count(*) AS n FROM invocations i WHERE i.status IN ('pending', 'running')";
// Numbers of checkpoints grow for the whole database, so a thread's latest is a mark in its own line.
macro_rules! latest {
    ($tenant:literal, $thread:literal) => {
        concat!(
            "coalesce((SELECT max(c.seq) FROM threads h JOIN checkpoints c ON c.thread = h.thread WHERE h.tenant = ",
            $tenant,
            " AND h.name = ",
            $thread,
            "), 0)"
        )
    };
}
const ACCEPT: &str = concat!(
    "INSERT INTO invocations (tenant, invocation, thread, assistant, ask, strategy, actor, metadata, webhook, run, \
        created_at, updated_at, status, from_seq) \
     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, x.status, \
        CASE x.status WHEN 'running' THEN ",
    latest!("?1", "?3"),
    " END \
     FROM (SELECT CASE WHEN ?12 = 'queue' AND (EXISTS (SELECT 1 FROM invocations o WHERE o.tenant = ?1 \
            AND o.thread = ?3 AND o.status IN ('pending', 'running')) \
        OR EXISTS (SELECT 1 FROM threads h WHERE h.tenant = ?1 AND h.name = ?3 \
            AND h.status IN ('running', 'interrupted'))) THEN 'pending' ELSE 'running' END AS status) x \
     WHERE x.status = 'running' OR NOT ?13"
);
const SUPERSEDE: &str = concat!(
    "UPDATE invocations SET status = 'interrupted', updated_at = ?4, \
        to_seq = CASE status WHEN 'running' THEN ",
    latest!("?1", "?2"),
    " END, from_seq = coalesce(from_seq, ",
    latest!("?1", "?2"),
    ") WHERE tenant = ?1 AND thread = ?2 AND invocation <> ?3 AND status IN ('pending', 'running')"
);
const BEGIN: &str = concat!(
    "UPDATE invocations SET status = 'running', updated_at = ?3, from_seq = ",
    latest!("invocations.tenant", "invocations.thread"),
    " WHERE tenant = ?1 AND invocation = ?2 AND status = 'pending'"
);
const OF_RUN: &str = "UPDATE invocations SET run = ?3 WHERE tenant = ?1 AND invocation = ?2";
const END: &str = concat!(
    "UPDATE invocations SET status = ?3, error = ?4, run = coalesce(?5, run), updated_at = ?6, \
        from_seq = coalesce(from_seq, ",
    latest!("invocations.tenant", "invocations.thread"),
    "), to_seq = ",
    latest!("invocations.tenant", "invocations.thread"),
    " WHERE tenant = ?1 AND invocation = ?2 AND status IN ('pending', 'running')"
);
const IS_OPEN: &str = "SELECT 1 FROM invocations WHERE tenant = ?1 AND invocation = ?2 \
    AND status IN ('pending', 'running')";
const REMOVE: &str = "DELETE FROM invocations WHERE tenant = ?1 AND invocation = ?2 \
    AND status NOT IN ('pending', 'running')";

const COUNT_QUEUED: &str = "SELECT count(*) AS n FROM invocations i WHERE i.status = 'pending'";

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationStatus {
    /// It waits until its thread is free.
    Pending,
    Running,
    /// It was carried out: the run completed, or waits for an answer.
    Success,
    Error,
    /// It was called off, or another took its place.
    Interrupted,
}

impl InvocationStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Interrupted => "interrupted",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Success, Self::Error, Self::Interrupted]
            .into_iter()
            .find(|status| status.as_str() == text)
    }

    pub fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct InvocationRow {
    /// Its place in the order of acceptance; 0 before it is accepted.
    pub seq: i64,
    pub invocation: Uuid,
    pub thread: ThreadId,
    pub assistant: Uuid,
    /// What is to be done.
    pub ask: Json,
    /// `queue`: one after the other; else it runs beside what runs.
    pub strategy: String,
    pub actor: Option<String>,
    pub metadata: Json,
    pub webhook: Option<String>,
    pub status: InvocationStatus,
    pub run: Option<RunId>,
    pub error: Option<ErrorRecord>,
    pub from_seq: Option<i64>,
    pub to_seq: Option<i64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct InvocationEnd {
    pub invocation: Uuid,
    pub status: InvocationStatus,
    pub error: Option<ErrorRecord>,
    pub run: Option<RunId>,
    pub at: Timestamp,
}

impl InvocationEnd {
    /// Of a call whose run came to stand like this.
    pub fn of(
        invocation: Uuid,
        (run, status): (RunId, RunStatus),
        error: Option<ErrorRecord>,
        at: Timestamp,
    ) -> Self {
        let status = match status {
            // What stopped at a question did what it was asked to; its thread waits.
            RunStatus::Completed | RunStatus::Interrupted | RunStatus::Running => InvocationStatus::Success,
            RunStatus::Failed | RunStatus::Diverged => InvocationStatus::Error,
            RunStatus::Cancelled => InvocationStatus::Interrupted,
        };
        let failed = || ErrorRecord::new(Kind::NodeFailed, "it failed");
        let error = (status == InvocationStatus::Error).then(|| error.unwrap_or_else(failed));
        Self { invocation, status, error, run: Some(run), at }
    }
}

impl Store {
    pub async fn invocation(&self, tenant: &TenantId, id: Uuid) -> Result<Option<InvocationRow>, StoreError> {
        let sql = sql(BY_ID).bind(tenant.as_str()).bind(id.as_bytes().to_vec());
        self.view().await?.find("invocations", sql, read).await
    }

    /// A page of what was asked of a thread, the latest first.
    pub async fn invocations(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        status: Option<InvocationStatus>,
        (limit, offset): (u32, u32),
    ) -> Result<Vec<InvocationRow>, StoreError> {
        let sql = sql(PAGE)
            .bind(tenant.as_str())
            .bind(thread.as_str())
            .bind(status.map(InvocationStatus::as_str))
            .bind(limit.min(PAGE_ROWS_MAX))
            .bind(offset);
        self.view().await?.list("invocations", sql, read).await
    }

    /// What waits on a thread and can be begun now.
    pub async fn next_invocation(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<InvocationRow>, StoreError> {
        let sql = sql(NEXT).bind(tenant.as_str()).bind(thread.as_str());
        self.view().await?.find("invocations", sql, read).await
    }

    /// What is not over, of all tenants, in the order of acceptance: a page of those after `seq`.
    pub async fn open_invocations(&self, seq: i64) -> Result<Vec<(TenantId, InvocationRow)>, StoreError> {
        let sql = sql(OPEN).bind(seq).bind(PAGE_ROWS_MAX);
        self.view().await?.list("invocations", sql, |row| Ok((row.name("tenant")?, read(row)?))).await
    }

    /// Those that wait for their thread.
    pub async fn queued_invocation_count(&self) -> Result<u64, StoreError> {
        let count = self.view().await?.find("invocations", sql(COUNT_QUEUED), |row| row.int("n")).await?;
        Ok(count.unwrap_or(0))
    }

    pub async fn open_invocation_count(&self) -> Result<u64, StoreError> {
        let count = self.view().await?.find("invocations", sql(COUNT_OPEN), |row| row.int("n")).await?;
        Ok(count.unwrap_or(0))
    }
}

pub(super) async fn accept(pen: &mut Pen<'_>, row: &InvocationRow, only_if_free: bool) -> Result<(), Stop> {
    let sql = sql(ACCEPT)
        .bind(pen.tenant)
        .bind(row.invocation.as_bytes().to_vec())
        .bind(row.thread.to_string())
        .bind(row.assistant.as_bytes().to_vec())
        .bind(row.ask.as_str().to_owned())
        .bind(row.strategy.clone())
        .bind(row.actor.clone())
        .bind(row.metadata.as_str().to_owned())
        .bind(row.webhook.clone())
        .bind(row.run.map(|run| run.blob().to_vec()))
        .bind(row.created_at.0)
        .bind(row.strategy.clone())
        .bind(only_if_free);
    one_or_conflict(pen, sql).await
}

pub(super) async fn supersede(
    pen: &mut Pen<'_>,
    thread: &ThreadId,
    by: Uuid,
    at: Timestamp,
) -> Result<(), Stop> {
    let sql =
        sql(SUPERSEDE).bind(pen.tenant).bind(thread.to_string()).bind(by.as_bytes().to_vec()).bind(at.0);
    pen.change(sql).await.map(drop)
}

pub(super) async fn begin(pen: &mut Pen<'_>, invocation: Uuid, at: Timestamp) -> Result<(), Stop> {
    one_or_conflict(pen, sql(BEGIN).bind(pen.tenant).bind(invocation.as_bytes().to_vec()).bind(at.0)).await
}

pub(super) async fn of_run(pen: &mut Pen<'_>, invocation: Uuid, run: RunId) -> Result<(), Stop> {
    let sql = sql(OF_RUN).bind(pen.tenant).bind(invocation.as_bytes().to_vec()).bind(run.blob().to_vec());
    one_or_conflict(pen, sql).await
}

pub(super) async fn end(pen: &mut Pen<'_>, end: &InvocationEnd) -> Result<(), Stop> {
    let sql = sql(END)
        .bind(pen.tenant)
        .bind(end.invocation.as_bytes().to_vec())
        .bind(end.status.as_str())
        .bind(end.error.as_ref().map(encode).transpose()?)
        .bind(end.run.map(|run| run.blob().to_vec()))
        .bind(end.at.0);
    one_or_conflict(pen, sql).await
}

/// For what may become true only while this call is not over.
pub(super) async fn is_open(pen: &mut Pen<'_>, invocation: Uuid) -> Result<(), Stop> {
    let sql = sql(IS_OPEN).bind(pen.tenant).bind(invocation.as_bytes().to_vec());
    if pen.is_there(sql).await? { Ok(()) } else { Err(Stop::Conflict) }
}

pub(super) async fn remove(pen: &mut Pen<'_>, invocation: Uuid) -> Result<(), Stop> {
    one_or_conflict(pen, sql(REMOVE).bind(pen.tenant).bind(invocation.as_bytes().to_vec())).await
}

fn read(row: &Columns<'_>) -> Result<InvocationRow, StoreError> {
    Ok(InvocationRow {
        seq: row.get("seq")?,
        invocation: row.uuid("invocation")?,
        thread: row.name("thread")?,
        assistant: row.uuid("assistant")?,
        ask: row.json("ask")?,
        strategy: row.text("strategy")?,
        actor: row.get("actor")?,
        metadata: row.json("metadata")?,
        webhook: row.get("webhook")?,
        status: row.word("status", InvocationStatus::parse)?,
        run: row.id_or_null("run")?,
        error: row.decoded_or_null("error")?,
        from_seq: row.get("from_seq")?,
        to_seq: row.get("to_seq")?,
        created_at: row.at("created_at")?,
        updated_at: row.at("updated_at")?,
    })
}
