//! `holdpoint continue`: on with a run that was broken off.

use serde_json::{Value, json};

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::prose;
use super::screen::harmless;
use super::stop::Stop;
use crate::engine::Host;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Go on with a run whose process died or was stopped.

Everything that was durable stays: what was answered is not asked again. An effect that was under way is
sent again under the same Idempotency-Key, or, where it is at-most-once, asked about. Where only an answer is
missing, this says so and runs nothing. If another process may still run the thread, this waits until that
one's claim has run out.

    holdpoint continue --thread support-123
    holdpoint continue --all

With --all it goes on with whatever is due in the database: runs that nobody runs, questions that have expired,
and input that waits for a thread that is free by now.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread of the run
    #[arg(long, value_name = "ID", required_unless_present = "all")]
    thread: Option<ThreadId>,

    /// Every thread on which something is due
    #[arg(long, conflicts_with = "thread")]
    all: bool,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        let Some(thread) = &args.thread else {
            return all(&host).await;
        };
        shell.screen.busy("waiting for the thread");
        let done = host.continue_run(RunConfig::thread(thread.as_str())).await;
        prose::invocation(shell, &host, thread, done).await
    };
    let said = said.await;
    host.close().await;
    said
}

/// Done, if every thread was seen to, however its run stands then.
async fn all(host: &Host) -> Result<Said, Failure> {
    let (mut threads, mut text, mut exit) = (Vec::new(), String::new(), Exit::Completed);
    for swept in host.sweep().await? {
        let (status, error) = match &swept.result {
            Ok(execution) => (Value::from(execution.status.as_str()), execution.error.clone()),
            Err(error) => {
                exit = Exit::Failed;
                (Value::Null, Some(super::way_out::told(error.record())))
            }
        };
        let how = status
            .as_str()
            .map_or_else(|| error.as_ref().map(ToString::to_string), |status| Some(status.to_owned()));
        text.push_str(&format!("{}  {}\n", swept.thread, how.unwrap_or_default()));
        threads.push(
            json!({ "tenant": swept.tenant, "thread": swept.thread, "status": status, "error": error }),
        );
    }
    if threads.is_empty() {
        text.push_str("nothing is due\n");
    }
    Ok(Said::new(exit, &json!({ "threads": threads }), harmless(&text)))
}
