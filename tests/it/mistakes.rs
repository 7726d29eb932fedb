//! The tables of mistakes in the manuals: each row is a node that makes the mistake, and `verify` says of it what
//! stands there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdpoint::model::EffectSpec;
use holdpoint::{Command, GraphSpec, NodeSpec, Reducer};
use serde_json::{Value, json};

use crate::languages::{document, holdpoint};
use crate::world::{World, completed, component, on, paused};

/// A row of a manual: how it begins, the nodes that make the mistake, and what `verify` says beside what the row
/// quotes.
type Row = (&'static str, &'static [(&'static str, &'static [&'static str])]);

const RUST: &[Row] = &[
    (
        "an idempotency key from the time or",
        &[("key-from-time", &["under \"SystemTime", "finished"]), ("key-from-random", &["finished"])],
    ),
    ("an idempotency key from a counter", &[("key-from-counter", &["under \"payment-1\"", "finished"])]),
    ("a random number as a secret", &[("random-as-secret", &["finished"])]),
    ("a `static` carries", &[("static", &[r#"finished: {"result":{"pass":1}}"#])]),
    (
        "`Drop` or `catch_unwind`",
        &[("drop", &["stdout\n        released\n"]), ("catch-unwind", &[r#"{"answered":true}"#])],
    ),
    ("slow work", &[("slow", &["finished"])]),
    ("a question without a schema", &[("no-schema", &["expected a string"])]),
    // Shown by `hints::an_upgrade_says_what_it_changed_and_what_replayed`.
    ("a new version", &[]),
];

const PYTHON: &[Row] = &[
    ("a key from `uuid4()`", &[("key-from-uuid", &[]), ("key-from-time", &[]), ("key-from-random", &[])]),
    ("a global carries", &[("global", &[r#"finished: {"result":{"pass":1}}"#])]),
    ("`try: … interrupt(…)", &[("finally", &["stdout\n        released\n"])]),
    ("`import` inside", &[("late-import", &["File \"mistakes.py\", line"])]),
    (
        "`open`, `socket`",
        &[
            ("file", &["FileNotFoundError"]),
            ("socket", &["LookupError"]),
            ("subprocess", &["does not support processes"]),
            ("thread", &["can't start new thread"]),
        ],
    ),
    ("a slow computation", &[("slow", &["finished"])]),
    ("a `float`", &[("float", &[r#"finished: {"result":1.1}"#])]),
    ("a question without a schema", &[("no-schema", &["True is not a string"])]),
];

const JAVASCRIPT: &[Row] = &[
    ("a key from `Math.random()`", &[("key-from-random", &["finished"]), ("key-from-time", &["finished"])]),
    ("`Math.random()` for a secret", &[("random-as-secret", &["finished"])]),
    ("a module's variable", &[("variable", &[r#"finished: {"result":{"pass":1}}"#])]),
    ("`try { … interrupt(…) }", &[("finally", &["finished"])]),
    ("`async function`", &[("async", &["replays, and fails"])]),
    ("`setTimeout`, `fetch`", &[("timeout", &["at timeout (mistakes.js:"]), ("fetch", &[])]),
    // Shown by `languages::what_cannot_be_built_says_what_to_do`.
    ("`import fs", &[]),
    ("a slow computation", &[("slow", &["finished"])]),
    ("a `Map` or `Set`", &[("map-in-question", &[]), ("map-in-update", &["at result"])]),
    ("a question without a schema", &[("no-schema", &["not a function", "at no-schema (mistakes.js:"])]),
];

/// The first and the third cell of each row of the manual's table.
fn table(manual: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk").join(manual);
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.trim_start_matches("//! "));
    let rows = lines.skip_while(|line| !line.starts_with("| mistake |")).skip(2);
    let cells = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, mistake, _, says, _, _] = cells[..] else { panic!("{manual}: {row}") };
        (mistake.to_owned(), says.to_owned())
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn input(mistake: &str) -> String {
    json!({ "mistake": mistake, "size": 1_000 }).to_string()
}

#[track_caller]
fn is_right(manual: &str, node: &str, rows: &[Row]) {
    let table = table(manual);
    assert_eq!(table.len(), rows.len(), "{manual}: {table:#?}");
    let dir = tempfile::tempdir().unwrap();
    for ((mistake, says), (begins, nodes)) in table.iter().zip(rows) {
        assert!(mistake.starts_with(begins), "{manual}: {mistake} does not begin with {begins}");
        let status = if says.contains("exit status 5") { 5 } else { 0 };
        let quoted: Vec<&str> = says.split('`').skip(1).step_by(2).collect();
        for (case, parts) in *nodes {
            let mut args = vec!["verify", node];
            let input = input(case);
            args.extend(["--input", &input]);
            if *case == "float" {
                args.extend(["--answers", "[1.10]"]);
            }
            let output = holdpoint(dir.path(), &args);
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(status), "{manual}: {case}: {said}");
            for part in quoted.iter().chain(*parts) {
                assert!(said.contains(part), "{manual}: {case}: {part:?} is not in: {said}");
            }
        }
    }
}

#[test]
fn the_table_for_rust_is_right() {
    is_right("src/lib.rs", &component("mistakes"), RUST);
}

#[test]
fn the_table_for_python_is_right() {
    is_right("python/README.md", &component("mistakes-python"), PYTHON);
}

#[test]
fn the_table_for_javascript_is_right() {
    is_right("javascript/README.md", &component("mistakes-javascript"), JAVASCRIPT);
}

#[test]
fn what_would_clean_up_runs_on_the_last_pass_alone() {
    let dir = tempfile::tempdir().unwrap();
    for (node, case) in
        [("mistakes", "drop"), ("mistakes-python", "finally"), ("mistakes-javascript", "finally")]
    {
        let node = component(node);
        let released = |more: &[&str]| {
            let output = holdpoint(dir.path(), &[&["try", &node, "--input", &input(case)], more].concat());
            String::from_utf8(output.stderr).unwrap().contains("| released")
        };
        assert!(!released(&[]) && released(&["--answers", "[true]"]), "{node}");
    }
    // Nothing is caught either.
    let catches = &["try", &component("mistakes"), "--input", &input("catch-unwind")];
    assert_eq!(document(dir.path(), catches).0["status"], "interrupted");
}

/// What a schema is for: the wrong answer is refused, and another can be given.
#[test]
fn an_answer_that_the_schema_does_not_take_is_not_used_up() {
    let dir = tempfile::tempdir().unwrap();
    for node in ["mistakes", "mistakes-python", "mistakes-javascript"].map(component) {
        let told =
            |case: &str| document(dir.path(), &["try", &node, "--input", &input(case), "--answers", "[7]"]);
        assert_eq!(told("schema").1, 2, "{node}");
        let (failed, code) = told("no-schema");
        assert_eq!((code, &failed["error"]["kind"]), (1, &json!("node-failed")), "{node}: {failed}");
        assert_eq!(failed["questions"][0]["answer"], 7, "it was given: {failed}");
    }
}

/// What comes of a key, when the node is activated again on its thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_from_the_clock_has_it_done_twice_and_one_from_a_counter_once() {
    for (case, sent) in [("key-from-time", 2), ("key-from-random", 2), ("key-from-counter", 1)] {
        let world = World::new();
        let node = NodeSpec::component(component("mistakes")).reads(&["mistake"]).writes(&["result"]);
        let spec = GraphSpec::new("mistakes", "n")
            .channel("mistake", Reducer::Replace)
            .channel("result", Reducer::Replace)
            .effect("pay", EffectSpec::default())
            .node("n", node.effects(&["pay"]));
        let paid = Arc::new(AtomicUsize::new(0));
        let counted = paid.clone();
        let builder = world.builder().effect("pay", move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(json!("paid")))
        });
        let host = builder.database(world.db()).open().await.unwrap();
        let graph = host.compile(&spec).await.unwrap();
        let mut results: Vec<Value> = Vec::new();
        for _ in 0..2 {
            paused(graph.invoke(on("t"), json!({ "mistake": case })).await.unwrap());
            completed(graph.resume(on("t"), Command::resume(true)).await.unwrap());
            results.push(graph.state(on("t")).await.unwrap()["result"].clone());
        }
        let paid = paid.load(Ordering::SeqCst);
        assert_eq!((results[0] == results[1], paid), (sent == 1, sent), "{case}: {results:?}");
    }
}

#[test]
fn what_a_node_declares_and_its_graph_does_not_grant_is_said_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let node = component("script");
    let graph = format!(
        "name = \"g\"\nentry = \"n\"\n\n[channels]\nscript = {{ reducer = \"replace\" }}\n\n\
         [nodes.n]\ncomponent = {node:?}\nreads = [\"script\"]\n"
    );
    std::fs::write(dir.path().join("g.toml"), graph).unwrap();
    let ops = json!({ "script": [{ "ask": "?" }] }).to_string();
    let output = holdpoint(dir.path(), &["run", "g.toml", "--thread", "t", "--input", &ops]);
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "nodes.n.writes: script declares \"a\", which is not granted: writing it fails the node",
        "nodes.n.routes: script declares \"x\", which is not granted: taking it fails the node",
        "nodes.n.effects: script declares \"e\", which is not granted: asking for it fails the node",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
