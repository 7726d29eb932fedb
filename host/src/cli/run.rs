//! `holdpoint run`: a new run of a graph on a thread.

use std::path::PathBuf;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::stop::Stop;
use super::{input, prose};
use crate::engine::Host;
use crate::model::{GraphSpec, IfBusy, Json, RunConfig, RunId, ThreadId};

pub const ABOUT: &str = "\
Start a run of a graph on a thread.

The graph is checked, its components are compiled and kept in the database, and the run goes on until it
completes, fails, or asks a question. A question ends the command with exit status 3; the run waits in the
database, and the command that answers it is printed.

    holdpoint run graph.toml --thread support-123 --input '{\"ticket\": 7}'
    holdpoint run graph.toml --thread support-123 --input @ticket.json

A thread that waits for an answer, or that another process runs, takes no new input, unless --if-busy says what
becomes of what is there.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The graph: a TOML file
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,

    /// The name of the thread; a new name makes a new thread
    #[arg(long, value_name = "ID")]
    thread: ThreadId,

    /// An object from channels to values: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    input: String,

    /// Stop before this node runs; may be repeated
    #[arg(long, value_name = "NODE")]
    interrupt_before: Vec<String>,

    /// Hold this node's update back until somebody lets it pass; may be repeated
    #[arg(long, value_name = "NODE")]
    interrupt_after: Vec<String>,

    /// What becomes of the input if the thread is paused or running: refuse it, let it wait until the run is
    /// over, or call the run off
    #[arg(long, value_name = "POLICY", default_value = "refuse")]
    if_busy: Policy,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Policy {
    Refuse,
    Enqueue,
    Supersede,
}

impl From<Policy> for IfBusy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Refuse => Self::Refuse,
            Policy::Enqueue => Self::Enqueue,
            Policy::Supersede => Self::Supersede,
        }
    }
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    // Before the database is made: a mistake here should leave nothing behind.
    let spec = GraphSpec::from_file(&args.graph).map_err(crate::engine::EngineError::from)?;
    let limits = crate::model::Limits::default();
    let input = input::json("--input", &args.input, &limits, ("state_bytes", limits.state_bytes))?;
    let host = shell.host().await?;
    let config = RunConfig {
        thread: Some(args.thread.to_string()),
        interrupt_before: args.interrupt_before,
        interrupt_after: args.interrupt_after,
        if_busy: args.if_busy.into(),
        // Where the input waits, what is handed back is the run that it waits for, and not this one.
        run_id: Some(RunId::fresh()),
        ..RunConfig::default()
    };
    let said = start(shell, &host, (&args.thread, config), &spec, &input).await;
    host.close().await;
    said
}

async fn start(
    shell: &Shell,
    host: &Host,
    (thread, config): (&ThreadId, RunConfig),
    spec: &GraphSpec,
    input: &Json,
) -> Result<Said, Failure> {
    let mut stop = Stop::listen(host, &shell.screen)?;
    let graph = tokio::select! {
        graph = host.compile(spec) => graph?,
        () = stop.asked() => return Err(Failure::Stopped("stopped before the run began")),
    };
    for withheld in graph.withheld() {
        shell.screen.line(&format!("note: {withheld}"));
    }
    let run = config.run_id;
    let done = graph.invoke(config, input.value()).await;
    let waits = done.as_ref().is_ok_and(|execution| Some(execution.run_id) != run);
    let said = prose::invocation(shell, host, thread, done).await?;
    if !waits {
        return Ok(said);
    }
    shell.screen.line("the input waits until this run is over");
    Ok(Said { exit: Exit::Completed, ..said })
}
