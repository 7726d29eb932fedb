//! New threads from states of others, and copies.

use std::sync::Arc;

use holdpoint::model::checkpoint::{CheckpointRow, EffectScope, EffectState};
use holdpoint::model::{EffectMode, Kind, TenantId, WayOut};
use holdpoint::{Command, Execution, Graph, GraphSpec, Host, NodeSpec};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::process::Desk;
use crate::world::*;

/// The checkpoints of a thread, the oldest first.
pub async fn history(host: &Host, thread: &str) -> Vec<CheckpointRow> {
    let store = host.store().unwrap();
    let mut all = store.history(&TenantId::default(), &thread.parse().unwrap(), None, 1_000).await.unwrap();
    all.reverse();
    all
}

/// A line of nodes, each an entry but for those that an edge leads to.
fn line(nodes: &[&str]) -> GraphSpec {
    let mut spec = scripted(nodes);
    spec.entry = nodes[0].into();
    for pair in nodes.windows(2) {
        spec = spec.edge(pair[0], pair[1]);
    }
    spec
}

pub fn below(graph: &Graph) -> NodeSpec {
    NodeSpec::subgraph(graph.digest()).reads(&["script", "a"]).writes(&["a"])
}

/// `first` → `sub` → `last`, with `beside` beside `sub`; in `sub`, or as deep as told, `s1` → `s2` → `s3`.
pub async fn nested(host: &Host, depth: usize) -> Graph {
    let mut inner = host.compile(&line(&["s1", "s2", "s3"])).await.unwrap();
    for i in 1..depth {
        let node = format!("sub{i}");
        let mut spec = scripted(&["unused"]).node(&node, below(&inner));
        spec.nodes.remove("unused");
        spec.entry = node.as_str().into();
        inner = host.compile(&spec).await.unwrap();
    }
    let mut spec = scripted(&["first", "beside", "last"]).node("sub", below(&inner));
    spec.entry = "first".into();
    let spec = spec.edge("first", "sub").edge("first", "beside").edge_all(&["sub", "beside"], "last");
    host.compile(&spec).await.unwrap()
}

pub fn nested_input() -> Value {
    let send = |key: &str| json!({ "effect": { "name": "e", "key": key, "input": key } });
    script(json!({
        "first": [send("first"), { "put": { "a": ["first"] } }],
        "beside": [send("beside"), { "ask": "beside" }, { "put": { "a": ["beside"] } }],
        "s1": [send("s1"), { "put": { "a": ["s1"] } }],
        "s2": [{ "ask": "s2" }, { "put_results": "a" }],
        "s3": [send("s3"), { "ask": "s3" }, { "put": { "a": ["s3"] } }],
        "last": [{ "ask": "last" }, { "put_results": "a" }],
    }))
}

/// Answers what is pending with what it asks, one after the other, until nothing is.
pub async fn to_the_end(host: &Host, thread: &str, mut execution: Execution) {
    while let Some(asked) = execution.interrupts.first() {
        let (id, payload) = (asked.interrupt.id, asked.interrupt.payload.clone());
        let answer = Command::answers([(id, json!(format!("to {payload}")))]);
        execution = host.resume(on(thread), answer).await.unwrap();
    }
    completed(execution);
}

#[tokio::test(flavor = "multi_thread")]
async fn i54_an_old_checkpoint_is_refused_and_forked_on_request() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    let ops = json!([{ "ask": 1 }, { "ask": 2 }, { "put_results": "a" }]);
    let first = graph.invoke(on("t"), script(ops)).await.unwrap();
    let old = first.checkpoint_id.unwrap();
    paused(graph.resume(on("t"), Command::resume("one")).await.unwrap());
    let stands = (host.execution(on("t")).await.unwrap(), history(&host, "t").await);

    let stale = refused(graph.resume(on("t"), Command::resume("x").expecting(old)).await);
    assert_eq!((stale.error.kind, stale.checkpoint_id), (Kind::Stale, stands.0.checkpoint_id));
    let way_out = WayOut::Fork { thread: "t".parse().unwrap(), checkpoint: old };
    assert_eq!(stale.error.ways_out, [way_out], "{stale}");

    let fork = paused(host.fork(on("t"), Some(old), "u".parse().unwrap()).await.unwrap());
    assert_eq!(fork[0].interrupt.payload, json!(1), "at the first question again");
    assert_ne!(fork[0].interrupt.id, first.interrupts[0].interrupt.id);
    assert_eq!((host.execution(on("t")).await.unwrap(), history(&host, "t").await), stands);
    paused(host.resume(on("u"), Command::resume("another")).await.unwrap());
    completed(host.resume(on("u"), Command::resume("two")).await.unwrap());
    completed(host.resume(on("t"), Command::resume("too")).await.unwrap());
    assert_eq!(host.state(on("u")).await.unwrap()["a"], json!(["another", "two"]));
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!(["one", "too"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i54_a_fork_makes_a_new_thread_or_none() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    paused(graph.invoke(on("t"), script(json!([{ "ask": 1 }]))).await.unwrap());
    completed(graph.invoke(on("done"), script(json!([{ "put": { "a": [1] } }]))).await.unwrap());
    for to in ["t", "done"] {
        let before = (host.execution(on(to)).await.unwrap(), history(&host, to).await);
        let taken = refused(host.fork(on("t"), None, to.parse().unwrap()).await);
        assert_eq!(taken.error.kind, Kind::Invalid, "{taken}");
        assert_eq!((host.execution(on(to)).await.unwrap(), history(&host, to).await), before);
    }
    // What is over is over in the fork; what was before is done again.
    completed(host.fork(on("done"), None, "over".parse().unwrap()).await.unwrap());
    assert_eq!(host.state(on("over")).await.unwrap(), host.state(on("done")).await.unwrap());
    assert_eq!(world.started().len(), 2);
    let start = history(&host, "done").await[0].checkpoint;
    completed(host.fork(on("done"), Some(start), "again".parse().unwrap()).await.unwrap());
    assert_eq!(host.state(on("again")).await.unwrap(), host.state(on("done")).await.unwrap());
    assert_eq!(world.started().len(), 1);
    // A new run goes on from the fork's state.
    completed(graph.invoke(on("over"), script(json!([{ "put": { "a": [2] } }]))).await.unwrap());
    assert_eq!(host.state(on("over")).await.unwrap()["a"], json!([1, 2]));
    let none = refused(host.fork(on("nobody"), None, "v".parse().unwrap()).await);
    assert_eq!(none.error.kind, Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn i55_a_fork_asks_again_under_new_ids_and_the_first_stays_pending() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q"])).await;
    let host = world.host().await;
    let send = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
    let input = script(json!({
        "p": [send, { "ask": "ok?" }, { "put_results": "a" }],
        "q": [send, { "put": { "c": 1 } }],
    }));
    let first = paused(graph.invoke(on("t"), input).await.unwrap());
    assert_eq!((world.sent(), world.started().len()), (2, 2));

    // At the pause: what is done stays done, the other's half as well.
    let fork = paused(host.fork(on("t"), None, "u".parse().unwrap()).await.unwrap());
    assert_eq!((world.sent(), world.started()), (2, vec!["p".to_owned()]));
    let id = |asked: &holdpoint::PendingInterrupt| {
        (asked.interrupt.id, asked.interrupt.task_id, asked.run_path[0])
    };
    let (was, is) = (id(&first[0]), id(&fork[0]));
    assert!(was.0 != is.0 && was.1 != is.1 && was.2 != is.2);
    // An answer is for one of the two.
    let other = refused(host.resume(on("u"), Command::answers([(was.0, json!("x"))])).await);
    assert_eq!(other.error.kind, Kind::NotPending);
    assert_eq!(paused(host.execution(on("t")).await.unwrap()), first);
    completed(host.resume(on("u"), Command::answers([(is.0, json!("no"))])).await.unwrap());
    completed(host.resume(on("t"), Command::answers([(was.0, json!("yes"))])).await.unwrap());
    for (thread, said) in [("t", "yes"), ("u", "no")] {
        let state = host.state(on(thread)).await.unwrap();
        assert_eq!((&state["a"][1], &state["c"]), (&json!(said), &json!(1)), "{thread}");
        assert_eq!(state["a"][0]["ok"]["sent"].as_u64().map(|n| n <= 2), Some(true), "{thread}");
    }
    assert_eq!(world.sent(), 2);

    // At the boundary before: nothing of the step lies before.
    let boundary = history(&host, "t").await[0].checkpoint;
    world.started();
    let early = paused(host.fork(on("t"), Some(boundary), "v".parse().unwrap()).await.unwrap());
    assert_eq!((early.len(), world.sent(), world.started().len()), (1, 4, 2));
    let keys: std::collections::BTreeSet<_> =
        world.sent.lock().unwrap().iter().map(|request| request.idempotency_key.clone()).collect();
    assert_eq!(keys.len(), 4, "no thread's effects are taken for another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn i55_what_lies_before_a_fork_is_not_done_again_and_what_does_not_is() {
    let world = World::new();
    let host = world.host().await;
    let graph = nested(&host, 1).await;
    let execution = graph.invoke(on("t"), nested_input()).await.unwrap();
    to_the_end(&host, "t", execution).await;
    let known = async |thread: &str, node: &str, key: &str| {
        let scope = EffectScope { node: node.into(), effect: "e".parse().unwrap(), key: key.into() };
        let store = host.store().unwrap();
        let row = store.effect(&TenantId::default(), &thread.parse().unwrap(), &scope).await.unwrap();
        row.is_some_and(|row| matches!(row.state, EffectState::Known(_)))
    };
    let all = history(&host, "t").await;
    let runs = host.store().unwrap().runs(&TenantId::default(), &"t".parse().unwrap()).await.unwrap();
    let child = runs.iter().find(|run| !run.namespace.is_empty()).unwrap().run;
    let at = |child_run: bool, step: u32| {
        let at = all.iter().find(|row| (row.run == child) == child_run && row.step == step).unwrap();
        at.checkpoint
    };
    // Before anything; after `first`; in the subgraph after `s1`, and before it.
    for (name, at, before) in [
        ("a", at(false, 0), [false, false, false, false]),
        ("b", at(false, 1), [true, false, false, false]),
        ("c", at(true, 1), [true, false, true, false]),
        ("d", at(true, 0), [true, false, false, false]),
        ("e", at(true, 2), [true, false, true, false]),
        ("f", at(false, 2), [true, true, true, true]),
    ] {
        let sent = world.sent();
        let fork = host.fork(on("t"), Some(at), name.parse().unwrap()).await.unwrap();
        to_the_end(&host, name, fork).await;
        let again = before.iter().filter(|before| !**before).count();
        assert_eq!(world.sent() - sent, again, "{name}");
        for (node, key) in [("first", "first"), ("beside", "beside"), ("sub/s1", "s1"), ("sub/s3", "s3")] {
            assert!(known(name, node, key).await, "{name}: {node}");
        }
    }
}

/// Without the subgraph nodes above them.
fn names_of(started: Vec<String>) -> Vec<String> {
    let name = |path: String| path.rsplit('/').next().map(str::to_owned).unwrap_or_default();
    let mut names: Vec<String> = started.into_iter().map(name).collect();
    names.sort();
    names
}

/// The nodes that a fork runs before it waits.
async fn runs_of(world: &World, host: &Host, at: &CheckpointRow, to: &str) -> (Vec<String>, Execution) {
    world.started();
    let fork = host.fork(on("t"), Some(at.checkpoint), to.parse().unwrap()).await.unwrap();
    (names_of(world.started()), fork)
}

#[tokio::test(flavor = "multi_thread")]
async fn i56_a_fork_inside_a_subgraph_starts_there() {
    for depth in [1, 3] {
        let world = World::new();
        let host = world.host().await;
        let graph = nested(&host, depth).await;
        let first = graph.invoke(on("t"), nested_input()).await.unwrap();
        let asked = paused(first.clone());
        let of_s2 = asked.iter().find(|asked| asked.interrupt.payload == json!("s2")).unwrap();
        let before_s2 = {
            let run = *of_s2.run_path.last().unwrap();
            let all = history(&host, "t").await;
            all.iter().find(|row| row.run == run && row.step == 1).unwrap().clone()
        };
        assert_eq!(of_s2.namespace.len(), depth);
        // While it waits there: `s1`, `first` and the subgraph nodes' earlier steps are not run again.
        let (started, fork) = runs_of(&world, &host, &before_s2, "u").await;
        assert_eq!(started, ["beside", "s2"], "depth {depth}: beside waits as well, and asks anew");
        let again = paused(fork.clone());
        assert_eq!(again.len(), 2);
        let new = again.iter().find(|asked| asked.interrupt.payload == json!("s2")).unwrap();
        assert_eq!(new.namespace, of_s2.namespace);
        assert!(new.run_path.iter().zip(&of_s2.run_path).all(|(new, old)| new != old));
        assert_eq!(host.execution(on("t")).await.unwrap().interrupts, first.interrupts);
        to_the_end(&host, "u", fork).await;
        to_the_end(&host, "t", first).await;
        assert_eq!(host.state(on("u")).await.unwrap(), host.state(on("t")).await.unwrap());

        // And after all is over.
        let (started, fork) = runs_of(&world, &host, &before_s2, "v").await;
        assert!(!started.iter().any(|node| node == "s1" || node == "first"), "depth {depth}: {started:?}");
        assert!(started.iter().any(|node| node == "s2"), "depth {depth}: {started:?}");
        to_the_end(&host, "v", fork).await;
        assert_eq!(host.state(on("v")).await.unwrap(), host.state(on("t")).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i56_a_fork_at_the_pause_takes_subgraphs_as_they_stand() {
    let world = World::new();
    let host = world.host().await;
    let graph = nested(&host, 2).await;
    let asked = paused(graph.invoke(on("t"), nested_input()).await.unwrap());
    // `beside` is done and held, `s3` waits.
    let answers = asked.iter().map(|asked| (asked.interrupt.id, json!("to it")));
    let waits = paused(host.resume(on("t"), Command::answers(answers)).await.unwrap());
    assert_eq!(waits.len(), 1);
    let sent = world.sent();
    world.started();
    let copy = paused(host.copy(on("t"), "u".parse().unwrap()).await.unwrap());
    assert_eq!(names_of(world.started()), ["s3"]);
    assert_eq!(world.sent(), sent, "what s3 had done is on record in the copy");
    assert_eq!(
        (&copy[0].namespace, &copy[0].interrupt.payload),
        (&waits[0].namespace, &waits[0].interrupt.payload)
    );
    assert_ne!(copy[0].interrupt.id, waits[0].interrupt.id);
    for thread in ["u", "t"] {
        let stands = host.execution(on(thread)).await.unwrap();
        to_the_end(&host, thread, stands).await;
    }
    assert_eq!(host.state(on("u")).await.unwrap(), host.state(on("t")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i56_from_any_checkpoint_a_fork_comes_to_the_same_end() {
    let world = World::new();
    let host = world.host().await;
    let graph = nested(&host, 2).await;
    let execution = graph.invoke(on("t"), nested_input()).await.unwrap();
    to_the_end(&host, "t", execution).await;
    let right = host.state(on("t")).await.unwrap();
    let all = history(&host, "t").await;
    assert!(all.len() > 10, "{}", all.len());
    for (i, row) in all.iter().enumerate() {
        let name = format!("fork {i}");
        let fork = host.fork(on("t"), Some(row.checkpoint), name.parse().unwrap()).await.unwrap();
        to_the_end(&host, &name, fork).await;
        assert_eq!(host.state(on(&name)).await.unwrap(), right, "{name}: {row:?}");
        // A fork is a thread like any other.
        let of_it = history(&host, &name).await;
        let again = format!("{name} again");
        let middle = of_it[of_it.len() / 2].checkpoint;
        let fork = host.fork(on(&name), Some(middle), again.parse().unwrap()).await.unwrap();
        to_the_end(&host, &again, fork).await;
        assert_eq!(host.state(on(&again)).await.unwrap(), right, "{again}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i55_a_gate_that_was_passed_stays_passed_where_its_task_goes_on() {
    let world = World::new();
    let host = world.host().await;
    let inner = host.compile(&line(&["s1", "s2"])).await.unwrap();
    let mut sub = below(&inner);
    sub.interrupt_before = true;
    let mut q = script_node();
    q.interrupt_after = true;
    let mut spec = scripted(&["q"]).node("sub", sub).node("q", q);
    spec.entry = holdpoint::model::OneOrMany::Many(vec!["sub".into(), "q".into()]);
    let graph = host.compile(&spec).await.unwrap();
    let input = script(json!({
        "q": [{ "put": { "a": ["q"] } }], "s1": [], "s2": [{ "ask": "s2" }, { "put_results": "a" }],
    }));
    let mut stands = graph.invoke(on("t"), input).await.unwrap();
    while let Some(gate) = stands.interrupts.iter().find(|asked| asked.kind.is_gate()) {
        let target = holdpoint::ResumeTarget::run(stands.run_id).interrupt(gate.interrupt.id);
        stands = host.resume_targeted(target, Command::proceed()).await.unwrap();
    }
    assert_eq!(paused(stands.clone()).len(), 1);
    let run = *stands.interrupts[0].run_path.last().unwrap();
    let all = history(&host, "t").await;
    let inside = all.iter().find(|row| row.run == run && row.step == 1).unwrap().checkpoint;
    for (name, at) in [("head", None), ("inside", Some(inside))] {
        let fork = paused(host.fork(on("t"), at, name.parse().unwrap()).await.unwrap());
        assert_eq!(fork.len(), 1, "{name}: {fork:?}");
        assert_eq!(fork[0].interrupt.payload, json!("s2"), "{name}");
        completed(host.resume(on(name), Command::resume("yes")).await.unwrap());
        assert_eq!(host.state(on(name)).await.unwrap()["a"], json!(["yes", "q"]), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i55_what_was_said_to_a_run_before_is_said_to_its_fork() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    let ops = json!([{ "ask": "ok?" }, { "steering": true }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    host.steer(on("t"), "ann", "be brief").await.unwrap();
    paused(host.fork(on("t"), None, "u".parse().unwrap()).await.unwrap());
    completed(host.resume(on("u"), Command::resume("yes")).await.unwrap());
    let said = json!([{ "actor": "ann", "text": "be brief" }]);
    assert_eq!(host.state(on("u")).await.unwrap()["a"], json!(["yes", said]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i55_a_failed_run_is_tried_anew_in_its_fork() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q"])).await;
    let host = world.host().await;
    let input = script(json!({ "p": [{ "put": { "c": 1 } }], "q": [{ "fail": "no" }] }));
    assert_eq!(failed(&graph.invoke(on("t"), input).await.unwrap()), Kind::NodeFailed);
    world.started();
    assert_eq!(failed(&host.fork(on("t"), None, "u".parse().unwrap()).await.unwrap()), Kind::NodeFailed);
    assert_eq!(world.started(), ["q"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i59_what_is_no_checkpoint_of_the_thread_is_never_the_latest() {
    let world = World::new();
    let graph = world.one().await;
    let host = world.host().await;
    for thread in ["t", "other"] {
        paused(graph.invoke(on(thread), script(json!([{ "ask": 1 }]))).await.unwrap());
    }
    let theirs = history(&host, "other").await[0].checkpoint;
    let nowhere = "00000000-0000-7000-8000-000000000000".parse().unwrap();
    for at in [theirs, nowhere] {
        let refusal = refused(host.fork(on("t"), Some(at), "u".parse().unwrap()).await);
        assert_eq!(refusal.error.kind, Kind::NotFound);
        let way_out = WayOut::Checkpoints { thread: "t".parse().unwrap() };
        assert_eq!(refusal.error.ways_out, [way_out], "{refusal}");
        assert_eq!(refused(host.execution(on("u")).await).error.kind, Kind::NotFound, "nothing was made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i54_a_thread_that_runs_can_be_forked_where_it_was_before() {
    let world = World::new();
    let (begun, go): (Arc<Notify>, Arc<Notify>) = Default::default();
    let (tell, wait) = (begun.clone(), go.clone());
    let wait_in_f = move |_| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok(json!(null))
        }
    };
    let host = world.builder().database(world.db()).effect("f", wait_in_f).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    completed(graph.invoke(on("t"), script(json!([{ "put": { "a": [1] } }]))).await.unwrap());
    let end = history(&host, "t").await.last().unwrap().checkpoint;
    let ops = json!([{ "effect": { "name": "f", "key": "k", "input": 1 } }, { "put": { "a": [2] } }]);
    let running = tokio::spawn(async move { graph.invoke(on("t"), script(ops)).await });
    begun.notified().await;
    // From another process, as far as the two know.
    let other = world.host().await;
    let busy = refused(other.fork(on("t"), None, "u".parse().unwrap()).await);
    assert_eq!(busy.error.kind, Kind::Busy);
    completed(other.fork(on("t"), Some(end), "u".parse().unwrap()).await.unwrap());
    assert_eq!(other.state(on("u")).await.unwrap()["a"], json!([1]));
    go.notify_one();
    completed(running.await.unwrap().unwrap());
    assert_eq!(other.state(on("t")).await.unwrap()["a"], json!([1, 2]));
}

const ASK: &str = r#"{"script": [
    {"effect": {"name": "e", "key": "k", "input": 1}}, {"ask": "ok?"}, {"put_results": "a"}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn i55_an_effect_in_doubt_is_asked_about_in_the_fork_too() {
    const SEND: &str = r#"{"script": [
        {"effect": {"name": "e", "key": "k", "input": {"x": 1}}}, {"put_results": "a"}]}"#;
    let desk = Desk::new(EffectMode::AtMostOnce).await;
    assert!(desk.killed_at("engine::after_effect", 1, &desk.start(SEND)).await.was_killed());
    // Nobody knows yet how far it is.
    let busy = desk.say(&["fork", "--thread", "t", "--to", "u"]).await;
    assert_eq!(busy.exit(4)["error"]["kind"], "busy");
    desk.say(&["continue", "--thread", "t"]).await.exit(3);
    let fork = desk.say(&["fork", "--thread", "t", "--to", "u"]).await;
    assert_eq!(fork.exit(3)["interrupts"][0]["kind"], "in-doubt");
    desk.say(&["resume", "--thread", "u", r#"{"done": 7}"#]).await.exit(0);
    assert_eq!(desk.service.received(), 1);
    assert_eq!(desk.say(&["show", "--thread", "t"]).await.exit(0)["interrupts"][0]["kind"], "in-doubt");
}

#[tokio::test(flavor = "multi_thread")]
async fn i54_a_kill_while_forking_leaves_no_thread_or_a_whole_one() {
    let mut kills = 0;
    for point in [
        "engine::before_fork",
        "store::in_batch",
        "store::before_commit",
        "store::after_commit",
        "engine::after_fork",
        "engine::before_end",
        "engine::after_end",
    ] {
        for nth in 1.. {
            let desk = Desk::new(EffectMode::AtLeastOnce).await;
            desk.say(&desk.start(ASK)).await.exit(3);
            let first = desk.say(&["show", "--thread", "t"]).await.exit(0).clone();
            let fork = ["fork", "--thread", "t", "--to", "u"];
            let killed = desk.killed_at(point, nth, &fork).await.was_killed();
            let found = desk.say(&["show", "--thread", "u"]).await;
            let fork = match found.document["status"].as_str().unwrap() {
                "interrupted" => found,
                "running" => desk.say(&["continue", "--thread", "u"]).await,
                _ => {
                    assert_eq!(found.exit(4)["error"]["kind"], "not-found", "{point}#{nth}");
                    desk.say(&fork).await
                }
            };
            assert_eq!(fork.document["status"], "interrupted", "{point}#{nth}");
            assert_eq!(desk.say(&["show", "--thread", "t"]).await.document, first, "{point}#{nth}");
            for thread in ["t", "u"] {
                let answer = format!("{thread:?}");
                desk.say(&["resume", "--thread", thread, &answer]).await.exit(0);
                let state = desk.say(&["state", "get", "--thread", thread]).await;
                assert_eq!(state.exit(0)["state"]["a"][1], thread, "{point}#{nth}");
            }
            assert_eq!(desk.service.received(), 1, "{point}#{nth}");
            if !killed {
                assert!(nth > 1, "nothing comes by {point}");
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 10, "{kills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i54_forks_and_copies_are_commands() {
    let desk = Desk::new(EffectMode::AtLeastOnce).await;
    let first = desk.say(&desk.start(ASK)).await.exit(3).clone();
    let listed = desk.say(&["history", "--thread", "t"]).await.exit(0).clone();
    let start = listed["checkpoints"].as_array().unwrap().last().unwrap();
    assert_eq!((&start["kind"], &start["namespace"]), (&json!("boundary"), &json!([])));
    let start = start["checkpoint_id"].as_str().unwrap();
    let fork = desk.say(&["fork", "--thread", "t", "--checkpoint", start, "--to", "u"]).await;
    assert_eq!(fork.exit(3)["thread"], "u");
    let copy = desk.say(&["copy", "--thread", "t", "--to", "v"]).await;
    assert_eq!(copy.exit(3)["thread"], "v");
    assert_eq!(desk.service.received(), 2, "the fork began before it, the copy did not");
    let taken = desk.say(&["copy", "--thread", "t", "--to", "u"]).await;
    assert_eq!(taken.exit(2)["error"]["kind"], "invalid");
    assert_eq!(taken.document["run_id"], first["run_id"], "it says how the first stands");
    let none = desk.say(&["fork", "--thread", "nobody", "--to", "w"]).await;
    assert_eq!(none.exit(4)["error"]["kind"], "not-found");
    let before = desk.say(&["history", "--thread", "u", "--before", start]).await;
    assert_eq!(before.exit(4)["error"]["kind"], "not-found");
}
