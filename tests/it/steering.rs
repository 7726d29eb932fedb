//! What people say beside their answers.

use holdpoint::model::{Kind, TenantId};
use holdpoint::{Command, ResumeTarget};
use serde_json::{Value, json};

use crate::world::*;

fn said(actor: &str, text: &str) -> Value {
    json!({ "actor": actor, "text": text })
}

#[tokio::test(flavor = "multi_thread")]
async fn i38_an_instruction_with_an_answer_is_not_part_of_it() {
    let world = World::new();
    let graph = world.one().await;
    let ops = json!([{ "ask": "ok?" }, { "steering": true }, { "ask": "sure?" }, { "put_results": "a" }]);
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap()).remove(0);
    let command = Command::resume("yes").by("maria").steer("be brief");
    paused(graph.resume(on("t"), command).await.unwrap());
    // Two records.
    let host = world.host().await;
    let store = host.store().unwrap();
    let rows = store.steering(&TenantId::default(), &"t".parse().unwrap(), &asked.run_path).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].actor.as_str(), rows[0].text.as_str()), ("maria", "be brief"));
    assert_eq!((rows[0].interrupt, rows[0].task), (Some(asked.interrupt.id), Some(asked.interrupt.task_id)));
    // It is seen again on replay, in another host.
    completed(host.resume(on("t"), Command::resume("sure")).await.unwrap());
    let state = host.state(on("t")).await.unwrap();
    assert_eq!(state["a"], json!(["yes", [said("maria", "be brief")], "sure"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i83_an_instruction_is_seen_after_the_answer_that_it_came_with_and_not_before() {
    let world = World::new();
    let graph = world.one().await;
    let look = json!({ "steering": true });
    let ops =
        json!([look, { "ask": 1 }, look, { "ask": 2 }, look, { "ask": 3 }, look, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    paused(graph.resume(on("t"), Command::resume("one")).await.unwrap());
    paused(world.host().await.resume(on("t"), Command::resume("two").by("ann").steer("new")).await.unwrap());
    completed(world.host().await.resume(on("t"), Command::resume("three")).await.unwrap());
    let new = json!([said("ann", "new")]);
    let right = json!([[], "one", [], "two", new, "three", new]);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], right);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_for_one_task_is_not_told_to_another() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q"])).await;
    let ops = json!([{ "ask": "ok?" }, { "steering": true }, { "put_results": "a" }]);
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let target = |i: usize| ResumeTarget::run(asked[i].run_path[0]).interrupt(asked[i].interrupt.id);
    paused(graph.resume_targeted(target(0), Command::resume("p").steer("for p")).await.unwrap());
    completed(graph.resume_targeted(target(1), Command::resume("q")).await.unwrap());
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"], json!(["p", [said("", "for p")], "q", []]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_while_it_waits_and_not_when_it_is_over() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    let ops = json!([{ "ask": "ok?" }, { "steering": true }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    assert_eq!(host.steer(on("t"), "ann", "first").await.unwrap().interrupts.len(), 1);
    host.steer(on("t"), "ben", "second").await.unwrap();
    let long = "x".repeat(65 * 1024);
    let limit = refused(host.steer(on("t"), "ann", &long).await);
    assert_eq!((limit.error.kind, &limit.error.more["limit"]), (Kind::Limit, &json!("instruction_bytes")));
    completed(graph.resume(on("t"), Command::resume("yes").by("cy").steer("third")).await.unwrap());
    let all = json!([said("ann", "first"), said("ben", "second"), said("cy", "third")]);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["yes", all]));
    let over = refused(host.steer(on("t"), "ann", "too late").await);
    assert_eq!(over.error.kind, Kind::NotPending);
    assert_eq!(refused(host.steer(on("none"), "ann", "x").await).error.kind, Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_on_record_whether_a_node_was_told() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    let ops = json!([{ "ask": "ok?" }, { "steering": true }, { "ask": "sure?" }]);
    let run = graph.invoke(on("t"), script(ops)).await.unwrap().run_id;
    host.steer(on("t"), "ann", "first").await.unwrap();
    let told = async || -> Vec<bool> {
        let rows = host.store().unwrap().steering(&TenantId::default(), &"t".parse().unwrap(), &[run]).await;
        rows.unwrap().iter().map(|row| row.delivered_at.is_some()).collect()
    };
    assert_eq!(told().await, [false]);
    paused(graph.resume(on("t"), Command::resume("yes").steer("second")).await.unwrap());
    assert_eq!(told().await, [true, true]);
    host.steer(on("t"), "ann", "third").await.unwrap();
    completed(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
    // It never looked again.
    assert_eq!(told().await, [true, true, false]);
}
