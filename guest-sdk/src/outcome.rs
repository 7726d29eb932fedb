use serde::Serialize;
use serde_json::Value;

use crate::{NodeError, bindings::holdpoint::node::types as wit, json};

/// What a node hands back when it is done: what it writes, and where to go next.
///
/// A node that takes no route of its own returns what it writes alone, and the graph's edges apply.
///
/// ```
/// use holdpoint_guest::prelude::*;
///
/// # #[derive(Serialize)] struct Output { decision: bool }
/// let outcome = Outcome::of(Output { decision: true }).go("publish");
/// ```
#[derive(Debug)]
#[must_use = "an outcome counts when the node returns it"]
pub struct Outcome<T = ()> {
    update: T,
    routes: Vec<Route>,
}

#[derive(Debug)]
enum Route {
    Go(String),
    Send { label: String, arg: Result<String, serde_json::Error> },
    End,
}

impl<T> Outcome<T> {
    /// Write `update`: a struct or map whose keys are names from the attribute's `writes`; `()` writes
    /// nothing.
    pub fn of(update: T) -> Self {
        Self { update, routes: Vec::new() }
    }

    /// Go to the node behind this label, one of the attribute's `routes`. Call it several times to go
    /// to several.
    pub fn go(self, label: impl Into<String>) -> Self {
        self.and(Route::Go(label.into()))
    }

    /// Start a task of its own behind this label, with an argument, which it finds in
    /// [`Context::arg`](crate::Context::arg). Sends never merge: three sends start three tasks.
    pub fn send(self, label: impl Into<String>, arg: impl Serialize) -> Self {
        self.and(Route::Send { label: label.into(), arg: json::to_text(arg) })
    }

    /// Go nowhere from here, whatever edges the graph draws.
    pub fn end(self) -> Self {
        self.and(Route::End)
    }

    fn and(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }
}

/// What a node may return, alone or in a `Result`: an [`Outcome`], or anything that can be serialized.
#[diagnostic::on_unimplemented(
    message = "a node cannot return `{Self}`",
    note = "return a type with `#[derive(Serialize)]` whose fields are the names in `writes`, an `Outcome` of one, or a `Result` of either"
)]
pub trait IntoOutcome {
    #[doc(hidden)]
    fn into_wit(self) -> Result<wit::Outcome, NodeError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize> IntoOutcome for T {
    fn into_wit(self) -> Result<wit::Outcome, NodeError> {
        Outcome::of(self).into_wit()
    }
}

impl<T: Serialize> IntoOutcome for Outcome<T> {
    fn into_wit(self) -> Result<wit::Outcome, NodeError> {
        let update = match serde_json::to_value(self.update) {
            Ok(Value::Null) => "{}".to_owned(),
            Ok(Value::Object(update)) => Value::Object(update).to_string(),
            Ok(other) => {
                return Err(NodeError::fail(format!(
                    "a node returns a struct or map, from the names it writes to values; this is {other}"
                )));
            }
            Err(why) => {
                return Err(NodeError::fail(format!("the update cannot be written as JSON: {why}")));
            }
        };
        let routes = self.routes.into_iter().map(Route::into_wit).collect::<Result<_, _>>()?;
        Ok(wit::Outcome { update, routes })
    }
}

impl Route {
    fn into_wit(self) -> Result<wit::Route, NodeError> {
        Ok(match self {
            Self::Go(label) => wit::Route::Go(label),
            Self::Send { label, arg } => {
                let arg = arg.map_err(|why| {
                    NodeError::fail(format!(
                        "the argument sent to `{label}` cannot be written as JSON: {why}"
                    ))
                })?;
                wit::Route::Send(wit::Send { label, arg })
            }
            Self::End => wit::Route::End,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_is_an_object_and_nothing_is_an_empty_one() {
        let update = |outcome: Result<wit::Outcome, NodeError>| outcome.map(|outcome| outcome.update);
        assert_eq!(update(json!({ "b": 1, "a": 2 }).into_wit()).unwrap(), r#"{"a":2,"b":1}"#);
        assert_eq!(update(().into_wit()).unwrap(), "{}");
        let NodeError::Fail(failure) = update([1, 2].into_wit()).unwrap_err() else { panic!("no failure") };
        assert!(failure.message.contains("this is [1,2]"), "{}", failure.message);
    }

    #[test]
    fn routes_come_out_in_the_order_they_were_taken() {
        let outcome = Outcome::of(()).go("a").send("b", json!({ "n": 1 })).end().into_wit().unwrap();
        let [wit::Route::Go(label), wit::Route::Send(send), wit::Route::End] = &outcome.routes[..] else {
            panic!("other routes: {:?}", outcome.routes)
        };
        assert_eq!((&**label, &*send.label, &*send.arg), ("a", "b", r#"{"n":1}"#));
    }
}
