//! What a graph gives one of its nodes: declared ∩ granted, and the two rests.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::compile::NodeInfo;
use super::graph::{GraphSpec, Names, NodeSpec};

/// By what a node can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grants {
    pub reads: Granted,
    pub writes: Granted,
    pub routes: Granted,
    pub effects: Granted,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Granted {
    /// What the node gets: its own name, and what that is in the graph.
    pub granted: BTreeMap<String, String>,
    /// Declared, and not granted: the node does without.
    pub withheld: Vec<String>,
    /// Granted, and refused: the graph does not compile before this is mended.
    pub refused: Vec<RefusedGrant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedGrant {
    pub name: String,
    pub why: String,
}

impl Grants {
    pub fn of(graph: &GraphSpec, node: &NodeSpec, info: &NodeInfo) -> Self {
        let channels = ("channel", graph.channels.keys().collect());
        let effects = ("effect", graph.effects.keys().collect());
        let end = "end".to_owned();
        let targets = ("node", graph.nodes.keys().chain([&end]).collect());
        Self {
            reads: granted(&node.reads, &info.reads, info, &channels),
            writes: granted(&node.writes, &info.writes, info, &channels),
            routes: granted(&node.routes, &info.routes, info, &targets),
            effects: granted(&node.effects, &info.effects, info, &effects),
        }
    }

    pub fn by_kind(&self) -> [(&'static str, &Granted); 4] {
        [
            ("reads", &self.reads),
            ("writes", &self.writes),
            ("routes", &self.routes),
            ("effects", &self.effects),
        ]
    }

    pub fn are_sound(&self) -> bool {
        self.by_kind().iter().all(|(_, granted)| granted.refused.is_empty())
    }
}

/// `known`: what the graph has that a name may stand for, and what such a thing is called.
fn granted(
    names: &Names,
    declared: &BTreeSet<String>,
    info: &NodeInfo,
    known: &(&str, BTreeSet<&String>),
) -> Granted {
    let (what, known) = known;
    let mut all = Granted::default();
    let mut given = BTreeSet::new();
    for (own, target) in names.pairs() {
        given.insert(own);
        let why = if !declared.contains(own) {
            format!("{} {} does not declare it; it declares {}", info.name, info.version, listed(declared))
        } else if !known.iter().any(|known| *known == target) {
            format!("no {what} of the graph is named {target:?}; there are {}", listed(known.iter().copied()))
        } else if all.granted.insert(own.to_owned(), target.to_owned()).is_some() {
            "it stands twice".to_owned()
        } else {
            continue;
        };
        all.refused.push(RefusedGrant { name: own.to_owned(), why });
    }
    all.withheld = declared.iter().filter(|name| !given.contains(name.as_str())).cloned().collect();
    all
}

fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::channel::Reducer;

    #[test]
    fn a_node_gets_what_it_declares_and_the_graph_grants() {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let info = NodeInfo {
            name: "refund".into(),
            version: "1".into(),
            reads: set(&["amount", "note"]),
            writes: set(&["decision"]),
            routes: set(&["done"]),
            effects: set(&[]),
        };
        let node = NodeSpec::component("x.wasm")
            .reads_as(&[("amount", "total"), ("secret", "total")])
            .writes_as(&[("decision", "verdict")])
            .routes(&[("done", "end")])
            .effects(&["pay"]);
        let graph = GraphSpec::new("g", "n").channel("total", Reducer::Replace).node("n", node.clone());
        let grants = Grants::of(&graph, &node, &info);
        assert_eq!(grants.reads.granted, [("amount".into(), "total".into())].into());
        assert_eq!(grants.reads.withheld, ["note"]);
        let refused = |granted: &Granted| {
            granted
                .refused
                .iter()
                .map(|refused| format!("{}: {}", refused.name, refused.why))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            refused(&grants.reads),
            ["secret: refund 1 does not declare it; it declares amount, note"]
        );
        assert_eq!(
            refused(&grants.writes),
            [r#"decision: no channel of the graph is named "verdict"; there are total"#]
        );
        assert_eq!(refused(&grants.effects), ["pay: refund 1 does not declare it; it declares nothing"]);
        assert!(grants.routes.refused.is_empty() && !grants.are_sound());
    }
}
