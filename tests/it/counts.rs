//! What things cost, counted and not timed: commits, statements and instances, held down in one place. A change
//! that makes one of these larger says why; one that makes it smaller brings the bound down.

use holdpoint::engine::Settings;
use holdpoint::model::TenantId;
use holdpoint::store::ThreadSnapshot;
use holdpoint::{Command, Host, NodeSpec};
use serde_json::{Value, json};

use crate::world::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    commits: u64,
    /// Of readers and the writer, but for the words that begin and end transactions.
    statements: u64,
    instances: u64,
}

fn cost(commits: u64, statements: u64, instances: u64) -> Cost {
    Cost { commits, statements, instances }
}

fn so_far(host: &Host) -> Cost {
    let store = host.store().unwrap().counters();
    cost(store.commits, store.statements, host.sandbox().counters().instantiations)
}

/// What `work` costs on this host is no more than this.
#[track_caller]
fn at_most(what: &str, host: &Host, before: Cost, bound: Cost) {
    let now = so_far(host);
    let took = cost(
        now.commits - before.commits,
        now.statements - before.statements,
        now.instances - before.instances,
    );
    println!("{what}: {took:?}");
    let is_in = took.commits <= bound.commits
        && took.statements <= bound.statements
        && took.instances <= bound.instances;
    assert!(is_in, "{what} took {took:?}, which is more than {bound:?}");
}

/// Pages that commits wrote into the log so far: each is a frame of it, and the log is not cut meanwhile.
fn pages_so_far(world: &World) -> u64 {
    let (page, header) = (8_192, 24);
    let log = std::fs::metadata(format!("{}-wal", world.db().display())).unwrap();
    log.len() / (page + header)
}

/// Made durable when it ends, however slow the machine is.
async fn host(world: &World) -> Host {
    let settings = Settings { budget_ms: 600_000, ..Settings::default() };
    world.builder().database(world.db()).settings(settings).open().await.unwrap()
}

fn ask_and_put() -> Value {
    script(json!([{ "ask": "ok?" }, { "put_results": "a" }]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_a_resume_a_step_and_a_fork_cost_no_more_than_they_did() {
    let world = World::new();
    let host = host(&world).await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    // The first of all opens connections.
    paused(graph.invoke(on("first"), ask_and_put()).await.unwrap());

    // A batch looks at its thread's row before it changes it, which is a statement more and a third of what the
    // change would cost if it had to give the row back.
    let before = so_far(&host);
    let started = graph.invoke(on("t"), ask_and_put()).await.unwrap();
    at_most("a start", &host, before, cost(1, 9, 1));
    let asked = paused(started);

    let before = so_far(&host);
    let answers = Command::answers([(asked[0].interrupt.id, json!(1))]);
    let resumed = host.resume(on("t"), answers).await.unwrap();
    at_most("a resume by id in the process that paused", &host, before, cost(1, 7, 1));
    completed(resumed);

    // What was added to is read: its node is granted it.
    let before = so_far(&host);
    let again = graph.invoke(on("t"), ask_and_put()).await.unwrap();
    at_most("another run of the thread", &host, before, cost(1, 9, 1));
    paused(again);

    paused(graph.invoke(on("bare"), ask_and_put()).await.unwrap());
    let before = so_far(&host);
    let resumed = host.resume(on("bare"), Command::resume(1)).await.unwrap();
    at_most("a resume by a bare value in the process that paused", &host, before, cost(1, 8, 1));
    completed(resumed);

    paused(graph.invoke(on("elsewhere"), ask_and_put()).await.unwrap());
    let other = self::host(&world).await;
    let before = so_far(&other);
    let resumed = other.resume(on("elsewhere"), Command::resume(1)).await.unwrap();
    at_most("a resume in another process", &other, before, cost(1, 15, 1));
    completed(resumed);

    let before = so_far(&host);
    let checkpoint = host.execution(on("elsewhere")).await.unwrap().checkpoint_id;
    let looked = so_far(&host).statements - before.statements;
    let before = so_far(&host);
    let forked = host.fork(on("elsewhere"), checkpoint, "fork".parse().unwrap()).await.unwrap();
    // It is made, and then gone on with.
    at_most("a fork", &host, before, cost(2, 29, 0));
    completed(forked);
    assert!(looked <= 6, "{looked} statements to see how a thread stands");

    // Two nodes one after the other, and two steps.
    let steps = async |count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("n{i}")).collect();
        let mut spec = scripted(&["n0"]);
        for pair in names.windows(2) {
            spec = spec.node(&pair[1], script_node()).edge(&pair[0], &pair[1]);
        }
        let graph = host.compile(&spec).await.unwrap();
        let before = so_far(&host);
        completed(graph.invoke(on(&format!("{count} steps")), script(json!([]))).await.unwrap());
        let now = so_far(&host);
        cost(
            now.commits - before.commits,
            now.statements - before.statements,
            now.instances - before.instances,
        )
    };
    let (one, five) = (steps(1).await, steps(5).await);
    println!("one step: {one:?}; five: {five:?}");
    assert_eq!(five.commits, one.commits, "steps that nothing depends on are committed together");
    assert!(five.statements - one.statements <= 4 * 2, "{one:?} {five:?}");
    assert_eq!((one.instances, five.instances), (1, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_and_a_resume_write_no_more_pages_than_they_did() {
    let world = World::new();
    let host = host(&world).await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    paused(graph.invoke(on("first"), ask_and_put()).await.unwrap());
    // Every table and every index of it that has a row there: in a database this small, a page each. The file
    // grows by a page now and then, which is named in its first.
    for turn in 0..5 {
        let thread = format!("t{turn}");
        let before = pages_so_far(&world);
        paused(graph.invoke(on(&thread), ask_and_put()).await.unwrap());
        let started = pages_so_far(&world);
        completed(host.resume(on(&thread), Command::resume(1)).await.unwrap());
        let resumed = pages_so_far(&world);
        println!("a start: {} pages, a resume: {}", started - before, resumed - started);
        assert!(started - before <= 16 + 2, "a start wrote {} pages", started - before);
        assert!(resumed - started <= 10 + 2, "a resume wrote {} pages", resumed - started);
    }
}

/// As this process knows the thread, and as it is read.
async fn both(host: &Host, thread: &str) -> (Option<ThreadSnapshot>, ThreadSnapshot) {
    let (store, tenant, thread) = (host.store().unwrap(), TenantId::default(), thread.parse().unwrap());
    let known = store.recent(&tenant, &thread);
    (known, store.load(&tenant, &thread).await.unwrap().unwrap())
}

/// Without a look into the file, a thread stands as a look into the file says.
#[track_caller]
fn is_same(what: &str, (known, read): (Option<ThreadSnapshot>, ThreadSnapshot)) {
    let known = known.unwrap_or_else(|| panic!("{what}: nothing is known of the thread"));
    for (name, (version, _)) in &known.values {
        assert_eq!(read.root.checkpoint.channels.get(name), Some(version), "{what}: {name}");
    }
    assert_eq!(ThreadSnapshot { values: Default::default(), ..known }, read, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_knows_of_a_thread_is_what_it_would_read() {
    let world = World::new();
    let host = world.host().await;
    let mut spec = scripted(&["p", "q"]);
    spec = spec.node("last", NodeSpec { interrupt_before: true, ..script_node() });
    let graph = host.compile(&spec.edge_all(&["p", "q"], "last")).await.unwrap();
    let ops = json!([
        { "effect": { "name": "e", "key": "k", "input": 1 } },
        { "ask_all": ["this?", "that?"] },
        { "ask": "more?" },
        { "put_results": "a" },
    ]);
    let mut execution = graph.invoke(on("t"), script(ops)).await.unwrap();
    for turn in 0.. {
        is_same(&format!("turn {turn}"), both(&host, "t").await);
        let Some(asked) = execution.interrupts.last() else { break };
        let command = match asked.kind.is_gate() {
            true => Command::proceed(),
            false => Command::answers([(asked.interrupt.id, json!(turn))]).steer("go on"),
        };
        execution = host.resume(on("t"), command).await.unwrap();
        assert!(turn < 20, "{execution:#?}");
    }
    completed(execution);
    is_same("the end", both(&host, "t").await);
    let (known, _) = both(&host, "t").await;
    assert!(known.unwrap().values.contains_key("script"), "what was written whole is at hand");

    // Another run, and one that is called off.
    let ask = script(json!([{ "ask": "ok?" }]));
    paused(graph.invoke(on("t"), ask.clone()).await.unwrap());
    is_same("another run", both(&host, "t").await);
    host.cancel(on("t"), None, None).await.unwrap();
    is_same("called off", both(&host, "t").await);
}

/// One process answers, another still knows the thread as it left it.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_another_overtook_goes_on_from_what_is_true() {
    let world = World::new();
    let (here, there) = (world.host().await, world.host().await);
    let graph = here.compile(&scripted(&["n"])).await.unwrap();
    let ops = json!([{ "ask": "first?" }, { "ask": "second?" }, { "ask": "third?" }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let second = paused(there.resume(on("t"), Command::resume(1)).await.unwrap());
    assert_eq!(second[0].interrupt.payload, json!("second?"));

    // Not pending as far as it knows, and pending.
    let answer = Command::answers([(second[0].interrupt.id, json!(2))]);
    let third = paused(here.resume(on("t"), answer).await.unwrap());
    assert_eq!(third[0].interrupt.payload, json!("third?"));
    // Pending as far as it knows, and answered.
    let late = Command::answers([(second[0].interrupt.id, json!("late"))]);
    let refusal = refused(there.resume(on("t"), late).await);
    assert_eq!((refusal.checkpoint_id, &refusal.pending), (Some(third[0].checkpoint_id), &third));
    // A bare value is for what is asked when it comes.
    completed(there.resume(on("t"), Command::resume(3)).await.unwrap());
    assert_eq!(here.state(on("t")).await.unwrap()["a"], json!([1, 2, 3]));

    // Free as far as it knows, and paused; then paused as far as it knows, and free.
    let ask = script(json!([{ "ask": "ok?" }]));
    paused(graph.invoke(on("t"), ask.clone()).await.unwrap());
    there.compile(&scripted(&["n"])).await.unwrap();
    let elsewhere = there.kept_graph(graph.digest()).await.unwrap();
    let busy = refused(elsewhere.invoke(on("t"), ask.clone()).await);
    assert_eq!(busy.pending.len(), 1, "{busy:?}");
    completed(there.resume(on("t"), Command::resume(1)).await.unwrap());
    paused(graph.invoke(on("t"), ask).await.unwrap());
}
