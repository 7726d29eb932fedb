//! Threads: the row that guards every change, the lease in it, and the list of all.

use super::batch::OwnerId;
use super::codec::Columns;
use super::error::StoreError;
use super::reader::tenant;
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::RunStatus;
use crate::model::ids::{CheckpointId, RunId, TenantId, ThreadId, Timestamp};

pub(super) const LEASE: &str = concat!(
    "SELECT h.name, h.epoch, h.owner, h.until FROM threads h WHERE h.tenant = ",
    tenant!(),
    " AND h.name = ?2"
);
pub(super) const HEAD: &str =
    concat!("SELECT h.name, h.head, h.epoch FROM threads h WHERE h.tenant = ", tenant!(), " AND h.name = ?2");
macro_rules! list {
    () => {
        concat!(
            "SELECT h.name, h.status, h.head, h.run, h.created_at, c.created_at AS updated_at, g.name AS graph, \
                 r.run IS NOT NULL AS has_run, h.pending \
             FROM threads h \
                 LEFT JOIN checkpoints c ON c.thread = h.thread AND c.checkpoint = h.head \
                 LEFT JOIN runs r ON r.tenant = h.tenant AND r.run = h.run \
                 LEFT JOIN graphs g ON g.tenant = r.tenant AND g.digest = r.graph \
             WHERE h.tenant = ", tenant!(), " AND h.name > ?2"
        )
    };
}
pub(super) const ALL: &str = concat!(list!(), " ORDER BY h.name LIMIT ?3");
pub(super) const OF_STATUS: &str = concat!(list!(), " AND h.status = ?4 ORDER BY h.name LIMIT ?3");

/// The right to run a thread, while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub owner: OwnerId,
    /// When it ends, if its owner does not renew it.
    pub until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseState {
    pub epoch: i64,
    pub lease: Option<Lease>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadFilter {
    pub status: Option<RunStatus>,
    /// The last thread of the page before.
    pub after: Option<ThreadId>,
    pub limit: u32,
}

/// A thread in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    pub thread: ThreadId,
    pub status: RunStatus,
    pub head: CheckpointId,
    /// The latest root run.
    pub run: RunId,
    /// The name of that run's graph.
    pub graph: String,
    pub created_at: Timestamp,
    /// When its head was made.
    pub updated_at: Timestamp,
    /// Questions that wait for an answer.
    pub pending: u64,
}

impl Store {
    /// Who may run the thread now; asked again right before an effect is sent.
    pub async fn lease(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<LeaseState>, StoreError> {
        let sql = sql(LEASE).bind(tenant.as_str()).bind(thread.as_str());
        self.view().await?.find("threads", sql, lease).await
    }

    /// A thread's head and epoch, which say whether it is still as somebody knew it.
    pub async fn head(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<(CheckpointId, i64)>, StoreError> {
        let sql = sql(HEAD).bind(tenant.as_str()).bind(thread.as_str());
        self.view().await?.find("threads", sql, |row| Ok((row.id("head")?, row.get("epoch")?))).await
    }

    /// A page of a tenant's threads, by name.
    pub async fn threads(
        &self,
        tenant: &TenantId,
        filter: &ThreadFilter,
    ) -> Result<Vec<ThreadRow>, StoreError> {
        let page = sql(if filter.status.is_some() { OF_STATUS } else { ALL })
            .bind(tenant.as_str())
            // A name is never empty, so all come after this.
            .bind(filter.after.as_ref().map_or("", ThreadId::as_str))
            .bind(filter.limit.min(PAGE_ROWS_MAX));
        let page = match filter.status {
            None => page,
            Some(status) => page.bind(status.as_str()),
        };
        self.view().await?.list("threads", page, read).await
    }
}

pub(super) fn lease(row: &Columns<'_>) -> Result<LeaseState, StoreError> {
    let owner: Option<Vec<u8>> = row.get("owner")?;
    let lease = match owner {
        None => None,
        Some(_) => {
            Some(Lease { owner: OwnerId(u128::from_be_bytes(row.bytes("owner")?)), until: row.at("until")? })
        }
    };
    Ok(LeaseState { epoch: row.get("epoch")?, lease })
}

fn read(row: &Columns<'_>) -> Result<ThreadRow, StoreError> {
    let (head, run): (CheckpointId, RunId) = (row.id("head")?, row.id("run")?);
    let graph: Option<String> = row.get("graph")?;
    let updated_at = row.at_or_null("updated_at")?;
    Ok(ThreadRow {
        thread: row.name("name")?,
        status: row.status("status")?,
        head,
        run,
        graph: match graph {
            Some(graph) => graph,
            None if !row.get::<bool>("has_run")? => {
                return Err(row.wrong("run", format!("run {run} is not there")));
            }
            None => {
                return Err(StoreError::Corrupt {
                    file: row.file.to_owned(),
                    table: "runs",
                    row: run.to_string(),
                    what: "its graph is not there".into(),
                });
            }
        },
        created_at: row.at("created_at")?,
        updated_at: updated_at.ok_or_else(|| row.wrong("head", format!("checkpoint {head} is not there")))?,
        pending: row.int("pending")?,
    })
}
