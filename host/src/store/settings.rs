//! What an operator sets for one tenant, what the tenant uses, and which tenants there are.

use super::codec::Columns;
use super::error::StoreError;
use super::reader::tenant;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::ids::TenantId;
use crate::model::json::Json;

const OF: &str = concat!(
    "SELECT s.tenant, s.quotas, s.webhook, s.webhook_secret FROM tenant_settings s WHERE s.tenant = ",
    tenant!()
);
const PUT: &str = "INSERT INTO tenant_settings (tenant, quotas, webhook, webhook_secret) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (tenant) DO UPDATE SET quotas = excluded.quotas, webhook = excluded.webhook, \
        webhook_secret = excluded.webhook_secret";
const TENANTS: &str = "SELECT n.name FROM tenants n ORDER BY n.name LIMIT ?1";
const USAGE: &str = concat!(
    "SELECT t.tenant, \
        (SELECT count(*) FROM threads h WHERE h.tenant = t.tenant) \
            + (SELECT count(*) FROM thread_notes w WHERE w.tenant = t.tenant AND NOT EXISTS \
                (SELECT 1 FROM threads h WHERE h.tenant = t.tenant AND h.name = w.thread)) AS threads, \
        (SELECT count(*) FROM components c WHERE c.tenant = t.tenant) AS components, \
        (SELECT coalesce(sum(c.size), 0) FROM components c WHERE c.tenant = t.tenant) AS component_bytes, \
        (SELECT coalesce(sum(octet_length(v.value)), 0) FROM threads h \
            JOIN channel_values v ON v.thread = h.thread WHERE h.tenant = t.tenant) AS state_bytes, \
        (SELECT coalesce(sum(octet_length(j.call) + coalesce(octet_length(j.reply), 0)), 0) FROM journal j \
            WHERE j.tenant = t.tenant) \
            + (SELECT coalesce(sum(octet_length(i.payload) + coalesce(octet_length(i.answer), 0)), 0) \
                FROM interrupts i WHERE i.tenant = t.tenant) AS journal_bytes, \
        (SELECT count(*) FROM runs r WHERE r.tenant = t.tenant) AS runs, \
        (SELECT count(*) FROM invocations i WHERE i.tenant = t.tenant) AS invocations, \
        (SELECT coalesce(sum(h.pending), 0) FROM threads h WHERE h.tenant = t.tenant) AS pending \
     FROM (SELECT ",
    tenant!(),
    " AS tenant) t"
);
const HAS_TENANT: &str = "SELECT n.tenant FROM tenants n WHERE n.name = ?1";
const THREADS: &str = concat!("SELECT count(*) AS n FROM threads h WHERE h.tenant = ", tenant!());
const NAMED: &str = concat!(
    "SELECT (SELECT count(*) FROM threads h WHERE h.tenant = t.tenant) \
        + (SELECT count(*) FROM thread_notes w WHERE w.tenant = t.tenant AND NOT EXISTS \
            (SELECT 1 FROM threads h WHERE h.tenant = t.tenant AND h.name = w.thread)) AS n \
     FROM (SELECT ",
    tenant!(),
    " AS tenant) t"
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsRow {
    pub quotas: Json,
    pub webhook: Option<String>,
    pub webhook_secret: [u8; 32],
}

/// What a tenant has in the database now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRow {
    pub threads: u64,
    pub components: u64,
    pub component_bytes: u64,
    pub state_bytes: u64,
    /// What tasks asked and were told.
    pub journal_bytes: u64,
    pub runs: u64,
    pub invocations: u64,
    pub pending: u64,
}

impl UsageRow {
    /// What it keeps in all.
    pub fn bytes(&self) -> u64 {
        self.component_bytes.saturating_add(self.state_bytes).saturating_add(self.journal_bytes)
    }
}

impl Store {
    pub async fn settings(&self, tenant: &TenantId) -> Result<Option<SettingsRow>, StoreError> {
        let sql = sql(OF).bind(tenant.as_str());
        self.view().await?.find("tenant_settings", sql, read).await
    }

    /// Everybody that something was ever written for.
    pub async fn tenants(&self) -> Result<Vec<TenantId>, StoreError> {
        self.view().await?.list("tenants", sql(TENANTS).bind(PAGE_ROWS_MAX), |row| row.name("name")).await
    }

    pub async fn has_tenant(&self, tenant: &TenantId) -> Result<bool, StoreError> {
        let sql = sql(HAS_TENANT).bind(tenant.as_str());
        Ok(self.view().await?.find("tenants", sql, |_| Ok(())).await?.is_some())
    }

    /// Counted when it is asked for: its cost grows with what the tenant has.
    pub async fn usage(&self, tenant: &TenantId) -> Result<UsageRow, StoreError> {
        let sql = sql(USAGE).bind(tenant.as_str());
        let found = self.view().await?.scan("tenants", sql, read_usage).await?.pop();
        Ok(found.unwrap_or_default())
    }

    /// How many threads a tenant has, those included that did not run yet.
    pub async fn named_thread_count(&self, tenant: &TenantId) -> Result<u64, StoreError> {
        let sql = sql(NAMED).bind(tenant.as_str());
        Ok(self.view().await?.scan("tenants", sql, |row| row.int("n")).await?.pop().unwrap_or(0))
    }

    /// How many threads a tenant has that ran.
    pub async fn thread_count(&self, tenant: &TenantId) -> Result<u64, StoreError> {
        let sql = sql(THREADS).bind(tenant.as_str());
        Ok(self.view().await?.scan("threads", sql, |row| row.int("n")).await?.pop().unwrap_or(0))
    }
}

pub(super) async fn put(pen: &mut Pen<'_>, row: &SettingsRow) -> Result<(), Stop> {
    let sql = sql(PUT)
        .bind(pen.tenant)
        .bind(row.quotas.as_str())
        .bind(row.webhook.as_deref())
        .bind(row.webhook_secret.to_vec());
    pen.one_row(sql).await
}

fn read(row: &Columns<'_>) -> Result<SettingsRow, StoreError> {
    Ok(SettingsRow {
        quotas: row.json("quotas")?,
        webhook: row.get("webhook")?,
        webhook_secret: row.bytes("webhook_secret")?,
    })
}

fn read_usage(row: &Columns<'_>) -> Result<UsageRow, StoreError> {
    Ok(UsageRow {
        threads: row.int("threads")?,
        components: row.int("components")?,
        component_bytes: row.int("component_bytes")?,
        state_bytes: row.int("state_bytes")?,
        journal_bytes: row.int("journal_bytes")?,
        runs: row.int("runs")?,
        invocations: row.int("invocations")?,
        pending: row.int("pending")?,
    })
}
