//! A database of the first schema, as a program of that time left it, under the program of today: what waits there
//! is answered.
//!
//! `fixtures/schema-1.db.gz` was written by the last program that knew one migration alone. Its thread `t` was
//! driven by arbitrary answers, and waits in a node, at a gate, and in a subgraph.

use std::path::Path;
use std::process::{Command as Process, Stdio};

use holdpoint::model::InterruptKind;
use holdpoint::{Command, RunStatus};
use serde_json::json;
use sqlx::Connection as _;

use crate::refusals::connect;
use crate::service::{Served, settings};
use crate::world::*;

/// The database, as it was left.
fn unpack(to: &Path) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/fixtures/schema-1.db.gz");
    let file = std::fs::File::create(to).unwrap();
    let mut gzip = Process::new("gzip");
    let unpacked = gzip.arg("-dc").arg(packed).stdin(Stdio::null()).stdout(file).status().unwrap();
    assert!(unpacked.success());
}

async fn migrations(db: &Path) -> Vec<i64> {
    let mut connection = connect(db).await;
    let found = sqlx::query_scalar("SELECT version FROM _sqlx_migrations ORDER BY version");
    let found = found.fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_database_of_the_first_schema_is_answered_by_the_program_of_today() {
    let world = World::new();
    unpack(&world.db());
    assert_eq!(migrations(&world.db()).await, [1]);
    let host = world.host().await;
    assert!(migrations(&world.db()).await.len() > 1);
    let mut run = host.execution(on("t")).await.unwrap();
    let first: Vec<_> = run.interrupts.iter().map(|asked| (asked.kind, asked.run_path.len())).collect();
    assert_eq!(first, [(InterruptKind::Node, 1), (InterruptKind::Before, 1), (InterruptKind::Node, 2)]);
    let mut answered = 0;
    while run.status == RunStatus::Interrupted {
        let asked = run.interrupts.remove(0);
        let command = match (asked.kind, &asked.answer_schema) {
            (InterruptKind::Before | InterruptKind::After, _) => Command::proceed(),
            (_, Some(schema)) if schema["enum"].is_array() => {
                Command::answers([(asked.interrupt.id, schema["enum"][0].clone())])
            }
            _ => Command::answers([(asked.interrupt.id, json!("yes"))]),
        };
        run = host.resume(on("t"), command).await.unwrap();
        answered += 1;
        assert!(answered < 20, "{run:#?}");
    }
    assert!(answered >= 4, "{answered}");
    completed(run);
    assert_eq!(migrations(&world.db()).await, [1, 2, 3]);
    // It takes what is new as well.
    completed(graph(&host).await.invoke(on("new"), script(json!([{ "put": { "c": 1 } }]))).await.unwrap());
}

async fn graph(host: &holdpoint::Host) -> holdpoint::Graph {
    host.compile(&scripted(&["n"])).await.unwrap()
}

/// Also over HTTP, which that program did not speak.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_today_serves_a_database_of_the_first_schema() {
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    unpack(&dir.path().join("s.db"));
    let served = Served::start_in(dir, settings()).await;
    let caller = served.caller();
    let waiting = caller.get("/interrupts").await.is(200);
    let asked = waiting.as_array().unwrap().iter().find(|asked| asked["namespace"] == json!(["s"])).unwrap();
    let id = asked["id"].as_str().unwrap();
    caller.post(&format!("/interrupts/{id}/answer"), json!({ "value": 7 })).await.is(422);
    let standing = caller.post(&format!("/interrupts/{id}/answer"), json!({ "value": null })).await.is(200);
    assert_eq!(standing["status"], "interrupted", "{standing}");
    assert_eq!(caller.get("/interrupts").await.is(200).as_array().unwrap().len(), 2);
    served.end().await;
}
