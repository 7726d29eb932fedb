//! What threads no longer need, dropped; and threads that nobody needs.

use std::path::Path;

use holdpoint::engine::WhileRunning;
use holdpoint::model::{EffectMode, Kind};
use holdpoint::{Command, Graph, Host, RunStatus};
use serde_json::{Value, json};

use crate::forks::{history, nested, nested_input, to_the_end};
use crate::process::Desk;
use crate::world::*;

/// What is refused of a command that has no execution.
#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, holdpoint::EngineError>) -> holdpoint::Refused {
    match result {
        Err(holdpoint::EngineError::Refused(refused)) => *refused,
        other => panic!("not refused: {other:?}"),
    }
}

/// `n` goes on to itself, so many times, and then asks.
async fn rounds(host: &Host) -> Graph {
    let spec = scripted(&["n"]).node("n", script_node().routes(&[("x", "n"), ("y", "end")]));
    host.compile(&spec).await.unwrap()
}

/// So many runs on thread `t`, each of which appends a kilobyte; the last one asks.
async fn past(host: &Host, runs: usize) {
    let graph = rounds(host).await;
    for i in 1..runs {
        let ops = json!([{ "put": { "a": [format!("{i} {}", "x".repeat(1_000))], "c": 1 } }]);
        completed(graph.invoke(on("t"), script(ops)).await.unwrap());
    }
    let ops = json!([{ "ask": "ok?" }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i59_a_pruned_checkpoint_is_an_error_of_its_own() {
    let world = World::new();
    let host = world.host().await;
    past(&host, 20).await;
    let all = history(&host, "t").await;
    let (state, stands) = (host.state(on("t")).await.unwrap(), host.execution(on("t")).await.unwrap());
    let pruned = host.prune(on("t"), 3).await.unwrap();
    let left = history(&host, "t").await;
    assert_eq!(pruned.checkpoints as usize, all.len() - left.len());
    // The present one with its pause, and two before.
    assert_eq!(left, all[all.len() - 4..]);
    assert_eq!(host.state(on("t")).await.unwrap(), state);
    assert_eq!(host.execution(on("t")).await.unwrap(), stands);
    assert_eq!(host.prune(on("t"), 3).await.unwrap(), Default::default(), "nothing is left to drop");

    for gone in &all[..all.len() - 4] {
        let refusal = refused(host.fork(on("t"), Some(gone.checkpoint), "u".parse().unwrap()).await);
        assert_eq!(refusal.error.kind, Kind::Pruned, "{refusal}");
        assert_eq!(refusal.checkpoint_id, stands.checkpoint_id, "it says what is the latest");
        let refusal = refused(host.resume(on("t"), Command::resume("x").expecting(gone.checkpoint)).await);
        assert_eq!(refusal.error.kind, Kind::Pruned, "{refusal}");
        let refusal = self::refusal(host.checkpoint(on("t"), gone.checkpoint).await);
        assert_eq!(refusal.error.kind, Kind::Pruned);
    }
    assert_eq!(refused(host.execution(on("u")).await).error.kind, Kind::NotFound, "nothing was made");
    // One that is younger than all that was dropped was never there.
    let late = holdpoint::model::CheckpointId::fresh();
    assert_eq!(
        refused(host.fork(on("t"), Some(late), "u".parse().unwrap()).await).error.kind,
        Kind::NotFound
    );
    let stale = refused(host.resume(on("t"), Command::resume("x").expecting(left[0].checkpoint)).await);
    assert_eq!(stale.error.kind, Kind::Stale);

    for (i, row) in left.iter().enumerate() {
        let name = format!("fork {i}");
        host.fork(on("t"), Some(row.checkpoint), name.parse().unwrap()).await.unwrap();
    }
    completed(host.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(host.state(on("t")).await.unwrap()["a"].as_array().unwrap().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pruned_at_any_pause_changes_nothing_about_the_end() {
    let right = {
        let world = World::new();
        let host = world.host().await;
        let execution = nested(&host, 2).await.invoke(on("t"), nested_input()).await.unwrap();
        to_the_end(&host, "t", execution).await;
        host.state(on("t")).await.unwrap()
    };
    for keep in [1, 2, 5] {
        let world = World::new();
        let host = world.host().await;
        let mut execution = nested(&host, 2).await.invoke(on("t"), nested_input()).await.unwrap();
        let mut dropped = 0;
        for round in 0.. {
            dropped += host.prune(on("t"), keep).await.unwrap().checkpoints;
            assert_eq!(host.execution(on("t")).await.unwrap(), execution, "keep {keep}, round {round}");
            // All that is left can be forked, and comes to the same.
            for (i, row) in history(&host, "t").await.iter().enumerate() {
                let name = format!("{round}/{i}");
                let fork = host.fork(on("t"), Some(row.checkpoint), name.parse().unwrap()).await.unwrap();
                to_the_end(&host, &name, fork).await;
                assert_eq!(host.state(on(&name)).await.unwrap(), right, "keep {keep}: fork {name}");
            }
            let Some(asked) = execution.interrupts.first() else { break };
            let answer = json!(format!("to {}", asked.interrupt.payload));
            let answer = Command::answers([(asked.interrupt.id, answer)]);
            execution = host.resume(on("t"), answer).await.unwrap();
        }
        completed(execution);
        assert_eq!(host.state(on("t")).await.unwrap(), right, "keep {keep}");
        assert!(dropped > 0 || keep == 5, "keep {keep}: {dropped}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pruned_is_not_done_again() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    let send = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }]);
    for _ in 0..3 {
        completed(graph.invoke(on("t"), script(send.clone())).await.unwrap());
    }
    assert_ne!(host.prune(on("t"), 1).await.unwrap().tasks, 0);
    completed(graph.invoke(on("t"), script(send.clone())).await.unwrap());
    completed(host.fork(on("t"), None, "u".parse().unwrap()).await.unwrap());
    completed(graph.invoke(on("u"), script(send)).await.unwrap());
    assert_eq!(world.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vacuum_after_a_prune_makes_the_file_small_and_cuts_the_log() {
    let world = World::new();
    let host = world.host().await;
    past(&host, 300).await;
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let log = world.dir.path().join("holdpoint.db-wal");
    // Each thread has the whole of it once more.
    for i in 0..4 {
        host.copy(on("t"), format!("t{i}").parse().unwrap()).await.unwrap();
    }
    let state = host.state(on("t")).await.unwrap();
    host.vacuum().await.unwrap();
    let full = bytes(&world.db());
    for i in 0..4 {
        host.delete(on(&format!("t{i}")), WhileRunning::Refuse).await.unwrap();
    }
    assert_ne!(host.prune(on("t"), 1).await.unwrap().values, 0);
    host.vacuum().await.unwrap();
    assert!(bytes(&world.db()) + 4 * 300_000 < full, "{} of {full}", bytes(&world.db()));
    assert_eq!(bytes(&log), 0);
    assert_eq!(host.state(on("t")).await.unwrap(), state);
    completed(host.resume(on("t"), Command::resume("yes")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_thread_is_gone_and_its_name_is_free() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    let ops = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "ask": 1 }]);
    let asked = paused(graph.invoke(on("t"), script(ops.clone())).await.unwrap());
    let other = paused(graph.invoke(on("other"), script(ops.clone())).await.unwrap());
    host.delete(on("t"), WhileRunning::Refuse).await.unwrap();
    assert_eq!(refused(host.execution(on("t")).await).error.kind, Kind::NotFound);
    assert_eq!(refusal(host.delete(on("t"), WhileRunning::BreakOff).await).error.kind, Kind::NotFound);
    let store = host.store().unwrap();
    let tenant = holdpoint::model::TenantId::default();
    assert_eq!(store.interrupt(&tenant, asked[0].interrupt.id).await.unwrap(), None);
    assert_eq!(store.task(&tenant, asked[0].interrupt.task_id).await.unwrap(), None);
    assert_eq!(store.run(&tenant, asked[0].run_path[0]).await.unwrap(), None);
    assert_eq!(paused(host.execution(on("other")).await.unwrap()), other);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    assert_eq!(world.sent(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_runs_is_deleted_only_by_force() {
    let world = World::new();
    let (begun, go) =
        (std::sync::Arc::new(tokio::sync::Notify::new()), std::sync::Arc::new(tokio::sync::Notify::new()));
    let (tell, wait) = (begun.clone(), go.clone());
    let host = world
        .builder()
        .database(world.db())
        .effect("e", move |_| {
            let (tell, wait) = (tell.clone(), wait.clone());
            async move {
                tell.notify_one();
                wait.notified().await;
                Ok(json!(null))
            }
        })
        .open()
        .await
        .unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ops = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }]);
    let running = tokio::spawn(async move { graph.invoke(on("t"), script(ops)).await });
    begun.notified().await;
    // From here and from elsewhere.
    for host in [&host, &world.host().await] {
        assert_eq!(refusal(host.delete(on("t"), WhileRunning::Refuse).await).error.kind, Kind::Busy);
        assert_eq!(host.execution(on("t")).await.unwrap().status, RunStatus::Running);
    }
    world.host().await.delete(on("t"), WhileRunning::BreakOff).await.unwrap();
    go.notify_one();
    let ended = running.await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(refused(host.execution(on("t")).await).error.kind, Kind::NotFound);
}

const SEND: &str = r#"{"script": [{"put": {"a": [1]}}, {"effect": {"name": "e", "key": "k", "input": 1}}]}"#;
const ASK: &str = r#"{"script": [{"ask": "ok?"}, {"put_results": "a"}]}"#;

async fn desk() -> Desk {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    for _ in 0..3 {
        desk.say(&desk.start(SEND)).await.exit(0);
    }
    desk.say(&desk.start(ASK)).await.exit(3);
    desk
}

fn checkpoints(document: &Value) -> usize {
    document["checkpoints"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_pruning_drops_all_that_was_to_go_or_nothing() {
    let mut kills = 0;
    for point in ["store::in_batch", "store::before_commit", "store::after_commit"] {
        for nth in 1.. {
            let desk = desk().await;
            let all = checkpoints(desk.say(&["history", "--thread", "t"]).await.exit(0));
            let killed =
                desk.killed_at(point, nth, &["prune", "--thread", "t", "--keep", "1"]).await.was_killed();
            let left = checkpoints(desk.say(&["history", "--thread", "t"]).await.exit(0));
            let done = !killed || point == "store::after_commit";
            assert_eq!(left, if done { 2 } else { all }, "{point}#{nth}");
            desk.say(&["resume", "--thread", "t", "2"]).await.exit(0);
            let state = desk.say(&["state", "get", "--thread", "t"]).await;
            assert_eq!(state.exit(0)["state"]["a"], json!([1, 1, 1, 2]), "{point}#{nth}");
            if !killed {
                assert!(nth > 1, "nothing comes by {point}");
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 5, "{kills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_deleting_leaves_the_thread_whole_or_gone() {
    for (point, gone) in
        [("store::in_batch", false), ("store::before_commit", false), ("store::after_commit", true)]
    {
        let desk = desk().await;
        assert!(
            desk.killed_at(point, 1, &["delete", "--thread", "t", "--yes"]).await.was_killed(),
            "{point}"
        );
        if gone {
            assert_eq!(desk.say(&["show", "--thread", "t"]).await.exit(4)["error"]["kind"], "not-found");
        } else {
            desk.say(&["resume", "--thread", "t", "2"]).await.exit(0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_and_deleting_are_commands() {
    let desk = desk().await;
    let pruned = desk.say(&["prune", "--thread", "t", "--keep", "1", "--vacuum"]).await;
    let dropped = &pruned.exit(0)["dropped"];
    assert_eq!((&dropped["checkpoints"], &dropped["tasks"]), (&json!(6), &json!(3)), "{dropped}");
    assert_eq!(desk.say(&["prune", "--thread", "t"]).await.exit(0)["dropped"]["checkpoints"], 0);
    desk.say(&["prune", "--thread", "t", "--keep", "0"]).await.exit(2);
    assert_eq!(desk.say(&["prune", "--thread", "u"]).await.exit(4)["error"]["kind"], "not-found");

    let asked = desk.say(&["delete", "--thread", "t"]).await;
    let message = asked.exit(2)["error"]["message"].as_str().unwrap();
    assert!(message.contains("1 question") && message.contains("--yes"), "{message}");
    assert_eq!(desk.say(&["show", "--thread", "t"]).await.exit(0)["status"], "interrupted");
    assert_eq!(desk.say(&["delete", "--thread", "t", "--yes"]).await.exit(0)["deleted"], true);
    assert_eq!(desk.say(&["show", "--thread", "t"]).await.exit(4)["error"]["kind"], "not-found");
    assert_eq!(desk.say(&["delete", "--thread", "t", "--yes"]).await.exit(4)["error"]["kind"], "not-found");
}
