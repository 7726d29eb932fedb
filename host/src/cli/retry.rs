//! `holdpoint retry`: what failed, once more.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::prose;
use super::stop::Stop;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Try again what failed on a thread, and only that.

What is finished does not run again, here or in a subgraph; answers that were given are kept, and effects that
were done are not done again. An effect that failed in a way that may pass is sent once more under the same
Idempotency-Key. What waits for an answer goes on waiting.

    holdpoint retry --thread support-123";

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
        let done = host.retry(RunConfig::thread(args.thread.as_str())).await;
        prose::invocation(shell, &host, &args.thread, done).await
    };
    let said = said.await;
    host.close().await;
    said
}
