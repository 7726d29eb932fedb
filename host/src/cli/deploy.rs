//! `holdpoint deploy`: a graph file, with all that it names, to a service that runs.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::bundle::{Bundle, GraphOfFile};
use super::document::{Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::service::{KEY_VARIABLE, Service, Speaking};
use super::stop::Signals;
use super::{Shell, quoted};
use crate::model::{Digest, GraphSpec};

pub const ABOUT: &str = "\
Bring a graph and all that it names to a running service, and put it there under its name.

The graph file is read as `run` reads it: components and subgraphs by path are found from its folder. A component
is sent once, and only if the service has not got it; a subgraph is deployed before what contains it, under its own
name. What is named by a digest must be there already. Runs that are on their way stay with the graph that they
began with.

A service that asks for a key finds it in the variable HOLDPOINT_KEY, since arguments can be read by everybody on
this machine. The key needs the scope `deploy`. It goes over https, or to this machine; to another one over
http only with --insecure-http. No redirect is followed, and no proxy is used.

    holdpoint deploy guests/issue-desk.toml
    export HOLDPOINT_KEY=$(cat key)
    holdpoint deploy desk.toml --url https://holdpoint.example --name desk";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The graph: a TOML file
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,

    /// The service
    #[arg(long, env = "HOLDPOINT_URL", value_name = "URL", default_value = "http://127.0.0.1:2024")]
    url: String,

    /// What to deploy it as [default: the graph's own name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Send the key over http to another machine too, where whoever stands between can read it
    #[arg(long)]
    insecure_http: bool,

    /// How long each request may take [default: a minute; 16 minutes for a component, which is compiled]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: Option<u64>,
}

/// What the service says of a graph that it has taken.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Deployed {
    name: String,
    digest: Digest,
    version: u32,
    assistant_id: String,
    #[serde(default)]
    withheld: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Sent {
    file: String,
    digest: Digest,
    bytes: usize,
    uploaded: bool,
}

const STOPPED: &str = "stopped; what the service has taken stays, and the same command goes on from there";

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let mut signals = Signals::listen()?;
    tokio::select! {
        deployed = deploy(args, shell) => deployed,
        () = signals.next() => Err(Failure::Stopped(STOPPED)),
    }
}

async fn deploy(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let speaking =
        Speaking { insecure_http: args.insecure_http, timeout: args.timeout_ms.map(Duration::from_millis) };
    let key = std::env::var_os(KEY_VARIABLE).map(|key| key.to_string_lossy().into_owned());
    let service = Service::at(&args.url, key, &speaking)?;
    let Args { graph, name, .. } = args;
    let read = tokio::task::spawn_blocking(move || Bundle::read(&graph, name.as_deref())).await;
    let bundle = read.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    shell.screen.busy("asking the service");
    service.is_holdpoint().await?;
    let components = send(&bundle, &service, shell).await?;
    let mut deployed: Vec<Deployed> = Vec::new();
    for graph in &bundle.graphs {
        shell.screen.busy(format!("deploying {}", graph.name));
        let spec = pinned(graph, &deployed);
        deployed.push(service.deploy(&graph.file, &graph.name, &spec).await?);
    }
    // A bundle has the graph that was asked for, after all others.
    let (Some(graph), Some(own)) = (deployed.pop(), bundle.graphs.last()) else {
        return Err(Failure::argument("there is no graph to deploy"));
    };
    let next = Next::of(&graph.name, &own.spec, &service);
    let text = text(&graph, &deployed, &next);
    let mut document = json!(graph);
    document["url"] = json!(service.url(&["graphs", &graph.name]).as_str());
    document["subgraphs"] = json!(deployed);
    document["components"] = json!(components);
    document["next"] = json!({ "method": "POST", "url": next.url, "body": next.body });
    Ok(Said::new(Exit::Completed, &document, text))
}

/// Each component that the service has not got.
async fn send(bundle: &Bundle, service: &Service, shell: &Shell) -> Result<Vec<Sent>, Failure> {
    let mut sent = Vec::new();
    for component in &bundle.components {
        let file = component.file.display().to_string();
        let shown = harmless(&file).into_owned();
        let size = indicatif::DecimalBytes(component.bytes as u64);
        shell.screen.busy(format!("asking for {shown}"));
        let uploaded = !service.has_component(component.digest).await?;
        if uploaded {
            shell.screen.busy(format!("uploading {shown} ({size})"));
            service.upload(&file, component.digest, component.read()?).await?;
        }
        let became = if uploaded { "uploaded" } else { "there already" };
        shell.screen.line(&format!("{shown}  {size}  {became}"));
        sent.push(Sent { file, digest: component.digest, bytes: component.bytes, uploaded });
    }
    Ok(sent)
}

/// The graph with the digests of those below it, which are deployed.
fn pinned(graph: &GraphOfFile, deployed: &[Deployed]) -> GraphSpec {
    let mut spec = graph.spec.clone();
    for (node, below) in &graph.below {
        if let Some(of) = spec.nodes.get_mut(node) {
            of.graph = deployed.get(*below).map(|below| below.digest.to_string());
        }
    }
    spec
}

/// The request that starts a run.
struct Next {
    url: String,
    body: Value,
    command: String,
    takes_key: bool,
}

impl Next {
    fn of(name: &str, graph: &GraphSpec, service: &Service) -> Self {
        let url = service.url(&["threads", "THREAD", "runs", "wait"]).to_string();
        let input: Map<String, Value> = inputs(graph).into_iter().map(|name| (name, json!("…"))).collect();
        let body = json!({ "assistant_id": name, "input": input, "if_not_exists": "create" });
        let request =
            format!("-H 'content-type: application/json' -d {} {}", quoted(&body.to_string()), quoted(&url));
        // As an argument of curl's everybody on this machine could read it.
        let command = match service.has_key() {
            true => format!("printf 'x-api-key: %s' \"${KEY_VARIABLE}\" | curl -H @- {request}"),
            false => format!("curl {request}"),
        };
        Self { url, body, command, takes_key: service.has_key() }
    }
}

/// Channels that nodes read and none writes: what a run has to be given.
fn inputs(graph: &GraphSpec) -> Vec<String> {
    let channels = |of: fn(&crate::model::NodeSpec) -> &crate::model::Names| {
        let pairs = graph.nodes.values().flat_map(move |node| of(node).pairs());
        pairs.map(|(_, channel)| channel.to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let (read, written) = (channels(|node| &node.reads), channels(|node| &node.writes));
    read.difference(&written).cloned().collect()
}

fn text(graph: &Deployed, below: &[Deployed], next: &Next) -> String {
    let mut text = format!("deployed {}  version {}\n", harmless(&graph.name), graph.version);
    text.push_str(&format!("    digest     {}\n", graph.digest));
    text.push_str(&format!("    assistant  {}\n", harmless(&graph.assistant_id)));
    for below in below {
        let name = harmless(&below.name);
        text.push_str(&format!("    subgraph   {name}  version {}  {}\n", below.version, below.digest));
    }
    for of in below.iter().chain([graph]) {
        for withheld in &of.withheld {
            text.push_str(&format!("note: {}: {}\n", harmless(&of.name), harmless(withheld)));
        }
    }
    let how = if next.takes_key { format!(", with {KEY_VARIABLE} exported,") } else { String::new() };
    text.push_str(&format!("\nstart a run{how} with\n    {}\n", harmless(&next.command)));
    text
}
