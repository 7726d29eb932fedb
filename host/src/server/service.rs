//! The service: a host, what it keeps in mind while it serves, and how it starts and ends.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use super::hub::{Hub, Key};
use super::metrics::Metrics;
use super::quotas::Meter;
use super::routes;
use crate::engine::{Clock, EngineError, Host, HostBuilder};
use crate::store::Store;

pub type Shared = Arc<Service>;

/// What is set once for a service.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// Whether a request without a key is refused. Without this, a caller on this machine is the default
    /// tenant and may do everything.
    pub needs_keys: bool,
    /// A request's body; a component's is bounded by `component_bytes`.
    pub body_bytes: usize,
    /// How long a body may take to come, and a component's.
    pub body_ms: u64,
    pub upload_ms: u64,
    /// Connections at once; one more is told so and closed.
    pub connections_at_once: usize,
    /// After this a request is answered, whatever became of it. A run goes on.
    pub request_ms: u64,
    /// How long an answer waits for what follows from it, before it is said that the run goes on.
    pub answer_ms: u64,
    /// Requests at once, and streams and waits at once.
    pub requests_at_once: usize,
    pub streams_at_once: usize,
    /// How often a stream or a wait says that it is still there.
    pub heartbeat_ms: u64,
    /// How long what runs may go on after the service was told to end.
    pub drain_ms: u64,
    /// How often it is looked for what is due.
    pub sweep_ms: u64,
    /// How often, and how soon after the first time, a webhook is tried.
    pub webhook_attempts: u32,
    pub webhook_backoff_ms: u64,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            needs_keys: true,
            body_bytes: 20 << 20,
            body_ms: 20_000,
            upload_ms: 300_000,
            connections_at_once: 4_096,
            request_ms: 30_000,
            answer_ms: 30_000,
            requests_at_once: 512,
            streams_at_once: 2_000,
            heartbeat_ms: 5_000,
            drain_ms: 10_000,
            sweep_ms: 1_000,
            webhook_attempts: 12,
            webhook_backoff_ms: 1_000,
        }
    }
}

pub struct Service {
    /// For the default tenant; see [`super::caller::Allowed::host`].
    pub host: Host,
    store: Store,
    pub settings: ServeSettings,
    pub hub: Arc<Hub>,
    pub meter: Meter,
    pub metrics: Metrics,
    pub requests: Arc<Semaphore>,
    pub streams: Arc<Semaphore>,
    /// Threads whose line is being worked off, and whether somebody came to it meanwhile.
    pub(super) lines: Mutex<HashMap<Key, bool>>,
    /// Calls that are being carried out here.
    pub(super) carried: Mutex<HashSet<Uuid>>,
    /// How much is being carried out.
    pub(super) at_work: watch::Sender<usize>,
    /// Wakes whoever sends webhooks.
    pub(super) news: tokio::sync::Notify,
    stopping: watch::Sender<bool>,
}

impl Service {
    /// Opens the host and shows its runs to this service.
    pub async fn open(builder: HostBuilder, settings: ServeSettings) -> Result<Shared, EngineError> {
        let hub = Hub::new(Clock::default());
        let host = builder.watcher(hub.watcher()).open().await?;
        let store = host.store().cloned().ok_or_else(|| {
            let what = "a service needs a database";
            crate::model::Refused::plain(crate::model::Kind::Resume, what)
        })?;
        tokio::spawn(hub.clone().follow(store.changes()));
        Ok(Arc::new(Self {
            host,
            store,
            requests: Arc::new(Semaphore::new(settings.requests_at_once)),
            streams: Arc::new(Semaphore::new(settings.streams_at_once)),
            meter: Meter::new(&settings),
            settings,
            hub,
            metrics: Metrics::default(),
            lines: Mutex::default(),
            carried: Mutex::default(),
            at_work: watch::Sender::new(0),
            news: tokio::sync::Notify::new(),
            stopping: watch::Sender::new(false),
        }))
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Serves until `shutdown`; then what runs may go on for a while, what still runs is kept for the next
    /// start, and the database is closed. The caller owns the socket.
    pub async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        self.know_tenants().await.map_err(io::Error::other)?;
        // Before the first request: what was accepted before comes first in its line.
        self.clone().pick_up().await.map_err(io::Error::other)?;
        let sweeping = tokio::spawn(self.clone().keep_sweeping());
        let telling = tokio::spawn(self.clone().keep_telling());
        let app = routes::app(self.clone());
        let serving = tokio::spawn(self.clone().connections(listener, app));
        shutdown.await;
        tracing::info!("ending: no more requests are taken");
        self.stopping.send_replace(true);
        let drained = tokio::time::timeout(Duration::from_millis(self.settings.drain_ms), self.idle()).await;
        if drained.is_err() {
            tracing::info!("what still runs is kept as far as it is, and goes on with the next start");
            self.host.stop();
            self.idle().await;
        }
        self.host.stop();
        // Connections that are still open have nobody to write to them any more.
        let ended = tokio::time::timeout(Duration::from_secs(2), serving).await;
        sweeping.abort();
        telling.abort();
        self.host.clone().close().await;
        match ended {
            Ok(Err(broken)) => Err(io::Error::other(broken)),
            _ => Ok(()),
        }
    }

    /// Ends when the service was told to end.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = self.stopping.subscribe();
        async move {
            // The sender lives as long as anybody waits for it.
            if stopping.wait_for(|stopping| *stopping).await.is_err() {
                std::future::pending().await
            }
        }
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// When nothing is being carried out.
    async fn idle(&self) {
        let mut at_work = self.at_work.subscribe();
        if at_work.wait_for(|count| *count == 0).await.is_err() {
            std::future::pending().await
        }
    }
}
