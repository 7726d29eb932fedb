//! `holdpoint delete`: the end of a thread.

use serde_json::json;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::prose;
use super::screen::harmless;
use crate::engine::WhileRunning;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Delete a thread with all that is kept of it: states, questions, answers, the record of its effects.

It cannot be brought back. A thread that is running is left alone, unless --force breaks it off. A new thread
of the same name uses the same Idempotency-Keys: a service that remembers them takes its effects for repeats.

    holdpoint delete --thread support-123 --yes";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// Yes, for good
    #[arg(long)]
    yes: bool,

    /// Also if it is running
    #[arg(long)]
    force: bool,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let Args { thread, yes, force } = args;
    let host = shell.known_host().await?;
    let config = RunConfig::thread(thread.as_str());
    let said = async {
        let stands = host.execution(config.clone()).await?;
        if !yes {
            let again = ["delete", "--thread", thread.as_str(), "--yes"];
            return Err(Failure::argument(format!(
                "thread {thread} is {}, with {} pending, and would be deleted for good; say so with\n    {}",
                stands.status.as_str(),
                prose::counted(stands.interrupts.len(), "question"),
                shell.command(again)
            )));
        }
        let running = if force { WhileRunning::BreakOff } else { WhileRunning::Refuse };
        host.delete(config, running).await?;
        let document = json!({ "thread": thread, "deleted": true, "status": stands.status });
        Ok(Said::new(Exit::Completed, &document, format!("{} is deleted\n", harmless(thread.as_str()))))
    };
    let said = said.await;
    host.close().await;
    said
}
