//! Assistants: deployed graphs, as the field's clients name what they run. Each graph has one by itself.

use axum::Json as Reply;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::body::{self, Body, Path, Query};
use super::caller::{Allowed, Caller};
use super::problem::Problem;
use super::shapes::{Assistant, select};
use super::state::truth;
use super::threads::IfExists;
use crate::model::channel::Reducer;
use crate::model::compile::{CompiledGraph, Work};
use crate::model::{Json, Kind, Timestamp};
use crate::store::{AssistantFilter, AssistantRow, ServiceWrite};

/// Where the ids of graphs' own assistants come from.
const DEFAULTS: Uuid = Uuid::from_u128(0x6ba7_b821_9dad_11d1_80b4_00c0_4fd4_30c8);

pub fn default_id(graph: &str) -> Uuid {
    Uuid::new_v5(&DEFAULTS, graph.as_bytes())
}

/// A graph's own assistant.
pub fn default_row(graph: &str, now: Timestamp) -> AssistantRow {
    AssistantRow {
        assistant: default_id(graph),
        graph: graph.to_owned(),
        name: graph.to_owned(),
        description: None,
        config: Json::from_canonical("{}"),
        context: Json::from_canonical("{}"),
        metadata: Json::from_canonical(r#"{"created_by":"system"}"#),
        version: 1,
        created_at: now,
        updated_at: now,
    }
}

/// An assistant by its id, or by the name of its graph.
pub async fn named(allowed: &Allowed, name: &str) -> Result<AssistantRow, Problem> {
    let id = name.parse().unwrap_or_else(|_| default_id(name));
    let found = allowed.store().assistant(&allowed.tenant, id).await?;
    found.ok_or_else(|| {
        let what =
            "deploy the graph (PUT /graphs/{name}), or search for what there is (POST /assistants/search)";
        Problem::not_found(format_args!("assistant or graph {:?}; {what}", body::clip(name)))
    })
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct AssistantSearch {
    pub graph_id: Option<String>,
    pub name: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    #[schema(minimum = 0, maximum = 4294967295_i64)]
    pub offset: Option<i64>,
    pub select: Option<Vec<String>>,
}

/// The assistants there are, the oldest first.
#[utoipa::path(post, path = "/assistants/search", tag = "assistants", request_body = AssistantSearch,
    responses((status = 200, description = "A page of them, or of the fields that are asked for", body = Vec<Object>,
        headers(("X-Pagination-Total" = u64, description = "How many there are in all")))))]
pub async fn search(caller: Caller, Body(search): Body<AssistantSearch>) -> Result<Response, Problem> {
    let allowed = caller.may_look()?;
    let (limit, offset) = body::page(search.limit, search.offset)?;
    let metadata = body::object(search.metadata, "metadata")?;
    let filter = AssistantFilter { graph: search.graph_id, name: search.name, metadata, limit, offset };
    let (rows, total) = allowed.store().assistants(&allowed.tenant, &filter).await?;
    let page: Vec<Value> =
        rows.iter().map(|row| select(&Assistant::of(row), search.select.as_deref())).collect();
    let next = u64::from(offset) + page.len() as u64;
    let mut response = Reply(page).into_response();
    paged(&mut response, total, next);
    Ok(response)
}

/// How many there are in all, and where the next page begins.
pub fn paged(response: &mut Response, total: u64, next: u64) {
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-pagination-total"), HeaderValue::from(total));
    if next < total {
        headers.insert(HeaderName::from_static("x-pagination-next"), HeaderValue::from(next));
    }
}

/// How many assistants there are.
#[utoipa::path(post, path = "/assistants/count", tag = "assistants", request_body = AssistantSearch,
    responses((status = 200, description = "How many", body = u64, content_type = "application/json")))]
pub async fn count(caller: Caller, Body(search): Body<AssistantSearch>) -> Result<Reply<u64>, Problem> {
    let allowed = caller.may_look()?;
    let metadata = body::object(search.metadata, "metadata")?;
    let filter = AssistantFilter { graph: search.graph_id, name: search.name, metadata, limit: 1, offset: 0 };
    Ok(Reply(allowed.store().assistants(&allowed.tenant, &filter).await?.1))
}

/// What a client says about an assistant.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct AssistantWords {
    pub name: Option<String>,
    pub description: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub config: Option<Map<String, Value>>,
    #[schema(value_type = Option<Object>)]
    pub context: Option<Map<String, Value>>,
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

impl AssistantWords {
    /// Puts what is said over what is there.
    fn put(self, row: &mut AssistantRow) -> Result<(), Problem> {
        if let Some(name) = self.name {
            row.name = line(name, "name")?;
        }
        if let Some(text) = self.description {
            row.description = Some(text.chars().take(4_000).collect());
        }
        for (new, old) in [(self.config, &mut row.config), (self.context, &mut row.context)] {
            if let Some(new) = new {
                *old = body::object(Some(new), "config and context")?;
            }
        }
        if let Some(new) = self.metadata {
            row.metadata = merged(&row.metadata, new)?;
        }
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AssistantCreate {
    /// The name that a graph is deployed under.
    pub graph_id: String,
    pub assistant_id: Option<Uuid>,
    #[serde(default)]
    pub if_exists: IfExists,
    #[serde(flatten)]
    pub words: AssistantWords,
}

/// Another assistant for a graph.
#[utoipa::path(post, path = "/assistants", tag = "assistants", request_body = AssistantCreate,
    responses((status = 200, description = "It is there", body = Assistant)))]
pub async fn create(
    caller: Caller,
    Body(create): Body<AssistantCreate>,
) -> Result<Reply<Assistant>, Problem> {
    let allowed = caller.may_deploy()?;
    let graph = create.graph_id;
    if allowed.store().deployment(&allowed.tenant, &graph).await?.is_none() {
        return Err(Problem::not_found(format_args!("graph {:?}", body::clip(&graph))));
    }
    let now = allowed.host.clock().now();
    let id = create.assistant_id.unwrap_or_else(|| allowed.fresh_id());
    let mut row =
        AssistantRow { assistant: id, metadata: Json::from_canonical("{}"), ..default_row(&graph, now) };
    create.words.put(&mut row)?;
    let write = ServiceWrite::NewAssistant(row.clone());
    match (allowed.store().serve(&allowed.tenant, vec![write]).await?, create.if_exists) {
        (Ok(()), _) => Ok(Reply(Assistant::of(&row))),
        (Err(_), IfExists::Raise) => Err(Problem::exists(format_args!("an assistant {id}"))),
        (Err(_), IfExists::DoNothing) => Ok(Reply(Assistant::of(&named(&allowed, &id.to_string()).await?))),
    }
}

/// A name as it can be shown in a line.
pub fn line(text: String, what: &str) -> Result<String, Problem> {
    match crate::model::ids::is_line(&text) {
        true => Ok(text),
        false => Err(Problem::invalid(format!("{what} has 1 to 255 bytes without control characters"))),
    }
}

/// One assistant, by its id or its graph's name.
#[utoipa::path(get, path = "/assistants/{assistant_id}", tag = "assistants",
    params(("assistant_id" = String, Path)),
    responses((status = 200, description = "The assistant", body = Assistant)))]
pub async fn get(caller: Caller, Path(id): Path<String>) -> Result<Reply<Assistant>, Problem> {
    let allowed = caller.may_look()?;
    Ok(Reply(Assistant::of(&named(&allowed, &id).await?)))
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct AssistantUpdate {
    pub graph_id: Option<String>,
    #[serde(flatten)]
    pub words: AssistantWords,
}

/// Change an assistant.
#[utoipa::path(patch, path = "/assistants/{assistant_id}", tag = "assistants",
    params(("assistant_id" = String, Path)), request_body = AssistantUpdate,
    responses((status = 200, description = "It is changed", body = Assistant)))]
pub async fn update(
    caller: Caller,
    Path(id): Path<String>,
    Body(update): Body<AssistantUpdate>,
) -> Result<Reply<Assistant>, Problem> {
    let allowed = caller.may_deploy()?;
    let mut row = named(&allowed, &id).await?;
    if let Some(graph) = update.graph_id {
        if allowed.store().deployment(&allowed.tenant, &graph).await?.is_none() {
            return Err(Problem::not_found(format_args!("graph {:?}", body::clip(&graph))));
        }
        row.graph = graph;
    }
    update.words.put(&mut row)?;
    row.version += 1;
    row.updated_at = allowed.host.clock().now();
    match allowed.store().serve(&allowed.tenant, vec![ServiceWrite::Assistant(row.clone())]).await? {
        Ok(()) => Ok(Reply(Assistant::of(&row))),
        Err(_) => Err(Problem::not_found(format_args!("assistant {}", row.assistant))),
    }
}

/// New members over old ones.
pub fn merged(old: &Json, new: Map<String, Value>) -> Result<Json, Problem> {
    let mut all = match old.value() {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    all.extend(new);
    body::object(Some(all), "metadata")
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct RemoveQuery {
    /// Refused where it is true.
    #[serde(deserialize_with = "truth")]
    pub delete_threads: bool,
}

/// Take an assistant away. Its graph stays, and what runs goes on.
#[utoipa::path(delete, path = "/assistants/{assistant_id}", tag = "assistants",
    params(("assistant_id" = String, Path), RemoveQuery),
    responses((status = 204, description = "It is gone")))]
pub async fn remove(
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<RemoveQuery>,
) -> Result<StatusCode, Problem> {
    let allowed = caller.may_deploy()?;
    if query.delete_threads {
        return Err(Problem::invalid(
            "delete_threads: threads are deleted by their ids (POST /threads/prune)",
        ));
    }
    let row = named(&allowed, &id).await?;
    if row.assistant == default_id(&row.graph) {
        return Err(Problem::conflict(Kind::Denied, "a graph's own assistant stays with it"));
    }
    let write = ServiceWrite::RemoveAssistant { assistant: row.assistant };
    match allowed.store().serve(&allowed.tenant, vec![write]).await? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => Err(Problem::not_found(format_args!("assistant {}", row.assistant))),
    }
}

/// What an assistant's graph takes and gives.
#[utoipa::path(get, path = "/assistants/{assistant_id}/schemas", tag = "assistants",
    params(("assistant_id" = String, Path)),
    responses((status = 200, description = "JSON Schemas", body = Object)))]
pub async fn schemas(caller: Caller, Path(id): Path<String>) -> Result<Reply<Value>, Problem> {
    let allowed = caller.may_look()?;
    let (row, graph) = graph_of(&allowed, &id).await?;
    let state = state_schema(&graph);
    Ok(Reply(json!({
        "graph_id": row.graph,
        "input_schema": state,
        "output_schema": state,
        "state_schema": state,
        "config_schema": { "type": "object" },
        "context_schema": { "type": "object" },
    })))
}

fn state_schema(graph: &CompiledGraph) -> Value {
    let one = |reducer: Reducer| match reducer {
        Reducer::Append => json!({ "type": "array" }),
        Reducer::Merge => json!({ "type": "object" }),
        Reducer::Sum | Reducer::Max | Reducer::Min => json!({ "type": "number" }),
        Reducer::Replace => json!({}),
    };
    let properties: Map<String, Value> =
        graph.channels.iter().map(|(name, reducer)| (name.to_string(), one(*reducer))).collect();
    json!({ "title": graph.name, "type": "object", "properties": properties, "additionalProperties": false })
}

/// An assistant's graph, to be drawn.
#[utoipa::path(get, path = "/assistants/{assistant_id}/graph", tag = "assistants",
    params(("assistant_id" = String, Path),
        ("xray" = Option<String>, Query, description = "Taken as clients send it: subgraphs are drawn as one node")),
    responses((status = 200, description = "Nodes and edges", body = Object)))]
pub async fn graph(caller: Caller, Path(id): Path<String>) -> Result<Reply<Value>, Problem> {
    let allowed = caller.may_look()?;
    let (_, graph) = graph_of(&allowed, &id).await?;
    let (start, end) = ("__start__", "__end__");
    let kind = |work: &Work| match work {
        Work::Component(_) => "component",
        Work::Subgraph { .. } => "subgraph",
    };
    let mut nodes = vec![json!({ "id": start, "type": "schema", "data": start })];
    nodes.extend(graph.nodes.iter().map(|(name, node)| {
        json!({ "id": name, "type": "runnable", "data": { "name": name, "kind": kind(&node.work) } })
    }));
    nodes.push(json!({ "id": end, "type": "schema", "data": end }));
    let mut edges: Vec<Value> =
        graph.entry.iter().map(|node| json!({ "source": start, "target": node })).collect();
    for edge in &graph.edges {
        let to = edge.to.as_ref().map_or(end, |node| node.as_str());
        edges.extend(edge.from.iter().map(|from| json!({ "source": from, "target": to })));
    }
    for (name, node) in &graph.nodes {
        edges.extend(node.routes.iter().map(|(label, to)| {
            let to = to.as_ref().map_or(end, |node| node.as_str());
            json!({ "source": name, "target": to, "conditional": true, "data": label })
        }));
    }
    Ok(Reply(json!({ "nodes": nodes, "edges": edges })))
}

/// A graph of few nodes can have very many below it: each names its subgraph by a digest.
const SUBGRAPHS_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct SubgraphsQuery {
    /// With those of subgraphs, as `node|node`.
    #[serde(deserialize_with = "truth")]
    pub recurse: bool,
}

/// The subgraphs of an assistant's graph, by node.
#[utoipa::path(get, path = "/assistants/{assistant_id}/subgraphs", tag = "assistants",
    params(("assistant_id" = String, Path), SubgraphsQuery),
    responses((status = 200, description = "JSON Schemas by node", body = Object)))]
pub async fn subgraphs(
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<SubgraphsQuery>,
) -> Result<Reply<Value>, Problem> {
    let allowed = caller.may_look()?;
    let (_, graph) = graph_of(&allowed, &id).await?;
    let mut found = Map::new();
    let mut open = vec![(String::new(), graph)];
    while let Some((above, graph)) = open.pop() {
        for (name, node) in &graph.nodes {
            let Work::Subgraph { graph, .. } = &node.work else { continue };
            let below = allowed.host.kept_graph(*graph).await?;
            let state = state_schema(below.compiled());
            let schemas = json!({
                "graph_id": below.compiled().name, "input_schema": state, "output_schema": state,
                "state_schema": state, "config_schema": { "type": "object" },
            });
            let path = format!("{above}{name}");
            if query.recurse {
                open.push((format!("{path}|"), below.compiled().clone()));
            }
            found.insert(path, schemas);
            if found.len() > SUBGRAPHS_MAX {
                let most = SUBGRAPHS_MAX;
                let what = format!("there are more than {most} subgraphs; ask without recurse");
                return Err(Problem::too_large("subgraphs", most as u64, what));
            }
        }
    }
    Ok(Reply(Value::Object(found)))
}

async fn graph_of(allowed: &Allowed, id: &str) -> Result<(AssistantRow, CompiledGraph), Problem> {
    let row = named(allowed, id).await?;
    let deployed = allowed.store().deployment(&allowed.tenant, &row.graph).await?;
    let deployed = deployed.ok_or_else(|| Problem::not_found(format_args!("graph {:?}", row.graph)))?;
    let graph = allowed.host.kept_graph(deployed.graph).await?;
    Ok((row, graph.compiled().clone()))
}
