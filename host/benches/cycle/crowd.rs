//! Many threads at once on one database, beside what the disk and the processors would allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdpoint::{Command, RunConfig, RunStatus};
use tokio::task::JoinSet;

use crate::report::{Report, Samples, median};
use crate::turns::{Counted, counted};
use crate::{Amount, Bench, machine, node};

const THREADS: usize = 64;
const PRODUCT: Duration = Duration::from_millis(1_000);
const RAW: Duration = Duration::from_millis(300);

/// So much in so long, and what it took.
#[derive(Clone, Copy)]
struct Rate {
    each_s: f64,
    cpu_us_each: Option<f64>,
}

pub async fn measure(bench: &mut Bench, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let names = Arc::new(AtomicU64::new(0));
    // As long as it takes for all threads to have been here once.
    cycles(bench, &names, Duration::from_millis(200)).await?;
    let (mut groups, mut calls, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut starts, mut resumes) = (Samples::default(), Samples::default());
    let (mut done, mut total) = (0, Counted::default());
    for _ in 0..amount.rounds {
        groups.push(bare_groups(bench).await?);
        calls.push(bare_calls(bench).await?);
        let before = counted(bench);
        let (rate, cycles, latencies) = cycles(bench, &names, PRODUCT).await?;
        total.add(counted(bench).since(before));
        rates.push(rate);
        done += cycles;
        for (start, resume) in latencies {
            starts.extend(start);
            resumes.extend(resume);
        }
    }

    // A cycle is two batches and two calls.
    let group_cycles = median(groups.iter().map(|rate| rate.each_s / 2.0));
    let call_cycles = median(calls.iter().map(|rate| rate.each_s / 2.0));
    report.title(format!("{THREADS} threads at once ({done} cycles of start, pause, answer, completion)"));
    report.rate(
        "cycles a second; raw: bare commits of 64 batches",
        rates.iter().map(|r| r.each_s),
        group_cycles,
    );
    report.rate("cycles a second; raw: bare calls on all cores", rates.iter().map(|r| r.each_s), call_cycles);
    let cpu = |rates: &[Rate]| {
        let each: Option<Vec<f64>> = rates.iter().map(|rate| rate.cpu_us_each).collect();
        each.map(|each| median(each.into_iter()))
    };
    if let (Some(cycle), Some(batch), Some(call)) = (cpu(&rates), cpu(&groups), cpu(&calls)) {
        report.value("processor time of a cycle", cycle, "µs", Some(2.0 * (batch + call)));
    }
    report.times("start to paused, among 64", &mut starts, None);
    report.times("resume to completed, among 64", &mut resumes, None);
    let per_cycle = |count: u64| count as f64 / done as f64;
    report.value("a cycle among 64: commits", per_cycle(total.commits), "commits", None);
    report.value("a cycle among 64: statements", per_cycle(total.statements), "statements", None);
    report.value("a cycle among 64: instantiations", per_cycle(total.instantiations), "instances", None);
    report.value("a cycle among 64: written", per_cycle(total.written_bytes), "bytes", None);
    Ok(())
}

async fn cycles(
    bench: &Bench,
    names: &Arc<AtomicU64>,
    time: Duration,
) -> anyhow::Result<(Rate, u64, Vec<(Samples, Samples)>)> {
    let (began, cpu) = (Instant::now(), machine::cpu_us());
    let mut workers = JoinSet::new();
    for _ in 0..THREADS {
        let (graph, names) = (bench.graph.clone(), names.clone());
        workers.spawn(async move {
            let (mut starts, mut resumes) = (Samples::default(), Samples::default());
            while began.elapsed() < time {
                let thread = RunConfig::thread(format!("c{}", names.fetch_add(1, Ordering::Relaxed)));
                let paused = starts.time(graph.invoke(thread.clone(), node::input())).await?;
                anyhow::ensure!(paused.status == RunStatus::Interrupted, "{paused:#?}");
                let command = Command::resume(node::answer());
                let completed = resumes.time(graph.resume(thread, command)).await?;
                anyhow::ensure!(completed.status == RunStatus::Completed, "{completed:#?}");
            }
            Ok((starts, resumes))
        });
    }
    let latencies = workers.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let done: usize = latencies.iter().map(|(_, resumes)| resumes.len()).sum();
    Ok((Rate::of(done, began, cpu), done as u64, latencies))
}

/// The most that SQLite would take: 64 batches of three rows in each commit.
async fn bare_groups(bench: &mut Bench) -> anyhow::Result<Rate> {
    let (began, cpu, mut done) = (Instant::now(), machine::cpu_us(), 0);
    while began.elapsed() < RAW {
        bench.bare_commit.commit(THREADS).await?;
        done += THREADS;
    }
    Ok(Rate::of(done, began, cpu))
}

/// The most that the processors would run.
async fn bare_calls(bench: &Bench) -> anyhow::Result<Rate> {
    let (began, cpu) = (Instant::now(), machine::cpu_us());
    let mut workers = JoinSet::new();
    for _ in 0..machine::cores() {
        let call = bench.bare_call.clone();
        workers.spawn(async move {
            let mut done = 0;
            while began.elapsed() < RAW {
                call.call().await?;
                done += 1;
            }
            Ok(done)
        });
    }
    let done = workers.join_all().await.into_iter().sum::<anyhow::Result<usize>>()?;
    Ok(Rate::of(done, began, cpu))
}

impl Rate {
    fn of(done: usize, began: Instant, cpu_us_before: Option<u64>) -> Self {
        let cpu_us = machine::cpu_us().zip(cpu_us_before).map(|(after, before)| after - before);
        Self {
            each_s: done as f64 / began.elapsed().as_secs_f64(),
            cpu_us_each: cpu_us.map(|us| us as f64 / done.max(1) as f64),
        }
    }
}
