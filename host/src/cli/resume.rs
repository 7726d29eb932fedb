//! `holdpoint resume`: an answer, and what comes of it.

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use super::stop::Stop;
use super::{input, prose, store, tenant};
use crate::engine::Host;
use crate::model::{
    CheckpointId, Command, InterruptId, Limits, PendingChildren, ResumeTarget, RunConfig, RunId, TaskId,
    ThreadId,
};

pub const ABOUT: &str = "\
Answer a question, and go on with the run.

One VALUE answers the one question that is pending; where there are several, name one with --interrupt, or
answer several at once with --answers. The node that asked runs again from its beginning, and its question
returns VALUE. No graph is needed: the run is pinned to the one that it was started with.

    holdpoint resume --thread support-123 '{\"approved\": true}'
    holdpoint resume --thread support-123 '\"a string\"'
    holdpoint resume --thread support-123 --answers @answers.json     # {\"INTERRUPT ID\": VALUE, …}

An answer that comes too late, or fits nothing, changes nothing: exit status 4 says so, and what is pending
now is printed. With --interrupt, --expect or --request-id a command that is sent twice answers once.";

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("answer").required(true))]
#[command(group = clap::ArgGroup::new("whose").required(true).multiple(true))]
pub struct Args {
    /// The answer: JSON, @FILE, or - for standard input
    #[arg(value_name = "VALUE", group = "answer", allow_negative_numbers = true)]
    value: Option<String>,

    /// Several answers: an object from interrupt ids to answers, as JSON, @FILE, or -; gates take none, and are
    /// passed one by one with --proceed --interrupt ID
    #[arg(long, value_name = "JSON", group = "answer")]
    answers: Option<String>,

    /// Pass a gate, which asks nothing
    #[arg(long, group = "answer")]
    proceed: bool,

    /// The thread that asks
    #[arg(long, value_name = "ID", group = "whose")]
    thread: Option<ThreadId>,

    /// The question, by its id
    #[arg(long, value_name = "ID")]
    interrupt: Option<InterruptId>,

    /// Only within this run
    #[arg(long, value_name = "ID", group = "whose")]
    run: Option<RunId>,

    /// Only what this task asks
    #[arg(long, value_name = "ID")]
    task: Option<TaskId>,

    /// Only within this path of subgraph nodes, such as `supervisor/research`
    #[arg(long, value_name = "PATH")]
    namespace: Option<String>,

    /// Who answers; recorded with the answer
    #[arg(long = "as", value_name = "WHO")]
    actor: Option<String>,

    /// What to tell the node beside the answer; it is recorded apart from it
    #[arg(long, value_name = "TEXT")]
    steer: Option<String>,

    /// What becomes of what is pending in subgraphs of the run that is answered: leave, cancel, refuse, or
    /// resolve=JSON, which answers each
    #[arg(long, value_name = "POLICY", default_value = "leave")]
    pending_children: String,

    /// Refuse unless this is the thread's latest checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    expect: Option<CheckpointId>,

    /// A name for this request; sent again, it gets the first reply again
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let command = command(&args)?;
    let host = shell.known_host().await?;
    let said = answer(shell, &host, &args, command).await;
    host.close().await;
    said
}

async fn answer(shell: &Shell, host: &Host, args: &Args, command: Command) -> Result<Said, Failure> {
    let _stop = Stop::listen(host, &shell.screen)?;
    let thread = thread(host, args).await?;
    let done = match target(host, &thread, args).await {
        Ok(Some(target)) => host.resume_targeted(target, command).await,
        Ok(None) => host.resume(RunConfig::thread(thread.as_str()), command).await,
        Err(error) => Err(error),
    };
    prose::invocation(shell, host, &thread, done).await
}

fn command(args: &Args) -> Result<Command, Failure> {
    let limits = Limits::default();
    let command = match (&args.value, &args.answers) {
        (Some(value), _) => Command::resume(
            input::json("VALUE", value, &limits, ("answer_bytes", limits.answer_bytes))?.value(),
        ),
        (None, Some(map)) => {
            Command::answers(input::answers("--answers", map, &limits, ("state_bytes", limits.state_bytes))?)
        }
        (None, None) => Command::proceed(),
    };
    Ok(Command {
        actor: args.actor.clone(),
        steer: args.steer.clone(),
        expect_checkpoint: args.expect,
        request_id: args.request_id.clone(),
        pending_children: children(&args.pending_children, &limits)?,
        ..command
    })
}

fn children(policy: &str, limits: &Limits) -> Result<PendingChildren, Failure> {
    Ok(match policy {
        "leave" => PendingChildren::Leave,
        "cancel" => PendingChildren::Cancel,
        "refuse" => PendingChildren::Refuse,
        policy => match policy.strip_prefix("resolve=") {
            Some(value) => {
                let bound = ("answer_bytes", limits.answer_bytes);
                PendingChildren::Resolve(
                    input::json("--pending-children resolve", value, limits, bound)?.value(),
                )
            }
            None => {
                let what =
                    format!("--pending-children {policy}: it is leave, cancel, refuse, or resolve=JSON");
                return Err(Failure::argument(what));
            }
        },
    })
}

/// The thread that is named, or that the named run is of.
async fn thread(host: &Host, args: &Args) -> Result<ThreadId, Failure> {
    let of_run = match args.run {
        None => None,
        Some(run) => match store(host)?.run(&tenant(), run).await? {
            Some((thread, _)) => Some(thread),
            None => {
                return Err(Failure::NotThere(format!(
                    "there is no run {run}; `holdpoint pending` shows what waits"
                )));
            }
        },
    };
    match (of_run, &args.thread) {
        (Some(of_run), Some(named)) if of_run != *named => {
            let run = args.run.map(|run| run.to_string()).unwrap_or_default();
            Err(Failure::NotThere(format!("run {run} is of thread {of_run}, not of {named}")))
        }
        (Some(thread), _) => Ok(thread),
        (None, Some(thread)) => Ok(thread.clone()),
        // The groups of `Args` ask for one of them.
        (None, None) => Err(Failure::argument("name the thread: --thread ID")),
    }
}

/// `None`: whatever is pending on the thread.
async fn target(
    host: &Host,
    thread: &ThreadId,
    args: &Args,
) -> Result<Option<ResumeTarget>, crate::engine::EngineError> {
    let Args { interrupt, run, task, namespace, .. } = args;
    if interrupt.is_none() && run.is_none() && task.is_none() && namespace.is_none() {
        return Ok(None);
    }
    let run = match run {
        Some(run) => *run,
        None => host.execution(RunConfig::thread(thread.as_str())).await?.run_id,
    };
    let namespace = namespace.iter().flat_map(|path| path.split('/')).filter(|name| !name.is_empty());
    Ok(Some(ResumeTarget {
        run_id: run,
        task_id: *task,
        interrupt_id: *interrupt,
        namespace: namespace.map(str::to_owned).collect(),
    }))
}
