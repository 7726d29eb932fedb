//! The protocol's corners that its clients do not show by themselves.

use holdpoint::{GraphSpec, NodeSpec, Reducer};
use serde_json::{Value, json};

use crate::service::*;
use crate::world::scripted;

fn asks() -> Value {
    json!([{ "ask": "?" }, { "put_results": "a" }])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_and_says_how_things_stand() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n", "m"]).await;
    caller.thread("t").await;
    let run = |more: Value| {
        let mut body = json!({ "assistant_id": "scripted" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let plain = json!({ "script": [] });
    for (path, body, status, says) in [
        ("nobody", run(json!({ "input": plain })), 404, "create it"),
        ("t", json!({ "assistant_id": "other", "input": plain }), 404, "PUT /graphs"),
        ("t", run(json!({})), 422, "input is missing"),
        ("t", run(json!({ "input": 7 })), 422, "an object"),
        ("t", run(json!({ "input": { "nope": 1 } })), 422, "nope"),
        ("t", run(json!({ "command": {} })), 422, "says nothing"),
        ("t", run(json!({ "command": { "goto": "n" } })), 422, "goto"),
        ("t", run(json!({ "command": { "resume": 1 } })), 404, "no thread t"),
        ("t", run(json!({ "input": plain, "interrupt_before": ["x"] })), 422, "no node"),
        ("t", run(json!({ "input": plain, "checkpoint": { "thread_id": "u" } })), 422, "another thread"),
        (
            "t",
            run(json!({ "input": plain, "checkpoint_id": "a", "checkpoint": { "checkpoint_id": "b" } })),
            422,
            "two checkpoints",
        ),
        ("t", run(json!({ "input": plain, "thread_id": "u" })), 422, "another thread"),
        ("t", run(json!({ "input": plain, "webhook": "http://169.254.169.254/" })), 422, "not a public"),
        ("t", run(json!({ "input": plain, "multitask_strategy": "no" })), 422, "expected one of"),
    ] {
        let came = caller.post(&format!("/threads/{path}/runs/wait"), body.clone()).await;
        assert_eq!(came.status, status, "{body}: {came:?}");
        assert!(came.body["detail"].as_str().unwrap().contains(says), "{body}: {came:?}");
    }
    let paused = caller.wait("t", asks()).await.is(200);
    assert_eq!(paused["__interrupt__"].as_array().unwrap().len(), 2, "{paused}");
    // What guards an answer, or narrows a key, is not left out for a slip of the pen.
    let asked = paused["__interrupt__"][0]["id"].as_str().unwrap();
    let (answer, resume) = (format!("/interrupts/{asked}/answer"), "/threads/t/resume".to_owned());
    let other = json!({ "checkpoint_id": uuid::Uuid::nil() });
    for (path, body, says) in [
        (&answer, json!({ "value": 1, "expct": other }), "expct"),
        (&answer, json!({ "value": 1, "expect": { "checkpoint": uuid::Uuid::nil() } }), "checkpoint_id"),
        (&answer, json!({ "value": 1, "expect": "x" }), "an object with run_id, checkpoint_id"),
        (&resume, json!({ "value": 1, "targt": {} }), "targt"),
        (&resume, json!({ "value": 1, "target": { "task_id": uuid::Uuid::nil() } }), "run_id"),
        (
            &"/tenants/default/keys".to_owned(),
            json!({ "name": "k", "scopes": ["answer"], "only_for": { "graph": ["g"] } }),
            "graphs",
        ),
    ] {
        let came = caller.post(path, body.clone()).await;
        assert_eq!(came.status, 422, "{path} {body}: {came:?}");
        assert!(came.body["detail"].as_str().unwrap().contains(says), "{body}: {came:?}");
    }
    // One value for two: which there are is said.
    let came = caller.resume("t", json!(1)).await;
    assert_eq!(came.body["error"]["kind"], "ambiguous");
    assert_eq!(came.body["pending"].as_array().unwrap().len(), 2);
    came.is(409);
    // An object whose keys are not all questions of this thread is a value.
    let id = paused["__interrupt__"][0]["id"].as_str().unwrap();
    let came = caller.resume("t", json!({ id: 1, "else": 2 })).await;
    assert_eq!(came.body["error"]["kind"], "ambiguous");
    // One of two by its id.
    let left = caller.resume("t", json!({ id: 1 })).await.is(200);
    assert_eq!(left["__interrupt__"].as_array().unwrap().len(), 1);
    // What no client of that protocol can send by itself: an answer that is null.
    let done = caller.resume("t", Value::Null).await.is(200);
    assert_eq!(done["a"], json!([1, null]));
    let late = caller.resume("t", json!(1)).await;
    assert_eq!(
        (late.body["error"]["kind"].as_str(), late.body["pending"].clone()),
        (Some("not-pending"), json!([]))
    );
    late.is(409);
    let malformed =
        caller.request(reqwest::Method::POST, "/threads").body("{}").header("content-type", "text/plain");
    caller.send(malformed).await.is(415);
    let malformed = caller.request(reqwest::Method::POST, "/threads").body("{\"a\":1,\"a\":2}");
    caller.send(malformed.header("content-type", "application/json")).await.is(422);
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let malformed = caller.request(reqwest::Method::POST, "/threads").body(deep);
    caller.send(malformed.header("content-type", "application/json")).await.is(413);
    caller.get("/nowhere").await.is(404);
    caller.delete("/threads").await.is(405);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_found_again_where_its_answer_says() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    let name = "of a/person?%";
    caller.thread(name).await;
    let body = json!({ "assistant_id": "scripted", "input": { "script": [{ "put": { "c": 1 } }] } });
    let came = caller.post("/threads/of%20a%2Fperson%3F%25/runs/wait", body).await;
    let again = came.headers["location"].to_str().unwrap().to_owned();
    let itself = came.headers["content-location"].to_str().unwrap().to_owned();
    let values = came.is(200);
    assert_eq!(caller.get(&again).await.is(200), values);
    let run = caller.get(&itself).await.is(200);
    assert_eq!((run["thread_id"].as_str(), run["status"].as_str()), (Some(name), Some("success")));
    // The call and the run that it began have one id; an answer is a call of its own on the same run.
    assert_eq!(run["run_id"], run["holdpoint_run_id"]);
    served.end().await;
}

/// `s` runs `x` and then `y`, which asks.
async fn family(caller: &Caller) {
    let mut child = scripted(&["x", "y"]);
    child.name = "child".into();
    child.entry = "x".into();
    let child: GraphSpec = child.edge("x", "y");
    caller.deploy(&child).await;
    let node = NodeSpec::subgraph("child").agent("helper").reads(&["script", "a"]).writes(&["a"]);
    let spec = scripted(&["p"]).node("s", node).channel("a", Reducer::Append).edge("p", "s");
    caller.deploy(&spec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subgraph_shows_its_state_its_question_and_its_events() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    family(&caller).await;
    let script = json!({ "p": [], "x": [{ "put": { "a": ["x"] } }], "y": [{ "ask": "child?" }, { "put_results": "a" }] });
    let paused = caller.wait("t", script).await.is(200);
    assert_eq!(paused["__interrupt__"][0]["value"], "child?");
    let flat = caller.get("/threads/t/state").await.is(200);
    assert_eq!((flat["next"].clone(), flat["tasks"][0]["state"].clone()), (json!(["s"]), Value::Null));
    assert_eq!(flat["tasks"][0]["interrupts"][0]["value"], "child?");
    let deep = caller.get("/threads/t/state?subgraphs=true").await.is(200);
    let child = &deep["tasks"][0]["state"];
    assert_eq!(child["next"], json!(["y"]));
    assert_eq!(child["values"]["a"], json!(["x"]));
    assert_eq!(child["tasks"][0]["interrupts"][0]["value"], "child?");
    let namespace = child["checkpoint"]["checkpoint_ns"].as_str().unwrap();
    assert_eq!(namespace, format!("s:{}", deep["tasks"][0]["id"].as_str().unwrap()));
    let listed = caller.get("/interrupts?agent=helper").await.is(200);
    assert_eq!(listed[0]["namespace"], json!(["s"]));
    assert_eq!(listed[0]["run_path"].as_array().unwrap().len(), 2);
    assert_eq!(caller.get("/interrupts?agent=nobody").await.is(200), json!([]));
    let tree =
        caller.get(&format!("/runs/{}/tree", listed[0]["run_path"][0].as_str().unwrap())).await.is(200);
    assert_eq!(tree["children"][0]["run_id"], listed[0]["run_path"][1]);

    let runs = caller.get("/threads/t/runs").await.is(200);
    let path =
        format!("/threads/t/runs/{}/stream?stream_subgraphs=true", runs[0]["run_id"].as_str().unwrap());
    let parts = Stream::open(caller.request(reqwest::Method::GET, &path)).await.all().await;
    let inner: Vec<&Part> =
        parts.iter().filter(|part| part.event == format!("updates|{namespace}")).collect();
    assert_eq!(inner[0].data["x"]["a"], json!(["x"]), "{parts:#?}");
    let asked: Vec<&Part> = parts
        .iter()
        .filter(|part| part.event == "updates" && part.data.get("__interrupt__").is_some())
        .collect();
    assert_eq!(asked.len(), 1, "{parts:#?}");
    assert_eq!(asked[0].data["__interrupt__"][0]["value"], "child?");
    caller.resume("t", json!("yes")).await.is(200);
    served.end().await;
}
