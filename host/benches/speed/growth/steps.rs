//! A thread's own past: how long it has been going on, and what that takes on the disk.

use std::time::Instant;

use holdpoint::{Graph, GraphSpec, NodeSpec, Reducer, RunConfig, RunStatus};
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::{Line, said_bytes, show, stored_bytes, thousands};
use crate::amount::Amount;
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Page, cycle, node};

/// What each step adds.
const ADDED_BYTES: usize = 1_024;
/// Of one run; a thread goes on over many.
const RUN_STEPS: usize = 2_000;
/// Of a run that is measured.
const MEASURED_STEPS: usize = 20;
/// What checkpointers are compared by: so many times a kilobyte is appended.
const COMPARED_STEPS: usize = 200;
/// A shorter thread is made anew for each turn, or it would not stay short.
const SHORT: usize = 1_000;

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    report.title("A thread's past, of steps that append 1 KB; raw is the shortest");
    let db = page.dir.join("steps.db");
    let host = page.host(&db).await?;
    let graph = host.compile(&spec()).await?;
    let mut bytes = Vec::new();
    for steps in amount.steps.iter().copied().filter(|steps| *steps >= SHORT) {
        report.progress(format!("a thread goes through {} steps", thousands(steps)));
        let (stored, said) = (stored_bytes(&db).await?, said_bytes(&db).await?);
        Thread::new(format!("t{steps}")).run(&graph, steps).await?;
        let each = |now: u64, before: u64| (now - before) as f64 / steps as f64;
        bytes.push((steps, each(stored_bytes(&db).await?, stored), each(said_bytes(&db).await?, said)));
    }

    let mut step = Line::new("a step", amount.steps);
    let mut start = Line::new("start to paused", amount.steps);
    let mut resume = Line::new("resume to completed", amount.steps);
    let mut threads: Vec<Thread> = amount.steps.iter().map(|steps| Thread::at(*steps)).collect();
    for i in amount.turns(amount.turns) {
        for (steps, thread) in amount.steps.iter().copied().zip(&mut threads) {
            if steps < SHORT {
                *thread = Thread::new(format!("t{steps}-{i}"));
                thread.run(&graph, steps).await?;
            }
            let (mut started, mut resumed) = (Samples::default(), Samples::default());
            thread.ask(&graph, (&mut started, &mut resumed)).await?;
            start.samples(steps).extend(started);
            resume.samples(steps).extend(resumed);
            let began = Instant::now();
            thread.run(&graph, MEASURED_STEPS).await?;
            step.samples(steps).push(began.elapsed() / MEASURED_STEPS as u32);
        }
    }
    let sizes = ("By the steps that the thread has behind it", "steps");
    show(report, sizes, |steps| format!("{} steps", thousands(steps)), &mut [start, resume, step]);
    for (steps, stored, said) in bytes {
        let raws = [("the 1 KB", ADDED_BYTES as f64), ("the 1 KB, a counter, its checkpoint and task", said)];
        for (raw, bytes) in raws {
            let name = format!("stored by a step of 1 KB, {} steps; raw: {raw}", thousands(steps));
            report.add(Row::value(name, stored, "bytes").raw(bytes).on_page());
        }
    }
    host.close().await;
    compared(page, report).await
}

/// As others are measured: how much the file grows by 200 steps.
async fn compared(page: &Page, report: &mut Report) -> anyhow::Result<()> {
    let db = page.dir.join("appended.db");
    let host = page.host(&db).await?;
    let graph = host.compile(&spec()).await?;
    let before = stored_bytes(&db).await?;
    Thread::new("t".to_owned()).run(&graph, COMPARED_STEPS).await?;
    let grown = (stored_bytes(&db).await? - before) as f64;
    host.close().await;
    let whole = whole_states(page).await? as f64;
    let information = (COMPARED_STEPS * ADDED_BYTES) as f64;
    let row = |raw: &str| Row::value(format!("stored by 200 steps of 1 KB; raw: {raw}"), grown, "bytes");
    report.add(row("the 200 KB").raw(information).on_page());
    report.add(row("the whole state a step").raw(whole).on_page());
    Ok(())
}

/// What it takes to write the state down whole at each step.
async fn whole_states(page: &Page) -> anyhow::Result<u64> {
    let db = page.dir.join("whole.db");
    let options = SqliteConnectOptions::new().filename(&db).create_if_missing(true).page_size(8192);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::query("CREATE TABLE states (step INTEGER PRIMARY KEY, state TEXT NOT NULL) STRICT")
        .execute(&mut connection)
        .await?;
    let mut transaction = connection.begin().await?;
    for step in 1..=COMPARED_STEPS {
        let state = json!({ "b": vec![added(); step] }).to_string();
        let insert = sqlx::query("INSERT INTO states (state) VALUES (?1)").bind(state);
        insert.execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    connection.close().await?;
    stored_bytes(&db).await
}

/// A node that goes to itself until it has been there often enough: it reads how often, not what it appended.
fn spec() -> GraphSpec {
    let node = NodeSpec::component(node::component().display())
        .reads(&["script", "a"])
        .writes(&["a", "b"])
        .routes(&[("w", node::NODE)]);
    GraphSpec::new("steps", node::NODE)
        .channel("script", Reducer::Replace)
        .channel("a", Reducer::Sum)
        .channel("b", Reducer::Append)
        .node(node::NODE, node)
}

fn added() -> Value {
    json!("x".repeat(ADDED_BYTES))
}

/// A thread, and how often it has counted.
struct Thread {
    name: String,
    count: usize,
}

impl Thread {
    fn new(name: String) -> Self {
        Self { name, count: 0 }
    }

    /// One that has gone so far already.
    fn at(steps: usize) -> Self {
        Self { name: format!("t{steps}"), count: steps }
    }

    async fn run(&mut self, graph: &Graph, steps: usize) -> anyhow::Result<()> {
        let mut left = steps;
        while left > 0 {
            let now = left.min(RUN_STEPS);
            left -= now;
            self.count += now;
            let again = [json!({ "put": { "a": 1, "b": [added()] } }), json!({ "go": "w" })];
            let last = [json!({ "put": { "a": 1, "b": [added()] } }), json!({ "end": true })];
            // It counts after it has looked.
            let input = json!({ "script": [
                { "read": "a" },
                { "if_last": { "equals": self.before_last(), "then": last, "else": again } },
            ] });
            let ended = graph.invoke(RunConfig::thread(&self.name), input).await?;
            anyhow::ensure!(ended.status == RunStatus::Completed, "{ended:#?}");
        }
        Ok(())
    }

    /// What the node reads in the last step of a run: nothing yet, if the thread's first step is its last.
    fn before_last(&self) -> Value {
        if self.count == 1 { Value::Null } else { json!(self.count - 1) }
    }

    /// One step that asks.
    async fn ask(
        &mut self,
        graph: &Graph,
        (start, resume): (&mut Samples, &mut Samples),
    ) -> anyhow::Result<()> {
        self.count += 1;
        let put = json!({ "put": { "a": 1, "b": [added()] } });
        let input = json!({ "script": [node::ask(), put, { "end": true }] });
        let paused = start.time(graph.invoke(RunConfig::thread(&self.name), input)).await?;
        anyhow::ensure!(paused.status == RunStatus::Interrupted, "{paused:#?}");
        cycle::answered(graph, &self.name, resume).await
    }
}
