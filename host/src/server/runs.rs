//! Runs, as the protocol calls what is a call here: a start with input, or a command on what waits.

use std::collections::BTreeMap;

use axum::Json as Reply;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::assistants;
use super::body::{self, Body, Path, Query};
use super::caller::{Allowed, Caller};
use super::events::Modes;
use super::problem::Problem;
use super::shapes::{CallStatus, Checkpoint, Run, select};
use super::state::{earlier, known, named, truth};
use super::streams::{self, OnDisconnect, call_of, located};
use super::webhooks;
use super::work::{self, Accepted, Answering, Ask, Children, Give, Then, Written};
use crate::model::{CheckpointId, InterruptId, Json, Kind, RunConfig, RunId, RunStatus, ThreadId, Timestamp};
use crate::store::{InvocationEnd, InvocationRow, InvocationStatus, NoteRow, ServiceWrite};

/// A call: `input` starts a run, `command` goes on with what waits, neither lets gates pass.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunCreate {
    /// An assistant's id, or a graph's name.
    pub assistant_id: String,
    /// From channels to values.
    pub input: Option<Value>,
    pub command: Option<RunCommand>,
    /// The state to go on from, if it is not the latest: what came after stays in the history, and what waits
    /// there is withdrawn.
    pub checkpoint: Option<Checkpoint>,
    pub checkpoint_id: Option<String>,
    /// Nodes to stop before, or `*`.
    pub interrupt_before: Option<OneOrMany>,
    /// Nodes whose updates are held back until somebody lets them pass, or `*`.
    pub interrupt_after: Option<OneOrMany>,
    /// `values`, `updates`, `tasks`, `checkpoints`, `custom`; other modes have no events.
    pub stream_mode: Option<OneOrMany>,
    pub stream_subgraphs: bool,
    /// What becomes of input where the thread is not free: `reject` (the default), `enqueue`, or
    /// `interrupt` and `rollback`, both of which call off what is there.
    pub multitask_strategy: Option<Strategy>,
    /// What becomes of a call on a thread that is not there: `reject` (the default) or `create`.
    pub if_not_exists: Option<IfNotExists>,
    pub on_disconnect: Option<Disconnect>,
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Who is told when it is over: a public address, or one that the operator opened.
    pub webhook: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunCommand {
    /// The answer. An object whose keys are all interrupt ids of this thread is answers by id.
    #[serde(deserialize_with = "present")]
    pub resume: Option<Value>,
    /// Written into the state.
    #[schema(value_type = Option<Object>)]
    pub update: Option<Value>,
    pub goto: Option<Value>,
}

/// Also a null that is there.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a word, or a list of words")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn list(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    #[default]
    Reject,
    Enqueue,
    Interrupt,
    Rollback,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IfNotExists {
    #[default]
    Reject,
    Create,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Disconnect {
    #[default]
    Continue,
    Cancel,
}

impl From<Option<Disconnect>> for OnDisconnect {
    fn from(on: Option<Disconnect>) -> Self {
        match on {
            Some(Disconnect::Cancel) => Self::Cancel,
            _ => Self::Continue,
        }
    }
}

impl RunCreate {
    pub fn modes(&self) -> Modes {
        let names = match &self.stream_mode {
            None => vec!["values".to_owned()],
            Some(names) => names.clone().list(),
        };
        Modes { names, subgraphs: self.stream_subgraphs }
    }
}

/// Start a run, or go on with one, in the background.
///
/// Durable when it is answered.
#[utoipa::path(post, path = "/threads/{thread_id}/runs", tag = "runs",
    params(("thread_id" = String, Path)), request_body = RunCreate,
    responses((status = 200, description = "It is taken", body = Run)))]
pub async fn create(
    caller: Caller,
    Path(thread): Path<String>,
    Body(run): Body<RunCreate>,
) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = run_thread(&thread)?;
    let accepted = submit(&allowed, &thread, run).await?;
    let mut response = Reply(Run::of(&accepted.row)).into_response();
    located(&mut response, &accepted.row, "join");
    Ok(response)
}

/// Start a run, or go on with one, and wait until it is over or asks.
#[utoipa::path(post, path = "/threads/{thread_id}/runs/wait", tag = "runs",
    params(("thread_id" = String, Path)), request_body = RunCreate,
    responses((status = 200, description = "The channels; `__interrupt__` says what waits, `__error__` what failed",
        body = Object)))]
pub async fn wait(
    caller: Caller,
    Path(thread): Path<String>,
    Body(run): Body<RunCreate>,
) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = run_thread(&thread)?;
    let on = run.on_disconnect.into();
    let Accepted { row, done } = submit(&allowed, &thread, run).await?;
    let is_begun = row.status == InvocationStatus::Running;
    streams::wait(allowed, row, is_begun.then_some(done), on).await
}

/// Start a run, or go on with one, and stream what happens.
#[utoipa::path(post, path = "/threads/{thread_id}/runs/stream", tag = "runs",
    params(("thread_id" = String, Path),
        ("namespace" = Option<String>, Query, description = "Taken as clients send it: all namespaces come")), request_body = RunCreate,
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub async fn stream(
    caller: Caller,
    Path(thread): Path<String>,
    Body(run): Body<RunCreate>,
) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = run_thread(&thread)?;
    let (on, modes) = (run.on_disconnect.into(), run.modes());
    let Accepted { row, .. } = submit(&allowed, &thread, run).await?;
    streams::stream(allowed, row, modes, &HeaderMap::new(), on)
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct ListQuery {
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    #[param(minimum = 0, maximum = 4294967295_i64)]
    pub offset: Option<i64>,
    pub status: Option<CallStatus>,
}

/// What was asked of a thread, the latest first.
#[utoipa::path(get, path = "/threads/{thread_id}/runs", tag = "runs",
    params(("thread_id" = String, Path), ListQuery,
        ("select" = Option<String>, Query, description = "Taken as clients send it: all fields come")),
    responses((status = 200, description = "The runs", body = Vec<Run>)))]
pub async fn list(
    caller: Caller,
    Path(thread): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Vec<Value>>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    let status = query.status.map(|status| match status {
        CallStatus::Pending => InvocationStatus::Pending,
        CallStatus::Running => InvocationStatus::Running,
        CallStatus::Success => InvocationStatus::Success,
        CallStatus::Error => InvocationStatus::Error,
        CallStatus::Interrupted => InvocationStatus::Interrupted,
    });
    let page = body::page(query.limit, query.offset)?;
    let rows = allowed.store().invocations(&allowed.tenant, &thread, status, page).await?;
    Ok(Reply(rows.iter().map(|row| select(&Run::of(row), None)).collect()))
}

/// One run.
#[utoipa::path(get, path = "/threads/{thread_id}/runs/{run_id}", tag = "runs",
    params(("thread_id" = String, Path), ("run_id" = String, Path)),
    responses((status = 200, description = "The run", body = Run)))]
pub async fn get(caller: Caller, Path((thread, run)): Path<(String, String)>) -> Result<Reply<Run>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    Ok(Reply(Run::of(&call_of(&allowed, &thread, &run).await?)))
}

/// Forget that a run was asked for. What it did stays.
#[utoipa::path(delete, path = "/threads/{thread_id}/runs/{run_id}", tag = "runs",
    params(("thread_id" = String, Path), ("run_id" = String, Path)),
    responses((status = 204, description = "It is forgotten")))]
pub async fn remove(
    caller: Caller,
    Path((thread, run)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    let row = call_of(&allowed, &thread, &run).await?;
    let write = ServiceWrite::RemoveInvocation { invocation: row.invocation };
    match allowed.store().serve(&allowed.tenant, vec![write]).await? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => {
            Err(Problem::conflict(Kind::Busy, format!("run {} is not over; cancel it first", row.invocation)))
        }
    }
}

/// Wait until a run is over or asks.
#[utoipa::path(get, path = "/threads/{thread_id}/runs/{run_id}/join", tag = "runs",
    params(("thread_id" = String, Path), ("run_id" = String, Path), JoinQuery),
    responses((status = 200, description = "The channels, as of `wait`", body = Object)))]
pub async fn join(
    caller: Caller,
    Path((thread, run)): Path<(String, String)>,
    Query(query): Query<JoinQuery>,
) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    let row = call_of(&allowed, &thread, &run).await?;
    let on = if query.cancel_on_disconnect { OnDisconnect::Cancel } else { OnDisconnect::Continue };
    streams::wait(allowed, row, None, on).await
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct JoinQuery {
    #[serde(deserialize_with = "truth")]
    pub cancel_on_disconnect: bool,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct StreamQuery {
    /// One, or several, separated by commas; all if there is none.
    pub stream_mode: Option<String>,
    #[serde(deserialize_with = "truth")]
    pub cancel_on_disconnect: bool,
    #[serde(deserialize_with = "truth")]
    pub stream_subgraphs: bool,
}

impl StreamQuery {
    fn on_disconnect(&self) -> OnDisconnect {
        if self.cancel_on_disconnect { OnDisconnect::Cancel } else { OnDisconnect::Continue }
    }

    fn modes(&self) -> Modes {
        let all = ["values", "updates", "tasks", "checkpoints", "custom"];
        let names = match &self.stream_mode {
            None => all.map(str::to_owned).to_vec(),
            Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        Modes { names, subgraphs: self.stream_subgraphs }
    }
}

/// Stream what happens in a run, from its beginning or from where `Last-Event-ID` says.
#[utoipa::path(get, path = "/threads/{thread_id}/runs/{run_id}/stream", tag = "runs",
    params(("thread_id" = String, Path), ("run_id" = String, Path), StreamQuery,
        ("namespace" = Option<String>, Query, description = "Taken as clients send it: all namespaces come"),
        ("checkpoint_id" = Option<String>, Query, description = "Taken as clients send it: the stream is the run's own"),
        ("Last-Event-ID" = Option<String>, Header, description = "The last event that was seen")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub async fn join_stream(
    caller: Caller,
    Path((thread, run)): Path<(String, String)>,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    let row = call_of(&allowed, &thread, &run).await?;
    let (modes, on) = (query.modes(), query.on_disconnect());
    streams::stream(allowed, row, modes, &headers, on)
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct CancelQuery {
    /// Answer only once it is called off.
    #[serde(deserialize_with = "truth")]
    pub wait: bool,
    /// `interrupt` or `rollback`; what was done stays done in either case.
    pub action: Option<String>,
    /// Recorded with what is withdrawn.
    pub reason: Option<String>,
}

/// Call a run off: what it asks is withdrawn, and it writes nothing more.
#[utoipa::path(post, path = "/threads/{thread_id}/runs/{run_id}/cancel", tag = "runs",
    params(("thread_id" = String, Path), ("run_id" = String, Path), CancelQuery),
    responses((status = 202, description = "It is called off"), (status = 204, description = "It is over")))]
pub async fn cancel(
    caller: Caller,
    Path((thread, run)): Path<(String, String)>,
    Query(query): Query<CancelQuery>,
) -> Result<StatusCode, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    if let Some(action) = query.action.as_deref().filter(|action| !["interrupt", "rollback"].contains(action))
    {
        return Err(Problem::invalid(format!(
            "action is interrupt or rollback, not {:?}",
            body::clip(action)
        )));
    }
    let row = call_of(&allowed, &thread, &run).await?;
    call_off(&allowed, &row, query.reason.as_deref().unwrap_or("the run was called off")).await?;
    if query.wait {
        let row = allowed.service.ended(&allowed.tenant, row).await?;
        allowed.service.let_go(&allowed.tenant, &row).await;
        return Ok(StatusCode::NO_CONTENT);
    }
    Ok(StatusCode::ACCEPTED)
}

/// Calls off a call that is not over, or the run that it left waiting.
pub async fn call_off(allowed: &Allowed, row: &InvocationRow, why: &str) -> Result<(), Problem> {
    let at = allowed.host.clock().now();
    let config = RunConfig::thread(row.thread.as_str());
    let end = called_off(row, at);
    let told = webhooks::news(&allowed.service, &allowed.tenant, row, &end, None).await?;
    let is_told = !told.is_empty();
    let writes = [vec![ServiceWrite::End(end)], told].concat();
    // From here on nothing that was not durable by now comes of it: its commits are on condition that it is open.
    let was_open = allowed.store().serve(&allowed.tenant, writes).await?.is_ok();
    if was_open && is_told {
        allowed.service.news.notify_one();
    }
    let run = allowed.store().invocation(&allowed.tenant, row.invocation).await?.and_then(|row| row.run);
    let is_its_own = match allowed.host.execution(config.clone()).await {
        // What it began has its id. What it went on with is whatever the thread runs.
        Ok(execution) => {
            execution.run_id == RunId(row.invocation)
                || Some(execution.run_id) == run
                || was_open && row.strategy == work::AT_ONCE
        }
        Err(_) => false,
    };
    let key = (allowed.tenant.clone(), row.thread.clone());
    if is_its_own {
        match allowed.host.cancel(config, allowed.actor.as_deref(), Some(why)).await {
            Ok(_) => {}
            Err(error) if was_open && error.kind() == Kind::NotPending => {}
            Err(error) => return Err(error.into()),
        }
    } else if !was_open {
        let what = format!("run {} is over; there is nothing to call off", row.invocation);
        return Err(Problem::conflict(Kind::NotPending, what));
    }
    if was_open && row.status == InvocationStatus::Running {
        // What it has not made durable need not be computed to its end.
        allowed.host.look_again(&row.thread);
    }
    allowed.service.hub.tell(&key);
    allowed.service.wake(&key);
    Ok(())
}

fn called_off(row: &InvocationRow, at: Timestamp) -> InvocationEnd {
    let status = InvocationStatus::Interrupted;
    InvocationEnd { invocation: row.invocation, status, error: None, run: None, at }
}

/// What calls off all others on a thread for a new one, with whoever is to be told of it.
async fn superseding(
    allowed: &Allowed,
    thread: &ThreadId,
    by: Uuid,
    at: Timestamp,
) -> Result<Vec<ServiceWrite>, Problem> {
    let mut writes = vec![ServiceWrite::Supersede { thread: thread.clone(), by, at }];
    for status in [InvocationStatus::Pending, InvocationStatus::Running] {
        let page = (crate::store::PAGE_ROWS_MAX, 0);
        let open = allowed.store().invocations(&allowed.tenant, thread, Some(status), page).await?;
        for row in open.iter().filter(|row| row.webhook.is_some()) {
            let end = called_off(row, at);
            writes.extend(webhooks::news(&allowed.service, &allowed.tenant, row, &end, None).await?);
        }
    }
    Ok(writes)
}

/// A thread's name as a run may make one.
fn run_thread(text: &str) -> Result<ThreadId, Problem> {
    body::thread(text)
}

/// Takes a call on a thread.
pub async fn submit(allowed: &Allowed, thread: &ThreadId, run: RunCreate) -> Result<Accepted, Problem> {
    let assistant = assistants::named(allowed, &run.assistant_id).await?;
    allowed.host.may_spend()?;
    let (tenant, store) = (&allowed.tenant, allowed.store());
    let now = allowed.host.clock().now();
    let mut before = Vec::new();
    if store.listed_thread(tenant, thread).await?.is_none() {
        if run.if_not_exists.unwrap_or_default() == IfNotExists::Reject {
            let what = format_args!("thread {thread}; create it, or say if_not_exists: \"create\"");
            return Err(Problem::not_found(what));
        }
        allowed.service.room_for_thread(tenant).await?;
        let metadata = Json::object([("graph_id", &Json::string(&assistant.graph))]);
        let note = NoteRow { thread: thread.clone(), metadata, created_at: now, updated_at: now };
        before.push(ServiceWrite::EnsureNote(note));
    }
    if let Some(url) = &run.webhook {
        allowed.host.may_notify(url).map_err(Problem::invalid)?;
    }
    let from = named(run.checkpoint.as_ref(), run.checkpoint_id.as_deref(), thread)?;
    let metadata = body::object(run.metadata.clone(), "metadata")?;
    let strategy = run.multitask_strategy.unwrap_or_default();
    let webhook = run.webhook.clone();
    let assistant_id = assistant.assistant;
    let from = match from {
        None => None,
        Some(_) => {
            let execution = allowed.host.execution(RunConfig::thread(thread.as_str())).await?;
            if execution.checkpoint_id.is_none() {
                return Err(Problem::conflict(Kind::NotPending, "nothing ran yet"));
            }
            earlier(allowed, thread, from, &execution).await?
        }
    };
    let ask = ask(allowed, thread, &assistant, run, from).await?;
    let id = allowed.fresh_id();
    // What goes on from an earlier state leaves what waits there, and stands in no line.
    let is_start = matches!(ask, Ask::Start { from: None, .. });
    let supersedes = is_start && matches!(strategy, Strategy::Interrupt | Strategy::Rollback);
    let line = if is_start && !supersedes { work::IN_LINE } else { work::AT_ONCE };
    if supersedes {
        before.extend(superseding(allowed, thread, id, now).await?);
    }
    let mut row = work::call(id, thread.clone(), (assistant_id, metadata), (&ask, line), now)?;
    row.webhook = webhook;
    row.actor.clone_from(&allowed.actor);
    let only_if_free = is_start && strategy == Strategy::Reject;
    match allowed.service.accept(tenant, row, before, only_if_free).await? {
        Some(accepted) => Ok(accepted),
        None => Err(not_free(allowed, thread).await),
    }
}

/// The refusal of new input, with how the thread stands.
async fn not_free(allowed: &Allowed, thread: &ThreadId) -> Problem {
    let what = match allowed.host.execution(RunConfig::thread(thread.as_str())).await {
        Ok(execution) if execution.status == RunStatus::Interrupted => {
            "waits for an answer; answer it (command.resume), or"
        }
        _ => "is busy; wait for its run, or",
    };
    let what = format!(
        "thread {thread} {what} say what becomes of new input (multitask_strategy: enqueue, interrupt or rollback)"
    );
    Problem::conflict(Kind::Busy, what)
}

/// What a body asks.
async fn ask(
    allowed: &Allowed,
    thread: &ThreadId,
    assistant: &crate::store::AssistantRow,
    run: RunCreate,
    from: Option<CheckpointId>,
) -> Result<Ask, Problem> {
    let RunCreate { input, command, interrupt_before, interrupt_after, multitask_strategy, .. } = run;
    if let Some(command) = command {
        if command.goto.is_some() {
            return Err(Problem::invalid(
                "command.goto: a graph's nodes say where to go; update the state as a node",
            ));
        }
        return match (command.resume, command.update) {
            (Some(_), Some(_)) => {
                Err(Problem::invalid("command: resume and update are two things; say one after the other"))
            }
            (Some(value), None) => match (resume(allowed, thread, value).await?, from) {
                (ask, None) => Ok(ask),
                (Ask::Answer(answering), Some(to)) => match answering.give {
                    Give::Value(value) => Ok(Ask::Rewind { to, then: Then::Answer(value) }),
                    _ => Err(Problem::conflict(
                        Kind::Stale,
                        "at an earlier checkpoint questions are asked anew, under new ids: answer with one value, or \
                         run it first",
                    )),
                },
                (ask, Some(_)) => Ok(ask),
            },
            (None, Some(_)) if from.is_some() => Err(Problem::invalid(
                "command.update goes with the latest state; write into an earlier one with POST /threads/{id}/state",
            )),
            (None, Some(values @ Value::Object(_))) => {
                let execution = allowed.host.execution(RunConfig::thread(thread.as_str())).await?;
                let at = execution
                    .checkpoint_id
                    .ok_or_else(|| Problem::conflict(Kind::NotPending, "nothing ran yet"))?;
                Ok(Ask::Set(Written { at, values, as_node: None }))
            }
            (None, Some(_)) => Err(Problem::invalid("command.update is an object from channels to values")),
            (None, None) => Err(Problem::invalid("command says nothing: resume or update")),
        };
    }
    let Some(input) = input else {
        return match from {
            Some(to) => Ok(Ask::Rewind { to, then: Then::GoOn }),
            None => go_on(allowed, thread).await,
        };
    };
    if !input.is_object() {
        return Err(Problem::invalid("input is an object from channels to values"));
    }
    let deployed = allowed.store().deployment(&allowed.tenant, &assistant.graph).await?;
    let deployed = deployed.ok_or_else(|| Problem::not_found(format_args!("graph {}", assistant.graph)))?;
    let graph = allowed.host.kept_graph(deployed.graph).await?;
    let nodes = |names: Option<OneOrMany>| -> Vec<String> {
        let names = names.map(OneOrMany::list).unwrap_or_default();
        match names.iter().any(|name| name == "*") {
            true => graph.compiled().nodes.keys().map(ToString::to_string).collect(),
            false => names,
        }
    };
    let (before, after) = (nodes(interrupt_before), nodes(interrupt_after));
    if let Some(other) =
        before.iter().chain(&after).find(|name| !graph.compiled().nodes.contains_key(name.as_str()))
    {
        return Err(Problem::invalid(format!("the graph has no node {:?} to stop at", body::clip(other))));
    }
    let supersede = matches!(multitask_strategy, Some(Strategy::Interrupt | Strategy::Rollback));
    graph.check_input(&input)?;
    allowed.host.room_for_bytes(0).await?;
    Ok(Ask::Start { graph: deployed.graph, input, before, after, supersede, from })
}

/// An answer; a map of them only if each of its keys is a question that was asked on this thread.
async fn resume(allowed: &Allowed, thread: &ThreadId, value: Value) -> Result<Ask, Problem> {
    let mut answers = BTreeMap::new();
    if let Value::Object(members) = &value {
        for (key, value) in members {
            let Ok(id) = key.parse::<InterruptId>() else { break };
            let found = allowed.store().interrupt(&allowed.tenant, id).await?;
            if found.is_none_or(|(of, _)| of != *thread) {
                break;
            }
            answers.insert(id, value.clone());
        }
        if answers.len() != members.len() {
            answers.clear();
        }
    }
    let give = if answers.is_empty() { Give::Value(value) } else { Give::Answers(answers) };
    Ok(Ask::Answer(Box::new(Answering {
        target: None,
        give,
        steer: None,
        children: Children::Leave,
        expect: None,
        request: None,
    })))
}

/// Neither input nor command: gates are let pass, and what failed is tried again.
async fn go_on(allowed: &Allowed, thread: &ThreadId) -> Result<Ask, Problem> {
    let nothing =
        || Problem::invalid("input is missing: a run starts with an object from channels to values");
    if allowed.store().head(&allowed.tenant, thread).await?.is_none() {
        return Err(nothing());
    }
    let execution = allowed.host.execution(RunConfig::thread(thread.as_str())).await?;
    match (execution.status, execution.checkpoint_id) {
        (RunStatus::Interrupted, _) => {
            let gates = execution.interrupts.iter().filter(|asked| asked.kind.is_gate());
            let gates: Vec<InterruptId> = gates.map(|asked| asked.interrupt.id).collect();
            // What a node asks can only be answered.
            Ok(if gates.is_empty() { Ask::Look } else { Ask::Proceed { run: execution.run_id, gates } })
        }
        (RunStatus::Failed | RunStatus::Diverged, Some(at)) => Ok(Ask::Retry { at }),
        (RunStatus::Running, _) => Err(Problem::conflict(Kind::Busy, format!("thread {thread} is busy"))),
        // There is nothing to be done, and that is how it ends.
        (RunStatus::Completed, _) => Ok(Ask::Look),
        _ => Err(nothing()),
    }
}
