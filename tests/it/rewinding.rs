//! Going on from an earlier state, on the same thread.

use holdpoint::engine::{Onward, Rewind, StateUpdate};
use holdpoint::model::{CheckpointId, EffectMode, Kind, RunStatus};
use holdpoint::{Command, GraphSpec, Host};
use serde_json::json;

use crate::forks::{history, nested, nested_input};
use crate::process::Desk;
use crate::world::*;

fn line() -> GraphSpec {
    let mut spec = scripted(&["n", "m"]);
    spec.entry = "n".into();
    spec.edge("n", "m")
}

/// The boundary at this step.
async fn boundary(host: &Host, thread: &str, step: u32) -> CheckpointId {
    let is_it = |row: &&holdpoint::model::checkpoint::CheckpointRow| {
        row.step == step && row.kind == holdpoint::model::checkpoint::CheckpointKind::Boundary
    };
    history(host, thread).await.iter().find(is_it).unwrap().checkpoint
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_outside_is_not_done_again_on_the_same_thread() {
    let world = World::new();
    let (graph, host) = (world.graph(&line()).await, world.host().await);
    let send = json!({ "effect": { "name": "e", "key": "k", "input": "x" } });
    let ops =
        script(json!({ "n": [{ "put": { "c": 1 } }], "m": [send, { "ask": 1 }, { "put_results": "a" }] }));
    let first = graph.invoke(on("t"), ops).await.unwrap();
    let back = boundary(&host, "t", 1).await;
    let again = host.rewind(on("t"), Rewind::to(back)).await.unwrap();
    assert_eq!(again.status, RunStatus::Interrupted);
    assert_ne!(first.run_id, again.run_id);
    let late = refused(
        host.resume_targeted(
            holdpoint::ResumeTarget::run(first.run_id).interrupt(first.interrupts[0].interrupt.id),
            Command::resume("late"),
        )
        .await,
    );
    assert_eq!(late.error.kind, Kind::Stale);
    completed(host.resume(on("t"), Command::resume("now")).await.unwrap());
    assert_eq!(world.sent(), 1);
    let state = host.state(on("t")).await.unwrap();
    assert_eq!((&state["a"], &state["c"]), (&json!([{ "ok": { "sent": 1 } }, "now"]), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_written_into_and_held_and_the_branch_that_was_left_can_be_gone_back_to() {
    let world = World::new();
    let (graph, host) = (world.graph(&line()).await, world.host().await);
    let ops = script(json!({ "n": [{ "put": { "a": ["draft"] } }], "m": [{ "put": { "a": ["sent"] } }] }));
    let done = graph.invoke(on("t"), ops).await.unwrap();
    world.started();
    let back = boundary(&host, "t", 1).await;
    let update =
        StateUpdate { values: json!({ "a": ["edited"] }), onward: Onward::Hold, ..StateUpdate::default() };
    let rewind = Rewind { update: Some(update), ..Rewind::to(back) };
    let held = host.rewind(on("t"), rewind).await.unwrap();
    assert_eq!(world.started(), Vec::<String>::new());
    assert_eq!(held.interrupts[0].kind.as_str(), "before");
    // Held also by another process.
    let other = world.host().await;
    assert_eq!(other.sweep().await.unwrap().len(), 0);
    assert_eq!(other.execution(on("t")).await.unwrap().status, RunStatus::Interrupted);
    completed(other.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(other.state(on("t")).await.unwrap()["a"], json!(["draft", "edited", "sent"]));
    // The end of the first branch is a state like any other.
    completed(host.rewind(on("t"), Rewind::to(done.checkpoint_id.unwrap())).await.unwrap());
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!(["draft", "sent"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn new_input_goes_into_an_earlier_state() {
    let world = World::new();
    let (graph, host) = (world.graph(&line()).await, world.host().await);
    let ops = |c: i64| script(json!({ "n": [{ "put": { "c": c } }], "m": [] }));
    completed(graph.invoke(on("t"), ops(1)).await.unwrap());
    let first = host.execution(on("t")).await.unwrap().checkpoint_id.unwrap();
    completed(graph.invoke(on("t"), ops(10)).await.unwrap());
    completed(graph.invoke(on("t").from(first), ops(100)).await.unwrap());
    assert_eq!(host.state(on("t")).await.unwrap()["c"], json!(101));
    let newest = history(&host, "t").await;
    assert!(newest.iter().any(|row| row.step == 0 && row.parent == Some(first)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_a_subgraph_is_taken_up_inside_it() {
    let world = World::new();
    let host = world.host().await;
    let graph = nested(&host, 1).await;
    let first = graph.invoke(on("t"), nested_input()).await.unwrap();
    let s2 = first.interrupts.iter().find(|asked| asked.interrupt.node.as_str() == "s2").unwrap();
    let answer = Command::answers([(s2.interrupt.id, json!("wrong"))]);
    paused(host.resume(on("t"), answer).await.unwrap());
    let sent = world.sent();
    // Back to where `s2` asked: it asks again, `first` and `s1` are done, and `beside` waits as it did.
    let back = host.rewind(on("t"), Rewind::to(s2.checkpoint_id)).await.unwrap();
    let nodes: Vec<&str> = back.interrupts.iter().map(|asked| asked.interrupt.node.as_str()).collect();
    assert!(nodes.contains(&"s2") && nodes.contains(&"beside") && !nodes.contains(&"s3"), "{nodes:?}");
    let update = StateUpdate { values: json!({}), ..StateUpdate::default() };
    let refusal =
        refused(host.rewind(on("t"), Rewind { update: Some(update), ..Rewind::to(s2.checkpoint_id) }).await);
    assert_eq!(refusal.error.kind, Kind::Invalid);
    crate::forks::to_the_end(&host, "t", back).await;
    assert_eq!(world.sent(), sent, "nothing was sent twice, and nothing was left out");
    let state = host.state(on("t")).await.unwrap();
    assert!(state["a"].to_string().contains("to \\\"s2\\\""), "{state}");
    assert!(!state["a"].to_string().contains("wrong"), "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_runs_or_a_checkpoint_that_is_not_there_is_refused() {
    let world = World::new();
    let (graph, host) = (world.graph(&line()).await, world.host().await);
    completed(graph.invoke(on("t"), script(json!([]))).await.unwrap());
    completed(graph.invoke(on("u"), script(json!([]))).await.unwrap());
    let others = boundary(&host, "u", 1).await;
    let refusal = refused(host.rewind(on("t"), Rewind::to(others)).await);
    assert_eq!(refusal.error.kind, Kind::NotFound);
    let gone = boundary(&host, "t", 0).await;
    host.prune(on("t"), 1).await.unwrap();
    assert_eq!(refused(host.rewind(on("t"), Rewind::to(gone)).await).error.kind, Kind::Pruned);
    assert_eq!(refused(graph.invoke(on("t").from(gone), script(json!([]))).await).error.kind, Kind::Pruned);
}

#[tokio::test(flavor = "multi_thread")]
async fn going_back_is_a_command() {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    let ops = script(json!([
        { "effect": { "name": "e", "key": "k", "input": 1 } }, { "ask": "?" }, { "put_results": "a" }
    ]))
    .to_string();
    let first = desk.say(&desk.start(&ops)).await.exit(3).clone();
    let old = first["interrupts"][0]["id"].as_str().unwrap();
    let listed = desk.say(&["history", "--thread", "t"]).await.exit(0).clone();
    let start = listed["checkpoints"].as_array().unwrap().last().unwrap()["checkpoint_id"].as_str().unwrap();
    let back = |more: &[&'static str]| [&["rewind", "--thread", "t", "--checkpoint", start], more].concat();
    let again = desk.say(&back(&["--as", "maria"])).await.exit(3).clone();
    assert_eq!((&again["thread"], &again["status"]), (&json!("t"), &json!("interrupted")));
    assert_ne!(again["run_id"], first["run_id"]);
    let late = desk.say(&["resume", "--thread", "t", "--interrupt", old, "1"]).await.exit(4).clone();
    assert_eq!(late["error"]["kind"], "stale");
    assert!(late["error"]["message"].as_str().unwrap().contains("by maria"), "{late}");
    assert_eq!(desk.service.received(), 1, "what was done outside stays done");
    assert_eq!(desk.say(&["resume", "--thread", "t", "1"]).await.exit(0)["status"], "completed");

    let held = desk.say(&back(&["--set", r#"{"a":["edited"]}"#, "--hold"])).await.exit(3).clone();
    assert_eq!(held["interrupts"][0]["kind"], "before");
    assert_eq!(held["state"]["a"], json!(["edited"]));
    desk.say(&["resume", "--thread", "t", "--proceed"]).await.exit(3);
    let bad = desk.say(&back(&["--hold"])).await;
    bad.exit(2);
    let nowhere = desk.say(&["rewind", "--thread", "t", "--checkpoint", old]).await.exit(4).clone();
    assert_eq!((&nowhere["error"]["kind"], &nowhere["status"]), (&json!("not-found"), &json!("interrupted")));
}
