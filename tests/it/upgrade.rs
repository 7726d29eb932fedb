//! Another graph for a run that waits.

use holdpoint::engine::{Cut, Upgrade};
use holdpoint::model::{Kind, TenantId, WayOut};
use holdpoint::{Command, GraphSpec, NodeSpec};
use serde_json::json;

use crate::replay::rebuilt;
use crate::world::*;

/// A node that reads its `c` and its `d` from these channels.
fn reading(c: &str, d: &str) -> GraphSpec {
    let mut spec = scripted(&["n"]);
    let node = script_node().reads_as(&[("script", "script"), ("c", c), ("d", d)]);
    spec.nodes.insert("n".into(), node);
    spec
}

fn cut(task: holdpoint::model::TaskId, entry: usize) -> Upgrade {
    Upgrade { cuts: vec![Cut { task, entry }], actor: Some("maria".into()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn i73_a_run_changes_to_a_new_component_if_its_replay_fits() {
    let world = World::new();
    let file = world.dir.path().join("node.wasm");
    std::fs::write(&file, rebuilt(&component("script"))).unwrap();
    let host = world.host().await;
    let child = |path: &str| {
        let mut spec = scripted(&["x"]);
        spec.nodes.get_mut("x").unwrap().component = Some(path.to_owned());
        spec
    };
    let whole = async |path: &str| {
        let below = host.compile(&child(path)).await.unwrap().digest();
        let mut spec =
            scripted(&["n"]).node("s", NodeSpec::subgraph(below).reads(&["script"]).writes(&["a"]));
        spec.nodes.get_mut("n").unwrap().component = Some(path.to_owned());
        spec.entry = holdpoint::model::OneOrMany::Many(["n", "s"].map(String::from).to_vec());
        host.compile(&spec).await.unwrap()
    };
    let old = whole(&component("script")).await;
    let new = whole(&file.display().to_string()).await;
    assert_ne!(old.digest(), new.digest());
    let ops = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "ask": "?" }, { "put_results": "a" }]);
    let before = old.invoke(on("t"), script(ops)).await.unwrap();
    let asked = paused(before.clone());
    let after = host.upgrade(on("t"), &new, Upgrade::default()).await.unwrap();
    assert_eq!(after.interrupts, asked, "the questions are the same");
    assert_ne!(after.checkpoint_id, before.checkpoint_id);
    let digest = new.compiled().nodes.values().next().unwrap().work.digest();
    for pending in &asked {
        let task = host.store().unwrap().task(&TenantId::default(), pending.interrupt.task_id).await.unwrap();
        assert_eq!(task.unwrap().1.component, digest);
    }
    let answers = Command::answers(asked.iter().map(|p| (p.interrupt.id, json!(p.interrupt.node))));
    completed(world.host().await.resume(on("t"), answers).await.unwrap());
    assert_eq!(world.sent(), 2, "one for each node, and none for the replays");
    let row = host.store().unwrap().run(&TenantId::default(), before.run_id).await.unwrap().unwrap().1;
    assert_eq!(row.graph, new.digest());
    let over = refused(host.upgrade(on("t"), &new, Upgrade::default()).await);
    assert_eq!(over.error.kind, Kind::NotPending);
}

#[tokio::test(flavor = "multi_thread")]
async fn i73_a_replay_that_does_not_fit_changes_nothing_unless_it_is_cut() {
    let world = World::new();
    let host = world.host().await;
    let (old, new) =
        (host.compile(&reading("c", "d")).await.unwrap(), host.compile(&reading("d", "c")).await.unwrap());
    let effect = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
    let ops = json!([effect, { "read": "c" }, { "ask_results": true }, { "put_results": "a" }]);
    let input = json!({ "script": ops, "c": 3, "d": { "x": 1 } });
    let before = old.invoke(on("t"), input).await.unwrap();
    let asked = paused(before.clone()).remove(0);
    let task = asked.interrupt.task_id;
    let refusal = refused(host.upgrade(on("t"), &new, Upgrade::default()).await);
    assert_eq!((refusal.error.kind, &refusal.pending), (Kind::Diverged, &before.interrupts));
    let told = &refusal.error.more["tasks"][0];
    assert_eq!(
        (&told["node"], &told["task_id"], &told["error"]["index"]),
        (&json!("n"), &json!(task), &json!(1))
    );
    assert_ne!(told["error"]["expected"], told["error"]["actual"]);
    assert_eq!(refusal.error.ways_out, [WayOut::CutJournal { task: None }]);
    assert_eq!(host.execution(on("t")).await.unwrap(), before);
    // What is before the cut must still fit; there is nothing behind the end to cut.
    assert_eq!(refused(host.upgrade(on("t"), &new, cut(task, 2)).await).error.kind, Kind::Diverged);
    let stranger = before.interrupts[0].interrupt.task_id;
    assert_eq!(stranger, task);
    let nobody = holdpoint::model::TaskId(before.run_id.0);
    assert_eq!(refused(host.upgrade(on("t"), &new, cut(nobody, 0)).await).error.kind, Kind::NotFound);

    let anew = paused(host.upgrade(on("t"), &new, cut(task, 1)).await.unwrap()).remove(0);
    assert_ne!(anew.interrupt.id, asked.interrupt.id);
    assert_eq!(anew.interrupt.payload, json!([{ "ok": { "sent": 1 } }, { "x": 1 }]));
    let late = refused(new.resume(on("t"), Command::answers([(asked.interrupt.id, json!(1))])).await);
    assert_eq!(late.error.kind, Kind::Stale);
    assert!(late.error.message.contains("cut at entry 1"), "{}", late.error.message);
    completed(world.host().await.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(world.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_keeps_a_run_on_its_graph() {
    let world = World::new();
    let host = world.host().await;
    let old = host.compile(&scripted(&["n"])).await.unwrap();
    let new = host.compile(&scripted(&["m"])).await.unwrap();
    let before = old.invoke(on("t"), script(json!([{ "ask": 1 }]))).await.unwrap();
    let refusal = refused(host.upgrade(on("t"), &new, Upgrade::default()).await);
    assert_eq!(refusal.error.kind, Kind::Diverged);
    assert!(refusal.error.message.contains("no node n"), "{}", refusal.error.message);
    assert_eq!(host.execution(on("t")).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_finished_task_goes_on_to_and_wrote_must_be_in_the_new_graph() {
    let world = World::new();
    let host = world.host().await;
    // `p` is done, has written `a`, and goes on to `r`; `q` asks.
    let with = |spec: GraphSpec, route: bool| {
        let p = script_node().routes(if route { &[("x", "r")] } else { &[] });
        let spec = spec.node("p", p).node("q", script_node());
        if route { spec.node("r", script_node()) } else { spec }
    };
    let old = host.compile(&with(scripted(&["p", "q"]), true)).await.unwrap();
    let ops = json!({ "p": [{ "put": { "a": ["p"] } }, { "go": "x" }], "q": [{ "ask": "?" }], "r": [{ "put": { "a": ["r"] } }] });
    let before = old.invoke(on("t"), script(ops)).await.unwrap();
    let gone = with(scripted(&["p", "q"]), false);
    let other = {
        let mut spec = with(scripted(&["p", "q"]), true);
        spec.channels.remove("a");
        let spec = spec.channel("a", holdpoint::Reducer::Replace);
        GraphSpec { entry: "q".into(), ..spec }.edge("q", "p")
    };
    for (spec, names) in [(gone, "node r"), (other, "channel a")] {
        let new = host.compile(&spec).await.unwrap();
        let refusal = refused(host.upgrade(on("t"), &new, Upgrade::default()).await);
        assert_eq!(refusal.error.kind, Kind::Diverged);
        assert!(refusal.error.message.contains(names), "{}", refusal.error.message);
        assert_eq!(host.execution(on("t")).await.unwrap(), before);
    }
    completed(old.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(old.state(on("t")).await.unwrap()["a"], json!(["p", "r"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_of_a_new_graph_hold_what_has_not_begun_and_no_pause_is_without_a_question() {
    let world = World::new();
    let host = world.host().await;
    // Two levels, the lower one asking; gates come on both levels, before and after.
    let graph = async |below: (bool, bool), above: (bool, bool)| {
        let mut child = scripted(&["x", "y"]);
        child.entry = "x".into();
        let mut child = child.edge("x", "y");
        for node in ["x", "y"] {
            let node = child.nodes.get_mut(node).unwrap();
            (node.interrupt_before, node.interrupt_after) = below;
        }
        let digest = host.compile(&child).await.unwrap().digest();
        let mut node = NodeSpec::subgraph(digest).reads(&["script"]).writes(&["a"]);
        (node.interrupt_before, node.interrupt_after) = above;
        let mut spec = scripted(&["unused"]).node("s", node);
        spec.nodes.remove("unused");
        spec.entry = "s".into();
        host.compile(&spec).await.unwrap()
    };
    let ops = json!([{ "ask": "?" }, { "put_results": "a" }]);
    let all = [(false, false), (true, false), (false, true), (true, true)];
    for (i, (from, to)) in all.into_iter().flat_map(|from| all.map(|to| (from, to))).enumerate() {
        let (old, new) = (graph(from, from).await, graph(to, to).await);
        let thread = format!("t{i}");
        let mut execution = old.invoke(on(&thread), script(ops.clone())).await.unwrap();
        let mut turn = 0;
        while execution.status == holdpoint::RunStatus::Interrupted {
            assert!(!execution.interrupts.is_empty(), "{from:?} to {to:?}: {execution:#?}");
            if turn == 1 {
                execution = host.upgrade(on(&thread), &new, Upgrade::default()).await.unwrap();
            }
            turn += 1;
            let Some(asked) = execution.interrupts.first() else { continue };
            let target = holdpoint::ResumeTarget::run(execution.run_id).interrupt(asked.interrupt.id);
            let command = if asked.kind.is_gate() { Command::proceed() } else { Command::resume("A") };
            execution = host.resume_targeted(target, command).await.unwrap();
            assert!(turn < 30, "{execution:#?}");
        }
        completed(execution);
        assert_eq!(host.state(on(&thread)).await.unwrap()["a"], json!(["A", "A"]), "{from:?} to {to:?}");
    }
}
