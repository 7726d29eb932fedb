//! Drafts a polite reply to a GitHub issue. A real desk would ask a language model here.

use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    issue: Webhook,
    labels: Vec<String>,
}

#[derive(Deserialize)]
struct Webhook {
    issue: Issue,
}

#[derive(Deserialize)]
struct Issue {
    title: String,
    user: User,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Serialize)]
struct Output {
    draft: String,
}

#[node(reads = ["issue", "labels"], writes = ["draft"])]
fn draft(Input { issue: Webhook { issue }, labels }: Input) -> Output {
    let has = |label: &str| labels.iter().any(|given| given == label);
    let next = if has("docs") {
        "That is quickly put right, and a pull request would be welcome."
    } else if has("bug") {
        "Could you tell us which version you use, and the steps that lead there?"
    } else if has("feature") {
        "We will talk about it and come back to you here."
    } else {
        "Somebody who knows this part will have a look soon."
    };
    let Issue { title, user } = issue;
    Output { draft: format!("Hello @{}, thank you for writing about \"{title}\". {next}", user.login) }
}
