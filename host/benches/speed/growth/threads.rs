//! Other threads that wait in the same database.

use std::fs;

use holdpoint::{Graph, Host, RunConfig};
use serde_json::json;

use super::{Line, show, thousands};
use crate::amount::Amount;
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Page, copies, cycle, node};

const WARM_UP: usize = 5;

struct Database {
    threads: usize,
    bytes: u64,
    host: Host,
    graph: Graph,
}

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let spec = node::graph(&node::component());
    let mut databases = Vec::new();
    for threads in amount.paused.iter().copied() {
        let db = copies::paused((page, report), threads).await?;
        let host = page.host(&db).await?;
        let graph = host.compile(&spec).await?;
        databases.push(Database { threads, bytes: fs::metadata(&db)?.len(), host, graph });
    }
    let mut start = Line::new("start to paused", amount.paused);
    let mut resume = Line::new("resume to completed", amount.paused);
    // Of the smallest, nearly all are resumed.
    let turns = (2 * amount.turns).min(amount.paused[0] - WARM_UP);
    for i in amount.turns(WARM_UP + turns) {
        for database in &databases {
            let Database { threads, graph, .. } = database;
            // From all over the database.
            let copy = copies::name(i * (threads / (WARM_UP + turns)));
            let (mut started, mut resumed) = (Samples::default(), Samples::default());
            let paused =
                started.time(graph.invoke(RunConfig::thread(format!("n{i}")), node::input())).await?;
            anyhow::ensure!(paused.interrupts.len() == 1, "{paused:#?}");
            cycle::answered(graph, &copy, &mut resumed).await?;
            if i < WARM_UP {
                let state = graph.state(RunConfig::thread(&copy)).await?;
                anyhow::ensure!(state["a"] == json!([node::answer()]), "{copy} is no thread: {state}");
                continue;
            }
            start.samples(*threads).extend(started);
            resume.samples(*threads).extend(resumed);
        }
    }

    let sizes = ("By paused threads in the database", "paused threads");
    report.title("Paused threads in the database; raw is the smallest");
    show(report, sizes, |threads| format!("{} threads wait", thousands(threads)), &mut [start, resume]);
    if let Some(largest) = databases.last() {
        let each = largest.bytes as f64 / largest.threads as f64;
        report.add(Row::value("a paused thread in the database", each, "bytes").on_page());
    }
    for database in databases {
        database.host.close().await;
    }
    Ok(())
}
