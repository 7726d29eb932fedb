//! A thread's states: the latest, any earlier one, and what a person writes into it.

use std::collections::BTreeMap;

use axum::Json as Reply;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::body::{self, Body, Path, Query};
use super::caller::{Allowed, Caller};
use super::problem::Problem;
use super::shapes::{Checkpoint, Interrupt, Task, ThreadState, select, time, waited_at};
use super::work::{self, Ask, Then, Written};
use crate::model::checkpoint::{CheckpointKind, CheckpointRow, RunRow, TaskRow, TaskState};
use crate::model::{CheckpointId, Execution, Json, Kind, RunConfig, RunId, TaskId, ThreadId};
use crate::store::{RunSnapshot, ServiceWrite, Store};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default)]
#[derive(Default)]
pub struct StateQuery {
    /// With the states of subgraphs that are not done, in their tasks.
    #[serde(deserialize_with = "truth")]
    pub subgraphs: bool,
}

/// As clients write it: `true`, `True`, `1`.
pub fn truth<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let text = String::deserialize(from)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" | "" => Ok(false),
        other => Err(serde::de::Error::custom(format!("{:?} is neither true nor false", body::clip(other)))),
    }
}

/// The latest state of a thread.
#[utoipa::path(get, path = "/threads/{thread_id}/state", tag = "threads",
    params(("thread_id" = String, Path), StateQuery,
        ("select" = Option<String>, Query, description = "Taken as clients send it: all fields come")),
    responses((status = 200, description = "The state", body = ThreadState)))]
pub async fn get(
    caller: Caller,
    Path(thread): Path<String>,
    Query(query): Query<StateQuery>,
) -> Result<Reply<ThreadState>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    Ok(Reply(latest(&allowed, &thread, query.subgraphs).await?))
}

/// One state of a thread.
#[utoipa::path(get, path = "/threads/{thread_id}/state/{checkpoint_id}", tag = "threads",
    params(("thread_id" = String, Path), ("checkpoint_id" = String, Path), StateQuery,
        ("select" = Option<String>, Query, description = "Taken as clients send it: all fields come")),
    responses((status = 200, description = "The state", body = ThreadState)))]
pub async fn get_one(
    caller: Caller,
    Path((thread, checkpoint)): Path<(String, String)>,
    Query(query): Query<StateQuery>,
) -> Result<Reply<ThreadState>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    Ok(Reply(one(&allowed, &thread, &checkpoint, query.subgraphs).await?))
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointQuery {
    pub checkpoint: Checkpoint,
    #[serde(default)]
    pub subgraphs: bool,
}

/// One state of a thread, named by a checkpoint.
#[utoipa::path(post, path = "/threads/{thread_id}/state/checkpoint", tag = "threads",
    params(("thread_id" = String, Path)), request_body = CheckpointQuery,
    responses((status = 200, description = "The state", body = ThreadState)))]
pub async fn get_checkpoint(
    caller: Caller,
    Path(thread): Path<String>,
    Body(query): Body<CheckpointQuery>,
) -> Result<Reply<ThreadState>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    match of_thread(&query.checkpoint, &thread)? {
        Some(id) => Ok(Reply(one(&allowed, &thread, &id, query.subgraphs).await?)),
        None => Ok(Reply(latest(&allowed, &thread, query.subgraphs).await?)),
    }
}

/// The checkpoint that a body names, if it does not contradict the path.
pub fn of_thread(checkpoint: &Checkpoint, thread: &ThreadId) -> Result<Option<String>, Problem> {
    match &checkpoint.thread_id {
        Some(other) if other != thread.as_str() => {
            Err(Problem::invalid("the checkpoint in the body is of another thread than the path's"))
        }
        _ => Ok(checkpoint.checkpoint_id.clone()),
    }
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HistoryQuery {
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    /// Only those from before this one: a checkpoint, or its id.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Only those whose metadata has this.
    pub metadata: Option<Map<String, Value>>,
    pub checkpoint: Option<Checkpoint>,
    pub select: Option<Vec<String>>,
}

/// A thread's states, the newest first.
#[utoipa::path(post, path = "/threads/{thread_id}/history", tag = "threads",
    params(("thread_id" = String, Path)), request_body = HistoryQuery,
    responses((status = 200, description = "The states, or the fields of them that are asked for", body = Vec<Object>)))]
pub async fn history(
    caller: Caller,
    Path(thread): Path<String>,
    Body(query): Body<HistoryQuery>,
) -> Result<Reply<Vec<Value>>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    let (limit, _) = body::page(query.limit, None)?;
    if let Some(checkpoint) = &query.checkpoint {
        of_thread(checkpoint, &thread)?;
    }
    let before = match query.before {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id),
        Some(other) => {
            let named: Checkpoint =
                serde_json::from_value(other).map_err(|_| Problem::invalid("before names no checkpoint"))?;
            of_thread(&named, &thread)?
        }
    };
    let before = before.map(|id| id.parse::<CheckpointId>()).transpose();
    let before = before.map_err(|_| Problem::invalid("before names no checkpoint"))?;
    let rows = allowed.store().root_history(&allowed.tenant, &thread, before, limit).await?;
    let reader = Reader { allowed: &allowed, thread: &thread };
    let head = allowed.store().head(&allowed.tenant, &thread).await?.map(|(head, _)| head);
    let mut states = Vec::new();
    for row in &rows {
        let state = reader.state(row, "", Some(row.checkpoint) == head).await?;
        let wanted = query.metadata.iter().flatten();
        if wanted.into_iter().all(|(name, value)| state.metadata.get(name) == Some(value)) {
            states.push(select(&state, query.select.as_deref()));
        }
    }
    Ok(Reply(states))
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StateUpdateBody {
    /// From channels to values, which go through the channels' reducers.
    #[schema(value_type = Option<Object>)]
    pub values: Option<Map<String, Value>>,
    /// The node that it counts for: its edges are followed, and if it waits, it is done with this.
    pub as_node: Option<String>,
    pub checkpoint: Option<Checkpoint>,
    pub checkpoint_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateUpdated {
    pub checkpoint: Checkpoint,
    pub checkpoint_id: Option<String>,
}

/// Write into a thread's state, the latest or an earlier one.
///
/// The thread goes on from there, once somebody runs it: what asked asks anew, and nothing else runs.
#[utoipa::path(post, path = "/threads/{thread_id}/state", tag = "threads",
    params(("thread_id" = String, Path)), request_body = StateUpdateBody,
    responses((status = 200, description = "It is written", body = StateUpdated)))]
pub async fn update(
    caller: Caller,
    Path(thread): Path<String>,
    Body(update): Body<StateUpdateBody>,
) -> Result<Reply<StateUpdated>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    let named = named(update.checkpoint.as_ref(), update.checkpoint_id.as_deref(), &thread)?;
    let execution = allowed.host.execution(RunConfig::thread(thread.as_str())).await?;
    let Some(at) = execution.checkpoint_id else {
        return Err(Problem::conflict(Kind::NotPending, "the thread has no checkpoint"));
    };
    let values = Value::Object(update.values.unwrap_or_default());
    let as_node = update.as_node;
    let ask = match earlier(&allowed, &thread, named, &execution).await? {
        Some(to) => Ask::Rewind { to, then: Then::Edit { values, as_node } },
        None => Ask::Edit(Written { at, values, as_node }),
    };
    let execution = allowed.carry_out(&thread, ask, Vec::new()).await?;
    let id = execution.checkpoint_id.map(|id| id.to_string());
    Ok(Reply(StateUpdated { checkpoint: Checkpoint::new(&thread, "", id.clone()), checkpoint_id: id }))
}

/// The checkpoint that a body names, once or twice.
pub fn named(
    checkpoint: Option<&Checkpoint>,
    id: Option<&str>,
    thread: &ThreadId,
) -> Result<Option<CheckpointId>, Problem> {
    let within = checkpoint.map(|checkpoint| of_thread(checkpoint, thread)).transpose()?.flatten();
    let id = match (within, id) {
        (Some(one), Some(other)) if one != other => {
            return Err(Problem::invalid("checkpoint_id and checkpoint name two checkpoints"));
        }
        (Some(one), _) => one,
        (None, Some(other)) => other.to_owned(),
        (None, None) => return Ok(None),
    };
    let id = id.parse().map_err(|_| Problem::not_found(format_args!("checkpoint {:?}", body::clip(&id))))?;
    Ok(Some(id))
}

/// The checkpoint to go on from, if that is not the latest of a thread that stands so: it is there, and the
/// thread is not running.
pub async fn earlier(
    allowed: &Allowed,
    thread: &ThreadId,
    named: Option<CheckpointId>,
    now: &Execution,
) -> Result<Option<CheckpointId>, Problem> {
    let Some(id) = named.filter(|id| Some(*id) != now.checkpoint_id) else {
        return Ok(None);
    };
    allowed.host.checkpoint(RunConfig::thread(thread.as_str()), id).await?;
    if now.status == crate::model::RunStatus::Running {
        return Err(Problem::running(thread));
    }
    Ok(Some(id))
}

impl Allowed {
    /// Takes a call that its caller waits for, and carries it out.
    /// `before`: what becomes true with its being taken.
    pub async fn carry_out(
        &self,
        thread: &ThreadId,
        ask: Ask,
        before: Vec<ServiceWrite>,
    ) -> Result<Execution, Problem> {
        self.host.may_spend()?;
        let now = self.host.clock().now();
        let note = (Uuid::nil(), Json::from_canonical("{}"));
        let mut row = work::call(self.fresh_id(), thread.clone(), note, (&ask, work::AT_ONCE), now)?;
        row.actor.clone_from(&self.actor);
        let accepted = self.service.accept(&self.tenant, row, before, false).await?;
        let accepted =
            accepted.ok_or_else(|| Problem::conflict(Kind::Stale, "the thread was changed meanwhile"))?;
        let wait = std::time::Duration::from_millis(self.service.settings.answer_ms);
        match tokio::time::timeout(wait, accepted.done).await {
            Ok(Ok(result)) => Ok(result?),
            Ok(Err(_)) => Err(Problem::unavailable("the host ends; what was accepted goes on after")),
            // It is taken, and goes on.
            Err(_) => Ok(self.host.execution(RunConfig::thread(thread.as_str())).await?),
        }
    }
}

/// Whether there is such a thread.
pub async fn known(allowed: &Allowed, thread: &ThreadId) -> Result<crate::store::ListedThread, Problem> {
    let listed = allowed.store().listed_thread(&allowed.tenant, thread).await?;
    listed.ok_or_else(|| Problem::not_found(format_args!("thread {thread}")))
}

async fn latest(allowed: &Allowed, thread: &ThreadId, subgraphs: bool) -> Result<ThreadState, Problem> {
    let listed = known(allowed, thread).await?;
    let Some(snapshot) = allowed.store().load(&allowed.tenant, thread).await? else {
        return Ok(ThreadState {
            values: json!({}),
            next: Vec::new(),
            tasks: Vec::new(),
            metadata: json!({}),
            created_at: Some(time(listed.note.created_at)),
            checkpoint: Checkpoint::new(thread, "", None),
            parent_checkpoint: None,
            interrupts: Vec::new(),
        });
    };
    let reader = Reader { allowed, thread };
    reader.run(&snapshot.root, "", subgraphs).await
}

async fn one(
    allowed: &Allowed,
    thread: &ThreadId,
    id: &str,
    subgraphs: bool,
) -> Result<ThreadState, Problem> {
    known(allowed, thread).await?;
    let missing = || Problem::not_found(format_args!("checkpoint {:?} on thread {thread}", body::clip(id)));
    let id: CheckpointId = id.parse().map_err(|_| missing())?;
    let snapshot = allowed.store().load(&allowed.tenant, thread).await?;
    if snapshot.as_ref().is_some_and(|snapshot| snapshot.head == id) {
        return latest(allowed, thread, subgraphs).await;
    }
    let row = allowed.store().checkpoint(&allowed.tenant, thread, id).await?.ok_or_else(missing)?;
    Reader { allowed, thread }.state(&row, "", false).await
}

/// Puts states together from rows.
pub struct Reader<'a> {
    pub allowed: &'a Allowed,
    pub thread: &'a ThreadId,
}

impl Reader<'_> {
    fn store(&self) -> &Store {
        self.allowed.store()
    }

    /// The channels at a checkpoint.
    pub async fn values(&self, row: &CheckpointRow) -> Result<Value, Problem> {
        let versions: Vec<_> = row.channels.clone().into_iter().collect();
        let values = self.store().values(&self.allowed.tenant, self.thread, &versions).await?;
        let named = versions.iter().zip(values).map(|((name, _), value)| (name.to_string(), value.value()));
        Ok(Value::Object(named.collect()))
    }

    /// Any state, by its checkpoint.
    pub async fn state(
        &self,
        row: &CheckpointRow,
        namespace: &str,
        is_head: bool,
    ) -> Result<ThreadState, Problem> {
        let (tenant, boundary) = (&self.allowed.tenant, boundary_of(row));
        let tasks = self.store().tasks(tenant, self.thread, boundary).await?;
        let asked = self.store().asked(tenant, self.thread, boundary).await?;
        let is_pause = row.kind != CheckpointKind::Boundary;
        let waits = |task: TaskId| -> Vec<Interrupt> {
            let of_task = asked.iter().filter(|asked| asked.task == task);
            // At its boundary a task has asked nothing yet.
            of_task
                .filter(|asked| is_pause && waited_at(asked, row.created_at))
                .map(Interrupt::of_row)
                .collect()
        };
        let planned: Vec<Task> = self.tasks(row, &tasks, is_pause || is_head, &waits);
        Ok(self.document(row, namespace, planned, self.values(row).await?))
    }

    /// As a stream tells it, which is the same whenever it is read: at a boundary the tasks are still to come,
    /// whatever became of them since.
    pub async fn told(&self, row: &CheckpointRow, namespace: &str) -> Result<ThreadState, Problem> {
        let mut state = self.state(row, namespace, false).await?;
        if row.kind == CheckpointKind::Boundary {
            state.tasks.iter_mut().for_each(|task| task.result = None);
        }
        Ok(state)
    }

    fn tasks(
        &self,
        row: &CheckpointRow,
        started: &[TaskRow],
        shows_outcome: bool,
        waits: &dyn Fn(TaskId) -> Vec<Interrupt>,
    ) -> Vec<Task> {
        let boundary = boundary_of(row);
        let one = |(index, planned): (usize, &crate::model::checkpoint::PlannedTask)| {
            let id = TaskId::derive(boundary, index, &planned.node);
            let state = started.iter().find(|task| task.task == id).map(|task| &task.state);
            let interrupts = waits(id);
            let (error, result) = match state {
                // It waited then, whatever became of it since.
                _ if !interrupts.is_empty() => (None, None),
                Some(TaskState::Failed(error)) if shows_outcome => (Some(error.to_string()), None),
                Some(TaskState::Finished(finish)) => (None, Some(updates_of(finish))),
                _ => (None, None),
            };
            Task {
                id: id.to_string(),
                name: planned.node.to_string(),
                path: vec![json!("__pregel_pull"), json!(planned.node)],
                error,
                interrupts,
                checkpoint: None,
                state: None,
                result,
            }
        };
        row.plan.tasks.iter().enumerate().map(one).collect()
    }

    fn document(&self, row: &CheckpointRow, namespace: &str, tasks: Vec<Task>, values: Value) -> ThreadState {
        let is_pause = row.kind != CheckpointKind::Boundary;
        // A pause shows which are done; at a boundary all are still to come.
        let is_next = |task: &&Task| !is_pause || task.result.is_none();
        ThreadState {
            values,
            next: tasks.iter().filter(is_next).map(|task| task.name.clone()).collect(),
            interrupts: tasks.iter().flat_map(|task| task.interrupts.clone()).collect(),
            tasks,
            metadata: json!({
                "run_id": row.run,
                "step": row.step,
                "source": if row.step == 0 && !is_pause { "input" } else { "loop" },
                "kind": if is_pause { "pause" } else { "boundary" },
                "status": row.status,
            }),
            created_at: Some(time(row.created_at)),
            checkpoint: Checkpoint::new(self.thread, namespace, Some(row.checkpoint.to_string())),
            parent_checkpoint: row
                .parent
                .map(|parent| Checkpoint::new(self.thread, namespace, Some(parent.to_string()))),
        }
    }

    /// The latest state of a run, and of those below it that are not done.
    fn run<'a>(
        &'a self,
        run: &'a RunSnapshot,
        namespace: &'a str,
        subgraphs: bool,
    ) -> BoxFuture<'a, Result<ThreadState, Problem>> {
        async move {
            let row = &run.checkpoint;
            let waits = |task: TaskId| -> Vec<Interrupt> {
                let pending = |asked: &&crate::model::checkpoint::InterruptRow| {
                    asked.task == task && asked.state == crate::model::checkpoint::InterruptState::Pending
                };
                let mut waits: Vec<Interrupt> =
                    run.interrupts.iter().filter(pending).map(Interrupt::of_row).collect();
                // What a subgraph asks is shown with its task, as the protocol has it.
                let child = run.tasks.iter().find(|row| row.task == task).and_then(|row| row.child);
                let child = run.children.iter().find(|run| Some(run.run.run) == child);
                waits.extend(child.into_iter().flat_map(below));
                waits
            };
            let mut tasks = self.tasks(row, &run.tasks, true, &waits);
            for (task, started) in tasks.iter_mut().flat_map(|task| {
                let started = run.tasks.iter().find(|row| row.task.to_string() == task.id)?;
                Some((task, started))
            }) {
                let Some(child) = run.children.iter().find(|run| Some(run.run.run) == started.child) else {
                    continue;
                };
                let at = part(namespace, &task.name, started.task);
                task.checkpoint = Some(Checkpoint::new(self.thread, &at, None));
                if subgraphs {
                    task.state = Some(Box::new(self.run(child, &at, true).await?));
                }
            }
            Ok(self.document(row, namespace, tasks, self.values(row).await?))
        }
        .boxed()
    }

    /// A run's namespace as the protocol writes one: `node:task|node:task`; empty for a root run.
    pub async fn namespace(
        &self,
        run: RunId,
        known: &mut BTreeMap<RunId, String>,
    ) -> Result<String, Problem> {
        let mut way: Vec<RunRow> = Vec::new();
        let mut at = Some(run);
        let mut path = String::new();
        while let Some(run) = at {
            if let Some(found) = known.get(&run) {
                path.clone_from(found);
                break;
            }
            let row = self.store().run(&self.allowed.tenant, run).await?;
            let Some((_, row)) = row else { break };
            at = row.parent.map(|(parent, _)| parent);
            way.push(row);
        }
        for row in way.into_iter().rev() {
            if let Some((_, task)) = row.parent {
                let node = row.namespace.last().map(String::as_str).unwrap_or_default();
                path = part(&path, node, task);
            }
            known.insert(row.run, path.clone());
        }
        Ok(path)
    }
}

fn part(above: &str, node: &str, task: TaskId) -> String {
    if above.is_empty() { format!("{node}:{task}") } else { format!("{above}|{node}:{task}") }
}

fn below(run: &RunSnapshot) -> Vec<Interrupt> {
    let pending =
        run.interrupts.iter().filter(|row| row.state == crate::model::checkpoint::InterruptState::Pending);
    let own = pending.map(Interrupt::of_row);
    own.chain(run.children.iter().flat_map(below)).collect()
}

pub fn boundary_of(row: &CheckpointRow) -> CheckpointId {
    match row.kind {
        CheckpointKind::Boundary => row.checkpoint,
        CheckpointKind::Pause { boundary } => boundary,
    }
}

/// What a task wrote, by channel.
pub fn updates_of(finish: &crate::model::checkpoint::Finish) -> Value {
    let named = finish.update.iter().map(|(channel, value)| (channel.to_string(), value.value()));
    Value::Object(named.collect())
}
