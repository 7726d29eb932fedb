//! What a process keeps in memory while threads wait in its database, and while tasks run. Each is looked at in a
//! process of its own: this very program again, which says what it found.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdpoint::model::{EffectSpec, Limits, NodeLimits};
use holdpoint::{GraphSpec, Host, NodeSpec, Reducer, RunConfig, RunStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::amount::Amount;
use crate::chart::{Bar, Chart, Panel};
use crate::report::{Report, Row};
use crate::samples::{Samples, median};
use crate::{Page, copies, cycle, machine, node};

/// The argument of a process that is looked at; the database and the cache follow.
pub const CHILD: &str = "--look-at-memory";

const CHILDREN: usize = 3;
/// What a child does first: all that a process keeps from then on is there.
const CYCLES: usize = 300;
/// At once, in the middle of an effect.
const TASKS: usize = 100;
const WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Seen {
    resident_bytes: u64,
    task_bytes: u64,
}

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    if machine::resident_bytes(None).is_none() {
        report.line("\nMemory: this system does not say what is resident");
        return Ok(());
    }
    let (mut resident, mut tasks) = (Vec::new(), Vec::new());
    for threads in amount.resident.iter().copied() {
        let db = copies::paused((page, report), threads).await?;
        let mut seen = Vec::new();
        for _ in amount.turns(CHILDREN) {
            let child = Command::new(std::env::current_exe()?)
                .arg(CHILD)
                .args([&db, &page.cache])
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output()
                .await?;
            anyhow::ensure!(child.status.success(), "{CHILD} {}: {:?}", db.display(), child.status);
            let found: Seen = serde_json::from_slice(&child.stdout)?;
            seen.push(found.resident_bytes as f64);
            tasks.push(found.task_bytes as f64);
        }
        resident.push((threads, median(seen.into_iter())));
    }
    report.title("Resident memory of a process after 300 cycles; raw is without waiting threads");
    let first = resident.first().map_or(0.0, |(_, bytes)| *bytes);
    let mut bars = Vec::new();
    for (threads, bytes) in resident {
        let row = Row::value(format!("resident, {threads} paused threads"), bytes, "bytes").raw(first);
        bars.push(Bar::of(format!("{threads} paused threads"), report.add(row.on_page())));
    }
    let row = Row::value("resident, each task that runs", median(tasks.into_iter()), "bytes");
    bars.push(Bar::of(format!("{TASKS} tasks that run, added"), TASKS as f64 * report.add(row.on_page())));
    report.chart(Chart {
        name: "memory",
        title: "Memory of a process while threads wait in its database",
        columns: 1,
        panels: vec![Panel::Bars { title: "Resident memory".into(), unit: "bytes", bars }],
    });
    Ok(())
}

/// The process that is looked at.
pub async fn child(arguments: &[String]) -> anyhow::Result<()> {
    let [db, cache] = arguments else { anyhow::bail!("{CHILD} takes a database and a cache") };
    let (arrived, leave) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let handler = {
        let (arrived, leave) = (arrived.clone(), leave.clone());
        move |_| {
            let (arrived, leave) = (arrived.clone(), leave.clone());
            async move {
                arrived.fetch_add(1, Ordering::SeqCst);
                // Closed when all may go on.
                leave.acquire().await.ok();
                Ok(Value::Null)
            }
        }
    };
    let limits = Limits { tasks_at_once: 4 * TASKS as u32, ..Limits::default() };
    let host = Host::builder().database(db).cache(cache).limits(limits).effect("e", handler).open().await?;
    let graph = host.compile(&node::graph(&node::component())).await?;
    let (mut starts, mut resumes) = (Samples::default(), Samples::default());
    // Of others that look at the same database.
    let own = std::process::id();
    for i in 0..CYCLES {
        cycle::cycle(&graph, &format!("m{own}-{i}"), (&mut starts, &mut resumes)).await?;
    }
    let resident_bytes = machine::resident_bytes(None).unwrap_or_default();

    let graph = host.compile(&waiting()).await?;
    let mut running = JoinSet::new();
    for i in 0..TASKS {
        let graph = graph.clone();
        let input = json!({ "script": [{ "effect": { "name": "e", "key": "k", "input": 1 } }] });
        running.spawn(async move { graph.invoke(RunConfig::thread(format!("w{own}-{i}")), input).await });
    }
    let began = Instant::now();
    while arrived.load(Ordering::SeqCst) < TASKS {
        anyhow::ensure!(began.elapsed() < WAIT_MAX, "{TASKS} tasks did not come to run at once");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = machine::resident_bytes(None).unwrap_or_default();
    leave.close();
    for ended in running.join_all().await {
        let ended = ended?;
        anyhow::ensure!(ended.status == RunStatus::Completed, "{ended:#?}");
    }
    host.close().await;
    let task_bytes = all.saturating_sub(resident_bytes) / TASKS as u64;
    println!("{}", serde_json::to_string(&Seen { resident_bytes, task_bytes })?);
    Ok(())
}

/// A node that has something done outside.
fn waiting() -> GraphSpec {
    let limits = NodeLimits { memory_bytes: Some(16 << 20), ..NodeLimits::default() };
    let node = NodeSpec::component(node::component().display())
        .reads(&["script"])
        .writes(&["a"])
        .effects(&["e"])
        .limits(limits);
    GraphSpec::new("waiting", node::NODE)
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Append)
        .effect("e", EffectSpec::default())
        .node(node::NODE, node)
}
