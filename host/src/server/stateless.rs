//! Runs whose caller names no thread: each has one of its own, which is made up, stays, and is named in
//! `Content-Location`.

use axum::Json as Reply;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

use super::body::{self, Body};
use super::caller::Caller;
use super::problem::Problem;
use super::runs::{IfNotExists, RunCreate, submit};
use super::shapes::Run;
use super::streams::{self, located};
use crate::model::ThreadId;

fn own_thread(run: &mut RunCreate) -> Result<ThreadId, Problem> {
    if run.input.is_none() {
        return Err(Problem::invalid("input is missing: without a thread there is nothing to go on with"));
    }
    run.if_not_exists = Some(IfNotExists::Create);
    body::thread(&Uuid::now_v7().to_string())
}

/// Start a run on a thread of its own, in the background.
#[utoipa::path(post, path = "/runs", tag = "runs", request_body = RunCreate,
    responses((status = 200, description = "It is taken", body = Run)))]
pub async fn create(caller: Caller, Body(mut run): Body<RunCreate>) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = own_thread(&mut run)?;
    let accepted = submit(&allowed, &thread, run).await?;
    let mut response = Reply(Run::of(&accepted.row)).into_response();
    located(&mut response, &accepted.row, "join");
    Ok(response)
}

/// Start a run on a thread of its own, and wait until it is over or asks.
#[utoipa::path(post, path = "/runs/wait", tag = "runs", request_body = RunCreate,
    responses((status = 200, description = "The channels, as of a run on a thread", body = Object)))]
pub async fn wait(caller: Caller, Body(mut run): Body<RunCreate>) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = own_thread(&mut run)?;
    let on = run.on_disconnect.into();
    let accepted = submit(&allowed, &thread, run).await?;
    streams::wait(allowed, accepted.row, Some(accepted.done), on).await
}

/// Start a run on a thread of its own, and stream what happens.
#[utoipa::path(post, path = "/runs/stream", tag = "runs",
    params(("namespace" = Option<String>, Query, description = "Taken as clients send it: all namespaces come")), request_body = RunCreate,
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub async fn stream(caller: Caller, Body(mut run): Body<RunCreate>) -> Result<Response, Problem> {
    let allowed = caller.may_run()?;
    let thread = own_thread(&mut run)?;
    let (on, modes) = (run.on_disconnect.into(), run.modes());
    let accepted = submit(&allowed, &thread, run).await?;
    streams::stream(allowed, accepted.row, modes, &HeaderMap::new(), on)
}
