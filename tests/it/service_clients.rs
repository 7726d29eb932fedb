//! The field's public clients, unmodified, against the service.

use crate::service::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_works_as_it_is() {
    let served = Served::start(settings()).await;
    served.caller().scripted(&["n"]).await;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/person.py");
    let said = run_client("python", "python", &[program, &served.url, "scripted"]).await;
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
