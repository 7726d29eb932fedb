//! How answers find their questions, and when they must not.

use holdpoint::model::Kind;
use holdpoint::{Command, Host, Refused, ResumeTarget, RunConfig};
use serde_json::{Value, json};

use crate::world::*;

/// A host whose thread `t` is paused where this script asks, in each of the nodes.
async fn asking(world: &World, nodes: &[&str], ops: Value) -> Host {
    let host = world.host().await;
    let graph = host.compile(&scripted(nodes)).await.unwrap();
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    world.started();
    host
}

/// Typed, nothing written, nothing run, the pause as it was and shown.
async fn refused_whole(world: &World, host: &Host, command: Command) -> Refused {
    let before = host.execution(on("t")).await.unwrap();
    let commits = host.store().unwrap().counters().commits;
    let refusal = refused(host.resume(on("t"), command).await);
    assert_eq!(host.store().unwrap().counters().commits, commits);
    assert!(world.started().is_empty());
    assert_eq!(host.execution(on("t")).await.unwrap(), before);
    assert_eq!((refusal.run_id, refusal.checkpoint_id), (Some(before.run_id), before.checkpoint_id));
    assert_eq!(refusal.pending, before.interrupts);
    refusal
}

async fn state(host: &Host) -> Value {
    host.state(on("t")).await.unwrap()
}

/// Two questions: of two tasks, or of one.
async fn two_questions(world: &World, of: usize) -> Host {
    match of {
        2 => asking(world, &["p", "q"], json!([{ "ask": "ok?" }, { "put_results": "a" }])).await,
        _ => asking(world, &["p"], json!([{ "ask_all": ["this?", "that?"] }, { "put_results": "a" }])).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i08_a_node_with_several_questions_runs_again_when_all_are_answered() {
    let world = World::new();
    let ops = json!([{ "ask_all": ["q0", "q1", "q2"] }, { "put_results": "a" }]);
    let host = asking(&world, &["n"], ops).await;
    let asked = host.execution(on("t")).await.unwrap().interrupts;
    let shown: Vec<_> = asked.iter().map(|i| (i.interrupt.order, i.interrupt.payload.clone())).collect();
    assert_eq!(shown, [(0, json!("q0")), (1, json!("q1")), (2, json!("q2"))]);
    for (place, left) in [(2, vec![0, 1]), (0, vec![1])] {
        let answer = Command::answers([(asked[place].interrupt.id, json!(place))]);
        let pending = paused(host.resume(on("t"), answer).await.unwrap());
        assert_eq!(pending, left.iter().map(|&i| asked[i].clone()).collect::<Vec<_>>());
        assert!(world.started().is_empty());
    }
    completed(host.resume(on("t"), Command::resume(1)).await.unwrap());
    assert_eq!(world.started(), ["n"]);
    assert_eq!(state(&host).await["a"], json!([[0, 1, 2]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i09_the_same_question_five_times_is_five_interrupts() {
    let world = World::new();
    let ops = json!([{ "repeat": { "times": 5, "ops": [{ "ask": "again?" }] } }, { "put_results": "a" }]);
    let host = asking(&world, &["n"], ops).await;
    let mut ids = Vec::new();
    for answer in 0..5 {
        let pending = host.execution(on("t")).await.unwrap().interrupts;
        assert_eq!((pending.len(), pending[0].interrupt.order), (1, answer));
        assert!(!ids.contains(&pending[0].interrupt.id));
        ids.push(pending[0].interrupt.id);
        host.resume(on("t"), Command::resume(answer)).await.unwrap();
    }
    completed(host.execution(on("t")).await.unwrap());
    assert_eq!(state(&host).await["a"], json!([0, 1, 2, 3, 4]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i10_one_value_answers_the_one_question() {
    let world = World::new();
    let graph = world.one().await;
    let ops = json!([{ "ask": "a?" }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    completed(graph.resume(on("t"), Command::resume("A")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["A"]));
    assert_eq!(world.started(), ["n", "n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_one_value_for_two_questions_is_refused_and_both_are_listed() {
    for of in [2, 1] {
        let world = World::new();
        let host = two_questions(&world, of).await;
        let refusal = refused_whole(&world, &host, Command::resume("yes")).await;
        assert_eq!((refusal.error.kind, refusal.pending.len()), (Kind::Ambiguous, 2));
        for pending in &refusal.pending {
            assert!(refusal.error.message.contains(&pending.interrupt.id.to_string()), "{refusal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_a_map_answers_two_questions_in_one_run() {
    let world = World::new();
    let host = two_questions(&world, 2).await;
    let before = host.execution(on("t")).await.unwrap();
    let [p, q] = [0, 1].map(|i| before.interrupts[i].interrupt.id);
    let execution = host.resume(on("t"), Command::answers([(q, json!("Q")), (p, json!("P"))])).await.unwrap();
    assert_eq!(execution.run_id, before.run_id);
    completed(execution);
    assert_eq!(world.started(), ["p", "q"]);
    assert_eq!(state(&host).await["a"], json!(["P", "Q"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i13_a_task_that_is_not_answered_does_not_run() {
    let world = World::new();
    let host = two_questions(&world, 2).await;
    let asked = host.execution(on("t")).await.unwrap().interrupts;
    let answer = Command::answers([(asked[1].interrupt.id, json!("Q"))]);
    let pending = paused(host.resume(on("t"), answer).await.unwrap());
    assert_eq!(pending, asked[..1]);
    assert_eq!(world.started(), ["q"]);
    assert_eq!(state(&host).await.get("a"), None, "an update is held while a sibling waits");
    completed(host.resume(on("t"), Command::resume("P")).await.unwrap());
    assert_eq!(world.started(), ["p"]);
    assert_eq!(state(&host).await["a"], json!(["P", "Q"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_one_wrong_id_refuses_the_whole_map() {
    let world = World::new();
    let host = two_questions(&world, 2).await;
    let asked = host.execution(on("t")).await.unwrap().interrupts;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let elsewhere = paused(graph.invoke(on("u"), script(json!([{ "ask": 1 }]))).await.unwrap());
    world.started();
    let unknown = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    for id in [unknown, elsewhere[0].interrupt.id] {
        let map = Command::answers([(asked[0].interrupt.id, json!(1)), (id, json!(2))]);
        let refusal = refused_whole(&world, &host, map).await;
        assert_eq!(refusal.error.kind, Kind::NotPending);
        assert!(refusal.error.message.contains(&id.to_string()), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i15_an_empty_map_is_refused() {
    let world = World::new();
    let host = two_questions(&world, 2).await;
    assert_eq!(refused_whole(&world, &host, Command::answers([])).await.error.kind, Kind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_a_value_that_looks_like_a_map_is_a_value() {
    let world = World::new();
    let host = asking(&world, &["n"], json!([{ "ask": 1 }, { "put_results": "a" }])).await;
    let id = host.execution(on("t")).await.unwrap().interrupts[0].interrupt.id;
    let value = json!({ id.to_string(): "approved" });
    completed(host.resume(on("t"), Command::resume(value.clone())).await.unwrap());
    assert_eq!(state(&host).await["a"], json!([value]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_what_counts_as_nothing_elsewhere_is_an_answer() {
    let world = World::new();
    let graph = world.one().await;
    for value in [json!(false), json!(0), json!(""), json!(null), json!([])] {
        let thread = format!("t{value}");
        let ops = json!([{ "ask": 1 }, { "ask": 2 }, { "put_results": "a" }]);
        paused(graph.invoke(on(&thread), script(ops)).await.unwrap());
        let pending = paused(graph.resume(on(&thread), Command::resume(value.clone())).await.unwrap());
        assert_eq!(pending[0].interrupt.payload, json!(2), "{value}");
        let map = Command::answers([(pending[0].interrupt.id, value.clone())]);
        completed(graph.resume(on(&thread), map).await.unwrap());
        assert_eq!(graph.state(on(&thread)).await.unwrap()["a"], json!([value, value]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_a_double_click_does_not_answer_the_next_question() {
    let ops = || json!([{ "ask": { "sum": 1 } }, { "ask": "second?" }, { "put_results": "a" }]);
    type Naming = fn(Command, &holdpoint::Execution) -> Command;
    let by_id: Naming = |_, first| Command::answers([(first.interrupts[0].interrupt.id, json!("A"))]);
    let by_checkpoint: Naming = |command, first| command.expecting(first.checkpoint_id.unwrap());
    for naming in [by_id, by_checkpoint] {
        let world = World::new();
        let host = asking(&world, &["n"], ops()).await;
        let first = host.execution(on("t")).await.unwrap();
        let click = naming(Command::resume("A"), &first);
        let pending = paused(host.resume(on("t"), click.clone()).await.unwrap());
        world.started();
        assert_eq!(refused_whole(&world, &host, click).await.error.kind, Kind::Stale);
        assert_eq!(pending[0].interrupt.payload, json!("second?"));
        completed(host.resume(on("t"), Command::resume("B")).await.unwrap());
        assert_eq!(state(&host).await["a"], json!(["A", "B"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_a_request_sent_twice_gets_its_first_reply_twice() {
    let world = World::new();
    let ops = r#"[{ "ask": 1 }, { "ask": { "price": 1.10, "big": 12345678901234567890123, "none": null },
        "schema": { "maximum": 2.50 } }, { "put_results": "a" }]"#;
    let host = asking(&world, &["n"], serde_json::from_str(ops).unwrap()).await;
    let click = || Command::resume("A").request("click-1");
    let first = host.resume(on("t"), click()).await.unwrap();
    assert_eq!(first.interrupts[0].interrupt.order, 1);
    world.started();
    assert_eq!(host.resume(on("t"), click()).await.unwrap(), first);
    completed(host.resume(on("t"), Command::resume(2).request("click-2")).await.unwrap());
    world.started();
    // Also in another process, and when the thread has moved on.
    let repeated = world.host().await.resume(on("t"), click()).await.unwrap();
    assert_eq!(repeated, first);
    assert_eq!(
        repeated.interrupts[0].interrupt.payload.to_string(),
        first.interrupts[0].interrupt.payload.to_string()
    );
    assert!(world.started().is_empty());
    assert_eq!(state(&host).await["a"], json!(["A", 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i19_an_answer_to_an_old_question_is_stale() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["p", "q"]).edge("p", "r").node("r", script_node())).await.unwrap();
    let ops = json!({ "p": [{ "ask": "p0" }, { "ask": "p1" }], "q": [], "r": [{ "ask": "r0" }] });
    let mut old = Vec::new();
    let mut execution = graph.invoke(on("t"), script(ops.clone())).await.unwrap();
    // In the same task, in an earlier step, in an earlier run.
    for next in ["p1", "r0", "done", "p0"] {
        old.push(execution.interrupts[0].interrupt.id);
        execution = host.resume(on("t"), Command::resume("yes").by("ann")).await.unwrap();
        if next == "done" {
            completed(execution);
            execution = graph.invoke(on("t"), script(ops.clone())).await.unwrap();
            assert_eq!(execution.interrupts[0].interrupt.payload, json!("p0"));
            break;
        }
        assert_eq!(execution.interrupts[0].interrupt.payload, json!(next));
        check_stale(&world, &host, &old).await;
    }
    check_stale(&world, &host, &old).await;
}

async fn check_stale(world: &World, host: &Host, old: &[holdpoint::model::InterruptId]) {
    world.started();
    for &id in old {
        let refusal = refused_whole(world, host, Command::answers([(id, json!("late"))])).await;
        assert_eq!((refusal.error.kind, refusal.pending.len()), (Kind::Stale, 1));
        assert!(refusal.error.message.contains("was answered at"), "{refusal}");
        assert!(refusal.error.message.contains("by ann"), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_to_continue_delivers_nothing() {
    for of in [2, 1] {
        let world = World::new();
        let host = two_questions(&world, of).await;
        let asked = host.execution(on("t")).await.unwrap().interrupts;
        let answer = Command::answers([(asked[0].interrupt.id, json!("first"))]);
        let pending = paused(host.resume(on("t"), answer).await.unwrap());
        world.started();
        for host in [&host, &world.host().await] {
            assert_eq!(paused(host.continue_run(on("t")).await.unwrap()), pending);
        }
        assert_eq!(pending, asked[1..]);
        assert!(world.started().is_empty());
        completed(host.resume(on("t"), Command::resume("second")).await.unwrap());
        let right = if of == 2 { json!(["first", "second"]) } else { json!([["first", "second"]]) };
        assert_eq!(state(&host).await["a"], right);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i24_an_answer_that_breaks_its_schema_is_refused_and_can_be_given_again() {
    let world = World::new();
    let amount = json!({ "type": "object", "properties": { "amount": { "type": "number", "minimum": 0 } } });
    let ops = json!([{ "ask_all": ["one", "two"], "schema": amount }, { "put_results": "a" }]);
    let host = asking(&world, &["n"], ops).await;
    let asked = host.execution(on("t")).await.unwrap().interrupts;
    let map = |second: Value| {
        Command::answers([(asked[0].interrupt.id, json!({})), (asked[1].interrupt.id, second)])
    };
    for (answer, path) in [(json!({ "amount": -1 }), "/amount"), (json!([]), "/")] {
        let refusal = refused_whole(&world, &host, map(answer)).await;
        assert_eq!((refusal.error.kind, &refusal.error.more["path"]), (Kind::Schema, &json!(path)));
    }
    completed(host.resume(on("t"), map(json!({ "amount": 0 }))).await.unwrap());
    assert_eq!(state(&host).await["a"], json!([[{}, { "amount": 0 }]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i25_what_does_not_wait_cannot_be_answered() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ends = json!([{ "put": { "a": ["done"] } }]);
    completed(graph.invoke(on("finished"), script(ends)).await.unwrap());
    let fails = script(json!([{ "ask": "ok?" }, { "fail": "no" }]));
    paused(graph.invoke(on("failed"), fails).await.unwrap());
    assert_eq!(failed(&host.resume(on("failed"), Command::resume(1)).await.unwrap()), Kind::NodeFailed);
    world.started();
    for (thread, kind, status) in [
        ("finished", Kind::NotPending, json!("completed")),
        ("failed", Kind::NotPending, json!("failed")),
        ("unknown", Kind::NotFound, Value::Null),
    ] {
        let before = host.execution(on(thread)).await.ok();
        let refusal = refused(host.resume(on(thread), Command::resume("late")).await);
        let shown = refusal.error.more.get("status").cloned().unwrap_or_default();
        assert_eq!((refusal.error.kind, &shown), (kind, &status), "{refusal}");
        assert!(refusal.error.message.contains(status.as_str().unwrap_or(thread)), "{refusal}");
        assert_eq!(host.execution(on(thread)).await.ok(), before);
    }
    assert!(world.started().is_empty());
    assert_eq!(host.state(on("finished")).await.unwrap()["a"], json!(["done"]));
    let nowhere = ResumeTarget::run("01234567-89ab-cdef-0123-456789abcdef".parse().unwrap());
    let refusal = refused(host.resume_targeted(nowhere, Command::resume(1)).await);
    assert_eq!(refusal.error.kind, Kind::NotFound);
    let refusal = refused(host.resume(RunConfig::fleeting(), Command::resume(1)).await);
    assert_eq!(refusal.error.kind, Kind::Resume);
}

#[tokio::test(flavor = "multi_thread")]
async fn i26_a_list_of_answers_is_one_value() {
    for of in [2, 1] {
        let world = World::new();
        let host = two_questions(&world, of).await;
        let refusal = refused_whole(&world, &host, Command::resume(json!([1, 2]))).await;
        assert_eq!((refusal.error.kind, refusal.pending.len()), (Kind::Ambiguous, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_a_request_id_is_for_one_command() {
    let world = World::new();
    let graph = world.one().await;
    let ops = json!([{ "ask": "a?" }, { "ask": "b?" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    paused(graph.resume(on("t"), Command::resume("A").request("r1")).await.unwrap());
    let other = refused(graph.resume(on("t"), Command::resume("B").request("r1")).await);
    assert_eq!(other.error.kind, Kind::KeyConflict);
    assert_eq!(other.pending[0].interrupt.payload, json!("b?"));
    let refused = refused(graph.resume(on("t"), Command::resume("B").request("")).await);
    assert_eq!(refused.error.kind, Kind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_one_request_sent_many_times_at_once_answers_one_question() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    for round in 0..10 {
        let thread = format!("t{round}");
        let ops = json!([{ "ask": "delete A?" }, { "ask": "delete B?" }, { "ask": "delete C?" }]);
        paused(graph.invoke(on(&thread), script(ops)).await.unwrap());
        let mut clicks = tokio::task::JoinSet::new();
        for _ in 0..6 {
            // Each a process of its own, as far as locks go.
            let (host, thread) = (world.host().await, thread.clone());
            clicks
                .spawn(async move { host.resume(on(&thread), Command::resume(true).request("click")).await });
        }
        while let Some(click) = clicks.join_next().await {
            let pending = paused(click.unwrap().unwrap());
            assert_eq!(pending[0].interrupt.payload, json!("delete B?"));
        }
    }
}
