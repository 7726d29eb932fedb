//! `holdpoint state`: a thread's channels, to be looked at and to be set.

use serde_json::json;

use super::Shell;
use super::document::{Document, Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::stop::Stop;
use super::{input, prose};
use crate::engine::StateUpdate;
use crate::model::{Limits, RunConfig, ThreadId};

const GET_ABOUT: &str = "\
Print a thread's channels, as of the end of its latest step.

What finished tasks of a step that is still paused wrote is not in it: `show` lists that.

    holdpoint state get --thread support-123";

const SET_ABOUT: &str = "\
Write into a thread's channels, and go on from there.

VALUES is an object from channels to values; each goes through its channel's reducer, so that an `append` channel
takes an array of what is added. With --as-node it counts as what that node wrote: its edges are followed, and
if it waits for an answer, it is done with this. What other nodes of the step have finished is kept; what is
not done runs from the new state and asks again, under new ids. Effects that were done are not done again.

    holdpoint state set --thread support-123 '{\"decision\": \"approve\"}' --as-node triage";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print a thread's channels
    #[command(long_about = GET_ABOUT)]
    Get(Args),
    /// Write into a thread's channels
    #[command(long_about = SET_ABOUT)]
    Set(SetArgs),
}

#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// The values: an object from channels, as JSON, @FILE, or - for standard input
    #[arg(value_name = "VALUES")]
    values: String,

    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// The node that it counts for
    #[arg(long, value_name = "NODE")]
    as_node: Option<String>,

    /// Who sets it; recorded with what is withdrawn
    #[arg(long = "as", value_name = "WHO")]
    actor: Option<String>,
}

async fn set(args: SetArgs, shell: &Shell) -> Result<Said, Failure> {
    let limits = Limits::default();
    let values = input::json("VALUES", &args.values, &limits, ("state_bytes", limits.state_bytes))?.value();
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        let update =
            StateUpdate { values, as_node: args.as_node, actor: args.actor, ..StateUpdate::default() };
        let done = host.set_state(RunConfig::thread(args.thread.as_str()), update).await;
        prose::invocation(shell, &host, &args.thread, done).await
    };
    let said = said.await;
    host.close().await;
    said
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,
}

pub async fn run(command: Command, shell: &Shell) -> Result<Said, Failure> {
    let args = match command {
        Command::Get(args) => args,
        Command::Set(args) => return set(args, shell).await,
    };
    let host = shell.known_host().await?;
    let now = Document::now(&host, &args.thread).await?;
    host.close().await;
    let text = serde_json::to_string_pretty(&now.state).unwrap_or_default();
    let document = json!({
        "thread": now.thread,
        "run_id": now.run_id,
        "checkpoint_id": now.checkpoint_id,
        "status": now.status,
        "state": now.state,
    });
    Ok(Said::new(Exit::Completed, &document, format!("{}\n", harmless(&text))))
}
