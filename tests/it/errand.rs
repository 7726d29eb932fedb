//! A run that has some of everything, and whose end is known: two questions, one of them in a subgraph, two
//! effects, one of which fails at first and is tried again. What disturbs it may change nothing of the end.

use holdpoint::model::EffectSpec;
use holdpoint::{GraphSpec, NodeSpec};
use serde_json::{Value, json};

use crate::world::{script_node, scripted};

/// The subgraph: `x` asks, and tries its effect again.
pub fn below(effect: EffectSpec) -> GraphSpec {
    let mut spec = scripted(&["x"]).effect("e", effect.clone()).effect("f", effect);
    spec.nodes.insert("x".into(), script_node().retry(3, 1));
    spec
}

/// `p` asks and does its effect; then `s` is the subgraph, by path or digest.
pub fn above(effect: EffectSpec, below: impl ToString) -> GraphSpec {
    let s = NodeSpec::subgraph(below).reads(&["script"]).writes(&["a"]);
    scripted(&["p"]).effect("e", effect.clone()).effect("f", effect).node("s", s).edge("p", "s")
}

/// `thread` stands in what is sent, so that whoever receives it knows whose it is. `done`: what the effect
/// gives.
pub fn input(thread: &str, done: &Value) -> Value {
    let effect =
        |n: u32| json!({ "effect": { "name": "e", "key": n.to_string(), "input": sent(thread, n) } });
    let unless_done = json!({ "if_last": {
        "equals": { "ok": done }, "then": [], "else": [{ "retry": "not yet" }],
    } });
    json!({ "script": {
        "p": [{ "ask": "first?" }, effect(1), { "put_results": "a" }],
        "s/x": [{ "ask": "second?" }, effect(2), unless_done, { "put_results": "a" }],
    } })
}

pub fn sent(thread: &str, n: u32) -> Value {
    json!({ "thread": thread, "n": n })
}

/// Fails the first time that it is sent.
pub fn is_flaky(input: &Value) -> bool {
    input["n"] == 2
}

/// How a question is answered.
pub fn answer(payload: &Value) -> Value {
    json!(format!("to {}", payload.as_str().unwrap_or_default()))
}

/// Channel `a` in the end.
pub fn result(done: &Value) -> Value {
    json!(["to first?", { "ok": done }, "to second?", { "ok": done }])
}
