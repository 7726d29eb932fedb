//! `holdpoint steer`: a word to a run that waits or goes on.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::prose;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Tell a run something while it waits or goes on.

It is no answer: what is pending stays pending. The run's nodes see it, with all that was said before, when
they next look for instructions. To say something beside an answer, use `resume --steer`.

    holdpoint steer --thread support-123 --as maria 'Keep it short.'";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread of the run
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// Who says it; shown to the node
    #[arg(long = "as", value_name = "WHO", default_value = "")]
    actor: String,

    /// What to say
    #[arg(value_name = "TEXT")]
    text: String,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.known_host().await?;
    let config = RunConfig::thread(args.thread.as_str());
    let done = host.steer(config, &args.actor, &args.text).await;
    let said = prose::invocation(shell, &host, &args.thread, done).await;
    host.close().await;
    said
}
