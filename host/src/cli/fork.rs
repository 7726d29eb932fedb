//! `holdpoint fork`: another thread from a state of this one.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::prose;
use super::stop::Stop;
use crate::model::{CheckpointId, RunConfig, ThreadId};

pub const ABOUT: &str = "\
Make a new thread from a checkpoint of another, and run it to where it completes or waits.

The thread that it is made from stays as it is: what it asks can still be answered there. The new one has its
channels as they were and its record of effects that were done by then, so that none of those is done again;
what was asked at that point is asked again, under new ids. At the latest checkpoint, steps that are half done
come along: what has finished is not run again. An older pause is taken up at the beginning of its step: what the
step's tasks had done is done again, by the new thread and under keys of its own. A checkpoint of a subgraph is
taken up inside that subgraph.

    holdpoint history --thread support-123
    holdpoint fork --thread support-123 --checkpoint 0190b2c4-… --to support-123-again";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread to start from
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// The checkpoint to start from [default: the latest]
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: Option<CheckpointId>,

    /// The new thread
    #[arg(long, value_name = "NEW")]
    to: ThreadId,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let Args { thread, checkpoint, to } = args;
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        shell.screen.busy("forking");
        match host.fork(RunConfig::thread(thread.as_str()), checkpoint, to.clone()).await {
            Ok(execution) => prose::invocation(shell, &host, &to, Ok(execution)).await,
            Err(error) => prose::not_forked(shell, &host, (&thread, &to), error).await,
        }
    };
    let said = said.await;
    host.close().await;
    said
}
