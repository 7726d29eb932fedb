//! What stands beside the protocol: targets, steering, policies, gates, retries, another graph.

use holdpoint::NodeSpec;
use serde_json::{Value, json};

use crate::service::*;
use crate::world::{component, scripted};

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_its_question_is_given_once_however_often_it_is_sent() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    let script = json!([{ "ask": "?", "schema": { "type": ["null", "boolean"] } }, { "steering": true }, { "put_results": "a" }]);
    caller.wait("t", script).await.is(200);
    let asked = caller.get("/interrupts?thread_id=t&node=n").await.is(200);
    assert_eq!(caller.get("/interrupts?older_than_ms=3600000").await.is(200), json!([]));
    let path = format!("/interrupts/{}/answer", asked[0]["id"].as_str().unwrap());
    assert_eq!(asked[0]["answer_schema"], json!({ "type": ["null", "boolean"] }));
    let came = caller.post(&path, json!({ "value": "text" })).await;
    assert_eq!(came.body["error"]["kind"], "schema");
    came.is(422);
    caller.post(&path, json!({})).await.is(422);
    caller.post(&path, json!({ "value": true, "proceed": true })).await.is(422);
    caller
        .post(&path, json!({ "value": true, "expect": { "checkpoint_id": uuid::Uuid::nil() } }))
        .await
        .is(409);
    let answer = || {
        let request = caller.request(reqwest::Method::POST, &path).header("idempotency-key", "click");
        request.json(&json!({ "value": null, "steer": "be brief" }))
    };
    let first = caller.send(answer()).await.is(200);
    assert_eq!(first["status"], "completed", "{first}");
    assert_eq!(caller.send(answer()).await.is(200), first);
    let state = caller.get("/threads/t/state").await.is(200);
    assert_eq!(state["values"]["a"][0], Value::Null);
    assert!(state["values"]["a"][1].to_string().contains("be brief"), "{state}");
    // Another answer under the same name, and a late one without any.
    let other = caller.request(reqwest::Method::POST, &path).header("idempotency-key", "click");
    caller.send(other.json(&json!({ "value": true }))).await.is(409);
    let late = caller.post(&path, json!({ "value": true })).await;
    assert_eq!(late.body["error"]["kind"], "stale");
    late.is(409);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_let_pass_and_takes_no_value() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.thread("t").await;
    let body = json!({
        "assistant_id": "scripted", "input": { "script": [{ "put": { "c": 1 } }] },
        "interrupt_before": "*", "interrupt_after": ["n"],
    });
    caller.post("/threads/t/runs/wait", body).await.is(200);
    let gate = |asked: &Value| format!("/interrupts/{}/answer", asked[0]["id"].as_str().unwrap());
    let asked = caller.get("/interrupts").await.is(200);
    assert_eq!(asked[0]["kind"], "before");
    let came = caller.post(&gate(&asked), json!({ "value": 1 })).await;
    assert_eq!(came.body["error"]["kind"], "gate-takes-no-value");
    caller.post(&gate(&asked), json!({ "proceed": true })).await.is(200);
    let asked = caller.get("/interrupts").await.is(200);
    assert_eq!(asked[0]["kind"], "after");
    let standing = caller.post("/threads/t/resume", json!({ "proceed": true })).await.is(200);
    assert_eq!(standing["status"], "completed");
    served.end().await;
}

/// `p` asks, and the subgraph nodes `s` and `t` ask each.
async fn family(caller: &Caller) -> Value {
    let mut child = scripted(&["y"]);
    child.name = "child".into();
    caller.deploy(&child).await;
    let below = || NodeSpec::subgraph("child").agent("helper").reads(&["script", "a"]).writes(&["a"]);
    let mut spec = scripted(&["p"]).node("s", below()).node("t", below());
    spec.entry = holdpoint::model::OneOrMany::Many(["p", "s", "t"].map(String::from).to_vec());
    caller.deploy(&spec).await;
    let ops = json!({ "p": [{ "ask": "parent?" }], "y": [{ "ask": "child?" }, { "put_results": "a" }] });
    caller.wait("t", ops).await.is(200);
    caller.get("/interrupts").await.is(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_narrows_and_what_becomes_of_children_is_said() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    let asked = family(&caller).await;
    let path = |i: usize, run: usize| asked[i]["run_path"][run].clone();
    assert_eq!(asked.as_array().unwrap().len(), 3);
    let root = json!({ "run_id": path(0, 0) });
    let came = caller.post("/threads/t/resume", json!({ "value": 1, "target": root })).await;
    assert_eq!(came.body["error"]["kind"], "ambiguous");
    let steered = json!({ "text": "hurry", "target": { "run_id": path(1, 1) } });
    caller.post("/threads/t/steer", steered).await.is(200);
    let child = json!({ "run_id": path(1, 1), "namespace": ["s"] });
    let standing = caller.post("/threads/t/resume", json!({ "value": "s", "target": child })).await.is(200);
    assert_eq!(standing["interrupts"].as_array().unwrap().len(), 2);
    // The parent's answer, which its children's would be in the way of.
    let parent = format!("/interrupts/{}/answer", asked[0]["id"].as_str().unwrap());
    caller.post(&parent, json!({ "value": 1, "pending_children": "refuse" })).await.is(409);
    let resolve = json!({ "value": 1, "pending_children": { "resolve": "t" } });
    let standing = caller.post(&parent, resolve).await.is(200);
    assert_eq!(standing["status"], "completed", "{standing}");
    let state = caller.get("/threads/t/state").await.is(200);
    assert_eq!(state["values"]["a"], json!(["s", "t"]));
    caller.post("/threads/t/steer", json!({ "text": "late" })).await.is(409);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_tried_again_and_may_get_another_graph() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    let deployed = caller.scripted(&["n"]).await;
    let failed = caller.wait("t", json!([{ "fail": "no" }])).await.is(200);
    assert_eq!(failed["__error__"]["error"], "node-failed");
    let standing = caller.post("/threads/t/retry", json!({})).await.is(200);
    assert_eq!(
        (standing["status"].as_str(), standing["error"]["kind"].as_str()),
        (Some("failed"), Some("node-failed"))
    );
    let body = json!({ "values": { "script": [{ "put": { "c": 3 } }] } });
    caller.post("/threads/t/state", body).await.is(200);
    // What failed is tried again from there once somebody runs it.
    assert_eq!(caller.get("/threads/t/state").await.is(200)["next"], json!(["n"]));
    caller.post("/threads/t/runs/wait", json!({ "assistant_id": "scripted" })).await.is(200);
    let state = caller.get("/threads/t/state").await.is(200);
    assert_eq!((&state["values"]["c"], &state["next"]), (&json!(3), &json!([])));
    caller.post("/threads/t/retry", json!({})).await.is(409);

    caller.wait("u", json!([{ "ask": "?" }])).await.is(200);
    let again = caller.scripted(&["n", "m"]).await;
    assert_eq!((deployed["version"].clone(), again["version"].clone()), (json!(1), json!(2)));
    caller.post("/threads/u/upgrade", json!({ "graph": "nope" })).await.is(404);
    let standing = caller.post("/threads/u/upgrade", json!({ "graph": "scripted" })).await.is(200);
    assert_eq!(standing["status"], "interrupted");
    let tree = caller.get(&format!("/runs/{}/tree", standing["run_id"].as_str().unwrap())).await.is(200);
    assert_eq!(tree["graph"], again["digest"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_request_names_a_file() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    let path = component("script");
    for component in [path.as_str(), "/etc/passwd", "../x.wasm", "sha256:12"] {
        let spec = json!({ "name": "g", "entry": "n", "nodes": { "n": { "component": component } } });
        let came = caller.put("/graphs/g", json!({ "graph": spec })).await;
        assert!(came.body["detail"].as_str().unwrap().contains("named by its digest"), "{came:?}");
        came.is(422);
    }
    let spec = json!({ "name": "g", "entry": "n", "nodes": { "n": { "graph": "/etc/passwd" } } });
    caller.put("/graphs/g", json!({ "graph": spec })).await.is(404);
    caller.put("/graphs/g", json!({ "toml": "name = " })).await.is(422);
    let hostile = caller.request(reqwest::Method::PUT, "/components").body("no component");
    caller.send(hostile).await.is(422);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_figures_say_what_happened() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    caller.resume("t", json!(1)).await.is(200);
    caller.resume("t", json!(1)).await.is(409);
    let text = caller.get("/metrics").await.is(200);
    let text = text.as_str().unwrap();
    for line in [
        r#"holdpoint_invocations_total{tenant="default",outcome="interrupted"} 1"#,
        r#"holdpoint_invocations_total{tenant="default",outcome="completed"} 1"#,
        r#"holdpoint_invocations_total{tenant="default",outcome="refused"} 1"#,
        r#"holdpoint_refusals_total{kind="not-pending"} 1"#,
        r#"holdpoint_http_requests_total{method="POST",route="/threads/{thread_id}/runs/wait",status="409"} 1"#,
        "holdpoint_invocations_open 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    caller.get("/ready").await.is(200);
    assert_eq!(caller.get("/info").await.is(200)["version"], env!("CARGO_PKG_VERSION"));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_object_is_refused_and_not_read_as_its_fields_in_order() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    let paused = caller.wait("t", json!([{ "ask": 1 }])).await.is(200);
    let id = paused["__interrupt__"][0]["id"].as_str().unwrap();
    for (path, body) in [
        (format!("/interrupts/{id}/answer"), json!([4])),
        ("/threads/t/resume".to_owned(), json!([null, 4])),
        ("/threads".to_owned(), json!([])),
        ("/threads".to_owned(), json!("t")),
    ] {
        let refused = caller.post(&path, body).await.is(422);
        assert!(refused.to_string().contains("takes an object"), "{path}: {refused}");
    }
    caller.post(&format!("/interrupts/{id}/answer"), json!({ "value": 4 })).await.is(200);
    served.end().await;
}
