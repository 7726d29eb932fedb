//! Components: compiled once, kept in memory and on disk, ready to be instantiated.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::Engine;
use wasmtime::component::Linker;

use super::artifacts::{self, Artifacts};
use super::bindings::NodePre;
use super::check::check;
use super::compiler::{self, Compiler};
use super::cost;
use super::engine;
use super::errors::{InvalidComponent, SandboxError, chain};
use super::guest::{self, Guest};
use super::places::{Place, Places, Room};
use crate::model::ids::{Digest, TenantId};
use crate::model::limits::Limits;

/// Kept in memory: the most recently used, up to this many …
const KEPT_MAX: usize = 256;
/// … and this much machine code.
const KEPT_BYTES_MAX: usize = 1 << 30;

/// A compiled component, ready to be instantiated. Clones share everything.
#[derive(Clone)]
pub struct Component(Arc<Prepared>);

struct Prepared {
    digest: Digest,
    pre: NodePre<Guest>,
    code_bytes: usize,
}

impl Component {
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    pub(super) fn pre(&self) -> &NodePre<Guest> {
        &self.0.pre
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Component({})", self.0.digest)
    }
}

#[derive(Clone)]
pub(super) struct Components(Arc<Shared>);

struct Shared {
    engine: Engine,
    linker: Linker<Guest>,
    artifacts: Option<Artifacts>,
    compiler: Compiler,
    kept: Mutex<Kept>,
    /// Whoever holds a digest's lock compiles or loads it; the others wait and find it in `kept`.
    turns: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
    places: Places,
    compiles: AtomicU64,
    artifact_loads: AtomicU64,
}

#[derive(Default)]
struct Kept {
    components: HashMap<Digest, (Component, u64)>,
    uses: u64,
}

impl Components {
    pub fn new(
        engine: Engine,
        artifacts: Option<Artifacts>,
        compiler: Compiler,
        limits: &Limits,
    ) -> Result<Self, SandboxError> {
        let mut linker = Linker::new(&engine);
        guest::link(&mut linker).map_err(|error| SandboxError::Engine { what: error.to_string() })?;
        Ok(Self(Arc::new(Shared {
            engine,
            linker,
            artifacts,
            compiler,
            kept: Mutex::default(),
            turns: Mutex::default(),
            // One of several is kept for whoever compiles nothing yet.
            places: Places::new(
                Room { count: limits.compiles_at_once, memory_bytes: 0 },
                Room { count: 1, memory_bytes: 0 },
            ),
            compiles: AtomicU64::new(0),
            artifact_loads: AtomicU64::new(0),
        })))
    }

    pub fn compiles(&self) -> u64 {
        self.0.compiles.load(Ordering::Relaxed)
    }

    pub fn artifact_loads(&self) -> u64 {
        self.0.artifact_loads.load(Ordering::Relaxed)
    }

    pub async fn cached(&self, digest: Digest) -> Option<Component> {
        if let Some(component) = self.0.kept().get(digest) {
            return Some(component);
        }
        self.0.artifacts.as_ref()?;
        let turn = self.turn(digest).await;
        let shared = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            shared.find(digest)
        })
        .await
        .ok()?
    }

    /// A compilation in a process of its own ends when its caller goes; one in this process goes on.
    pub async fn compile(
        &self,
        (tenant, limits): (&TenantId, &Limits),
        digest: Digest,
        bytes: Vec<u8>,
    ) -> Result<Component, SandboxError> {
        if let Some(component) = self.0.kept().get(digest) {
            return Ok(component);
        }
        // In this order: whoever has a component's turn is at it, and does not wait in its tenant's line.
        let place = self.0.place(tenant).await;
        let held = Held { _turn: self.turn(digest).await, _place: place };
        let (bytes, bytes_max) = (Arc::new(bytes), limits.component_bytes);
        let (shared, file) = (Arc::clone(&self.0), Arc::clone(&bytes));
        let (held, found) = blocking(held, move || shared.look(digest, &file, bytes_max)).await?;
        if let Some(component) = found {
            return Ok(component);
        }
        let shared = Arc::clone(&self.0);
        let (_held, component) = match &self.0.compiler {
            Compiler::InProcess => blocking(held, move || shared.compile(digest, &bytes)).await?,
            Compiler::Process { program } => {
                self.0.compiles.fetch_add(1, Ordering::Relaxed);
                let compatibility = engine::compatibility(&self.0.engine);
                let (seal, sealed) = compiler::compile(program, &bytes, compatibility, limits).await?;
                let other = SandboxError::Compiler {
                    program: program.clone(),
                    source: std::io::Error::other("it is no holdpoint of this very version"),
                };
                blocking(held, move || {
                    let compiled = artifacts::load(&shared.engine, &seal, digest, &sealed)
                        .ok_or(other)?
                        .map_err(|error| SandboxError::Compile { what: chain(&error) })?;
                    shared.take(digest, &compiled)
                })
                .await?
            }
        };
        Ok(component)
    }

    async fn turn(&self, digest: Digest) -> Turn {
        let lock = {
            let mut turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(digest).or_default())
        };
        // Made before the wait, so that one who stops waiting cleans up as well.
        let mut turn = Turn { shared: Arc::clone(&self.0), digest, guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }
}

/// What whoever compiles holds, to the end of its work also where its caller goes before.
struct Held {
    _turn: Turn,
    _place: Place,
}

/// Off the threads that serve others.
async fn blocking<T: Send + 'static>(
    held: Held,
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<(Held, T), SandboxError> {
    match tokio::task::spawn_blocking(move || work().map(|done| (held, done))).await {
        Ok(done) => done,
        Err(panic) => {
            tracing::error!(%panic, "the compiler panicked");
            Err(SandboxError::Compile { what: "the compiler gave up on it".into() })
        }
    }
}

/// A digest's lock, waited for and then held.
struct Turn {
    shared: Arc<Shared>,
    digest: Digest,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut turns = self.shared.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else waits for it: only the map still knows it.
        if turns.get(&self.digest).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            turns.remove(&self.digest);
        }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In memory, or on disk.
    fn find(&self, digest: Digest) -> Option<Component> {
        if let Some(component) = self.kept().get(digest) {
            return Some(component);
        }
        let loaded = self.artifacts.as_ref()?.load(&self.engine, digest)?;
        self.artifact_loads.fetch_add(1, Ordering::Relaxed);
        let component = self
            .prepare(digest, &loaded)
            .inspect_err(
                |error| tracing::warn!(%digest, %error, "a compiled component does not fit this host"),
            )
            .ok()?;
        Some(self.kept().keep(component))
    }

    async fn place(&self, tenant: &TenantId) -> Place {
        self.places.take(tenant, u32::MAX, Room { count: 1, memory_bytes: 0 }).await
    }

    /// What can be said before it is compiled; or that it is.
    fn look(&self, digest: Digest, bytes: &[u8], bytes_max: u64) -> Result<Option<Component>, SandboxError> {
        let actual = Digest::of(bytes);
        if actual != digest {
            return Err(SandboxError::WrongDigest { expected: digest, actual });
        }
        if let Some(component) = self.find(digest) {
            return Ok(Some(component));
        }
        check(bytes, bytes_max)?;
        cost::check(bytes)?;
        Ok(None)
    }

    fn compile(&self, digest: Digest, bytes: &[u8]) -> Result<Component, SandboxError> {
        self.compiles.fetch_add(1, Ordering::Relaxed);
        let compiled = wasmtime::component::Component::from_binary(&self.engine, bytes)
            .map_err(|error| InvalidComponent::Malformed { what: chain(&error) })?;
        self.take(digest, &compiled)
    }

    /// Keeps what was compiled.
    fn take(
        &self,
        digest: Digest,
        compiled: &wasmtime::component::Component,
    ) -> Result<Component, SandboxError> {
        let component = self.prepare(digest, compiled)?;
        if let Some(artifacts) = &self.artifacts {
            artifacts.store(digest, compiled);
        }
        Ok(self.kept().keep(component))
    }

    fn prepare(
        &self,
        digest: Digest,
        compiled: &wasmtime::component::Component,
    ) -> Result<Component, InvalidComponent> {
        let pre = self
            .linker
            .instantiate_pre(compiled)
            .and_then(NodePre::new)
            .map_err(|error| InvalidComponent::Contract { what: chain(&error) })?;
        let code = compiled.image_range();
        let code_bytes = code.end as usize - code.start as usize;
        Ok(Component(Arc::new(Prepared { digest, pre, code_bytes })))
    }
}

impl Kept {
    fn get(&mut self, digest: Digest) -> Option<Component> {
        self.uses += 1;
        let (component, used) = self.components.get_mut(&digest)?;
        *used = self.uses;
        Some(component.clone())
    }

    fn keep(&mut self, component: Component) -> Component {
        self.uses += 1;
        self.components.insert(component.digest(), (component.clone(), self.uses));
        let mut code_bytes: usize = self.components.values().map(|(kept, _)| kept.0.code_bytes).sum();
        while self.components.len() > 1 && (self.components.len() > KEPT_MAX || code_bytes > KEPT_BYTES_MAX) {
            let oldest = self.components.iter().min_by_key(|(_, (_, used))| *used);
            let Some((digest, bytes)) = oldest.map(|(digest, (kept, _))| (*digest, kept.0.code_bytes)) else {
                break;
            };
            self.components.remove(&digest);
            code_bytes -= bytes;
        }
        component
    }
}
