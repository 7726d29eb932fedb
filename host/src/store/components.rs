//! Components and graphs: content under its digest. What is there once never changes, so storing it
//! again does nothing, and what is read is checked against its digest before anybody gets it.

use std::sync::Arc;

use super::codec::{Columns, encode};
use super::error::StoreError;
use super::reader::tenant;
use super::write::{Pen, Stop};
use super::writer::Content;
use super::{Store, sql};
use crate::model::compile::{CompiledGraph, NodeInfo};
use crate::model::ids::{Digest, TenantId, Timestamp};

pub(super) const BYTES: &str =
    concat!("SELECT c.digest, c.bytes FROM components c WHERE c.tenant = ", tenant!(), " AND c.digest = ?2");
pub(super) const INFO: &str = concat!(
    "SELECT c.digest, c.info, c.size, c.installed_at FROM components c \
     WHERE c.tenant = ",
    tenant!(),
    " AND c.digest = ?2"
);
pub(super) const LIST: &str = concat!(
    "SELECT c.digest, c.info, c.size, c.installed_at FROM components c \
     WHERE c.tenant = ",
    tenant!(),
    " ORDER BY c.digest"
);
pub(super) const GRAPH: &str =
    concat!("SELECT g.digest, g.graph FROM graphs g WHERE g.tenant = ", tenant!(), " AND g.digest = ?2");
const INSERT: &str = "INSERT INTO components (tenant, digest, info, size, installed_at, bytes) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
const INSERT_GRAPH: &str = "INSERT INTO graphs (tenant, digest, name, created_at, graph) \
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";

/// An installed component without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentRow {
    pub digest: Digest,
    pub info: NodeInfo,
    pub size_bytes: u64,
    pub installed_at: Timestamp,
}

impl Store {
    /// Bytes of another digest are refused.
    pub async fn put_component(
        &self,
        tenant: &TenantId,
        digest: Digest,
        bytes: Vec<u8>,
        info: &NodeInfo,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if self.component_info(tenant, digest).await?.is_some() {
            return Ok(());
        }
        let (bytes, right) = digest_of(bytes).await;
        if right != digest {
            return Err(StoreError::rejected(format!("a component named {digest} whose digest is {right}")));
        }
        let content = Content::Component { digest, bytes: Arc::new(bytes), info: encode(info)?, at };
        self.put(tenant, content).await
    }

    /// A component's bytes, which have this digest.
    pub async fn component(&self, tenant: &TenantId, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = sql(BYTES).bind(tenant.as_str()).bind(digest.0.as_slice());
        let mut view = self.view().await?;
        let Some(bytes) = view.find("components", sql, |row| row.get::<Vec<u8>>("bytes")).await? else {
            return Ok(None);
        };
        let (bytes, right) = digest_of(bytes).await;
        if right == digest {
            return Ok(Some(bytes));
        }
        Err(StoreError::Corrupt {
            file: view.file().to_owned(),
            table: "components",
            row: digest.to_string(),
            what: format!("its bytes have the digest {right}"),
        })
    }

    pub async fn component_info(
        &self,
        tenant: &TenantId,
        digest: Digest,
    ) -> Result<Option<ComponentRow>, StoreError> {
        let sql = sql(INFO).bind(tenant.as_str()).bind(digest.0.as_slice());
        self.view().await?.find("components", sql, read).await
    }

    /// What is installed, by digest.
    pub async fn components(&self, tenant: &TenantId) -> Result<Vec<ComponentRow>, StoreError> {
        let sql = sql(LIST).bind(tenant.as_str());
        self.view().await?.list("components", sql, read).await
    }

    pub async fn put_graph(
        &self,
        tenant: &TenantId,
        graph: &CompiledGraph,
        at: Timestamp,
    ) -> Result<Digest, StoreError> {
        let text = graph.to_json();
        let digest = Digest::of(text.as_str().as_bytes());
        let stored = sql(GRAPH).bind(tenant.as_str()).bind(digest.0.as_slice());
        if self.view().await?.find("graphs", stored, |_| Ok(())).await?.is_none() {
            let content = Content::Graph { digest, name: graph.name.clone(), text, at };
            self.put(tenant, content).await?;
        }
        Ok(digest)
    }

    /// A graph that has this digest.
    pub async fn graph(
        &self,
        tenant: &TenantId,
        digest: Digest,
    ) -> Result<Option<CompiledGraph>, StoreError> {
        let sql = sql(GRAPH).bind(tenant.as_str()).bind(digest.0.as_slice());
        let read = |row: &Columns<'_>| {
            let text = row.text("graph")?;
            let right = Digest::of(text.as_bytes());
            if right != digest {
                return Err(row.wrong("graph", format!("its text has the digest {right}")));
            }
            CompiledGraph::from_json(&text).map_err(|e| row.wrong("graph", e))
        };
        self.view().await?.find("graphs", sql, read).await
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, content: &Content) -> Result<(), Stop> {
    let sql = match content {
        Content::Component { digest, bytes, info, at } => sql(INSERT)
            .bind(pen.tenant)
            .bind(digest.0.as_slice())
            .bind(info.as_str())
            .bind(i64::try_from(bytes.len()).unwrap_or(i64::MAX))
            .bind(at.0)
            .bind(bytes.clone()),
        Content::Graph { digest, name, text, at } => sql(INSERT_GRAPH)
            .bind(pen.tenant)
            .bind(digest.0.as_slice())
            .bind(name.as_str())
            .bind(at.0)
            .bind(text.as_str()),
    };
    pen.change(sql).await.map(drop)
}

fn read(row: &Columns<'_>) -> Result<ComponentRow, StoreError> {
    Ok(ComponentRow {
        digest: row.digest("digest")?,
        info: row.decoded("info")?,
        size_bytes: row.int("size")?,
        installed_at: row.at("installed_at")?,
    })
}

/// A component can be large: it is hashed where it keeps nobody waiting.
async fn digest_of(bytes: Vec<u8>) -> (Vec<u8>, Digest) {
    let hashed = tokio::task::spawn_blocking(move || {
        let digest = Digest::of(&bytes);
        (bytes, digest)
    });
    // Hashing does not panic, and nobody aborts it; the runtime's end is the only other way out.
    hashed.await.unwrap_or_else(|_| (Vec::new(), Digest([0; 32])))
}
