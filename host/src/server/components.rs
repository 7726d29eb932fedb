//! Components: their bytes come in, are checked and compiled, and go under their digest.

use axum::Json as Reply;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::{self, Bounds, Path};
use super::caller::Caller;
use super::problem::Problem;
use super::service::Shared;
use super::shapes::time;
use crate::model::Digest;
use crate::model::compile::NodeInfo;
use crate::store::ComponentRow;

/// An installed component, and what it says it needs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Component {
    /// `sha256:` and 64 hex digits.
    pub digest: String,
    pub bytes: u64,
    pub declares: Declares,
    pub installed_at: String,
}

/// In the component's own names; a graph maps them to its own.
#[derive(Debug, Serialize, ToSchema)]
pub struct Declares {
    pub name: String,
    pub version: String,
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    pub routes: Vec<String>,
    pub effects: Vec<String>,
}

impl From<&NodeInfo> for Declares {
    fn from(info: &NodeInfo) -> Self {
        let list = |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect();
        Self {
            name: info.name.clone(),
            version: info.version.clone(),
            reads: list(&info.reads),
            writes: list(&info.writes),
            routes: list(&info.routes),
            effects: list(&info.effects),
        }
    }
}

impl From<&ComponentRow> for Component {
    fn from(row: &ComponentRow) -> Self {
        Self {
            digest: row.digest.to_string(),
            bytes: row.size_bytes,
            declares: (&row.info).into(),
            installed_at: time(row.installed_at),
        }
    }
}

/// Install a component. The same bytes again change nothing.
#[utoipa::path(put, path = "/components", tag = "deployment",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "It is installed", body = Component)))]
pub async fn put(
    caller: Caller,
    State(service): State<Shared>,
    request: Request,
) -> Result<Reply<Component>, Problem> {
    let allowed = caller.may_deploy()?;
    let bounds = Bounds {
        bytes: ("component_bytes", allowed.host.limits().component_bytes),
        ms: ("upload_ms", service.settings.upload_ms),
    };
    let bytes = body::read(request, bounds).await?;
    let digest = Digest::of(&bytes);
    if let Some(known) = allowed.store().component_info(&allowed.tenant, digest).await? {
        return Ok(Reply((&known).into()));
    }
    allowed.service.room_for_component(&allowed.tenant).await?;
    allowed.host.install(&digest.to_string(), bytes).await?;
    let row = allowed.store().component_info(&allowed.tenant, digest).await?;
    Ok(Reply((&row.ok_or_else(|| missing(&digest.to_string()))?).into()))
}

/// What is installed.
#[utoipa::path(get, path = "/components", tag = "deployment",
    responses((status = 200, description = "By digest", body = Vec<Component>)))]
pub async fn list(caller: Caller) -> Result<Reply<Vec<Component>>, Problem> {
    let allowed = caller.may_look()?;
    let rows = allowed.store().components(&allowed.tenant).await?;
    Ok(Reply(rows.iter().map(Component::from).collect()))
}

/// What a component declares.
#[utoipa::path(get, path = "/components/{digest}", tag = "deployment", params(("digest" = String, Path)),
    responses((status = 200, description = "The component", body = Component)))]
pub async fn get(caller: Caller, Path(digest): Path<String>) -> Result<Reply<Component>, Problem> {
    let allowed = caller.may_look()?;
    let id: Digest = digest.parse().map_err(|_| missing(&digest))?;
    let row = allowed.store().component_info(&allowed.tenant, id).await?;
    Ok(Reply((&row.ok_or_else(|| missing(&digest))?).into()))
}

fn missing(digest: &str) -> Problem {
    Problem::not_found(format_args!("component {:?}", body::clip(digest)))
}
