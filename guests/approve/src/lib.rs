//! Shows labels and draft to a person, and waits until they say yes, no, or how it should read.

use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    labels: Vec<String>,
    draft: String,
}

#[derive(Serialize)]
struct Output {
    decision: Decision,
}

/// The answer, which is also what the node writes.
#[derive(Deserialize, Serialize)]
struct Decision {
    approved: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What to send in place of the draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
}

#[node(reads = ["labels", "draft"], writes = ["decision"], routes = ["publish", "done"])]
fn approve(input: Input) -> Result<Outcome<Output>, NodeError> {
    let question = Question::new(json!({ "labels": input.labels, "draft": input.draft })).schema(json!({
        "type": "object",
        "required": ["approved"],
        "oneOf": [
            {
                "properties": { "approved": { "const": true }, "reply": { "type": "string", "minLength": 1 } },
                "additionalProperties": false,
            },
            {
                "properties": { "approved": { "const": false }, "reason": { "type": "string", "minLength": 1 } },
                "required": ["reason"],
                "additionalProperties": false,
            },
        ],
    }));
    let decision: Decision = interrupt(question)?;
    let next = if decision.approved { "publish" } else { "done" };
    Ok(Outcome::of(Output { decision }).go(next))
}
