//! Holdpoint hosts graph nodes that it does not trust.
//!
//! A node is a WebAssembly component. When it needs a person it calls the import `interrupt`: the host
//! takes the question down, makes all that its answer needs durable, and throws the instance away. When
//! the answer comes, in this process or another, the node is run again from its beginning; what it did
//! before must happen again in the same way, the host checks that it does, and does no outside effect
//! twice.
//!
//! # Embedding it
//!
//! ```
//! use holdpoint::{Command, GraphSpec, Host, NodeSpec, Reducer, ResumeTarget, RunConfig, RunStatus};
//! use serde_json::json;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let db = dir.path().join("desk.db");
//! // One SQLite file. Any process that opens it can answer what is pending in it.
//! let host = Host::open(&db).await?;
//!
//! // The same as a graph file. Compiling it checks all that can be checked before a run, and pins it.
//! let spec = GraphSpec::new("desk", "approve")
//!     .channel("labels", Reducer::Replace)
//!     .channel("draft", Reducer::Replace)
//!     .channel("decision", Reducer::Replace)
//!     .node(
//!         "approve",
//!         NodeSpec::component("../target/components/approve.wasm")
//!             .reads(&["labels", "draft"])
//!             .writes(&["decision"])
//!             .routes(&[("publish", "end"), ("done", "end")]),
//!     );
//! let graph = host.compile(&spec).await?;
//!
//! let input = json!({ "labels": ["bug"], "draft": "Thank you for the report." });
//! let paused = graph.invoke(RunConfig::thread("support-123"), input).await?;
//! // Handed out only after all that the resume needs is durable: the process may die here.
//! assert_eq!(paused.status, RunStatus::Interrupted);
//! assert_eq!(paused.interrupts[0].interrupt.payload["labels"], json!(["bug"]));
//!
//! let answer = Command::resume(json!({ "approved": true })).by("maria");
//! let done = graph.resume(RunConfig::thread("support-123"), answer).await?;
//! assert_eq!(done.status, RunStatus::Completed);
//! let state = graph.state(RunConfig::thread("support-123")).await?;
//! assert_eq!(state["decision"], json!({ "approved": true }));
//!
//! // A late answer is refused, and says how the thread stands.
//! let target = ResumeTarget::run(paused.run_id).interrupt(paused.interrupts[0].interrupt.id);
//! let late = graph.resume_targeted(target, Command::resume(json!({ "approved": false }))).await;
//! assert!(late.is_err());
//! # Ok(())
//! # }
//! ```
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
pub mod server;
pub mod cli;

pub use engine::{EffectFailure, EffectRequest, EngineError, Graph, Host, HostBuilder};
pub use model::{
    Command, Execution, GraphSpec, Interrupt, NodeSpec, PendingInterrupt, Reducer, Refused, ResumeTarget,
    RunConfig, RunStatus,
};
