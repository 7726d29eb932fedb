//! What is run: the scripted node of the tests, in graphs around it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use holdpoint::{GraphSpec, NodeSpec, Reducer};
use serde_json::{Value, json};

pub const NODE: &str = "n";

/// As `make guests` built it.
pub fn component() -> PathBuf {
    component_in("")
}

/// The same node in another language, as `make languages` built it.
pub fn component_in(language: &str) -> PathBuf {
    let name = if language.is_empty() { "script".to_owned() } else { format!("script-{language}") };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/components").join(name).with_extension("wasm")
}

pub fn bytes(component: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(component)
        .with_context(|| format!("{} is not there; `make bench` builds it", component.display()))
}

/// One node that asks one question, and writes the answer.
pub fn graph(component: &Path) -> GraphSpec {
    let node = NodeSpec::component(component.display()).reads(&["script"]).writes(&["a"]);
    GraphSpec::new("bench", NODE)
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Append)
        .node(NODE, node)
}

/// A run's input, which is also the state that the node is handed.
pub fn input() -> Value {
    json!({ "script": [ask(), { "put_results": "a" }] })
}

/// One op: a question as people are asked.
pub fn ask() -> Value {
    json!({ "ask": { "question": "Refund the order?", "order": 4711, "amount": 129.90 } })
}

pub fn answer() -> Value {
    json!({ "approved": true })
}
