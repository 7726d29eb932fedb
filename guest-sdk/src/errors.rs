use std::{convert::Infallible, fmt::Display};

use serde::Serialize;
use serde_json::Value;

use crate::bindings::holdpoint::node::types as wit;

/// Why a node could not do its work. Two words to know: *retry* and *fail*.
///
/// Most nodes write [`Retry`] and [`Fail`] and never name this type's cases.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeError {
    /// Worth another attempt. Answers and effects that succeeded stay; the node runs from its beginning.
    Retry(Failure),
    /// Another attempt would fail in the same way.
    Fail(Failure),
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// One sentence for a person.
    pub message: String,
    /// Anything more, for a program.
    pub detail: Option<Value>,
}

/// Worth another attempt: `return Err(Retry("the model gave no JSON").into())`.
///
/// It wraps whatever can be shown, so that `.map_err(Retry)?` works on any error.
#[derive(Clone, Copy, Debug)]
pub struct Retry<M>(pub M);

/// Another attempt would fail in the same way: `return Err(Fail("no such order").into())`.
///
/// It wraps whatever can be shown, so that `.map_err(Fail)?` works on any error.
#[derive(Clone, Copy, Debug)]
pub struct Fail<M>(pub M);

impl NodeError {
    /// As [`Retry`].
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry(Failure { message: message.into(), detail: None })
    }

    /// As [`Fail`].
    pub fn fail(message: impl Into<String>) -> Self {
        Self::Fail(Failure { message: message.into(), detail: None })
    }

    /// Add something for a program to read. What cannot be written as JSON is left out.
    pub fn detail(mut self, detail: impl Serialize) -> Self {
        let (Self::Retry(failure) | Self::Fail(failure)) = &mut self;
        failure.detail = serde_json::to_value(detail).ok();
        self
    }

    pub(crate) fn into_wit(self) -> wit::NodeError {
        let of = |failure: Failure| wit::Failure {
            message: failure.message,
            detail: failure.detail.map(|detail| detail.to_string()),
        };
        match self {
            Self::Retry(failure) => wit::NodeError::Retry(of(failure)),
            Self::Fail(failure) => wit::NodeError::Fail(of(failure)),
        }
    }
}

impl<M: Display> From<Retry<M>> for NodeError {
    fn from(Retry(message): Retry<M>) -> Self {
        Self::retry(message.to_string())
    }
}

impl<M: Display> From<Fail<M>> for NodeError {
    fn from(Fail(message): Fail<M>) -> Self {
        Self::fail(message.to_string())
    }
}

impl From<Infallible> for NodeError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EffectError;

    #[test]
    fn any_error_can_be_called_retryable_or_final() {
        let parse = |text: &str| -> Result<u32, NodeError> { Ok(text.parse().map_err(Fail)?) };
        assert_eq!(parse("x"), Err(NodeError::fail("invalid digit found in string")));
        assert_eq!(NodeError::from(Retry(7)), NodeError::retry("7"));
    }

    #[test]
    fn every_effect_error_fails_for_good_and_keeps_what_is_known() {
        let errors = [
            EffectError::Denied("no".into()),
            EffectError::Invalid("no".into()),
            EffectError::KeyConflict { effect: "refund".into(), key: "k".into() },
            EffectError::Failed(Value::from(5)),
            EffectError::InDoubt("no".into()),
            EffectError::Unreadable { message: "no".into(), outcome: Value::from(5) },
        ];
        for error in errors {
            let NodeError::Fail(failure) = NodeError::from(error.clone()) else { panic!("{error:?}") };
            assert_eq!(failure.message, error.to_string());
            assert!(failure.detail.unwrap()["effect_error"].is_string());
        }
    }
}
