//! Many threads at once on one database, beside what the disk and the processors would allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::amount::Amount;
use crate::chart::{Bar, Chart, Panel};
use crate::counted::{Counted, counted};
use crate::report::{Report, Row};
use crate::samples::{Samples, median};
use crate::{Bench, cycle, machine};

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
    let (mut batches, mut groups, mut calls, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut starts, mut resumes) = (Samples::default(), Samples::default());
    let (mut done, mut total) = (0, Counted::default());
    for _ in amount.turns(amount.rounds) {
        batches.push(bare_batches(bench).await?);
        groups.push(bare_groups(bench).await?);
        calls.push(bare_calls(bench).await?);
        let before = counted(&bench.host);
        let (rate, cycles, latencies) = cycles(bench, &names, PRODUCT).await?;
        total.add(counted(&bench.host).since(before));
        rates.push(rate);
        done += cycles;
        for (start, resume) in latencies {
            starts.extend(start);
            resumes.extend(resume);
        }
    }

    // A cycle is two batches and two calls.
    let each = |rates: &[Rate], parts: f64| median(rates.iter().map(|rate| rate.each_s / parts));
    let (of_rows, of_groups, of_calls) = (each(&batches, 2.0), each(&groups, 1.0), each(&calls, 2.0));
    // On the same processors, one after the other: what both together leave.
    let of_both = 1.0 / (1.0 / of_groups + 1.0 / of_calls);
    let of_product = || rates.iter().map(|rate| rate.each_s);
    report.title(format!("{THREADS} threads at once ({done} cycles of start, pause, answer, completion)"));
    let rows = [
        ("cycles a second; raw: bare group commits of the same rows", of_groups),
        ("cycles a second; raw: bare group commits of 3 rows", of_rows),
        ("cycles a second; raw: bare calls on all cores", of_calls),
        ("cycles a second; raw: bare group commits and bare calls in turn", of_both),
    ];
    for (name, raw) in rows {
        report.add(Row::rate(name, of_product(), raw).on_page());
    }
    let cpu = |rates: &[Rate]| {
        let each: Option<Vec<f64>> = rates.iter().map(|rate| rate.cpu_us_each).collect();
        each.map(|each| median(each.into_iter()))
    };
    if let (Some(cycle), Some(group), Some(call)) = (cpu(&rates), cpu(&groups), cpu(&calls)) {
        let row = Row::value("processor time of a cycle", cycle, "µs").raw(group + 2.0 * call);
        report.add(row.on_page());
    }
    report.add(Row::times("start to paused, among 64", &mut starts).on_page());
    report.add(Row::times("resume to completed, among 64", &mut resumes).on_page());
    let per_cycle = |name: &str, count: u64, unit| {
        Row::value(format!("a cycle among 64: {name}"), count as f64 / done as f64, unit)
    };
    report.add(per_cycle("commits", total.commits, "commits").on_page());
    report.add(per_cycle("statements", total.statements, "statements").on_page());
    report.add(per_cycle("instantiations", total.instantiations, "instances"));
    report.add(per_cycle("written", total.written_bytes, "bytes"));
    report.chart(Chart {
        name: "crowd",
        title: "Pauses and answers a second, beside what SQLite and wasmtime alone allow",
        columns: 1,
        panels: vec![Panel::Bars {
            title: format!("{THREADS} threads at once, cycles a second"),
            unit: "1/s",
            bars: vec![
                Bar::of("start, pause, answer, completion", median(of_product())),
                Bar::raw("bare group commits of the same rows", of_groups),
                Bar::raw("bare calls on all cores", of_calls),
                Bar::raw("both in turn", of_both),
            ],
        }],
    });
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
                let thread = format!("c{}", names.fetch_add(1, Ordering::Relaxed));
                cycle::cycle(&graph, &thread, (&mut starts, &mut resumes)).await?;
            }
            Ok((starts, resumes))
        });
    }
    let latencies = workers.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let done: usize = latencies.iter().map(|(_, resumes)| resumes.len()).sum();
    Ok((Rate::of(done, began, cpu), done as u64, latencies))
}

/// The most that SQLite would take: 64 batches of three rows in each commit.
async fn bare_batches(bench: &mut Bench) -> anyhow::Result<Rate> {
    let (began, cpu, mut done) = (Instant::now(), machine::cpu_us(), 0);
    while began.elapsed() < RAW {
        bench.bare_commit.batches(THREADS).await?;
        done += THREADS;
    }
    Ok(Rate::of(done, began, cpu))
}

/// The most that it would take of the same rows: 64 starts in a commit, then 64 resumes.
async fn bare_groups(bench: &mut Bench) -> anyhow::Result<Rate> {
    let (began, cpu, mut done) = (Instant::now(), machine::cpu_us(), 0);
    while began.elapsed() < RAW {
        bench.bare_commit.cycles(THREADS).await?;
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
