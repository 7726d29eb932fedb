//! One thread at a time: start to pause, pause to completion, what they are measured against, and what they
//! consist of; a turn does each once, in an order of its own.

use anyhow::Context as _;
use holdpoint::{Command, Graph, RunConfig, RunStatus};

use crate::amount::Amount;
use crate::bare_commit::Put;
use crate::chart::{Bar, Chart, Panel};
use crate::counted::{Counted, counted};
use crate::parts::{Consists, Parts};
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Bench, node};

/// Not counted: statements are prepared, files grow, branches are learnt.
const WARM_UP: usize = 20;

#[derive(Default)]
pub struct Measured {
    bare_three: Samples,
    bare_start: Samples,
    bare_resume: Samples,
    bare_call: Samples,
    trip: Samples,
    start: Samples,
    resume: Samples,
    resume_by_id: Samples,
    pub load_absent: Samples,
    pub commit_start: Samples,
    pub head: Samples,
    pub load_paused: Samples,
    pub values: Samples,
    pub commit_resume: Samples,
    pub run_start: Samples,
    pub run_resume: Samples,
}

pub async fn measure(bench: &mut Bench, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let counted = count(bench).await?;
    let mut parts = Parts::new(bench).await?;
    let mut measured = Measured::default();
    for i in amount.turns(WARM_UP + amount.cycles) {
        if i == WARM_UP {
            measured = Measured::default();
        }
        turn(bench, &mut parts, &mut measured, i).await?;
    }
    show(bench, measured, counted, &parts, report);
    Ok(())
}

async fn turn(bench: &mut Bench, parts: &mut Parts, m: &mut Measured, i: usize) -> anyhow::Result<()> {
    for kind in order(i) {
        match kind {
            0 => m.bare_three.time(bench.bare_commit.three()).await?,
            1 => {
                let put: Put = m.bare_start.time(bench.bare_commit.start()).await?;
                m.bare_resume.time(bench.bare_commit.resume(&put)).await?;
            }
            2 => m.bare_call.time(bench.bare_call.call()).await?,
            3 => m.trip.time(bench.bare_commit.trip()).await?,
            4 => cycle(&bench.graph, &format!("t{i}"), (&mut m.start, &mut m.resume)).await?,
            5 => parts.store(bench, m, &format!("p{i}")).await?,
            6 => by_id(&bench.graph, &format!("q{i}"), &mut m.resume_by_id).await?,
            _ => parts.sandbox(bench, m).await?,
        }
    }
    Ok(())
}

/// Shuffled, and the same in every run: what a thing costs depends on what was done just before it.
fn order(turn: usize) -> [usize; 8] {
    let mut kinds = [0, 1, 2, 3, 4, 5, 6, 7];
    let mut random = (turn as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for last in (1..kinds.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        kinds.swap(last, (random >> 33) as usize % (last + 1));
    }
    kinds
}

/// From start to pause, and from the answer to completion.
pub async fn cycle(
    graph: &Graph,
    thread: &str,
    (start, resume): (&mut Samples, &mut Samples),
) -> anyhow::Result<()> {
    let paused = start.time(graph.invoke(RunConfig::thread(thread), node::input())).await?;
    anyhow::ensure!(paused.status == RunStatus::Interrupted, "{paused:#?}");
    answered(graph, thread, resume).await
}

/// Answers the one question of a thread, after which it completes.
pub async fn answered(graph: &Graph, thread: &str, resume: &mut Samples) -> anyhow::Result<()> {
    let command = Command::resume(node::answer());
    let completed = resume.time(graph.resume(RunConfig::thread(thread), command)).await?;
    anyhow::ensure!(completed.status == RunStatus::Completed, "{completed:#?}");
    Ok(())
}

/// Answers a thread's question by its id, as who was shown it does.
async fn by_id(graph: &Graph, thread: &str, resume: &mut Samples) -> anyhow::Result<()> {
    let paused = graph.invoke(RunConfig::thread(thread), node::input()).await?;
    let asked = paused.interrupts.first().context("it asks")?;
    let command = Command::answers([(asked.interrupt.id, node::answer())]);
    let completed = resume.time(graph.resume(RunConfig::thread(thread), command)).await?;
    anyhow::ensure!(completed.status == RunStatus::Completed, "{completed:#?}");
    Ok(())
}

/// What a start, a resume and a bare commit do.
async fn count(bench: &mut Bench) -> anyhow::Result<[Counted; 3]> {
    // The first cycle also opens connections.
    cycle(&bench.graph, "first", (&mut Samples::default(), &mut Samples::default())).await?;
    bench.bare_commit.three().await?;
    let before = counted(&bench.host);
    bench.graph.invoke(RunConfig::thread("counted"), node::input()).await?;
    let paused = counted(&bench.host);
    bench.graph.resume(RunConfig::thread("counted"), Command::resume(node::answer())).await?;
    let completed = counted(&bench.host);
    bench.bare_commit.three().await?;
    let bare = counted(&bench.host);
    Ok([paused.since(before), completed.since(paused), bare.since(completed)])
}

fn show(bench: &Bench, mut m: Measured, counted: [Counted; 3], parts: &Parts, report: &mut Report) {
    let turns = m.start.len();
    let (started, resumed) = bench.bare_commit.rows();
    let (call, three) = (m.bare_call.p50(), m.bare_three.p50());
    let raw = [m.bare_start.p50() + call, m.bare_resume.p50() + call];
    report.title(format!("One thread at a time ({turns} turns); raw is a bare commit and a bare call"));
    report.add(Row::times("bare call up to the question", &mut m.bare_call).on_page());
    report.add(Row::times("bare commit of 3 rows", &mut m.bare_three).on_page());
    report.add(Row::times(format!("bare commit of a start's {started} rows"), &mut m.bare_start).on_page());
    report.add(Row::times(format!("bare commit of a resume's {resumed} rows"), &mut m.bare_resume).on_page());
    let start = report.add(Row::times("start to paused", &mut m.start).raw(raw[0]).on_page());
    let resume = report.add(Row::times("resume to completed", &mut m.resume).raw(raw[1]).on_page());
    let by_id = Row::times("resume to completed, by the question's id", &mut m.resume_by_id);
    report.add(by_id.raw(raw[1]).on_page());
    report.add(Row::times("start to paused; raw: 3 rows", &mut m.start).raw(three + call));
    report.add(Row::times("resume to completed; raw: 3 rows", &mut m.resume).raw(three + call));
    report.chart(Chart {
        name: "cycle",
        title: "A pause and a resume beside what they cannot do without",
        columns: 1,
        panels: vec![Panel::Bars {
            title: "One thread, median time".into(),
            unit: "µs",
            bars: vec![
                Bar::of("start to paused", start),
                Bar::raw("bare commit and call", raw[0]),
                Bar::of("resume to completed", resume),
                Bar::raw("bare commit and call", raw[1]),
            ],
        }],
    });

    let [of_start, of_resume, bare] = counted;
    report.title("What they do, counted; raw is a bare commit of 3 rows");
    for (what, counted) in [("start", of_start), ("resume", of_resume)] {
        let value = |name: &str, count: u64, unit| Row::value(format!("{what}: {name}"), count as f64, unit);
        report.add(value("statements", counted.statements, "statements"));
        report.add(value("commits", counted.commits, "commits"));
        report.add(value("instantiations", counted.instantiations, "instances"));
        report.add(value("written", counted.written_bytes, "bytes").raw(bare.written_bytes as f64));
    }

    report.title("What a start consists of, each part measured alone");
    let mut known = 0.0;
    let consists = parts.start(of_start);
    if consists == Consists::Reads {
        let row = Row::times("start: Store::load, the thread is not there", &mut m.load_absent);
        known += report.add(row.of_whole(start));
    }
    let row = Row::times("start: Sandbox::run up to the question", &mut m.run_start);
    known += report.add(row.raw(call).of_whole(start));
    known += commit("start", (consists, &mut m.commit_start), (m.bare_start.p50(), start), report);
    report.rest("start: the rest", start, known);

    report.title("What a resume consists of");
    let mut known = 0.0;
    let consists = parts.resume(of_resume);
    if consists == Consists::ReadsHead {
        let row = Row::times("resume: Store::head, which says what it is for", &mut m.head);
        known += report.add(row.of_whole(resume));
    }
    if consists == Consists::Reads {
        let row = Row::times("resume: Store::load of the paused thread", &mut m.load_paused);
        known += report.add(row.of_whole(resume));
        let row = Row::times("resume: Store::values that the node reads", &mut m.values);
        known += report.add(row.of_whole(resume));
    }
    let row = Row::times("resume: Sandbox::run to the end", &mut m.run_resume);
    known += report.add(row.raw(call).of_whole(resume));
    known += commit("resume", (consists, &mut m.commit_resume), (m.bare_resume.p50(), resume), report);
    report.rest("resume: the rest", resume, known);

    report.title("What a statement costs before it does anything");
    report.add(Row::times("bare statement that does nothing", &mut m.trip));
}

/// What is said of a commit, where the rows that stand for it still do.
fn commit(
    what: &str,
    (consists, samples): (Consists, &mut Samples),
    (raw, whole): (f64, f64),
    report: &mut Report,
) -> f64 {
    if consists == Consists::Otherwise {
        report.line(format!(
            "  (a {what} makes other statements than the rows in parts.rs: its store is part of the rest)"
        ));
        return 0.0;
    }
    report
        .add(Row::times(format!("{what}: Store::commit of the same rows"), samples).raw(raw).of_whole(whole))
}
