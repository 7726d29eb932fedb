//! `holdpoint state get`: a thread's channels.

use serde_json::json;

use super::Shell;
use super::document::{Document, Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use crate::model::ThreadId;

const GET_ABOUT: &str = "\
Print a thread's channels, as of the end of its latest step.

What finished tasks of a step that is still paused wrote is not in it: `show` lists that.

    holdpoint state get --thread support-123";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print a thread's channels
    #[command(long_about = GET_ABOUT)]
    Get(Args),
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,
}

pub async fn run(command: Command, shell: &Shell) -> Result<Said, Failure> {
    let Command::Get(args) = command;
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
