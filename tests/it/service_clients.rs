//! The field's public clients, unmodified, against the service.

use std::path::{Path, PathBuf};

use holdpoint::{GraphSpec, NodeSpec, Reducer};

use crate::service::*;
use crate::world::scripted;

fn script(name: &str) -> String {
    format!("{}/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The nodes `n` and `m`, one after the other.
pub fn chain() -> GraphSpec {
    let mut spec = scripted(&["n", "m"]);
    spec.name = "chain".into();
    spec.entry = "n".into();
    spec.edge("n", "m")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_works_as_it_is() {
    let served = Served::start(settings()).await;
    served.caller().scripted(&["n"]).await;
    let said = run_client("python", "python", &[&script("person.py"), &served.url, "scripted"]).await;
    assert!(said.contains("ok"), "{said}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_client_works_as_it_is() {
    let served = Served::start(settings()).await;
    served.caller().scripted(&["n"]).await;
    let said = run_client("javascript", "person.mjs", &[&served.url, "scripted"]).await;
    assert!(said.contains("ok"), "{said}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_goes_back_forks_copies_and_prunes() {
    let served = Served::start(settings()).await;
    served.caller().deploy(&chain()).await;
    let said = run_client("python", "python", &[&script("branches.py"), &served.url, "chain"]).await;
    assert!(said.contains("ok"), "{said}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_client_goes_back_forks_copies_and_prunes() {
    let served = Served::start(settings()).await;
    served.caller().deploy(&chain()).await;
    let said = run_client("javascript", "branches.mjs", &[&served.url, "chain"]).await;
    assert!(said.contains("ok"), "{said}");
    served.end().await;
}

/// The clients of the manual, as they stand there, but for the address and the key.
#[tokio::test(flavor = "multi_thread")]
async fn the_clients_of_the_manual_work_as_they_stand_there() {
    use holdpoint::store::Scope;
    let served = Served::start(holdpoint::server::ServeSettings { needs_keys: true, ..settings() }).await;
    let caller = served.key("acme", &[Scope::Deploy, Scope::Run]).await;
    let digest = caller.install("approve").await;
    let approve = NodeSpec::component(&digest).reads(&["labels", "draft"]).writes(&["decision"]);
    let approve = approve.routes(&[("publish", "end"), ("done", "end")]);
    let spec = GraphSpec::new("approval", "approve")
        .channel("labels", Reducer::Replace)
        .channel("draft", Reducer::Replace)
        .channel("decision", Reducer::Replace)
        .node("approve", approve);
    caller.put("/graphs/approval", serde_json::json!({ "graph": spec })).await.is(200);
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src/server/README.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let block = |language: &str| {
        let fence = format!("```{language}\n");
        let from = manual.find(&fence).expect("the manual has such a client") + fence.len();
        let code = manual[from..].split("```").next().unwrap();
        assert!(code.trim().lines().count() <= 11, "ten lines, and an empty one: {code}");
        let key = caller.key.as_deref().unwrap();
        let code = code.replace("http://localhost:2024", &served.url).replace("hp_…", key);
        assert!(code.contains(key) && code.contains(&served.url), "{code}");
        code
    };
    let folder = tempfile::tempdir().unwrap();
    let python: PathBuf = folder.path().join("client.py");
    std::fs::write(&python, block("python")).unwrap();
    let said = run_client("python", "python", &[python.to_str().unwrap()]).await;
    assert!(said.contains("{'approved': True} []"), "{said}");
    let said = run_code("javascript", "manual.mjs", &block("js")).await;
    assert!(said.contains("updates") && said.contains("approved: true"), "{said}");
    served.end().await;
}
