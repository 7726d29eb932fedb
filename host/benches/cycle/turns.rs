//! One thread at a time: start to pause, pause to completion, what they are measured against, and what they
//! consist of; a turn does each once, in an order of its own.

use std::time::{Duration, Instant};

use holdpoint::{Command, RunConfig, RunStatus};

use crate::parts::Parts;
use crate::report::{Report, Samples};
use crate::{Amount, Bench, machine, node};

/// Not counted: statements are prepared, files grow, branches are learnt.
const WARM_UP: usize = 20;

#[derive(Default)]
pub struct Measured {
    pub bare_commit: Samples,
    pub bare_commit_at_once: Samples,
    pub bare_call: Samples,
    pub trip: Samples,
    pub start: Samples,
    pub resume: Samples,
    pub load_absent: Samples,
    pub commit_start: Samples,
    pub load_paused: Samples,
    pub values: Samples,
    pub commit_resume: Samples,
    pub run_start: Samples,
    pub run_resume: Samples,
}

/// What was done, counted.
#[derive(Clone, Copy, Default)]
pub struct Counted {
    pub statements: u64,
    pub commits: u64,
    pub instantiations: u64,
    /// Zero where the system does not say.
    pub written_bytes: u64,
}

pub async fn measure(bench: &mut Bench, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let counted = count(bench).await?;
    let mut parts = Parts::new(bench).await?;
    let mut measured = Measured::default();
    let began = Instant::now();
    for i in 0..WARM_UP + amount.turns {
        if i == WARM_UP {
            measured = Measured::default();
        }
        if began.elapsed() > Duration::from_secs(amount.turns_s_max) {
            break;
        }
        turn(bench, &mut parts, &mut measured, i).await?;
    }
    show(measured, counted, &parts, report);
    Ok(())
}

async fn turn(bench: &mut Bench, parts: &mut Parts, m: &mut Measured, i: usize) -> anyhow::Result<()> {
    for kind in order(i) {
        match kind {
            0 => m.bare_commit.time(bench.bare_commit.commit(1)).await?,
            1 => m.bare_commit_at_once.time(bench.bare_commit.commit_at_once()).await?,
            2 => m.bare_call.time(bench.bare_call.call()).await?,
            3 => m.trip.time(bench.bare_commit.trip()).await?,
            4 => cycle(bench, m, &format!("t{i}")).await?,
            5 => parts.store(bench, m, &format!("p{i}")).await?,
            _ => parts.sandbox(bench, m).await?,
        }
    }
    Ok(())
}

/// Shuffled, and the same in every run: what a thing costs depends on what was done just before it.
fn order(turn: usize) -> [usize; 7] {
    let mut kinds = [0, 1, 2, 3, 4, 5, 6];
    let mut random = (turn as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for last in (1..kinds.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        kinds.swap(last, (random >> 33) as usize % (last + 1));
    }
    kinds
}

async fn cycle(bench: &Bench, m: &mut Measured, thread: &str) -> anyhow::Result<()> {
    let input = node::input();
    let paused = m.start.time(bench.graph.invoke(RunConfig::thread(thread), input)).await?;
    anyhow::ensure!(paused.status == RunStatus::Interrupted, "{paused:#?}");
    let command = Command::resume(node::answer());
    let completed = m.resume.time(bench.graph.resume(RunConfig::thread(thread), command)).await?;
    anyhow::ensure!(completed.status == RunStatus::Completed, "{completed:#?}");
    Ok(())
}

/// What a start, a resume and a bare commit do.
async fn count(bench: &mut Bench) -> anyhow::Result<[Counted; 3]> {
    let mut m = Measured::default();
    // The first cycle also opens connections.
    cycle(bench, &mut m, "first").await?;
    bench.bare_commit.commit(1).await?;
    let before = counted(bench);
    bench.graph.invoke(RunConfig::thread("counted"), node::input()).await?;
    let paused = counted(bench);
    bench.graph.resume(RunConfig::thread("counted"), Command::resume(node::answer())).await?;
    let completed = counted(bench);
    bench.bare_commit.commit(1).await?;
    let bare = counted(bench);
    Ok([paused.since(before), completed.since(paused), bare.since(completed)])
}

pub fn counted(bench: &Bench) -> Counted {
    let store = bench.host.store().map(|store| store.counters()).unwrap_or_default();
    Counted {
        statements: store.statements,
        commits: store.commits,
        instantiations: bench.host.sandbox().counters().instantiations,
        written_bytes: machine::written_bytes().unwrap_or_default(),
    }
}

impl Counted {
    pub fn add(&mut self, more: Self) {
        self.statements += more.statements;
        self.commits += more.commits;
        self.instantiations += more.instantiations;
        self.written_bytes += more.written_bytes;
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            statements: self.statements - before.statements,
            commits: self.commits - before.commits,
            instantiations: self.instantiations - before.instantiations,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

fn show(mut m: Measured, [start, resume, bare]: [Counted; 3], parts: &Parts, report: &mut Report) {
    let turns = m.start.len();
    let raw = m.bare_commit.p50() + m.bare_call.p50();
    report.title(format!("One thread at a time ({turns} turns); raw is a bare commit and a bare call"));
    report.times("bare commit of 3 rows", &mut m.bare_commit, None);
    report.times("bare call up to the question", &mut m.bare_call, None);
    report.times("start to paused", &mut m.start, Some(raw));
    report.times("resume to completed", &mut m.resume, Some(raw));

    report.title("What they do, counted; raw is a bare commit");
    for (what, counted) in [("start", start), ("resume", resume)] {
        report.count(&format!("{what}: statements"), counted.statements, "statements", None);
        report.count(&format!("{what}: commits"), counted.commits, "commits", None);
        report.count(&format!("{what}: instantiations"), counted.instantiations, "instances", None);
        let bare_bytes = Some(bare.written_bytes).filter(|bytes| *bytes > 0);
        report.count(&format!("{what}: written"), counted.written_bytes, "bytes", bare_bytes);
    }

    let whole = m.start.p50();
    report.title("What a start consists of, each part measured alone");
    let known = [
        report.part("start: Store::load, the thread is not there", &mut m.load_absent, whole, None),
        report.part(
            "start: Sandbox::run up to the question",
            &mut m.run_start,
            whole,
            Some(m.bare_call.p50()),
        ),
        report.part(
            "start: Store::commit of the same rows",
            &mut m.commit_start,
            whole,
            Some(m.bare_commit.p50()),
        ),
    ];
    report.rest("start: the rest (plan, JSON, ids, tasks)", whole, &known);

    let whole = m.resume.p50();
    report.title("What a resume consists of");
    let known = [
        report.part("resume: Store::load of the paused thread", &mut m.load_paused, whole, None),
        report.part("resume: Store::values that the node reads", &mut m.values, whole, None),
        report.part("resume: Sandbox::run to the end", &mut m.run_resume, whole, Some(m.bare_call.p50())),
        report.part(
            "resume: Store::commit of the same rows",
            &mut m.commit_resume,
            whole,
            Some(m.bare_commit.p50()),
        ),
    ];
    report.rest("resume: the rest (match, plan, JSON, tasks)", whole, &known);

    report.title("What a statement costs before it does anything");
    report.times("bare statement that does nothing", &mut m.trip, None);
    report.times("bare commit of 3 rows, all in one text", &mut m.bare_commit_at_once, None);
    for warning in parts.differences(start, resume) {
        report.line(warning);
    }
}
