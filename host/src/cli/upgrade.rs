//! `holdpoint upgrade`: another graph for a run that waits.

use std::path::PathBuf;
use std::str::FromStr;

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::prose;
use super::stop::Stop;
use crate::engine::{Cut, Upgrade};
use crate::model::{GraphSpec, RunConfig, TaskId, ThreadId};

pub const ABOUT: &str = "\
Change the graph, and so the components, that a paused or failed run is pinned to.

First every unfinished task replays under the new graph what is on record of it. If one would do something
else, nothing is changed, and each difference is shown; exit status 4. With --cut a task's journal is dropped
from an entry on, and what the task asked or did from there it asks and does anew, under new ids.

    holdpoint upgrade --thread support-123 graph.toml
    holdpoint upgrade --thread support-123 graph.toml --cut 0b3f…:2";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The new graph: a TOML file
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,

    /// The thread of the run
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// Drop this task's journal from this entry on, counted from 0; may be repeated
    #[arg(long, value_name = "TASK:ENTRY", value_parser = cut)]
    cut: Vec<Cut>,

    /// Who changes it; recorded with what is withdrawn
    #[arg(long = "as", value_name = "WHO")]
    actor: Option<String>,
}

fn cut(text: &str) -> Result<Cut, String> {
    let (task, entry) =
        text.split_once(':').ok_or("it is a task's id, a colon, and the number of an entry")?;
    let task = TaskId::from_str(task).map_err(|error| error.to_string())?;
    let entry = entry.parse().map_err(|_| format!("{entry:?} is no number of an entry"))?;
    Ok(Cut { task, entry })
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let spec = GraphSpec::from_file(&args.graph).map_err(crate::engine::EngineError::from)?;
    let host = shell.known_host().await?;
    let said = async {
        let _stop = Stop::listen(&host, &shell.screen)?;
        let graph = host.compile(&spec).await?;
        let upgrade = Upgrade { cuts: args.cut, actor: args.actor };
        let done = host.upgrade(RunConfig::thread(args.thread.as_str()), &graph, upgrade).await;
        prose::invocation(shell, &host, &args.thread, done).await
    };
    let said = said.await;
    host.close().await;
    said
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_cut_names_a_task_and_an_entry() {
        let id = "0b3f5c62-7a04-5c59-9d1e-08f26c7a90d5";
        assert_eq!(cut(&format!("{id}:2")).unwrap().entry, 2);
        for wrong in ["", id, &format!("{id}:"), &format!("{id}:-1"), "7:1"] {
            assert!(cut(wrong).is_err(), "{wrong:?}");
        }
    }
}
