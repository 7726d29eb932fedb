//! What is run: one node that asks one question, and writes the answer.

use std::path::{Path, PathBuf};

use holdpoint::{GraphSpec, NodeSpec, Reducer};
use serde_json::{Value, json};

pub const NODE: &str = "n";

/// The scripted node of the tests, as `make guests` built it.
pub fn component() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/components/script.wasm")
}

pub fn graph(component: &Path) -> GraphSpec {
    let node = NodeSpec::component(component.display()).reads(&["script"]).writes(&["a"]);
    GraphSpec::new("bench", NODE)
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Append)
        .node(NODE, node)
}

/// A run's input, which is also the state that the node is handed.
pub fn input() -> Value {
    json!({ "script": [
        { "ask": { "question": "Refund the order?", "order": 4711, "amount": 129.90 } },
        { "put_results": "a" },
    ] })
}

pub fn answer() -> Value {
    json!({ "approved": true })
}
