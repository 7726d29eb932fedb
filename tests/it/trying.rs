//! `holdpoint try`: one node, without a graph and without a database.

use std::path::Path;

use serde_json::{Value, json};

use crate::languages::document;
use crate::world::component;

/// The scripted node, with these arguments beside its script.
#[track_caller]
fn tried(ops: Value, more: &[&str]) -> (Value, i32) {
    let (node, input) = (component("script"), json!({ "script": ops }).to_string());
    let dir = tempfile::tempdir().unwrap();
    let tried = document(dir.path(), &[&["try", &node, "--input", &input], more].concat());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it leaves nothing behind");
    tried
}

fn effect(key: &str, input: u32) -> Value {
    json!({ "effect": { "name": "e", "key": key, "input": input } })
}

#[test]
fn answers_are_given_in_the_order_asked() {
    let ops = json!([
        { "log": { "level": "info", "message": "begins" } }, { "ask": 1 }, { "ask_all": [2, 3] }, { "emit": 4 },
        { "steering": true }, { "put_results": "a" }, { "go": "x" }
    ]);
    let more = ["--answers", r#"["one", 2.50, null]"#, "--steer", "be brief"];
    let (done, code) = tried(ops.clone(), &more);
    assert_eq!((code, &done["status"]), (0, &json!("completed")), "{done}");
    let said = json!([{ "actor": "you", "text": "be brief" }]);
    assert_eq!(
        done["update"]["a"],
        json!(["one", [serde_json::from_str::<Value>("2.50").unwrap(), null], said])
    );
    assert_eq!(
        (&done["routes"], &done["events"], &done["attempts"]),
        (&json!([{ "go": "x" }]), &json!([4]), &json!(3))
    );

    let (waits, code) = tried(ops, &["--answers", r#"["one", 2]"#]);
    assert_eq!((code, &waits["status"]), (3, &json!("interrupted")));
    let orders: Vec<&Value> =
        waits["questions"].as_array().unwrap().iter().map(|asked| &asked["order"]).collect();
    assert_eq!(orders, [&json!(0), &json!(1), &json!(2)]);
    assert_eq!(
        (&waits["questions"][1]["answer"], &waits["questions"][2]["answer"]),
        (&json!(2), &Value::Null)
    );
}

#[test]
fn effects_come_to_what_was_said_and_once() {
    let ops = json!([effect("k", 1), { "ask": "?" }, effect("k", 1), effect("k", 2), effect("l", 1), { "put_results": "a" }]);
    let more = ["--answers", "[true]", "--effects", r#"{"e": {"receipt": 5}}"#];
    let (done, code) = tried(ops, &more);
    assert_eq!(code, 0, "{done}");
    let receipt = json!({ "ok": { "receipt": 5 } });
    let a = &done["update"]["a"];
    assert_eq!((&a[0], &a[2], &a[4]), (&receipt, &receipt, &receipt));
    assert_eq!(a[3]["err"]["kind"], "key-conflict");
    assert_eq!(done["effects"].as_array().unwrap().len(), 2, "{done}");
    // Nobody said anything: null, in so many words.
    let (done, _) = tried(json!([effect("k", 1), { "put_results": "a" }]), &[]);
    assert_eq!(done["update"]["a"], json!([{ "ok": null }]));
}

#[test]
fn a_node_is_held_to_what_it_declares() {
    let other = json!({ "effect": { "name": "launch", "key": "k", "input": 1 } });
    for ops in [json!([other]), json!([{ "put": { "z": 1 } }]), json!([{ "go": "nowhere" }])] {
        let (failed, code) = tried(ops, &[]);
        assert_eq!((code, &failed["error"]["kind"]), (1, &json!("undeclared")), "{failed}");
    }
}

#[test]
fn an_error_is_told_as_a_run_would_tell_it() {
    let (failed, code) = tried(json!([{ "retry": "later" }]), &[]);
    assert_eq!((code, &failed["status"], &failed["retryable"]), (1, &json!("failed"), &json!(true)));
    let (failed, code) = tried(json!([{ "panic": "out of paper" }]), &[]);
    assert_eq!((code, &failed["error"]["kind"]), (1, &json!("trap")));
    assert!(failed["error"]["stderr"].as_str().unwrap().contains("out of paper"));
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let ask = || json!([{ "ask": "?", "schema": { "type": "integer" } }]);
    for (ops, more, part) in [
        (ask(), &["--answers", "5"][..], "--answers: it takes an array"),
        (ask(), &["--answers", "[\"x\"]"], "not one that its schema takes"),
        (ask(), &["--effects", "[]"], "--effects: it takes an object"),
        (ask(), &["--arg", "{"], "--arg"),
    ] {
        let (refused, code) = tried(ops, more);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(code == 2 && message.contains(part), "{refused}");
    }
    let (refused, code) = document(Path::new("."), &["try", "Cargo.toml"]);
    assert_eq!(code, 2, "{refused}");
}
