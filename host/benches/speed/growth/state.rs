//! State that the node does not read: it reads 1 KB of it.

use holdpoint::{GraphSpec, NodeSpec, Reducer, RunConfig, RunStatus};
use serde_json::json;

use super::{Line, show};
use crate::amount::Amount;
use crate::report::{Report, human};
use crate::samples::Samples;
use crate::{Page, cycle, node};

const READ_BYTES: usize = 1_024;

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let host = page.host(&page.dir.join("state.db")).await?;
    let node = NodeSpec::component(node::component().display()).reads(&["script", "c"]).writes(&["a"]);
    let spec = GraphSpec::new("state", node::NODE)
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Replace)
        .channel("c", Reducer::Replace)
        .channel("large", Reducer::Replace)
        .node(node::NODE, node);
    let graph = host.compile(&spec).await?;
    for bytes in amount.state_bytes {
        let (large, read) = ("x".repeat(bytes.saturating_sub(READ_BYTES)), "x".repeat(READ_BYTES));
        let input = json!({ "script": [{ "put": { "a": 0 } }], "large": large, "c": read });
        let done = graph.invoke(RunConfig::thread(format!("s{bytes}")), input).await?;
        anyhow::ensure!(done.status == RunStatus::Completed, "{done:#?}");
    }
    let mut start = Line::new("start to paused", amount.state_bytes);
    let mut resume = Line::new("resume to completed", amount.state_bytes);
    for _ in amount.turns(2 * amount.turns) {
        for bytes in amount.state_bytes.iter().copied() {
            let thread = format!("s{bytes}");
            let input = json!({ "script": [node::ask(), { "put": { "a": 1 } }] });
            let (mut started, mut resumed) = (Samples::default(), Samples::default());
            let paused = started.time(graph.invoke(RunConfig::thread(&thread), input)).await?;
            anyhow::ensure!(paused.status == RunStatus::Interrupted, "{paused:#?}");
            cycle::answered(&graph, &thread, &mut resumed).await?;
            start.samples(bytes).extend(started);
            resume.samples(bytes).extend(resumed);
        }
    }
    report.title("State, of which the node reads 1 KB; raw is the smallest");
    let sizes = ("By the size of the state", "bytes of state");
    let shown = |bytes| format!("{} of state", human(bytes as f64, "bytes"));
    show(report, sizes, shown, &mut [start, resume]);
    host.close().await;
    Ok(())
}
