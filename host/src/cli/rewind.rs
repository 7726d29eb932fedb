//! `holdpoint rewind`: a thread goes on from an earlier state of its own.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::stop::Stop;
use super::{input, prose};
use crate::engine::{Onward, Rewind, StateUpdate};
use crate::model::{CheckpointId, Limits, RunConfig, ThreadId};

pub const ABOUT: &str = "\
Take a thread back to an earlier checkpoint, and run it from there to where it completes or waits.

It goes on as a run of its own, on the same thread. What came after that checkpoint stays in the history, and can
be gone back to in the same way; what waits for an answer is withdrawn, and what was asked at that point is asked
again, under new ids. What was done outside stays done: the same key with the same input gives the outcome on
record, with another input it is refused. A pause is taken up at the beginning of its step. `fork` makes
another thread instead, and leaves this one as it is.

With --set, values are written into that state first, as `state set` does; with --hold nothing runs then before
somebody lets it pass (`resume --proceed`).

    holdpoint history --thread support-123
    holdpoint rewind --thread support-123 --checkpoint 0190b2c4-…
    holdpoint rewind --thread support-123 --checkpoint 0190b2c4-… --set '{\"decision\": \"approve\"}' --as-node triage";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread to take back
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// The checkpoint to go on from
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: CheckpointId,

    /// Values to write into that state: an object from channels, as JSON, @FILE, or - for standard input
    #[arg(long, value_name = "VALUES")]
    set: Option<String>,

    /// The node that they count for
    #[arg(long, value_name = "NODE", requires = "set")]
    as_node: Option<String>,

    /// After writing, run nothing before somebody says so
    #[arg(long, requires = "set")]
    hold: bool,

    /// Who takes it back; recorded with what is withdrawn
    #[arg(long = "as", value_name = "WHO")]
    actor: Option<String>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let Args { thread, checkpoint, set, as_node, hold, actor } = args;
    let limits = Limits::default();
    let update = match set {
        None => None,
        Some(text) => {
            let values = input::json("--set", &text, &limits, ("state_bytes", limits.state_bytes))?.value();
            let onward = if hold { Onward::Hold } else { Onward::Run };
            Some(StateUpdate { values, as_node, actor: actor.clone(), onward })
        }
    };
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        shell.screen.busy("going back");
        let rewind = Rewind { update, actor, ..Rewind::to(checkpoint) };
        let done = host.rewind(RunConfig::thread(thread.as_str()), rewind).await;
        prose::invocation(shell, &host, &thread, done).await
    };
    let said = said.await;
    host.close().await;
    said
}
