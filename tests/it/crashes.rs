//! Processes that die at the worst moment, and what the next one finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdpoint::EngineError;
use holdpoint::model::EffectMode;
use serde_json::{Value, json};

use crate::process::{Desk, KILL_POINTS, finish};
use crate::world::*;

const ASK: &str = r#"{"script": [{"ask": "ok?"}, {"put_results": "a"}]}"#;
const ASK_THEN_SEND: &str = r#"{"script": [
    {"ask": "ok?"}, {"effect": {"name": "e", "key": "k", "input": {"x": 1}}}, {"put_results": "a"}]}"#;

const SEND_TWICE: &str = r#"{"script": [
    {"effect": {"name": "e", "key": "1", "input": null}},
    {"effect": {"name": "e", "key": "2", "input": null}}, {"put_results": "a"}]}"#;

/// What the next process says of the thread, and then of its state once it is answered.
async fn answered(desk: &Desk) -> Value {
    let resumed = desk.say(&["resume", "--thread", "t", r#""yes""#]).await;
    resumed.exit(0);
    desk.say(&["state", "get", "--thread", "t"]).await.exit(0)["state"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn i03_a_crash_between_asking_and_returning_leaves_no_pause_or_a_whole_one() {
    // The commits of a first run: the component, the graph, and then the pause.
    for (point, nth, paused) in [
        ("engine::before_end", 1, false),
        ("store::in_batch", 1, false),
        ("store::before_commit", 3, false),
        ("store::after_commit", 3, true),
        ("engine::after_end", 1, true),
    ] {
        let desk = Desk::new(EffectMode::AtLeastOnce).await;
        let killed = desk.killed_at(point, nth, &desk.start(ASK)).await;
        assert!(killed.was_killed(), "{point}: {killed:#?}");
        let found = desk.say(&["show", "--thread", "t"]).await;
        if paused {
            assert_eq!(found.exit(0)["status"], "interrupted", "{point}");
            assert_eq!(found.document["interrupts"].as_array().unwrap().len(), 1, "{point}");
        } else {
            assert_eq!(found.exit(4)["error"]["kind"], "not-found", "{point}");
            desk.say(&desk.start(ASK)).await.exit(3);
        }
        assert_eq!(answered(&desk).await["a"], json!(["yes"]), "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i22_an_answer_that_was_taken_survives_the_crash_after_it() {
    for (point, sent_before) in
        [("engine::after_intent", 0), ("engine::before_effect", 0), ("engine::after_effect", 1)]
    {
        let desk = Desk::new(EffectMode::AtLeastOnce).await;
        desk.say(&desk.start(ASK_THEN_SEND)).await.exit(3);
        let killed = desk.killed_at(point, 1, &["resume", "--thread", "t", r#""yes""#]).await;
        assert!(killed.was_killed(), "{point}: {killed:#?}");
        assert_eq!(desk.service.received(), sent_before, "{point}");
        assert_eq!(
            desk.say(&["show", "--thread", "t"]).await.document["interrupts"],
            json!([]),
            "{point}: nothing is asked again"
        );
        desk.say(&["continue", "--thread", "t"]).await.exit(0);
        let state = desk.say(&["state", "get", "--thread", "t"]).await;
        assert_eq!(state.exit(0)["state"]["a"][0], "yes", "{point}");
        assert_eq!(desk.service.received(), sent_before + 1, "{point}");
        assert_eq!(desk.service.keys(), 1, "{point}: the same idempotency key both times");
        assert_eq!(
            desk.say(&["continue", "--thread", "t"]).await.exit(4)["error"]["kind"],
            "not-pending",
            "{point}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_not_taken_before_it_is_durable() {
    for point in ["engine::before_intent", "store::in_batch"] {
        let desk = Desk::new(EffectMode::AtLeastOnce).await;
        desk.say(&desk.start(ASK_THEN_SEND)).await.exit(3);
        let killed = desk.killed_at(point, 1, &["resume", "--thread", "t", r#""lost""#]).await;
        assert!(killed.was_killed(), "{point}: {killed:#?}");
        assert_eq!(desk.service.received(), 0, "{point}: nothing was sent for an answer that is not kept");
        assert_eq!(answered(&desk).await["a"][0], "yes", "{point}: the question is still pending");
        assert_eq!(desk.service.received(), 1, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i77_an_effect_in_doubt_is_sent_again_or_asked_about() {
    const SEND: &str = r#"{"script": [
        {"effect": {"name": "e", "key": "k", "input": {"x": 1}}}, {"put_results": "a"}]}"#;
    // It was done, and nobody wrote it down. At least once: the same key again.
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    assert!(desk.killed_at("engine::after_effect", 1, &desk.start(SEND)).await.was_killed());
    desk.say(&["continue", "--thread", "t"]).await.exit(0);
    assert_eq!((desk.service.received(), desk.service.keys()), (2, 1));

    // At most once: a person says whether it was done.
    for (answer, sent, outcome) in [
        (r#"{"done": {"n": 7}}"#, 1, json!({ "ok": { "n": 7 } })),
        (r#"{"not_done": true}"#, 2, json!({ "ok": { "body": { "n": 2 }, "status": 200 } })),
    ] {
        let desk = Desk::new(EffectMode::AtMostOnce).await;
        assert!(desk.killed_at("engine::after_effect", 1, &desk.start(SEND)).await.was_killed());
        let doubt = desk.say(&["continue", "--thread", "t"]).await;
        let question = &doubt.exit(3)["interrupts"][0];
        assert_eq!(question["kind"], "in-doubt");
        assert_eq!(question["payload"]["input"], json!({ "x": 1 }));
        let wrong = desk.say(&["resume", "--thread", "t", r#"{"maybe": 1}"#]).await;
        assert_eq!(wrong.exit(4)["error"]["kind"], "schema");
        desk.say(&["resume", "--thread", "t", answer]).await.exit(0);
        let state = desk.say(&["state", "get", "--thread", "t"]).await;
        assert_eq!(state.exit(0)["state"]["a"][0], outcome);
        assert_eq!((desk.service.received(), desk.service.keys()), (sent, 1), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i77_each_sending_in_doubt_is_asked_about_anew() {
    const SEND: &str = r#"{"script": [
        {"effect": {"name": "e", "key": "k", "input": {"x": 1}}}, {"put_results": "a"}]}"#;
    let desk = Desk::new(EffectMode::AtMostOnce).await;
    assert!(desk.killed_at("engine::after_effect", 1, &desk.start(SEND)).await.was_killed());
    let first = desk.say(&["continue", "--thread", "t"]).await.exit(3)["interrupts"][0]["id"].clone();
    // The answer lets it be sent once more, and that ends in doubt as well.
    let again = ["resume", "--thread", "t", r#"{"not_done": true}"#];
    assert!(desk.killed_at("engine::after_effect", 1, &again).await.was_killed());
    assert_eq!(desk.service.received(), 2);
    let doubt = desk.say(&["continue", "--thread", "t"]).await;
    let second = &doubt.exit(3)["interrupts"][0];
    assert_eq!((&second["kind"], desk.service.received()), (&json!("in-doubt"), 2));
    assert_ne!(second["id"], first);
    desk.say(&["resume", "--thread", "t", r#"{"done": 7}"#]).await.exit(0);
    assert_eq!(desk.service.received(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_of_two_processes_that_answer_at_once_one_wins() {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    let paused = desk.say(&desk.start(ASK_THEN_SEND)).await;
    let id = paused.exit(3)["interrupts"][0]["id"].as_str().unwrap().to_owned();
    let answer = |value: &'static str| desk.spawn(&["resume", "--thread", "t", "--interrupt", &id, value]);
    let (one, two) = (answer("1"), answer("2"));
    let (one, two) = tokio::join!(finish(one), finish(two));
    let (winner, loser, value) = match one.status.code() {
        Some(0) => (&one, &two, 1),
        _ => (&two, &one, 2),
    };
    let winner = winner.exit(0);
    let refused = loser.exit(4);
    assert_eq!(refused["error"]["kind"], "stale", "{refused}");
    assert_eq!(refused["run_id"], winner["run_id"]);
    let state = desk.say(&["state", "get", "--thread", "t"]).await;
    assert_eq!(state.exit(0)["state"]["a"][0], value);
    assert_eq!(desk.service.received(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i84_a_run_that_was_broken_off_goes_on_from_its_last_commit() {
    for signal in ["KILL", "INT"] {
        let desk = Desk::new(EffectMode::AtLeastOnce).await;
        desk.service.silent_at.store(2, Ordering::SeqCst);
        let child = desk.spawn(&desk.start(SEND_TWICE));
        desk.service.wait_for(2).await;
        let mut kill = std::process::Command::new("kill");
        kill.args([&format!("-{signal}"), &child.id().to_string()]);
        assert!(kill.status().unwrap().success());
        let said = finish(child).await;
        match signal {
            "INT" => assert_eq!(said.status.code(), Some(130), "{said:#?}"),
            _ => assert!(said.was_killed()),
        }
        assert_eq!(desk.say(&["show", "--thread", "t"]).await.document["status"], "running", "{signal}");
        let refused = desk.say(&desk.start(ASK)).await;
        assert_eq!(refused.exit(4)["error"]["kind"], "busy", "{signal}");
        // The first is not sent again, the second under its own key.
        desk.say(&["continue", "--thread", "t"]).await.exit(0);
        assert_eq!((desk.service.received(), desk.service.keys()), (3, 2), "{signal}");
        let state = desk.say(&["state", "get", "--thread", "t"]).await;
        let ok = |n: u32| json!({ "ok": { "body": { "n": n }, "status": 200 } });
        assert_eq!(state.exit(0)["state"]["a"], json!([ok(1), ok(3)]), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i84_a_handler_that_panics_ends_the_invocation_and_not_the_host() {
    let world = World::new();
    let panics = Arc::new(AtomicBool::new(true));
    let panicking = panics.clone();
    let host = world
        .builder()
        .database(world.db())
        .effect("f", move |_| {
            let panics = panicking.clone();
            async move {
                assert!(!panics.load(Ordering::SeqCst), "the handler's own bug");
                Ok(json!("sent"))
            }
        })
        .open()
        .await
        .unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let effect = |name| json!({ "effect": { "name": name, "key": "k", "input": null } });
    let ops = json!([effect("e"), effect("f"), { "put_results": "a" }]);
    let broken = graph.invoke(on("t"), script(ops)).await;
    assert!(matches!(broken, Err(EngineError::HandlerPanicked { .. })), "{broken:?}");
    // The host lives, and so does the run.
    completed(graph.invoke(on("other"), script(json!([]))).await.unwrap());
    panics.store(false, Ordering::SeqCst);
    completed(graph.continue_run(on("t")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([{ "ok": { "sent": 1 } }, { "ok": "sent" }]));
    assert_eq!(world.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_make_the_same_database_at_once_all_succeed() {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    let threads = ["1", "2", "3", "4"];
    let run = |thread: &&str| desk.spawn(&["run", "graph.toml", "--thread", thread, "--input", ASK]);
    let children: Vec<_> = threads.iter().map(run).collect();
    for child in children {
        finish(child).await.exit(3);
    }
    let pending = desk.say(&["pending"]).await;
    assert_eq!(pending.exit(0)["threads"].as_array().unwrap().len(), threads.len());
    let left: Vec<_> =
        std::fs::read_dir(desk.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| ["desk.db", "graph.toml"].iter().any(|known| name == known)), "{left:?}");
}

/// Asks, sends, asks, sends. Whatever happens in between, it must come to the same.
const LONG: &str = r#"{"script": [
    {"ask": "first?"}, {"effect": {"name": "e", "key": "1", "input": 1}},
    {"ask": "second?"}, {"effect": {"name": "e", "key": "2", "input": 2}}, {"put_results": "a"}]}"#;

/// Takes the thread from nothing to its end, as somebody would who looks how it stands and does the next
/// thing. One process dies at the `nth` time that it comes by `point`. Whether one did.
async fn to_the_end(desk: &Desk, point: &str, nth: u32) -> bool {
    let mut killed = false;
    for _ in 0..12 {
        let look = desk.say(&["show", "--thread", "t"]).await.document;
        let (id, answer);
        let next = match look["status"].as_str().unwrap_or_else(|| panic!("{look}")) {
            "completed" => return killed,
            "interrupted" => {
                let asked = look["interrupts"].as_array().unwrap();
                assert_eq!(asked.len(), 1, "{look}");
                id = asked[0]["id"].as_str().unwrap().to_owned();
                answer = format!("\"to {}\"", asked[0]["payload"].as_str().unwrap());
                vec!["resume", "--thread", "t", "--interrupt", &id, &answer]
            }
            "running" => vec!["continue", "--thread", "t"],
            _ => {
                assert_eq!(look["error"]["kind"], "not-found", "{look}");
                desk.start(LONG)
            }
        };
        if killed {
            desk.say(&next).await;
        } else {
            killed = desk.killed_at(point, nth, &next).await.was_killed();
        }
    }
    panic!("{point}#{nth}: it never ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_fail_point_changes_nothing_about_the_end() {
    let mut kills = 0;
    for point in KILL_POINTS {
        for nth in 1.. {
            let desk = Desk::new(EffectMode::AtLeastOnce).await;
            let killed = to_the_end(&desk, point, nth).await;
            let state = desk.say(&["state", "get", "--thread", "t"]).await;
            let results = &state.exit(0)["state"]["a"];
            assert_eq!(results[0], "to first?", "{point}#{nth}");
            assert_eq!(results[2], "to second?", "{point}#{nth}");
            let sent_again = u32::from(killed && desk.service.received() == 3);
            assert_eq!(desk.service.received(), 2 + sent_again as usize, "{point}#{nth}");
            assert_eq!(desk.service.keys(), 2, "{point}#{nth}: under the same key");
            if !killed {
                // No process comes by that often: all its times are tried.
                assert!(nth > 1, "nothing comes by {point}");
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 20, "{kills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_input_that_waits_survives_a_crash_and_is_started_once() {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    desk.say(&desk.start(ASK)).await.exit(3);
    let next = r#"{"script": [{"ask": "and now?"}, {"put": {"a": ["next"]}}]}"#;
    let enqueue: Vec<&str> = desk.start(next).into_iter().chain(["--if-busy", "enqueue"]).collect();
    assert_eq!(desk.say(&enqueue).await.exit(0)["interrupts"][0]["payload"], "ok?");
    // The run is over, and the process dies before it looks at what waits.
    let killed = desk.killed_at("engine::after_end", 1, &["resume", "--thread", "t", r#""yes""#]).await;
    assert!(killed.was_killed(), "{killed:#?}");
    assert_eq!(desk.say(&["show", "--thread", "t"]).await.exit(0)["status"], "completed");
    // Two that find it at once: one starts it.
    let all = ["continue", "--all"];
    let (one, other) = tokio::join!(desk.say(&all), desk.say(&all));
    let seen = [one, other].map(|said| said.exit(0)["threads"].as_array().unwrap().len());
    assert!(seen.iter().sum::<usize>() >= 1, "{seen:?}");
    let shown = desk.say(&["show", "--thread", "t"]).await;
    assert_eq!(shown.exit(0)["interrupts"].as_array().unwrap().len(), 1);
    assert_eq!(shown.document["interrupts"][0]["payload"], "and now?");
    let done = desk.say(&["resume", "--thread", "t", "1"]).await;
    assert_eq!(done.exit(0)["state"]["a"], json!(["yes", "next"]));
    assert_eq!(desk.say(&all).await.exit(0)["threads"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i80_a_process_that_was_stopped_cannot_write_after_another_took_over() {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    desk.service.silent_at.store(2, Ordering::SeqCst);
    let stopped = desk.spawn(&desk.start(SEND_TWICE));
    desk.service.wait_for(2).await;
    let signal = |signal: &str| {
        let sent = std::process::Command::new("kill").args([signal, &stopped.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    // Its lease runs out, and another goes on: the effect whose outcome nobody knows goes out again.
    desk.say(&["continue", "--thread", "t"]).await.exit(0);
    let whole = desk.say(&["history", "--thread", "t"]).await.exit(0).clone();
    signal("-CONT");
    let late = finish(stopped).await;
    assert_eq!(late.exit(4)["error"]["kind"], "busy");
    assert_eq!(desk.say(&["history", "--thread", "t"]).await.exit(0), &whole, "it wrote nothing more");
    let state = desk.say(&["state", "get", "--thread", "t"]).await;
    let ok = |n: u32| json!({ "ok": { "body": { "n": n }, "status": 200 } });
    assert_eq!(state.exit(0)["state"]["a"], json!([ok(1), ok(3)]));
    assert_eq!((desk.service.received(), desk.service.keys()), (3, 2));
}
