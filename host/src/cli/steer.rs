//! `holdpoint steer`: a word to a run that waits or goes on.

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::prose;
use crate::model::{ResumeTarget, RunConfig, RunId, TaskId, ThreadId};

pub const ABOUT: &str = "\
Tell a run something while it waits or goes on.

It is no answer: what is pending stays pending. The run's nodes see it, with all that was said before, when
they next look for instructions. To say something beside an answer, use `resume --steer`.

    holdpoint steer --thread support-123 --as maria 'Keep it short.'

With --run or --task it is for one run of the tree, as `pending` shows them, or for one of its tasks.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread of the run
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// Only for this run, and those below it
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,

    /// Only for this task
    #[arg(long, value_name = "ID", requires = "run")]
    task: Option<TaskId>,

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
    let done = match args.run {
        None => host.steer(config, &args.actor, &args.text).await,
        Some(run) => {
            let target = ResumeTarget { task_id: args.task, ..ResumeTarget::run(run) };
            host.steer_targeted(target, &args.actor, &args.text).await
        }
    };
    let noted = done.is_ok();
    let said = prose::invocation(shell, &host, &args.thread, done).await;
    host.close().await;
    // What was asked for was done, however the run stands.
    said.map(|said| if noted { Said { exit: Exit::Completed, ..said } } else { said })
}
