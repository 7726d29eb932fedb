//! What the program tells a person beside the document: what a question takes, what comes next, what is wrong where.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::languages::{document, holdpoint};
use crate::world::component;

/// What a person reads, and the exit status.
#[track_caller]
fn read(dir: &Path, args: &[&str]) -> (String, i32) {
    let output = holdpoint(dir, args);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (said, output.status.code().unwrap())
}

/// A graph of scripted nodes, all of them entries.
fn graph(name: &str, nodes: &[(&str, &str)], more: &str) -> String {
    let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "name = \"{name}\"\nentry = {names:?}\n\n[channels]\nscript = {{ reducer = \"replace\" }}\n\
         a = {{ reducer = \"append\" }}\n{more}\n"
    );
    for (node, keys) in nodes {
        let component = component("script");
        text += &format!(
            "[nodes.{node}]\ncomponent = {component:?}\nreads = [\"script\"]\nwrites = [\"a\"]\n{keys}\n\n"
        );
    }
    text
}

fn input(ops: Value) -> String {
    json!({ "script": ops }).to_string()
}

#[test]
fn a_question_says_what_it_takes_and_an_answer_that_is_not_filled_in_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("g.toml"), graph("g", &[("n", "")], "")).unwrap();
    let schema = json!({ "type": "object", "required": ["approved", "reason"], "properties": {
        "approved": { "type": "boolean" }, "reason": { "type": "string" } } });
    let ops = json!([{ "ask": "?", "schema": schema }, { "put_results": "a" }]);
    let (said, code) = read(dir, &["run", "g.toml", "--thread", "t", "--input", &input(ops)]);
    assert_eq!(code, 3, "{said}");
    for part in [
        "takes an object: approved (true or false), reason (a string)",
        r#"'{"approved":true,"reason":<string>}'"#,
        r#"'{"approved":false,"reason":<string>}'"#,
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let typed = r#"{"approved":true,"reason":<string>}"#;
    let (said, code) = read(dir, &["resume", "--thread", "t", typed]);
    assert!(code == 2 && said.contains("for you to fill in"), "{said}");
    let typed = r#"{"approved":true,"reason":"broken"}"#;
    assert_eq!(read(dir, &["resume", "--thread", "t", typed]).1, 0);
}

#[test]
fn a_question_that_expired_is_shown_with_the_way_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("g.toml"), graph("g", &[("n", "")], "")).unwrap();
    let ops = json!([{ "ask": "?", "expires_ms": 1, "default": "no" }, { "put_results": "a" }]);
    assert_eq!(read(dir, &["run", "g.toml", "--thread", "t", "--input", &input(ops)]).1, 3);
    for command in ["pending", "show"] {
        let (said, _) = read(dir, &[command, "--thread", "t"]);
        assert!(said.contains("expired at ") && said.contains("continue --thread t"), "{command}: {said}");
        assert!(!said.contains("resume"), "{command}: {said}");
    }
    let (done, code) = document(dir, &["continue", "--thread", "t"]);
    assert_eq!((code, &done["state"]["a"]), (0, &json!(["no"])), "{done}");
}

#[test]
fn what_was_asked_and_who_answered_is_shown_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("g.toml"), graph("g", &[("n", "")], "")).unwrap();
    let ops = json!([{ "ask": "may I?" }, { "put_results": "a" }]);
    assert_eq!(read(dir, &["run", "g.toml", "--thread", "t", "--input", &input(ops)]).1, 3);
    let (before, _) = read(dir, &["history", "--thread", "t"]);
    assert!(before.contains("may I?") && before.contains("pending"), "{before}");
    assert_eq!(read(dir, &["resume", "--thread", "t", "\"you may\"", "--as", "maria"]).1, 0);
    let (after, _) = read(dir, &["history", "--thread", "t"]);
    assert!(after.contains(" by maria: \"you may\""), "{after}");
    let (document, _) = document(dir, &["history", "--thread", "t"]);
    let asked: Vec<&Value> = document["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|c| c["interrupts"].as_array())
        .flatten()
        .collect();
    assert_eq!(asked.len(), 1, "{document}");
    let shown = ["payload", "status", "answer", "by"].map(|key| asked[0][key].clone());
    assert_eq!(shown, ["may I?", "answered", "you may", "maria"].map(Value::from), "{document}");
}

#[test]
fn a_failure_is_told_alike_wherever_it_is_shown_and_with_what_comes_next() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let nodes = [("n", "on_error = \"m\""), ("m", "")];
    let taken = graph("g", &nodes, "").replace("entry = [\"n\", \"m\"]", "entry = \"n\"");
    fs::write(dir.join("taken.toml"), taken).unwrap();
    let ops = json!({ "n": [{ "fail": "no" }], "m": [{ "value": 1 }] });
    let (said, code) = read(dir, &["run", "taken.toml", "--thread", "t", "--input", &input(ops)]);
    assert_eq!(code, 0, "{said}");
    for command in ["show", "history"] {
        let (said, _) = read(dir, &[command, "--thread", "t"]);
        assert!(said.contains("failed (node-failed), taken by on_error"), "{command}: {said}");
    }

    fs::write(dir.join("g.toml"), graph("g", &[("n", "")], "")).unwrap();
    let ops = input(json!([{ "fail": "no" }]));
    let (said, code) = read(dir, &["run", "g.toml", "--thread", "u", "--input", &ops]);
    assert!(code == 1 && said.contains("retry --thread u"), "{said}");
    for command in ["show", "history"] {
        let (said, _) = read(dir, &[command, "--thread", "u"]);
        assert!(said.contains("failed (node-failed)") && !said.contains("on_error"), "{command}: {said}");
    }
}

#[test]
fn a_node_that_fails_at_once_is_not_said_to_be_verified() {
    let dir = tempfile::tempdir().unwrap();
    let script = component("script");
    let (said, code) = read(dir.path(), &["verify", &script]);
    assert!(code == 5 && said.contains("nothing verified") && said.contains("--input"), "{said}");
    let (found, code) = document(dir.path(), &["verify", &script]);
    assert_eq!((code, found["unverified"].as_array().unwrap().len()), (5, 1), "{found}");
    let asks = input(json!([{ "ask_all": [1, 2] }, { "fail": "no" }]));
    let (said, code) = read(dir.path(), &["verify", &script, "--input", &asks, "--answers", "[7, 8]"]);
    assert!(
        code == 5
            && said.contains("replays, and fails")
            && said.contains("asks (order 0) 1")
            && said.contains("asks (order 1) 2"),
        "{said}"
    );
}

#[test]
fn what_is_wrong_below_is_said_with_its_node_and_graph_and_what_is_right_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("below.toml"), graph("below", &[("asks", "")], "")).unwrap();
    let research = "[nodes.research]\ngraph = \"below.toml\"\nagent = \"scout\"\n\
                    reads = { script = \"script\" }\nwrites = { a = \"found\" }\n";
    let above =
        graph("above", &[], "found = { reducer = \"append\" }").replace("[]", "\"research\"") + research;
    fs::write(dir.join("above.toml"), &above).unwrap();
    let (said, code) = read(dir, &["inspect", "above.toml"]);
    assert_eq!(code, 0, "{said}");
    for part in ["agent    scout", "a (to found)", "    asks\n", "can be run"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (found, _) = document(dir, &["inspect", "above.toml"]);
    assert_eq!(found["nodes"]["research"]["below"]["graph"], "below", "{found}");

    let broken = graph("below", &[("asks", "")], "").replace(&component("script"), "gone.wasm");
    fs::write(dir.join("below.toml"), broken).unwrap();
    let (said, code) = read(dir, &["run", "above.toml", "--thread", "t"]);
    assert!(code == 2 && said.contains("gone.wasm (node asks of the graph below)"), "{said}");
    assert_eq!(read(dir, &["inspect", "above.toml"]).1, 2);
    fs::remove_file(dir.join("below.toml")).unwrap();
    let (said, _) = read(dir, &["run", "above.toml", "--thread", "t"]);
    assert!(said.contains("below.toml (node research of the graph above)"), "{said}");
    fs::write(dir.join("above.toml"), above.replace("below.toml", "above.toml")).unwrap();
    assert_eq!(read(dir, &["inspect", "above.toml"]).1, 2);
}

#[test]
fn an_upgrade_says_what_it_changed_and_what_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let first = graph("first", &[("m", ""), ("n", "")], "");
    fs::write(dir.join("first.toml"), &first).unwrap();
    // Another component that does the same: a section that nobody reads at the end of its bytes.
    let mut other = fs::read(component("script")).unwrap();
    other.extend(b"\0\x05\x04note");
    fs::write(dir.join("other.wasm"), other).unwrap();
    let (before, after) = first.split_once("[nodes.n]").unwrap();
    let second = format!("{before}[nodes.n]{}", after.replace(&component("script"), "other.wasm"));
    fs::write(dir.join("second.toml"), second.replace("\"first\"", "\"second\"")).unwrap();
    let ops = input(json!([{ "ask": 1 }]));
    assert_eq!(read(dir, &["run", "first.toml", "--thread", "t", "--input", &ops]).1, 3);
    let (said, code) = read(dir, &["upgrade", "--thread", "t", "second.toml"]);
    assert_eq!(code, 3, "{said}");
    for part in [
        "changed first (sha256:",
        "to second (sha256:",
        "m  has the component that it had",
        "n  replayed under sha256:",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (found, _) = document(dir, &["upgrade", "--thread", "t", "first.toml"]);
    assert_eq!(found["upgrade"]["tasks"].as_array().unwrap().len(), 2, "{found}");
}

#[test]
fn an_upgrade_that_does_not_fit_shows_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // What a node does hangs on what it is given, as another component would do otherwise.
    let given = |reads: &str| {
        let component = component("script");
        format!(
            "name = \"g\"\nentry = \"n\"\n[channels]\none = {{ reducer = \"replace\" }}\n\
             two = {{ reducer = \"replace\" }}\n[nodes.n]\ncomponent = {component:?}\nreads = {{ script = \"{reads}\" }}\n"
        )
    };
    fs::write(dir.join("g.toml"), given("one")).unwrap();
    let input = json!({ "one": [{ "ask": "first?" }], "two": [{ "ask": "another?" }] }).to_string();
    assert_eq!(read(dir, &["run", "g.toml", "--thread", "t", "--input", &input]).1, 3);
    fs::write(dir.join("h.toml"), given("two")).unwrap();
    let (said, code) = read(dir, &["upgrade", "--thread", "t", "h.toml"]);
    assert_eq!(code, 4, "{said}");
    for part in ["nothing is changed", "on record  ", "first?", "now        ", "another?"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_question_is_shown_with_where_it_stands_and_what_was_said_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("child.toml"), graph("child", &[("y", "")], "")).unwrap();
    fs::write(
        dir.join("g.toml"),
        "name = \"g\"\nentry = \"s\"\n[channels]\nscript = { reducer = \"replace\" }\n\
         a = { reducer = \"append\" }\n[nodes.s]\ngraph = \"child.toml\"\nreads = [\"script\"]\nwrites = [\"a\"]\n",
    )
    .unwrap();
    let ops = json!([{ "ask": "?" }, { "steering": true }, { "ask": "?" }, { "put_results": "a" }]);
    let (paused, code) = document(dir, &["run", "g.toml", "--thread", "t", "--input", &input(ops)]);
    assert_eq!(code, 3, "{paused}");
    let asked = &paused["interrupts"][0];
    for command in ["pending", "show"] {
        let (said, _) = read(dir, &[command, "--thread", "t"]);
        let ids = [&asked["run_path"][0], &asked["run_path"][1], &asked["task_id"], &asked["checkpoint_id"]];
        for id in ids {
            assert!(said.contains(id.as_str().unwrap()), "{command}: {id}: {said}");
        }
    }
    let (history, _) = read(dir, &["history", "--thread", "t"]);
    assert!(history.contains("s/y "), "{history}");

    assert_eq!(read(dir, &["steer", "--thread", "t", "--as", "ann", "be brief"]).1, 0);
    let steering = || document(dir, &["show", "--thread", "t"]).0["steering"].clone();
    let told = |at: usize| [&steering()[at]["text"], &steering()[at]["status"]].map(Clone::clone);
    assert_eq!(told(0), [json!("be brief"), json!("pending")]);
    assert!(read(dir, &["show", "--thread", "t"]).0.contains("pending by ann: \"be brief\""));
    assert_eq!(read(dir, &["resume", "--thread", "t", "1"]).1, 3);
    assert_eq!(told(0), [json!("be brief"), json!("delivered")]);
    // Nobody looks any more before the end.
    assert_eq!(read(dir, &["resume", "--thread", "t", "2", "--steer", "too late"]).1, 0);
    assert_eq!(told(1), [json!("too late"), json!("refused")]);
}

#[test]
fn what_can_be_no_database_is_refused_by_every_command() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("g.toml"), graph("g", &[("n", "")], "")).unwrap();
    for args in [&["run", "g.toml", "--thread", "t"][..], &["pending"], &["show", "--thread", "t"]] {
        let (said, code) = read(dir.path(), &[args, &["--db", ":memory:"]].concat());
        assert!(code == 2 && said.contains("a database is a file"), "{said}");
        let (said, code) = read(dir.path(), &[args, &["--db", "none/h.db"]].concat());
        assert!(code == 2 && said.contains("make it first"), "{said}");
    }
}
