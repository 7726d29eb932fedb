use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{NodeError, Question, interrupt};

/// An action for a person to approve, in the form that inboxes know how to show: one action, and which of
/// four answers may be given. Accepting and ignoring are allowed unless taken away; editing and responding
/// once they are given.
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node() -> Result<(), NodeError> {
/// let request = Approval::new("refund", json!({ "cents": 1200 }))
///     .description("The parcel never came.")
///     .allow_edit(true);
/// match approve(request)? {
///     Decision::Accept(action) | Decision::Edit(action) => log::info!("refund {}", action.args["cents"]),
///     Decision::Response(text) => log::info!("not yet: {text}"),
///     Decision::Ignore => {}
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an approval does nothing until it is passed to `approve`"]
pub struct Approval {
    action: Action,
    description: Option<String>,
    accept: bool,
    edit: bool,
    respond: bool,
    ignore: bool,
}

/// What would be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// What it is called.
    pub action: String,
    /// With what.
    pub args: Value,
}

/// What a person said to an [`Approval`].
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Do it as it was shown.
    Accept(Action),
    /// Do this instead.
    Edit(Action),
    /// Don't do it yet; this is what the person says to it.
    Response(String),
    /// Don't do it.
    Ignore,
}

impl Approval {
    /// `args` is an object: the arguments of the action, by name.
    pub fn new(action: impl Into<String>, args: impl Serialize) -> Self {
        // What cannot be written as JSON shows as null, and the person sees that.
        let args = serde_json::to_value(args).unwrap_or_default();
        Self {
            action: Action { action: action.into(), args },
            description: None,
            accept: true,
            edit: false,
            respond: false,
            ignore: true,
        }
    }

    /// What the person should know.
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// Whether it may be accepted as it is.
    pub fn allow_accept(self, accept: bool) -> Self {
        Self { accept, ..self }
    }

    /// Whether the person may change it.
    pub fn allow_edit(self, edit: bool) -> Self {
        Self { edit, ..self }
    }

    /// Whether the person may answer in words.
    pub fn allow_respond(self, respond: bool) -> Self {
        Self { respond, ..self }
    }

    /// Whether it may be ignored.
    pub fn allow_ignore(self, ignore: bool) -> Self {
        Self { ignore, ..self }
    }

    /// The same as a question, to add an expiry, or to ask it beside others; [`Self::read`] reads the answer.
    pub fn question(&self) -> Question {
        let Self { action, description, accept, edit, respond, ignore } = self;
        Question::new(json!([{
            "action_request": action,
            "config": {
                "allow_accept": accept, "allow_edit": edit, "allow_respond": respond, "allow_ignore": ignore,
            },
            "description": description,
        }]))
        .schema(self.schema())
    }

    /// What an answer must be: a list of one, of a type that is allowed.
    fn schema(&self) -> Value {
        let action = json!({
            "type": "object",
            "required": ["action", "args"],
            "properties": { "action": { "type": "string" }, "args": { "type": "object" } },
        });
        let way = |kind: &str, args: Value, required: &[&str]| json!({ "properties": { "type": { "const": kind }, "args": args }, "required": required });
        let ways: Vec<Value> = [
            (self.accept, way("accept", json!({}), &["type"])),
            (self.edit, way("edit", action, &["type", "args"])),
            (self.respond, way("response", json!({ "type": "string" }), &["type", "args"])),
            (self.ignore, way("ignore", json!({}), &["type"])),
        ]
        .into_iter()
        .filter_map(|(allowed, way)| allowed.then_some(way))
        .collect();
        json!({ "type": "array", "minItems": 1, "maxItems": 1, "items": { "type": "object", "oneOf": ways } })
    }

    /// What an answer to [`Self::question`] means.
    pub fn read(&self, answer: &Value) -> Result<Decision, NodeError> {
        let no_answer = || NodeError::fail(format!("this is no answer to an approval: {answer}"));
        let said = &answer[0];
        match said["type"].as_str().ok_or_else(no_answer)? {
            // Some inboxes send the action back with every argument turned into a string: what was asked counts.
            "accept" => Ok(Decision::Accept(self.action.clone())),
            "edit" => Action::deserialize(&said["args"]).map(Decision::Edit).map_err(|_| no_answer()),
            "response" => {
                said["args"].as_str().map(|text| Decision::Response(text.to_owned())).ok_or_else(no_answer)
            }
            "ignore" => Ok(Decision::Ignore),
            _ => Err(no_answer()),
        }
    }
}

/// Ask a person to approve, and stop here until they have said. Otherwise as [`interrupt`].
pub fn approve(approval: Approval) -> Result<Decision, NodeError> {
    approval.read(&interrupt(approval.question())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Script;

    #[test]
    fn each_answer_means_what_the_inbox_meant() {
        let request =
            || Approval::new("refund", json!({ "cents": 1200 })).allow_edit(true).allow_respond(true);
        let action = |cents: u32| Action { action: "refund".into(), args: json!({ "cents": cents }) };
        for (answer, decision) in [
            (
                json!([{ "type": "accept", "args": { "action": "refund", "args": { "cents": "1200" } } }]),
                Decision::Accept(action(1200)),
            ),
            (json!([{ "type": "accept", "args": null }]), Decision::Accept(action(1200))),
            (
                json!([{ "type": "edit", "args": { "action": "refund", "args": { "cents": 5 } } }]),
                Decision::Edit(action(5)),
            ),
            (json!([{ "type": "response", "args": "why?" }]), Decision::Response("why?".into())),
            (json!([{ "type": "ignore", "args": null }]), Decision::Ignore),
        ] {
            let ran = Script::new().answer(&answer).run(|| approve(request()));
            assert_eq!(ran.returned, Some(Ok(decision)), "{answer}");
        }
        assert!(request().read(&json!("yes")).is_err());
    }

    #[test]
    fn the_question_is_as_inboxes_expect_it() {
        let ran = Script::new()
            .run(|| approve(Approval::new("send", json!({})).description("now?").allow_ignore(false)));
        assert_eq!(
            ran.questions[0].payload,
            json!([{
                "action_request": { "action": "send", "args": {} },
                "config": { "allow_accept": true, "allow_edit": false, "allow_respond": false, "allow_ignore": false },
                "description": "now?",
            }])
        );
        let ways = &ran.questions[0].schema.as_ref().unwrap()["items"]["oneOf"];
        assert_eq!(ways.as_array().unwrap().len(), 1);
    }
}
