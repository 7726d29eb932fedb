//! Threads that are made from others, and what is no longer needed of those there are.

use axum::Json as Reply;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::{self, Body, Path};
use super::caller::{Allowed, Caller};
use super::problem::Problem;
use super::shapes::{Checkpoint, Thread};
use super::state::{known, named};
use super::threads::{forget, shown};
use super::work::Ask;
use crate::model::{CheckpointId, Kind, RunConfig, RunStatus, ThreadId};
use crate::store::{ListedThread, NoteRow, ServiceWrite};

/// So many threads are pruned with one request.
const THREADS_MAX: usize = 1_000;

/// Make a new thread that stands as this one does.
///
/// What waits is asked again there, under new ids; what was done outside is not done again.
#[utoipa::path(post, path = "/threads/{thread_id}/copy", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 200, description = "The new thread", body = Thread)))]
pub async fn copy(caller: Caller, Path(thread): Path<String>) -> Result<Reply<Thread>, Problem> {
    let allowed = caller.may_run()?;
    let listed = known(&allowed, &body::thread(&thread)?).await?;
    let to = body::thread(&Uuid::now_v7().to_string())?;
    branch(&allowed, &listed, None, to).await
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ThreadFork {
    /// The new thread's name; made up if there is none.
    pub thread_id: Option<String>,
    /// Where to start from; without one, from the latest.
    pub checkpoint: Option<Checkpoint>,
    pub checkpoint_id: Option<String>,
}

/// Make a new thread from a state of this one, and run it to where it completes or waits.
///
/// This thread stays as it is: what it asks can still be answered here.
#[utoipa::path(post, path = "/threads/{thread_id}/fork", tag = "threads", params(("thread_id" = String, Path)),
    request_body = ThreadFork, responses((status = 200, description = "The new thread", body = Thread)))]
pub async fn fork(
    caller: Caller,
    Path(thread): Path<String>,
    Body(fork): Body<ThreadFork>,
) -> Result<Reply<Thread>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    let listed = known(&allowed, &thread).await?;
    let at = named(fork.checkpoint.as_ref(), fork.checkpoint_id.as_deref(), &thread)?;
    if let Some(at) = at {
        allowed.host.checkpoint(RunConfig::thread(thread.as_str()), at).await?;
    }
    let to = fork.thread_id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let to = ThreadId::parse(to).map_err(|error| Problem::invalid(error.to_string()))?;
    branch(&allowed, &listed, at, to).await
}

async fn branch(
    allowed: &Allowed,
    from: &ListedThread,
    at: Option<CheckpointId>,
    to: ThreadId,
) -> Result<Reply<Thread>, Problem> {
    let thread = &from.note.thread;
    if from.status == Some(RunStatus::Running) && at.is_none() {
        return Err(Problem::running(thread));
    }
    let taken = || Problem::exists(format_args!("a thread {to}"));
    if allowed.store().listed_thread(&allowed.tenant, &to).await?.is_some() {
        return Err(taken());
    }
    allowed.service.room_for_thread(&allowed.tenant).await?;
    let now = allowed.host.clock().now();
    let note = NoteRow { thread: to.clone(), created_at: now, updated_at: now, ..from.note.clone() };
    let made = vec![ServiceWrite::NewNote(note)];
    if from.status.is_none() {
        if allowed.store().serve(&allowed.tenant, made).await?.is_err() {
            return Err(taken());
        }
    } else {
        let ask = Ask::Fork { from: thread.clone(), at };
        if let Err(problem) = allowed.carry_out(&to, ask, made).await {
            // What was not made of it is nothing to keep a name for.
            if allowed.store().head(&allowed.tenant, &to).await?.is_none() {
                let unmade = ServiceWrite::ForgetUnrun { thread: to.clone() };
                allowed.store().serve(&allowed.tenant, vec![unmade]).await?.ok();
            }
            return Err(problem);
        }
    }
    Ok(Reply(shown(allowed, &known(allowed, &to).await?).await?))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PruneStrategy {
    /// The threads are removed.
    #[default]
    Delete,
    /// Of their states only the latest stays, with what going on from it takes.
    KeepLatest,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ThreadsPrune {
    #[schema(max_items = 1000)]
    pub thread_ids: Vec<String>,
    #[serde(default)]
    pub strategy: PruneStrategy,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadsPruned {
    /// Of those that are named, how many it was done to: not to those that run, or are not there.
    pub pruned_count: u64,
}

/// Remove threads, or what is old of them.
#[utoipa::path(post, path = "/threads/prune", tag = "threads", request_body = ThreadsPrune,
    responses((status = 200, description = "It is done", body = ThreadsPruned)))]
pub async fn prune(caller: Caller, Body(prune): Body<ThreadsPrune>) -> Result<Reply<ThreadsPruned>, Problem> {
    let allowed = caller.may_run()?;
    if prune.thread_ids.len() > THREADS_MAX {
        return Err(Problem::invalid(format!("thread_ids names at most {THREADS_MAX} threads")));
    }
    let mut pruned_count = 0;
    for name in &prune.thread_ids {
        let Ok(thread) = body::thread(name) else { continue };
        if allowed.store().listed_thread(&allowed.tenant, &thread).await?.is_none() {
            continue;
        }
        let done = match prune.strategy {
            PruneStrategy::Delete => forget(&allowed, &thread)
                .await
                .map_err(|problem| (problem.status() != axum::http::StatusCode::CONFLICT).then_some(problem)),
            PruneStrategy::KeepLatest => {
                let kept = allowed.host.prune(RunConfig::thread(thread.as_str()), 1).await;
                kept.map(drop).map_err(|error| match error.kind() {
                    // It never ran: there is nothing but its latest state.
                    Kind::NotFound => None,
                    _ => Some(error.into()),
                })
            }
        };
        match done {
            Ok(()) => pruned_count += 1,
            Err(None) if prune.strategy == PruneStrategy::KeepLatest => pruned_count += 1,
            Err(None) => {}
            Err(Some(problem)) => return Err(problem),
        }
    }
    Ok(Reply(ThreadsPruned { pruned_count }))
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ThreadPrune {
    /// So many boundaries of each run stay, the latest.
    #[schema(minimum = 1)]
    pub keep: u32,
}

/// What was dropped.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadPruned {
    pub checkpoints: u64,
    pub tasks: u64,
    pub runs: u64,
    pub values: u64,
}

/// Drop old states of a thread, with their tasks, journals and questions. What going on takes stays.
#[utoipa::path(post, path = "/threads/{thread_id}/prune", tag = "threads", params(("thread_id" = String, Path)),
    request_body = ThreadPrune, responses((status = 200, description = "What was dropped", body = ThreadPruned)))]
pub async fn prune_one(
    caller: Caller,
    Path(thread): Path<String>,
    Body(prune): Body<ThreadPrune>,
) -> Result<Reply<ThreadPruned>, Problem> {
    let allowed = caller.may_run()?;
    let thread = body::thread(&thread)?;
    known(&allowed, &thread).await?;
    if prune.keep == 0 {
        return Err(Problem::invalid("keep is at least 1: a thread has a latest state"));
    }
    let config = RunConfig::thread(thread.as_str());
    match allowed.host.prune(config, prune.keep).await {
        Ok(crate::store::Pruned { checkpoints, tasks, runs, values }) => {
            Ok(Reply(ThreadPruned { checkpoints, tasks, runs, values }))
        }
        Err(error) if error.kind() == Kind::NotFound => {
            Ok(Reply(ThreadPruned { checkpoints: 0, tasks: 0, runs: 0, values: 0 }))
        }
        Err(error) => Err(error.into()),
    }
}
