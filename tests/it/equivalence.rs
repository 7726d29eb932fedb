//! A run that was interrupted and resumed ends as one that was answered at once, and as one that never had
//! to ask: on random graphs of scripted nodes, with random programs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use futures::future::BoxFuture;

use holdpoint::model::ids::InterruptId;
use holdpoint::model::{EffectSpec, InterruptKind, Limits, OneOrMany, PendingInterrupt};
use holdpoint::{
    Command, EffectFailure, EffectRequest, EngineError, Execution, GraphSpec, Host, NodeSpec, Reducer,
    ResumeTarget, RunStatus,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::world::*;

/// Random graphs in a run of the tests.
const GRAPHS: u32 = 2_000;

/// What a node does, one thing after the other.
#[derive(Clone, Debug)]
enum Act {
    Ask,
    AskAll(usize),
    /// Asks, and does the first or the second as the answer is.
    Choose(Vec<Act>, Vec<Act>),
    /// `f` wants approval. The key says what the input is.
    Effect {
        approve: bool,
        key: u8,
    },
    Add(i8),
    Merge(u8),
    /// Writes the channel that two writers of one step must not write, if the node may.
    Replace,
    Read(char),
    /// An effect that fails twice before it is done; the node asks for another attempt until then.
    Flaky(u8),
    Fail,
}

#[derive(Clone, Debug)]
struct Node {
    acts: Vec<Act>,
    /// Picks the node before it from which an edge leads here.
    after: u8,
    /// Takes a route to a later node (or the end) instead of its edges.
    goes: Option<u8>,
    /// Goes back to an earlier node, so many times.
    back: Option<(u8, u8)>,
    /// Starts tasks of a later node with programs of their own.
    sends: Vec<(u8, Vec<Act>)>,
    /// It is no component but a graph of its own; its acts are never done.
    below: Option<Box<Shape>>,
    /// Where the graph stops.
    gates: (bool, bool),
    /// What it fails with goes to a node that counts it.
    caught: bool,
}

#[derive(Clone, Debug)]
pub struct Shape {
    entries: usize,
    nodes: Vec<Node>,
    /// Edges that wait for two nodes.
    joins: Vec<(u8, u8, u8)>,
    /// Which node may write the `replace` channel.
    replacer: u8,
}

fn act() -> impl Strategy<Value = Act> {
    let simple = prop_oneof![
        4 => Just(Act::Ask),
        1 => (2..4_usize).prop_map(Act::AskAll),
        3 => (prop::bool::weighted(0.3), 0..3_u8).prop_map(|(approve, key)| Act::Effect { approve, key }),
        2 => (-3..9_i8).prop_map(Act::Add),
        2 => (0..3_u8).prop_map(Act::Merge),
        2 => Just(Act::Replace),
        2 => prop::sample::select(vec!['c', 'd']).prop_map(Act::Read),
        1 => (0..2_u8).prop_map(Act::Flaky),
    ];
    let leaf = prop_oneof![30 => simple, 1 => Just(Act::Fail)].boxed();
    let branch = || vec(leaf.clone(), 0..3);
    let choose = (branch(), branch()).prop_map(|(yes, no)| Act::Choose(yes, no));
    prop_oneof![6 => leaf.clone(), 1 => choose]
}

pub fn shape() -> impl Strategy<Value = Shape> {
    let leaf = shape_of(Just(None).boxed());
    let below = |shape: BoxedStrategy<Shape>| prop::option::weighted(0.15, shape.prop_map(Box::new)).boxed();
    let middle = shape_of(below(leaf));
    shape_of(below(middle))
}

/// `below`: what a node is, if it is a graph.
fn shape_of(below: BoxedStrategy<Option<Box<Shape>>>) -> BoxedStrategy<Shape> {
    let send = (any::<u8>(), vec(act(), 0..3));
    let node = (
        vec(act(), 0..4),
        any::<u8>(),
        prop::option::weighted(0.2, any::<u8>()),
        prop::option::weighted(0.25, (any::<u8>(), 1..3_u8)),
        prop_oneof![3 => Just(vec![]), 1 => vec(send, 1..4)],
        below,
        (prop::bool::weighted(0.08), prop::bool::weighted(0.08)),
        prop::bool::weighted(0.3),
    );
    let node = node.prop_map(|(acts, after, goes, back, sends, below, gates, caught)| match below {
        // A graph takes no route, and is sent nothing here but what it reads.
        Some(below) => Node {
            acts: vec![],
            after,
            goes: None,
            back: None,
            sends: vec![],
            below: Some(below),
            gates,
            caught,
        },
        None => Node { acts, after, goes, back, sends, below: None, gates, caught },
    });
    let joins = vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..4);
    let shape = (1..4_usize, vec(node, 2..5), joins, any::<u8>());
    shape
        .prop_map(|(entries, nodes, joins, replacer)| Shape {
            entries: entries.min(nodes.len()),
            nodes,
            joins,
            replacer,
        })
        .boxed()
}

/// One of `from..to`, or nothing if that is empty.
fn pick(byte: u8, from: usize, to: usize) -> Option<usize> {
    (from < to).then(|| from + usize::from(byte) % (to - from))
}

impl Shape {
    fn node_name(i: usize) -> String {
        format!("n{i}")
    }

    /// Only one entry, at most, may have the replace channel: the compiler sees to that.
    fn replacer(&self) -> usize {
        usize::from(self.replacer) % self.nodes.len()
    }

    pub fn spec<'a>(&'a self, asking: Asking, host: &'a Host) -> BoxFuture<'a, GraphSpec> {
        Box::pin(self.spec_of(asking, host))
    }

    async fn spec_of(&self, asking: Asking, host: &Host) -> GraphSpec {
        let mut spec = GraphSpec::new("random", "n0")
            .channel("script", Reducer::Replace)
            .channel("a", Reducer::Append)
            .channel("c", [Reducer::Sum, Reducer::Max, Reducer::Min][usize::from(self.replacer) % 3])
            .channel("d", Reducer::Merge)
            .channel("last", Reducer::Replace)
            .effect("e", EffectSpec::default())
            .channel("failed", Reducer::Sum)
            .effect("f", EffectSpec { approve: asking == Asking::People, ..EffectSpec::default() })
            .node(
                "caught",
                NodeSpec::component(component("script")).reads(&["script"]).writes_as(&[("c", "failed")]),
            );
        let mut is_caught = false;
        spec.entry = OneOrMany::Many((0..self.entries).map(Self::node_name).collect());
        for (i, node) in self.nodes.iter().enumerate() {
            let counter = format!("count{i}");
            let mut own = vec![("a", "a"), ("c", "c"), ("d", "d")];
            let mut routes = Vec::new();
            let target = |byte| pick(byte, i + 1, self.nodes.len()).map(Self::node_name);
            if let Some((to, _)) = node.back {
                // How often it went back is what it reads and writes as `b`.
                spec = spec.channel(&counter, Reducer::Sum);
                own.push(("b", &counter));
                routes.push(("w", Self::node_name(usize::from(to) % (i + 1))));
            } else if self.replacer() == i {
                own.push(("b", "last"));
            }
            if let Some(to) = node.goes {
                routes.push(("x", target(to).unwrap_or("end".into())));
            }
            let labels = ["y", "z"];
            for (label, (to, _)) in labels.into_iter().zip(&node.sends) {
                routes.extend(target(*to).map(|to| (label, to)));
            }
            let routes: Vec<(&str, &str)> = routes.iter().map(|(label, to)| (*label, to.as_str())).collect();
            let reads: Vec<(&str, &str)> = own.iter().copied().chain([("script", "script")]).collect();
            let mut granted = match &node.below {
                None => NodeSpec::component(component("script"))
                    .reads_as(&reads)
                    .writes_as(&own)
                    .routes(&routes)
                    .effects(&["e", "f"])
                    .retry(6, 0),
                Some(below) => {
                    let below = host.compile(&below.spec(asking, host).await).await.unwrap().digest();
                    NodeSpec::subgraph(below).reads(&["script", "a", "c", "d"]).writes(&["a", "c", "d"])
                }
            };
            if node.caught {
                granted = granted.on_error("caught");
                is_caught = true;
            }
            if asking == Asking::People {
                (granted.interrupt_before, granted.interrupt_after) = node.gates;
            }
            spec = spec.node(&Self::node_name(i), granted);
            if let (true, Some(from)) = (i >= self.entries, pick(node.after, 0, i)) {
                spec = spec.edge(&Self::node_name(from), &Self::node_name(i));
            }
        }
        for [a, b, to] in self.joins() {
            let from = [Self::node_name(a), Self::node_name(b)];
            spec = spec.edge_all(&[&from[0], &from[1]], &Self::node_name(to));
        }
        if !is_caught {
            spec.nodes.remove("caught");
        }
        spec
    }

    /// Two different nodes, and a later one that waits for both.
    fn joins(&self) -> BTreeSet<[usize; 3]> {
        let joins = self.joins.iter().filter_map(|&(a, b, to)| {
            let to = pick(to, 2, self.nodes.len())?;
            let b = pick(b, 1, to)?;
            Some([pick(a, 0, b)?, b, to])
        });
        joins.collect()
    }

    /// The programs of all nodes, by their paths.
    pub fn script(&self, asking: Asking) -> Value {
        let mut programs = serde_json::Map::new();
        self.programs(asking, "", &mut programs);
        Value::Object(programs)
    }

    fn programs(&self, asking: Asking, above: &str, programs: &mut serde_json::Map<String, Value>) {
        programs.insert(format!("{above}caught"), json!([{ "put": { "c": 1 } }]));
        for (i, node) in self.nodes.iter().enumerate() {
            let name = format!("{above}{}", Self::node_name(i));
            if let Some(below) = &node.below {
                below.programs(asking, &format!("{name}/"), programs);
                continue;
            }
            let mut ops = self.program(asking, i, &name, &node.acts);
            for (label, (to, acts)) in ["y", "z"].into_iter().zip(&node.sends) {
                let Some(to) = pick(*to, i + 1, self.nodes.len()) else { continue };
                // A graph is sent nothing but that it shall run once more.
                let arg = match self.nodes[to].below {
                    Some(_) => json!({}),
                    None => json!({ "script": self.program(asking, to, &format!("{name}{label}"), acts) }),
                };
                ops.push(json!({ "send": { "label": label, "arg": arg } }));
            }
            if node.goes.is_some() {
                ops.push(json!({ "go": "x" }));
            }
            if let Some((_, times)) = node.back {
                let go = json!([{ "put": { "b": 1 } }, { "go": "w" }]);
                let again = (1..times).rev().fold(json!([]), |then_else, count| {
                    json!([{ "if_last": { "equals": count, "then": go, "else": then_else } }])
                });
                ops.push(json!({ "read": "b" }));
                ops.push(json!({ "if_last": { "equals": null, "then": go, "else": again } }));
            }
            programs.insert(name, Value::Array(ops));
        }
    }

    /// What the acts do in node `i`, with all they gave put down at the end.
    fn program(&self, asking: Asking, i: usize, site: &str, acts: &[Act]) -> Vec<Value> {
        let mut ops = self.ops(asking, i, site, acts);
        ops.push(json!({ "put_results": "a" }));
        ops
    }

    fn ops(&self, asking: Asking, i: usize, site: &str, acts: &[Act]) -> Vec<Value> {
        let may_replace = self.replacer() == i && self.nodes[i].back.is_none();
        let ask = |payload: Value| match asking {
            Asking::People => json!({ "ask": payload }),
            Asking::Nobody => json!({ "value": answer(&payload) }),
        };
        let op = |(place, act): (usize, &Act)| {
            let site = format!("{site}/{place}");
            let ops = |acts: &[Act], branch| self.ops(asking, i, &format!("{site}{branch}"), acts);
            match act {
                Act::Ask => ask(json!({ "site": site })),
                Act::AskAll(count) => {
                    let payloads = (0..*count).map(|nth| json!({ "site": site, "nth": nth }));
                    match asking {
                        Asking::People => json!({ "ask_all": payloads.collect::<Vec<_>>() }),
                        Asking::Nobody => {
                            json!({ "value": payloads.map(|p| answer(&p)).collect::<Vec<_>>() })
                        }
                    }
                }
                Act::Choose(yes, no) => json!([
                    ask(json!({ "choose": site })),
                    { "if_last": { "equals": true, "then": ops(yes, "y"), "else": ops(no, "n") } },
                ]),
                Act::Effect { approve: true, key: DENIED } if asking == Asking::Nobody => {
                    json!({ "value": { "err": { "kind": "denied", "message": "not approved" } } })
                }
                Act::Effect { approve, key } => json!({ "effect": {
                    "name": if *approve { "f" } else { "e" },
                    "key": format!("key{key}"),
                    "input": { "node": i, "key": key },
                } }),
                Act::Add(number) => json!({ "put": { "c": number } }),
                Act::Merge(key) => json!({ "put": { "d": { format!("key{key}"): site } } }),
                Act::Replace if may_replace => json!({ "put": { "b": site } }),
                Act::Replace => json!({ "value": "may not" }),
                Act::Read(channel) => json!({ "read": channel.to_string() }),
                Act::Flaky(key) => {
                    let input = json!({ "node": i, "flaky": key });
                    let done = json!({ "ok": { "done": input } });
                    let effect = json!({ "name": "e", "key": format!("flaky{key}"), "input": input });
                    json!([{ "effect": effect }, { "if_last": {
                        "equals": done, "then": [], "else": [{ "retry": format!("at {site}") }],
                    } }])
                }
                Act::Fail => json!({ "fail": format!("at {site}") }),
            }
        };
        let ops = acts.iter().enumerate().map(op);
        ops.flat_map(|op| if let Value::Array(ops) = op { ops } else { vec![op] }).collect()
    }
}

/// Whom the programs ask.
#[derive(Clone, Copy, PartialEq)]
pub enum Asking {
    People,
    /// They know the answers.
    Nobody,
}

/// Which sends of an effect that wants approval are not approved.
const DENIED: u8 = 1;

/// What a question is answered follows from what it shows, and not from when it is answered.
fn answer(payload: &Value) -> Value {
    match payload.get("choose").and_then(Value::as_str) {
        Some(site) => json!(site.bytes().map(usize::from).sum::<usize>() % 2 == 0),
        None => json!({ "to": payload }),
    }
}

/// Answers what a run asks, each question once.
#[derive(Default)]
pub struct Person {
    shown: BTreeMap<InterruptId, PendingInterrupt>,
    answered: BTreeSet<InterruptId>,
    given: Vec<Value>,
}

impl Person {
    /// What waits is as it was when it was first shown, and was not answered before.
    fn look(&mut self, execution: &Execution) {
        for pending in &execution.interrupts {
            let id = pending.interrupt.id;
            assert!(!self.answered.contains(&id), "it was answered: {pending:?}");
            assert_eq!(self.shown.entry(id).or_insert_with(|| pending.clone()), pending);
        }
    }

    pub fn answer(&mut self, pending: &PendingInterrupt) -> (InterruptId, Value) {
        let asked = &pending.interrupt;
        assert!(self.answered.insert(asked.id), "answered twice: {pending:?}");
        let value = match pending.kind {
            InterruptKind::Before | InterruptKind::After => Value::Null,
            InterruptKind::Approve => json!({ "approved": asked.payload["input"]["key"] != json!(DENIED) }),
            _ => {
                self.given.push(answer(&asked.payload));
                answer(&asked.payload)
            }
        };
        (asked.id, value)
    }
}

/// The end of a run.
#[derive(Debug, PartialEq)]
struct Ended {
    status: RunStatus,
    error: Option<(holdpoint::model::Kind, String)>,
    state: Value,
    /// Effects as they were sent: name, input and the key on the wire.
    sent: BTreeSet<(String, String, String)>,
}

/// Hosts on one database.
pub struct Hosts {
    world: World,
    pub here: Host,
    there: Host,
    /// What happens at the next effect.
    harm: Arc<AtomicU8>,
    questions: Cell<usize>,
    crashes: Cell<usize>,
    runs: Cell<usize>,
    ends: RefCell<BTreeMap<&'static str, usize>>,
}

/// The handler panics before it does anything, or when all is done: the invocation is over, and what was
/// under way with it.
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

impl Hosts {
    pub async fn new() -> Self {
        let (world, harm) = (World::new(), Arc::default());
        let (here, there) = (Self::open(&world, &harm).await, Self::open(&world, &harm).await);
        Self {
            world,
            here,
            there,
            harm,
            questions: Cell::default(),
            crashes: Cell::default(),
            runs: Cell::default(),
            ends: RefCell::default(),
        }
    }

    /// With effects whose outcome follows from their input, and how often they were asked for.
    async fn open(world: &World, harm: &Arc<AtomicU8>) -> Host {
        let mut builder = world.builder().limits(Limits { steps: 60, ..Limits::default() });
        for name in ["e", "f"] {
            let (sent, harm) = (world.sent.clone(), harm.clone());
            builder = builder.effect(name, move |request: EffectRequest| {
                let harm = harm.swap(0, Ordering::SeqCst);
                assert!(harm != BEFORE, "a crash before the effect");
                let mut sent = sent.lock().unwrap();
                let tried =
                    sent.iter().filter(|before| before.idempotency_key == request.idempotency_key).count();
                let outcome = match &request.input {
                    input if input.get("flaky").is_some() && tried < 2 => {
                        Err(EffectFailure::Retryable(json!("not yet")))
                    }
                    input if input["key"] == json!(2) => {
                        Err(EffectFailure::Final(json!({ "broken": input })))
                    }
                    input => Ok(json!({ "done": input })),
                };
                sent.push(request);
                drop(sent);
                assert!(harm != AFTER, "a crash after the effect");
                std::future::ready(outcome)
            });
        }
        builder.database(world.db()).open().await.unwrap()
    }

    /// Runs a graph to its end. `schedule`: how the person goes about it, and what goes wrong; none: all is
    /// answered at once, and nothing does.
    async fn run(&self, shape: &Shape, thread: &str, asking: Asking, schedule: Option<&[u8]>) -> Ended {
        let graph = self.here.compile(&shape.spec(asking, &self.here).await).await.unwrap();
        // What a graph before this one left behind, where it failed.
        self.world.sent.lock().unwrap().clear();
        let mut person = Person::default();
        let bytes = RefCell::new(schedule.unwrap_or(&[0]).iter().copied().cycle());
        let byte = || usize::from(bytes.borrow_mut().next().unwrap_or_default());
        self.runs.set(self.runs.get() + 1);
        let crashed = self.crashes.get();
        if schedule.is_some() {
            self.threaten(byte());
        }
        let started = graph.invoke(on(thread), script(shape.script(asking))).await;
        let mut execution = self.survived(thread, started).await;
        assert!(asking == Asking::People || execution.interrupts.is_empty());
        while execution.status == RunStatus::Interrupted {
            person.look(&execution);
            let (gates, questions): (Vec<_>, Vec<_>) =
                execution.interrupts.iter().partition(|pending| pending.kind.is_gate());
            let target = |id| ResumeTarget::run(execution.run_id).interrupt(id);
            let resumed = match schedule {
                None if questions.is_empty() => {
                    let (id, _) = person.answer(gates[0]);
                    self.here.resume_targeted(target(id), Command::proceed()).await
                }
                None => {
                    let answers: Vec<_> = questions.iter().map(|pending| person.answer(pending)).collect();
                    self.here.resume(on(thread), Command::answers(answers)).await
                }
                Some(_) => {
                    let reopened;
                    let host = match byte() % 8 {
                        0 => {
                            reopened = Self::open(&self.world, &self.harm).await;
                            &reopened
                        }
                        odd if odd % 2 == 1 => &self.there,
                        _ => &self.here,
                    };
                    if byte() % 4 == 0 {
                        assert_eq!(host.continue_run(on(thread)).await.unwrap(), execution);
                    }
                    self.threaten(byte());
                    if questions.is_empty() || (!gates.is_empty() && byte() % 2 == 0) {
                        let (id, _) = person.answer(gates[byte() % gates.len()]);
                        host.resume_targeted(target(id), Command::proceed()).await
                    } else {
                        let (first, count) = (byte() % questions.len(), 1 + byte() % questions.len());
                        let chosen: Vec<_> = questions.iter().cycle().skip(first).take(count).collect();
                        let answers: Vec<_> = chosen.iter().map(|pending| person.answer(pending)).collect();
                        let (id, value) = answers[0].clone();
                        match byte() % 3 {
                            0 if count == 1 => host.resume_targeted(target(id), Command::resume(value)).await,
                            1 if questions.len() == 1 => {
                                host.resume(on(thread), Command::resume(value)).await
                            }
                            _ => host.resume(on(thread), Command::answers(answers)).await,
                        }
                    }
                }
            };
            execution = self.survived(thread, resumed).await;
        }
        self.questions.set(self.questions.get() + person.answered.len());
        let kind = execution.error.as_ref().map_or("completed", |error| error.kind.as_str());
        *self.ends.borrow_mut().entry(kind).or_default() += 1;
        self.ended(&execution, &person, thread, self.crashes.get() > crashed).await
    }

    /// Now and then the next effect is the last thing that the process does.
    fn threaten(&self, byte: usize) {
        let harm = [0, 0, 0, 0, BEFORE, AFTER][byte % 6];
        self.harm.store(harm, Ordering::SeqCst);
    }

    /// The execution, by whoever goes on with it.
    async fn survived(&self, thread: &str, result: Result<Execution, EngineError>) -> Execution {
        // Nothing was sent, perhaps.
        self.harm.store(0, Ordering::SeqCst);
        match result {
            Err(EngineError::HandlerPanicked { .. }) => {
                self.crashes.set(self.crashes.get() + 1);
                self.there.continue_run(on(thread)).await.unwrap()
            }
            result => result.unwrap(),
        }
    }

    async fn ended(&self, execution: &Execution, person: &Person, thread: &str, crashed: bool) -> Ended {
        let mut state = self.there.state(on(thread)).await.unwrap();
        state.as_object_mut().unwrap().remove("script");
        if execution.status == RunStatus::Completed {
            let results = state.get("a").and_then(Value::as_array).cloned().unwrap_or_default();
            let all = results
                .iter()
                .flat_map(|result| result.as_array().map_or(vec![result], |all| all.iter().collect()));
            let answers = |value: &&Value| value.is_boolean() || value.get("to").is_some();
            let mut used: Vec<String> = all.filter(answers).map(Value::to_string).collect();
            let mut given: Vec<String> = person.given.iter().map(Value::to_string).collect();
            used.sort();
            given.sort();
            // What a node was told and failed with is in no channel.
            let mut left = given.into_iter();
            let each_once = used.iter().all(|value| left.any(|given| given == *value));
            assert!(
                person.shown.is_empty() || each_once,
                "each is used once: {used:?} of {:?}",
                person.given
            );
        }
        let requests = std::mem::take(&mut *self.world.sent.lock().unwrap());
        let once = requests.iter().filter(|request| request.input.get("flaky").is_none()).count();
        let sent: BTreeSet<_> =
            requests.into_iter().map(|r| (r.effect, r.input.to_string(), r.idempotency_key)).collect();
        // Whoever dies while it is under way sends it again, under the same key.
        let distinct = sent.iter().filter(|(_, input, _)| !input.contains("flaky")).count();
        assert!(crashed || distinct == once, "something was sent twice: {sent:#?}");
        let error = execution.error.as_ref().map(|error| (error.kind, error.message.clone()));
        Ended { status: execution.status, error, state, sent }
    }
}

/// Random, or as in the environment, to see a failure again.
pub fn seed() -> u128 {
    match std::env::var("HOLDPOINT_TEST_SEED") {
        Ok(text) => text.parse().expect("a seed as it was printed"),
        Err(_) => uuid::Uuid::now_v7().as_u128(),
    }
}

#[test]
fn i50_an_interrupted_run_ends_as_one_that_was_answered_at_once() {
    let mut seed = seed();
    // `make soak`: on until it is told to stop, or finds something.
    if std::env::var_os("HOLDPOINT_TEST_SOAK").is_some() {
        loop {
            graphs(seed, 500);
            seed += 1;
        }
    }
    // Each of these has a database of its own, so they need not wait for each other.
    let parts = 2;
    let part = |nth: u32| move || graphs(seed.wrapping_add(nth.into()), GRAPHS / parts);
    let parts: Vec<_> = (0..parts).map(|nth| std::thread::spawn(part(nth))).collect();
    for part in parts {
        if let Err(panicked) = part.join() {
            std::panic::resume_unwind(panicked);
        }
    }
}

/// So many random graphs, each run three times.
fn graphs(seed: u128, count: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hosts = runtime.block_on(async { [Hosts::new().await, Hosts::new().await, Hosts::new().await] });
    let config =
        Config { cases: count, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let bytes = [seed.to_be_bytes(), [0; 16]].concat();
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let threads = Cell::new(0);
    let ran = runner.run(&(shape(), vec(any::<u8>(), 1..60)), |(shape, schedule)| {
        let thread = format!("t{}", threads.replace(threads.get() + 1));
        let (unasked, at_once, piecemeal) = runtime.block_on(async {
            tokio::join!(
                hosts[0].run(&shape, &thread, Asking::Nobody, None),
                hosts[1].run(&shape, &thread, Asking::People, None),
                hosts[2].run(&shape, &thread, Asking::People, Some(&schedule)),
            )
        });
        prop_assert_eq!(&at_once, &piecemeal);
        prop_assert_eq!(&unasked, &piecemeal);
        Ok(())
    });
    if let Err(error) = ran {
        let why = match error {
            TestError::Fail(why, input) => format!("{why}\nminimal: {input:#?}"),
            TestError::Abort(why) => why.to_string(),
        };
        panic!("HOLDPOINT_TEST_SEED={seed}: {why}");
    }
    // The graphs do ask, most come to their end, not all of them do, and processes die now and then.
    let (questions, crashes, ends) =
        (hosts[2].questions.get(), hosts[2].crashes.get(), hosts[2].ends.borrow());
    let runs = hosts[2].runs.get();
    println!("seed {seed}: {runs} graphs, {questions} questions, {crashes} crashes, {ends:?}");
    let enough = questions > runs && crashes > runs / 50 && ends["completed"] > runs / 3;
    assert!(runs < 500 || (enough && ends["node-failed"] > 0), "{ends:?}");
}
