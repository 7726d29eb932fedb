//! `holdpoint verify`: whether a node does again what it did.

mod inputs;
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::inspect;
use crate::engine::verify::{Difference, Report, Subject, VerifyError, verify};
use crate::engine::{EngineError, Host};
use crate::model::{Digest, GraphSpec, Json, Limits, NodeId, Question};
use crate::sandbox::Output;
use inputs::{Answer, Inputs, made, taken};

pub const ABOUT: &str = "\
Prove that a node does again what it did, which its resumes rely on.

The node is run without a database. Then it is replayed at every prefix of what it called, twice each, in
fresh instances; calls, outcome, output, fuel and memory must come out the same, and the first that does not
is shown with both sides. Nothing goes out: effects end as --effects says, questions are answered from
--answers. Of a graph every node that is a component is verified, with those channels of the input that it
reads.

    holdpoint verify target/components/refund.wasm --input '{\"amount\": 250}' --answers '[\"refund\"]'
    holdpoint verify refund.toml --input @case.json --node refund

Questions count from 0, as in `try` and `show`.

Exit status: 0 it replays, 1 it differs, or the host could not carry an attempt to its end, 2 the input is
wrong, 5 a node failed before its first call, so that nothing of it was verified: give it the --input that it
reads.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A graph's file (.toml), a component's file, or the digest of an installed component
    #[arg(value_name = "GRAPH|COMPONENT")]
    target: String,

    /// Only this node of the graph
    #[arg(long, value_name = "NODE")]
    node: Option<String>,

    /// A graph's input, or what the component reads: JSON, @FILE, or - for standard input [default: {}]
    #[arg(long, value_name = "JSON")]
    input: Option<String>,

    /// The argument with which a `send` would start the node
    #[arg(long, value_name = "JSON")]
    arg: Option<String>,

    /// A list of answers, in the order in which a node asks; without it they are made from the question's
    /// schema, or are its default answer, or true
    #[arg(long, value_name = "JSON")]
    answers: Option<String>,

    /// What effects give back: an object from their names to values [default: null for each]
    #[arg(long, value_name = "JSON")]
    effects: Option<String>,

    /// What effects fail with: an object from their names to values
    #[arg(long, value_name = "JSON")]
    failures: Option<String>,
}

/// The whole of what was found.
#[derive(Debug, Serialize)]
pub struct Verified {
    pub target: String,
    pub replays: bool,
    /// Nodes of which nothing was verified: they failed before their first call.
    pub unverified: Vec<NodeId>,
    pub nodes: Vec<Node>,
}

/// What was found of one node.
#[derive(Debug, Serialize)]
pub struct Node {
    pub node: NodeId,
    pub component: Digest,
    pub replays: bool,
    pub calls: Vec<Value>,
    pub answers: Vec<Answer>,
    /// How many of the given answers nobody asked for.
    pub answers_unused: usize,
    pub outcome: Value,
    pub prefixes: usize,
    pub attempts: usize,
    pub fuel: u64,
    pub fuel_max: u64,
    pub memory_bytes: u64,
    pub output: Output,
    pub took_ms: u64,
    pub difference: Option<Difference>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let limits = Limits::default();
    let given = Inputs::read(&args, &limits)?;
    // Without a database: nothing is left behind but compiled forms.
    let host = shell.builder()?.limits(limits).open().await?;
    let mut subjects = subjects(&args, &given, &host, shell).await?;
    if let Some(name) = &args.node {
        subjects = only(subjects, name)?;
    }
    let mut nodes = Vec::new();
    for subject in subjects {
        let subject = Subject { arg: given.arg.clone(), ..subject };
        nodes.push(verified(&host, &subject, given.answers.as_deref(), shell).await?);
    }
    let replays = nodes.iter().all(|node| node.replays);
    let unverified: Vec<NodeId> =
        nodes.iter().filter(|node| node.failed_at_once()).map(|node| node.node.clone()).collect();
    let exit = match (replays, unverified.is_empty() && !nodes.is_empty()) {
        (false, _) => Exit::Failed,
        (true, false) => Exit::Unverified,
        (true, true) => Exit::Completed,
    };
    let verified = Verified { target: args.target, replays, unverified, nodes };
    Ok(Said::new(exit, &verified, report::text(&verified)))
}

impl Node {
    /// It does that again; but of what it does otherwise, nothing is known.
    fn failed_at_once(&self) -> bool {
        self.replays && self.calls.is_empty() && self.outcome.get("failed").is_some()
    }
}

async fn subjects(args: &Args, given: &Inputs, host: &Host, shell: &Shell) -> Result<Vec<Subject>, Failure> {
    shell.screen.busy("compiling");
    if !inspect::is_graph(&args.target) {
        if args.node.is_some() {
            return Err(Failure::argument(
                "--node names a node of a graph; a component by itself is verified without it",
            ));
        }
        let bytes = inspect::bytes_of(shell, &args.target).await?;
        return Ok(vec![host.subject(&args.target, bytes, &given.state, &given.outcomes).await?]);
    }
    let spec = GraphSpec::from_file(Path::new(&args.target)).map_err(EngineError::from)?;
    inspect::fetch(shell, host, &spec).await?;
    Ok(host.subjects(&spec, &given.state, &given.outcomes).await?)
}

fn only(subjects: Vec<Subject>, name: &str) -> Result<Vec<Subject>, Failure> {
    let known: Vec<String> = subjects.iter().map(|subject| subject.node.to_string()).collect();
    let only: Vec<Subject> = subjects.into_iter().filter(|subject| subject.node.as_str() == name).collect();
    if only.is_empty() {
        return Err(Failure::argument(format!(
            "--node: no node of the graph with a component is named {name:?}; there are {}",
            known.join(", ")
        )));
    }
    Ok(only)
}

async fn verified(
    host: &Host,
    subject: &Subject,
    given: Option<&[Json]>,
    shell: &Shell,
) -> Result<Node, Failure> {
    let began = Instant::now();
    let node = &subject.node;
    shell.screen.busy(format!("{node}: the first run"));
    let mut answers = Vec::new();
    let answer = |order: usize, question: &Question| {
        let answer = match given {
            Some(given) => taken(node, given, order, question)?,
            None => made(node, order, question)?,
        };
        answers.push(answer.clone());
        Ok(answer.answer)
    };
    let progress =
        |done: usize, of: usize| shell.screen.busy(format!("{node}: replaying prefix {} of {of}", done + 1));
    let report = verify(host.sandbox(), subject, answer, progress).await.map_err(|error| match error {
        VerifyError::Answer(message) => Failure::argument(message),
        VerifyError::CutShort(_) => Failure::Host(format!("node {node}: {error}")),
    })?;
    let unused = given.map_or(0, |given| given.len().saturating_sub(answers.len()));
    Ok(found(subject, report, answers, unused, began.elapsed()))
}

fn found(
    subject: &Subject,
    report: Report,
    answers: Vec<Answer>,
    answers_unused: usize,
    took: Duration,
) -> Node {
    let Report { journal, ended, prefixes, attempts, difference } = report;
    Node {
        node: subject.node.clone(),
        component: subject.component.digest(),
        replays: difference.is_none(),
        calls: journal.iter().map(|entry| serde_json::to_value(&entry.call).unwrap_or_default()).collect(),
        answers,
        answers_unused,
        outcome: ended.outcome.to_value(),
        prefixes,
        attempts,
        fuel: ended.fuel,
        fuel_max: subject.limits.fuel,
        memory_bytes: ended.memory_bytes,
        output: ended.output,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        difference,
    }
}
