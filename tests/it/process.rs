//! The real binary, in processes of its own that can be killed, and a service outside that counts.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use holdpoint::model::{EffectMode, EffectSpec, GraphSpec};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{artifacts, posts_to, scripted};

/// How long the lease of a killed process keeps others off the thread.
const LEASE_MS: &str = "700";

/// A folder with a graph and a database, and the program to work on them.
pub struct Desk {
    pub dir: tempfile::TempDir,
    pub service: Service,
}

/// What one process said.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    /// The document on standard output; null if it wrote none.
    pub document: Value,
    #[expect(dead_code, reason = "shown where a test fails")]
    pub stderr: String,
}

impl Desk {
    /// One scripted node `n`, whose effect `e` goes to a service on loopback.
    pub async fn new(mode: EffectMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let service = Service::start().await;
        let effect = EffectSpec { mode, ..posts_to(&service.address) };
        let spec: GraphSpec = scripted(&["n"]).effect("e", effect.clone()).effect("f", effect);
        std::fs::write(dir.path().join("graph.toml"), spec.to_toml()).unwrap();
        Self { dir, service }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .current_dir(self.dir.path())
            .args(args)
            .args(["--json", "--db", "desk.db", "--lease-ms", LEASE_MS])
            .args(["--egress", &self.service.address])
            .arg("--cache")
            .arg(artifacts())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    pub async fn say(&self, args: &[&str]) -> Said {
        finish(self.spawn(args)).await
    }

    /// The process kills itself, as SIGKILL does, at the `nth` time that it comes by this fail point.
    pub async fn killed_at(&self, point: &str, nth: u32, args: &[&str]) -> Said {
        let child = self.command(args).env("HOLDPOINT_KILL_AT", format!("{point}#{nth}")).spawn().unwrap();
        finish(child).await
    }

    /// `run` on thread `t`, with this script.
    pub fn start<'a>(&self, script: &'a str) -> Vec<&'a str> {
        vec!["run", "graph.toml", "--thread", "t", "--input", script]
    }
}

impl Said {
    #[track_caller]
    pub fn exit(&self, code: i32) -> &Value {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        &self.document
    }

    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }
}

pub async fn finish(child: Child) -> Said {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    Said {
        status: output.status,
        document: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Where the program can be told to kill itself, of the places that a run comes by.
pub const KILL_POINTS: [&str; 9] = [
    "store::in_batch",
    "store::before_commit",
    "store::after_commit",
    "engine::before_intent",
    "engine::after_intent",
    "engine::before_effect",
    "engine::after_effect",
    "engine::before_end",
    "engine::after_end",
];

pub fn binary() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../debug/holdpoint");
    assert!(path.exists(), "{} is not there; run the tests with `make test`", path.display());
    path
}

/// Counts what reaches it, by idempotency key.
pub struct Service {
    pub address: String,
    received: Arc<Mutex<Vec<(String, Value)>>>,
    /// The request with this number gets no answer for as long as it lives.
    pub silent_at: Arc<AtomicUsize>,
    came: Arc<Notify>,
}

impl Service {
    pub async fn start() -> Self {
        let received: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (silent_at, came): (Arc<AtomicUsize>, Arc<Notify>) = Default::default();
        let (taken, silent, notify) = (received.clone(), silent_at.clone(), came.clone());
        let take = move |headers: axum::http::HeaderMap, body: axum::Json<Value>| async move {
            let key = headers["idempotency-key"].to_str().unwrap().to_owned();
            let n = {
                let mut taken = taken.lock().unwrap();
                taken.push((key, body.0));
                taken.len()
            };
            notify.notify_one();
            if silent.load(Ordering::SeqCst) == n {
                std::future::pending::<()>().await;
            }
            axum::Json(json!({ "n": n }))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = axum::Router::new().fallback(take);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, received, silent_at, came }
    }

    pub async fn wait_for(&self, n: usize) {
        while self.received() < n {
            self.came.notified().await;
        }
    }

    pub fn received(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    pub fn keys(&self) -> usize {
        let received = self.received.lock().unwrap();
        received.iter().map(|(key, _)| key).collect::<std::collections::BTreeSet<_>>().len()
    }
}
