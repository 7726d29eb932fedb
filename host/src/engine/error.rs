//! Why an invocation ended without an execution.

use super::graph_file::GraphFileError;
use crate::model::compile::CompileError;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::ids::NodeId;
use crate::sandbox::{InvalidComponent, SandboxError};
use crate::store::StoreError;

/// A caller's mistake is [`EngineError::Refused`], `Graph…` or `Component`; the rest is the host's.
/// What a node did wrong is neither: it is recorded in the execution.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Refused(Box<Refused>),
    #[error("{0}")]
    GraphFile(#[from] GraphFileError),
    #[error("{0}")]
    Graph(#[from] CompileError),
    #[error("component {name}: {source}")]
    Component { name: String, source: InvalidComponent },
    #[error("component {path}: cannot read it: {source}")]
    ComponentFile { path: String, source: std::io::Error },
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Sandbox(#[from] SandboxError),
    /// An effect's handler panicked. What was durable stays; the run can be continued.
    #[error("the handler of effect {effect} panicked; the run can be continued once that is mended")]
    HandlerPanicked { effect: String },
    /// The host itself failed while it ran a node; its log says more. The run can be continued.
    #[error("the host failed while it ran node {node}; its log says why; the run can be continued")]
    Attempt { node: NodeId },
    /// The host was told to stop. What was done so far is durable; the run can be continued.
    #[error("stopped; the run can be continued")]
    Stopped,
}

impl EngineError {
    /// Of what a node of a graph names: says which node, and of which graph.
    pub fn at(self, graph: &str, node: &str) -> Self {
        let placed = |what: String| format!("{what} (node {node} of the graph {graph})");
        match self {
            Self::Component { name, source } => Self::Component { name: placed(name), source },
            Self::ComponentFile { path, source } => Self::ComponentFile { path: placed(path), source },
            Self::GraphFile(GraphFileError::Read { path, source }) => {
                GraphFileError::Read { path: placed(path), source }.into()
            }
            Self::GraphFile(GraphFileError::Parse { path, message }) => {
                GraphFileError::Parse { path: placed(path), message }.into()
            }
            Self::GraphFile(GraphFileError::TooLarge { path, limit, value }) => {
                GraphFileError::TooLarge { path: placed(path), limit, value }.into()
            }
            other => other,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Refused(refused) => refused.error.kind,
            Self::GraphFile(GraphFileError::Read { source, .. }) | Self::ComponentFile { source, .. }
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Kind::NotFound
            }
            Self::GraphFile(GraphFileError::TooLarge { .. }) => Kind::Limit,
            Self::GraphFile(_) | Self::ComponentFile { .. } | Self::Graph(_) => Kind::Invalid,
            Self::Component { source, .. } | Self::Sandbox(SandboxError::Invalid(source)) => {
                source.record().kind
            }
            Self::Store(_) | Self::Sandbox(_) | Self::HandlerPanicked { .. } | Self::Attempt { .. } => {
                Kind::Store
            }
            Self::Stopped => Kind::Busy,
        }
    }

    pub fn record(&self) -> ErrorRecord {
        match self {
            Self::Refused(refused) => refused.error.clone(),
            Self::Component { source, .. } | Self::Sandbox(SandboxError::Invalid(source)) => {
                ErrorRecord { message: self.to_string(), ..source.record() }
            }
            Self::GraphFile(GraphFileError::TooLarge { limit, .. }) => {
                ErrorRecord::limit("graph_bytes", *limit, self.to_string())
            }
            other => ErrorRecord::new(other.kind(), other.to_string()),
        }
    }
}

impl From<Refused> for EngineError {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}
