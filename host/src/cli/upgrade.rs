//! `holdpoint upgrade`: another graph for a run that waits.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::{Value, json};

use super::document::Said;
use super::failure::Failure;
use super::screen::harmless;
use super::show::Tree;
use super::stop::Stop;
use super::{Shell, prose, store, tenant};
use crate::engine::{Cut, Host, Upgrade};
use crate::model::checkpoint::TaskRow;
use crate::model::{Digest, GraphSpec, RunConfig, TaskId, ThreadId};

pub const ABOUT: &str = "\
Change the graph, and so the components, that a paused or failed run is pinned to.

First every unfinished task replays under the new graph what is on record of it. If one would do something
else, nothing is changed, and each difference is shown; exit status 4. With --cut a task's journal is dropped
from an entry on, and what the task asked or did from there it asks and does anew, under new ids.

What was changed, and which tasks replayed, stands before how the run stands.

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
        let before = Standing::of(&host, &args.thread).await.ok();
        let upgrade = Upgrade { cuts: args.cut.clone(), actor: args.actor };
        let done = host.upgrade(RunConfig::thread(args.thread.as_str()), &graph, upgrade).await;
        let is_done = done.is_ok();
        let said = prose::invocation(shell, &host, &args.thread, done).await?;
        match before.filter(|_| is_done) {
            Some(before) => {
                before.told(&host, &args.thread, (&spec.name, graph.digest()), &args.cut, said).await
            }
            None => Ok(said),
        }
    };
    let said = said.await;
    host.close().await;
    said
}

/// A run before its graph was changed: the graph, and the tasks that were not done.
struct Standing {
    name: String,
    graph: Digest,
    tasks: Vec<(String, TaskRow)>,
}

impl Standing {
    async fn of(host: &Host, thread: &ThreadId) -> Result<Self, Failure> {
        let run = host.execution(RunConfig::thread(thread.as_str())).await?.run_id;
        let tree = Tree::load(host, thread, run).await?;
        Ok(Self { name: tree.graph.clone(), graph: tree.run.graph, tasks: tree.unfinished() })
    }

    /// What was changed, before what came of the run.
    async fn told(
        self,
        host: &Host,
        thread: &ThreadId,
        (name, graph): (&str, Digest),
        cuts: &[Cut],
        said: Said,
    ) -> Result<Said, Failure> {
        let mut text = if graph == self.graph {
            format!("the graph {} stays what it was ({graph})\n", harmless(name))
        } else {
            format!(
                "changed {} ({})\n     to {} ({graph})\n",
                harmless(&self.name),
                self.graph,
                harmless(name)
            )
        };
        let mut tasks = Vec::new();
        for (path, was) in &self.tasks {
            let rows = store(host)?.tasks(&tenant(), thread, was.boundary).await?;
            let now = rows.iter().find(|row| row.task == was.task).map_or(was.component, |row| row.component);
            let cut = cuts.iter().find(|cut| cut.task == was.task).map(|cut| cut.entry);
            let what = match (was.child.is_some(), now == was.component, cut) {
                (_, _, Some(entry)) => {
                    format!("begins anew from entry {entry} of its journal; what is before it fits")
                }
                (true, ..) => "goes on below, under the graph that it has now".to_owned(),
                (false, true, None) => "has the component that it had, and fits".to_owned(),
                (false, false, None) => {
                    format!(
                        "replayed under {now}, and does again what is on record; it was {}",
                        was.component
                    )
                }
            };
            let _ = writeln!(text, "    {}  {what}", harmless(path));
            tasks.push(json!({
                "task_id": was.task, "node": path, "from": was.component, "to": now, "cut": cut,
            }));
        }
        let mut document: Value = serde_json::from_str(&said.document).unwrap_or_default();
        document["upgrade"] = json!({ "from": self.graph, "to": graph, "tasks": tasks });
        Ok(Said { document: document.to_string(), text: format!("{text}\n{}", said.text), ..said })
    }
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
