//! `holdpoint continue`: on with a run that was broken off.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::prose;
use super::stop::Stop;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Go on with a run whose process died or was stopped.

Everything that was durable stays: what was answered is not asked again. An effect that was under way is
sent again under the same Idempotency-Key, or, where it is at-most-once, asked about. Where only an answer is missing, this says so and runs nothing. If another process may still
run the thread, this waits until that one's claim has run out.

    holdpoint continue --thread support-123";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread of the run
    #[arg(long, value_name = "ID")]
    thread: ThreadId,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        shell.screen.busy("waiting for the thread");
        let done = host.continue_run(RunConfig::thread(args.thread.as_str())).await;
        prose::invocation(shell, &host, &args.thread, done).await
    };
    let said = said.await;
    host.close().await;
    said
}
