//! What is the same when a node runs again, what is pinned meanwhile, and what is said when it is not.

use std::path::Path;

use holdpoint::model::checkpoint::InterruptState;
use holdpoint::model::ids::InterruptId;
use holdpoint::model::{Kind, TenantId, WayOut};
use holdpoint::{Command, Execution, GraphSpec, RunStatus};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

use crate::world::*;

/// An outside hand gives the nodes of all threads another program, so that they do something else when
/// they run again.
async fn tamper(world: &World, ops: Value) {
    let url = format!("sqlite://{}", world.db().display());
    let mut database = SqliteConnection::connect(&url).await.unwrap();
    let changed = sqlx::query("UPDATE channel_values SET value = ?1 WHERE channel = 'script'")
        .bind(ops.to_string())
        .execute(&mut database)
        .await
        .unwrap();
    assert_eq!(changed.rows_affected(), 1);
    database.close().await.unwrap();
}

/// Runs `before` to its pause, answers `answers`, lets the node do `after` instead, and answers the last
/// question: it must not reach the node, and all answers must be kept.
async fn diverged(before: Value, answers: &[&str], after: Value) -> Value {
    let world = World::new();
    let mut graph = world.one().await;
    let mut execution = graph.invoke(on("t"), script(before)).await.unwrap();
    let mut given: Vec<(InterruptId, &str)> = Vec::new();
    for (i, &answer) in answers.iter().enumerate() {
        given.push((execution.interrupts[0].interrupt.id, answer));
        if i + 1 == answers.len() {
            tamper(&world, after.clone()).await;
            // Another process: this one goes on from what it wrote.
            graph = world.one().await;
        }
        execution = graph.resume(on("t"), Command::resume(answer)).await.unwrap();
    }
    assert_eq!((execution.status, &execution.interrupts), (RunStatus::Diverged, &Vec::new()));
    assert_eq!(failed(&execution), Kind::Diverged);

    let host = world.host().await;
    assert_eq!(host.execution(on("t")).await.unwrap(), execution);
    assert_eq!(host.state(on("t")).await.unwrap().get("a"), None);
    assert_eq!(world.sent(), 0, "nothing was delivered");
    for (id, answer) in given {
        let (_, kept) = host.store().unwrap().interrupt(&TenantId::default(), id).await.unwrap().unwrap();
        let InterruptState::Answered(kept) = kept.state else { panic!("{kept:?}") };
        assert_eq!(kept.value.value(), json!(answer));
    }
    Value::Object(execution.error.unwrap().more)
}

fn asked(call: &Value) -> &Value {
    assert_eq!(call["call"], json!("interrupt"));
    &call["question"]["payload"]
}

/// What a node does with an answer that it was given.
fn use_it() -> Value {
    json!({ "effect": { "name": "e", "key": "k", "input": "used" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn i70_two_questions_that_swap_places_diverge() {
    let before = json!([{ "ask": "pay?" }, { "ask": "delete?" }, { "put_results": "a" }]);
    let after = json!([{ "ask": "delete?" }, use_it(), { "ask": "pay?" }, { "put_results": "a" }]);
    let said = diverged(before, &["yes", "no"], after).await;
    assert_eq!(said["index"], json!(0));
    assert_eq!((asked(&said["expected"]), asked(&said["actual"])), (&json!("pay?"), &json!("delete?")));
}

#[tokio::test(flavor = "multi_thread")]
async fn i71_a_payload_that_is_not_the_same_diverges() {
    for (before, after) in [
        (json!({ "at": 1 }), json!({ "at": 2 })),
        (json!("a"), json!(["a"])),
        (json!({ "a": null }), json!({})),
        (json!(1), json!(true)),
    ] {
        let said = diverged(json!([{ "ask": before }]), &["yes"], json!([{ "ask": after }, use_it()])).await;
        assert_eq!(said["index"], json!(0));
        assert_eq!((asked(&said["expected"]), asked(&said["actual"])), (&before, &after));
    }
    let schema = json!([{ "ask": 1, "schema": { "type": "string" } }, use_it()]);
    assert_eq!(diverged(json!([{ "ask": 1 }]), &["yes"], schema).await["index"], json!(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn i71_clock_random_and_hash_order_of_std_are_the_same_on_replay() {
    let world = World::new();
    let graph = world.one().await;
    let sources = json!([
        { "now": true }, { "monotonic": true }, { "sleep_ms": 3 }, { "hash_order": true }, { "random": 16 },
        { "insecure_random": 16 }, { "insecure_seed": true }, { "now": true }, { "monotonic": true },
        { "ask_results": true },
    ]);
    let ops = json!([{ "repeat": { "times": 3, "ops": sources } }, { "put_results": "a" }]);
    let mut shown = Vec::new();
    for thread in ["t", "u"] {
        let mut execution = graph.invoke(on(thread), script(ops.clone())).await.unwrap();
        let mut last = Value::Null;
        for answer in 0..3 {
            last = paused(execution)[0].interrupt.payload.clone();
            execution = world.host().await.resume(on(thread), Command::resume(answer)).await.unwrap();
        }
        completed(execution);
        // What the node saw in its fourth attempt is what it showed in its third.
        let state = graph.state(on(thread)).await.unwrap();
        let results = state["a"].as_array().unwrap();
        let seen = last.as_array().unwrap();
        assert_eq!(&results[..seen.len()], seen);
        assert_eq!((seen.len(), results.len()), (26, 27));
        shown.push(seen.clone());
    }
    // And not because nothing moves: two threads see different numbers, and later is later.
    let [t, u] = shown.try_into().unwrap();
    assert!(t[2] != u[2] && t[3] != u[3] && t[3] != t[12], "{t:?} {u:?}");
    assert!(t[0].as_u64() < t[6].as_u64() && t[6].as_u64() < t[9].as_u64(), "{t:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i72_a_node_that_does_not_ask_again_diverges() {
    let before = json!([{ "ask": "one?" }, { "ask": "two?" }, { "ask": "three?" }, { "put_results": "a" }]);
    for (after, index, unread) in [
        (json!([{ "ask": "one?" }, { "put_results": "a" }]), 1, vec!["two?", "three?"]),
        (json!([{ "put": { "a": ["done"] } }]), 0, vec!["one?", "two?", "three?"]),
        (json!([{ "fail": "no" }]), 0, vec!["one?", "two?", "three?"]),
    ] {
        let said = diverged(before.clone(), &["1", "2", "3"], after).await;
        assert_eq!((&said["index"], &said["actual"]), (&json!(index), &json!(null)));
        assert_eq!(asked(&said["expected"]), &json!(unread[0]));
        let listed: Vec<_> = said["unread"].as_array().unwrap().iter().map(asked).collect();
        assert_eq!(listed, unread);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_a_second_attempt_reads_the_snapshot_of_the_first() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q"])).await;
    let seed = json!([{ "put": { "a": [0], "d": { "k": 0 } } }]);
    completed(graph.invoke(on("t"), script(seed)).await.unwrap());
    let read = json!([
        { "read": "a" }, { "read": "c" }, { "read": "d" }, { "ask_results": true },
        { "read": "a" }, { "read": "c" }, { "read": "d" }, { "ask": "again?" }, { "put_results": "a" },
    ]);
    let write = json!([{ "put": { "a": ["q"], "c": 7, "d": { "k": 1 } } }]);
    let input =
        json!({ "script": { "p": read, "q": write }, "c": serde_json::from_str::<Value>("1.10").unwrap() });
    let asked = paused(graph.invoke(on("t"), input).await.unwrap());
    let first = asked[0].interrupt.payload.to_string();
    assert_eq!(first, r#"[[0,0],1.10,{"k":0}]"#);
    paused(world.host().await.resume(on("t"), Command::resume(1)).await.unwrap());
    completed(world.host().await.resume(on("t"), Command::resume(2)).await.unwrap());
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"].to_string(), r#"[0,0,[0,0],1.10,{"k":0},1,[0,0],1.10,{"k":0},2,"q"]"#);
    assert_eq!((&state["c"], &state["d"]), (&json!(8.1), &json!({ "k": 1 })));
}

#[tokio::test(flavor = "multi_thread")]
async fn i57_sends_and_waiting_edges_outlast_a_pause() {
    let world = World::new();
    let routed = || script_node().routes(&[("x", "x")]);
    let spec = scripted(&["p", "q"])
        .node("p", routed())
        .node("r", script_node())
        .node("s", script_node())
        .node("x", script_node())
        .edge("x", "r")
        .edge_all(&["q", "r"], "s");
    let graph = world.graph(&spec).await;
    let ask = json!([{ "context": true }, { "ask": "x" }, { "put_results": "a" }]);
    let send = |value: Value| json!({ "send": { "label": "x", "arg": { "script": ask, "for": value } } });
    let (one, other) = (serde_json::from_str("1.10").unwrap(), json!(null));
    let ops = json!({
        // q arrives at the waiting edge in the first step; r comes to it two pauses later.
        "p": [{ "ask": "p" }, send(one), send(other)],
        "q": [],
        "r": [{ "ask": "r" }],
        "s": [{ "put": { "a": ["s"] } }],
    });
    let mut execution = graph.invoke(on("t"), script(ops)).await.unwrap();
    for (asking, step) in [(vec!["p"], 0), (vec!["x", "x"], 1), (vec!["r"], 2)] {
        let pending = paused(execution);
        assert_eq!(pending.iter().map(|i| i.interrupt.node.as_str()).collect::<Vec<_>>(), asking);
        let answers = pending.iter().map(|i| (i.interrupt.id, json!(step)));
        execution = world.host().await.resume(on("t"), Command::answers(answers)).await.unwrap();
    }
    completed(execution);
    assert_eq!(world.started(), ["p", "q", "p", "x", "x", "x", "x", "r", "r", "s"]);
    let state = graph.state(on("t")).await.unwrap();
    let args: Vec<_> = [0, 2].iter().map(|i| state["a"][i]["arg"]["for"].to_string()).collect();
    assert_eq!(args, ["1.10", "null"]);
    assert_eq!(state["a"][4], json!("s"));
}

/// The same component with a section more that nobody reads: as if it had been built again.
pub fn rebuilt(component: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(component).unwrap();
    bytes.extend([0, 6, 5]);
    bytes.extend(b"again");
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn i73_a_run_resumes_on_the_component_that_it_began_with() {
    let world = World::new();
    let file = world.dir.path().join("node.wasm");
    std::fs::copy(component("script"), &file).unwrap();
    let mut spec = scripted(&["n"]);
    spec.nodes.get_mut("n").unwrap().component = Some(file.display().to_string());
    let ops = json!([{ "ask": 1 }, { "put_results": "a" }]);
    let first = world.graph(&spec).await;
    let old = paused(first.invoke(on("t"), script(ops.clone())).await.unwrap());

    std::fs::write(&file, rebuilt(&component("script"))).unwrap();
    // Nothing compiled is left of either: the bytes must come from the database.
    let cache = world.dir.path().join("elsewhere");
    let host = world.builder().database(world.db()).cache(cache).open().await.unwrap();
    let second = host.compile(&spec).await.unwrap();
    assert_ne!(second.digest(), first.digest());
    completed(second.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(second.state(on("t")).await.unwrap()["a"], json!(["yes"]));
    assert_eq!(host.sandbox().counters().compiles, 2);

    let new = paused(second.invoke(on("u"), script(ops)).await.unwrap());
    let mut components = Vec::new();
    for task in [old[0].interrupt.task_id, new[0].interrupt.task_id] {
        let (_, task) = host.store().unwrap().task(&TenantId::default(), task).await.unwrap().unwrap();
        components.push(task.component);
    }
    let digest = |graph: &holdpoint::Graph| graph.compiled().nodes.values().next().unwrap().work.digest();
    assert_eq!(components, [digest(&first), digest(&second)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i74_a_run_resumes_on_the_graph_that_it_began_with() {
    let world = World::new();
    let file = world.dir.path().join("graph.toml");
    let write = |spec: &GraphSpec| std::fs::write(&file, spec.to_toml()).unwrap();
    let read = |file: &Path| GraphSpec::from_file(file).unwrap();
    let then = |spec: GraphSpec, next: &str| spec.edge("n", next).node(next, script_node());
    write(&then(scripted(&["n"]), "after"));
    let ops = json!({ "n": [{ "ask": 1 }], "after": [{ "put": { "a": ["after"] } }] });
    let graph = world.graph(&read(&file)).await;
    for thread in ["renamed", "removed", "deleted"] {
        paused(graph.invoke(on(thread), script(ops.clone())).await.unwrap());
    }
    let ended = async |thread: &str, resumed: Result<Execution, holdpoint::EngineError>| {
        completed(resumed.unwrap());
        assert_eq!(world.host().await.state(on(thread)).await.unwrap()["a"], json!(["after"]));
        assert_eq!(world.started().last().unwrap(), "after");
    };
    for (thread, spec) in [("renamed", then(scripted(&["n"]), "later")), ("removed", scripted(&["m"]))] {
        write(&spec);
        let changed = world.graph(&read(&file)).await;
        ended(thread, changed.resume(on(thread), Command::resume("yes")).await).await;
    }
    std::fs::remove_file(&file).unwrap();
    ended("deleted", world.host().await.resume(on("deleted"), Command::resume("yes")).await).await;
}

/// Another version of the host, with other determinism settings, might have written a task's journal.
async fn begun_elsewhere(world: &World, by: i64) {
    let url = format!("sqlite://{}", world.db().display());
    let mut database = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("UPDATE tasks SET settings = settings + ?1").bind(by).execute(&mut database).await.unwrap();
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn i75_other_determinism_settings_are_an_error_of_their_own_and_use_up_no_answer() {
    let world = World::new();
    let graph = world.one().await;
    let asked =
        paused(graph.invoke(on("t"), script(json!([{ "ask": 1 }, { "put_results": "a" }]))).await.unwrap());
    begun_elsewhere(&world, 1).await;
    world.started();
    // In another process: this one goes on from what it wrote.
    let error = refused(world.host().await.resume(on("t"), Command::resume("yes")).await).error;
    assert_eq!(error.kind, Kind::EngineMismatch);
    assert!(world.started().is_empty(), "it is not even instantiated");
    let cut = WayOut::CutJournal { task: Some(asked[0].interrupt.task_id) };
    assert_eq!(error.ways_out, [cut], "{error}");
    // Nor does an upgrade to the same component say that it fits.
    let upgrade = holdpoint::engine::Upgrade { cuts: Vec::new(), actor: None };
    let host = world.host().await;
    assert_eq!(refused(host.upgrade(on("t"), &graph, upgrade).await).error.kind, Kind::Diverged);
    // The host that has those settings takes the answer.
    begun_elsewhere(&world, -1).await;
    completed(world.host().await.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["yes"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i75_a_task_can_begin_anew_under_other_determinism_settings() {
    let world = World::new();
    let graph = world.one().await;
    let asked = paused(graph.invoke(on("t"), script(json!([{ "ask": 1 }]))).await.unwrap()).remove(0);
    begun_elsewhere(&world, 1).await;
    let cut = holdpoint::engine::Cut { task: asked.interrupt.task_id, entry: 0 };
    let upgrade = holdpoint::engine::Upgrade { cuts: vec![cut], actor: None };
    let anew = paused(world.host().await.upgrade(on("t"), &graph, upgrade).await.unwrap()).remove(0);
    assert_ne!(anew.interrupt.id, asked.interrupt.id);
    completed(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i75_another_engine_compiles_again_and_lets_the_replay_judge() {
    let world = World::new();
    let graph = world.one().await;
    let ops = json!([{ "ask": 1 }, { "random": 4 }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    // What another engine compiled is of no use: nothing compiled is left that this one takes.
    let cache = world.dir.path().join("of-another-engine");
    let host = world.builder().database(world.db()).cache(cache).open().await.unwrap();
    completed(host.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(host.sandbox().counters().compiles, 1);
}
