//! `holdpoint copy`: a thread once more, under another name.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::prose;
use super::stop::Stop;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Make a new thread that stands as another does.

This is a fork at the latest checkpoint: channels, half-done steps and the record of effects are the same, and
what the first one asks is asked in the copy as well, under new ids: an answer is for one of the two. A task that
waits begins anew in the copy, and so asks from its first question on; what it did outside is on record. The past
stays with the first; `holdpoint history` of the copy begins here.

    holdpoint copy --thread support-123 --to rehearsal";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread to copy
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// The copy
    #[arg(long, value_name = "NEW")]
    to: ThreadId,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let Args { thread, to } = args;
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        shell.screen.busy("copying");
        match host.copy(RunConfig::thread(thread.as_str()), to.clone()).await {
            Ok(execution) => prose::invocation(shell, &host, &to, Ok(execution)).await,
            Err(error) => prose::not_forked(shell, &host, (&thread, &to), error).await,
        }
    };
    let said = said.await;
    host.close().await;
    said
}
