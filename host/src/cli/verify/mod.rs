//! `holdpoint verify`: whether a node does again what it did.

mod inputs;
mod report;
mod roads;

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::{inspect, install, r#try};
use crate::engine::verify::Subject;
use crate::engine::{EngineError, Host};
use crate::model::{Digest, GraphSpec, Json, Limits, NodeId};
use inputs::Inputs;
use roads::{Road, Roads};

pub const ABOUT: &str = "\
Prove that a node does again what it did, which its resumes rely on.

The node is run without a database. Then it is replayed at every prefix of what it called, twice each, in
fresh instances; calls, outcome, output, fuel and memory must come out the same, and the first that does not
is shown with both sides. Nothing goes out: effects end as --effects says, questions are answered from
--answers. Of a graph every node that is a component is verified, with those channels of the input that it
reads.

    holdpoint verify refund --input '{\"amount\": 250}'
    holdpoint verify target/components/refund.wasm --input '{\"amount\": 250}' --answers '[\"refund\"]'
    holdpoint verify refund.toml --input @case.json --node refund

Without --answers a question is answered from its schema, and where that names a few answers (an enum, oneOf,
true or false) the node is verified with each of them, up to 12 ways.

The node is also run once as if it were activated again, on another day and with other random numbers: an
effect whose key is then another one is named, since it would be done again.

Questions count from 0, as in `try` and `show`.

Exit status: 0 it replays, 1 it differs, or the host could not carry an attempt to its end, 2 the input is
wrong, 5 a node failed on every way that was gone: before its first call nothing of it was verified, after it
what it does when it succeeds was not. With --failures, which ask for a failure, that is 0.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A graph's file (.toml), a node's folder, which is built first, a component's file, or the digest of an
    /// installed component
    #[arg(value_name = "GRAPH|NODE")]
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
    /// Nodes that failed on every way that was gone: they do so again, and nothing is known of how they succeed.
    pub failing: Vec<NodeId>,
    pub nodes: Vec<Node>,
}

/// What was found of one node.
#[derive(Debug, Serialize)]
pub struct Node {
    pub node: NodeId,
    pub component: Digest,
    /// On every way.
    pub replays: bool,
    #[serde(flatten)]
    pub first: Road,
    /// What other answers came to, where none were given.
    pub other_ways: Vec<Road>,
    /// How many more ways are known of, and were not gone.
    pub ways_left: usize,
    /// At which calls of the first way the key of an effect comes from the clock or a random number.
    pub keys_by_chance: Vec<usize>,
    /// What the node reads and was given nothing of.
    pub not_given: Vec<String>,
    /// How many of the given answers nobody asked for.
    pub answers_unused: usize,
    pub fuel_max: u64,
    pub took_ms: u64,
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
    let named = |which: fn(&Node) -> bool| -> Vec<NodeId> {
        nodes.iter().filter(|node| which(node)).map(|node| node.node.clone()).collect()
    };
    let (unverified, failing) = (named(Node::failed_at_once), named(Node::failed));
    // Whoever has an effect fail wants to see the node fail.
    let is_meant = args.failures.is_some();
    let is_whole = unverified.is_empty() && (failing.is_empty() || is_meant) && !nodes.is_empty();
    let exit = match (replays, is_whole) {
        (false, _) => Exit::Failed,
        (true, false) => Exit::Unverified,
        (true, true) => Exit::Completed,
    };
    let verified = Verified { target: args.target, replays, unverified, failing, nodes };
    Ok(Said::new(exit, &verified, report::text(&verified)))
}

impl Node {
    /// It does that again; but of what it does otherwise, nothing is known.
    fn failed_at_once(&self) -> bool {
        self.failed() && self.first.calls.is_empty()
    }

    /// Whatever it was told.
    fn failed(&self) -> bool {
        self.replays && self.first.failed() && self.other_ways.iter().all(Road::failed)
    }
}

async fn subjects(args: &Args, given: &Inputs, host: &Host, shell: &Shell) -> Result<Vec<Subject>, Failure> {
    shell.screen.busy("compiling");
    let folder = Path::new(&args.target);
    if folder.is_dir() && args.node.is_none() {
        let component = r#try::component(folder, shell).await?;
        let bytes = install::read(&component).await?;
        let name = component.display().to_string();
        return Ok(vec![host.subject(&name, bytes, &given.state, &given.outcomes).await?]);
    }
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
    let Roads { first, others, left, keys_by_chance } = roads::all(host, subject, given, shell).await?;
    let state = subject.state.value();
    let not_given = subject.reads.iter().filter(|name| state.get(name.as_str()).is_none());
    Ok(Node {
        node: subject.node.clone(),
        component: subject.component.digest(),
        replays: first.replays() && others.iter().all(Road::replays),
        not_given: not_given.cloned().collect(),
        answers_unused: given.map_or(0, |given| given.len().saturating_sub(first.answers.len())),
        first,
        other_ways: others,
        ways_left: left,
        keys_by_chance,
        fuel_max: subject.limits.fuel,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}
