//! The vocabulary: names, graphs, channels, questions, commands, what is durable, limits. Pure; no IO.

pub mod ids;
pub mod json;
pub mod channel;
pub mod graph;
pub mod compile;
pub mod grants;
pub mod interrupt;
pub mod schema;
mod schema_steps;
mod schema_words;
pub mod sample;
pub mod command;
pub mod execution;
pub mod journal;
pub mod checkpoint;
pub mod limits;
pub mod error;
pub mod way_out;

pub use channel::Reducer;
pub use command::{Command, IfBusy, PendingChildren, Resume, ResumeTarget, RunConfig};
pub use compile::{CompileError, CompiledGraph, NodeInfo};
pub use error::{ErrorRecord, Kind, Refused};
pub use execution::{Execution, RunStatus};
pub use graph::{
    AuthSpec, EdgeSpec, EffectMode, EffectSpec, GraphSpec, HttpSpec, Names, NodeSpec, OneOrMany, RetrySpec,
};
pub use ids::{
    ChannelName, CheckpointId, Digest, EffectName, InterruptId, NodeId, RunId, TaskId, TenantId, ThreadId,
    Timestamp,
};
pub use interrupt::{Interrupt, InterruptKind, PendingInterrupt, Question};
pub use json::{Json, JsonBounds, JsonError};
pub use limits::{Limits, NodeLimits};
pub use way_out::WayOut;
