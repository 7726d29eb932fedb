//! All wasmtime. Never sees SQL.
//!
//! A component enters as bytes, is checked ([`Sandbox::check`]), compiled once ([`Sandbox::compile`])
//! and asked what it needs ([`Sandbox::describe`]). Every attempt runs in a fresh store and instance
//! ([`Sandbox::run`]), against a virtual world in which all that could differ between two attempts is
//! given by the [`Attempt`].

pub mod attempt;
mod errors;

mod check;
mod cost;
mod compiler;
mod compile_process;
mod components;
mod places;
mod cores;
mod bill;
mod run;
mod trap;

mod guest;
mod stop;
mod meter;
mod bindings;
mod interrupts;
mod effects;
mod steering;
mod log;
mod events;
mod console;
mod wasi;

mod engine;
mod seal;
mod artifacts;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::Engine;

use tracing::Instrument as _;

use crate::model::compile::NodeInfo;
use crate::model::ids::{Digest, TenantId};
use crate::model::limits::Limits;

pub use attempt::{Attempt, Context, End, LogLevel, Output, Outside, Performed, Ran, Route};
pub use compile_process::{COMPILE_ARGUMENT, compile_process};
pub use compiler::Compiler;
pub use components::Component;
pub use cost::Weight;
pub use errors::{InvalidComponent, SandboxError};

use artifacts::Artifacts;
use components::Components;
use cores::Cores;
use places::Place;
pub(crate) use places::{Places, Room};

/// Of all the room for attempts, one part in so many is for tenants that have none.
const KEPT: u32 = 8;

/// Runs nodes. Clones share everything.
#[derive(Clone)]
pub struct Sandbox(Arc<Shared>);

struct Shared {
    engine: Engine,
    components: Components,
    places: Places,
    cores: Cores,
    fingerprint: i64,
    instantiations: AtomicU64,
}

/// What a sandbox is set up with.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// Where compiled components are kept; `None`: in memory only.
    pub cache_dir: Option<PathBuf>,
    pub compiler: Compiler,
    /// Of these, `compiles_at_once`, `tasks_at_once` and `memory_bytes_at_once` hold for all tenants together.
    /// To the rest each tenant and attempt is held by its own.
    pub limits: Limits,
}

/// How much was done so far, since the sandbox was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub instantiations: u64,
    pub compiles: u64,
    /// Compiled components that were read from disk instead of compiled.
    pub artifact_loads: u64,
}

impl Sandbox {
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let SandboxOptions { cache_dir, compiler, limits } = options;
        let engine = engine::engine()?;
        let artifacts =
            cache_dir.map(|dir| Artifacts::open(dir, engine::compatibility(&engine))).transpose()?;
        let cores =
            Cores::start(&engine).map_err(|error| SandboxError::Engine { what: error.to_string() })?;
        let all = Room { count: limits.tasks_at_once, memory_bytes: limits.memory_bytes_at_once };
        let kept = Room { count: all.count / KEPT, memory_bytes: all.memory_bytes / u64::from(KEPT) };
        Ok(Self(Arc::new(Shared {
            components: Components::new(engine.clone(), artifacts, compiler, &limits)?,
            engine,
            places: Places::new(all, kept),
            cores,
            fingerprint: fingerprint(),
            instantiations: AtomicU64::new(0),
        })))
    }

    /// One short text, recorded with tasks: the determinism settings, which must not change under a
    /// paused task; then `"; "` and the engine's version, which may, since the replay judges it.
    pub fn settings(&self) -> String {
        engine::settings()
    }

    /// Of the determinism settings alone, as it is recorded with a task.
    pub fn fingerprint(&self) -> i64 {
        self.0.fingerprint
    }

    /// Whether `bytes` may be installed, as far as can be told without compiling them.
    pub fn check(&self, bytes: &[u8], limits: &Limits) -> Result<(), InvalidComponent> {
        check::check(bytes, limits.component_bytes)
    }

    /// What compiling `bytes` takes, estimated.
    pub fn weigh(&self, bytes: &[u8]) -> Result<Weight, InvalidComponent> {
        cost::weigh(bytes)
    }

    /// Whether a node may import an interface of this name.
    pub fn takes_import(&self, name: &str) -> bool {
        check::is_allowed(name)
    }

    /// The compiled component if it is in memory or, unharmed, on disk.
    pub async fn cached(&self, digest: Digest) -> Option<Component> {
        self.0.components.cached(digest).await
    }

    /// Compiles a component, or takes it from memory or disk. `digest` must be that of `bytes`; `whose`:
    /// the tenant, and what it is held to.
    pub async fn compile(
        &self,
        whose: (&TenantId, &Limits),
        digest: Digest,
        bytes: Vec<u8>,
    ) -> Result<Component, SandboxError> {
        self.0.components.compile(whose, digest, bytes).await
    }

    /// Asks a component what it needs. It may start its language's runtime, but nothing of the host
    /// answers it.
    pub async fn describe(
        &self,
        (tenant, limits): (&TenantId, &Limits),
        component: &Component,
    ) -> Result<NodeInfo, SandboxError> {
        let place = self.place(tenant, limits).await;
        let (engine, component, limits) = (self.0.engine.clone(), component.clone(), limits.clone());
        let described = self.0.cores.run(tenant, async move {
            let _place = place;
            run::describe(&engine, &component, &limits).await
        });
        described.await
    }

    /// One attempt, in a fresh instance. May be dropped at any time: the instance goes with it.
    ///
    /// Attempts for which there is no room (`tasks_at_once`, `memory_bytes_at_once`) wait here; an
    /// attempt's deadline starts when its wait is over.
    pub async fn run(&self, component: &Component, attempt: Attempt) -> Ran {
        let place = self.place(&attempt.tenant, &attempt.limits).await;
        let (engine, component) = (self.0.engine.clone(), component.clone());
        let ran = self.0.cores.run(
            &attempt.tenant.clone(),
            async move {
                // Free again when the instance is gone, also where nobody waits for it any more.
                let _place = place;
                run::run(&engine, &component, attempt).await
            }
            .in_current_span(),
        );
        ran.await
    }

    /// Room for one instance and all the memory that it may grow to: a growth that `memory_bytes` allows
    /// never fails for want of room.
    async fn place(&self, tenant: &TenantId, limits: &Limits) -> Place {
        let room = Room { count: 1, memory_bytes: limits.memory_bytes };
        let place = self.0.places.take(tenant, limits.tasks_at_once, room).await;
        self.0.instantiations.fetch_add(1, Ordering::Relaxed);
        place
    }

    pub fn counters(&self) -> Counters {
        Counters {
            instantiations: self.0.instantiations.load(Ordering::Relaxed),
            compiles: self.0.components.compiles(),
            artifact_loads: self.0.components.artifact_loads(),
        }
    }
}

fn fingerprint() -> i64 {
    let settings = engine::settings();
    let determinism = settings.split("; ").next().unwrap_or_default();
    let digest = Digest::of(determinism.as_bytes()).0;
    i64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

#[cfg(test)]
mod tests;
