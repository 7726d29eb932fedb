//! The page that users compare by: what a pause and a resume cost beside what they cannot do without, how that
//! grows, what starting and waiting cost. Everything is measured in one run and in turns, so that whatever else
//! goes on in the machine falls on all alike: trust the ratios more than the times.
//!
//! `make bench`, or `cargo bench -p holdpoint --bench speed -- [--quick | --full] [PART…]`. Prints tables, and
//! writes the rows, the page's table and its charts to `target/bench`; some parts alone, under their names.

mod amount;
mod machine;
mod samples;
mod report;
mod chart;

mod node;
mod attempt;
mod rows;
mod copies;
mod bare_commit;
mod bare_call;

mod cycle;
mod parts;
mod counted;
mod crowd;
mod growth;
mod start;
mod memory;
mod instances;
mod languages;
mod instructions;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use holdpoint::{Graph, Host};

use amount::Amount;
use bare_call::{Allocation, BareCall, Image};
use bare_commit::BareCommit;
use report::Report;

const PARTS: [&str; 12] = [
    "cycle",
    "crowd",
    "threads",
    "steps",
    "state",
    "questions",
    "graphs",
    "start",
    "memory",
    "instances",
    "languages",
    "instructions",
];

/// Where all of it happens.
pub struct Page {
    /// On the disk that is measured; gone afterwards.
    pub dir: PathBuf,
    /// Compiled components, kept for the next run.
    pub cache: PathBuf,
}

/// All that is measured against each other: on one disk, in one runtime.
struct Bench {
    host: Host,
    graph: Graph,
    bare_commit: BareCommit,
    bare_call: BareCall,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut amount = amount::USUAL;
    let mut parts: Vec<&str> = Vec::new();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, rest @ ..] = arguments.as_slice()
        && what == memory::CHILD
    {
        return memory::child(rest).await;
    }
    if let [what, rest @ ..] = arguments.as_slice()
        && what == instructions::CHILD
    {
        return instructions::child(rest).await;
    }
    for argument in &arguments {
        match argument.as_str() {
            "--quick" => amount = amount::QUICK,
            "--full" => amount = amount::FULL,
            // Cargo's own word for "not a test".
            "--bench" => {}
            part if PARTS.contains(&part) => parts.push(part),
            other => bail!("unknown argument {other:?}; there are --quick, --full, and {}", PARTS.join(", ")),
        }
    }
    // Only a whole run is what is published.
    let name = match (parts.as_slice(), amount.is_quick) {
        ([], false) => "bench".to_owned(),
        ([], true) => "quick".to_owned(),
        (parts, _) => parts.join("-"),
    };
    if parts.is_empty() {
        parts.extend(PARTS);
    }
    let parts: Vec<String> = parts.into_iter().map(str::to_owned).collect();
    // On a worker of the runtime, as a server's requests are, and not on the thread that only waits for it.
    tokio::spawn(async move { run(amount, &parts, &name).await }).await?
}

async fn run(amount: Amount, parts: &[String], name: &str) -> anyhow::Result<()> {
    let folder = target_dir()?.join("bench");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let page = Page { dir: dir.path().to_owned(), cache: folder.join("components") };
    let mut report = Report::default();
    let taken_on = machine::line(dir.path());
    report.line(&taken_on);
    if cfg!(debug_assertions) {
        report.line("NOT OPTIMISED: these numbers say nothing");
    }
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|set| set != "0") {
        report.line("RUST_BACKTRACE is set: every pause takes a backtrace of the host, which costs more than the rest");
    }
    let began = std::time::Instant::now();
    let mut bench = None;
    for part in parts {
        let report = &mut report;
        match part.as_str() {
            "cycle" => cycle::measure(page.bench(&mut bench).await?, amount, report).await?,
            "crowd" => crowd::measure(page.bench(&mut bench).await?, amount, report).await?,
            "start" => start::measure(&page, amount, report).await?,
            "memory" => memory::measure(&page, amount, report).await?,
            "instances" => instances::measure(amount, report).await?,
            "instructions" => instructions::measure(&page, report).await?,
            "languages" => languages::measure(&page, amount, report).await?,
            growing => growth::measure(growing, &page, amount, report).await?,
        }
    }
    if let Some(bench) = bench {
        bench.host.close().await;
    }
    let load = machine::load();
    report.line(format!("\n{load} afterwards; {} s", began.elapsed().as_secs()));
    report.write(&folder, name, &format!("{taken_on} before and {load} after"))?;
    report.line(format!("written: {0}/{name}.json, {0}/{name}.md, {0}/{name}-charts", folder.display()));
    Ok(())
}

impl Page {
    async fn host(&self, db: &Path) -> anyhow::Result<Host> {
        Ok(Host::builder().database(db).cache(&self.cache).open().await?)
    }

    /// Opened by the part that first needs it.
    async fn bench<'a>(&self, bench: &'a mut Option<Bench>) -> anyhow::Result<&'a mut Bench> {
        if bench.is_none() {
            let component = node::component();
            let bytes = node::bytes(&component)?;
            let host = self.host(&self.dir.join("holdpoint.db")).await?;
            let graph = host.compile(&node::graph(&component)).await?;
            let bare_call = BareCall::new(&bytes, Allocation::OnDemand, Image::CopyOnWrite);
            *bench = Some(Bench {
                host,
                graph,
                bare_commit: BareCommit::open(self).await?,
                bare_call: bare_call.map_err(anyhow::Error::msg)?,
            });
        }
        bench.as_mut().context("it was just opened")
    }
}

/// Cargo names only a folder in it.
fn target_dir() -> anyhow::Result<PathBuf> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Ok(tmp.parent().context("a target directory")?.to_owned())
}
