//! Components: compiled once, kept in memory and on disk, ready to be instantiated.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use wasmtime::Engine;
use wasmtime::component::Linker;

use super::artifacts::Artifacts;
use super::bindings::NodePre;
use super::check::check;
use super::cost;
use super::errors::{InvalidComponent, SandboxError};
use super::guest::{self, Guest};
use crate::model::ids::Digest;
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
    bytes_max: u64,
    kept: Mutex<Kept>,
    /// Whoever holds a digest's lock compiles or loads it; the others wait and find it in `kept`.
    turns: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
    slots: Arc<Semaphore>,
    compiles: AtomicU64,
    artifact_loads: AtomicU64,
}

#[derive(Default)]
struct Kept {
    components: HashMap<Digest, (Component, u64)>,
    uses: u64,
}

impl Components {
    pub fn new(engine: Engine, artifacts: Option<Artifacts>, limits: &Limits) -> Result<Self, SandboxError> {
        let mut linker = Linker::new(&engine);
        guest::link(&mut linker).map_err(|error| SandboxError::Engine { what: error.to_string() })?;
        Ok(Self(Arc::new(Shared {
            engine,
            linker,
            artifacts,
            bytes_max: limits.component_bytes,
            kept: Mutex::default(),
            turns: Mutex::default(),
            slots: Arc::new(Semaphore::new(limits.compiles_at_once.max(1) as usize)),
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

    pub async fn compile(&self, digest: Digest, bytes: Vec<u8>) -> Result<Component, SandboxError> {
        if let Some(component) = self.0.kept().get(digest) {
            return Ok(component);
        }
        let turn = self.turn(digest).await;
        let slots = Arc::clone(&self.0.slots);
        let Ok(slot) = slots.acquire_owned().await else {
            return Err(SandboxError::Compile { what: "the sandbox is closed".into() });
        };
        let shared = Arc::clone(&self.0);
        let compiled = tokio::task::spawn_blocking(move || {
            // Held here and not by the caller: a compilation goes on when its caller has gone.
            let (_turn, _slot) = (turn, slot);
            shared.compile(digest, &bytes)
        });
        match compiled.await {
            Ok(compiled) => compiled,
            Err(panic) => {
                tracing::error!(%digest, %panic, "the compiler panicked");
                Err(SandboxError::Compile { what: "the compiler gave up on it".into() })
            }
        }
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

    fn compile(&self, digest: Digest, bytes: &[u8]) -> Result<Component, SandboxError> {
        let actual = Digest::of(bytes);
        if actual != digest {
            return Err(SandboxError::WrongDigest { expected: digest, actual });
        }
        if let Some(component) = self.find(digest) {
            return Ok(component);
        }
        check(bytes, self.bytes_max)?;
        cost::check(bytes)?;
        self.compiles.fetch_add(1, Ordering::Relaxed);
        let compiled = wasmtime::component::Component::from_binary(&self.engine, bytes)
            .map_err(|error| InvalidComponent::Malformed { what: chain(&error) })?;
        let component = self.prepare(digest, &compiled)?;
        if let Some(artifacts) = &self.artifacts {
            artifacts.store(digest, &compiled);
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

/// With its causes, for whoever installs; no guest sees it.
fn chain(error: &wasmtime::Error) -> String {
    let mut text = format!("{error:#}");
    if text.len() > 1_000 {
        text.truncate(text.floor_char_boundary(1_000));
        text.push('…');
    }
    text
}
