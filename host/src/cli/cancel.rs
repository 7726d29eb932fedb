//! `holdpoint cancel`: a run is called off.

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::prose;
use crate::model::{RunConfig, RunStatus, ThreadId};

pub const ABOUT: &str = "\
Call off a thread's run, with the runs of its subgraphs.

What is pending is withdrawn, and late answers to it are refused. A process that is at work on the run can
write nothing more; an effect that is on its way may still arrive. The thread keeps its state as of its latest
step and takes new input.

    holdpoint cancel --thread support-123 --as maria --reason 'the customer called'";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread of the run
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// Who calls it off; recorded with what is withdrawn
    #[arg(long = "as", value_name = "WHO")]
    actor: Option<String>,

    /// Why; recorded likewise
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let config = RunConfig::thread(args.thread.as_str());
    let done = host.cancel(config, args.actor.as_deref(), args.reason.as_deref()).await;
    let cancelled = done.as_ref().is_ok_and(|execution| execution.status == RunStatus::Cancelled);
    let said = prose::invocation(shell, &host, &args.thread, done).await;
    host.close().await;
    // What was asked for was done, though the run did not complete.
    said.map(|said| if cancelled { Said { exit: Exit::Completed, ..said } } else { said })
}
