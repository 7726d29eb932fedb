//! Graphs within graphs: child runs, what goes into them and comes out, and how they are answered.

use holdpoint::model::ids::RunId;
use holdpoint::model::{ErrorRecord, Kind, PendingChildren, PendingInterrupt, TenantId};
use holdpoint::{Command, GraphSpec, Host, NodeSpec, Reducer, ResumeTarget, RunStatus};
use serde_json::{Value, json};

use crate::world::*;

/// A subgraph node that is given the script and `a`, and gives back `a` and `c`.
fn subgraph(digest: impl ToString) -> NodeSpec {
    NodeSpec::subgraph(digest).agent("helper").reads(&["script", "a", "c"]).writes(&["a", "c"])
}

/// Nodes `x` and then `y`.
fn line() -> GraphSpec {
    let mut spec = scripted(&["x", "y"]);
    spec.entry = "x".into();
    spec.edge("x", "y")
}

/// A graph with the node `p` and the subgraph nodes `s`, `t`, each of which runs `child`.
async fn family(host: &Host, child: &GraphSpec) -> holdpoint::Graph {
    let child = host.compile(child).await.unwrap().digest();
    let mut spec = scripted(&["p"]).node("s", subgraph(child)).node("t", subgraph(child));
    spec.entry = holdpoint::model::OneOrMany::Many(["p", "s", "t"].map(String::from).to_vec());
    host.compile(&spec).await.unwrap()
}

/// `p` does nothing unless told to; `x` passes; `y` asks.
fn asks_in_children() -> Value {
    json!({
        "p": [{ "put": { "a": ["p"] } }],
        "x": [{ "put": { "a": ["x"], "c": 1 } }],
        "y": [{ "ask": "child?" }, { "put_results": "a" }],
    })
}

fn of<'a>(pending: &'a [PendingInterrupt], path: &[&str]) -> &'a PendingInterrupt {
    let mut found = pending.iter().filter(|p| p.namespace == path);
    let first = found.next().unwrap_or_else(|| panic!("nothing at {path:?}: {pending:#?}"));
    assert!(found.next().is_none());
    first
}

fn asked_at(pending: &PendingInterrupt) -> ResumeTarget {
    ResumeTarget::run(*pending.run_path.last().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_takes_what_it_is_given_and_brings_what_it_changed() {
    let world = World::new();
    let host = world.host().await;
    let child = line().channel("own", Reducer::Replace);
    let child = host.compile(&child).await.unwrap().digest();
    let mut spec = scripted(&["p"]).node("s", subgraph(child));
    spec = spec.edge("p", "s");
    let graph = host.compile(&spec).await.unwrap();
    let ops = json!({
        "p": [{ "put": { "a": ["p"], "c": 5 } }],
        "x": [{ "read": "a" }, { "read": "c" }, { "put_results": "a" }, { "put": { "c": 10 } }],
        "y": [{ "read": "a" }, { "put_results": "a" }],
    });
    completed(graph.invoke(on("t"), script(ops)).await.unwrap());
    // What was appended and added in the child, once; the child saw what its parent had.
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"], json!(["p", ["p"], 5, ["p", ["p"], 5]]));
    assert_eq!(state["c"], json!(15));
    // Without anything durable it is the same.
    let world = World::new();
    let host = world.builder().open().await.unwrap();
    let child = host.compile(&line()).await.unwrap().digest();
    let graph = host.compile(&scripted(&["p"]).node("s", subgraph(child)).edge("p", "s")).await.unwrap();
    let ops = json!({ "p": [], "x": [{ "put": { "a": [1] } }], "y": [{ "log": { "level": "info", "message": "seen" } }] });
    completed(graph.invoke(holdpoint::RunConfig::fleeting(), script(ops)).await.unwrap());
    assert_eq!(world.started(), ["p", "s/x", "s/y"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_question_says_where_in_the_tree_it_is() {
    let world = World::new();
    let graph = family(&world.host().await, &line()).await;
    let execution = graph.invoke(on("t"), script(asks_in_children())).await.unwrap();
    let root = execution.run_id;
    let pending = paused(execution);
    assert_eq!(pending.iter().map(|p| p.namespace.clone()).collect::<Vec<_>>(), [["s"], ["t"]]);
    for asked in &pending {
        assert_eq!((asked.run_path[0], asked.run_path.len()), (root, 2));
        assert_eq!((asked.agent.as_deref(), asked.interrupt.node.as_str()), (Some("helper"), "y"));
    }
    assert_ne!(pending[0].run_path[1], pending[1].run_path[1]);
    // Read from the database it is the same.
    assert_eq!(world.host().await.execution(on("t")).await.unwrap().interrupts, pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_one_value_for_two_questions_of_one_subgraph_is_ambiguous() {
    let world = World::new();
    let host = world.host().await;
    let child = host.compile(&scripted(&["x", "y"])).await.unwrap().digest();
    let mut spec = scripted(&["p"]).node("s", subgraph(child));
    spec.entry = "s".into();
    spec.nodes.remove("p");
    let graph = host.compile(&spec).await.unwrap();
    let pending = paused(graph.invoke(on("t"), script(json!([{ "ask": "?" }]))).await.unwrap());
    assert_eq!(pending.len(), 2);
    let refusal = refused(graph.resume(on("t"), Command::resume(1)).await);
    assert_eq!(refusal.error.kind, Kind::Ambiguous);
    assert!(pending.iter().all(|p| refusal.error.message.contains(&p.interrupt.id.to_string())));
    assert_eq!(refusal.pending, pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn i30_a_target_of_a_run_alone_answers_the_one_question_in_it() {
    let world = World::new();
    let graph = family(&world.host().await, &line()).await;
    let pending = paused(graph.invoke(on("t"), script(asks_in_children())).await.unwrap());
    // The whole tree has two; each child has one.
    let root = ResumeTarget::run(pending[0].run_path[0]);
    assert_eq!(refused(graph.resume_targeted(root, Command::resume(1)).await).error.kind, Kind::Ambiguous);
    let left = paused(graph.resume_targeted(asked_at(&pending[1]), Command::resume("t")).await.unwrap());
    assert_eq!(left, pending[..1]);
    // Now the root's run is enough, and so is no target at all.
    completed(
        graph.resume_targeted(ResumeTarget::run(left[0].run_path[0]), Command::resume("s")).await.unwrap(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i31_each_part_of_a_target_narrows() {
    let world = World::new();
    let host = world.host().await;
    // Two questions in each of two children.
    let graph = family(&host, &scripted(&["x", "y"])).await;
    let ops = json!({ "p": [], "x": [{ "ask": "x?" }], "y": [{ "ask": "y?" }] });
    let pending = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    assert_eq!(pending.len(), 4);
    let root = || ResumeTarget::run(pending[0].run_path[0]);
    let kind = |result| refused(result).error.kind;
    for several in [root(), root().namespace(&["s"]), asked_at(&pending[0])] {
        assert_eq!(kind(graph.resume_targeted(several, Command::resume(1)).await), Kind::Ambiguous);
    }
    for none in [
        root().namespace(&["u"]),
        root().namespace(&["s", "x"]),
        root().task(pending[0].interrupt.task_id).namespace(&["t"]),
        asked_at(&pending[0]).task(pending[2].interrupt.task_id),
    ] {
        assert_eq!(kind(graph.resume_targeted(none, Command::resume(1)).await), Kind::NotPending);
    }
    let all = |p: &PendingInterrupt| {
        asked_at(p).task(p.interrupt.task_id).interrupt(p.interrupt.id).namespace(&[&p.namespace[0]])
    };
    let by_task = root().task(pending[0].interrupt.task_id);
    let by_interrupt = root().interrupt(pending[1].interrupt.id);
    let left = paused(graph.resume_targeted(by_task, Command::resume(1)).await.unwrap());
    assert_eq!(left, pending[1..]);
    let left = paused(graph.resume_targeted(by_interrupt, Command::resume(2)).await.unwrap());
    assert_eq!(left, pending[2..]);
    let left = paused(graph.resume_targeted(all(&pending[2]), Command::resume(3)).await.unwrap());
    assert_eq!(left, pending[3..]);
    let by_namespace = root().namespace(&["t"]);
    completed(graph.resume_targeted(by_namespace, Command::resume(4)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i32_a_namespace_that_contradicts_the_interrupt_is_refused() {
    let world = World::new();
    let graph = family(&world.host().await, &line()).await;
    let pending = paused(graph.invoke(on("t"), script(asks_in_children())).await.unwrap());
    let target = ResumeTarget::run(pending[0].run_path[0]).interrupt(pending[0].interrupt.id);
    let wrong = target.clone().namespace(&["t"]);
    assert_eq!(refused(graph.resume_targeted(wrong, Command::resume(1)).await).error.kind, Kind::NotPending);
    assert_eq!(world.host().await.execution(on("t")).await.unwrap().interrupts, pending);
    paused(graph.resume_targeted(target.namespace(&["s"]), Command::resume(1)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i33_a_stale_target_is_told_where_the_thread_is() {
    let world = World::new();
    let graph = family(&world.host().await, &line()).await;
    let first = graph.invoke(on("t"), script(asks_in_children())).await.unwrap();
    let pending = paused(first.clone());
    let other = paused(graph.invoke(on("other"), script(asks_in_children())).await.unwrap());
    let nobody = ResumeTarget::run(RunId::fresh());
    assert_eq!(refused(graph.resume_targeted(nobody, Command::resume(1)).await).error.kind, Kind::NotFound);
    // Of another thread: it is that thread's question, and this one's is not answered by it.
    let mixed = asked_at(&other[0]).interrupt(pending[0].interrupt.id);
    let refusal = refused(graph.resume_targeted(mixed, Command::resume(1)).await);
    assert_eq!((refusal.error.kind, refusal.pending), (Kind::NotPending, other));
    // Another question's answer moved the head: this one is as good as before.
    let left = paused(graph.resume_targeted(asked_at(&pending[0]), Command::resume(1)).await.unwrap());
    let moved = world.host().await.execution(on("t")).await.unwrap();
    assert_ne!(moved.checkpoint_id, first.checkpoint_id);
    // The child that is done, its task, and its question are over.
    for stale in [asked_at(&pending[0]), asked_at(&pending[0]).interrupt(pending[0].interrupt.id)] {
        let refusal = refused(graph.resume_targeted(stale, Command::resume(1)).await);
        assert_eq!(refusal.error.kind, Kind::Stale);
        assert_eq!((refusal.run_id, refusal.checkpoint_id), (Some(first.run_id), moved.checkpoint_id));
        assert_eq!((refusal.step, &refusal.pending), (Some(0), &left));
    }
    completed(graph.resume_targeted(asked_at(&pending[1]), Command::resume(1)).await.unwrap());
    // A later run of the thread: everything of the first is stale.
    let second = graph.invoke(on("t"), script(asks_in_children())).await.unwrap();
    let refusal = refused(graph.resume_targeted(asked_at(&pending[1]), Command::resume(1)).await);
    assert_eq!((refusal.error.kind, refusal.run_id), (Kind::Stale, Some(second.run_id)));
    assert_eq!(refusal.pending, second.interrupts);
}

#[tokio::test(flavor = "multi_thread")]
async fn i34_an_answer_to_one_child_runs_nothing_of_the_other() {
    let world = World::new();
    let graph = family(&world.host().await, &line()).await;
    let pending = paused(graph.invoke(on("t"), script(asks_in_children())).await.unwrap());
    let mut started = world.started();
    started.sort();
    assert_eq!(started, ["p", "s/x", "s/y", "t/x", "t/y"]);
    let other = world.host().await;
    let left = paused(other.resume_targeted(asked_at(&pending[1]), Command::resume("T")).await.unwrap());
    assert_eq!(world.started(), ["t/y"]);
    assert_eq!(left, pending[..1]);
    completed(graph.resume(on("t"), Command::resume("S")).await.unwrap());
    assert_eq!(world.started(), ["s/y"]);
    // In task order, however they were answered.
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!((&state["a"], &state["c"]), (&json!(["p", "x", "S", "x", "T"]), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn i35_deep_down_the_right_one_resumes_and_nothing_that_is_done_runs_again() {
    let world = World::new();
    let host = world.host().await;
    // p sends the subgraph three jobs; each goes through two more levels to where it asks.
    let mut below = host.compile(&line()).await.unwrap().digest();
    for _ in 0..2 {
        let mut spec = scripted(&["w"]).node("s", subgraph(below)).edge("w", "s");
        spec.nodes.get_mut("w").unwrap().effects = Default::default();
        below = host.compile(&spec).await.unwrap().digest();
    }
    let mut spec = scripted(&["p"]).node("z", subgraph(below));
    let p = spec.nodes.remove("p").unwrap().routes(&[("z", "z")]);
    let graph = host.compile(&spec.node("p", p)).await.unwrap();
    let job = |name: &str| {
        json!({ "send": { "label": "z", "arg": { "script": {
            "w": [], "x": [{ "effect": { "name": "e", "key": "k", "input": name } }],
            "y": [{ "ask": name }, { "put_results": "a" }],
        } } } })
    };
    // The effect has one key in all three: it is asked for with different inputs, so only one may have it.
    let mut ops = vec![job("1"), job("2"), job("3")];
    for (i, op) in ops.iter_mut().enumerate() {
        op["send"]["arg"]["script"]["x"][0]["effect"]["key"] = json!(format!("k{i}"));
    }
    let pending = paused(graph.invoke(on("t"), script(json!({ "p": ops }))).await.unwrap());
    assert!(pending.iter().all(|p| p.namespace == ["z", "s", "s"] && p.run_path.len() == 4));
    let runs: Vec<RunId> = pending.iter().map(|p| p.run_path[1]).collect();
    assert!(runs[0] != runs[1] && runs[1] != runs[2], "each is a child run of its own");
    assert_eq!(world.started().len(), 1 + 3 * 4);
    assert_eq!(world.sent(), 3);
    let middle = ResumeTarget::run(runs[1]);
    let left = paused(world.host().await.resume_targeted(middle, Command::resume("M")).await.unwrap());
    assert_eq!(world.started(), ["z/s/s/y"]);
    assert_eq!(left, [pending[0].clone(), pending[2].clone()]);
    let rest = Command::answers(left.iter().map(|p| (p.interrupt.id, p.interrupt.payload.clone())));
    completed(graph.resume(on("t"), rest).await.unwrap());
    assert_eq!(world.started(), ["z/s/s/y"; 2]);
    assert_eq!(world.sent(), 3);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["1", "M", "3"]));
}

/// The parent's own question, and one in a child; `answer` is given under `policy`.
async fn under(policy: PendingChildren) -> (World, holdpoint::Graph, Vec<PendingInterrupt>, Command) {
    let world = World::new();
    let host = world.host().await;
    let child = host.compile(&line()).await.unwrap().digest();
    let mut spec = scripted(&["p", "h"]).node("s", subgraph(child).on_error("h"));
    spec.entry = holdpoint::model::OneOrMany::Many(["p", "s"].map(String::from).to_vec());
    let graph = host.compile(&spec).await.unwrap();
    let mut ops = asks_in_children();
    ops["p"] = json!([{ "ask": "parent?" }, { "put_results": "a" }]);
    ops["h"] = json!([{ "context": true }, { "put_results": "a" }]);
    let schema = json!({ "type": "string" });
    ops["y"] = json!([{ "ask": "child?", "schema": schema }, { "put_results": "a" }]);
    let pending = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let parent = of(&pending, &[]).interrupt.id;
    world.started();
    let command = Command::answers([(parent, json!("P"))]).by("maria").pending_children(policy);
    (world, graph, pending, command)
}

#[tokio::test(flavor = "multi_thread")]
async fn i36_the_parent_is_answered_and_the_child_is_left() {
    let (world, graph, pending, command) = under(PendingChildren::Leave).await;
    let left = paused(graph.resume(on("t"), command).await.unwrap());
    assert_eq!(left, [of(&pending, &["s"]).clone()]);
    assert_eq!(world.started(), ["p"]);
    completed(graph.resume(on("t"), Command::resume("C")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["P", "x", "C"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i36_the_parent_is_answered_and_the_child_called_off() {
    let (world, graph, pending, command) = under(PendingChildren::Cancel).await;
    let child = of(&pending, &["s"]).clone();
    completed(graph.resume(on("t"), command).await.unwrap());
    assert_eq!(world.started(), ["p", "h"], "the failure is taken by the node that the graph names");
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!((&state["a"][0], &state["a"][1]["arg"]["error"]["kind"]), (&json!("P"), &json!("cancelled")));
    let host = world.host().await;
    let store = host.store().unwrap();
    let (_, row) = store.interrupt(&TenantId::default(), child.interrupt.id).await.unwrap().unwrap();
    let holdpoint::model::checkpoint::InterruptState::Withdrawn(why) = row.state else { panic!("{row:?}") };
    assert_eq!(why.by.as_deref(), Some("maria"));
    assert!(why.reason.contains(&of(&pending, &[]).interrupt.id.to_string()), "{}", why.reason);
    let (_, run) = store.run(&TenantId::default(), child.run_path[1]).await.unwrap().unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    let late = refused(graph.resume(on("t"), Command::answers([(child.interrupt.id, json!("late"))])).await);
    assert_eq!(late.error.kind, Kind::Stale);
    assert!(late.error.message.contains("maria"), "{}", late.error.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn i36_the_parent_is_answered_and_the_child_with_it() {
    // The schemas of all come first: nothing is answered if one does not fit.
    let (world, graph, pending, command) = under(PendingChildren::Resolve(json!(7))).await;
    let refusal = refused(graph.resume(on("t"), command.clone()).await);
    assert_eq!((refusal.error.kind, &refusal.pending), (Kind::Schema, &pending));
    let command = command.pending_children(PendingChildren::Resolve(json!("both")));
    completed(graph.resume(on("t"), command).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["P", "x", "both"]));
    let host = world.host().await;
    let asked = of(&pending, &["s"]).interrupt.id;
    let (_, row) = host.store().unwrap().interrupt(&TenantId::default(), asked).await.unwrap().unwrap();
    let holdpoint::model::checkpoint::InterruptState::Answered(answer) = row.state else { panic!("{row:?}") };
    assert_eq!((answer.by.as_deref(), answer.value.value()), (Some("maria"), json!("both")));
    let reason = answer.reason.unwrap();
    assert!(reason.contains(&of(&pending, &[]).interrupt.id.to_string()), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i36_the_parent_is_not_answered_while_a_child_asks() {
    let (world, graph, pending, command) = under(PendingChildren::Refuse).await;
    let refusal = refused(graph.resume(on("t"), command).await);
    assert_eq!((refusal.error.kind, &refusal.pending), (Kind::Busy, &pending));
    assert!(refusal.error.message.contains(&of(&pending, &["s"]).interrupt.id.to_string()));
    assert!(world.started().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn i37_a_child_that_failed_goes_on_where_it_failed() {
    let world = World::new();
    let graph = family(&world.host().await, &line()).await;
    let mut ops = asks_in_children();
    let effect = |name: &str| json!({ "effect": { "name": name, "key": "k", "input": 1 } });
    ops["x"] = json!([effect("e"), { "put": { "a": ["x"] } }]);
    // The first time the handler says to try again later.
    ops["y"] = json!([effect("flaky"), { "if_last": { "equals": { "ok": "done" }, "then": [{ "put_results": "a" }],
        "else": [{ "fail": "not today" }] } }]);
    drop(graph);
    let times = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = times.clone();
    let host = world
        .builder()
        .effect("f", move |_| {
            let nth = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::ready(match nth {
                0 | 1 => Err(holdpoint::EffectFailure::Retryable(json!("busy"))),
                _ => Ok(json!("done")),
            })
        })
        .database(world.db())
        .open()
        .await
        .unwrap();
    let graph = family(&host, &line()).await;
    ops["y"][0]["effect"]["name"] = json!("f");
    let execution = graph.invoke(on("t"), script(ops)).await.unwrap();
    assert_eq!(failed(&execution), Kind::NodeFailed);
    let error: &ErrorRecord = execution.error.as_ref().unwrap();
    assert_eq!((&error.more["node"], &error.more["path"]), (&json!("s"), &json!(["s", "y"])));
    world.started();
    let sent = world.sent();
    completed(host.retry(on("t")).await.unwrap());
    let mut started = world.started();
    started.sort();
    assert_eq!(started, ["s/y", "t/y"]);
    assert_eq!(world.sent(), sent, "what was done is not done again");
    let ok = json!({ "ok": "done" });
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["p", "x", ok, "x", ok]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i39_instructions_reach_a_paused_child_and_no_finished_one() {
    let world = World::new();
    let host = world.host().await;
    let graph = family(&host, &line()).await;
    let mut ops = asks_in_children();
    ops["y"] = json!([{ "ask": "child?" }, { "steering": true }, { "put_results": "a" }]);
    let pending = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let target = asked_at(&pending[0]);
    host.steer_targeted(target.clone(), "ann", "for s").await.unwrap();
    host.steer(on("t"), "ben", "for all").await.unwrap();
    host.steer_targeted(target.clone().task(pending[0].interrupt.task_id), "cy", "for its task")
        .await
        .unwrap();
    let wrong = target.clone().task(pending[1].interrupt.task_id);
    assert_eq!(refused(host.steer_targeted(wrong, "ann", "x").await).error.kind, Kind::Stale);
    let said = |actor: &str, text: &str| json!({ "actor": actor, "text": text });
    paused(graph.resume_targeted(target.clone(), Command::resume("S")).await.unwrap());
    assert_eq!(refused(host.steer_targeted(target, "ann", "late").await).error.kind, Kind::Stale);
    completed(graph.resume(on("t"), Command::resume("T")).await.unwrap());
    let (all, s) = (said("ben", "for all"), [said("ann", "for s"), said("cy", "for its task")]);
    let right = json!(["p", "x", "S", [s[0], all, s[1]], "x", "T", [all]]);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], right);
    assert_eq!(refused(host.steer(on("t"), "ann", "over").await).error.kind, Kind::NotPending);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_contains_itself_is_refused() {
    let world = World::new();
    let host = world.host().await;
    let path = world.dir.path().join("loop.toml");
    let text = "name = 'loop'\nentry = 's'\n[nodes.s]\ngraph = 'loop.toml'\n";
    std::fs::write(&path, text).unwrap();
    let spec = GraphSpec::from_file(&path).unwrap();
    let error = host.compile(&spec).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("subgraph_depth"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_a_child_fails_its_task() {
    let world = World::new();
    let host = world.host().await;
    let child = host.compile(&line()).await.unwrap().digest();
    let mut spec = scripted(&["p"]).node("s", subgraph(child));
    let p = spec.nodes.remove("p").unwrap().routes(&[("z", "s")]);
    let graph = host.compile(&spec.node("p", p)).await.unwrap();
    for (arg, names) in [(json!([1]), "object"), (json!({ "none": 1 }), "none"), (json!({ "a": 1 }), "array")]
    {
        let ops = json!({ "p": [{ "send": { "label": "z", "arg": arg } }] });
        let execution = graph.invoke(on("t"), script(ops)).await.unwrap();
        assert_eq!(failed(&execution), Kind::Invalid);
        let error = execution.error.unwrap();
        assert!(error.message.contains(names), "{error}");
        assert_eq!(error.more["node"], json!("s"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_whose_last_question_is_gone_goes_on_also_after_a_crash() {
    // One task of the child has failed; the gate of the other is passed by a process that dies before it is done.
    let world = World::new();
    let host = world
        .builder()
        .effect("f", |_| async { panic!("a crash") })
        .database(world.db())
        .open()
        .await
        .unwrap();
    let mut child = scripted(&["x", "y"]);
    child.nodes.get_mut("x").unwrap().interrupt_after = true;
    let graph = family(&host, &child).await;
    let ops = json!({
        "p": [{ "ask": "?" }, { "effect": { "name": "f", "key": "k", "input": 1 } }],
        "s/x": [], "s/y": [{ "fail": "no" }], "t/x": [], "t/y": [],
    });
    let pending = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let gates: Vec<_> = pending.iter().filter(|p| !p.namespace.is_empty()).collect();
    assert_eq!(gates.len(), 2);
    // The gate and the question at once: the question's task goes on to the effect, where the process dies.
    let other = ResumeTarget::run(pending[0].run_path[0]).interrupt(gates[1].interrupt.id);
    paused(graph.resume_targeted(other, Command::proceed()).await.unwrap());
    let left = paused(world.host().await.execution(on("t")).await.unwrap());
    let gate = of(&left, &["s"]).interrupt.id;
    let target = ResumeTarget::run(pending[0].run_path[0]).interrupt(gate);
    let execution = graph.resume_targeted(target, Command::proceed()).await.unwrap();
    let asked = paused(execution);
    assert_eq!(asked.len(), 1, "the child has failed, and the parent still asks");
    assert!(graph.resume(on("t"), Command::resume("go")).await.is_err());
    let healthy = world.host().await;
    let ended = healthy.continue_run(on("t")).await.unwrap();
    assert_eq!(failed(&ended), Kind::NodeFailed);
    assert_eq!(ended.interrupts, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn child_runs_are_bounded_all_levels_together() {
    let world = World::new();
    let limits = holdpoint::model::Limits { child_runs: 6, ..Default::default() };
    let host = world.builder().limits(limits).database(world.db()).open().await.unwrap();
    // Each level sends what is below it as many jobs as it is told.
    let fan = |below: holdpoint::model::Digest| {
        let mut spec = scripted(&["w"]).node("z", subgraph(below));
        let w = spec.nodes.remove("w").unwrap().routes(&[("z", "z")]);
        spec.node("w", w)
    };
    let leaf = host.compile(&scripted(&["x"])).await.unwrap().digest();
    let middle = host.compile(&fan(leaf)).await.unwrap().digest();
    let graph = host.compile(&fan(middle)).await.unwrap();
    let jobs = |count: usize| vec![json!({ "send": { "label": "z", "arg": {} } }); count];
    for (outer, inner, fits) in [(2, 3, true), (6, 1, true), (2, 4, false), (7, 1, false)] {
        let ops = json!({ "w": jobs(outer), "z/w": jobs(inner), "z/z/x": [{ "put": { "c": 1 } }] });
        let thread = format!("t{outer}x{inner}");
        let execution = graph.invoke(on(&thread), script(ops)).await.unwrap();
        if fits {
            completed(execution);
            assert_eq!(graph.state(on(&thread)).await.unwrap()["c"], json!(outer * inner));
        } else {
            assert_eq!(failed(&execution), Kind::Limit);
            let error = execution.error.unwrap();
            assert_eq!(
                (&error.more["limit"], &error.more["value"]),
                (&json!("child_runs"), &json!(6)),
                "{error}"
            );
        }
    }
}
