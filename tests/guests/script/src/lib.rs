//! One node that does what a test tells it to, written against the bare contract: it can also say what
//! the SDK would not let it say.
//!
//! It reads `script`, `a`, `b`, `c`, `d`, writes `a` to `d`, routes to `w`, `x`, `y`, `z`, and performs
//! `e` and `f`. Its program is the first of these that is there:
//!
//! 1. `context.arg.script`;
//! 2. `state.script[path]`, where the path is that of subgraph nodes and the node, joined by `/`, or the
//!    node's name alone;
//! 3. `state.script`, if it is a list.
//!
//! A program is a list of ops that are done in order; each is an object with one verb. What an op
//! *gives* is added to the list of results.
//!
//! | op | does | gives |
//! |---|---|---|
//! | `{"ask": payload, "schema"?: .., "expires_ms"?: n, "default"?: ..}` | `interrupt` | the answer |
//! | `{"ask_all": [payload, ..]}`, and the options above for all of them | `interrupt-all` | the list of answers |
//! | `{"raw_ask": "text"}` | `interrupt` with that text as payload, JSON or not | the answer |
//! | `{"ask_results": true}` | `interrupt` with all results so far as payload | the answer |
//! | `{"effect": {"name", "key", "input"}}` | `perform` | `{"ok": outcome}` or `{"err": {"kind", "message" or "value"}}` |
//! | `{"raw_effect": {"name", "key", "input": "text"}}` | the same, with that text as input | the same |
//! | `{"steering": true}` | `instructions` | `[{"actor", "text"}, ..]` |
//! | `{"log": {"level", "message"}}` | `log.write` | |
//! | `{"emit": value}`, `{"raw_emit": "text"}` | `events.emit` | |
//! | `{"print": "text"}`, `{"eprint": "text"}` | a line on stdout, stderr | |
//! | `{"stdin": true}` | reads stdin to its end | `{"ok": text}` or `{"err": why}` |
//! | `{"now": true}` | `SystemTime::now` | ms since 1970 |
//! | `{"monotonic": true}` | `Instant::now` | ns since the program began |
//! | `{"sleep_ms": n}` | `thread::sleep` | |
//! | `{"random": n}` | `wasi:random/random` | n bytes in hex |
//! | `{"insecure_random": n}`, `{"insecure_seed": true}` | the two other sources | bytes in hex |
//! | `{"hash_order": true}` | iterates over a `HashMap` with 20 keys | the keys in that order |
//! | `{"read": "key"}` | | `state[key]`, or null |
//! | `{"context": true}` | | the context, as an object |
//! | `{"value": any}` | | that value |
//! | `{"put": {key: value, ..}}` | into the update | |
//! | `{"put_last": "key"}` | the last result into the update | |
//! | `{"put_results": "key"}` | all results into the update | |
//! | `{"raw_update": "text"}` | that text is the update, JSON or not | |
//! | `{"go": "label"}`, `{"send": {"label", "arg"}}`, `{"end": true}` | a route | |
//! | `{"fail": "message"}`, `{"retry": "message"}`, or `{"message", "detail"}` | ends in that error | |
//! | `{"repeat": {"times": n, "ops": [..]}}` | | |
//! | `{"if_last": {"equals": any, "then": [..], "else": [..]}}` | | |
//! | `{"catch": [..]}` | the ops inside `catch_unwind`, under a guard whose `Drop` logs `unwound` and prints it | `"finished"` or `"caught"` |
//! | `{"panic": "message"}` | | |
//! | `{"trap": "unreachable" or "oob" or "div0"}` | | |
//! | `{"loop": true}` | for ever | |
//! | `{"recurse": true}` | for ever | |
//! | `{"grow": bytes}` | allocates so much, touches every page, keeps it | `true`, or `false` if refused |
//! | `{"spam_log": {"bytes", "times"}}`, `{"spam_print": ..}` | so many messages of that length | |
//! | `{"exit": code}` | `std::process::exit` | |
//! | `{"env": true}`, `{"args": true}` | | what is there |
//! | `{"open": "path"}` | reads a file | `{"ok": text}` or `{"err": why}` |
//! | `{"write": "path"}` | writes a file | `{"ok": null}` or `{"err": why}` |
//! | `{"list": "path"}` | lists a directory | `{"ok": [name, ..]}` or `{"err": why}` |
//! | `{"connect": "1.2.3.4:5"}`, `{"udp": "0.0.0.0:0"}` | opens a socket | `{"ok": null}` or `{"err": why}` |
//!
//! A program that makes no sense fails the node with a message that begins with `script:`.

mod bindings {
    #![allow(unsafe_code, clippy::all, reason = "generated: the canonical ABI passes pointers")]
    wit_bindgen::generate!({ path: "../../../wit", world: "node" });

    #[cfg(target_family = "wasm")]
    export!(Script with_types_in self);
    #[cfg(target_family = "wasm")]
    use super::Script;
}
mod hostile;
mod ops;

use bindings::{
    exports::holdpoint::node::handler::{Context, Guest, NodeInfo},
    holdpoint::node::types::{Failure, NodeError, Outcome},
};
use serde_json::Value;

pub struct Script;

impl Guest for Script {
    fn describe() -> NodeInfo {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        NodeInfo {
            name: "script".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reads: names(&["script", "a", "b", "c", "d"]),
            writes: names(&["a", "b", "c", "d"]),
            routes: names(&["w", "x", "y", "z"]),
            effects: names(&["e", "f"]),
        }
    }

    fn run(context: Context, state: String) -> Result<Outcome, NodeError> {
        let state = parse(&state)?;
        let arg = context.arg.as_deref().map(parse).transpose()?.unwrap_or_default();
        let program = program(&arg, &state, &context)?.to_vec();
        let mut machine = ops::Machine::new(context, state);
        machine.run(&program)?;
        Ok(machine.outcome())
    }
}

fn program<'a>(arg: &'a Value, state: &'a Value, context: &Context) -> Result<&'a [Value], NodeError> {
    let node = context.node.as_str();
    let path = context.path.iter().map(String::as_str).chain([node]).collect::<Vec<_>>().join("/");
    let script = &state["script"];
    [&arg["script"], &script[path.as_str()], &script[node], script]
        .into_iter()
        .find_map(Value::as_array)
        .map(Vec::as_slice)
        .ok_or_else(|| nonsense(format!("no program for `{node}`")))
}

fn parse(text: &str) -> Result<Value, NodeError> {
    serde_json::from_str(text).map_err(|why| nonsense(format!("no JSON: {why}")))
}

/// The test's mistake, not the host's.
fn nonsense(message: String) -> NodeError {
    NodeError::Fail(Failure { message: format!("script: {message}"), detail: None })
}
