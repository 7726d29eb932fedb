//! One document for all routes, and nothing that it does not say.

use holdpoint::store::Scope;
use serde_json::json;

use crate::service::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_every_route_with_what_it_takes_and_answers() {
    let served = Served::start(settings()).await;
    let document = served.caller().get("/openapi.json").await.is(200);
    assert_eq!(document, holdpoint::server::document());
    assert_eq!(document["openapi"].as_str().unwrap().split('.').next(), Some("3"));
    let mut ids = std::collections::BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let which = format!("{method} {path}");
            let name = format!("{}/{}", operation["tags"][0], operation["operationId"]);
            assert!(ids.insert(name.clone()) || operation["operationId"].is_string(), "{which}: {name}");
            assert!(operation["summary"].is_string(), "{which} says nothing of itself");
            for status in ["401", "404", "422", "503"] {
                assert!(operation["responses"][status].is_object(), "{which}: {status}");
            }
            let named = path.matches('{').count();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(named, in_path, "{which}");
        }
    }
    // What is referred to is there.
    let text = document.to_string();
    for (at, _) in text.match_indices("#/components/schemas/") {
        let name = text[at + 21..].split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_made_up_from_the_document_find_no_fault_and_nothing_undocumented() {
    let served = Served::start(settings()).await;
    let all = [Scope::Admin, Scope::Deploy, Scope::Run, Scope::Answer];
    let caller = served.key("default", &all).await;
    let key = format!("x-api-key: {}", caller.key.as_ref().unwrap());
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let document = format!("{}/openapi.json", served.url);
    let checks =
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    let args = [
        "run",
        &document,
        "-H",
        &key,
        "--checks",
        checks,
        "--phases",
        "fuzzing",
        "--max-examples",
        "8",
        "--workers",
        "2",
        "--request-timeout",
        "10",
        "--seed",
        "7",
        "--suppress-health-check",
        "all",
        "--no-color",
        "--exclude-path-regex",
        "stream$",
    ];
    let said = run_client("python", "schemathesis", &args).await;
    assert!(said.contains("No issues found") || said.contains("passed"), "{said}");
    served.end().await;
}
