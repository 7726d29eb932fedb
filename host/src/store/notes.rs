//! What clients say about threads, and the list of all threads, those included that have not run yet.

use super::codec::Columns;
use super::error::StoreError;
use super::reader::tenant;
use super::service::one_or_conflict;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::RunStatus;
use crate::model::ids::{TenantId, ThreadId, Timestamp};
use crate::model::json::Json;

// A thread is there if it ran, or if somebody made it. `status` is null where it did not run yet; `open`:
// something that was accepted for it is not over.
macro_rules! listed {
    () => {
        concat!(
            "WITH named (tenant, name) AS ( \
                SELECT h.tenant, h.name FROM threads h WHERE h.tenant = ",
            tenant!(),
            " \
                UNION SELECT w.tenant, w.thread FROM thread_notes w WHERE w.tenant = ",
            tenant!(),
            "), \
            listed AS (SELECT x.name, h.status, \
                coalesce(w.metadata, '{}') AS metadata, \
                coalesce(w.created_at, h.created_at) AS created_at, \
                max(coalesce(w.updated_at, 0), coalesce(c.created_at, 0)) AS updated_at, \
                EXISTS (SELECT 1 FROM invocations i WHERE i.tenant = x.tenant AND i.thread = x.name \
                    AND i.status IN ('pending', 'running')) AS open \
            FROM named x \
                LEFT JOIN threads h ON h.tenant = x.tenant AND h.name = x.name \
                LEFT JOIN checkpoints c ON c.thread = h.thread AND c.checkpoint = h.head \
                LEFT JOIN thread_notes w ON w.tenant = x.tenant AND w.thread = x.name) "
        )
    };
}
// As the protocol words it: what runs is busy, what waits for an answer interrupted, what failed an error.
macro_rules! filter {
    () => {
        " FROM listed l WHERE (?2 IS NULL OR ?2 = CASE \
                WHEN l.status = 'running' OR (l.open AND coalesce(l.status, '') <> 'interrupted') THEN 'busy' \
                WHEN l.status = 'interrupted' THEN 'interrupted' \
                WHEN l.status IN ('failed', 'diverged') THEN 'error' ELSE 'idle' END) \
            AND (?3 IS NULL OR l.name IN (SELECT value FROM json_each(?3))) \
            AND NOT EXISTS (SELECT 1 FROM json_each(?4) f WHERE NOT EXISTS ( \
                SELECT 1 FROM json_each(l.metadata) m \
                WHERE m.key = f.key AND m.type = f.type AND m.value IS f.value)) "
    };
}
// Not by way of the list, which would look at all threads of the tenant.
const BY_NAME: &str = "SELECT coalesce(h.name, w.thread) AS name, h.status, coalesce(w.metadata, '{}') AS metadata, \
        coalesce(w.created_at, h.created_at) AS created_at, \
        max(coalesce(w.updated_at, 0), coalesce(c.created_at, 0)) AS updated_at, \
        EXISTS (SELECT 1 FROM invocations i WHERE i.tenant = n.tenant AND i.thread = ?2 \
            AND i.status IN ('pending', 'running')) AS open \
    FROM tenants n \
        LEFT JOIN threads h ON h.tenant = n.tenant AND h.name = ?2 \
        LEFT JOIN checkpoints c ON c.thread = h.thread AND c.checkpoint = h.head \
        LEFT JOIN thread_notes w ON w.tenant = n.tenant AND w.thread = ?2 \
    WHERE n.name = ?1 AND (h.thread IS NOT NULL OR w.thread IS NOT NULL)";
const COUNT: &str = concat!(listed!(), "SELECT count(*) AS n", filter!());
const INSERT: &str = "INSERT INTO thread_notes (tenant, thread, metadata, created_at, updated_at) \
    SELECT ?1, ?2, ?3, ?4, ?5 \
    WHERE NOT EXISTS (SELECT 1 FROM threads h WHERE h.tenant = ?1 AND h.name = ?2) ON CONFLICT DO NOTHING";
const ENSURE: &str = "INSERT INTO thread_notes (tenant, thread, metadata, created_at, updated_at) \
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
const PUT: &str = "INSERT INTO thread_notes (tenant, thread, metadata, created_at, updated_at) \
    VALUES (?1, ?2, ?3, ?4, ?5) \
    ON CONFLICT (tenant, thread) DO UPDATE SET metadata = excluded.metadata, updated_at = excluded.updated_at";
const FORGET_NOTE: &str = "DELETE FROM thread_notes WHERE tenant = ?1 AND thread = ?2";
const FORGET_CALLS: &str = "DELETE FROM invocations WHERE tenant = ?1 AND thread = ?2";
const FORGET_NEWS: &str = "DELETE FROM deliveries WHERE tenant = ?1 AND thread = ?2";
const HAS_RUN: &str = "SELECT 1 FROM threads WHERE tenant = ?1 AND name = ?2";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteRow {
    pub thread: ThreadId,
    pub metadata: Json,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A thread as the service lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedThread {
    pub note: NoteRow,
    /// `None`: it has not run yet.
    pub status: Option<RunStatus>,
    /// Something that was accepted for it is not over.
    pub is_open: bool,
}

/// The columns that a list can be ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadOrder {
    Name,
    Status,
    Created,
    #[default]
    Updated,
}

#[derive(Clone, Debug)]
pub struct ListFilter {
    /// `idle`, `busy`, `interrupted` or `error`.
    pub status: Option<&'static str>,
    pub names: Option<Vec<String>>,
    /// An object; each member must be in the thread's.
    pub metadata: Json,
    pub order: ThreadOrder,
    pub ascending: bool,
    pub limit: u32,
    pub offset: u32,
}

impl Store {
    pub async fn listed_thread(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
    ) -> Result<Option<ListedThread>, StoreError> {
        let sql = sql(BY_NAME).bind(tenant.as_str()).bind(thread.as_str());
        self.view().await?.find("threads", sql, read).await
    }

    /// A page of a tenant's threads, and how many there are in all.
    pub async fn list_threads(
        &self,
        tenant: &TenantId,
        filter: &ListFilter,
    ) -> Result<(Vec<ListedThread>, u64), StoreError> {
        let names = filter.names.as_ref().map(super::codec::encode).transpose()?;
        let filtered = |statement| {
            sql(statement)
                .bind(tenant.as_str().to_owned())
                .bind(filter.status)
                .bind(names.clone())
                .bind(filter.metadata.as_str().to_owned())
        };
        let page = filtered(search(filter.order, filter.ascending))
            .bind(filter.limit.min(PAGE_ROWS_MAX))
            .bind(filter.offset);
        let mut view = self.snapshot().await?;
        let rows = view.scan("threads", page, read).await?;
        let count = view.scan("threads", filtered(COUNT), |row| row.int("n")).await?.pop();
        Ok((rows, count.unwrap_or(0)))
    }
}

/// A statement for each order: a column's name is no parameter.
fn search(order: ThreadOrder, ascending: bool) -> &'static str {
    macro_rules! by {
        ($order:literal) => {
            concat!(
                listed!(),
                "SELECT l.name, l.status, l.metadata, l.created_at, l.updated_at, l.open",
                filter!(),
                " ORDER BY ",
                $order,
                ", l.name LIMIT ?5 OFFSET ?6"
            )
        };
    }
    match (order, ascending) {
        (ThreadOrder::Name, true) => by!("l.name"),
        (ThreadOrder::Name, false) => by!("l.name DESC"),
        (ThreadOrder::Status, true) => by!("l.status"),
        (ThreadOrder::Status, false) => by!("l.status DESC"),
        (ThreadOrder::Created, true) => by!("l.created_at"),
        (ThreadOrder::Created, false) => by!("l.created_at DESC"),
        (ThreadOrder::Updated, true) => by!("l.updated_at"),
        (ThreadOrder::Updated, false) => by!("l.updated_at DESC"),
    }
}

fn bound(statement: &'static str, tenant: i64, row: &NoteRow) -> super::reader::Sql {
    sql(statement)
        .bind(tenant)
        .bind(row.thread.to_string())
        .bind(row.metadata.as_str().to_owned())
        .bind(row.created_at.0)
        .bind(row.updated_at.0)
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &NoteRow) -> Result<(), Stop> {
    one_or_conflict(pen, bound(INSERT, pen.tenant, row)).await
}

pub(super) async fn ensure(pen: &mut Pen<'_>, row: &NoteRow) -> Result<(), Stop> {
    pen.change(bound(ENSURE, pen.tenant, row)).await.map(drop)
}

pub(super) async fn put(pen: &mut Pen<'_>, row: &NoteRow) -> Result<(), Stop> {
    pen.one_row(bound(PUT, pen.tenant, row)).await
}

/// What the service keeps about a thread.
pub(super) async fn forget(pen: &mut Pen<'_>, thread: &ThreadId) -> Result<(), Stop> {
    for statement in [FORGET_NOTE, FORGET_CALLS, FORGET_NEWS] {
        pen.change(sql(statement).bind(pen.tenant).bind(thread.to_string())).await?;
    }
    Ok(())
}

pub(super) async fn forget_unrun(pen: &mut Pen<'_>, thread: &ThreadId) -> Result<(), Stop> {
    if pen.is_there(sql(HAS_RUN).bind(pen.tenant).bind(thread.to_string())).await? {
        return Err(Stop::Conflict);
    }
    forget(pen, thread).await
}

fn read(row: &Columns<'_>) -> Result<ListedThread, StoreError> {
    let status: Option<String> = row.get("status")?;
    Ok(ListedThread {
        status: status.is_some().then(|| row.status("status")).transpose()?,
        is_open: row.get("open")?,
        note: NoteRow {
            thread: row.name("name")?,
            metadata: row.json("metadata")?,
            created_at: row.at("created_at")?,
            updated_at: row.at("updated_at")?,
        },
    })
}
