//! What runs next, and how a step's updates fold. Pure: decides, and touches nothing.

use std::collections::BTreeMap;

use crate::model::channel::{self, Change, FoldError, Update};
use crate::model::checkpoint::{Finish, Plan, PlannedTask, Routed};
use crate::model::compile::{CompiledGraph, CompiledNode};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::{ChannelName, NodeId};
use crate::model::json::Json;
use crate::sandbox::Route;

/// The first step of a run.
pub fn entry(graph: &CompiledGraph) -> Plan {
    let task = |node: &NodeId| PlannedTask { node: node.clone(), arg: None };
    Plan { tasks: graph.entry.iter().map(task).collect(), arrived: BTreeMap::new() }
}

/// The step after one whose tasks finished like this, in task order.
///
/// Plain targets that meet merge into one task; sends never do. Order is that of first mention.
pub fn next(graph: &CompiledGraph, plan: &Plan, finished: &[&Finish]) -> Plan {
    let mut next = Plan { tasks: Vec::new(), arrived: plan.arrived.clone() };
    for (task, finish) in plan.tasks.iter().zip(finished) {
        if finish.routes.is_empty() {
            follow_edges(graph, &task.node, &mut next);
        }
        for route in &finish.routes {
            match route {
                Routed::Go(None) => {}
                Routed::Go(Some(node)) => go(&mut next.tasks, node),
                Routed::Send(node, arg) => {
                    next.tasks.push(PlannedTask { node: node.clone(), arg: Some(arg.clone()) });
                }
            }
        }
    }
    next
}

fn follow_edges(graph: &CompiledGraph, from: &NodeId, next: &mut Plan) {
    for (i, edge) in graph.edges.iter().enumerate() {
        if !edge.from.contains(from) {
            continue;
        }
        if edge.from.len() > 1 {
            let arrived = next.arrived.entry(i).or_default();
            if !arrived.contains(from) {
                arrived.push(from.clone());
            }
            if arrived.len() < edge.from.len() {
                continue;
            }
            next.arrived.remove(&i);
        }
        if let Some(to) = &edge.to {
            go(&mut next.tasks, to);
        }
    }
}

fn go(tasks: &mut Vec<PlannedTask>, node: &NodeId) {
    if !tasks.iter().any(|task| task.arg.is_none() && task.node == *node) {
        tasks.push(PlannedTask { node: node.clone(), arg: None });
    }
}

/// Folds a step's updates, in task order, each with the name of who wrote it.
pub fn fold<'a>(
    graph: &CompiledGraph,
    present: &BTreeMap<ChannelName, Json>,
    updates: impl IntoIterator<Item = (&'a str, &'a [(ChannelName, Json)])>,
) -> Result<BTreeMap<ChannelName, Change>, FoldError> {
    let mut by_channel: BTreeMap<&ChannelName, Vec<Update<'a>>> = BTreeMap::new();
    for (writer, update) in updates {
        for (channel, value) in update {
            by_channel.entry(channel).or_default().push(Update { writer, value });
        }
    }
    let mut changes = BTreeMap::new();
    for (channel, updates) in by_channel {
        let Some(&reducer) = graph.channels.get(channel) else { continue };
        if let Some(change) = channel::fold(channel, reducer, present.get(channel), &updates)? {
            changes.insert(channel.clone(), change);
        }
    }
    Ok(changes)
}

/// Takes what a node returned, in its own names, and holds it to what it declared and was granted.
pub fn accept(
    graph: &CompiledGraph,
    node_id: &NodeId,
    node: &CompiledNode,
    update: Vec<(String, Json)>,
    routes: Vec<Route>,
) -> Result<Finish, ErrorRecord> {
    let mut channels = Vec::new();
    for (name, value) in update {
        let Some(channel) = node.writes.get(&name) else {
            return Err(undeclared(node_id, "output", &name, node.writes.keys()));
        };
        let reducer = graph.channels[channel];
        channel::check_type(channel, reducer, node_id.as_str(), &value).map_err(|error| {
            ErrorRecord::new(Kind::Invalid, error.to_string()).with("channel", channel.as_str())
        })?;
        channels.push((channel.clone(), value));
    }
    channels.sort_by(|a, b| a.0.cmp(&b.0));
    let target = |label: &str| {
        let unknown = || undeclared(node_id, "route", label, node.routes.keys());
        node.routes.get(label).cloned().ok_or_else(unknown)
    };
    let routes = routes
        .into_iter()
        .map(|route| match route {
            Route::End => Ok(Routed::Go(None)),
            Route::Go(label) => Ok(Routed::Go(target(&label)?)),
            Route::Send { label, arg } => match target(&label)? {
                Some(node) => Ok(Routed::Send(node, arg)),
                None => Ok(Routed::Go(None)),
            },
        })
        .collect::<Result<_, ErrorRecord>>()?;
    Ok(Finish { update: channels, routes, error: None })
}

/// The error for a name that a node may not use.
pub fn undeclared<'a>(
    node: &NodeId,
    what: &str,
    name: &str,
    granted: impl Iterator<Item = &'a String>,
) -> ErrorRecord {
    let granted: Vec<&str> = granted.map(String::as_str).collect();
    let granted = if granted.is_empty() { "none".to_owned() } else { granted.join(", ") };
    let name: String = name.chars().take(80).collect();
    ErrorRecord::new(
        Kind::Undeclared,
        format!(
            "node {node} used the {what} {name:?}, which the graph does not grant it; granted: {granted}"
        ),
    )
    .with("what", what)
    .with("name", name)
}

/// The input of a run as an update, held to the graph's channels.
pub fn accept_input(graph: &CompiledGraph, input: &Json) -> Result<Vec<(ChannelName, Json)>, ErrorRecord> {
    let Some(members) = input.members() else {
        return Err(ErrorRecord::new(
            Kind::Invalid,
            format!("the input is {}; a run takes an object from channel names to values", input.kind()),
        ));
    };
    let mut update = Vec::new();
    for (name, value) in members {
        let Some((channel, &reducer)) = graph.channels.get_key_value(name.as_str()) else {
            let known: Vec<&str> = graph.channels.keys().map(ChannelName::as_str).collect();
            return Err(ErrorRecord::new(
                Kind::Invalid,
                format!("the input names the channel {name:?}; the graph has {}", known.join(", ")),
            ));
        };
        channel::check_type(channel, reducer, channel::INPUT, &value).map_err(|error| {
            ErrorRecord::new(Kind::Invalid, error.to_string()).with("channel", channel.as_str())
        })?;
        update.push((channel.clone(), value));
    }
    Ok(update)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::channel::Reducer;
    use crate::model::compile::CompiledEdge;
    use crate::model::ids::Digest;
    use crate::model::json::JsonBounds;

    fn id(name: &str) -> NodeId {
        NodeId::parse(name).unwrap()
    }

    /// `edges`: "a>b", "a+b>c".
    fn graph(nodes: &str, edges: &[&str]) -> CompiledGraph {
        let names = |list: &str, by: char| list.split(by).map(id).collect::<Vec<_>>();
        let node = CompiledNode {
            work: crate::model::compile::Work::Component(Digest([0; 32])),
            reads: BTreeMap::new(),
            writes: [("out".to_owned(), ChannelName::parse("total").unwrap())].into(),
            routes: [("b".to_owned(), Some(id("b"))), ("stop".to_owned(), None)].into(),
            effects: BTreeMap::new(),
            interrupt_before: false,
            interrupt_after: false,
            retry: None,
            on_error: None,
            limits: Default::default(),
        };
        CompiledGraph {
            name: "g".into(),
            entry: vec![id("a")],
            channels: [(ChannelName::parse("total").unwrap(), Reducer::Sum)].into(),
            nodes: names(nodes, ' ').into_iter().map(|n| (n, node.clone())).collect(),
            edges: edges
                .iter()
                .map(|edge| {
                    let (from, to) = edge.split_once('>').unwrap();
                    CompiledEdge { from: names(from, '+'), to: (to != "end").then(|| id(to)) }
                })
                .collect(),
            effects: BTreeMap::new(),
            named: Default::default(),
        }
    }

    fn plan(nodes: &[&str]) -> Plan {
        let tasks = nodes.iter().map(|n| PlannedTask { node: id(n), arg: None }).collect();
        Plan { tasks, arrived: BTreeMap::new() }
    }

    fn names(plan: &Plan) -> Vec<String> {
        let show = |task: &PlannedTask| match &task.arg {
            None => task.node.to_string(),
            Some(arg) => format!("{}({arg})", task.node),
        };
        plan.tasks.iter().map(show).collect()
    }

    fn json(text: &str) -> Json {
        Json::parse(text, JsonBounds::TRUSTED).unwrap()
    }

    #[test]
    fn plain_targets_merge_and_sends_do_not() {
        let graph = graph("a b c d", &["a>c", "b>d", "b>c"]);
        let none = Finish::default();
        assert_eq!(names(&next(&graph, &plan(&["a", "b"]), &[&none, &none])), ["c", "d"]);
        let sends = Finish {
            update: vec![],
            error: None,
            routes: vec![
                Routed::Send(id("c"), json("1")),
                Routed::Send(id("c"), json("1")),
                Routed::Go(Some(id("c"))),
            ],
        };
        assert_eq!(names(&next(&graph, &plan(&["b", "a"]), &[&sends, &none])), ["c(1)", "c(1)", "c"]);
    }

    #[test]
    fn routes_replace_edges_for_that_activation() {
        let graph = graph("a b c", &["a>c"]);
        let end = Finish { routes: vec![Routed::Go(None)], ..Finish::default() };
        assert!(next(&graph, &plan(&["a"]), &[&end]).tasks.is_empty());
    }

    #[test]
    fn a_waiting_edge_waits_across_steps_and_starts_over() {
        let graph = graph("a b c", &["a+b>c"]);
        let none = Finish::default();
        let first = next(&graph, &plan(&["a"]), &[&none]);
        assert!(first.tasks.is_empty());
        let mut second = plan(&["b"]);
        second.arrived = first.arrived;
        let third = next(&graph, &second, &[&none]);
        assert_eq!(names(&third), ["c"]);
        assert!(third.arrived.is_empty());
    }

    #[test]
    fn nothing_undeclared_is_folded_or_followed() {
        let graph = graph("a b", &["a>b"]);
        let node = &graph.nodes[&id("a")];
        let try_it = |update: &[(&str, &str)], routes: Vec<Route>| {
            let update = update.iter().map(|(k, v)| (k.to_string(), json(v))).collect();
            accept(&graph, &id("a"), node, update, routes)
        };
        assert!(try_it(&[("out", "1")], vec![Route::Go("b".into()), Route::Go("stop".into())]).is_ok());
        assert_eq!(try_it(&[("other", "1")], vec![]).unwrap_err().kind, Kind::Undeclared);
        assert_eq!(try_it(&[], vec![Route::Go("c".into())]).unwrap_err().kind, Kind::Undeclared);
        let wrong_type = try_it(&[("out", "\"1\"")], vec![]).unwrap_err();
        assert_eq!(wrong_type.kind, Kind::Invalid);
        assert!(wrong_type.message.contains("channel total (sum) takes a number"), "{wrong_type}");
    }
}
