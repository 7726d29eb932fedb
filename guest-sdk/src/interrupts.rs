use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::{NodeError, bindings::holdpoint::node::interrupts as wit, host, json};

/// What to ask, and what counts as an answer.
///
/// Whatever can be serialized is a question by itself; this type adds a schema, an expiry, a default.
///
/// ```
/// use std::time::Duration;
/// use holdpoint_guest::prelude::*;
///
/// let question = Question::new(json!({ "refund": 120, "to": "ada" }))
///     .schema(json!({ "type": "object", "required": ["approved"] }))
///     .expires_after(Duration::from_secs(3 * 24 * 3600))
///     .default_answer(json!({ "approved": false }));
/// ```
#[derive(Debug)]
#[must_use = "a question does nothing until it is passed to `interrupt`"]
pub struct Question(Result<wit::Question, serde_json::Error>);

impl Question {
    /// A question that shows `payload` and takes any answer, at any time.
    pub fn new(payload: impl Serialize) -> Self {
        Self(json::to_text(payload).map(|payload| wit::Question {
            payload,
            answer_schema: None,
            expires_after_ms: None,
            default_answer: None,
        }))
    }

    /// The JSON Schema that an answer must meet. The host checks an answer before it writes anything
    /// down, so a wrong one is refused while the question stands. A schema cannot refer to other
    /// documents.
    pub fn schema(self, schema: impl Serialize) -> Self {
        self.with(json::to_text(schema), |question, text| question.answer_schema = Some(text))
    }

    /// How long the question stands, from when it was asked. After that the
    /// [default answer](Self::default_answer) counts; without one, the task fails as expired.
    pub fn expires_after(self, wait: Duration) -> Self {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.with(Ok(wait_ms), |question, ms| question.expires_after_ms = Some(ms))
    }

    /// What counts as the answer once the question has expired.
    pub fn default_answer(self, answer: impl Serialize) -> Self {
        self.with(json::to_text(answer), |question, text| question.default_answer = Some(text))
    }

    fn with<T>(self, value: Result<T, serde_json::Error>, set: impl FnOnce(&mut wit::Question, T)) -> Self {
        Self(self.0.and_then(|mut question| {
            set(&mut question, value?);
            Ok(question)
        }))
    }

    fn into_wit(self) -> Result<wit::Question, NodeError> {
        self.0.map_err(|why| NodeError::fail(format!("a question cannot be written as JSON: {why}")))
    }
}

impl<T: Serialize> From<T> for Question {
    fn from(payload: T) -> Self {
        Self::new(payload)
    }
}

/// Ask a person, and stop here until there is an answer.
///
/// On the pass that asks, this does not return: the instance is dropped where it stands. No
/// destructor runs, no `catch_unwind` catches it. When the answer is there, perhaps months later, the
/// node runs again from its beginning, and this call returns the answer.
///
/// So the way to this call must be the same every time: see [the crate's page](crate#what-is-run-again-and-why).
/// An answer that is no `T` fails the node; give the question a [schema](Question::schema), and such an
/// answer is refused before it gets here.
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node() -> Result<(), NodeError> {
/// let approved: bool = interrupt(json!({ "refund": 120 }))?;
/// # Ok(()) }
/// ```
pub fn interrupt<T: DeserializeOwned>(question: impl Into<Question>) -> Result<T, NodeError> {
    let question = question.into().into_wit()?;
    read(&host::interrupt(&question))
}

/// Ask several questions at once, and stop here until all are answered.
///
/// They may be answered one by one and in any order; the answers come in the order of the questions.
/// Otherwise as [`interrupt`]. An empty list returns at once.
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node() -> Result<(), NodeError> {
/// let marks: Vec<u32> = interrupt_all(["speed", "taste", "price"])?;
/// # Ok(()) }
/// ```
pub fn interrupt_all<T: DeserializeOwned>(
    questions: impl IntoIterator<Item = impl Into<Question>>,
) -> Result<Vec<T>, NodeError> {
    let questions: Vec<_> =
        questions.into_iter().map(|question| question.into().into_wit()).collect::<Result<_, _>>()?;
    host::interrupt_all(&questions).iter().map(|answer| read(answer)).collect()
}

fn read<T: DeserializeOwned>(answer: &str) -> Result<T, NodeError> {
    json::from_value(&json::parse(answer)?)
        .map_err(|why| NodeError::fail(format!("the answer is not what the node expects: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_carries_what_was_said_of_it() {
        let question = Question::new("Refund?")
            .schema(json!({ "type": "boolean" }))
            .expires_after(Duration::from_secs(2))
            .default_answer(false);
        let question = question.into_wit().unwrap();
        assert_eq!(question.payload, r#""Refund?""#);
        assert_eq!(question.answer_schema.as_deref(), Some(r#"{"type":"boolean"}"#));
        assert_eq!(question.expires_after_ms, Some(2000));
        assert_eq!(question.default_answer.as_deref(), Some("false"));
    }

    #[test]
    #[should_panic(expected = "a host call outside of a component")]
    fn without_a_host_a_question_says_so() {
        let _ = interrupt::<bool>("Refund?");
    }
}
