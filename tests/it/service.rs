//! A service under test: real sockets, a real database, nodes that do what their script says.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use holdpoint::engine::Settings;
use holdpoint::model::{TenantId, Timestamp};
use holdpoint::server::keys::{self, NewKey};
use holdpoint::server::{ServeSettings, Service};
use holdpoint::store::{OnlyFor, Scope, Store};
use holdpoint::{GraphSpec, Host};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{artifacts, component, posts_to, scripted};

/// A service that runs in this process.
pub struct Served {
    pub dir: Arc<tempfile::TempDir>,
    pub url: String,
    pub service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    ends: JoinHandle<std::io::Result<()>>,
}

/// What came back.
#[derive(Debug)]
pub struct Came {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Came {
    #[track_caller]
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:#?}");
        self.body
    }
}

/// Every refusal says why, to a person and to a program.
fn is_problem(body: &Value) -> bool {
    let error = &body["error"];
    body["detail"].is_string() && error["kind"].is_string() && error["message"].is_string()
}

pub fn client() -> reqwest::Client {
    // Another test may have chosen one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap()
}

pub fn settings() -> ServeSettings {
    ServeSettings {
        needs_keys: false,
        heartbeat_ms: 200,
        webhook_backoff_ms: 20,
        sweep_ms: 100,
        ..Default::default()
    }
}

impl Served {
    pub async fn start(settings: ServeSettings) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), settings).await
    }

    pub async fn start_in(dir: Arc<tempfile::TempDir>, settings: ServeSettings) -> Self {
        let of = Settings { lease_ms: 700, ..Settings::default() };
        let builder = Host::builder().database(dir.path().join("s.db")).cache(artifacts()).settings(of);
        // Webhooks of tests go to this machine.
        let service = Service::open(builder.egress("127.0.0.1"), settings).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = service.clone().run(listener, async move {
            stopped.await.ok();
        });
        Self { dir, url, service, stop: Some(stop), ends: tokio::spawn(running) }
    }

    /// Ends it as SIGTERM does, and waits until it has ended.
    pub async fn end(mut self) -> Arc<tempfile::TempDir> {
        self.stop.take().map(|stop| stop.send(()));
        (&mut self.ends).await.unwrap().unwrap();
        self.dir.clone()
    }

    pub fn caller(&self) -> Caller {
        Caller { client: client(), url: self.url.clone(), key: None }
    }

    pub async fn key(&self, tenant: &str, scopes: &[Scope]) -> Caller {
        self.key_for(tenant, scopes, OnlyFor::default()).await
    }

    pub async fn key_for(&self, tenant: &str, scopes: &[Scope], only_for: OnlyFor) -> Caller {
        let store: &Store = self.service.store();
        let new = NewKey { name: format!("{tenant}'s"), scopes: scopes.to_vec(), only_for, expires_at: None };
        let tenant = TenantId::parse(tenant).unwrap();
        let (key, _) = keys::create(store, &tenant, new, Timestamp(1)).await.unwrap();
        Caller { client: client(), url: self.url.clone(), key: Some(key) }
    }
}

/// Somebody who calls the service.
#[derive(Clone)]
pub struct Caller {
    pub client: reqwest::Client,
    pub url: String,
    pub key: Option<String>,
}

impl Caller {
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.header("x-api-key", key),
            None => request,
        }
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Came {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body =
            serde_json::from_str(&text).unwrap_or(if text.is_empty() { Value::Null } else { json!(text) });
        let is_refused = status.is_client_error() || status.is_server_error();
        assert!(!is_refused || is_problem(&body), "{status}: {body}");
        Came { status, headers, body }
    }

    pub async fn get(&self, path: &str) -> Came {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Came {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Came {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Came {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    /// Installs a component by its file, and says its digest.
    pub async fn install(&self, name: &str) -> String {
        let bytes = std::fs::read(component(name)).unwrap();
        let request = self.request(Method::PUT, "/components").header("content-type", "application/wasm");
        self.send(request.body(bytes)).await.is(200)["digest"].as_str().unwrap().to_owned()
    }

    /// Deploys a graph of scripted nodes under its name.
    pub async fn deploy(&self, spec: &GraphSpec) -> Value {
        let mut spec = spec.clone();
        spec.effects.clear();
        self.deploy_with(spec, &[]).await
    }

    /// Likewise; what its nodes may do is `e`, which goes to this address.
    pub async fn deploy_sending(&self, spec: &GraphSpec, address: &str) -> Value {
        let mut spec = spec.clone().effect("e", posts_to(address));
        spec.effects.retain(|name, _| name == "e");
        self.deploy_with(spec, &["e"]).await
    }

    async fn deploy_with(&self, mut spec: GraphSpec, effects: &[&str]) -> Value {
        let digest = self.install("script").await;
        for node in spec.nodes.values_mut() {
            *node = node.clone().effects(effects);
            if node.component.is_some() {
                node.component = Some(digest.clone());
            }
        }
        self.put(&format!("/graphs/{}", spec.name), json!({ "graph": spec })).await.is(200)
    }

    /// The graph `scripted` with these nodes, all of them entries.
    pub async fn scripted(&self, nodes: &[&str]) -> Value {
        self.deploy(&scripted(nodes)).await
    }

    pub async fn thread(&self, name: &str) -> Value {
        self.post("/threads", json!({ "thread_id": name })).await.is(200)
    }

    /// Runs a script on a thread, and waits.
    pub async fn wait(&self, thread: &str, script: Value) -> Came {
        let body =
            json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
        self.post(&format!("/threads/{thread}/runs/wait"), body).await
    }

    pub async fn resume(&self, thread: &str, value: Value) -> Came {
        let body = json!({ "assistant_id": "scripted", "command": { "resume": value } });
        self.post(&format!("/threads/{thread}/runs/wait"), body).await
    }
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub event: String,
    pub id: Option<String>,
    pub data: Value,
}

/// A stream while it is read.
pub struct Stream {
    response: reqwest::Response,
    text: String,
    /// Comments so far.
    pub beats: usize,
}

impl Stream {
    pub async fn open(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new(), beats: 0 }
    }

    pub async fn next(&mut self) -> Option<Part> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let (mut event, mut id, mut data) = (String::new(), None, Vec::new());
                for line in block.lines() {
                    match line.split_once(':').map(|(name, rest)| (name, rest.trim_start())) {
                        Some(("", _)) => self.beats += 1,
                        Some(("event", rest)) => event = rest.to_owned(),
                        Some(("id", rest)) => id = Some(rest.to_owned()),
                        Some(("data", rest)) => data.push(rest),
                        _ => {}
                    }
                }
                if !event.is_empty() {
                    let data = serde_json::from_str(&data.join("\n")).unwrap();
                    return Some(Part { event, id, data });
                }
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.text.push_str(std::str::from_utf8(&chunk).unwrap()),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    pub async fn all(mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some(part) = self.next().await {
            parts.push(part);
        }
        parts
    }
}

/// A client of the field, set up once for all tests, run to its end.
pub async fn run_client(kind: &str, program: &str, args: &[&str]) -> String {
    let clients = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("clients-{kind}"));
    let mut setup = tokio::process::Command::new(clients.join("setup"));
    let done = setup.arg(kind).arg(&folder).stdin(Stdio::null()).output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut command = match kind {
        "python" => tokio::process::Command::new(folder.join("venv/bin").join(program)),
        _ => {
            // It looks for its modules from where it is.
            let own = folder.join(program);
            if clients.join(program).exists() {
                std::fs::copy(clients.join(program), &own).unwrap();
            }
            let mut command = tokio::process::Command::new("node");
            command.arg(own);
            command
        }
    };
    // What it keeps for itself, it keeps there.
    let command = command.args(args).current_dir(&folder).stdin(Stdio::null());
    let output = command.kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(150), output).await.expect("it ends").unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    said
}

/// Likewise, for a program that a test wrote.
pub async fn run_code(kind: &str, name: &str, code: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("clients-{kind}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), code).unwrap();
    run_client(kind, name, &[]).await
}
