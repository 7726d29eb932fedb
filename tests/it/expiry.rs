//! Questions whose time runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use holdpoint::engine::Clock;
use holdpoint::model::{Kind, WayOut};
use holdpoint::{Command, Graph, ResumeTarget};
use serde_json::json;

use crate::world::*;

const START_MS: i64 = 1_800_000_000_000;

/// One scripted node, on a host whose time is in the test's hand.
async fn timed(world: &World) -> (Graph, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(START_MS));
    let builder = world.builder().database(world.db()).clock(Clock::Set(now.clone()));
    let graph = builder.open().await.unwrap().compile(&scripted(&["n"])).await.unwrap();
    (graph, now)
}

#[tokio::test(flavor = "multi_thread")]
async fn i60_an_expired_question_takes_its_default_and_no_late_answer() {
    let world = World::new();
    let (graph, now) = timed(&world).await;
    let ops = json!([{ "ask": "ok?", "expires_ms": 60_000, "default": null }, { "now": true }, { "put_results": "a" }]);
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap()).remove(0);
    assert_eq!(asked.expires_at.unwrap().0, START_MS + 60_000);
    now.store(START_MS + 59_999, Ordering::SeqCst);
    assert_eq!(
        graph.continue_run(on("t")).await.unwrap().interrupts.len(),
        1,
        "a moment before it still waits"
    );

    now.store(START_MS + 60_000, Ordering::SeqCst);
    world.started();
    let target = ResumeTarget::run(asked.run_path[0]).interrupt(asked.interrupt.id);
    let late = refused(graph.resume_targeted(target, Command::resume("late")).await);
    assert_eq!(late.error.kind, Kind::Stale);
    assert!(late.error.message.contains("expired"), "{}", late.error.message);
    // To look at it, or to be refused, runs nothing.
    let looked = world.host().await.execution(on("t")).await.unwrap();
    assert_eq!((looked.interrupts.len(), world.started()), (1, vec![]));

    completed(graph.continue_run(on("t")).await.unwrap());
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"][0], json!(null));
    assert!(state["a"][1].as_i64().unwrap() >= START_MS + 60_000, "the node's clock went on: {state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i60_without_a_default_the_task_fails_as_expired() {
    let world = World::new();
    let (graph, now) = timed(&world).await;
    let ops = json!([{ "ask_all": ["p", "q"], "expires_ms": 1_000 }, { "put_results": "a" }]);
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    paused(graph.resume(on("t"), Command::answers([(asked[0].interrupt.id, json!(1))])).await.unwrap());
    now.store(START_MS + 1_000, Ordering::SeqCst);
    let failed_run = graph.continue_run(on("t")).await.unwrap();
    assert_eq!((failed(&failed_run), failed_run.interrupts.len()), (Kind::Expired, 0));
    let late = refused(graph.resume(on("t"), Command::answers([(asked[1].interrupt.id, json!(2))])).await);
    assert_eq!(late.error.kind, Kind::Stale);
    assert_eq!(world.started(), ["n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i60_of_an_answer_and_an_expiry_at_the_same_moment_one_wins() {
    let world = World::new();
    let (graph, now) = timed(&world).await;
    let late_clock = Arc::new(AtomicI64::new(START_MS + 1_000));
    let late = world.builder().database(world.db()).clock(Clock::Set(late_clock));
    let late = late.open().await.unwrap();
    for round in 0..20 {
        let thread = format!("t{round}");
        let ops =
            json!([{ "ask": "ok?", "expires_ms": 1_000, "default": "default" }, { "put_results": "a" }]);
        now.store(START_MS, Ordering::SeqCst);
        paused(graph.invoke(on(&thread), script(ops)).await.unwrap());
        let (answered, expired) = tokio::join!(
            graph.resume(on(&thread), Command::resume("answer")),
            late.continue_run(on(&thread))
        );
        let state = graph.state(on(&thread)).await.unwrap();
        let right = if answered.is_ok() { "answer" } else { "default" };
        assert_eq!(state["a"], json!([right]), "{answered:?} {expired:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i60_a_sweep_finds_what_expired_on_every_thread_and_no_timer_is_lost() {
    let world = World::new();
    let (graph, now) = timed(&world).await;
    let ops =
        |ms: u64| json!([{ "ask": "ok?", "expires_ms": ms, "default": "late" }, { "put_results": "a" }]);
    for (thread, ms) in [("a", 1_000), ("b", 2_000), ("c", 3_000)] {
        paused(graph.invoke(on(thread), script(ops(ms))).await.unwrap());
    }
    // A host that was not there when they were asked.
    let later = world.builder().database(world.db()).clock(Clock::Set(now.clone())).open().await.unwrap();
    assert!(later.sweep().await.unwrap().is_empty());
    now.store(START_MS + 2_000, Ordering::SeqCst);
    let swept = later.sweep().await.unwrap();
    let mut threads: Vec<_> = swept.iter().map(|swept| swept.thread.to_string()).collect();
    threads.sort();
    assert_eq!(threads, ["a", "b"]);
    swept.into_iter().for_each(|swept| completed(swept.result.unwrap()));
    assert_eq!(graph.state(on("b")).await.unwrap()["a"], json!(["late"]));
    assert!(later.sweep().await.unwrap().is_empty());
    // A host that lives long does it by itself.
    now.store(START_MS + 3_000, Ordering::SeqCst);
    let keeps = {
        let host = later.clone();
        tokio::spawn(async move { host.keep_sweeping(std::time::Duration::from_millis(20)).await })
    };
    let done = async {
        // To look runs nothing.
        while later.execution(on("c")).await.unwrap().status != holdpoint::RunStatus::Completed {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), done).await.unwrap();
    assert_eq!(graph.state(on("c")).await.unwrap()["a"], json!(["late"]));
    later.stop();
    tokio::time::timeout(std::time::Duration::from_secs(30), keeps).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn i60_a_value_beside_an_expired_question_goes_to_no_other() {
    let world = World::new();
    let now = Arc::new(AtomicI64::new(START_MS));
    let host = world.builder().database(world.db()).clock(Clock::Set(now.clone())).open().await.unwrap();
    let graph = host.compile(&scripted(&["p", "q"])).await.unwrap();
    let ops = json!({ "p": [{ "ask": "pay?", "expires_ms": 1_000, "default": "no" }], "q": [{ "ask": "delete?" }] });
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    now.store(START_MS + 1_000, Ordering::SeqCst);
    let refusal = refused(graph.resume(on("t"), Command::resume("yes")).await);
    assert_eq!((refusal.error.kind, refusal.pending.len()), (Kind::Stale, 2));
    let goes_on = WayOut::Continue { thread: "t".parse().unwrap() };
    assert_eq!(refusal.error.ways_out, [goes_on], "{refusal}");
    // By its id it is clear which is meant.
    let target = ResumeTarget::run(asked[1].run_path[0]).interrupt(asked[1].interrupt.id);
    completed(graph.resume_targeted(target, Command::resume("yes")).await.unwrap());
}
