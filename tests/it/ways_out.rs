//! A refusal says what there is to do in the words of whoever is refused: a command at the command line, a request
//! over HTTP.

use serde_json::{Value, json};

use crate::languages::holdpoint;
use crate::service::*;
use crate::world::component;

/// What a tenant is told is a request, and no command of a machine that it may not even see.
fn is_http(text: &str) -> bool {
    !text.contains("holdpoint ") && !text.contains(" --") && !text.contains("(--")
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_refusal_names_requests_and_no_command() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let now = caller.get("/threads/t/state").await.is(200);
    let old = now["checkpoint"]["checkpoint_id"].clone();
    caller.resume("t", json!(1)).await.is(200);
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let script = caller.install("script").await;
    // It is given nothing to ask, so that its replay asks nothing.
    let silent = json!({ "graph": {
        "name": "other", "entry": "n", "channels": { "b": { "reducer": "replace" } },
        "nodes": { "n": { "component": script, "reads": { "script": "b" } } },
    } });
    caller.put("/graphs/other", silent).await.is(200);
    let run = uuid::Uuid::from_u128(1);
    let node = |component: &str| json!({ "graph": { "name": "g", "entry": "n", "nodes": { "n": { "component": component } } } });
    let absent = format!("sha256:{}", "0".repeat(64));
    let inside = json!({ "graph": {
        "name": "g", "entry": "n", "nodes": { "n": { "component": script, "effects": ["e"] } },
        "effects": { "e": { "http": { "url": "http://10.0.0.1/" } } },
    } });
    let secret = json!({ "graph": {
        "name": "g", "entry": "n", "nodes": { "n": { "component": script, "effects": ["e"] } },
        "effects": { "e": { "http": { "url": "https://93.184.216.34/", "auth": { "secret": "pay-token" } } } },
    } });
    let before = json!({ "value": 1, "expect": { "checkpoint_id": old } });
    let forked = json!({ "checkpoint": { "checkpoint_id": run } });
    let other = json!({ "assistant_id": "scripted", "input": { "script": [] } });
    let rows: [(&str, &str, Value, u16, &str, &str); 8] = [
        ("POST", "/threads/t/upgrade", json!({ "graph": "other" }), 409, "diverged", "(cuts of the upgrade)"),
        ("POST", "/threads/t/resume", before, 409, "stale", "POST /threads/t/fork"),
        ("POST", "/threads/t/fork", forked, 404, "not-found", "POST /threads/t/history"),
        ("POST", "/threads/t/runs/wait", other, 409, "", "multitask_strategy"),
        ("PUT", "/graphs/g", node(&absent), 404, "not-found", "PUT /components"),
        ("PUT", "/graphs/g", inside, 403, "denied", "has not opened it"),
        ("PUT", "/graphs/g", secret, 403, "denied", "whoever runs the host gives it one"),
        ("PUT", "/components", json!("text"), 422, "invalid", "not a WebAssembly component"),
    ];
    for (method, path, body, status, kind, word) in rows {
        let request = caller.request(method.parse().unwrap(), path).json(&body);
        let came = caller.send(request).await;
        let said = came.is(status);
        assert!(kind.is_empty() || said["error"]["kind"] == kind, "{method} {path}: {said}");
        assert!(said["detail"].as_str().unwrap().contains(word), "{method} {path}: {word}: {said}");
        assert!(is_http(&said.to_string()), "{method} {path}: {said}");
    }
    served.end().await;
}

#[test]
fn at_the_command_line_a_refusal_names_commands_and_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let graph = |node: &str| {
        let text = format!(
            "name = \"g\"\nentry = \"n\"\n[channels]\nscript = {{ reducer = \"replace\" }}\n[nodes.n]\n{node}\n"
        );
        std::fs::write(dir.join("g.toml"), text).unwrap();
    };
    let input = json!({ "script": [{ "ask": "?" }] }).to_string();
    graph(&format!("component = {:?}\nreads = [\"script\"]", component("script")));
    let run = |thread: &'static str| ["run", "g.toml", "--thread", thread, "--input", &input];
    assert_eq!(holdpoint(dir, &run("t")).status.code(), Some(3));
    let none = uuid::Uuid::from_u128(1).to_string();
    let absent = format!("component = \"sha256:{}\"", "0".repeat(64));
    let effect = |http: &str| {
        let script = component("script");
        format!("component = {script:?}\neffects = [\"e\"]\n[effects.e]\nhttp = {{ {http} }}")
    };
    let inside = effect("url = \"http://10.0.0.1/\"");
    let secret = effect("url = \"https://93.184.216.34/\", auth = { secret = \"pay-token\" }");
    std::fs::write(dir.join("text.wasm"), "hello").unwrap();
    let rows: [(Option<&str>, &[&str], &str, &str); 7] = [
        (None, &["resume", "--thread", "none", "1"], "not-found", "`holdpoint threads`"),
        (
            None,
            &["fork", "--thread", "t", "--checkpoint", &none, "--to", "u"],
            "not-found",
            "`holdpoint history --thread t`",
        ),
        (None, &run("t"), "busy", "--if-busy"),
        (Some(&absent), &run("u"), "not-found", "`holdpoint install FILE`"),
        (Some(&inside), &run("u"), "denied", "--egress 10.0.0.1"),
        (Some(&secret), &run("u"), "denied", "HOLDPOINT_SECRET_PAY_TOKEN"),
        (None, &["install", "text.wasm"], "invalid", "`holdpoint build`"),
    ];
    for (node, args, kind, word) in rows {
        if let Some(node) = node {
            graph(node);
        }
        // The same to a person and to a program.
        let told = String::from_utf8(holdpoint(dir, args).stderr).unwrap();
        assert!(told.contains(word), "{args:?}: {word}: {told}");
        let output = holdpoint(dir, &[args, &["--json"]].concat());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["kind"], kind, "{document}");
        assert!(document["error"]["message"].as_str().unwrap().contains(word), "{document}");
        assert!(document["error"].get("ways_out").is_none(), "{document}");
        for request in ["GET /", "POST /", "PUT /"] {
            assert!(!told.contains(request), "{args:?}: {told}");
        }
    }
}
