//! `holdpoint inspect GRAPH`: for each node what it gets, what it does without, and what is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use futures::future::BoxFuture;
use serde::Serialize;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::inspect::{self, Inspection};
use super::{prose, screen::harmless};
use crate::engine::{EngineError, Host};
use crate::model::grants::{Granted, Grants};
use crate::model::{Digest, EffectMode, EffectSpec, ErrorRecord, GraphSpec, Names, NodeSpec};

#[derive(Debug, Serialize)]
struct GraphInspection {
    file: String,
    graph: String,
    /// `None`: it does not compile.
    digest: Option<Digest>,
    nodes: BTreeMap<String, NodeInspection>,
    effects: BTreeMap<String, EffectSpec>,
    /// Whether `run` would take it, on this host.
    runnable: bool,
    /// Why not: the first reason.
    error: Option<ErrorRecord>,
}

#[derive(Debug, Serialize)]
struct NodeInspection {
    component: Option<Inspection>,
    /// The file of the graph that this node is, if it is one, …
    graph: Option<String>,
    /// … and what there is to say of that.
    below: Option<Box<GraphInspection>>,
    #[serde(skip)]
    exchange: Exchange,
    /// `None`: what it declares is not known.
    grants: Option<Grants>,
    interrupt_before: bool,
    interrupt_after: bool,
    /// Why its component could not be looked at.
    error: Option<ErrorRecord>,
}

/// What goes into a subgraph and comes out, under its own names and this graph's.
#[derive(Debug, Default)]
struct Exchange {
    agent: Option<String>,
    reads: Vec<(String, String)>,
    writes: Vec<(String, String)>,
}

impl Exchange {
    fn of(node: &NodeSpec) -> Self {
        let pairs = |names: &Names| {
            names.pairs().into_iter().map(|(own, here)| (own.to_owned(), here.to_owned())).collect()
        };
        Self { agent: node.agent.clone(), reads: pairs(&node.reads), writes: pairs(&node.writes) }
    }
}

pub async fn run(file: &str, host: &Host, shell: &Shell) -> Result<Said, Failure> {
    let inspection = graph(file, &[], host, shell).await?;
    let exit = if inspection.runnable { Exit::Completed } else { Exit::Usage };
    Ok(Said::new(exit, &inspection, text(&inspection)))
}

fn graph<'a>(
    file: &'a str,
    above: &'a [&'a str],
    host: &'a Host,
    shell: &'a Shell,
) -> BoxFuture<'a, Result<GraphInspection, Failure>> {
    Box::pin(graph_at(file, above, host, shell))
}

async fn graph_at(
    file: &str,
    above: &[&str],
    host: &Host,
    shell: &Shell,
) -> Result<GraphInspection, Failure> {
    let above = [above, &[file]].concat();
    let spec = GraphSpec::from_file(Path::new(file)).map_err(EngineError::from)?;
    let mut nodes = BTreeMap::new();
    for (name, node) in &spec.nodes {
        nodes.insert(name.clone(), inspected(&spec, node, &above, (host, shell)).await?);
    }
    let (digest, error) = match host.compile(&spec).await {
        Ok(graph) => (Some(graph.digest()), None),
        Err(error) => (None, Some(refused(error)?)),
    };
    let is_sound = |node: &NodeInspection| {
        node.error.is_none()
            && node.component.as_ref().is_none_or(|component| component.installable)
            && node.below.as_ref().is_none_or(|below| below.runnable)
            && node.grants.as_ref().is_none_or(Grants::are_sound)
    };
    let runnable = error.is_none() && nodes.values().all(is_sound);
    let GraphSpec { name: graph, effects, .. } = spec;
    Ok(GraphInspection { file: file.into(), graph, digest, nodes, effects, runnable, error })
}

async fn inspected(
    graph: &GraphSpec,
    node: &NodeSpec,
    above: &[&str],
    (host, shell): (&Host, &Shell),
) -> Result<NodeInspection, Failure> {
    let mut inspection = NodeInspection {
        component: None,
        graph: node.graph.clone(),
        below: None,
        exchange: Exchange::of(node),
        grants: None,
        interrupt_before: node.interrupt_before,
        interrupt_after: node.interrupt_after,
        error: None,
    };
    if let Some(component) = &node.component {
        match inspect::bytes_of(shell, component).await {
            Ok(bytes) => {
                let component = inspect::inspect(host, component.clone(), bytes).await?;
                inspection.grants = component.declares.as_ref().map(|info| Grants::of(graph, node, info));
                inspection.component = Some(component);
            }
            Err(failure) => match failure.exit() {
                Exit::Usage | Exit::Refused => inspection.error = Some(failure.record()),
                _ => return Err(failure),
            },
        }
    }
    // One that contains itself is not looked into again; to compile it is refused.
    if let Some(file) = node.graph.as_ref().filter(|file| !file.starts_with("sha256:"))
        && !above.contains(&file.as_str())
        && above.len() < host.limits().subgraph_depth as usize
    {
        match self::graph(file, above, host, shell).await {
            Ok(below) => inspection.below = Some(Box::new(below)),
            Err(failure) => match failure.exit() {
                Exit::Usage | Exit::Refused => inspection.error = Some(failure.record()),
                _ => return Err(failure),
            },
        }
    }
    Ok(inspection)
}

/// Why the graph cannot be run; other errors are the host's own.
fn refused(error: EngineError) -> Result<ErrorRecord, Failure> {
    let failure = Failure::from(error);
    match failure.exit() {
        Exit::Usage | Exit::Refused => Ok(failure.record()),
        _ => Err(failure),
    }
}

fn text(inspection: &GraphInspection) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, inspection);
    text
}

fn write(text: &mut String, inspection: &GraphInspection) -> std::fmt::Result {
    let digest = inspection.digest.map(|digest| format!("  {digest}")).unwrap_or_default();
    writeln!(text, "{}{digest}", harmless(&inspection.graph))?;
    for (name, node) in &inspection.nodes {
        writeln!(text, "\n{}", harmless(name))?;
        if let Some(component) = &node.component {
            if let Some(info) = &component.declares {
                let declares = format!("{} {}  {}", info.name, info.version, component.component);
                writeln!(text, "    {}", harmless(&declares))?;
            }
            writeln!(text, "    {}\n    {}", component.digest, inspect::weighs(component))?;
            if let Some(error) = &component.error {
                writeln!(text, "    cannot be installed: {}", harmless(&error.message))?;
            }
        }
        if let Some(graph) = &node.graph {
            writeln!(text, "    a graph of its own: {}", harmless(graph))?;
            let Exchange { agent, reads, writes } = &node.exchange;
            if let Some(agent) = agent {
                writeln!(text, "    agent    {}", harmless(agent))?;
            }
            for (kind, arrow, names) in [("reads", "from", reads), ("writes", "to", writes)] {
                let names: Vec<String> = names.iter().map(|(own, here)| passed(own, arrow, here)).collect();
                let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                writeln!(text, "    {kind:<8} {}", harmless(&names))?;
            }
        }
        if let Some(error) = &node.error {
            writeln!(text, "    {}", harmless(&error.message))?;
        }
        if let Some(below) = &node.below {
            let mut inner = String::new();
            write(&mut inner, below)?;
            text.push_str(&prose::indented(&inner));
        }
        for (kind, granted) in node.grants.iter().flat_map(Grants::by_kind) {
            grant(text, kind, granted)?;
        }
        for (is_set, when) in [(node.interrupt_before, "before"), (node.interrupt_after, "after")] {
            if is_set {
                writeln!(text, "    stops    {when} it")?;
            }
        }
    }
    if !inspection.effects.is_empty() {
        writeln!(text, "\neffects")?;
    }
    for (name, effect) in &inspection.effects {
        writeln!(text, "    {}", harmless(&sent(name, effect)))?;
    }
    match &inspection.error {
        None if inspection.runnable => writeln!(text, "\ncan be run"),
        None => writeln!(text, "\ncannot be run: see above"),
        Some(error) => writeln!(text, "\ncannot be run: {}", harmless(&error.message)),
    }
}

fn grant(text: &mut String, kind: &str, granted: &Granted) -> std::fmt::Result {
    let arrow = if kind == "reads" { "from" } else { "to" };
    let names = granted.granted.iter().map(|(own, graph)| passed(own, arrow, graph));
    let names: Vec<String> = names.collect();
    let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    writeln!(text, "    {kind:<8} {}", harmless(&names))?;
    if !granted.withheld.is_empty() {
        let names = granted.withheld.join(", ");
        writeln!(text, "             declared and not granted: {}", harmless(&names))?;
    }
    for refused in &granted.refused {
        let line = format!("{}: {}", refused.name, refused.why);
        writeln!(text, "             refused: {}", harmless(&line))?;
    }
    Ok(())
}

/// A name of the node's own, and what it is called in the graph, where that is another.
fn passed(own: &str, arrow: &str, graph: &str) -> String {
    if own == graph { own.to_owned() } else { format!("{own} ({arrow} {graph})") }
}

fn sent(name: &str, effect: &EffectSpec) -> String {
    let how = match &effect.http {
        Some(http) => {
            let auth = http.auth.as_ref().map(|auth| format!(", with the secret {}", auth.secret));
            format!("{} {}{}", http.method, http.url, auth.unwrap_or_default())
        }
        None => "by a handler of the program that embeds the host".into(),
    };
    let mode = match effect.mode {
        EffectMode::AtLeastOnce => "at least once",
        EffectMode::AtMostOnce => "at most once",
    };
    let approve = if effect.approve { ", after a person approves" } else { "" };
    format!("{name}: {how}, {mode}{approve}")
}
