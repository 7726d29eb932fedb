//! A database that cannot be written to.

use std::path::Path;
use std::process::Command as Process;

use holdpoint::Command;
use holdpoint::engine::Settings;
use holdpoint::model::Kind;
use serde_json::json;

use crate::world::*;

/// Set in the child process: how its writes are refused, and the database.
const CHILD: &str = "HOLDPOINT_TEST_DISK";
const TEST: &str = "disk::i02_a_refused_write_at_the_pause_fails_the_run";

#[tokio::test(flavor = "multi_thread")]
async fn i02_a_refused_write_at_the_pause_fails_the_run() {
    if let Ok(child) = std::env::var(CHILD) {
        let (how, db) = child.split_once('@').unwrap();
        return pause_on_a_full_disk(how, db.as_ref()).await;
    }
    for how in ["file size", "once", "from then on"] {
        let world = World::new();
        let graph = world.one().await;
        completed(graph.invoke(on("t"), script(json!([{ "put": { "a": [1] } }]))).await.unwrap());
        // A limit on the size of files is as good as a full disk. In a child, because it holds for the whole
        // process, as fail points do.
        let limit = if how == "file size" { "ulimit -f 4096;" } else { "" };
        let child = Process::new("bash")
            .args(["-c", &format!("trap '' XFSZ; {limit} exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(CHILD, format!("{how}@{}", world.db().display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && said.contains("every refusal was seen"), "{how}: {said}");
        // With the space back it goes on as usual.
        if how == "file size" {
            paused(graph.invoke(on("t"), script(json!([{ "ask": 1 }]))).await.unwrap());
        }
        completed(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
        assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([1]));
    }
}

/// The n-th statement is refused, once or with all that follow, until a run never gets that far.
async fn pause_on_a_full_disk(how: &str, db: &Path) {
    let world = World::new();
    // The run and its pause are one commit.
    let settings = Settings { budget_ms: 600_000, ..Settings::default() };
    let open = async || world.builder().database(db).settings(settings.clone()).open().await.unwrap();
    let host = open().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let before = host.execution(on("t")).await.unwrap();
    let question = script(json!([{ "ask": "x".repeat(3 << 20) }]));
    for n in 0.. {
        let action = match how {
            "once" => format!("{n}*off->1*return->off"),
            "from then on" => format!("{n}*off->return"),
            _ => "off".to_owned(),
        };
        fail::cfg("store::write", &action).unwrap();
        let invoked = graph.invoke(on("t"), question.clone()).await;
        fail::remove("store::write");
        match invoked {
            Err(error) => assert_eq!(error.kind(), Kind::Store, "{error}"),
            Ok(execution) => {
                paused(execution);
                assert!(n > 5, "a run and its pause are more than {n} statements");
                break;
            }
        }
        let reopened = open().await;
        assert_eq!(reopened.execution(on("t")).await.unwrap(), before, "{how} {n}");
        assert_eq!(reopened.state(on("t")).await.unwrap()["a"], json!([1]));
        if how == "file size" {
            break;
        }
    }
    println!("every refusal was seen");
}
