//! What is to be told to others, until they have taken it.

use uuid::Uuid;

use super::codec::Columns;
use super::error::StoreError;
use super::service::one_or_conflict;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::ids::{TenantId, ThreadId, Timestamp};
use crate::model::json::Json;

// The first of each thread, if its time has come: what follows it on the thread waits for it. A few of each tenant:
// what one has too much of is not in the way of what others have.
const DUE: &str = "SELECT d.seq, d.thread, d.delivery, d.url, d.body, d.attempts, d.next_at, d.error, d.created_at, \
        n.name AS tenant \
    FROM (SELECT f.*, row_number() OVER (PARTITION BY f.tenant ORDER BY f.seq) AS place FROM deliveries f \
        WHERE f.next_at <= ?1 AND NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant = f.tenant \
            AND e.thread = f.thread AND e.seq < f.seq)) d \
    JOIN tenants n ON n.tenant = d.tenant WHERE d.place <= ?3 ORDER BY d.place, d.seq LIMIT ?2";
const NEXT: &str = "SELECT min(d.next_at) AS at FROM deliveries d WHERE d.next_at > ?1 AND NOT EXISTS (SELECT 1 \
    FROM deliveries e WHERE e.tenant = d.tenant AND e.thread = d.thread AND e.seq < d.seq)";
const COUNT: &str = "SELECT count(*) AS n FROM deliveries d";
const INSERT: &str = "INSERT INTO deliveries (tenant, thread, delivery, url, body, attempts, next_at, created_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?6)";
const REMOVE: &str = "DELETE FROM deliveries WHERE tenant = ?1 AND seq = ?2";
const PUT_OFF: &str =
    "UPDATE deliveries SET attempts = attempts + 1, next_at = ?3, error = ?4 WHERE tenant = ?1 AND seq = ?2";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Its place in the order; 0 before it is written.
    pub seq: i64,
    pub thread: ThreadId,
    pub delivery: Uuid,
    pub url: String,
    pub body: Json,
    pub attempts: u32,
    pub next_at: Timestamp,
    pub error: Option<String>,
    pub created_at: Timestamp,
}

impl Store {
    /// What can be sent now, one a thread: of each tenant so many, the oldest.
    pub async fn due_deliveries(
        &self,
        now: Timestamp,
        of_tenant: u32,
    ) -> Result<Vec<(TenantId, DeliveryRow)>, StoreError> {
        let sql = sql(DUE).bind(now.0).bind(PAGE_ROWS_MAX).bind(of_tenant);
        self.view().await?.list("deliveries", sql, |row| Ok((row.name("tenant")?, read(row)?))).await
    }

    /// When there is more of it than now.
    pub async fn next_delivery(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let sql = sql(NEXT).bind(now.0);
        let at = self.view().await?.find("deliveries", sql, |row| row.at_or_null("at")).await?;
        Ok(at.flatten())
    }

    pub async fn delivery_count(&self) -> Result<u64, StoreError> {
        Ok(self.view().await?.find("deliveries", sql(COUNT), |row| row.int("n")).await?.unwrap_or(0))
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &DeliveryRow) -> Result<(), Stop> {
    let sql = sql(INSERT)
        .bind(pen.tenant)
        .bind(row.thread.to_string())
        .bind(row.delivery.as_bytes().to_vec())
        .bind(row.url.clone())
        .bind(row.body.as_str().to_owned())
        .bind(row.created_at.0);
    pen.one_row(sql).await
}

pub(super) async fn remove(pen: &mut Pen<'_>, seq: i64) -> Result<(), Stop> {
    one_or_conflict(pen, sql(REMOVE).bind(pen.tenant).bind(seq)).await
}

pub(super) async fn put_off(
    pen: &mut Pen<'_>,
    seq: i64,
    next_at: Timestamp,
    error: &str,
) -> Result<(), Stop> {
    one_or_conflict(pen, sql(PUT_OFF).bind(pen.tenant).bind(seq).bind(next_at.0).bind(error.to_owned())).await
}

fn read(row: &Columns<'_>) -> Result<DeliveryRow, StoreError> {
    Ok(DeliveryRow {
        seq: row.get("seq")?,
        thread: row.name("thread")?,
        delivery: row.uuid("delivery")?,
        url: row.text("url")?,
        body: row.json("body")?,
        attempts: row.int("attempts")?,
        next_at: row.at("next_at")?,
        error: row.get("error")?,
        created_at: row.at("created_at")?,
    })
}
