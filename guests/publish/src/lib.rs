//! Posts the approved reply, once, however often it is run.

use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    issue: Webhook,
    decision: Decision,
    draft: String,
}

#[derive(Deserialize)]
struct Webhook {
    issue: Issue,
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    comments_url: String,
}

#[derive(Deserialize)]
struct Decision {
    approved: bool,
    reply: Option<String>,
}

#[derive(Serialize)]
struct Output {
    published: Value,
}

#[node(reads = ["issue", "decision", "draft"], writes = ["published"], effects = ["comment"])]
fn publish(Input { issue: Webhook { issue }, decision, draft }: Input) -> Result<Output, NodeError> {
    if !decision.approved {
        return Err(Fail("the reply was not approved").into());
    }
    let body = decision.reply.unwrap_or(draft);
    // What the effect is for, not when or how often it is tried: a retry must find the same key.
    let key = format!("issue-{}-reply", issue.number);
    let receipt: Value = effect(
        "comment",
        &key,
        &json!({ "issue": issue.number, "comments_url": issue.comments_url, "body": body }),
    )?;
    Ok(Output { published: json!({ "body": body, "receipt": receipt }) })
}
