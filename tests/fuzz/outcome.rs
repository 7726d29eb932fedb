//! What a node hands to the host: questions, effects, events, an update, as texts that may be no JSON.

use std::sync::{LazyLock, Mutex};

use holdpoint::engine::Settings;
use holdpoint::model::{EffectSpec, Kind, RunStatus};
use holdpoint::{GraphSpec, Host, NodeSpec, Reducer, RunConfig};
use serde_json::{Value, json};

use super::{cache, component_file, runtime};

/// The first byte says where the others go, as the node's own text.
pub fn outcome(data: &[u8]) -> bool {
    let Some((&first, data)) = data.split_first() else { return false };
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let op = match first % 8 {
        0 => json!({ "raw_ask": text }),
        1 => json!({ "raw_update": text }),
        2 => json!({ "raw_emit": text }),
        3 => json!({ "raw_effect": { "name": "e", "key": "k", "input": text } }),
        4 => json!({ "raw_effect": { "name": text, "key": text, "input": "1" } }),
        5 => json!({ "log": { "level": "info", "message": text } }),
        6 => json!({ "go": text }),
        _ => json!({ "fail": { "message": text, "detail": text } }),
    };
    let stage = STAGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Stage { runtime, graph, _host, _dir } = &*stage;
    runtime.block_on(async {
        let input = json!({ "script": [{ "put": { "c": 1 } }, op] });
        let config = || RunConfig::thread("t");
        let run = graph.invoke(config(), input).await.expect("what a node says is no fault of the host");
        match run.status {
            RunStatus::Completed => true,
            RunStatus::Interrupted => {
                assert_eq!(run.interrupts.len(), 1);
                let done = graph.resume(config(), holdpoint::Command::resume(Value::Null)).await.unwrap();
                assert_eq!(done.status, RunStatus::Completed, "{done:?}");
                true
            }
            status => {
                let error = run.error.unwrap_or_else(|| panic!("{status:?} for no reason"));
                assert!(!matches!(error.kind, Kind::Store | Kind::Trap | Kind::Diverged), "{error:?}");
                assert!(error.message.len() < 20_000 + 4 * text.len(), "{}", error.message.len());
                false
            }
        }
    })
}

struct Stage {
    runtime: tokio::runtime::Runtime,
    graph: holdpoint::Graph,
    _host: Host,
    _dir: tempfile::TempDir,
}

static STAGE: LazyLock<Mutex<Stage>> = LazyLock::new(|| {
    let runtime = runtime();
    let dir = tempfile::tempdir().unwrap();
    let (host, graph) = runtime.block_on(async {
        let settings = Settings { lease_ms: 60_000, ..Settings::default() };
        let builder = Host::builder().database(dir.path().join("o.db")).cache(cache()).settings(settings);
        let host = builder.effect("e", |request| async move { Ok(request.input) }).open().await.unwrap();
        let node = NodeSpec::component(component_file("script"))
            .reads(&["script"])
            .writes(&["a", "b", "c", "d"])
            .routes(&[("x", "end")])
            .effects(&["e"]);
        let spec = GraphSpec::new("says", "n")
            .channel("script", Reducer::Replace)
            .channel("a", Reducer::Append)
            .channel("b", Reducer::Replace)
            .channel("c", Reducer::Sum)
            .channel("d", Reducer::Merge)
            .effect("e", EffectSpec::default())
            .node("n", node);
        let graph = host.compile(&spec).await.unwrap();
        (host, graph)
    });
    Mutex::new(Stage { runtime, graph, _host: host, _dir: dir })
});
