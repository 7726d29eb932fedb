//! The host: a store, a sandbox, the handlers of effects, and the graphs and threads between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, Weak};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::call::{CallEnd, ForCall};
use super::clock::Clock;
use super::effects::{self, EffectFailure, EffectRequest, Handler, Handlers};
use super::error::EngineError;
use super::graph::Graph;
use super::http::Egress;
use super::queue::{self, Waiting};
use super::quota::Used;
use super::secrets::Secrets;
use super::watch::{Watched, Watcher};
use crate::model::compile::{CompileError, CompiledGraph, CompiledNode, NodeInfo, Work};
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::graph::GraphSpec;
use crate::model::ids::{Digest, TenantId, ThreadId};
use crate::model::limits::Limits;
use crate::model::way_out::WayOut;
use crate::sandbox::{Compiler, Component, Places, Room, Sandbox, SandboxError, SandboxOptions};
use crate::store::{OwnerId, Store};

/// Hosts graphs and their threads for one tenant. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(super) shared: Arc<Shared>,
    pub(super) tenant: TenantId,
    /// The tenant's.
    pub(super) limits: Arc<Limits>,
    /// What it is carried out for, if somebody wrote that down.
    pub(super) call: Option<ForCall>,
}

/// A longer lease is not given, and not believed.
pub const LEASE_MS_MAX: u64 = 600_000;

/// What is set once for a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a claim on a thread lasts without renewal, in milliseconds. A run whose process died can
    /// be continued elsewhere after this.
    pub lease_ms: u64,
    /// How long an invocation may go on before it is made durable and shown as running.
    pub budget_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { lease_ms: 6_000, budget_ms: 200 }
    }
}

/// Gone when nobody holds or waits for it.
type ThreadLocks = HashMap<(TenantId, ThreadId), Weak<tokio::sync::Mutex<()>>>;

/// What holding an answer against a schema takes of the turn for it.
pub(super) const HEAVY: Room = Room { count: 1, memory_bytes: 0 };

/// What all tenants and threads of a process share.
pub struct Shared {
    pub store: Option<Store>,
    pub sandbox: Sandbox,
    pub handlers: Handlers,
    /// Of a tenant that has none of its own.
    pub limits: Arc<Limits>,
    tenants: RwLock<HashMap<TenantId, Arc<Limits>>>,
    pub used: Used,
    pub clock: Clock,
    pub settings: Settings,
    pub owner: OwnerId,
    watcher: Option<Watcher>,
    stop: tokio::sync::watch::Sender<bool>,
    called_off: tokio::sync::broadcast::Sender<(TenantId, ThreadId)>,
    threads: Mutex<ThreadLocks>,
    waiting: mpsc::UnboundedSender<Waiting>,
    /// By tenant too: a digest that somebody knows gives them nothing.
    graphs: Mutex<HashMap<(TenantId, Digest), Arc<CompiledGraph>>>,
    /// Who may hold an answer against a schema that takes long: one at a time, and tenants take turns.
    pub heavy: Places,
    infos: Mutex<HashMap<(TenantId, Digest), NodeInfo>>,
}

/// Sets a host up.
pub struct HostBuilder {
    db: Option<PathBuf>,
    cache: Option<PathBuf>,
    compiler: Compiler,
    limits: Limits,
    tenants: HashMap<TenantId, Arc<Limits>>,
    clock: Clock,
    settings: Settings,
    egress: Egress,
    secrets: Secrets,
    handlers: BTreeMap<String, Handler>,
    watcher: Option<Watcher>,
}

/// See [`Host::parts`].
#[derive(Default)]
pub(super) struct Parts {
    pub components: BTreeMap<String, (Digest, NodeInfo)>,
    pub subgraphs: BTreeMap<String, (Digest, Arc<CompiledGraph>)>,
    /// What is withheld below.
    pub withheld: Vec<String>,
}

/// An installed component.
#[derive(Clone, Debug)]
pub struct Installed {
    pub digest: Digest,
    pub info: NodeInfo,
    pub bytes: usize,
}

impl HostBuilder {
    /// The SQLite file; it is made if it is not there. Without one nothing is durable.
    pub fn database(mut self, path: impl Into<PathBuf>) -> Self {
        self.db = Some(path.into());
        self
    }

    /// The folder for compiled components, this host's own. Default: beside the database.
    pub fn cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache = Some(path.into());
        self
    }

    /// Where components are compiled. Default: in this process, where a compilation can be neither stopped
    /// nor held to an amount of memory. [`Compiler::Process`] is for whoever takes strangers' components.
    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = compiler;
        self
    }

    /// What every tenant is held to that has no limits of its own, and all of them together.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What one tenant is held to, in place of the rest's; more or less. Its `tasks_at_once` is its own; what
    /// holds for all tenants together is said by [`HostBuilder::limits`].
    pub fn limits_for(mut self, tenant: TenantId, limits: Limits) -> Self {
        self.tenants.insert(tenant, Arc::new(limits));
        self
    }

    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Settings { lease_ms: settings.lease_ms.min(LEASE_MS_MAX), ..settings };
        self
    }

    /// Opens an address for HTTP effects that is not public: `host` or `host:port`, as in the URL.
    pub fn egress(mut self, address: impl Into<String>) -> Self {
        self.egress.allow.push(address.into());
        self
    }

    /// Gives a tenant a secret for one host: `host`, for https on its usual port, or `host:port`, as in the
    /// URL. A graph's HTTP effect names it (`auth = { secret = "NAME" }`); it is sent to that host, and seen by
    /// nobody else. A name that is given again takes the later value.
    pub fn secret(
        mut self,
        tenant: TenantId,
        name: impl Into<String>,
        host: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.secrets.insert(tenant, name.into(), host.into(), value.into());
        self
    }

    /// What carries out the effect of this name, where the graph gives it no `http`.
    pub fn effect<F, Fut>(mut self, name: &str, handler: F) -> Self
    where
        F: Fn(EffectRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, EffectFailure>> + Send + 'static,
    {
        self.handlers.insert(name.to_owned(), effects::handler(handler));
        self
    }

    /// Is shown what goes on while runs go on.
    pub fn watcher(mut self, watcher: Watcher) -> Self {
        self.watcher = Some(watcher);
        self
    }

    pub async fn open(self) -> Result<Host, EngineError> {
        self.secrets.check().map_err(|what| Refused::plain(Kind::Invalid, what))?;
        let store = match &self.db {
            Some(path) => Some(Store::open(path).await?),
            None => None,
        };
        let beside = || {
            let mut name = self.db.as_ref()?.as_os_str().to_owned();
            name.push("-components");
            Some(PathBuf::from(name))
        };
        let cache_dir = self.cache.clone().or_else(beside);
        let sandbox =
            Sandbox::new(SandboxOptions { cache_dir, compiler: self.compiler, limits: self.limits.clone() })?;
        let handlers = Handlers::new(self.handlers, self.egress, self.secrets);
        let (waiting, words) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            store,
            sandbox,
            handlers,
            limits: Arc::new(self.limits),
            tenants: RwLock::new(self.tenants),
            used: Used::default(),
            clock: self.clock,
            settings: self.settings,
            owner: OwnerId(uuid::Uuid::now_v7().as_u128()),
            watcher: self.watcher,
            stop: tokio::sync::watch::Sender::new(false),
            called_off: tokio::sync::broadcast::Sender::new(64),
            threads: Mutex::default(),
            waiting,
            graphs: Mutex::default(),
            heavy: Places::new(HEAVY, Room { count: 0, memory_bytes: 0 }),
            infos: Mutex::default(),
        });
        tokio::spawn(queue::worker(words, Arc::downgrade(&shared)));
        Ok(Host::of(shared, TenantId::default()))
    }
}

impl Host {
    pub fn builder() -> HostBuilder {
        HostBuilder {
            db: None,
            cache: None,
            compiler: Compiler::default(),
            limits: Limits::default(),
            tenants: HashMap::new(),
            clock: Clock::default(),
            settings: Settings::default(),
            egress: Egress::default(),
            secrets: Secrets::default(),
            handlers: BTreeMap::new(),
            watcher: None,
        }
    }

    /// Opens the database at `path`, making it if it is not there, with everything else by default.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, EngineError> {
        Self::builder().database(path.as_ref()).open().await
    }

    pub(super) fn of(shared: Arc<Shared>, tenant: TenantId) -> Self {
        let limits = {
            let tenants = shared.tenants.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            tenants.get(&tenant).unwrap_or(&shared.limits).clone()
        };
        Self { shared, tenant, limits, call: None }
    }

    /// The same host, for a call that was written down (`store::InvocationRow`): nothing that it makes durable
    /// becomes true once the call is over, by whomever it was ended.
    pub fn for_call(self, invocation: Uuid, end: CallEnd) -> Self {
        Self { call: Some(ForCall { invocation, end }), ..self }
    }

    /// The same host for another tenant, whose components, graphs and threads are its own.
    pub fn for_tenant(&self, tenant: TenantId) -> Self {
        Self::of(self.shared.clone(), tenant)
    }

    /// What a tenant is held to from now on: see [`HostBuilder::limits_for`]. Hosts for it that there are already
    /// keep to what they were made with.
    pub fn set_limits(&self, tenant: TenantId, limits: Limits) {
        let mut tenants = self.shared.tenants.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        tenants.insert(tenant, Arc::new(limits));
    }

    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// A graph that was compiled before, by its digest.
    pub async fn kept_graph(&self, digest: Digest) -> Result<Graph, EngineError> {
        let compiled = self.shared.graph(&self.tenant, digest).await?;
        Ok(Graph { host: self.clone(), compiled, withheld: Vec::new() })
    }

    /// Checks and keeps a component; the same bytes again change nothing.
    pub async fn install(&self, name: &str, bytes: Vec<u8>) -> Result<Installed, EngineError> {
        let digest = Digest::of(&bytes);
        let shared = &self.shared;
        if let Some(store) = &shared.store
            && let Some(known) = store.component_info(&self.tenant, digest).await?
        {
            return Ok(Installed { digest, info: known.info, bytes: bytes.len() });
        }
        if shared.store.is_none()
            && let Some(info) = locked(&shared.infos).get(&(self.tenant.clone(), digest))
        {
            return Ok(Installed { digest, info: info.clone(), bytes: bytes.len() });
        }
        let invalid = |source| EngineError::Component { name: name.to_owned(), source };
        // Also what only the compiler, or the component itself, shows is said with the component's name.
        let named = |error| match error {
            SandboxError::Invalid(source) => invalid(source),
            error => error.into(),
        };
        shared.sandbox.check(&bytes, &self.limits).map_err(invalid)?;
        let size = bytes.len();
        self.room_for_bytes(size as u64).await?;
        let component = match shared.sandbox.cached(digest).await {
            Some(component) => component,
            None => {
                shared.watch(Watched::Compiling { name, bytes: size });
                let whose = (&self.tenant, &*self.limits);
                shared.sandbox.compile(whose, digest, bytes.clone()).await.map_err(named)?
            }
        };
        let info = shared.sandbox.describe((&self.tenant, &self.limits), &component).await.map_err(named)?;
        if let Some(store) = &shared.store {
            store.put_component(&self.tenant, digest, bytes, &info, shared.clock.now()).await?;
            shared.used.stored(&self.tenant, &self.limits, size as u64);
        }
        locked(&shared.infos).insert((self.tenant.clone(), digest), info.clone());
        Ok(Installed { digest, info, bytes: size })
    }

    /// Checks a graph, installs its components and compiles its subgraphs, and pins it to them.
    pub async fn compile(&self, spec: &GraphSpec) -> Result<Graph, EngineError> {
        self.compile_below(spec, 0).await
    }

    fn compile_below<'a>(
        &'a self,
        spec: &'a GraphSpec,
        depth: u32,
    ) -> BoxFuture<'a, Result<Graph, EngineError>> {
        Box::pin(self.compile_at(spec, depth))
    }

    async fn compile_at(&self, spec: &GraphSpec, depth: u32) -> Result<Graph, EngineError> {
        let Parts { components, subgraphs, withheld: below } = self.parts(spec, depth).await?;
        let compiled = CompiledGraph::compile(spec, &components, &subgraphs)?;
        self.shared.can_send(&self.tenant, &compiled)?;
        self.grants(&compiled)?;
        let mut withheld = withheld(&compiled, &components);
        withheld.extend(below);
        if let Some(store) = &self.shared.store {
            store.put_graph(&self.tenant, &compiled, self.shared.clock.now()).await?;
        }
        let compiled = self.shared.keep_graph(&self.tenant, compiled.digest(), compiled);
        Ok(Graph { host: self.clone(), compiled, withheld })
    }

    /// What a graph is made of: its components, installed, and its subgraphs, compiled.
    pub(super) async fn parts(&self, spec: &GraphSpec, depth: u32) -> Result<Parts, EngineError> {
        let mut parts = Parts::default();
        for (name, node) in &spec.nodes {
            if let Some(component) = &node.component {
                let installed =
                    self.resolve(name, component).await.map_err(|error| error.at(&spec.name, name))?;
                parts.components.insert(name.clone(), installed);
            }
            if let Some(graph) = &node.graph {
                let graph = self.subgraph(&spec.name, name, graph, depth).await?;
                parts.withheld.extend(graph.withheld.iter().map(|what| format!("nodes.{name}: {what}")));
                parts.subgraphs.insert(name.clone(), (graph.digest(), graph.compiled));
            }
        }
        Ok(parts)
    }

    /// The graph of a subgraph node: from its file, or one that is kept.
    async fn subgraph(&self, of: &str, node: &str, graph: &str, depth: u32) -> Result<Graph, EngineError> {
        let at = format!("nodes.{node}.graph");
        if graph.starts_with("sha256:") {
            let invalid = |error| Refused::plain(Kind::Invalid, format!("{at}: {error}"));
            let digest: Digest = graph.parse().map_err(invalid)?;
            let compiled = self.shared.graph(&self.tenant, digest).await?;
            return Ok(Graph { host: self.clone(), compiled, withheld: Vec::new() });
        }
        let limit = self.limits.subgraph_depth;
        if depth >= limit {
            let what = format!(
                "{graph} would be a subgraph {limit} levels deep; {limit} are the most (subgraph_depth); does a \
                 graph contain itself?"
            );
            return Err(CompileError { graph: of.to_owned(), at, what }.into());
        }
        let path = PathBuf::from(graph);
        let read = tokio::task::spawn_blocking(move || GraphSpec::from_file(&path)).await;
        let spec = match read {
            Ok(read) => read.map_err(|error| EngineError::from(error).at(of, node))?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.compile_below(&spec, depth + 1).await
    }

    pub(super) async fn resolve(
        &self,
        node: &str,
        component: &str,
    ) -> Result<(Digest, NodeInfo), EngineError> {
        if component.starts_with("sha256:") {
            let digest: Digest = component
                .parse()
                .map_err(|error| Refused::plain(Kind::Invalid, format!("nodes.{node}.component: {error}")))?;
            let info = match &self.shared.store {
                Some(store) => store.component_info(&self.tenant, digest).await?.map(|row| row.info),
                None => locked(&self.shared.infos).get(&(self.tenant.clone(), digest)).cloned(),
            };
            let info = info.ok_or_else(|| {
                let what = format!("nodes.{node}.component: {digest} is not installed");
                Refused::of(ErrorRecord::new(Kind::NotFound, what).way_out(WayOut::Install))
            })?;
            return Ok((digest, info));
        }
        let limit = self.limits.component_bytes;
        let path = PathBuf::from(component);
        // A file system may take its time, and others share this thread.
        let read = tokio::task::spawn_blocking(move || super::graph_file::read_component(&path, limit)).await;
        let read = read.map_err(|error| EngineError::ComponentFile {
            path: component.to_owned(),
            source: std::io::Error::other(error),
        })?;
        let installed = self.install(component, read?).await?;
        Ok((installed.digest, installed.info))
    }

    /// The store, where there is one.
    pub fn store(&self) -> Option<&Store> {
        self.shared.store.as_ref()
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.shared.sandbox
    }

    /// What its tenant is held to.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A graph can lower what its tenant has, and not raise it.
    fn grants(&self, graph: &CompiledGraph) -> Result<(), EngineError> {
        let over = |node: &CompiledNode| node.limits.over(&self.limits);
        let Some((node, (name, own, limit))) =
            graph.nodes.iter().find_map(|(id, node)| Some((id, over(node)?)))
        else {
            return Ok(());
        };
        let what = format!(
            "nodes.{node}.limits.{name}: {own} is more than the {limit} that this tenant has ({name}); a graph \
             can only lower it"
        );
        Err(Refused::of(ErrorRecord::limit(name, limit, what).with("node", node.as_str())).into())
    }

    /// Ends all invocations of this host at their next await; each is durable as far as it got, and can be
    /// continued.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Waits for what was promised, what waits on threads that became free included, and closes the database.
    pub async fn close(self) {
        let (done, idle) = oneshot::channel();
        self.shared.waiting(Waiting::Idle(done));
        idle.await.ok();
        if let Some(store) = self.shared.store.clone() {
            store.close().await;
        }
    }
}

fn withheld(graph: &CompiledGraph, components: &BTreeMap<String, (Digest, NodeInfo)>) -> Vec<String> {
    let mut withheld = Vec::new();
    for (id, node) in &graph.nodes {
        let Some((_, info)) = components.get(id.as_str()) else { continue };
        let reads = info.reads.iter().filter(|name| !node.reads.contains_key(*name));
        let writes = info.writes.iter().filter(|name| !node.writes.contains_key(*name));
        let routes = info.routes.iter().filter(|name| !node.routes.contains_key(*name));
        let effects = info.effects.iter().filter(|name| !node.effects.contains_key(*name));
        let all = reads
            .map(|name| ("reads", name, "it finds nothing there"))
            .chain(writes.map(|name| ("writes", name, "writing it fails the node")))
            .chain(routes.map(|name| ("routes", name, "taking it fails the node")))
            .chain(effects.map(|name| ("effects", name, "asking for it fails the node")));
        withheld.extend(all.map(|(what, name, then)| {
            format!("nodes.{id}.{what}: {} declares {name:?}, which is not granted: {then}", info.name)
        }));
    }
    withheld
}

impl Shared {
    pub fn watch(&self, watched: Watched<'_>) {
        if let Some(watcher) = &self.watcher {
            watcher(&watched);
        }
    }

    /// Ends when the host is told to stop.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move {
            // The sender lives as long as the host, and so as long as anybody waits here.
            if stop.wait_for(|stop| *stop).await.is_err() {
                std::future::pending().await
            }
        }
    }

    pub fn waiting(&self, word: Waiting) {
        // The worker lives as long as this does.
        self.waiting.send(word).ok();
    }

    /// Tells an invocation of this process that its thread is no longer its own.
    pub fn called_off(&self, tenant: &TenantId, thread: &ThreadId) {
        // Nobody may be listening.
        self.called_off.send((tenant.clone(), thread.clone())).ok();
    }

    /// Ends when this thread's run is called off in this process, or might have been.
    pub fn when_called_off(
        &self,
        tenant: &TenantId,
        thread: Option<&ThreadId>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut heard = self.called_off.subscribe();
        let of = thread.map(|thread| (tenant.clone(), thread.clone()));
        async move {
            let Some(of) = of else { return std::future::pending().await };
            while heard.recv().await.is_ok_and(|which| which != of) {}
        }
    }

    /// The lock that keeps a thread to one invocation at a time within this process.
    pub fn thread_lock(&self, tenant: &TenantId, thread: &ThreadId) -> Arc<tokio::sync::Mutex<()>> {
        let mut threads = locked(&self.threads);
        if threads.len() >= 1024 && threads.len().is_power_of_two() {
            threads.retain(|_, lock| lock.strong_count() > 0);
        }
        let place = threads.entry((tenant.clone(), thread.clone())).or_default();
        place.upgrade().unwrap_or_else(|| {
            let lock = Arc::default();
            *place = Arc::downgrade(&lock);
            lock
        })
    }

    /// Whether this host could send what the graph's nodes may ask for: found now rather than in the
    /// middle of a run, and before an answer is used up. Every graph that is kept has passed.
    fn can_send(&self, tenant: &TenantId, graph: &CompiledGraph) -> Result<(), EngineError> {
        let granted: BTreeSet<_> = graph.nodes.values().flat_map(|node| node.effects.values()).collect();
        for name in granted {
            let sendable = self.handlers.can_send(tenant, name.as_str(), &graph.effects[name]);
            sendable.map_err(|unsent| {
                let mut error = ErrorRecord::new(Kind::Denied, format!("effect {name}: {unsent}"));
                error.ways_out.extend(unsent.way_out());
                Refused::of(error)
            })?;
        }
        Ok(())
    }

    fn keep_graph(&self, tenant: &TenantId, digest: Digest, graph: CompiledGraph) -> Arc<CompiledGraph> {
        let mut graphs = locked(&self.graphs);
        if graphs.len() >= 1024 {
            graphs.clear();
        }
        graphs.entry((tenant.clone(), digest)).or_insert_with(|| Arc::new(graph)).clone()
    }

    /// A graph that a run is pinned to. What is below it is looked at as well: a run would come to it only
    /// after its answers are used up.
    pub fn graph<'a>(
        &'a self,
        tenant: &'a TenantId,
        digest: Digest,
    ) -> BoxFuture<'a, Result<Arc<CompiledGraph>, EngineError>> {
        Box::pin(self.graph_of(tenant, digest))
    }

    async fn graph_of(&self, tenant: &TenantId, digest: Digest) -> Result<Arc<CompiledGraph>, EngineError> {
        if let Some(graph) = locked(&self.graphs).get(&(tenant.clone(), digest)) {
            return Ok(graph.clone());
        }
        let missing =
            || Refused::plain(Kind::NotFound, format!("the graph {digest} is not in this database"));
        let store = self.store.as_ref().ok_or_else(missing)?;
        let graph = store.graph(tenant, digest).await?.ok_or_else(missing)?;
        self.can_send(tenant, &graph)?;
        for node in graph.nodes.values() {
            if let Work::Subgraph { graph: below, .. } = &node.work {
                self.graph(tenant, *below).await?;
            }
        }
        Ok(self.keep_graph(tenant, digest, graph))
    }

    /// A component that a run is pinned to, ready to be instantiated.
    pub async fn component(
        &self,
        (tenant, limits): (&TenantId, &Limits),
        digest: Digest,
        name: &str,
    ) -> Result<Component, EngineError> {
        if let Some(component) = self.sandbox.cached(digest).await {
            return Ok(component);
        }
        let missing =
            || Refused::plain(Kind::NotFound, format!("the component {digest} is not in this database"));
        let store = self.store.as_ref().ok_or_else(missing)?;
        let bytes = store.component(tenant, digest).await?.ok_or_else(missing)?;
        self.watch(Watched::Compiling { name, bytes: bytes.len() });
        Ok(self.sandbox.compile((tenant, limits), digest, bytes).await?)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing is left half done while one of these is held.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
