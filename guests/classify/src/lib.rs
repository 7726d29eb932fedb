//! Labels a GitHub issue by the words in it. It asks nobody and touches nothing.

use holdpoint_guest::prelude::*;

/// The webhook payload `issues.opened`, as far as this node reads it.
#[derive(Deserialize)]
struct Input {
    issue: Webhook,
}

#[derive(Deserialize)]
struct Webhook {
    issue: Issue,
}

#[derive(Deserialize)]
struct Issue {
    title: String,
    body: Option<String>,
}

#[derive(Serialize)]
struct Output {
    labels: Vec<&'static str>,
}

/// A label, and the words that call for it.
const RULES: [(&str, &[&str]); 4] = [
    ("bug", &["crash", "error", "fail", "broken", "wrong"]),
    ("docs", &["readme", "documentation", "spelling", "spelled", "typo"]),
    ("feature", &["feature", "support for", "would be nice", "please add"]),
    ("question", &["how do i", "how can i", "question", "?"]),
];

#[node(reads = ["issue"], writes = ["labels"])]
fn classify(Input { issue: Webhook { issue } }: Input) -> Output {
    let text = format!("{}\n{}", issue.title, issue.body.unwrap_or_default()).to_lowercase();
    let labels: Vec<_> = RULES
        .iter()
        .filter(|(_, words)| words.iter().any(|word| text.contains(word)))
        .map(|(label, _)| *label)
        .collect();
    log::info!("labels for \"{}\": {labels:?}", issue.title);
    Output { labels }
}
