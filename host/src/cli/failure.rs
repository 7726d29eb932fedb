//! Why a command did not do what was asked, and the exit status that says so.

use super::build::BuildError;
use super::document::Exit;
use super::service::ServiceError;
use super::way_out;
use crate::engine::EngineError;
use crate::model::{ErrorRecord, Kind};
use crate::sandbox::SandboxError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{}", way_out::said(.0))]
    Engine(#[from] EngineError),
    /// An argument, or what it names, is not what it must be.
    #[error("{}", .0.message)]
    Argument(ErrorRecord),
    /// What is asked about is not there.
    #[error("{0}")]
    NotThere(String),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Told to stop, with no run to go on with.
    #[error("{0}")]
    Stopped(&'static str),
    /// The machine lacks something, or the demo's claims do not hold.
    #[error("{0}")]
    Host(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl Failure {
    pub fn argument(message: impl Into<String>) -> Self {
        Self::Argument(ErrorRecord::new(Kind::Invalid, message))
    }

    pub fn exit(&self) -> Exit {
        match self {
            Self::Engine(error) => of_engine(error),
            Self::Argument(_) => Exit::Usage,
            Self::NotThere(_) => Exit::Refused,
            Self::Build(error) if error.is_misuse() => Exit::Usage,
            Self::Build(_) => Exit::Failed,
            Self::Service(error) => error.exit(),
            Self::Stopped(_) => Exit::Stopped,
            Self::Host(_) => Exit::Failed,
        }
    }

    pub fn record(&self) -> ErrorRecord {
        let kind = match self {
            Self::Engine(EngineError::Sandbox(SandboxError::Invalid(_))) => Kind::Invalid,
            Self::Engine(error) => return way_out::told(error.record()),
            Self::Argument(error) => return error.clone(),
            Self::Service(error) => return error.record(),
            Self::Build(_) => Kind::Invalid,
            Self::NotThere(_) => Kind::NotFound,
            Self::Stopped(_) => Kind::Busy,
            Self::Host(_) => Kind::Store,
        };
        ErrorRecord::new(kind, self.to_string())
    }
}

/// 2: what was given is no graph, no component, no input. 4: it may be right, and does not fit how things
/// stand. 1: the host could not do its job.
fn of_engine(error: &EngineError) -> Exit {
    match error {
        EngineError::Refused(refused) => match refused.error.kind {
            Kind::Invalid | Kind::Limit => Exit::Usage,
            Kind::Store => Exit::Failed,
            _ => Exit::Refused,
        },
        EngineError::GraphFile(_)
        | EngineError::Graph(_)
        | EngineError::Component { .. }
        | EngineError::ComponentFile { .. }
        | EngineError::Sandbox(SandboxError::Invalid(_)) => Exit::Usage,
        EngineError::Stopped => Exit::Stopped,
        EngineError::Store(_)
        | EngineError::Sandbox(_)
        | EngineError::HandlerPanicked { .. }
        | EngineError::Attempt { .. } => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GraphSpec, Refused};
    use crate::sandbox::InvalidComponent;
    use std::path::Path;

    #[test]
    fn the_exit_status_says_who_can_act() {
        let refused = |kind| Failure::from(EngineError::from(Refused::plain(kind, "")));
        let closed = || StoreError::Closed { file: "a.db".into() };
        let no_component = |source| EngineError::Component { name: "n".into(), source };
        let no_graph = GraphSpec::from_file(Path::new("/nowhere/graph.toml")).unwrap_err();
        for (failure, exit, kind) in [
            (refused(Kind::Stale), Exit::Refused, Kind::Stale),
            (refused(Kind::Ambiguous), Exit::Refused, Kind::Ambiguous),
            (refused(Kind::NotPending), Exit::Refused, Kind::NotPending),
            (refused(Kind::Schema), Exit::Refused, Kind::Schema),
            (refused(Kind::Busy), Exit::Refused, Kind::Busy),
            (refused(Kind::NotFound), Exit::Refused, Kind::NotFound),
            (refused(Kind::Denied), Exit::Refused, Kind::Denied),
            (refused(Kind::Invalid), Exit::Usage, Kind::Invalid),
            (EngineError::from(no_graph).into(), Exit::Usage, Kind::NotFound),
            (no_component(InvalidComponent::CoreModule).into(), Exit::Usage, Kind::Invalid),
            (
                EngineError::from(SandboxError::Invalid(InvalidComponent::CoreModule)).into(),
                Exit::Usage,
                Kind::Invalid,
            ),
            (closed().into(), Exit::Failed, Kind::Store),
            (EngineError::Stopped.into(), Exit::Stopped, Kind::Busy),
            (Failure::argument(""), Exit::Usage, Kind::Invalid),
            (Failure::NotThere(String::new()), Exit::Refused, Kind::NotFound),
        ] {
            assert_eq!((failure.exit(), failure.record().kind), (exit, kind), "{failure:?}");
        }
    }
}
