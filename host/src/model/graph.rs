//! The graph as its author writes it: a TOML file, or this value. Nothing in it is checked yet; see
//! [`super::compile`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::channel::Reducer;
use super::limits::NodeLimits;

/// A graph's nodes, edges, channels and effects, as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    pub name: String,
    /// The node or nodes that run first.
    pub entry: OneOrMany,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, ChannelSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, NodeSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<EdgeSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effects: BTreeMap<String, EffectSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl From<&str> for OneOrMany {
    fn from(one: &str) -> Self {
        Self::One(one.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    pub reducer: Reducer,
}

/// A list of names, or a table from the node's own names to the graph's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a list of names such as [\"x\"], or a table from the node's own names to the graph's"
)]
pub enum Names {
    Same(Vec<String>),
    Mapped(BTreeMap<String, String>),
}

impl Default for Names {
    fn default() -> Self {
        Self::Same(Vec::new())
    }
}

impl Names {
    /// Pairs of the node's own name and the graph's.
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Same(names) => names.iter().map(|n| (n.as_str(), n.as_str())).collect(),
            Self::Mapped(map) => map.iter().map(|(own, graph)| (own.as_str(), graph.as_str())).collect(),
        }
    }

    /// Only what a file that does not say it is read as may be left unwritten: `{}` is read as a table again.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A node: a component or a subgraph, and what the graph grants it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSpec {
    /// A path (from the graph file's folder) or the digest of an installed component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// A path to a graph file, or the digest of a graph that is kept: each activation is a child run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// The sub-agent's name, for a subgraph; shown with what it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Names::is_default")]
    pub reads: Names,
    #[serde(skip_serializing_if = "Names::is_default")]
    pub writes: Names,
    /// From the labels that the node's routes use to nodes of this graph, or `"end"`.
    #[serde(skip_serializing_if = "Names::is_default")]
    pub routes: Names,
    #[serde(skip_serializing_if = "Names::is_default")]
    pub effects: Names,
    /// Stop before the node runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupt_before: bool,
    /// Stop before the node's update counts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupt_after: bool,
    /// What follows when an attempt fails in a way that another may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// The node that is sent what went wrong, as `{"error": …, "node": …}`, when this one has failed for good;
    /// without it, the run fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<String>,
    /// Bounds that are narrower than its tenant's.
    #[serde(skip_serializing_if = "NodeLimits::is_empty")]
    pub limits: NodeLimits,
}

/// How often, and how soon, a node is tried again after a failure that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// All attempts, the first one included.
    pub attempts: u32,
    /// How long to wait before the second; each wait after it is twice as long, up to an hour.
    #[serde(default)]
    pub backoff_ms: u64,
}

impl RetrySpec {
    /// More would hide a fault rather than outlive one.
    pub const ATTEMPTS_MAX: u32 = 100;
    pub const BACKOFF_MS_MAX: u64 = 3_600_000;

    /// How long to wait after so many failures, if there is another attempt.
    pub fn wait_ms(&self, failures: u32) -> Option<u64> {
        let doubled = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        let wait = self.backoff_ms.saturating_mul(doubled).min(Self::BACKOFF_MS_MAX);
        (failures < self.attempts).then_some(wait)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeSpec {
    /// Several: wait for all of them.
    pub from: OneOrMany,
    /// A node, or `"end"`.
    pub to: String,
}

/// Something outside that the host does for nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EffectSpec {
    /// Send it as an HTTP request; without this, the embedder registers a handler of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSpec>,
    pub mode: EffectMode,
    /// Ask a person first, showing exactly what will be sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub approve: bool,
    /// Send it again, under the same key, after a failure that may pass; for HTTP that is sent at least once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    #[serde(default = "post")]
    pub method: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long one sending may take, its answer included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,
}

/// How a request proves whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSpec {
    /// The name of a secret that the tenant has on this host for the URL's host. The secret itself stands in
    /// no graph.
    pub secret: String,
    /// The header that is the secret, in place of `Authorization: Bearer SECRET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

/// What can also be the end of an environment variable's name.
pub fn is_secret_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn post() -> String {
    "POST".into()
}

/// What a crash between sending and knowing leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectMode {
    /// It is sent again, under the same idempotency key.
    #[default]
    AtLeastOnce,
    /// It is in doubt: a person says whether it was done.
    AtMostOnce,
}

/// Of what is said of a text that is no graph.
const SHOWN_BYTES_MAX: usize = 2_000;

impl GraphSpec {
    /// The error names line and column, and shows the line, unless that is a long one.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let shown = error.to_string();
            if shown.len() <= SHOWN_BYTES_MAX {
                return shown;
            }
            let before = error.span().and_then(|span| text.as_bytes().get(..span.start)).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let why: String = error.message().chars().take(SHOWN_BYTES_MAX / 4).collect();
            format!("TOML parse error at line {line}: {why}")
        })
    }

    pub fn to_toml(&self) -> String {
        // Every field is a string, a list, a table or a flag: there is nothing that TOML cannot say.
        toml::to_string(self).unwrap_or_default()
    }

    /// Starts a graph in code.
    pub fn new(name: &str, entry: &str) -> Self {
        Self {
            name: name.into(),
            entry: entry.into(),
            channels: BTreeMap::new(),
            nodes: BTreeMap::new(),
            edges: Vec::new(),
            effects: BTreeMap::new(),
        }
    }

    pub fn channel(mut self, name: &str, reducer: Reducer) -> Self {
        self.channels.insert(name.into(), ChannelSpec { reducer });
        self
    }

    pub fn node(mut self, name: &str, node: NodeSpec) -> Self {
        self.nodes.insert(name.into(), node);
        self
    }

    pub fn edge(self, from: &str, to: &str) -> Self {
        self.edge_all(&[from], to)
    }

    /// `to` runs once all of `from` have run.
    pub fn edge_all(mut self, from: &[&str], to: &str) -> Self {
        let from = OneOrMany::Many(from.iter().map(|&n| n.into()).collect());
        self.edges.push(EdgeSpec { from, to: to.into() });
        self
    }

    pub fn effect(mut self, name: &str, effect: EffectSpec) -> Self {
        self.effects.insert(name.into(), effect);
        self
    }
}

impl NodeSpec {
    /// `component`: a path, or a digest.
    pub fn component(component: impl ToString) -> Self {
        Self { component: Some(component.to_string()), ..Self::default() }
    }

    /// `graph`: a path to a graph file, or the digest of a graph that is kept.
    pub fn subgraph(graph: impl ToString) -> Self {
        Self { graph: Some(graph.to_string()), ..Self::default() }
    }

    /// The sub-agent's name.
    pub fn agent(mut self, name: &str) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// `attempts`: all, the first one included.
    pub fn retry(mut self, attempts: u32, backoff_ms: u64) -> Self {
        self.retry = Some(RetrySpec { attempts, backoff_ms });
        self
    }

    /// Sends what went wrong to this node, instead of failing the run.
    pub fn on_error(mut self, node: &str) -> Self {
        self.on_error = Some(node.into());
        self
    }

    pub fn reads(mut self, names: &[&str]) -> Self {
        self.reads = Names::Same(names.iter().map(|&n| n.into()).collect());
        self
    }

    pub fn writes(mut self, names: &[&str]) -> Self {
        self.writes = Names::Same(names.iter().map(|&n| n.into()).collect());
        self
    }

    /// Pairs of the node's own name and the channel's.
    pub fn reads_as(mut self, pairs: &[(&str, &str)]) -> Self {
        self.reads = mapped(pairs);
        self
    }

    /// Pairs of the node's own name and the channel's.
    pub fn writes_as(mut self, pairs: &[(&str, &str)]) -> Self {
        self.writes = mapped(pairs);
        self
    }

    /// Pairs of label and target.
    pub fn routes(mut self, pairs: &[(&str, &str)]) -> Self {
        self.routes = mapped(pairs);
        self
    }

    pub fn limits(mut self, limits: NodeLimits) -> Self {
        self.limits = limits;
        self
    }

    pub fn effects(mut self, names: &[&str]) -> Self {
        self.effects = Names::Same(names.iter().map(|&n| n.into()).collect());
        self
    }
}

fn mapped(pairs: &[(&str, &str)]) -> Names {
    Names::Mapped(pairs.iter().map(|&(own, graph)| (own.into(), graph.into())).collect())
}
