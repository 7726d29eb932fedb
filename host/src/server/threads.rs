//! Threads: made, found, noted on, forgotten.

use axum::Json as Reply;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::assistants::{merged, paged};
use super::body::{self, Body, Path};
use super::caller::{Allowed, Caller};
use super::problem::Problem;
use super::shapes::{Thread, ThreadStatus, select};
use super::state::known;
use crate::engine::WhileRunning;
use crate::model::{Kind, RunConfig, ThreadId};
use crate::store::{InvocationStatus, ListFilter, ListedThread, NoteRow, ServiceWrite, ThreadOrder};

/// What becomes of making something that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfExists {
    #[default]
    Raise,
    DoNothing,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ThreadCreate {
    /// 1 to 255 bytes without control characters; made up if there is none.
    pub thread_id: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    pub if_exists: Option<IfExists>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub supersteps: Option<Vec<Value>>,
}

/// Make a thread.
#[utoipa::path(post, path = "/threads", tag = "threads", request_body = ThreadCreate,
    responses((status = 200, description = "The thread", body = Thread)))]
pub async fn create(caller: Caller, Body(create): Body<ThreadCreate>) -> Result<Reply<Thread>, Problem> {
    let allowed = caller.may_run()?;
    if create.supersteps.is_some_and(|steps| !steps.is_empty()) {
        return Err(Problem::invalid("supersteps are not taken: run the graph, or update the state"));
    }
    let name = create.thread_id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let thread = ThreadId::parse(name).map_err(|error| Problem::invalid(error.to_string()))?;
    let now = allowed.host.clock().now();
    let metadata = body::object(create.metadata, "metadata")?;
    allowed.service.room_for_thread(&allowed.tenant).await?;
    let note = NoteRow { thread: thread.clone(), metadata, created_at: now, updated_at: now };
    let made = allowed.store().serve(&allowed.tenant, vec![ServiceWrite::NewNote(note)]).await?;
    if made.is_err() && create.if_exists.unwrap_or_default() == IfExists::Raise {
        return Err(Problem::exists(format_args!("a thread {thread}")));
    }
    let listed = known(&allowed, &thread).await?;
    Ok(Reply(shown(&allowed, &listed).await?))
}

/// A thread with its channels and what waits on it.
pub async fn shown(allowed: &Allowed, listed: &ListedThread) -> Result<Thread, Problem> {
    if listed.status.is_none() {
        return Ok(Thread::of(listed, Value::Null, &[]));
    }
    // Status, channels and questions are of one moment, or a client would see a pause that asks nothing.
    let (execution, values) = allowed.host.standing(RunConfig::thread(listed.note.thread.as_str())).await?;
    let listed = ListedThread { status: Some(execution.status), ..listed.clone() };
    Ok(Thread::of(&listed, values, &execution.interrupts))
}

/// A thread.
#[utoipa::path(get, path = "/threads/{thread_id}", tag = "threads",
    params(("thread_id" = String, Path),
        ("include" = Option<String>, Query, description = "Taken as clients send it: there is no more to include")),
    responses((status = 200, description = "The thread", body = Thread)))]
pub async fn get(caller: Caller, Path(thread): Path<String>) -> Result<Reply<Thread>, Problem> {
    let allowed = caller.may_run()?;
    let listed = known(&allowed, &body::thread(&thread)?).await?;
    Ok(Reply(shown(&allowed, &listed).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ThreadUpdate {
    /// Put over what is there.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

/// Note something on a thread.
#[utoipa::path(patch, path = "/threads/{thread_id}", tag = "threads", params(("thread_id" = String, Path)),
    request_body = ThreadUpdate, responses((status = 200, description = "The thread", body = Thread)))]
pub async fn update(
    caller: Caller,
    Path(thread): Path<String>,
    Body(update): Body<ThreadUpdate>,
) -> Result<Reply<Thread>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    let mut listed = known(&allowed, &thread).await?;
    listed.note.metadata = merged(&listed.note.metadata, update.metadata.unwrap_or_default())?;
    listed.note.updated_at = allowed.host.clock().now();
    let written =
        allowed.store().serve(&allowed.tenant, vec![ServiceWrite::Note(listed.note.clone())]).await?;
    debug_assert!(written.is_ok(), "a note is put over any other");
    Ok(Reply(shown(&allowed, &listed).await?))
}

/// Forget a thread, with all that happened on it. One that is running is not.
#[utoipa::path(delete, path = "/threads/{thread_id}", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 204, description = "It is forgotten")))]
pub async fn remove(caller: Caller, Path(thread): Path<String>) -> Result<StatusCode, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    forget(&allowed, &thread).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a thread that nobody runs, with what was asked of it.
pub async fn forget(allowed: &Allowed, thread: &ThreadId) -> Result<(), Problem> {
    let runs = || Problem::conflict(Kind::Busy, format!("thread {thread} is running; cancel its run first"));
    let running = Some(InvocationStatus::Running);
    if !allowed.store().invocations(&allowed.tenant, thread, running, (1, 0)).await?.is_empty() {
        return Err(runs());
    }
    match allowed.host.delete(RunConfig::thread(thread.as_str()), WhileRunning::Refuse).await {
        Ok(()) => {}
        // It never ran.
        Err(error) if error.kind() == Kind::NotFound => {
            let write = ServiceWrite::ForgetUnrun { thread: thread.clone() };
            if allowed.store().serve(&allowed.tenant, vec![write]).await?.is_err() {
                return Err(runs());
            }
        }
        Err(error) => return Err(error.into()),
    }
    allowed.service.hub.tell(&(allowed.tenant.clone(), thread.clone()));
    Ok(())
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ThreadSearch {
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Channels are not searched: empty, or left out.
    #[schema(value_type = Option<Object>)]
    pub values: Option<Map<String, Value>>,
    pub ids: Option<Vec<String>>,
    pub status: Option<ThreadStatus>,
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    #[schema(minimum = 0, maximum = 4294967295_i64)]
    pub offset: Option<i64>,
    pub sort_by: Option<SortBy>,
    pub sort_order: Option<SortOrder>,
    pub select: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    ThreadId,
    Status,
    CreatedAt,
    UpdatedAt,
    StateUpdatedAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    Asc,
    Desc,
}

impl ThreadSearch {
    fn filter(&self) -> Result<ListFilter, Problem> {
        if self.values.as_ref().is_some_and(|values| !values.is_empty()) {
            return Err(Problem::invalid(
                "values: threads are found by metadata, status and ids, not by channels",
            ));
        }
        let (limit, offset) = body::page(self.limit, self.offset)?;
        let order = match self.sort_by {
            None | Some(SortBy::UpdatedAt | SortBy::StateUpdatedAt) => ThreadOrder::Updated,
            Some(SortBy::ThreadId) => ThreadOrder::Name,
            Some(SortBy::Status) => ThreadOrder::Status,
            Some(SortBy::CreatedAt) => ThreadOrder::Created,
        };
        Ok(ListFilter {
            status: self.status.map(ThreadStatus::as_str),
            names: self.ids.clone(),
            metadata: body::object(self.metadata.clone(), "metadata")?,
            order,
            ascending: self.sort_order == Some(SortOrder::Asc),
            limit,
            offset,
        })
    }
}

/// The threads there are, those that changed last first.
#[utoipa::path(post, path = "/threads/search", tag = "threads", request_body = ThreadSearch,
    responses((status = 200, description = "A page of them, or of the fields that are asked for", body = Vec<Object>,
        headers(("X-Pagination-Total" = u64, description = "How many there are in all")))))]
pub async fn search(caller: Caller, Body(search): Body<ThreadSearch>) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let filter = search.filter()?;
    let (rows, total) = allowed.store().list_threads(&allowed.tenant, &filter).await?;
    let fields = search.select.as_deref();
    let is_wanted = |field: &str| fields.is_none_or(|fields| fields.iter().any(|wanted| wanted == field));
    let mut page = Vec::new();
    for row in &rows {
        let thread = match is_wanted("values") || is_wanted("interrupts") {
            true => shown(&allowed, row).await?,
            false => Thread::of(row, Value::Null, &[]),
        };
        page.push(select(&thread, fields));
    }
    let next = u64::from(filter.offset) + page.len() as u64;
    let mut response = Reply(page).into_response();
    paged(&mut response, total, next);
    Ok(response)
}

/// How many threads there are.
#[utoipa::path(post, path = "/threads/count", tag = "threads", request_body = ThreadSearch,
    responses((status = 200, description = "How many", body = u64, content_type = "application/json")))]
pub async fn count(caller: Caller, Body(search): Body<ThreadSearch>) -> Result<Reply<u64>, Problem> {
    let allowed = caller.may_run()?;
    Ok(Reply(allowed.store().list_threads(&allowed.tenant, &search.filter()?).await?.1))
}
