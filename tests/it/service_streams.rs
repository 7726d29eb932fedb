//! Streams: nothing lost, nothing twice, wherever they break off; bounded, however slowly they are read.

use reqwest::Method;
use serde_json::{Value, json};

use crate::service::*;
use crate::world::{component, scripted};
use holdpoint::NodeSpec;

/// `n` says something, writes, and goes on to `m`, which asks.
async fn line(caller: &Caller) {
    let mut spec = scripted(&["n", "m"]);
    spec.entry = "n".into();
    caller.deploy(&spec.edge("n", "m")).await;
}

fn script() -> Value {
    json!({
        "n": [{ "emit": { "at": 1 } }, { "emit": { "at": 2 } }, { "put": { "a": ["n"], "c": 1 } }],
        "m": [{ "ask": "go on?" }, { "put_results": "a" }],
    })
}

async fn begun(caller: &Caller, thread: &str) -> String {
    let body =
        json!({ "assistant_id": "scripted", "input": { "script": script() }, "if_not_exists": "create" });
    let run = caller.post(&format!("/threads/{thread}/runs"), body).await.is(200);
    format!("/threads/{thread}/runs/{}", run["run_id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_anywhere_goes_on_with_what_follows() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    line(&caller).await;
    let run = begun(&caller, "t").await;
    let open = |last: Option<String>| {
        let request = caller.request(Method::GET, &format!("{run}/stream"));
        match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        }
    };
    let whole = Stream::open(open(None)).await.all().await;
    let names: Vec<&str> = whole.iter().map(|part| part.event.as_str()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("metadata", "end"), "{names:?}");
    for name in ["values", "updates", "tasks", "checkpoints", "custom"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let said: Vec<&Value> =
        whole.iter().filter(|p| p.event == "custom").map(|p| &p.data["event"]["at"]).collect();
    assert_eq!(said, [&json!(1), &json!(2)]);
    let updates: Vec<&Value> = whole.iter().filter(|p| p.event == "updates").map(|p| &p.data).collect();
    assert_eq!(updates[0], &json!({ "n": { "a": ["n"], "c": 1 } }));
    let ids: Vec<&String> = whole.iter().filter_map(|part| part.id.as_ref()).collect();
    assert_eq!(ids.len(), whole.len() - 1, "all but the end can be gone on from");
    for (i, part) in whole.iter().enumerate() {
        let Some(id) = &part.id else { continue };
        let rest = Stream::open(open(Some(id.clone()))).await.all().await;
        assert_eq!(rest, whole[i + 1..], "after {i}: {id}");
    }
    // Also in another process than the one that began it; only what was never durable is gone.
    let dir = served.end().await;
    let served = Served::start_in(dir, settings()).await;
    let request = served.caller().request(Method::GET, &format!("{run}/stream"));
    let later = Stream::open(request).await.all().await;
    let durable: Vec<(&str, &Value)> = whole
        .iter()
        .filter(|part| part.event != "custom")
        .map(|part| (part.event.as_str(), &part.data))
        .collect();
    let again: Vec<(&str, &Value)> = later.iter().map(|part| (part.event.as_str(), &part.data)).collect();
    assert_eq!(again, durable);
    let wrong = served.caller().request(Method::GET, &format!("{run}/stream")).header("last-event-id", "x");
    served.caller().send(wrong).await.is(422);
    served.end().await;
}

/// Whether it is read while the run goes on, or after.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_the_same_whenever_it_is_read() {
    // Its first state is durable long before the node is done.
    let process = crate::service_durable::Process::start(&["--budget-ms", "1"]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    let computes = json!({ "repeat": { "times": 64_000, "ops": [{ "hash_order": 300 }] } });
    let script = json!([computes, { "put": { "c": 1 } }]);
    let body =
        json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
    let run = caller.post("/threads/t/runs", body).await.is(200);
    let path = format!("/threads/t/runs/{}/stream", run["run_id"].as_str().unwrap());
    let live = Stream::open(caller.request(Method::GET, &path)).await.all().await;
    let after = Stream::open(caller.request(Method::GET, &path)).await.all().await;
    assert_eq!(live, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_what_waits_says_that_it_is_there_and_tells_all_of_it() {
    let served = Served::start(ServeSettingsFast::settings()).await;
    let caller = served.caller();
    line(&caller).await;
    let first = begun(&caller, "t").await;
    caller.get(&format!("{first}/join")).await.is(200);
    let body = json!({
        "assistant_id": "scripted", "input": { "script": { "n": [], "m": [] } },
        "multitask_strategy": "enqueue", "stream_mode": ["updates"],
    });
    let mut stream = Stream::open(caller.request(Method::POST, "/threads/t/runs/stream").json(&body)).await;
    assert_eq!(stream.next().await.unwrap().event, "metadata");
    // Nothing more until the thread is free; that it was quiet for a while is heard.
    let listener = tokio::spawn(async move {
        let part = stream.next().await.unwrap();
        (stream.beats, part, stream.all().await)
    });
    let started = std::time::Instant::now();
    while started.elapsed() < std::time::Duration::from_millis(200) {
        caller.get("/ok").await.is(200);
    }
    caller.resume("t", json!(true)).await.is(200);
    let (beats, part, rest) = listener.await.unwrap();
    assert!(beats > 0);
    assert_eq!(part.data, json!({ "n": {} }));
    let names: Vec<&str> = rest.iter().map(|part| part.event.as_str()).collect();
    assert_eq!(names, ["updates", "end"]);
    served.end().await;
}

struct ServeSettingsFast;

impl ServeSettingsFast {
    fn settings() -> holdpoint::server::ServeSettings {
        holdpoint::server::ServeSettings { heartbeat_ms: 30, ..settings() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_reads_nothing_costs_little() {
    // 120 steps whose states grow to 2 MB: 120 MB and more of events, for each of eight who do not read.
    let desk = crate::service_durable::Process::start(&[]).await;
    let caller = desk.caller();
    let node = NodeSpec::component(component("script"))
        .reads(&["script", "a", "c"])
        .writes(&["a", "c"])
        .routes(&[("x", "n")]);
    let spec = scripted(&["n"]).node("n", node);
    caller.deploy(&spec).await;
    let text = "x".repeat(16 * 1024);
    let body = json!({
        "assistant_id": "scripted", "if_not_exists": "create",
        "input": { "script": [
            { "put": { "a": [text], "c": 1 } }, { "read": "c" },
            { "if_last": { "equals": 119, "then": [{ "end": true }], "else": [{ "go": "x" }] } },
        ] },
    });
    let run = caller.post("/threads/t/runs", body).await.is(200);
    let path = format!("/threads/t/runs/{}", run["run_id"].as_str().unwrap());
    caller.get(&format!("{path}/join")).await.is(200);
    let before = desk.memory_kb();
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = Stream::open(caller.request(Method::GET, &format!("{path}/stream"))).await;
        assert_eq!(stream.next().await.unwrap().event, "metadata");
        open.push(stream);
    }
    // Time enough for a server that reads ahead to have done so: one reader takes all of it meanwhile.
    let all = Stream::open(caller.request(Method::GET, &format!("{path}/stream"))).await.all().await;
    let values: usize = all.iter().filter(|part| part.event == "values").count();
    assert!(values > 100, "{values}");
    // A few states at once for each, where all of them would be 120 MB for each.
    let after = desk.memory_kb();
    assert!(after < before + 256 * 1024, "{before} KB before, {after} KB with eight who do not read");
}
