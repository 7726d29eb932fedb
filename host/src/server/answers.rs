//! What the protocol lacks: every question with the way to it, answers that say what they are for, words
//! beside them, and another try.

use std::collections::BTreeMap;

use axum::Json as Reply;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::body::{self, Body, Path, Query};
use super::caller::{Allowed, Caller};
use super::problem::Problem;
use super::state::known;
use super::work::{Answering, Ask, Children, Give};
use crate::model::{
    CheckpointId, Execution, InterruptId, Kind, PendingInterrupt, ResumeTarget, RunConfig, RunId, RunStatus,
    TaskId, ThreadId,
};

/// How a thread stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct Standing {
    pub thread_id: String,
    /// The host's run: from its input until it completes or fails, across all its answers.
    pub run_id: String,
    pub checkpoint_id: Option<String>,
    /// running, completed, interrupted, failed, diverged or cancelled.
    pub status: String,
    pub interrupts: Vec<Pending>,
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

/// A question that waits, and where in the tree of runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Pending {
    pub id: String,
    pub thread_id: String,
    pub graph: String,
    pub node: String,
    pub task_id: String,
    pub payload: Value,
    pub order: usize,
    /// node, before, after, approve or in-doubt.
    pub kind: String,
    /// The path of subgraph nodes from the root.
    pub namespace: Vec<String>,
    /// From the root run to the one that asks.
    pub run_path: Vec<String>,
    /// The sub-agent's name.
    pub agent: Option<String>,
    pub checkpoint_id: String,
    /// JSON Schema that an answer must meet.
    pub answer_schema: Option<Value>,
    pub asked_at: Option<String>,
    pub expires_at: Option<String>,
}

impl Pending {
    fn of(thread: &ThreadId, graph: &str, asked: &PendingInterrupt, asked_at: Option<String>) -> Self {
        Self {
            id: asked.interrupt.id.to_string(),
            thread_id: thread.to_string(),
            graph: graph.to_owned(),
            node: asked.interrupt.node.to_string(),
            task_id: asked.interrupt.task_id.to_string(),
            payload: asked.interrupt.payload.clone(),
            order: asked.interrupt.order,
            kind: asked.kind.as_str().to_owned(),
            namespace: asked.namespace.clone(),
            run_path: asked.run_path.iter().map(ToString::to_string).collect(),
            agent: asked.agent.clone(),
            checkpoint_id: asked.checkpoint_id.to_string(),
            answer_schema: asked.answer_schema.clone(),
            asked_at,
            expires_at: asked.expires_at.map(super::shapes::time),
        }
    }
}

impl Allowed {
    async fn standing(&self, thread: &ThreadId, execution: Execution) -> Result<Standing, Problem> {
        let graph = self.graph_name(execution.run_id).await?;
        let interrupts = execution.interrupts.iter().filter(|asked| self.is_for(asked, &graph));
        Ok(Standing {
            thread_id: thread.to_string(),
            run_id: execution.run_id.to_string(),
            checkpoint_id: execution.checkpoint_id.map(|id| id.to_string()),
            status: execution.status.as_str().to_owned(),
            interrupts: interrupts.map(|asked| Pending::of(thread, &graph, asked, None)).collect(),
            error: execution.error.map(|error| json!(error)),
        })
    }

    /// The name of the graph that a run is pinned to.
    async fn graph_name(&self, run: RunId) -> Result<String, Problem> {
        let row = self.store().run(&self.tenant, run).await?;
        let Some((_, row)) = row else { return Ok(String::new()) };
        Ok(self.host.kept_graph(row.graph).await?.compiled().name.clone())
    }

    /// What waits on a thread, as far as this key is for it.
    async fn waiting(&self, thread: &ThreadId) -> Result<Vec<Pending>, Problem> {
        let execution = match self.host.execution(RunConfig::thread(thread.as_str())).await {
            Ok(execution) => execution,
            Err(error) if error.kind() == crate::model::Kind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        if execution.interrupts.is_empty() {
            return Ok(Vec::new());
        }
        let graph = self.graph_name(execution.run_id).await?;
        let mut waiting = Vec::new();
        for asked in execution.interrupts.iter().filter(|asked| self.is_for(asked, &graph)) {
            let row = self.store().interrupt(&self.tenant, asked.interrupt.id).await?;
            let at = row.map(|(_, row)| super::shapes::time(row.asked_at));
            waiting.push(Pending::of(thread, &graph, asked, at));
        }
        Ok(waiting)
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub struct PendingQuery {
    pub thread_id: Option<String>,
    pub agent: Option<String>,
    pub node: Option<String>,
    /// Only those that were asked so long ago, or longer.
    pub older_than_ms: Option<u64>,
    /// Only those of threads whose names come after this one.
    pub after: Option<String>,
    /// Threads looked at, at most.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
}

/// What waits for an answer.
#[utoipa::path(get, path = "/interrupts", tag = "answers", params(PendingQuery),
    responses((status = 200, description = "By thread, in task order and then in the order asked",
        body = Vec<Pending>)))]
pub async fn list(caller: Caller, Query(query): Query<PendingQuery>) -> Result<Reply<Vec<Pending>>, Problem> {
    let allowed = caller.may_answer()?;
    let threads = match &query.thread_id {
        Some(thread) => {
            let thread = body::thread(thread)?;
            known(&allowed, &thread).await?;
            vec![thread]
        }
        None => {
            let (limit, _) = body::page(Some(query.limit.unwrap_or(100)), None)?;
            let after = query.after.as_deref().unwrap_or_default();
            allowed.store().waiting_threads(&allowed.tenant, after, limit).await?
        }
    };
    let now = allowed.host.clock().now();
    let until = query.older_than_ms.map(|ms| {
        super::shapes::time(crate::model::Timestamp(
            now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)),
        ))
    });
    let mut all = Vec::new();
    for thread in threads {
        all.extend(allowed.waiting(&thread).await?);
    }
    all.retain(|asked| {
        let fits = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == is)
        };
        fits(&query.agent, asked.agent.as_deref())
            && fits(&query.node, Some(&asked.node))
            // Times are written so that they sort as they are.
            && until.as_ref().is_none_or(|until| asked.asked_at.as_ref().is_some_and(|at| at <= until))
    });
    Ok(Reply(all))
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// The answer; null is one.
    #[serde(deserialize_with = "present")]
    pub value: Option<Value>,
    /// Lets a gate pass, which takes no value.
    pub proceed: bool,
    /// What to tell the node beside it.
    pub steer: Option<String>,
    pub pending_children: Option<PendingChildrenBody>,
    /// Refuse unless the thread still stands like this.
    pub expect: Option<Expect>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, expecting = "an object with run_id, checkpoint_id, or both")]
pub struct Expect {
    pub run_id: Option<uuid::Uuid>,
    pub checkpoint_id: Option<uuid::Uuid>,
}

/// What becomes of what is pending in the children of the run that is answered: `leave` (the default),
/// `cancel`, `refuse`, or `{"resolve": value}`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "leave, cancel, refuse, or {\"resolve\": value}")]
pub enum PendingChildrenBody {
    Word(PolicyWord),
    Resolve { resolve: Value },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyWord {
    Leave,
    Cancel,
    Refuse,
}

impl From<Option<PendingChildrenBody>> for Children {
    fn from(body: Option<PendingChildrenBody>) -> Self {
        match body {
            None | Some(PendingChildrenBody::Word(PolicyWord::Leave)) => Self::Leave,
            Some(PendingChildrenBody::Word(PolicyWord::Cancel)) => Self::Cancel,
            Some(PendingChildrenBody::Word(PolicyWord::Refuse)) => Self::Refuse,
            Some(PendingChildrenBody::Resolve { resolve }) => Self::Resolve(resolve),
        }
    }
}

/// The name that a caller gives a request, so that one sent twice is one.
fn request_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().map_err(|_| Problem::invalid("Idempotency-Key is no text"))?;
    super::assistants::line(key.to_owned(), "Idempotency-Key").map(Some)
}

/// Answer one question.
///
/// With an `Idempotency-Key`, the same request sent twice gets the first reply twice.
#[utoipa::path(post, path = "/interrupts/{interrupt_id}/answer", tag = "answers",
    params(("interrupt_id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "This request's name")),
    request_body = Answer,
    responses((status = 200, description = "How the thread stands now", body = Standing)))]
pub async fn answer(
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    Body(answer): Body<Answer>,
) -> Result<Reply<Standing>, Problem> {
    let allowed = caller.may_answer()?;
    let missing = || Problem::not_found(format_args!("interrupt {:?}", body::clip(&id)));
    let interrupt: InterruptId = id.parse().map_err(|_| missing())?;
    let (thread, row) = allowed.store().interrupt(&allowed.tenant, interrupt).await?.ok_or_else(missing)?;
    if !allowed.is_for_all() && !is_for_row(&allowed, &row).await? {
        // As if it were not there: a key that is not for it learns nothing of it.
        return Err(missing());
    }
    let give = match (answer.value, answer.proceed) {
        (Some(value), false) => Give::Value(value),
        (None, true) => Give::Proceed,
        _ => return Err(Problem::invalid("the body has either a value, or proceed: true for a gate")),
    };
    let expect = answer.expect.unwrap_or_default();
    let run = expect.run_id.map_or(row.run, RunId);
    let answering = Answering {
        target: Some(ResumeTarget::run(run).interrupt(interrupt)),
        give,
        steer: answer.steer,
        children: answer.pending_children.into(),
        expect: expect.checkpoint_id.map(CheckpointId),
        request: request_of(&headers)?,
    };
    let execution = allowed.carry_out(&thread, Ask::Answer(Box::new(answering)), Vec::new()).await?;
    Ok(Reply(allowed.standing(&thread, execution).await?))
}

/// Whether a key that is narrowed is for this question.
async fn is_for_row(
    allowed: &Allowed,
    row: &crate::model::checkpoint::InterruptRow,
) -> Result<bool, Problem> {
    let Some((_, run)) = allowed.store().run(&allowed.tenant, row.run).await? else { return Ok(false) };
    // The graph that is run is the root's, whatever subgraph asks.
    let mut root = run.clone();
    while let Some((parent, _)) = root.parent {
        match allowed.store().run(&allowed.tenant, parent).await? {
            Some((_, above)) => root = above,
            None => return Ok(false),
        }
    }
    let graph = allowed.host.kept_graph(root.graph).await?.compiled().name.clone();
    let has = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
    Ok(has(&allowed.only_for.graphs, &graph)
        && has(&allowed.only_for.nodes, row.node.as_str())
        && has(&allowed.only_for.agents, run.agent.as_deref().unwrap_or_default()))
}

/// What an answer or an instruction is for. Each part narrows; all must agree.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with run_id, and task_id, interrupt_id, namespace where they are needed"
)]
pub struct Target {
    /// The run that asks, or any of its ancestors.
    pub run_id: uuid::Uuid,
    pub task_id: Option<uuid::Uuid>,
    pub interrupt_id: Option<uuid::Uuid>,
    /// The path of subgraph nodes from the root.
    #[serde(default)]
    pub namespace: Vec<String>,
}

impl From<Target> for ResumeTarget {
    fn from(target: Target) -> Self {
        Self {
            run_id: RunId(target.run_id),
            task_id: target.task_id.map(TaskId),
            interrupt_id: target.interrupt_id.map(InterruptId),
            namespace: target.namespace,
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resume {
    /// Without one: the whole thread.
    pub target: Option<Target>,
    /// One answer to the one question that the target leaves.
    #[serde(deserialize_with = "present")]
    pub value: Option<Value>,
    /// Answers by interrupt id, all or none.
    pub answers: Option<BTreeMap<String, Value>>,
    /// Lets the one gate pass that the target leaves.
    pub proceed: bool,
    pub steer: Option<String>,
    pub pending_children: Option<PendingChildrenBody>,
    pub expect: Option<Expect>,
}

/// The thread of a target, which the path names as well.
async fn of_thread(
    allowed: &Allowed,
    thread: &ThreadId,
    target: Option<Target>,
) -> Result<Option<ResumeTarget>, Problem> {
    let Some(target) = target else { return Ok(None) };
    let run = RunId(target.run_id);
    match allowed.store().run(&allowed.tenant, run).await? {
        Some((of, _)) if of == *thread => Ok(Some(target.into())),
        _ => Err(Problem::not_found(format_args!("run {run} on thread {thread}"))),
    }
}

/// Answer what is pending within a target.
#[utoipa::path(post, path = "/threads/{thread_id}/resume", tag = "answers",
    params(("thread_id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "This request's name")),
    request_body = Resume, responses((status = 200, description = "How the thread stands now", body = Standing)))]
pub async fn resume(
    caller: Caller,
    Path(thread): Path<String>,
    headers: HeaderMap,
    Body(resume): Body<Resume>,
) -> Result<Reply<Standing>, Problem> {
    let allowed = caller.may_answer()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    if !allowed.is_for_all() {
        let what =
            "this key is for some questions only: answer each by its id (POST /interrupts/{id}/answer)";
        return Err(Problem::new(axum::http::StatusCode::FORBIDDEN, Kind::Denied, what));
    }
    let give = match (resume.value, resume.answers, resume.proceed) {
        (Some(value), None, false) => Give::Value(value),
        (None, Some(answers), false) => {
            let mut by_id = BTreeMap::new();
            for (id, value) in answers {
                let key = id.parse::<InterruptId>();
                let key = key.map_err(|error| Problem::invalid(format!("answers: {error}")))?;
                by_id.insert(key, value);
            }
            Give::Answers(by_id)
        }
        (None, None, true) => Give::Proceed,
        _ => return Err(Problem::invalid("the body has one of value, answers and proceed: true")),
    };
    let target = of_thread(&allowed, &thread, resume.target).await?;
    let expect = resume.expect.unwrap_or_default();
    let target = target.or_else(|| expect.run_id.map(|run| ResumeTarget::run(RunId(run))));
    let answering = Answering {
        target,
        give,
        steer: resume.steer,
        children: resume.pending_children.into(),
        expect: expect.checkpoint_id.map(CheckpointId),
        request: request_of(&headers)?,
    };
    let execution = allowed.carry_out(&thread, Ask::Answer(Box::new(answering)), Vec::new()).await?;
    Ok(Reply(allowed.standing(&thread, execution).await?))
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Steer {
    pub text: String,
    /// Without one: every task of the run.
    pub target: Option<Target>,
}

/// Tell a run something while it waits or goes on.
#[utoipa::path(post, path = "/threads/{thread_id}/steer", tag = "answers",
    params(("thread_id" = String, Path)), request_body = Steer,
    responses((status = 200, description = "How the thread stands", body = Standing)))]
pub async fn steer(
    caller: Caller,
    Path(thread): Path<String>,
    Body(steer): Body<Steer>,
) -> Result<Reply<Standing>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    let actor = allowed.actor.clone().unwrap_or_default();
    let execution = match of_thread(&allowed, &thread, steer.target).await? {
        Some(target) => allowed.host.steer_targeted(target, &actor, &steer.text).await?,
        None => allowed.host.steer(RunConfig::thread(thread.as_str()), &actor, &steer.text).await?,
    };
    Ok(Reply(allowed.standing(&thread, execution).await?))
}

/// Try again what failed, and only that.
#[utoipa::path(post, path = "/threads/{thread_id}/retry", tag = "answers",
    params(("thread_id" = String, Path)),
    responses((status = 200, description = "How the thread stands now", body = Standing)))]
pub async fn retry(caller: Caller, Path(thread): Path<String>) -> Result<Reply<Standing>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    let execution = allowed.host.execution(RunConfig::thread(thread.as_str())).await?;
    let has_failed =
        matches!(execution.status, RunStatus::Failed | RunStatus::Diverged | RunStatus::Interrupted);
    let at = execution.checkpoint_id.filter(|_| has_failed).ok_or_else(|| {
        let status = execution.status.as_str();
        let what =
            format!("run {} on thread {thread} is {status}; nothing in it has failed", execution.run_id);
        Problem::conflict(Kind::NotPending, what)
    })?;
    let execution = allowed.carry_out(&thread, Ask::Retry { at }, Vec::new()).await?;
    Ok(Reply(allowed.standing(&thread, execution).await?))
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeBody {
    /// The name or the digest of a graph.
    pub graph: String,
    /// Tasks that begin anew from an entry of their journals.
    #[serde(default)]
    pub cuts: Vec<CutBody>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CutBody {
    pub task_id: uuid::Uuid,
    pub entry: usize,
}

/// Change the graph of a run that waits or failed, if its tasks do again under it what they did.
#[utoipa::path(post, path = "/threads/{thread_id}/upgrade", tag = "answers",
    params(("thread_id" = String, Path)), request_body = UpgradeBody,
    responses((status = 200, description = "How the thread stands now", body = Standing)))]
pub async fn upgrade(
    caller: Caller,
    Path(thread): Path<String>,
    Body(upgrade): Body<UpgradeBody>,
) -> Result<Reply<Standing>, Problem> {
    let allowed = caller.may_deploy()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    let digest = super::graphs::digest_of(&allowed, &upgrade.graph).await?;
    let graph = allowed.host.kept_graph(digest).await?;
    let cuts = upgrade.cuts.iter();
    let cuts = cuts.map(|cut| crate::engine::Cut { task: TaskId(cut.task_id), entry: cut.entry }).collect();
    let change = crate::engine::Upgrade { cuts, actor: allowed.actor.clone() };
    let config = RunConfig::thread(thread.as_str());
    let execution = allowed.host.upgrade(config, &graph, change).await?;
    Ok(Reply(allowed.standing(&thread, execution).await?))
}

/// A run and those below it.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunNode {
    pub run_id: String,
    pub thread_id: String,
    pub graph: String,
    pub namespace: Vec<String>,
    pub agent: Option<String>,
    pub status: String,
    pub created_at: String,
    pub ended_at: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    /// The task that started it.
    pub parent_task_id: Option<String>,
    #[schema(no_recursion)]
    pub children: Vec<RunNode>,
}

/// A run of the host's, with those that its subgraphs started.
#[utoipa::path(get, path = "/runs/{run_id}/tree", tag = "answers", params(("run_id" = String, Path)),
    responses((status = 200, description = "The tree", body = RunNode)))]
pub async fn tree(caller: Caller, Path(run): Path<String>) -> Result<Reply<RunNode>, Problem> {
    let allowed = caller.may_run()?;
    let missing = || Problem::not_found(format_args!("run {:?}", body::clip(&run)));
    let id: RunId = run.parse().map_err(|_| missing())?;
    let (thread, row) = allowed.store().run(&allowed.tenant, id).await?.ok_or_else(missing)?;
    let rows = allowed.store().runs(&allowed.tenant, &thread).await?;
    Ok(Reply(node(&thread, &row, &rows)))
}

fn node(
    thread: &ThreadId,
    row: &crate::model::checkpoint::RunRow,
    all: &[crate::model::checkpoint::RunRow],
) -> RunNode {
    let children = all.iter().filter(|child| child.parent.is_some_and(|(parent, _)| parent == row.run));
    RunNode {
        run_id: row.run.to_string(),
        thread_id: thread.to_string(),
        graph: row.graph.to_string(),
        namespace: row.namespace.clone(),
        agent: row.agent.clone(),
        status: row.status.as_str().to_owned(),
        created_at: super::shapes::time(row.created_at),
        ended_at: row.ended_at.map(super::shapes::time),
        error: row.error.as_ref().map(|error| json!(error)),
        parent_task_id: row.parent.map(|(_, task)| task.to_string()),
        children: children.map(|child| node(thread, child, all)).collect(),
    }
}
