//! A run that is broken off, wherever it is: nothing is half done, and it can go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdpoint::engine::{Settings, Watched};
use holdpoint::model::{Limits, RunStatus};
use holdpoint::{Command, EffectFailure, EngineError, Execution, Host, HostBuilder};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::hostile::is_limit;
use crate::refusals::connect;
use crate::world::*;

/// Who waits for the run goes away, or the host is told to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Dropped,
    Stopped,
}

const HOW: [How; 2] = [How::Dropped, How::Stopped];

/// A host that makes runs durable at once, and has room for one task.
fn builder(world: &World) -> HostBuilder {
    let settings = Settings { lease_ms: 1_500, budget_ms: 1 };
    world.builder().settings(settings).limits(Limits {
        tasks_at_once: 1,
        fuel: u64::MAX,
        ..Limits::default()
    })
}

async fn break_off(how: How, host: &Host, run: JoinHandle<Result<Execution, EngineError>>) {
    match how {
        How::Dropped => {
            run.abort();
            assert!(run.await.unwrap_err().is_cancelled());
        }
        How::Stopped => {
            host.stop();
            assert!(matches!(run.await.unwrap(), Err(EngineError::Stopped)));
        }
    }
}

/// What goes on with it: the same host, or one that was not told to stop.
async fn next(how: How, world: &World, host: &Host) -> Host {
    match how {
        How::Dropped => host.clone(),
        How::Stopped => builder(world).database(world.db()).open().await.unwrap(),
    }
}

/// The thread as it stands, once there is one.
async fn stands(host: &Host) -> Execution {
    loop {
        if let Ok(execution) = host.execution(on("t")).await {
            return execution;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_is_broken_off_while_its_node_runs_goes_on_to_its_end() {
    for how in HOW {
        let world = World::new();
        let limits = Limits { fuel: u64::MAX, tasks_at_once: 1, deadline_ms: 600_000, ..Limits::default() };
        let host = builder(&world).limits(limits).database(world.db()).open().await.unwrap();
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let spinning = graph.clone();
        let run =
            tokio::spawn(async move { spinning.invoke(on("t"), script(json!([{ "loop": true }]))).await });
        assert_eq!(stands(&host).await.status, RunStatus::Running, "{how:?}");
        break_off(how, &host, run).await;
        if how == How::Dropped {
            // The one place is free: the instance is gone.
            completed(graph.invoke(on("other"), script(json!([]))).await.unwrap());
        }
        drop((graph, host));
        let host = builder(&world).limits(Limits { fuel: 50_000_000, ..Limits::default() });
        let host = host.database(world.db()).open().await.unwrap();
        let run = host.continue_run(on("t")).await.unwrap();
        failed(&run);
        is_limit(&run.error.unwrap(), "fuel", 50_000_000);
    }
}

/// It has called nothing since: its journal ends at the answered question.
#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_is_broken_off_behind_an_answer_goes_on_with_it() {
    for how in HOW {
        let world = World::new();
        let host = builder(&world).database(world.db()).open().await.unwrap();
        let graph = graph_on(&host).await;
        // For so long that it is seen to run on any machine.
        let computes = json!([{ "repeat": { "times": 200_000, "ops": [{ "hash_order": true }] } }, { "put": { "a": [1] } }]);
        let then = json!({ "if_last": { "equals": "yes", "then": computes } });
        paused(graph.invoke(on("t"), script(json!([{ "ask": "?" }, then]))).await.unwrap());
        let run = tokio::spawn(async move { graph.resume(on("t"), Command::resume("yes")).await });
        while stands(&host).await.status != RunStatus::Running {
            assert!(!run.is_finished(), "it is broken off while it computes");
            tokio::task::yield_now().await;
        }
        break_off(how, &host, run).await;
        let host = next(how, &world, &host).await;
        completed(host.continue_run(on("t")).await.unwrap());
        assert_eq!(host.state(on("t")).await.unwrap()["a"], json!([1]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_is_broken_off_in_an_effect_sends_it_again_under_its_key() {
    for how in HOW {
        let world = World::new();
        let (sent, came): (Arc<AtomicU32>, Arc<Notify>) = Default::default();
        let open = async || {
            let (sent, came) = (sent.clone(), came.clone());
            let handler = move |request: holdpoint::EffectRequest| {
                let (first, came) = (sent.fetch_add(1, Ordering::SeqCst) == 0, came.clone());
                async move {
                    came.notify_one();
                    if first {
                        std::future::pending::<()>().await;
                    }
                    Ok::<Value, EffectFailure>(json!(request.idempotency_key))
                }
            };
            builder(&world).effect("e", handler).database(world.db()).open().await.unwrap()
        };
        let host = open().await;
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let effect = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
        let ops = json!([effect, effect, { "put_results": "a" }]);
        let (sending, ops) = (graph.clone(), script(ops));
        let run = tokio::spawn(async move { sending.invoke(on("t"), ops).await });
        came.notified().await;
        break_off(how, &host, run).await;
        let host = if how == How::Dropped { host } else { open().await };
        assert_eq!(stands(&host).await.status, RunStatus::Running, "{how:?}");
        completed(host.continue_run(on("t")).await.unwrap());
        assert_eq!(sent.load(Ordering::SeqCst), 2, "{how:?}: once more, and then its outcome is known");
        let told = host.state(on("t")).await.unwrap()["a"].take();
        assert_eq!(told[0], told[1]);
        completed(
            host.for_tenant("other".parse().unwrap())
                .compile(&scripted(&["n"]))
                .await
                .unwrap()
                .invoke(on("t"), script(json!([])))
                .await
                .unwrap(),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_is_broken_off_while_its_commit_waits_is_there_whole() {
    for how in HOW {
        for (answering, ops, then) in [
            (false, json!([{ "ask": "?" }, { "put_results": "a" }]), RunStatus::Interrupted),
            (false, json!([{ "put": { "a": ["yes"] } }]), RunStatus::Completed),
            (true, json!([{ "ask": "?" }, { "put_results": "a" }]), RunStatus::Completed),
        ] {
            let world = World::new();
            let ended: Arc<Notify> = Arc::default();
            let notify = ended.clone();
            let settings = Settings { lease_ms: 1_500, budget_ms: 600_000 };
            let watcher = Arc::new(move |watched: &Watched<'_>| {
                if matches!(watched, Watched::TaskEnded { .. }) {
                    notify.notify_one();
                }
            });
            let host = builder(&world).settings(settings).watcher(watcher).database(world.db());
            let host = host.open().await.unwrap();
            let graph = host.compile(&scripted(&["n"])).await.unwrap();
            if answering {
                paused(graph.invoke(on("t"), script(ops.clone())).await.unwrap());
                ended.notified().await;
            }
            let before = host.store().unwrap().counters().batches;
            let mut other = connect(&world.db()).await;
            sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
            let running = graph.clone();
            let run = tokio::spawn(async move {
                match answering {
                    true => running.resume(on("t"), Command::resume("yes")).await,
                    false => running.invoke(on("t"), script(ops)).await,
                }
            });
            ended.notified().await;
            while host.store().unwrap().counters().batches == before {
                tokio::task::yield_now().await;
            }
            // It is with the writer, which waits for the other's lock.
            match how {
                How::Dropped => {
                    break_off(how, &host, run).await;
                    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
                }
                How::Stopped => {
                    host.stop();
                    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
                    let run = run.await.unwrap();
                    assert!(matches!(run, Ok(_) | Err(EngineError::Stopped)), "{run:?}");
                }
            }
            let whole = async {
                while host.execution(on("t")).await.map(|run| run.status).ok() != Some(then) {
                    tokio::task::yield_now().await;
                }
            };
            let what = format!("{how:?}, {then:?}, answering: {answering}");
            tokio::time::timeout(Duration::from_secs(20), whole).await.expect(&what);
            let host = next(how, &world, &host).await;
            if then == RunStatus::Interrupted {
                completed(host.resume(on("t"), Command::resume("yes")).await.unwrap());
            }
            assert_eq!(host.state(on("t")).await.unwrap()["a"], json!(["yes"]), "{what}");
            completed(graph_on(&host).await.invoke(on("after"), script(json!([]))).await.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_is_called_off_in_its_node_or_while_its_commit_waits_is_over() {
    let effect = json!({ "effect": { "name": "f", "key": "k", "input": 1 } });
    for (ops, commit_waits) in [(json!([{ "loop": true }]), false), (json!([effect, { "ask": "?" }]), true)] {
        let world = World::new();
        let held = Held::default();
        let limits = Limits { fuel: u64::MAX, tasks_at_once: 1, deadline_ms: 600_000, ..Limits::default() };
        let host = held.effect(builder(&world)).limits(limits).database(world.db()).open().await.unwrap();
        let graph = graph_on(&host).await;
        let mut other = connect(&world.db()).await;
        let (running, ops) = (graph.clone(), script(ops));
        let run = tokio::spawn(async move { running.invoke(on("t"), ops).await });
        let calling = async || host.cancel(on("t"), Some("maria"), None).await;
        let called_off = if commit_waits {
            held.reached().await;
            assert_eq!(stands(&host).await.status, RunStatus::Running);
            // Before the lock is taken: what renews the lease may wait for it too, and the run then for that.
            let before = host.store().unwrap().counters().batches;
            sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
            held.go_on();
            while host.store().unwrap().counters().batches == before {
                tokio::task::yield_now().await;
            }
            let free = async { sqlx::query("ROLLBACK").execute(&mut other).await.unwrap() };
            tokio::join!(calling(), free).0
        } else {
            assert_eq!(stands(&host).await.status, RunStatus::Running);
            calling().await
        };
        let what = format!("the commit waits: {commit_waits}");
        assert_eq!(called_off.expect(&what).status, RunStatus::Cancelled, "{what}");
        let run = tokio::time::timeout(Duration::from_secs(20), run).await.expect(&what).unwrap().unwrap();
        assert!(matches!(run.status, RunStatus::Cancelled | RunStatus::Interrupted), "{what}: {run:?}");
        let stands = host.execution(on("t")).await.unwrap();
        assert_eq!((stands.status, stands.interrupts.len()), (RunStatus::Cancelled, 0), "{what}");
        // The one place is free, and the thread as well.
        completed(graph.invoke(on("t"), script(json!([]))).await.unwrap());
    }
}

async fn graph_on(host: &Host) -> holdpoint::Graph {
    host.compile(&scripted(&["n"])).await.unwrap()
}
