//! Graphs under their names, and the assistants that stand for them.

use uuid::Uuid;

use super::codec::Columns;
use super::error::StoreError;
use super::reader::tenant;
use super::service::one_or_conflict;
use super::write::{Pen, Stop};
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::ids::{Digest, TenantId, Timestamp};
use crate::model::json::Json;

macro_rules! deployment {
    () => {
        concat!(
            "SELECT d.name, d.graph, d.version, d.created_at, d.updated_at FROM deployments d WHERE d.tenant = ",
            tenant!()
        )
    };
}
macro_rules! assistant {
    () => {
        concat!(
            "SELECT a.assistant, a.graph, a.name, a.description, a.config, a.context, a.metadata, a.version, \
                a.created_at, a.updated_at FROM assistants a WHERE a.tenant = ",
            tenant!()
        )
    };
}
const DEPLOYMENTS: &str = concat!(deployment!(), " ORDER BY d.name LIMIT ?2");
const DEPLOYMENT: &str = concat!(deployment!(), " AND d.name = ?2");
const ANY_DEPLOYMENT: &str = "SELECT d.name FROM deployments d LIMIT 1";
const ASSISTANT: &str = concat!(assistant!(), " AND a.assistant = ?2");
// A filter that is null lets everything pass; each of the metadata asked for must be there as it is.
macro_rules! filter {
    () => {
        " AND (?2 IS NULL OR a.graph = ?2) AND (?3 IS NULL OR a.name = ?3) \
          AND NOT EXISTS (SELECT 1 FROM json_each(?4) f WHERE NOT EXISTS ( \
              SELECT 1 FROM json_each(a.metadata) m WHERE m.key = f.key AND m.type = f.type AND m.value IS f.value))"
    };
}
const SEARCH: &str =
    concat!(assistant!(), filter!(), " ORDER BY a.created_at, a.assistant LIMIT ?5 OFFSET ?6");
const COUNT: &str = concat!("SELECT count(*) AS n FROM assistants a WHERE a.tenant = ", tenant!(), filter!());
const DEPLOY: &str = "INSERT INTO deployments (tenant, name, graph, version, created_at, updated_at) \
    VALUES (?1, ?2, ?3, 1, ?4, ?4) ON CONFLICT (tenant, name) DO UPDATE SET graph = excluded.graph, \
        version = version + (graph <> excluded.graph), updated_at = excluded.updated_at";
const INSERT: &str = "INSERT INTO assistants (tenant, assistant, graph, name, description, config, context, metadata, \
        version, created_at, updated_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
const UPDATE: &str = "UPDATE assistants SET graph = ?3, name = ?4, description = ?5, config = ?6, context = ?7, \
        metadata = ?8, version = ?9, created_at = ?10, updated_at = ?11 WHERE tenant = ?1 AND assistant = ?2";
const REMOVE: &str = "DELETE FROM assistants WHERE tenant = ?1 AND assistant = ?2";

/// Which graph a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentRow {
    pub name: String,
    pub graph: Digest,
    /// How often it stood for another one, and once.
    pub version: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssistantRow {
    pub assistant: Uuid,
    /// The name that its graph is deployed under.
    pub graph: String,
    pub name: String,
    pub description: Option<String>,
    pub config: Json,
    pub context: Json,
    pub metadata: Json,
    pub version: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What becomes of a row that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Or {
    Conflict,
    Leave,
}

#[derive(Clone, Debug)]
pub struct AssistantFilter {
    pub graph: Option<String>,
    pub name: Option<String>,
    /// An object; each member must be in the assistant's.
    pub metadata: Json,
    pub limit: u32,
    pub offset: u32,
}

impl Store {
    pub async fn deployments(&self, tenant: &TenantId) -> Result<Vec<DeploymentRow>, StoreError> {
        let sql = sql(DEPLOYMENTS).bind(tenant.as_str()).bind(PAGE_ROWS_MAX);
        self.view().await?.list("deployments", sql, read_deployment).await
    }

    pub async fn deployment(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<DeploymentRow>, StoreError> {
        let sql = sql(DEPLOYMENT).bind(tenant.as_str()).bind(name.to_owned());
        self.view().await?.find("deployments", sql, read_deployment).await
    }

    /// Whether anybody has deployed anything.
    pub async fn has_deployments(&self) -> Result<bool, StoreError> {
        Ok(self.view().await?.find("deployments", sql(ANY_DEPLOYMENT), |_| Ok(())).await?.is_some())
    }

    pub async fn assistant(&self, tenant: &TenantId, id: Uuid) -> Result<Option<AssistantRow>, StoreError> {
        let sql = sql(ASSISTANT).bind(tenant.as_str()).bind(id.as_bytes().to_vec());
        self.view().await?.find("assistants", sql, read).await
    }

    /// A page, the oldest first, and how many there are in all.
    pub async fn assistants(
        &self,
        tenant: &TenantId,
        filter: &AssistantFilter,
    ) -> Result<(Vec<AssistantRow>, u64), StoreError> {
        let filtered = |statement| {
            sql(statement)
                .bind(tenant.as_str().to_owned())
                .bind(filter.graph.clone())
                .bind(filter.name.clone())
                .bind(filter.metadata.as_str().to_owned())
        };
        let page = filtered(SEARCH).bind(filter.limit.min(PAGE_ROWS_MAX)).bind(filter.offset);
        let mut view = self.snapshot().await?;
        let rows = view.scan("assistants", page, read).await?;
        let count = view.scan("assistants", filtered(COUNT), |row| row.int("n")).await?.pop();
        Ok((rows, count.unwrap_or(0)))
    }
}

pub(super) async fn deploy(pen: &mut Pen<'_>, row: &DeploymentRow) -> Result<(), Stop> {
    let sql = sql(DEPLOY)
        .bind(pen.tenant)
        .bind(row.name.as_str())
        .bind(row.graph.0.as_slice())
        .bind(row.updated_at.0);
    pen.one_row(sql).await
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &AssistantRow, or: Or) -> Result<(), Stop> {
    match (pen.change(bound(INSERT, pen.tenant, row)).await?, or) {
        (0, Or::Conflict) => Err(Stop::Conflict),
        _ => Ok(()),
    }
}

pub(super) async fn update(pen: &mut Pen<'_>, row: &AssistantRow) -> Result<(), Stop> {
    one_or_conflict(pen, bound(UPDATE, pen.tenant, row)).await
}

pub(super) async fn remove(pen: &mut Pen<'_>, assistant: Uuid) -> Result<(), Stop> {
    one_or_conflict(pen, sql(REMOVE).bind(pen.tenant).bind(assistant.as_bytes().to_vec())).await
}

fn bound(statement: &'static str, tenant: i64, row: &AssistantRow) -> super::reader::Sql {
    sql(statement)
        .bind(tenant)
        .bind(row.assistant.as_bytes().to_vec())
        .bind(row.graph.clone())
        .bind(row.name.clone())
        .bind(row.description.clone())
        .bind(row.config.as_str().to_owned())
        .bind(row.context.as_str().to_owned())
        .bind(row.metadata.as_str().to_owned())
        .bind(row.version)
        .bind(row.created_at.0)
        .bind(row.updated_at.0)
}

fn read_deployment(row: &Columns<'_>) -> Result<DeploymentRow, StoreError> {
    Ok(DeploymentRow {
        name: row.text("name")?,
        graph: row.digest("graph")?,
        version: row.int("version")?,
        created_at: row.at("created_at")?,
        updated_at: row.at("updated_at")?,
    })
}

fn read(row: &Columns<'_>) -> Result<AssistantRow, StoreError> {
    Ok(AssistantRow {
        assistant: row.uuid("assistant")?,
        graph: row.text("graph")?,
        name: row.text("name")?,
        description: row.get("description")?,
        config: row.json("config")?,
        context: row.json("context")?,
        metadata: row.json("metadata")?,
        version: row.int("version")?,
        created_at: row.at("created_at")?,
        updated_at: row.at("updated_at")?,
    })
}
