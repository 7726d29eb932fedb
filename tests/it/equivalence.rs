//! A run that was interrupted and resumed ends as one that was answered at once: on random graphs of
//! scripted nodes, with random programs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdpoint::model::ids::{InterruptId, TaskId};
use holdpoint::model::{EffectSpec, InterruptKind, Limits, OneOrMany, PendingInterrupt};
use holdpoint::{
    Command, EffectFailure, EffectRequest, Execution, GraphSpec, Host, NodeSpec, Reducer, ResumeTarget, RunStatus,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::world::*;

const GRAPHS: u32 = 220;

/// What a node does, one thing after the other.
#[derive(Clone, Debug)]
enum Act {
    Ask,
    AskAll(usize),
    /// Asks, and does the first or the second as the answer is.
    Choose(Vec<Act>, Vec<Act>),
    /// `f` wants approval. The key says what the input is.
    Effect { approve: bool, key: u8 },
    Add(i8),
    Merge(u8),
    /// Writes the channel that two writers of one step must not write, if the node may.
    Replace,
    Read(char),
    Fail,
}

#[derive(Clone, Debug)]
struct Node {
    acts: Vec<Act>,
    /// Picks one of the nodes before it, from which an edge leads here.
    after: u8,
    /// Takes a route to a later node (or the end) instead of its edges.
    goes: Option<u8>,
    /// Goes back to an earlier node, so many times.
    back: Option<(u8, u8)>,
    /// Starts tasks of a later node with programs of their own.
    sends: Vec<(u8, Vec<Act>)>,
}

#[derive(Clone, Debug)]
struct Shape {
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
        1 => Just(Act::Replace),
        2 => prop::sample::select(vec!['c', 'd']).prop_map(Act::Read),
    ];
    let leaf = prop_oneof![30 => simple, 1 => Just(Act::Fail)].boxed();
    let branch = || vec(leaf.clone(), 0..3);
    let choose = (branch(), branch()).prop_map(|(yes, no)| Act::Choose(yes, no));
    prop_oneof![6 => leaf.clone(), 1 => choose]
}

fn shape() -> impl Strategy<Value = Shape> {
    let send = (any::<u8>(), vec(act(), 0..3));
    let node = (
        vec(act(), 0..4),
        any::<u8>(),
        prop::option::weighted(0.2, any::<u8>()),
        prop::option::weighted(0.25, (any::<u8>(), 1..3_u8)),
        prop_oneof![3 => Just(vec![]), 1 => vec(send, 1..4)],
    );
    let node = node.prop_map(|(acts, after, goes, back, sends)| Node { acts, after, goes, back, sends });
    let joins = vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..3);
    (1..4_usize, vec(node, 1..6), joins, any::<u8>()).prop_map(|(entries, nodes, joins, replacer)| Shape {
        entries: entries.min(nodes.len()),
        nodes,
        joins,
        replacer,
    })
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

    fn spec(&self) -> GraphSpec {
        let mut spec = GraphSpec::new("random", "n0")
            .channel("script", Reducer::Replace)
            .channel("a", Reducer::Append)
            .channel("c", Reducer::Sum)
            .channel("d", Reducer::Merge)
            .channel("last", Reducer::Replace)
            .effect("e", EffectSpec::default())
            .effect("f", EffectSpec { approve: true, ..EffectSpec::default() });
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
            let granted = NodeSpec::component(component("script"))
                .reads_as(&reads)
                .writes_as(&own)
                .routes(&routes)
                .effects(&["e", "f"]);
            spec = spec.node(&Self::node_name(i), granted);
            if let (true, Some(from)) = (i >= self.entries, pick(node.after, 0, i)) {
                spec = spec.edge(&Self::node_name(from), &Self::node_name(i));
            }
        }
        for &(a, b, to) in &self.joins {
            let Some(to) = pick(to, 2, self.nodes.len()) else { continue };
            let (Some(a), Some(b)) = (pick(a, 0, to), pick(b, 0, to)) else { continue };
            if a != b {
                let from = [Self::node_name(a), Self::node_name(b)];
                spec = spec.edge_all(&[&from[0], &from[1]], &Self::node_name(to));
            }
        }
        spec
    }

    /// The programs of all nodes, by name.
    fn script(&self) -> Value {
        let programs = self.nodes.iter().enumerate().map(|(i, node)| {
            let mut ops = self.program(i, &node.acts);
            for (label, (to, acts)) in ["y", "z"].into_iter().zip(&node.sends) {
                let Some(to) = pick(*to, i + 1, self.nodes.len()) else { continue };
                let arg = json!({ "script": self.program(to, acts) });
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
            (Self::node_name(i), Value::Array(ops))
        });
        Value::Object(programs.collect())
    }

    /// What the acts do in node `i`, with all they gave put down at the end.
    fn program(&self, i: usize, acts: &[Act]) -> Vec<Value> {
        let mut ops = self.ops(i, acts);
        ops.push(json!({ "put_results": "a" }));
        ops
    }

    fn ops(&self, i: usize, acts: &[Act]) -> Vec<Value> {
        let may_replace = self.replacer() == i && self.nodes[i].back.is_none();
        let op = |(place, act): (usize, &Act)| match act {
            Act::Ask => json!({ "ask": { "place": place } }),
            Act::AskAll(count) => json!({ "ask_all": (0..*count).collect::<Vec<_>>() }),
            Act::Choose(yes, no) => json!([
                { "ask": { "choose": place }, "schema": { "type": "boolean" } },
                { "if_last": { "equals": true, "then": self.ops(i, yes), "else": self.ops(i, no) } },
            ]),
            Act::Effect { approve, key } => json!({ "effect": {
                "name": if *approve { "f" } else { "e" },
                "key": format!("key{key}"),
                "input": { "node": i, "key": key },
            } }),
            Act::Add(number) => json!({ "put": { "c": number } }),
            Act::Merge(key) => json!({ "put": { "d": { format!("key{key}"): format!("n{i}/{place}") } } }),
            Act::Replace if may_replace => json!({ "put": { "b": [i, place] } }),
            Act::Replace => json!({ "value": "may not" }),
            Act::Read(channel) => json!({ "read": channel.to_string() }),
            Act::Fail => json!({ "fail": format!("at {place}") }),
        };
        let ops = acts.iter().enumerate().map(op);
        ops.flat_map(|op| if let Value::Array(ops) = op { ops } else { vec![op] }).collect()
    }
}

/// Answers what a run asks. The answer follows from which question it is and not from when it is
/// answered; and, where the schema lets it, no two are the same.
#[derive(Default)]
struct Person {
    /// In the order in which they first asked: all tasks of a step do so in its first pause, in task order.
    tasks: HashMap<TaskId, usize>,
    shown: BTreeMap<InterruptId, PendingInterrupt>,
    answered: BTreeSet<InterruptId>,
    unique: Vec<Value>,
}

impl Person {
    /// What waits is as it was when it was first shown, and was not answered before.
    fn look(&mut self, execution: &Execution) {
        for pending in &execution.interrupts {
            let id = pending.interrupt.id;
            assert!(!self.answered.contains(&id), "it was answered: {pending:?}");
            assert_eq!(self.shown.entry(id).or_insert_with(|| pending.clone()), pending);
            let number = self.tasks.len();
            self.tasks.entry(pending.interrupt.task_id).or_insert(number);
        }
    }

    fn answer(&mut self, pending: &PendingInterrupt) -> (InterruptId, Value) {
        let asked = &pending.interrupt;
        assert!(self.answered.insert(asked.id), "answered twice: {pending:?}");
        let task = self.tasks[&asked.task_id];
        let value = match pending.kind {
            // Of one effect that several tasks want approved, whoever comes first decides.
            InterruptKind::Approve => json!({ "approved": asked.payload["input"]["key"] != json!(1) }),
            _ if asked.payload.get("choose").is_some() => json!((task + asked.order) % 2 == 0),
            _ => {
                let value = json!({ "task": task, "order": asked.order });
                self.unique.push(value.clone());
                value
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
    /// Effects by name and input, each as often as it was sent.
    sent: Vec<(String, String)>,
    /// Answers that no two questions share, each as often as it stands in the state.
    used: Vec<String>,
}

/// All hosts that take part, on one database.
struct Hosts {
    world: World,
    here: Host,
    there: Host,
    questions: Cell<usize>,
    ends: RefCell<BTreeMap<&'static str, usize>>,
}

impl Hosts {
    async fn new() -> Self {
        let world = World::new();
        let (here, there) = (Self::open(&world).await, Self::open(&world).await);
        Self { world, here, there, questions: Cell::default(), ends: RefCell::default() }
    }

    /// With effects whose outcome follows from their input.
    async fn open(world: &World) -> Host {
        let mut builder = world.builder().limits(Limits { steps: 60, ..Limits::default() });
        for name in ["e", "f"] {
            let sent = world.sent.clone();
            builder = builder.effect(name, move |request: EffectRequest| {
                let outcome = match &request.input["key"] {
                    key if *key == json!(2) => Err(EffectFailure::Final(json!({ "broken": request.input }))),
                    _ => Ok(json!({ "done": request.input })),
                };
                sent.lock().unwrap().push(request);
                std::future::ready(outcome)
            });
        }
        builder.database(world.db()).open().await.unwrap()
    }

    /// Runs a graph to its end. `schedule`: how the person goes about it; none: all is answered at once.
    async fn run(&self, shape: &Shape, thread: &str, schedule: Option<&[u8]>) -> Ended {
        let graph = self.here.compile(&shape.spec()).await.unwrap();
        let mut person = Person::default();
        let mut execution = graph.invoke(on(thread), json!({ "script": shape.script() })).await.unwrap();
        let mut bytes = schedule.unwrap_or(&[0]).iter().copied().cycle();
        while execution.status == RunStatus::Interrupted {
            person.look(&execution);
            let pending = &execution.interrupts;
            execution = match schedule {
                None => {
                    let answers: Vec<_> = pending.iter().map(|pending| person.answer(pending)).collect();
                    self.here.resume(on(thread), Command::answers(answers)).await.unwrap()
                }
                Some(_) => {
                    let mut byte = || usize::from(bytes.next().unwrap_or_default());
                    let reopened;
                    let host = match byte() % 8 {
                        0 => {
                            reopened = Self::open(&self.world).await;
                            &reopened
                        }
                        odd if odd % 2 == 1 => &self.there,
                        _ => &self.here,
                    };
                    if byte() % 4 == 0 {
                        assert_eq!(host.continue_run(on(thread)).await.unwrap(), execution);
                    }
                    let (first, count) = (byte() % pending.len(), 1 + byte() % pending.len());
                    let chosen: Vec<_> = pending.iter().cycle().skip(first).take(count).collect();
                    let answers: Vec<_> = chosen.iter().map(|pending| person.answer(pending)).collect();
                    let (id, value) = answers[0].clone();
                    let target = ResumeTarget::run(execution.run_id).interrupt(id);
                    match byte() % 3 {
                        0 if count == 1 => host.resume_targeted(target, Command::resume(value)).await.unwrap(),
                        1 if pending.len() == 1 => host.resume(on(thread), Command::resume(value)).await.unwrap(),
                        _ => host.resume(on(thread), Command::answers(answers)).await.unwrap(),
                    }
                }
            };
        }
        self.questions.set(self.questions.get() + person.answered.len());
        let kind = execution.error.as_ref().map_or("completed", |error| error.kind.as_str());
        *self.ends.borrow_mut().entry(kind).or_default() += 1;
        self.ended(&execution, &person, thread).await
    }

    async fn ended(&self, execution: &Execution, person: &Person, thread: &str) -> Ended {
        let state = self.there.state(on(thread)).await.unwrap();
        let sent = std::mem::take(&mut *self.world.sent.lock().unwrap());
        let keys: BTreeSet<&str> = sent.iter().map(|request| request.idempotency_key.as_str()).collect();
        assert_eq!(keys.len(), sent.len(), "sent twice: {sent:#?}");
        let mut sent: Vec<_> = sent.into_iter().map(|r| (r.effect, r.input.to_string())).collect();
        sent.sort();
        let mut used = Vec::new();
        let empty = Vec::new();
        for result in state.get("a").and_then(Value::as_array).unwrap_or(&empty) {
            let answers = result.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(result));
            used.extend(answers.iter().filter(|value| value.get("order").is_some()).map(Value::to_string));
        }
        used.sort();
        let mut given: Vec<_> = person.unique.iter().map(Value::to_string).collect();
        given.sort();
        match execution.status {
            RunStatus::Completed => assert_eq!(used, given, "each answer is used once"),
            _ => assert!(used.windows(2).all(|pair| pair[0] != pair[1]), "an answer is used twice: {used:?}"),
        }
        let error = execution.error.as_ref().map(|error| (error.kind, error.message.clone()));
        Ended { status: execution.status, error, state, sent, used }
    }
}

/// Random, or as in the environment, to see a failure again.
fn seed() -> u128 {
    match std::env::var("HOLDPOINT_TEST_SEED") {
        Ok(text) => text.parse().expect("a seed as it was printed"),
        Err(_) => uuid::Uuid::now_v7().as_u128(),
    }
}

#[test]
fn i50_an_interrupted_run_ends_as_one_that_was_answered_at_once() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hosts = runtime.block_on(Hosts::new());
    let seed = seed();
    let config = Config { cases: GRAPHS, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let bytes = [seed.to_be_bytes(), [0; 16]].concat();
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let threads = Cell::new(0);
    let ran = runner.run(&(shape(), vec(any::<u8>(), 1..60)), |(shape, schedule)| {
        let n = threads.replace(threads.get() + 1);
        runtime.block_on(async {
            hosts.world.sent.lock().unwrap().clear();
            let at_once = hosts.run(&shape, &format!("a{n}"), None).await;
            let piecemeal = hosts.run(&shape, &format!("b{n}"), Some(&schedule)).await;
            prop_assert_eq!(at_once, piecemeal);
            Ok(())
        })
    });
    if let Err(error) = ran {
        let why = match error {
            TestError::Fail(why, input) => format!("{why}\nminimal: {input:#?}"),
            TestError::Abort(why) => why.to_string(),
        };
        panic!("HOLDPOINT_TEST_SEED={}: {why}", seed);
    }
    let (questions, ends) = (hosts.questions.get(), hosts.ends.borrow());
    println!("{GRAPHS} graphs, {questions} questions, {ends:?}");
    // The graphs do ask, most come to their end, and not all of them do.
    let graphs = GRAPHS as usize;
    assert!(questions > 4 * graphs && ends["completed"] > graphs && ends["node-failed"] > 0, "{ends:?}");
}
