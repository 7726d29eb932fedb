//! One attempt from a fresh store to its end; and, in the same way, the question what a component needs.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use wasmtime::{Engine, Store, UpdateDeadline};

use super::attempt::{Attempt, Context, End, Ran, Route};
use super::bill::Bill;
use super::bindings::holdpoint::node::types;
use super::components::Component;
use super::errors::{InvalidComponent, SandboxError};
use super::guest::{Guest, Task};
use super::stop::{clip, take_json};
use super::trap;
use crate::model::compile::NodeInfo;
use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::Timestamp;
use crate::model::json::Json;
use crate::model::limits::Limits;

/// Of a message that a node gives for its failure.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Of an output's name or a route's label; also of each name in a description.
const NAME_CHARS_MAX: usize = 255;
/// Names of one kind in a description.
const NAMES_MAX: usize = 256;

/// To describe itself, a component may start its language's runtime, and little else.
const DESCRIBE_FUEL: u64 = 200_000_000;
const DESCRIBE_MS: u64 = 10_000;

pub(super) async fn run(engine: &Engine, component: &Component, attempt: Attempt) -> Ran {
    let Attempt { tenant: _, context, state, journal, outside, clock, seed, limits } = attempt;
    let mut bill = Bill::new(Arc::clone(&outside));
    let task = Task { journal, outside };
    let fuel = limits.fuel;
    let mut store = store(engine, Guest::new(Some(task.clone()), clock, seed, limits));
    let context = told(context);
    let state = state.as_str().to_owned();
    let attempt = bounded(&mut store, async |store| {
        let node = component.pre().instantiate_async(&mut *store).await?;
        let result = node.holdpoint_node_handler().call_run(&mut *store, &context, &state).await?;
        Ok(taken(result, &task, &store.data().limits))
    });
    let end = bill.during(attempt).await;
    bill.fuel = fuel - store.get_fuel().unwrap_or(0).min(fuel);
    let guest = store.data();
    Ran {
        end,
        fuel: bill.fuel,
        memory_bytes: guest.meter.memory_bytes_peak(),
        output: guest.console.finish(),
    }
}

pub(super) async fn describe(
    engine: &Engine,
    component: &Component,
    limits: &Limits,
) -> Result<NodeInfo, SandboxError> {
    let limits = Limits {
        fuel: limits.fuel.min(DESCRIBE_FUEL),
        deadline_ms: limits.deadline_ms.min(DESCRIBE_MS),
        ..limits.clone()
    };
    let mut store = store(engine, Guest::new(None, Timestamp(0), [0; 32], limits));
    let mut info = None;
    let end = bounded(&mut store, async |store| {
        let node = component.pre().instantiate_async(&mut *store).await?;
        info = Some(node.holdpoint_node_handler().call_describe(&mut *store).await?);
        Ok(End::Paused)
    })
    .await;
    match (info, end) {
        (Some(info), End::Paused) => Ok(described(info)?),
        (_, End::Failed { error, retryable: true }) => Err(SandboxError::Describe { error }),
        (_, End::Failed { mut error, .. }) => {
            if let Some(stderr) = error.more.get("stderr").and_then(|text| text.as_str()) {
                error.message = format!("{}; it printed: {stderr}", error.message);
            }
            Err(InvalidComponent::Describe { error }.into())
        }
        _ => {
            let error = ErrorRecord::new(Kind::Invalid, "it did not return");
            Err(InvalidComponent::Describe { error }.into())
        }
    }
}

fn store(engine: &Engine, guest: Guest) -> Store<Guest> {
    let limits = guest.limits.clone();
    let mut store = Store::new(engine, guest);
    store.limiter(|guest| &mut guest.meter);
    store.set_hostcall_fuel(usize::try_from(limits.host_call_bytes).unwrap_or(usize::MAX));
    store.set_max_component_handles(limits.handles as usize);
    // Only an engine without fuel refuses it, and then the guest would trap at once.
    if store.set_fuel(limits.fuel).is_err() {
        tracing::error!("the engine does not count fuel");
    }
    let deadline = Instant::now().checked_add(Duration::from_millis(limits.deadline_ms));
    store.set_epoch_deadline(1);
    // At every tick, and when another tenant's guest comes: let others run, however busy this guest is.
    store.epoch_deadline_callback(move |_| {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(UpdateDeadline::Interrupt);
        }
        Ok(UpdateDeadline::Yield(1))
    });
    store
}

/// Holds a call into the guest to the deadline also while it waits in a host function, and to itself
/// what an embedder's code panics with there.
async fn bounded(
    store: &mut Store<Guest>,
    call: impl AsyncFnOnce(&mut Store<Guest>) -> wasmtime::Result<End>,
) -> End {
    let deadline = Duration::from_millis(store.data().limits.deadline_ms);
    let called = AssertUnwindSafe(tokio::time::timeout(deadline, call(&mut *store))).catch_unwind().await;
    let guest = store.data();
    match called {
        Ok(Ok(Ok(end))) => end,
        Ok(Ok(Err(error))) => trap::end(error, guest),
        Ok(Err(_elapsed)) => trap::end(trap::over_deadline(&guest.limits).into(), guest),
        Err(_panic) => {
            // The panic's own message has gone to stderr by the hook.
            tracing::error!("a host function panicked; the attempt ends without an outcome");
            End::Fault
        }
    }
}

/// A node's sentence cannot pass for two, or for one of the host's.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn told(context: Context) -> types::Context {
    let Context { thread_id, run_id, task_id, node, path, step, arg } = context;
    let arg = arg.map(|arg| arg.as_str().to_owned());
    types::Context { thread_id, run_id, task_id, node, path, step, arg }
}

/// What the node returned, checked as far as that needs no knowledge of its graph.
fn taken(result: Result<types::Outcome, types::NodeError>, task: &Task, limits: &Limits) -> End {
    // A node that stopped short of what it did before has no outcome, good or bad.
    if let Err(divergence) = task.journal().finish() {
        return End::Diverged(divergence);
    }
    let ended = match result {
        Ok(outcome) => finished(outcome, limits),
        Err(types::NodeError::Retry(failure)) => failed(failure, true, limits),
        Err(types::NodeError::Fail(failure)) => failed(failure, false, limits),
    };
    ended.unwrap_or_else(|error| End::Failed { error, retryable: false })
}

fn finished(outcome: types::Outcome, limits: &Limits) -> Result<End, ErrorRecord> {
    let bound = ("update_bytes", limits.update_bytes);
    let update = take_json(&outcome.update, "the node's update", bound, limits)?;
    let kind = update.kind();
    let update = update.members().ok_or_else(|| {
        ErrorRecord::new(Kind::Invalid, format!("the node's update is {kind}; it must be an object"))
    })?;
    for (name, _) in &update {
        name_in_bounds("an output's name", name).map_err(|what| ErrorRecord::new(Kind::Invalid, what))?;
    }
    let mut arg_bytes = 0;
    let routes = outcome.routes.into_iter().map(|route| match route {
        types::Route::End => Ok(Route::End),
        types::Route::Go(label) => Ok(Route::Go(label)),
        types::Route::Send(types::Send { label, arg }) => {
            arg_bytes += arg.len() as u64;
            if arg_bytes > limits.update_bytes {
                let limit = limits.update_bytes;
                let message =
                    format!("the arguments of the node's sends have more than {limit} bytes (update_bytes)");
                return Err(ErrorRecord::limit("update_bytes", limit, message));
            }
            Ok(Route::Send { label, arg: take_json(&arg, "a send's argument", bound, limits)? })
        }
    });
    let routes: Vec<Route> = routes.collect::<Result<_, _>>()?;
    if routes.len() > limits.step_tasks as usize {
        let (limit, value) = (limits.step_tasks, routes.len());
        let message =
            format!("the node takes {value} routes; one step has at most {limit} tasks (step_tasks)");
        return Err(ErrorRecord::limit("step_tasks", limit.into(), message));
    }
    for route in &routes {
        if let Route::Go(label) | Route::Send { label, .. } = route {
            name_in_bounds("a route's label", label).map_err(|what| ErrorRecord::new(Kind::Invalid, what))?;
        }
    }
    Ok(End::Finished { update, routes })
}

fn failed(failure: types::Failure, retryable: bool, limits: &Limits) -> Result<End, ErrorRecord> {
    let mut error = ErrorRecord::new(Kind::NodeFailed, one_line(clip(&failure.message, MESSAGE_BYTES_MAX)));
    if let Some(detail) = failure.detail {
        let bound = ("update_bytes", limits.update_bytes);
        let detail: Json = take_json(&detail, "the detail of the node's failure", bound, limits)?;
        error = error.with("detail", detail.value());
    }
    Ok(End::Failed { error, retryable })
}

fn described(info: types::NodeInfo) -> Result<NodeInfo, InvalidComponent> {
    let bad = |field, what| InvalidComponent::Description { field, what };
    for (field, text) in [("name", &info.name), ("version", &info.version)] {
        name_in_bounds("it", text).map_err(|what| bad(field, what))?;
    }
    let names = |field, names: Vec<String>| {
        let count = names.len();
        if count > NAMES_MAX {
            return Err(bad(field, format!("it lists {count} names; {NAMES_MAX} are the most")));
        }
        let mut set = BTreeSet::new();
        for name in names {
            name_in_bounds("a name", &name).map_err(|what| bad(field, what))?;
            if let Some(twice) = set.replace(name) {
                return Err(bad(field, format!("it lists {twice:?} twice")));
            }
        }
        Ok(set)
    };
    Ok(NodeInfo {
        reads: names("reads", info.reads)?,
        writes: names("writes", info.writes)?,
        routes: names("routes", info.routes)?,
        effects: names("effects", info.effects)?,
        name: info.name,
        version: info.version,
    })
}

fn name_in_bounds(what: &str, name: &str) -> Result<(), String> {
    let count = name.chars().take(NAME_CHARS_MAX + 1).count();
    if count == 0 {
        return Err(format!("{what} is empty"));
    }
    if count > NAME_CHARS_MAX {
        return Err(format!("{what} has more than {NAME_CHARS_MAX} characters"));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("{what} has a control character: {name:?}"));
    }
    Ok(())
}
