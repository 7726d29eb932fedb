//! Keys: who may call the service, and for what.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::codec::{Columns, encode};
use super::error::StoreError;
use super::reader::tenant;
use super::service::one_or_conflict;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::ids::{TenantId, Timestamp};

macro_rules! columns {
    () => {
        "k.key, k.hash, k.name, k.scopes, k.only_for, k.created_at, k.expires_at, k.revoked_at"
    };
}
const BY_ID: &str = concat!(
    "SELECT ",
    columns!(),
    ", n.name AS tenant FROM keys k JOIN tenants n ON n.tenant = k.tenant WHERE k.key = ?1"
);
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM keys k WHERE k.tenant = ",
    tenant!(),
    " ORDER BY k.created_at, k.key LIMIT ?2"
);
const INSERT: &str = "INSERT INTO keys (tenant, key, hash, name, scopes, only_for, created_at, expires_at, revoked_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const REVOKE: &str = "UPDATE keys SET revoked_at = ?3 WHERE tenant = ?1 AND key = ?2 AND revoked_at IS NULL";

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Tenants, keys, quotas.
    Admin,
    /// Components, graphs, assistants.
    Deploy,
    /// Threads and runs, and all that they show.
    Run,
    /// What waits for an answer, and answering it.
    Answer,
}

/// Whose questions a key may answer; an empty list names all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OnlyFor {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub key: Uuid,
    pub hash: [u8; 32],
    pub name: String,
    pub scopes: Vec<Scope>,
    pub only_for: OnlyFor,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

impl Store {
    /// A key by its public half, and whose it is. What it may do is for the caller to check.
    pub async fn key(&self, key: Uuid) -> Result<Option<(TenantId, KeyRow)>, StoreError> {
        let sql = sql(BY_ID).bind(key.as_bytes().to_vec());
        self.view().await?.find("keys", sql, |row| Ok((row.name("tenant")?, read(row)?))).await
    }

    /// A tenant's keys, the oldest first.
    pub async fn keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>, StoreError> {
        let sql = sql(LIST).bind(tenant.as_str()).bind(PAGE_ROWS_MAX);
        self.view().await?.list("keys", sql, read).await
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &KeyRow) -> Result<(), Stop> {
    let sql = sql(INSERT)
        .bind(pen.tenant)
        .bind(row.key.as_bytes().to_vec())
        .bind(row.hash.to_vec())
        .bind(row.name.as_str())
        .bind(encode(&row.scopes)?)
        .bind(encode(&row.only_for)?)
        .bind(row.created_at.0)
        .bind(row.expires_at.map(|at| at.0))
        .bind(row.revoked_at.map(|at| at.0));
    pen.one_row(sql).await
}

pub(super) async fn revoke(pen: &mut Pen<'_>, key: Uuid, at: Timestamp) -> Result<(), Stop> {
    one_or_conflict(pen, sql(REVOKE).bind(pen.tenant).bind(key.as_bytes().to_vec()).bind(at.0)).await
}

fn read(row: &Columns<'_>) -> Result<KeyRow, StoreError> {
    Ok(KeyRow {
        key: row.uuid("key")?,
        hash: row.bytes("hash")?,
        name: row.text("name")?,
        scopes: row.decoded("scopes")?,
        only_for: row.decoded("only_for")?,
        created_at: row.at("created_at")?,
        expires_at: row.at_or_null("expires_at")?,
        revoked_at: row.at_or_null("revoked_at")?,
    })
}
