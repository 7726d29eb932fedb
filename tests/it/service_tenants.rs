//! Another tenant's things are not there; a key is for what it says, and no more.

use std::collections::BTreeMap;

use holdpoint::store::{OnlyFor, Scope};
use reqwest::Method;
use serde_json::{Value, json};

use crate::service::*;
use crate::world::scripted;
use holdpoint::server::ServeSettings;

fn closed() -> ServeSettings {
    ServeSettings { needs_keys: true, ..settings() }
}

const ALL: [Scope; 3] = [Scope::Deploy, Scope::Run, Scope::Answer];

/// A tenant with something of everything, and its ids by the names that paths have for them.
async fn furnished(caller: &Caller) -> BTreeMap<&'static str, String> {
    let deployed = caller.scripted(&["n"]).await;
    let paused = caller.wait("theirs", json!([{ "ask": "secret?" }])).await.is(200);
    let runs = caller.get("/threads/theirs/runs").await.is(200);
    let state = caller.get("/threads/theirs/state").await.is(200);
    let components = caller.get("/components").await.is(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let made = json!({ "graph_id": "scripted", "name": "other" });
    let assistant = caller.post("/assistants", made).await.is(200);
    BTreeMap::from([
        ("thread_id", "theirs".to_owned()),
        ("run_id", text(&runs[0]["run_id"])),
        ("interrupt_id", text(&paused["__interrupt__"][0]["id"])),
        ("task_id", text(&state["tasks"][0]["id"])),
        ("checkpoint_id", text(&state["checkpoint"]["checkpoint_id"])),
        ("assistant_id", text(&assistant["assistant_id"])),
        ("digest", text(&components[0]["digest"])),
        ("name", text(&deployed["name"])),
    ])
}

fn filled(path: &str, ids: &BTreeMap<&str, String>) -> String {
    ids.iter().fold(path.to_owned(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id))
}

/// A body that each route takes, as far as that goes without knowing the thing.
fn body_for(path: &str) -> Value {
    match path {
        path if path.contains("/runs") => json!({ "assistant_id": "scripted", "command": { "resume": 1 } }),
        path if path.contains("/answer") || path.contains("/resume") => json!({ "value": 1 }),
        path if path.contains("/steer") => json!({ "text": "hello" }),
        path if path.contains("/upgrade") => json!({ "graph": "scripted" }),
        path if path.contains("/state/checkpoint") => json!({ "checkpoint": {} }),
        path if path.ends_with("/prune") => json!({ "keep": 1 }),
        path if path.contains("/graphs/") => json!({ "graph": scripted(&[]) }),
        _ => json!({}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_says_of_another_tenants_things_that_they_are_not_there() {
    let served = Served::start(closed()).await;
    let theirs = served.key("acme", &ALL).await;
    let ids = furnished(&theirs).await;
    let before = theirs.get("/threads/theirs/state").await.is(200);
    let mine = served.key("other", &ALL).await;
    // Of the same names: what is mine must not open what is theirs.
    mine.scripted(&["n", "m"]).await;
    let document = served.caller().get("/openapi.json").await.is(200);
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 40, "{}", paths.len());
    let mut walked = 0;
    for (path, operations) in paths {
        for (method, _) in operations.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            if path.starts_with("/tenants") {
                // Not theirs, and not mine: the operator's.
                let body = match path.ends_with("/keys") {
                    true => json!({ "name": "mine", "scopes": ["admin"] }),
                    false => json!({}),
                };
                let came =
                    mine.send(mine.request(method, &path.replace("{tenant}", "acme")).json(&body)).await;
                assert_eq!(came.status, 403, "{path}: {came:?}");
                continue;
            }
            let full = filled(path, &ids);
            if full == *path {
                continue;
            }
            // Deployed under the same name, these are mine.
            if path.starts_with("/graphs/") || path.ends_with("{digest}") {
                continue;
            }
            let request = mine.request(method.clone(), &full);
            let request = if method == Method::GET { request } else { request.json(&body_for(path)) };
            let came = mine.send(request).await;
            assert_eq!(came.status, 404, "{method} {path}: {came:?}");
            assert!(!came.body.to_string().contains("secret?"), "{path}");
            walked += 1;
        }
    }
    assert!(walked >= 30, "{walked}");
    // Nor in a list, by a target, or by the name of a thing.
    assert_eq!(mine.get("/interrupts").await.is(200), json!([]));
    assert_eq!(mine.post("/threads/search", json!({})).await.is(200), json!([]));
    assert_eq!(mine.post("/threads/search", json!({ "ids": ["theirs"] })).await.is(200), json!([]));
    mine.get("/interrupts?thread_id=theirs").await.is(404);
    mine.thread("theirs").await;
    let by_target = json!({ "value": 1, "target": { "run_id": ids["run_id"] } });
    mine.post("/threads/theirs/resume", by_target).await.is(404);
    let as_map = json!({ "assistant_id": "scripted", "command": { "resume": { &ids["interrupt_id"]: 1 } } });
    mine.post("/threads/theirs/runs/wait", as_map).await.is(404);
    let own = served.key("third", &ALL).await;
    own.get(&format!("/components/{}", ids["digest"])).await.is(404);
    own.get("/graphs/scripted").await.is(404);
    let by_digest = json!({ "graph": {
        "name": "g", "entry": "n", "nodes": { "n": { "component": ids["digest"] } } } });
    own.put("/graphs/g", by_digest).await.is(404);
    // Theirs is as it was.
    assert_eq!(theirs.get("/threads/theirs/state").await.is(200), before);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_for_its_scopes() {
    let served = Served::start(closed()).await;
    let all = served.key("acme", &ALL).await;
    furnished(&all).await;
    let routes = [
        (Method::GET, "/threads/theirs", Scope::Run),
        (Method::POST, "/threads", Scope::Run),
        (Method::PUT, "/graphs/x", Scope::Deploy),
        (Method::GET, "/tenants", Scope::Admin),
        (Method::GET, "/metrics", Scope::Admin),
    ];
    for scope in [Scope::Admin, Scope::Deploy, Scope::Run, Scope::Answer] {
        let caller = served.key("acme", &[scope]).await;
        for (method, path, wanted) in &routes {
            let came = caller.send(caller.request(method.clone(), path).json(&json!({}))).await;
            assert_eq!(came.status != 403, scope == *wanted, "{scope:?} {method} {path}: {came:?}");
        }
        let may_see = matches!(scope, Scope::Run | Scope::Answer);
        assert_eq!(caller.get("/interrupts").await.status == 200, may_see, "{scope:?}");
    }
    for key in ["hp_", "nonsense", "hp_00000000000000000000000000000000_00"] {
        let caller = Caller { key: Some(key.into()), ..all.clone() };
        caller.get("/threads/theirs").await.is(401);
    }
    // Of two keys neither counts.
    let other = served.key("other", &ALL).await;
    let two = all.request(Method::GET, "/threads/theirs").header("x-api-key", other.key.unwrap());
    all.send(two).await.is(401);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_only_this_machine_by_its_own_name_is_answered() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.thread("t").await;
    let rebound = caller.request(Method::GET, "/threads/t").header("host", "evil.example");
    caller.send(rebound).await.is(401);
    // HTTP/2 has the name in another place.
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let two = Caller { client, ..caller.clone() };
    two.get("/threads/t").await.is(200);
    let rebound = two.url.replace("127.0.0.1", "evil.example");
    let address = served.url.strip_prefix("http://").unwrap().parse().unwrap();
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    let client = client.resolve("evil.example", address).build().unwrap();
    Caller { client, url: rebound, key: None }.get("/threads/t").await.is(401);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_key_answers_what_it_is_for_and_its_name_is_recorded() {
    let served = Served::start(closed()).await;
    let all = served.key("acme", &ALL).await;
    all.scripted(&["n", "m"]).await;
    let paused = all.wait("t", json!([{ "ask": "?" }, { "put_results": "a" }])).await.is(200);
    assert_eq!(paused["__interrupt__"].as_array().unwrap().len(), 2);
    let only = OnlyFor { nodes: vec!["m".into()], ..OnlyFor::default() };
    let maria = served.key_for("acme", &[Scope::Answer], only).await;
    let seen = maria.get("/interrupts").await.is(200);
    assert_eq!(seen.as_array().unwrap().iter().map(|asked| &asked["node"]).collect::<Vec<_>>(), ["m"]);
    let every = all.get("/interrupts").await.is(200);
    let of = |node: &str| {
        let found = every.as_array().unwrap().iter().find(|asked| asked["node"] == node).unwrap();
        format!("/interrupts/{}/answer", found["id"].as_str().unwrap())
    };
    maria.post(&of("n"), json!({ "value": 1 })).await.is(404);
    maria.post("/threads/t/resume", json!({ "value": 1 })).await.is(403);
    let standing = maria.post(&of("m"), json!({ "value": 1 })).await.is(200);
    // What it is not for is not shown either.
    assert_eq!((standing["status"].as_str(), &standing["interrupts"]), (Some("interrupted"), &json!([])));
    let runs = all.get("/threads/t/runs").await.is(200);
    assert_eq!(runs[0]["actor"], "acme's");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_refuses_and_says_which_it_is() {
    let served = Served::start(closed()).await;
    let admin = served.key("operator", &[Scope::Admin]).await;
    let caller = served.key("acme", &ALL).await;
    caller.scripted(&["n"]).await;
    let set = |quotas: Value| {
        let admin = admin.clone();
        async move { admin.put("/tenants/acme", json!({ "quotas": quotas })).await.is(200) }
    };
    caller.wait("t", json!([])).await.is(200);
    set(json!({ "threads": 1 })).await;
    let came = caller.post("/threads", json!({})).await;
    assert!(came.body["detail"].as_str().unwrap().contains("(threads)"));
    came.is(429);
    set(json!({ "components": 1 })).await;
    let bytes = std::fs::read(crate::world::component("approve")).unwrap();
    let put = || caller.request(Method::PUT, "/components").body(bytes.clone());
    caller.send(put()).await.is(429);
    let tenant = set(json!({ "storage_bytes": 1000 })).await;
    assert_eq!(
        (tenant["usage"]["components"].clone(), tenant["usage"]["threads"].clone()),
        (json!(1), json!(1))
    );
    caller.send(put()).await.is(413);
    set(json!({ "body_bytes": 1000 })).await;
    caller.send(put()).await.is(413);
    set(json!({ "requests_per_minute": 10 })).await;
    let came = caller.get("/threads/t").await;
    came.is(200);
    let came = caller.get("/threads/t").await;
    assert!(came.headers.contains_key("retry-after"));
    came.is(429);
    // Nobody else is slowed down by it.
    served.key("other", &ALL).await.get("/graphs").await.is(200);
    served.end().await;
}
