//! A run that was interrupted and resumed ends as one that was answered at once, and as one that never had
//! to ask: on random graphs of scripted nodes, with random programs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use holdpoint::model::ids::InterruptId;
use holdpoint::model::{EffectSpec, InterruptKind, Limits, OneOrMany, PendingInterrupt};
use holdpoint::{
    Command, EffectFailure, EffectRequest, Execution, GraphSpec, Host, NodeSpec, Reducer, ResumeTarget,
    RunStatus,
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
    Effect {
        approve: bool,
        key: u8,
    },
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
    /// Picks the node before it from which an edge leads here.
    after: u8,
    /// Takes a route to a later node (or the end) instead of its edges.
    goes: Option<u8>,
    /// Goes back to an earlier node, so many times.
    back: Option<(u8, u8)>,
    /// Starts tasks of a later node with programs of their own.
    sends: Vec<(u8, Vec<Act>)>,
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
    ];
    let leaf = prop_oneof![30 => simple, 1 => Just(Act::Fail)].boxed();
    let branch = || vec(leaf.clone(), 0..3);
    let choose = (branch(), branch()).prop_map(|(yes, no)| Act::Choose(yes, no));
    prop_oneof![6 => leaf.clone(), 1 => choose]
}

pub fn shape() -> impl Strategy<Value = Shape> {
    let send = (any::<u8>(), vec(act(), 0..3));
    let node = (
        vec(act(), 0..4),
        any::<u8>(),
        prop::option::weighted(0.2, any::<u8>()),
        prop::option::weighted(0.25, (any::<u8>(), 1..3_u8)),
        prop_oneof![3 => Just(vec![]), 1 => vec(send, 1..4)],
    );
    let node = node.prop_map(|(acts, after, goes, back, sends)| Node { acts, after, goes, back, sends });
    let joins = vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..4);
    (1..4_usize, vec(node, 2..6), joins, any::<u8>()).prop_map(|(entries, nodes, joins, replacer)| Shape {
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

    pub fn spec(&self, asking: Asking) -> GraphSpec {
        let mut spec = GraphSpec::new("random", "n0")
            .channel("script", Reducer::Replace)
            .channel("a", Reducer::Append)
            .channel("c", Reducer::Sum)
            .channel("d", Reducer::Merge)
            .channel("last", Reducer::Replace)
            .effect("e", EffectSpec::default())
            .effect("f", EffectSpec { approve: asking == Asking::People, ..EffectSpec::default() });
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
        for [a, b, to] in self.joins() {
            let from = [Self::node_name(a), Self::node_name(b)];
            spec = spec.edge_all(&[&from[0], &from[1]], &Self::node_name(to));
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

    /// The programs of all nodes, by name.
    pub fn script(&self, asking: Asking) -> Value {
        let programs = self.nodes.iter().enumerate().map(|(i, node)| {
            let name = Self::node_name(i);
            let mut ops = self.program(asking, i, &name, &node.acts);
            for (label, (to, acts)) in ["y", "z"].into_iter().zip(&node.sends) {
                let Some(to) = pick(*to, i + 1, self.nodes.len()) else { continue };
                let arg = json!({ "script": self.program(asking, to, &format!("{name}{label}"), acts) });
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
            (name, Value::Array(ops))
        });
        Value::Object(programs.collect())
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
    questions: Cell<usize>,
    ends: RefCell<BTreeMap<&'static str, usize>>,
}

impl Hosts {
    pub async fn new() -> Self {
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
    async fn run(&self, shape: &Shape, thread: &str, asking: Asking, schedule: Option<&[u8]>) -> Ended {
        let graph = self.here.compile(&shape.spec(asking)).await.unwrap();
        let mut person = Person::default();
        let mut execution = graph.invoke(on(thread), script(shape.script(asking))).await.unwrap();
        assert!(asking == Asking::People || execution.interrupts.is_empty());
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
                        0 if count == 1 => {
                            host.resume_targeted(target, Command::resume(value)).await.unwrap()
                        }
                        1 if pending.len() == 1 => {
                            host.resume(on(thread), Command::resume(value)).await.unwrap()
                        }
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
            assert!(person.shown.is_empty() || used == given, "each is used once: {used:?} {given:?}");
        }
        let requests = std::mem::take(&mut *self.world.sent.lock().unwrap());
        let count = requests.len();
        let sent: BTreeSet<_> =
            requests.into_iter().map(|r| (r.effect, r.input.to_string(), r.idempotency_key)).collect();
        assert_eq!(sent.len(), count, "something was sent twice: {sent:#?}");
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
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hosts = runtime.block_on(async { [Hosts::new().await, Hosts::new().await, Hosts::new().await] });
    let seed = seed();
    let config =
        Config { cases: GRAPHS, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
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
        panic!("HOLDPOINT_TEST_SEED={}: {why}", seed);
    }
    // The graphs do ask, most come to their end, and not all of them do.
    let (questions, ends, graphs) = (hosts[2].questions.get(), hosts[2].ends.borrow(), GRAPHS as usize);
    println!("{graphs} graphs, {questions} questions, {ends:?}");
    assert!(questions > 2 * graphs && ends["completed"] > graphs / 2 && ends["node-failed"] > 0, "{ends:?}");
}
