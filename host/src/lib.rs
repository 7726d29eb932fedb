//! Holdpoint hosts graph nodes that it does not trust.
//!
//! A node is a WebAssembly component. When it needs a person it calls the import `interrupt`: the host
//! takes the question down, makes all that its answer needs durable, and throws the instance away. When
//! the answer comes, in this process or another, the node is run again from its beginning; what it did
//! before must happen again in the same way, the host checks that it does, and does no outside effect
//! twice.
//!
//! The layers, each of which may use only those above it:
//!
//! 1. [`model`]: the vocabulary; no IO.
//! 2. [`store`]: all SQL; never calls a guest.
//! 3. [`sandbox`]: all wasmtime; never sees SQL.
//! 4. [`engine`]: plan, run, commit.
//! 5. `server` and `cli`, for those who do not embed it.

pub mod model;
pub mod store;
pub mod sandbox;
pub mod engine;

pub use engine::{EffectFailure, EffectRequest, EngineError, Graph, Host, HostBuilder};
pub use model::{
    Command, Execution, GraphSpec, Interrupt, NodeSpec, PendingInterrupt, Reducer, Refused, ResumeTarget,
    RunConfig, RunStatus,
};
