//! A host under test: a folder of its own, and nodes that do what their script says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use holdpoint::engine::{Settings, Watched};
use holdpoint::model::interrupt::PendingInterrupt;
use holdpoint::model::{EffectSpec, HttpSpec, Kind, RunStatus};
use holdpoint::{
    EffectFailure, EffectRequest, EngineError, Execution, Graph, GraphSpec, Host, HostBuilder, NodeSpec,
    Reducer, Refused, RunConfig,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A folder with a database, and what happened outside.
pub struct World {
    pub dir: tempfile::TempDir,
    /// Every effect that a handler carried out, in order.
    pub sent: Arc<Mutex<Vec<EffectRequest>>>,
    /// Every task that was started: node names, one for each instantiation.
    pub started: Arc<Mutex<Vec<String>>>,
    /// What nodes logged and printed.
    pub logged: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temp dir");
        Self { dir, sent: Arc::default(), started: Arc::default(), logged: Arc::default() }
    }

    pub fn db(&self) -> PathBuf {
        self.dir.path().join("holdpoint.db")
    }

    /// With two effects that succeed, `e` and `f`: each gives back `{"sent": N}`, N counting all.
    pub fn builder(&self) -> HostBuilder {
        let (started, logged) = (self.started.clone(), self.logged.clone());
        let watcher = Arc::new(move |watched: &Watched<'_>| match watched {
            Watched::TaskStarted { node, .. } => started.lock().unwrap().push(node.to_string()),
            Watched::Log { message, .. } => logged.lock().unwrap().push((*message).to_owned()),
            _ => {}
        });
        let settings = Settings { lease_ms: 1_500, ..Settings::default() };
        let mut builder = Host::builder().cache(artifacts()).settings(settings).watcher(watcher);
        for name in ["e", "f"] {
            let sent = self.sent.clone();
            builder = builder.effect(name, move |request| {
                let sent = sent.clone();
                async move {
                    let mut sent = sent.lock().unwrap();
                    sent.push(request);
                    Ok::<Value, EffectFailure>(json!({ "sent": sent.len() }))
                }
            });
        }
        builder
    }

    /// Another host on the same database: as good as another process, but for its crash.
    pub async fn host(&self) -> Host {
        self.builder().database(self.db()).open().await.expect("the host opens")
    }

    pub async fn graph(&self, spec: &GraphSpec) -> Graph {
        self.host().await.compile(spec).await.expect("the graph compiles")
    }

    /// One scripted node named `n`.
    pub async fn one(&self) -> Graph {
        self.graph(&scripted(&["n"])).await
    }

    pub fn started(&self) -> Vec<String> {
        std::mem::take(&mut *self.started.lock().unwrap())
    }

    pub fn sent(&self) -> usize {
        self.sent.lock().unwrap().len()
    }
}

/// An effect that is sent to this address of host and port.
pub fn posts_to(address: impl std::fmt::Display) -> EffectSpec {
    let http = HttpSpec {
        method: "POST".into(),
        url: format!("http://{address}/"),
        headers: Default::default(),
        timeout_ms: None,
        auth: None,
    };
    EffectSpec { http: Some(http), ..EffectSpec::default() }
}

/// An effect that is on its way for as long as the test wants.
#[derive(Clone, Default)]
pub struct Held(Arc<(Notify, Notify)>);

impl Held {
    /// As the effect `f`.
    pub fn effect(&self, builder: HostBuilder) -> HostBuilder {
        let held = self.0.clone();
        builder.effect("f", move |_| {
            let held = held.clone();
            async move {
                held.0.notify_one();
                held.1.notified().await;
                Ok(json!("done"))
            }
        })
    }

    pub async fn reached(&self) {
        self.0.0.notified().await;
    }

    pub fn go_on(&self) {
        self.0.1.notify_one();
    }
}

/// Compiled components are shared by all tests: compiling them is not what is tested.
pub fn artifacts() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("components-compiled")
}

/// A component that `make guests` built.
pub fn component(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/components").join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is not there; run the tests with `make test`", path.display());
    path.display().to_string()
}

/// A graph of scripted nodes, all of them entries, without edges. Channels: `script` and `b` replace,
/// `a` append, `c` sum, `d` merge. Labels: `x`, `y` lead to nodes of that name if they are there.
pub fn scripted(nodes: &[&str]) -> GraphSpec {
    let mut spec = GraphSpec::new("scripted", nodes[0])
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Append)
        .channel("b", Reducer::Replace)
        .channel("c", Reducer::Sum)
        .channel("d", Reducer::Merge)
        .effect("e", Default::default())
        .effect("f", Default::default());
    spec.entry = holdpoint::model::OneOrMany::Many(nodes.iter().map(|&n| n.into()).collect());
    for &node in nodes {
        spec = spec.node(node, script_node());
    }
    spec
}

/// A scripted node that is granted everything but `b` (two writers of which are an error) and routes.
pub fn script_node() -> NodeSpec {
    NodeSpec::component(component("script"))
        .reads(&["script", "a", "b", "c", "d"])
        .writes(&["a", "c", "d"])
        .effects(&["e", "f"])
}

pub fn on(thread: &str) -> RunConfig {
    RunConfig::thread(thread)
}

/// The input that gives every node the same script.
pub fn script(ops: Value) -> Value {
    json!({ "script": ops })
}

/// The pause, its questions in order.
#[track_caller]
pub fn paused(execution: Execution) -> Vec<PendingInterrupt> {
    assert_eq!(execution.status, RunStatus::Interrupted, "{execution:#?}");
    assert!(!execution.interrupts.is_empty(), "{execution:#?}");
    execution.interrupts
}

#[track_caller]
pub fn completed(execution: Execution) {
    assert_eq!(execution.status, RunStatus::Completed, "{execution:#?}");
    assert_eq!(execution.interrupts, []);
    assert_eq!(execution.error, None);
}

/// The kind of error that a run ended in.
#[track_caller]
pub fn failed(execution: &Execution) -> Kind {
    assert!(matches!(execution.status, RunStatus::Failed | RunStatus::Diverged), "{execution:#?}");
    execution.error.as_ref().expect("a failed run has an error").kind
}

#[track_caller]
pub fn refused(result: Result<Execution, EngineError>) -> Refused {
    match result {
        Err(EngineError::Refused(refused)) => *refused,
        other => panic!("not refused: {other:#?}"),
    }
}
