//! How a run comes to a pause, and when it must not.

use holdpoint::model::{Kind, RunStatus};
use holdpoint::{Command, Host, RunConfig};
use serde_json::json;

use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn i01_an_interrupt_without_durability_fails_the_run() {
    let world = World::new();
    let input = || script(json!([{ "ask": "ok?" }]));
    let without_thread = world.one().await.invoke(RunConfig::fleeting(), input()).await.unwrap();
    assert_eq!(failed(&without_thread), Kind::Resume);
    assert_eq!((without_thread.interrupts.len(), without_thread.checkpoint_id), (0, None));

    let host = world.builder().open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let without_database = graph.invoke(on("t"), input()).await.unwrap();
    assert_eq!(failed(&without_database), Kind::Resume);
    assert!(without_database.error.unwrap().message.contains("Host::open"));
}

#[tokio::test(flavor = "multi_thread")]
async fn i04_no_catch_all_keeps_the_node_from_stopping() {
    let world = World::new();
    let graph = world.one().await;
    let ops = json!([{ "catch": [{ "ask": "ok?" }] }, { "put_results": "a" }]);
    let pending = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    assert_eq!(pending.len(), 1);
    assert!(!world.logged.lock().unwrap().iter().any(|line| line.contains("unwound")));
    completed(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["yes", "finished"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i05_the_questions_of_one_step_come_in_task_order() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q", "r"])).await;
    for thread in ["1", "2", "3"] {
        let input = script(json!({ "p": [{ "ask": "p" }], "q": [{ "ask": "q" }], "r": [{ "ask": "r" }] }));
        let execution = graph.invoke(on(thread), input).await.unwrap();
        let shown = paused(execution).iter().map(|i| i.interrupt.payload.clone()).collect::<Vec<_>>();
        assert_eq!(shown, [json!("p"), json!("q"), json!("r")]);
        let listed = graph.resume(on(thread), Command::resume(1)).await;
        assert_eq!(refused(listed).pending.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_its_host() {
    let world = World::new();
    {
        let graph = world.one().await;
        let ops = serde_json::from_str(r#"[{ "ask": { "n": 1.10 } }, { "put_results": "a" }]"#).unwrap();
        paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    }
    let host: Host = world.host().await;
    let pending = paused(host.execution(on("t")).await.unwrap());
    assert_eq!(pending[0].interrupt.payload.to_string(), r#"{"n":1.10}"#);
    let execution = host.resume(on("t"), Command::resume(json!([1]))).await.unwrap();
    assert_eq!(execution.status, RunStatus::Completed);
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!([[1]]));
    assert_eq!(world.started(), ["n", "n"]);
}
