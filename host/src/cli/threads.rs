//! `holdpoint threads`: the threads of the database.

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use serde_json::{Value, json};

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{prose, store, tenant};
use crate::model::{RunStatus, ThreadId};
use crate::store::{PAGE_ROWS_MAX, ThreadFilter, ThreadRow};

pub const ABOUT: &str = "\
List the threads of the database by name, with how their latest run stands.

    holdpoint threads --status interrupted
    holdpoint threads --limit 100 --after support-123     # the page after that thread";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only those whose latest run stands like this
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    status: Option<RunStatus>,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_ROWS_MAX)))]
    limit: u32,

    /// Only those whose names come after this one
    #[arg(long, value_name = "ID")]
    after: Option<ThreadId>,
}

fn statuses() -> impl clap::builder::TypedValueParser<Value = RunStatus> {
    let words = RunStatus::ALL.map(RunStatus::as_str);
    PossibleValuesParser::new(words).try_map(|word| RunStatus::parse(&word).ok_or("no status"))
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let filter = ThreadFilter { status: args.status, after: args.after, limit: args.limit };
    let threads = store(&host)?.threads(&tenant(), &filter).await?;
    host.close().await;

    let last = threads.last().filter(|_| threads.len() == args.limit as usize);
    let after = last.map(|row| row.thread.to_string());
    let rows: Vec<Vec<String>> = threads.iter().map(cells).collect();
    let mut text = match rows.is_empty() {
        true => "no threads\n".to_owned(),
        false => prose::table(&["THREAD", "STATUS", "PENDING", "GRAPH", "UPDATED"], &rows),
    };
    if let Some(after) = &after {
        text.push_str(&format!("\nthere may be more: --after {}\n", super::quoted(after)));
    }
    let threads: Vec<Value> = threads.iter().map(document).collect();
    Ok(Said::new(Exit::Completed, &json!({ "threads": threads, "after": after }), text))
}

fn cells(row: &ThreadRow) -> Vec<String> {
    let ThreadRow { thread, status, graph, pending, updated_at, .. } = row;
    let (thread, graph) = (harmless(thread.as_str()).into_owned(), harmless(graph).into_owned());
    vec![thread, status.as_str().to_owned(), pending.to_string(), graph, updated_at.to_string()]
}

fn document(row: &ThreadRow) -> Value {
    json!({
        "thread": row.thread,
        "status": row.status,
        "graph": row.graph,
        "run_id": row.run,
        "checkpoint_id": row.head,
        "pending": row.pending,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}
