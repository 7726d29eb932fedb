//! Going back on a thread, forks, copies and prunes, over HTTP; and what becomes of them when the host dies.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::service::*;
use crate::service_clients::chain;
use crate::service_durable::Process;

fn input() -> Value {
    json!({ "script": {
        "n": [{ "put": { "a": ["draft"], "c": 1 } }],
        "m": [{ "ask": "right?" }, { "put": { "c": 10 } }, { "put_results": "a" }],
    } })
}

async fn run(caller: &Caller, thread: &str, more: Value) -> Came {
    let mut body = json!({ "assistant_id": "chain", "if_not_exists": "create" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    caller.post(&format!("/threads/{thread}/runs/wait"), body).await
}

/// The checkpoint before `m`, of a thread that has come to it.
async fn before_m(caller: &Caller, thread: &str) -> Value {
    let history = caller.post(&format!("/threads/{thread}/history"), json!({ "limit": 100 })).await.is(200);
    let states = history.as_array().unwrap();
    let found = states
        .iter()
        .rev()
        .find(|state| state["next"] == json!(["m"]) && state["metadata"]["kind"] == "boundary");
    found.unwrap()["checkpoint"]["checkpoint_id"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_which_thread_it_is_and_what_can_be_done_with_it() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.thread("u").await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    for to in ["t", "u"] {
        let refused = caller.post("/threads/t/fork", json!({ "thread_id": to })).await.is(409);
        assert_eq!(refused["detail"], format!("there is a thread {to} already"));
    }
    let refused = caller.wait("t", json!([])).await.is(409);
    assert_eq!(refused["error"]["kind"], "busy");
    for words in ["thread t waits for an answer; answer it (command.resume)", "multitask_strategy"] {
        assert!(refused["detail"].as_str().unwrap().contains(words), "{refused}");
    }
    // What cannot be a thread's name is said to be none, and shown as cut where it is.
    let long = "x".repeat(300);
    for (name, words) in [("a%0Ab", "\"a\\nb\", and none can be called so: "), (&*long, "xxx…\", and none")]
    {
        let refused = caller.wait(name, json!([])).await.is(404);
        assert!(refused["detail"].as_str().unwrap().contains(words), "{refused}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_back_withdraws_what_waits_and_a_late_answer_is_stale() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.deploy(&chain()).await;
    let paused = run(&caller, "t", json!({ "input": input() })).await.is(200);
    let old = paused["__interrupt__"][0]["id"].as_str().unwrap();
    let at = before_m(&caller, "t").await;
    let again = run(&caller, "t", json!({ "input": null, "checkpoint_id": at })).await.is(200);
    let new = again["__interrupt__"][0]["id"].as_str().unwrap();
    assert_ne!(old, new);
    let late = caller.post(&format!("/interrupts/{old}/answer"), json!({ "value": 1 })).await;
    assert_eq!(late.body["error"]["kind"], "stale", "{late:?}");
    late.is(409);
    let standing = caller.post(&format!("/interrupts/{new}/answer"), json!({ "value": 1 })).await.is(200);
    assert_eq!(standing["status"], "completed");
    let state = caller.get("/threads/t/state").await.is(200);
    assert_eq!((&state["values"]["a"], &state["values"]["c"]), (&json!(["draft", 1]), &json!(11)));
    // The branch that was left is in the history, and each state says what it came from.
    let history = caller.post("/threads/t/history", json!({ "limit": 100 })).await.is(200);
    let parents: Vec<&Value> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|state| &state["parent_checkpoint"]["checkpoint_id"])
        .collect();
    assert_eq!(parents.iter().filter(|parent| ***parent == at).count(), 2, "{parents:#?}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_written_into_runs_nothing_before_somebody_says_so() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.deploy(&chain()).await;
    run(&caller, "t", json!({ "input": input() })).await.is(200);
    run(&caller, "t", json!({ "command": { "resume": 1 } })).await.is(200);
    let at = before_m(&caller, "t").await;
    let body = json!({ "values": { "c": 100 }, "checkpoint_id": at });
    let written = caller.post("/threads/t/state", body.clone()).await.is(200);
    let state = caller.get("/threads/t/state").await.is(200);
    assert_eq!(state["checkpoint"]["checkpoint_id"], written["checkpoint_id"]);
    assert_eq!((&state["values"]["c"], &state["next"]), (&json!(101), &json!(["m"])));
    // It stands at a gate, which takes no value and is passed by a run without input.
    let gate = caller.get("/interrupts?thread_id=t").await.is(200);
    assert_eq!((gate[0]["kind"].as_str(), gate[0]["node"].as_str()), (Some("before"), Some("m")));
    run(&caller, "t", json!({ "command": { "resume": 1 } })).await.is(409);
    let paused = run(&caller, "t", json!({})).await.is(200);
    assert_eq!(paused["__interrupt__"][0]["value"], "right?");
    // In one namespace only, and with one meaning.
    let other = json!({ "values": {}, "checkpoint": { "thread_id": "u", "checkpoint_id": at } });
    caller.post("/threads/t/state", other).await.is(422);
    let unknown = json!({ "values": {}, "checkpoint_id": uuid::Uuid::nil() });
    caller.post("/threads/t/state", unknown).await.is(404);
    let no_channel = json!({ "values": { "nowhere": 1 }, "checkpoint_id": at });
    caller.post("/threads/t/state", no_channel).await.is(422);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_another_thread_and_the_first_stays_as_it_is() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.deploy(&chain()).await;
    run(&caller, "t", json!({ "input": input() })).await.is(200);
    let at = before_m(&caller, "t").await;
    let before = caller.get("/threads/t/state").await.is(200);
    let fork = caller.post("/threads/t/fork", json!({ "thread_id": "u", "checkpoint_id": at })).await.is(200);
    assert_eq!((fork["thread_id"].as_str(), fork["status"].as_str()), (Some("u"), Some("interrupted")));
    caller.post("/threads/t/fork", json!({ "thread_id": "u" })).await.is(409);
    caller.post("/threads/t/fork", json!({ "checkpoint_id": uuid::Uuid::nil() })).await.is(404);
    caller.post("/threads/nobody/fork", json!({})).await.is(404);
    let done = run(&caller, "u", json!({ "command": { "resume": "there" } })).await.is(200);
    assert_eq!(done["a"], json!(["draft", "there"]));
    assert_eq!(caller.get("/threads/t/state").await.is(200), before);
    // A thread that never ran is copied by its name alone.
    caller.post("/threads", json!({ "thread_id": "note", "metadata": { "k": 1 } })).await.is(200);
    let copy = caller.post("/threads/note/copy", json!({})).await.is(200);
    assert_eq!((copy["metadata"].clone(), copy["status"].as_str()), (json!({ "k": 1 }), Some("idle")));
    let pruned = caller.post("/threads/t/prune", json!({ "keep": 1 })).await.is(200);
    assert!(pruned["checkpoints"].as_u64().unwrap() >= 1, "{pruned}");
    caller.post("/threads/t/prune", json!({ "keep": 0 })).await.is(422);
    let gone = before["parent_checkpoint"]["checkpoint_id"].as_str().unwrap();
    caller.get(&format!("/threads/u/state/{gone}")).await.is(404);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_forgotten_leaves_nothing_and_one_that_runs_stays() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.deploy(&chain()).await;
    let paused = run(&caller, "t", json!({ "input": input() })).await.is(200);
    let waits = json!({ "assistant_id": "chain", "input": input(), "multitask_strategy": "enqueue" });
    caller.post("/threads/t/runs", waits).await.is(200);
    caller.delete("/threads/t").await.is(204);
    caller.get("/threads/t").await.is(404);
    caller.delete("/threads/t").await.is(404);
    assert_eq!(caller.get("/interrupts").await.is(200), json!([]));
    let id = paused["__interrupt__"][0]["id"].as_str().unwrap();
    caller.post(&format!("/interrupts/{id}/answer"), json!({ "value": 1 })).await.is(404);
    // Of the same name, and with nothing of the first.
    caller.thread("t").await;
    assert_eq!(caller.get("/threads/t/runs").await.is(200), json!([]));
    caller.delete("/threads/t").await.is(204);
    // Connections are taken and nothing is answered: the effect is on its way until the run is called off.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut spec = chain();
    spec.name = "waits".into();
    caller.deploy_sending(&spec, &silent.local_addr().unwrap().to_string()).await;
    let ops = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }]);
    let long = json!({ "script": { "n": ops, "m": [] } });
    let body = json!({ "assistant_id": "waits", "input": long, "if_not_exists": "create" });
    let begun = caller.post("/threads/long/runs", body).await.is(200);
    let (_connection, _) = silent.accept().await.unwrap();
    caller.delete("/threads/long").await.is(409);
    let cancel = format!("/threads/long/runs/{}/cancel?wait=true", begun["run_id"].as_str().unwrap());
    caller.post(&cancel, json!({})).await.is(204);
    caller.delete("/threads/long").await.is(204);
    served.end().await;
}

/// Killed at each commit on the way: the state is written into once, or not at all and then by the next start.
#[tokio::test(flavor = "multi_thread")]
async fn a_way_back_that_was_acknowledged_is_gone_once_wherever_the_host_dies() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let process = Process::start_in(dir.clone(), &[], None).await;
    process.caller().deploy(&chain()).await;
    run(&process.caller(), "t", json!({ "input": input() })).await.is(200);
    run(&process.caller(), "t", json!({ "command": { "resume": 1 } })).await.is(200);
    let at = before_m(&process.caller(), "t").await;
    process.kill();
    let mut deaths = 0;
    for n in 1.. {
        let process = Process::start_in(dir.clone(), &[], Some(format!("store::after_commit#{n}"))).await;
        let caller = process.caller();
        let body = json!({ "values": { "c": 100 }, "checkpoint_id": at });
        let sent = caller.request(reqwest::Method::POST, "/threads/t/state").json(&body).send().await;
        let is_taken = sent.is_ok_and(|response| response.status().is_success());
        drop(process);
        let process = Process::start_in(dir.clone(), &[], None).await;
        let caller = process.caller();
        // Whatever was accepted is over now.
        loop {
            let runs = caller.get("/threads/t/runs?limit=1").await.is(200);
            if !["pending", "running"].contains(&runs[0]["status"].as_str().unwrap()) {
                assert_ne!(runs[0]["status"], "error", "{n}: {runs}");
                break;
            }
        }
        let state = caller.get("/threads/t/state").await.is(200);
        let is_written = (&state["values"]["c"], &state["next"]) == (&json!(101), &json!(["m"]));
        let is_as_before = (&state["values"]["c"], &state["next"]) == (&json!(11), &json!([]));
        assert!(is_written || (is_as_before && !is_taken), "{n}: taken {is_taken}: {state}");
        // Back to where it was, for the next.
        if is_written {
            run(&caller, "t", json!({ "command": { "resume": 1 }, "checkpoint_id": at })).await.is(200);
            let state = caller.get("/threads/t/state").await.is(200);
            assert_eq!(state["values"]["c"], 11, "{n}: {state}");
        }
        if is_taken {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 3, "it died at {deaths} places only");
}
