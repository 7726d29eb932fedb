//! `holdpoint pending`: what waits for a person.

use serde_json::json;

use super::Shell;
use super::document::{Document, Exit, Said};
use super::failure::Failure;
use super::{prose, store, tenant};
use crate::engine::Host;
use crate::model::{RunStatus, ThreadId};
use crate::store::{PAGE_ROWS_MAX, ThreadFilter};

pub const ABOUT: &str = "\
List the questions that wait for an answer, and the command that answers each.

    holdpoint pending
    holdpoint pending --thread support-123 --json";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only of this thread
    #[arg(long, value_name = "ID")]
    thread: Option<ThreadId>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let threads = match args.thread {
        Some(thread) => vec![thread],
        None => interrupted(&host).await?,
    };
    let mut documents = Vec::new();
    for thread in &threads {
        documents.push((thread, Document::now(&host, thread).await?));
    }
    host.close().await;

    let mut text = String::new();
    for (thread, document) in &documents {
        text.push_str(&prose::heading(thread, document));
        text.push_str(&prose::questions(shell, thread, &document.interrupts));
        text.push('\n');
    }
    if documents.iter().all(|(_, document)| document.interrupts.is_empty()) {
        text.push_str("nothing waits for an answer\n");
    }
    let documents: Vec<&Document> = documents.iter().map(|(_, document)| document).collect();
    Ok(Said::new(Exit::Completed, &json!({ "threads": documents }), text))
}

async fn interrupted(host: &Host) -> Result<Vec<ThreadId>, Failure> {
    let mut threads: Vec<ThreadId> = Vec::new();
    loop {
        let filter = ThreadFilter {
            status: Some(RunStatus::Interrupted),
            after: threads.last().cloned(),
            limit: PAGE_ROWS_MAX,
        };
        let page = store(host)?.threads(&tenant(), &filter).await?;
        let is_last = page.len() < PAGE_ROWS_MAX as usize;
        threads.extend(page.into_iter().map(|row| row.thread));
        if is_last {
            return Ok(threads);
        }
    }
}
