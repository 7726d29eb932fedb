//! What goes wrong, as a status and a body: `{"detail": …}` as the field's clients expect it, and beside
//! it what a program can act on. What is only the host's business goes to its log and not to the client.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::way_out;
use crate::engine::EngineError;
use crate::model::{ErrorRecord, Kind, Refused, ThreadId};
use crate::store::StoreError;

/// The limits of which there is too much, rather than of something that is too large.
const QUOTAS: [&str; 4] = ["fuel_per_minute", "threads", "components", "requests_per_minute"];

/// A refusal, or a failure of the host.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    body: Box<ProblemBody>,
    retry_after_s: Option<u64>,
}

/// The body of every answer that is no success.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// One sentence: what, which, the limit, the way out.
    pub detail: String,
    /// `kind`, `message` and the kind's particulars, for a program.
    #[schema(value_type = Object)]
    pub error: Value,
    /// The thread's latest run, where a thread is what it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    /// What waits for an answer on the thread now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Value>,
}

impl Problem {
    pub fn new(status: StatusCode, kind: Kind, detail: impl Into<String>) -> Self {
        Self::because(status, &ErrorRecord::new(kind, detail))
    }

    pub fn because(status: StatusCode, error: &ErrorRecord) -> Self {
        let detail = error.message.clone();
        let body = ProblemBody { detail, error: json!(error), ..ProblemBody::default() };
        Self { status, body: Box::new(body), retry_after_s: None }
    }

    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, Kind::NotFound, format!("there is no {what}"))
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, Kind::Invalid, detail)
    }

    /// Something is not as the request takes it to be.
    pub fn conflict(kind: Kind, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, kind, detail)
    }

    /// What is asked is for a thread that nobody runs.
    pub fn running(thread: &ThreadId) -> Self {
        Self::conflict(Kind::Busy, format!("thread {thread} is running; wait for its run, or cancel it"))
    }

    /// A name that is taken.
    pub fn exists(what: impl std::fmt::Display) -> Self {
        Self::conflict(Kind::Invalid, format!("there is {what} already"))
    }

    /// A bound that was met: `error.limit` and `error.value` name it, whatever the status.
    pub fn limit(status: StatusCode, limit: &str, value: u64, detail: impl Into<String>) -> Self {
        Self::because(status, &ErrorRecord::limit(limit, value, format!("{} ({limit})", detail.into())))
    }

    pub fn too_large(limit: &str, value: u64, detail: impl Into<String>) -> Self {
        Self::limit(StatusCode::PAYLOAD_TOO_LARGE, limit, value, detail)
    }

    /// As of a quota: of one caller there is too much.
    pub fn busy(error: ErrorRecord) -> Self {
        Self { retry_after_s: Some(1), ..Self::because(StatusCode::TOO_MANY_REQUESTS, &error) }
    }

    /// So many at once are there already.
    pub fn crowded(limit: &str, value: u64, detail: impl Into<String>) -> Self {
        let problem = Self::limit(StatusCode::SERVICE_UNAVAILABLE, limit, value, detail);
        Self { retry_after_s: Some(1), ..problem }
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Busy, detail);
        Self { retry_after_s: Some(1), ..problem }
    }

    /// The host's own failure: whoever runs it reads why in its log.
    fn failed(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "a request could not be carried out");
        let what = "the host could not do this; its log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Store, what)
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// As it stands in the body of an answer.
    pub fn text(&self) -> String {
        json!(self.body).to_string()
    }

    pub fn detail(&self) -> &str {
        &self.body.detail
    }

    fn record(error: &ErrorRecord) -> Self {
        let error = &way_out::told(error.clone());
        let status = match error.kind {
            Kind::NotFound | Kind::Pruned => StatusCode::NOT_FOUND,
            Kind::Busy
            | Kind::NotPending
            | Kind::Stale
            | Kind::Ambiguous
            | Kind::GateTakesNoValue
            | Kind::KeyConflict
            | Kind::Cancelled
            | Kind::EngineMismatch
            | Kind::InDoubt
            | Kind::Expired
            | Kind::Diverged
            | Kind::Resume => StatusCode::CONFLICT,
            Kind::Limit => match error.more.get("limit").and_then(Value::as_str) {
                Some(limit) if QUOTAS.contains(&limit) => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::PAYLOAD_TOO_LARGE,
            },
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::Schema | Kind::Invalid | Kind::Undeclared | Kind::Trap | Kind::NodeFailed => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Kind::Store => return Self::failed(error),
        };
        let mut problem = Self::because(status, error);
        if status == StatusCode::TOO_MANY_REQUESTS {
            let ms = error.more.get("retry_after_ms").and_then(Value::as_u64);
            problem.retry_after_s = Some(ms.map_or(60, |ms| ms.div_ceil(1000)).clamp(1, 3600));
        }
        problem
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let mut problem = Self::record(&refused.error);
        problem.body.run_id = refused.run_id.map(|id| id.to_string());
        problem.body.checkpoint_id = refused.checkpoint_id.map(|id| id.to_string());
        problem.body.pending = refused.run_id.map(|_| json!(refused.pending));
        problem
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(refused) => (*refused).into(),
            EngineError::Stopped => {
                Self::unavailable("the host is being stopped; what was accepted goes on after")
            }
            EngineError::Store(error) => error.into(),
            error => match error.kind() {
                Kind::Store => Self::failed(&error),
                _ => Self::record(&error.record()),
            },
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Locked { .. }
            | StoreError::Full { .. }
            | StoreError::Crowded { .. }
            | StoreError::Closed { .. } => {
                tracing::error!(%error, "the database cannot be used now");
                Self::unavailable("the host cannot write to its database now; its log says why")
            }
            error => Self::failed(&error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        response
    }
}
