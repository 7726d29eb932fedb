use std::{error::Error, fmt};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{NodeError, bindings::holdpoint::node::effects as wit, host, json};

/// Why an effect was not done, or is not known to be done, or not understood.
///
/// A node that cannot go on without the effect passes it on with `?`. **Every case then fails the node
/// for good** ([`NodeError::Fail`]): none of them is mended by the same call again, because the host
/// remembers the outcome under the key. If another attempt can help, say so yourself:
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node(refund: &Value) -> Result<(), NodeError> {
/// let receipt: Value = match effect("refund", "refund-17", refund) {
///     Err(EffectError::Failed(why)) => return Err(Retry(format!("the bank said {why}")).into()),
///     done => done?,
/// };
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum EffectError {
    /// The graph, the operator or a person does not allow it. Do without, or fail.
    Denied(String),
    /// The host cannot make sense of the call: an unknown name, an input it cannot send.
    Invalid(String),
    /// The key was used before with another input. Choose keys by what the effect is for.
    KeyConflict {
        /// The node's own name for it.
        effect: String,
        /// The key that was used before.
        key: String,
    },
    /// It was done, or tried, and ended in an error; the value is what is known of it.
    Failed(Value),
    /// Nobody can say whether it was done.
    InDoubt(String),
    /// It was done, and its outcome is not of the type that the node asked for.
    Unreadable {
        /// Which part of it is not.
        message: String,
        /// The outcome as it came.
        outcome: Value,
    },
}

impl fmt::Display for EffectError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why) => write!(out, "the effect was denied: {why}"),
            Self::Invalid(why) => write!(out, "the effect call is invalid: {why}"),
            Self::KeyConflict { effect, key } => {
                write!(
                    out,
                    "the idempotency key {key:?} of the effect {effect:?} was used before with another input"
                )
            }
            Self::Failed(what) => write!(out, "the effect failed: {what}"),
            Self::InDoubt(why) => write!(out, "it is not known whether the effect was done: {why}"),
            Self::Unreadable { message, .. } => {
                write!(out, "the effect's outcome is not what the node expects: {message}")
            }
        }
    }
}

impl Error for EffectError {}

/// Fails the node for good, in every case. What is known of the effect goes along as the detail.
impl From<EffectError> for NodeError {
    fn from(error: EffectError) -> Self {
        let kind = match &error {
            EffectError::Denied(_) => "denied",
            EffectError::Invalid(_) => "invalid",
            EffectError::KeyConflict { .. } => "key-conflict",
            EffectError::Failed(_) => "failed",
            EffectError::InDoubt(_) => "in-doubt",
            EffectError::Unreadable { .. } => "unreadable",
        };
        let message = error.to_string();
        let outcome = match error {
            EffectError::Failed(outcome) | EffectError::Unreadable { outcome, .. } => outcome,
            _ => Value::Null,
        };
        NodeError::fail(message).detail(json!({ "effect_error": kind, "outcome": outcome }))
    }
}

/// Have the host do `name` with `input`, once for each `idempotency_key`.
///
/// The same key with the same input is done once: later calls, in this attempt or another, return the
/// first outcome. The same key with another input is a [`KeyConflict`](EffectError::KeyConflict).
/// Derive the key from what the effect is *for*: `issue-17-reply`, not a counter, not a random number.
/// It belongs to this node, this effect and this thread, and has 1 to 255 characters.
///
/// `name` must be in the attribute's `effects`, and the graph must map it to something.
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node() -> Result<(), NodeError> {
/// #[derive(Deserialize)]
/// struct Receipt { number: String }
///
/// let receipt: Receipt = effect("refund", "order-17-refund", &json!({ "cents": 1200 }))?;
/// # Ok(()) }
/// ```
pub fn effect<T: DeserializeOwned>(
    name: &str,
    idempotency_key: &str,
    input: &(impl Serialize + ?Sized),
) -> Result<T, EffectError> {
    let input = json::to_text(input)
        .map_err(|why| EffectError::Invalid(format!("the input cannot be written as JSON: {why}")))?;
    let outcome = host::perform(name, idempotency_key, &input)
        .map_err(|error| EffectError::from_wit(error, name, idempotency_key))?;
    let outcome = value_of(&outcome);
    json::from_value(&outcome).map_err(|why| EffectError::Unreadable { message: why.to_string(), outcome })
}

impl EffectError {
    fn from_wit(error: wit::EffectError, effect: &str, key: &str) -> Self {
        match error {
            wit::EffectError::Denied(why) => Self::Denied(why),
            wit::EffectError::Invalid(why) => Self::Invalid(why),
            wit::EffectError::KeyConflict => Self::KeyConflict { effect: effect.into(), key: key.into() },
            wit::EffectError::Failed(what) => Self::Failed(value_of(&what)),
            wit::EffectError::InDoubt(why) => Self::InDoubt(why),
        }
    }
}

/// A handler's outcome is JSON, by contract; if it is not, the text itself is the best there is.
fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
