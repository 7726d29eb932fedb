//! How a host function stops the guest: with an `Err` that nothing in the guest can catch.

use crate::model::error::{ErrorRecord, Kind};
use crate::model::journal::Divergence;
use crate::model::json::Json;
use crate::model::limits::Limits;

/// Why the guest goes no further. Found again in the error that the call into it ends with.
#[derive(Debug, thiserror::Error)]
#[error("the host stopped the node")]
pub(super) enum Stop {
    Paused,
    Diverged(Box<Divergence>),
    Failed { error: ErrorRecord, retryable: bool },
    Fault,
}

impl Stop {
    /// The node is at fault; another attempt would end in the same way.
    pub fn failed(error: ErrorRecord) -> Self {
        Self::Failed { error, retryable: false }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::failed(ErrorRecord::new(Kind::Invalid, message))
    }

    pub fn limit(name: &str, limit: u64, message: impl Into<String>) -> Self {
        Self::failed(ErrorRecord::limit(name, limit, message))
    }
}

/// JSON that the guest hands over. `what` begins the error's sentence, `bound` is the field of [`Limits`]
/// that holds for its size.
pub(super) fn take_json(
    text: &str,
    what: &str,
    bound: (&str, u64),
    limits: &Limits,
) -> Result<Json, ErrorRecord> {
    limits.take_json(text, what, bound)
}

/// The beginning of a text from the guest, whole characters only.
pub(super) fn clip(text: &str, bytes_max: usize) -> &str {
    match text.len() <= bytes_max {
        true => text,
        false => &text[..text.floor_char_boundary(bytes_max)],
    }
}
