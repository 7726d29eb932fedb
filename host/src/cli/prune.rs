//! `holdpoint prune`: what a thread no longer needs, dropped.

use serde_json::json;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::prose;
use crate::model::{RunConfig, ThreadId};

pub const ABOUT: &str = "\
Drop old checkpoints of a thread, with the tasks, journals and questions of those and the channel values that
only they hold.

All that going on takes is kept: the thread's state, what is pending, and its record of effects, so that none
is done twice. What is dropped cannot be forked from any more. Of each run, subgraphs included, the latest
boundaries are kept. The space is used again by the database; --vacuum gives it back to the file system,
which writes the whole file anew and keeps everybody else waiting.

    holdpoint prune --thread support-123 --keep 1 --vacuum";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// So many boundaries of each run are kept
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,

    /// Make the database's file as small as it can be
    #[arg(long)]
    vacuum: bool,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let Args { thread, keep, vacuum } = args;
    let host = shell.known_host().await?;
    let said = async {
        shell.screen.busy("pruning");
        let pruned = host.prune(RunConfig::thread(thread.as_str()), keep).await?;
        if vacuum {
            shell.screen.busy("writing the file anew");
            host.vacuum().await?;
        }
        let (checkpoints, tasks) = (pruned.checkpoints, pruned.tasks);
        let document = json!({
            "thread": thread,
            "kept": keep,
            "dropped": {
                "checkpoints": checkpoints, "tasks": tasks, "runs": pruned.runs, "values": pruned.values,
            },
            "vacuumed": vacuum,
        });
        let text = match checkpoints {
            0 => "there was nothing to drop\n".to_owned(),
            _ => {
                let what = [
                    (checkpoints, "checkpoint"),
                    (tasks, "task"),
                    (pruned.runs, "run"),
                    (pruned.values, "channel value"),
                ];
                let counted = what.map(|(count, noun)| prose::counted(count as usize, noun));
                format!("dropped {}\n", counted.join(", "))
            }
        };
        Ok(Said::new(Exit::Completed, &document, text))
    };
    let said = said.await;
    host.close().await;
    said
}
