//! Graphs: compiled, kept under their digest, and deployed under a name that assistants stand for.

use axum::Json as Reply;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::assistants;
use super::body::{self, Body, Path};
use super::caller::{Allowed, Caller};
use super::problem::Problem;
use super::shapes::time;
use crate::model::{Digest, GraphSpec};
use crate::store::{DeploymentRow, ServiceWrite};

/// A graph: as the table of a graph file (JSON), or the text of one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphPut {
    /// The text of a graph file (TOML).
    pub toml: Option<String>,
    /// The same as a value. Components are named by their digests; a subgraph by its digest or its name.
    #[schema(value_type = Option<Object>)]
    pub graph: Option<Value>,
}

/// A graph under its name.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deployment {
    pub name: String,
    pub digest: String,
    /// Grows whenever the name stands for another graph.
    pub version: u32,
    pub assistant_id: String,
    pub created_at: String,
    pub updated_at: String,
    /// What its components declare and it does not grant, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
}

impl Deployment {
    fn of(row: &DeploymentRow, withheld: &[String]) -> Self {
        Self {
            name: row.name.clone(),
            digest: row.graph.to_string(),
            version: row.version,
            assistant_id: assistants::default_id(&row.name).to_string(),
            created_at: time(row.created_at),
            updated_at: time(row.updated_at),
            withheld: withheld.to_vec(),
        }
    }
}

/// Deploy a graph under a name. Runs that are on their way stay with the graph that they began with.
#[utoipa::path(put, path = "/graphs/{name}", tag = "deployment", params(("name" = String, Path)),
    request_body = GraphPut, responses((status = 200, description = "It is deployed", body = Deployment)))]
pub async fn put(
    caller: Caller,
    Path(name): Path<String>,
    Body(graph): Body<GraphPut>,
) -> Result<Reply<Deployment>, Problem> {
    let allowed = caller.may_deploy()?;
    let name = crate::model::NodeId::parse(name).map_err(|_| {
        Problem::invalid("a graph's name has 1 to 64 letters, digits, '_', '-' or '.', and is not \"end\"")
    })?;
    if name.as_str().parse::<uuid::Uuid>().is_ok() {
        return Err(Problem::invalid("a graph's name is no UUID: those are assistants'"));
    }
    let mut spec = match (graph.toml, graph.graph) {
        (Some(toml), None) => GraphSpec::from_toml(&toml).map_err(Problem::invalid)?,
        (None, Some(value)) => {
            serde_json::from_value(value).map_err(|error| Problem::invalid(format!("graph: {error}")))?
        }
        _ => return Err(Problem::invalid("the body has either toml or graph")),
    };
    // Nothing in a request names a file of this machine.
    for (node, of) in &mut spec.nodes {
        if let Some(component) = &of.component
            && component.parse::<Digest>().is_err()
        {
            let what = "is named by its digest, sha256:…; PUT /components says which that is";
            return Err(Problem::invalid(format!("nodes.{node}.component {what}")));
        }
        if let Some(subgraph) = &of.graph {
            of.graph = Some(digest_of(&allowed, subgraph).await?.to_string());
        }
    }
    let compiled = allowed.host.compile(&spec).await?;
    let now = allowed.host.clock().now();
    let row = DeploymentRow {
        name: name.to_string(),
        graph: compiled.digest(),
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let own = assistants::default_row(name.as_str(), now);
    let writes = vec![ServiceWrite::Deploy(row), ServiceWrite::EnsureAssistant(own)];
    let written = allowed.store().serve(&allowed.tenant, writes).await?;
    debug_assert!(written.is_ok(), "a name stands for whatever it is said to");
    let row = deployed(&allowed, name.as_str()).await?;
    Ok(Reply(Deployment::of(&row, compiled.withheld())))
}

async fn deployed(allowed: &Allowed, name: &str) -> Result<DeploymentRow, Problem> {
    let row = allowed.store().deployment(&allowed.tenant, name).await?;
    row.ok_or_else(|| Problem::not_found(format_args!("graph {:?}", body::clip(name))))
}

/// A graph's digest, by itself or by the name that it is deployed under.
pub async fn digest_of(allowed: &Allowed, named: &str) -> Result<Digest, Problem> {
    match named.parse::<Digest>() {
        Ok(digest) => Ok(digest),
        Err(_) => Ok(deployed(allowed, named).await?.graph),
    }
}

/// What is deployed.
#[utoipa::path(get, path = "/graphs", tag = "deployment",
    responses((status = 200, description = "By name", body = Vec<Deployment>)))]
pub async fn list(caller: Caller) -> Result<Reply<Vec<Deployment>>, Problem> {
    let allowed = caller.may_look()?;
    let rows = allowed.store().deployments(&allowed.tenant).await?;
    Ok(Reply(rows.iter().map(|row| Deployment::of(row, &[])).collect()))
}

/// One deployed graph.
#[utoipa::path(get, path = "/graphs/{name}", tag = "deployment", params(("name" = String, Path)),
    responses((status = 200, description = "The graph", body = Deployment)))]
pub async fn get(caller: Caller, Path(name): Path<String>) -> Result<Reply<Deployment>, Problem> {
    let allowed = caller.may_look()?;
    Ok(Reply(Deployment::of(&deployed(&allowed, &name).await?, &[])))
}
