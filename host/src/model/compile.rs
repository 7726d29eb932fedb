//! From a graph as written to one that can be run: everything that can be checked before a run.
//!
//! A [`CompiledGraph`] cannot be built unchecked, and its digest names it and its components.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::channel::Reducer;
use super::graph::{
    AuthSpec, EffectMode, EffectSpec, GraphSpec, HttpSpec, Names, NodeSpec, RetrySpec, is_secret_name,
};
use super::ids::{ChannelName, Digest, EffectName, NodeId, is_line};
use super::json::{Json, JsonBounds};
use super::limits::NodeLimits;

/// What a component says it needs, in its own names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub name: String,
    pub version: String,
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
    pub routes: BTreeSet<String>,
    pub effects: BTreeSet<String>,
}

/// A graph that can be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompiledGraph {
    pub name: String,
    pub entry: Vec<NodeId>,
    pub channels: BTreeMap<ChannelName, Reducer>,
    pub nodes: BTreeMap<NodeId, CompiledNode>,
    pub edges: Vec<CompiledEdge>,
    pub effects: BTreeMap<EffectName, CompiledEffect>,
    /// Its digest, once somebody asked for it.
    #[serde(skip)]
    pub(crate) named: Named,
}

/// Known or not, it says nothing that the rest of a graph does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named(OnceLock<Digest>);

impl PartialEq for Named {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledNode {
    pub work: Work,
    /// From the node's own names to channels; those of a subgraph are its channels.
    pub reads: BTreeMap<String, ChannelName>,
    pub writes: BTreeMap<String, ChannelName>,
    /// From labels to nodes; `None` is the end.
    pub routes: BTreeMap<String, Option<NodeId>>,
    /// From the node's own names to the graph's effects.
    pub effects: BTreeMap<String, EffectName>,
    /// Stop before the node runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt_before: bool,
    /// Stop before the node's update counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt_after: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// Takes what went wrong when this node has failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<NodeId>,
    /// Each is narrower than its tenant's was when the graph was compiled.
    #[serde(default, skip_serializing_if = "NodeLimits::is_empty")]
    pub limits: NodeLimits,
}

/// What a node's tasks are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    Component(Digest),
    /// A child run of this graph.
    Subgraph {
        graph: Digest,
        /// The sub-agent's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
}

impl Work {
    /// Of the component or of the graph.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Component(digest) | Self::Subgraph { graph: digest, .. } => *digest,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledEdge {
    pub from: Vec<NodeId>,
    /// `None` is the end.
    pub to: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledEffect {
    pub http: Option<HttpSpec>,
    pub mode: EffectMode,
    pub approve: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
}

/// A fault in a graph, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("graph {graph}: {at}: {what}")]
pub struct CompileError {
    pub graph: String,
    /// The path in the file, such as `nodes.pay.routes.done`.
    pub at: String,
    pub what: String,
}

impl CompiledGraph {
    /// `components`: for each of the spec's nodes that has one, the digest of its component and what that
    /// component declares. `subgraphs`: likewise, the graph and its digest.
    pub fn compile(
        spec: &GraphSpec,
        components: &BTreeMap<String, (Digest, NodeInfo)>,
        subgraphs: &BTreeMap<String, (Digest, Arc<CompiledGraph>)>,
    ) -> Result<Self, CompileError> {
        Compiler { spec, components, subgraphs }.compile()
    }

    /// Names this graph and, through their digests, its components.
    pub fn digest(&self) -> Digest {
        *self.named.0.get_or_init(|| Digest::of(self.to_json().as_str().as_bytes()))
    }

    pub fn to_json(&self) -> Json {
        let text = serde_json::to_string(self).unwrap_or_default();
        // Every part serialises to plain JSON of a fixed depth.
        Json::parse(&text, JsonBounds::TRUSTED).unwrap_or_else(|_| Json::null())
    }

    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn node(&self, node: &NodeId) -> Option<&CompiledNode> {
        self.nodes.get(node)
    }
}

struct Compiler<'a> {
    spec: &'a GraphSpec,
    components: &'a BTreeMap<String, (Digest, NodeInfo)>,
    subgraphs: &'a BTreeMap<String, (Digest, Arc<CompiledGraph>)>,
}

impl Compiler<'_> {
    fn compile(&self) -> Result<CompiledGraph, CompileError> {
        let spec = self.spec;
        if spec.name.is_empty() {
            return Err(self.error("name", "a graph needs a name"));
        }
        if spec.nodes.is_empty() {
            return Err(self.error("nodes", "a graph needs a node: [nodes.NAME]"));
        }
        let mut channels = BTreeMap::new();
        for (name, channel) in &spec.channels {
            let at = format!("channels.{name}");
            let name = ChannelName::parse(name.clone()).map_err(|e| self.error(&at, e))?;
            channels.insert(name, channel.reducer);
        }
        let mut effects = BTreeMap::new();
        for (name, effect) in &spec.effects {
            let at = format!("effects.{name}");
            let name = EffectName::parse(name.clone()).map_err(|e| self.error(&at, e))?;
            effects.insert(name, self.effect(&at, effect)?);
        }
        let mut nodes = BTreeMap::new();
        for (name, node) in &spec.nodes {
            let at = format!("nodes.{name}");
            let id = NodeId::parse(name.clone()).map_err(|e| self.error(&at, e))?;
            nodes.insert(id, self.node(&at, name, node)?);
        }
        let mut entry = Vec::new();
        for name in spec.entry.as_slice() {
            let id = self.node_named("entry", name)?;
            if entry.contains(&id) {
                return Err(self.error("entry", format!("{name} stands twice")));
            }
            entry.push(id);
        }
        if entry.is_empty() {
            return Err(self.error("entry", "no node runs first"));
        }
        let (mut edges, mut known) = (Vec::new(), BTreeSet::new());
        for (i, edge) in spec.edges.iter().enumerate() {
            let at = format!("edges[{i}]");
            let mut from = Vec::new();
            for name in edge.from.as_slice() {
                let id = self.node_named(&format!("{at}.from"), name)?;
                if from.contains(&id) {
                    return Err(self.error(&at, format!("{name} stands twice in from")));
                }
                from.push(id);
            }
            if from.is_empty() {
                return Err(self.error(&at, "from names no node"));
            }
            let to = self.target(&format!("{at}.to"), &edge.to)?;
            if !known.insert((from.clone(), to.clone())) {
                return Err(self.error(&at, "the same edge stands twice"));
            }
            edges.push(CompiledEdge { from, to });
        }
        let named = Named::default();
        let graph = CompiledGraph { name: spec.name.clone(), entry, channels, nodes, edges, effects, named };
        self.reachable(&graph)?;
        self.entry_writers(&graph)?;
        Ok(graph)
    }

    fn node(&self, at: &str, name: &str, node: &NodeSpec) -> Result<CompiledNode, CompileError> {
        let (work, info) = self.work(at, name, node)?;
        let what = match &work {
            Work::Component(_) => format!("the component {} {}", info.name, info.version),
            Work::Subgraph { .. } => format!("the graph {}", info.name),
        };
        let declared = |kind: &'static str, names: &Names, declared: &BTreeSet<String>| {
            let mut seen = BTreeSet::new();
            for (own, _) in names.pairs() {
                if !seen.insert(own) {
                    return Err(self.error(&format!("{at}.{kind}"), format!("{own} stands twice")));
                }
                if !declared.contains(own) {
                    return Err(self.error(
                        &format!("{at}.{kind}.{own}"),
                        format!(
                            "{what} does not declare {own:?} there; it declares {}",
                            listed(declared.iter())
                        ),
                    ));
                }
            }
            Ok(())
        };
        declared("reads", &node.reads, &info.reads)?;
        declared("writes", &node.writes, &info.writes)?;
        declared("routes", &node.routes, &info.routes)?;
        declared("effects", &node.effects, &info.effects)?;
        let channels = |kind: &str, names: &Names| {
            let mut map = BTreeMap::new();
            for (own, channel) in names.pairs() {
                let at = format!("{at}.{kind}.{own}");
                if !self.spec.channels.contains_key(channel) {
                    return Err(self.error(
                        &at,
                        format!(
                            "no channel is named {channel:?}; there are {}",
                            listed(self.spec.channels.keys())
                        ),
                    ));
                }
                map.insert(own.to_owned(), ChannelName::parse(channel).map_err(|e| self.error(&at, e))?);
            }
            Ok(map)
        };
        let writes: BTreeMap<String, ChannelName> = channels("writes", &node.writes)?;
        let mut targets = BTreeMap::new();
        for (own, channel) in &writes {
            if let Some(other) = targets.insert(channel, own) {
                return Err(self.error(
                    &format!("{at}.writes"),
                    format!("{other:?} and {own:?} both write the channel {channel}"),
                ));
            }
        }
        let mut routes = BTreeMap::new();
        for (label, target) in node.routes.pairs() {
            let target = self.target(&format!("{at}.routes.{label}"), target)?;
            routes.insert(label.to_owned(), target);
        }
        let mut effects = BTreeMap::new();
        for (own, effect) in node.effects.pairs() {
            let at = format!("{at}.effects.{own}");
            if !self.spec.effects.contains_key(effect) {
                return Err(self.error(
                    &at,
                    format!("no effect is named {effect:?}; there are {}", listed(self.spec.effects.keys())),
                ));
            }
            effects.insert(own.to_owned(), EffectName::parse(effect).map_err(|e| self.error(&at, e))?);
        }
        let on_error = match &node.on_error {
            None => None,
            Some(handler) if handler == name => {
                let what = "a node cannot take its own failure; name another one";
                return Err(self.error(&format!("{at}.on_error"), what));
            }
            Some(handler) => Some(self.node_named(&format!("{at}.on_error"), handler)?),
        };
        if let Some(retry) = &node.retry {
            let at = format!("{at}.retry");
            if !(1..=RetrySpec::ATTEMPTS_MAX).contains(&retry.attempts) {
                let what = format!(
                    "attempts is {}; it counts from 1 to {}",
                    retry.attempts,
                    RetrySpec::ATTEMPTS_MAX
                );
                return Err(self.error(&at, what));
            }
            if retry.backoff_ms > RetrySpec::BACKOFF_MS_MAX {
                let what =
                    format!("backoff_ms is {}; at most {}", retry.backoff_ms, RetrySpec::BACKOFF_MS_MAX);
                return Err(self.error(&at, what));
            }
            if matches!(work, Work::Subgraph { .. }) {
                let what = "a subgraph is not tried again as a whole; give its nodes a retry of their own";
                return Err(self.error(&at, what));
            }
        }
        Ok(CompiledNode {
            work,
            reads: channels("reads", &node.reads)?,
            writes,
            routes,
            effects,
            interrupt_before: node.interrupt_before,
            interrupt_after: node.interrupt_after,
            retry: node.retry,
            on_error,
            limits: node.limits.clone(),
        })
    }

    /// What the node's tasks are, and the names that this declares. A subgraph reads and writes its channels,
    /// takes no route, and has effects of its own.
    fn work(&self, at: &str, name: &str, node: &NodeSpec) -> Result<(Work, NodeInfo), CompileError> {
        if node.component.is_some() && node.graph.is_some() {
            return Err(self.error(at, "a node has either a component or a graph, not both"));
        }
        if let Some((graph, subgraph)) = self.subgraphs.get(name) {
            let channels: BTreeSet<String> = subgraph.channels.keys().map(ToString::to_string).collect();
            let info = NodeInfo {
                name: subgraph.name.clone(),
                reads: channels.clone(),
                writes: channels,
                ..NodeInfo::default()
            };
            if let Some(agent) = node.agent.as_ref().filter(|agent| !is_line(agent)) {
                let what = format!("{agent:?} is no name: 1 to 255 bytes without control characters");
                return Err(self.error(&format!("{at}.agent"), what));
            }
            return Ok((Work::Subgraph { graph: *graph, agent: node.agent.clone() }, info));
        }
        if node.agent.is_some() {
            return Err(self.error(&format!("{at}.agent"), "an agent is a subgraph: the node needs a graph"));
        }
        match self.components.get(name) {
            Some((component, info)) => Ok((Work::Component(*component), info.clone())),
            None => {
                let what = "a node needs a component or a graph: component = \"PATH or sha256:…\", or \
                            graph = \"PATH\"";
                Err(self.error(at, what))
            }
        }
    }

    fn effect(&self, at: &str, effect: &EffectSpec) -> Result<CompiledEffect, CompileError> {
        if let Some(http) = &effect.http {
            let known = ["GET", "POST", "PUT", "PATCH", "DELETE"];
            if !known.contains(&http.method.as_str()) {
                return Err(self.error(
                    &format!("{at}.http.method"),
                    format!("{:?} is not one of {}", http.method, known.join(", ")),
                ));
            }
            let auth = http.auth.as_ref().map(|auth| self.auth(at, auth)).transpose()?;
            let is_own = |name: &str| {
                OWN_HEADERS.contains(&name) || auth.as_ref().is_some_and(|header| header == name)
            };
            if let Some(header) = http.headers.keys().find(|name| is_own(&name.to_ascii_lowercase())) {
                return Err(self.error(
                    &format!("{at}.http.headers.{header}"),
                    "the host sets this header itself; leave it out",
                ));
            }
            if !http.url.starts_with("http://") && !http.url.starts_with("https://") {
                return Err(self.error(&format!("{at}.http.url"), "a URL starts with https:// or http://"));
            }
            if let Some(timeout_ms) = http.timeout_ms
                && !(1..=TIMEOUT_MS_MAX).contains(&timeout_ms)
            {
                let what = format!("{timeout_ms} is not within 1 to {TIMEOUT_MS_MAX}");
                return Err(self.error(&format!("{at}.http.timeout_ms"), what));
            }
        }
        if let Some(retry) = &effect.retry {
            self.resending(&format!("{at}.retry"), effect, *retry)?;
        }
        Ok(CompiledEffect {
            http: effect.http.clone(),
            mode: effect.mode,
            approve: effect.approve,
            retry: effect.retry,
        })
    }

    /// The header, in lower case, that the secret goes out in.
    fn auth(&self, at: &str, auth: &AuthSpec) -> Result<String, CompileError> {
        if !is_secret_name(&auth.secret) {
            // Somebody may have written the secret itself here; it is not said again.
            let what = "it is the name of a secret, not the secret: 1 to 64 of a to z, 0 to 9 and '-'";
            return Err(self.error(&format!("{at}.http.auth.secret"), what));
        }
        let header = auth.header.as_deref().unwrap_or("authorization").to_ascii_lowercase();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_header = (1..=64).contains(&header.len()) && header.bytes().all(is_allowed);
        if !is_header || OWN_HEADERS.contains(&header.as_str()) {
            let what = "a header such as X-Api-Key, and none of those that the host sets itself";
            return Err(self.error(&format!("{at}.http.auth.header"), what));
        }
        Ok(header)
    }

    fn resending(&self, at: &str, effect: &EffectSpec, retry: RetrySpec) -> Result<(), CompileError> {
        let what = if effect.http.is_none() {
            "only an http effect is sent again by the host; a handler of the embedder sees to that itself"
                .into()
        } else if effect.mode == EffectMode::AtMostOnce {
            "an effect that is at-most-once is never sent again; leave retry out, or make it at-least-once"
                .into()
        } else if !(1..=SENDINGS_MAX).contains(&retry.attempts) {
            format!("attempts is {}; it counts from 1 to {SENDINGS_MAX}", retry.attempts)
        } else if retry.backoff_ms > RESEND_MS_MAX {
            format!(
                "backoff_ms is {}; at most {RESEND_MS_MAX}, since the node waits meanwhile",
                retry.backoff_ms
            )
        } else {
            return Ok(());
        };
        Err(self.error(at, what))
    }

    fn target(&self, at: &str, name: &str) -> Result<Option<NodeId>, CompileError> {
        if name == "end" {
            return Ok(None);
        }
        self.node_named(at, name).map(Some)
    }

    fn node_named(&self, at: &str, name: &str) -> Result<NodeId, CompileError> {
        if !self.spec.nodes.contains_key(name) {
            return Err(self.error(
                at,
                format!("no node is named {name:?}; there are {}", listed(self.spec.nodes.keys())),
            ));
        }
        NodeId::parse(name).map_err(|e| self.error(at, e))
    }

    fn reachable(&self, graph: &CompiledGraph) -> Result<(), CompileError> {
        let mut onward: BTreeMap<&NodeId, Vec<usize>> = BTreeMap::new();
        for (i, edge) in graph.edges.iter().enumerate() {
            for from in &edge.from {
                onward.entry(from).or_default().push(i);
            }
        }
        // How many nodes each edge still waits for.
        let mut awaited: Vec<usize> = graph.edges.iter().map(|edge| edge.from.len()).collect();
        let mut reached: BTreeSet<&NodeId> = BTreeSet::new();
        let mut open: Vec<&NodeId> = graph.entry.iter().collect();
        while let Some(id) = open.pop() {
            let Some(node) = graph.nodes.get(id).filter(|_| reached.insert(id)) else { continue };
            open.extend(node.routes.values().chain([&node.on_error]).flatten());
            for &i in onward.get(id).into_iter().flatten() {
                awaited[i] -= 1;
                if awaited[i] == 0 {
                    open.extend(&graph.edges[i].to);
                }
            }
        }
        match graph.nodes.keys().find(|node| !reached.contains(node)) {
            None => Ok(()),
            Some(node) => {
                Err(self.error(&format!("nodes.{node}"), "no edge or route leads here from the entry"))
            }
        }
    }

    /// The only step whose tasks are known before a run.
    fn entry_writers(&self, graph: &CompiledGraph) -> Result<(), CompileError> {
        let mut writer: BTreeMap<&ChannelName, &NodeId> = BTreeMap::new();
        for id in &graph.entry {
            for channel in graph.nodes[id].writes.values() {
                if graph.channels.get(channel) != Some(&Reducer::Replace) {
                    continue;
                }
                if let Some(other) = writer.insert(channel, id) {
                    return Err(self.error(
                        "entry",
                        format!(
                            "{other} and {id} run in one step and both write the channel {channel}, whose \
                             reducer is replace; give it another reducer"
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn error(&self, at: &str, what: impl ToString) -> CompileError {
        CompileError { graph: self.spec.name.clone(), at: at.into(), what: what.to_string() }
    }
}

/// Those that the host sets, in lower case.
const OWN_HEADERS: [&str; 6] =
    ["idempotency-key", "host", "content-length", "content-type", "transfer-encoding", "connection"];
const TIMEOUT_MS_MAX: u64 = 600_000;
/// All sendings of an effect are within one attempt of its node, and so within its deadline.
const SENDINGS_MAX: u32 = 10;
const RESEND_MS_MAX: u64 = 10_000;

fn listed<T: std::fmt::Display>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<String> = names.map(|n| n.to_string()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> NodeInfo {
        let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
        NodeInfo {
            name: "n".into(),
            version: "1".into(),
            reads: names(&["x"]),
            writes: names(&["x", "y"]),
            routes: names(&["go"]),
            effects: names(&["pay"]),
        }
    }

    fn compiled(toml: &str) -> Result<CompiledGraph, CompileError> {
        let spec = GraphSpec::from_toml(toml).unwrap();
        let components = spec
            .nodes
            .iter()
            .filter(|(_, node)| node.component.is_some())
            .map(|(name, _)| (name.clone(), (Digest::of(b"c"), info())))
            .collect();
        CompiledGraph::compile(&spec, &components, &BTreeMap::new())
    }

    #[test]
    fn a_graph_keeps_its_digest_through_its_text() {
        let graph = compiled(
            "name = 'g'\nentry = 'a'\n[channels]\nc = { reducer = 'append' }\n\
             [nodes.a]\ncomponent = 'x'\nreads = { x = 'c' }\nroutes = { go = 'end' }",
        )
        .unwrap();
        let again = CompiledGraph::from_json(graph.to_json().as_str()).unwrap();
        assert_eq!(again, graph);
        assert_eq!(again.digest(), graph.digest());
    }

    #[test]
    fn faults_are_found_before_a_run_and_say_where() {
        for (toml, at, what) in [
            (
                "name = 'g'\nentry = 'b'\n[nodes.a]\ncomponent = 'x'",
                "entry",
                "no node is named \"b\"; there are a",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\nreads = ['x']",
                "nodes.a.reads.x",
                "no channel",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\nreads = ['q']",
                "nodes.a.reads.q",
                "does not declare",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\nroutes = { go = 'z' }",
                "nodes.a.routes.go",
                "no node",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\neffects = ['pay']",
                "nodes.a.effects.pay",
                "no effect",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[nodes.b]\ncomponent = 'x'",
                "nodes.b",
                "no edge or route",
            ),
            ("name = 'g'\nentry = 'a'\n[nodes.a]", "nodes.a", "needs a component"),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[effects.e]\n\
                 http = { url = 'https://x.example/', auth = { secret = 'S3cret/itself' } }",
                "effects.e.http.auth.secret",
                "the name of a secret",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[effects.e]\n\
                 http = { url = 'https://x.example/', auth = { secret = 's', header = 'Host' } }",
                "effects.e.http.auth.header",
                "X-Api-Key",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[effects.e]\n\
                 http = { url = 'https://x.example/', headers = { authorization = 'b' }, auth = { secret = 's' } }",
                "effects.e.http.headers.authorization",
                "the host sets",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[effects.e]\n\
                 mode = 'at-most-once'\nretry = { attempts = 2 }\nhttp = { url = 'https://x.example/' }",
                "effects.e.retry",
                "never sent again",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[effects.e]\nretry = { attempts = 2 }",
                "effects.e.retry",
                "only an http effect",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\n[effects.e]\n\
                 http = { url = 'https://x.example/', timeout_ms = 0 }",
                "effects.e.http.timeout_ms",
                "within 1 to",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\nagent = 'b'",
                "nodes.a.agent",
                "a subgraph",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\non_error = 'a'",
                "nodes.a.on_error",
                "name another one",
            ),
            (
                "name = 'g'\nentry = 'a'\n[nodes.a]\ncomponent = 'x'\nretry = { attempts = 0 }",
                "nodes.a.retry",
                "from 1 to 100",
            ),
            (
                "name = 'g'\nentry = ['a', 'b']\n[channels]\nc = { reducer = 'replace' }\n\
                 [nodes.a]\ncomponent = 'x'\nwrites = { x = 'c' }\n[nodes.b]\ncomponent = 'x'\nwrites = { x = 'c' }",
                "entry",
                "both write the channel c",
            ),
            (
                "name = 'g'\nentry = 'a'\n[channels]\nc = { reducer = 'sum' }\n\
                 [nodes.a]\ncomponent = 'x'\nwrites = { x = 'c', y = 'c' }",
                "nodes.a.writes",
                "both write",
            ),
        ] {
            let error = compiled(toml).unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.what.contains(what), "{error}");
        }
    }

    #[test]
    fn a_malformed_file_shows_line_and_column() {
        let error = GraphSpec::from_toml("name = 'g'\nentry = 'a'\n[channels]\nc = { reducer = 'concat' }")
            .unwrap_err();
        assert!(error.contains("line 4, column"), "{error}");
        assert!(error.contains("replace"), "{error}");
    }
}
