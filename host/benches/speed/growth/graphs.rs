//! Graphs of many nodes: what one step costs in them, and a walk through all.

use std::time::Instant;

use holdpoint::{Graph, GraphSpec, NodeSpec, Reducer, RunConfig, RunStatus};
use serde_json::json;

use super::{Line, show, thousands};
use crate::amount::Amount;
use crate::report::Report;
use crate::samples::Samples;
use crate::{Page, cycle, node};

/// Each is hundreds of attempts.
const WALKS: usize = 3;

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let host = page.host(&page.dir.join("graphs.db")).await?;
    let digest = host.install("script", node::bytes(&node::component())?).await?.digest.to_string();
    let mut graphs = Vec::new();
    let mut compile = Line::new("compile", amount.nodes);
    let mut step = Line::new("a step of a walk through all", amount.nodes);
    for nodes in amount.nodes.iter().copied() {
        let spec = chain(&digest, nodes);
        let graph = compile.samples(nodes).time(host.compile(&spec)).await?;
        graphs.push((nodes, graph));
    }
    let mut start = Line::new("start to paused", amount.nodes);
    let mut resume = Line::new("resume to completed", amount.nodes);
    for i in amount.turns(amount.turns) {
        for (nodes, graph) in &graphs {
            let thread = format!("g{nodes}-{i}");
            let (mut started, mut resumed) = (Samples::default(), Samples::default());
            let input = json!({ "script": [node::ask(), { "put": { "a": 1 } }, { "end": true }] });
            let paused = started.time(graph.invoke(RunConfig::thread(&thread), input)).await?;
            anyhow::ensure!(paused.status == RunStatus::Interrupted, "{paused:#?}");
            cycle::answered(graph, &thread, &mut resumed).await?;
            start.samples(*nodes).extend(started);
            resume.samples(*nodes).extend(resumed);
        }
    }
    for i in amount.turns(WALKS) {
        for (nodes, graph) in &graphs {
            walk(graph, *nodes, (i, step.samples(*nodes))).await?;
        }
    }
    report.title("Nodes in the graph, of which one runs; raw is the smallest graph");
    let sizes = ("By the nodes of the graph", "nodes");
    let shown = |nodes| format!("{} nodes", thousands(nodes));
    show(report, sizes, shown, &mut [start, resume, step]);
    for (nodes, samples) in &mut compile.at {
        report.add(crate::report::Row::times(format!("compile, {}", shown(*nodes)), samples));
    }
    host.close().await;
    Ok(())
}

async fn walk(graph: &Graph, nodes: usize, (i, steps): (usize, &mut Samples)) -> anyhow::Result<()> {
    let began = Instant::now();
    let thread = RunConfig::thread(format!("w{nodes}-{i}"));
    let done = graph.invoke(thread, json!({ "script": [{ "put": { "a": 1 } }] })).await?;
    anyhow::ensure!(done.status == RunStatus::Completed, "{done:#?}");
    steps.push(began.elapsed() / nodes as u32);
    Ok(())
}

/// Each node leads to the next.
fn chain(component: &str, nodes: usize) -> GraphSpec {
    let name = |i: usize| format!("n{i}");
    let spec = GraphSpec::new(&format!("chain-{nodes}"), &name(0))
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Sum);
    (0..nodes).fold(spec, |spec, i| {
        let node = NodeSpec::component(component).reads(&["script"]).writes(&["a"]);
        let spec = spec.node(&name(i), node);
        if i == 0 { spec } else { spec.edge(&name(i - 1), &name(i)) }
    })
}
