//! Pause and resume beside what they cannot do without: a bare commit of three rows, and a bare call of the
//! same component. Everything is measured in one run and in turns, so that whatever else goes on in the
//! machine falls on all alike: trust the ratios more than the times.
//!
//! `make bench`, or `cargo bench -p holdpoint --bench cycle [-- --quick]`. Prints tables, and writes the rows
//! to `target/bench/bench.json`.

mod bare_call;
mod bare_commit;
mod crowd;
mod machine;
mod node;
mod parts;
mod report;
mod turns;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use holdpoint::{Graph, Host};

use bare_call::BareCall;
use bare_commit::BareCommit;
use report::Report;

/// How much is measured. A run ends by itself: counts are bounded, and so is the time they may take.
#[derive(Clone, Copy)]
struct Amount {
    turns: usize,
    turns_s_max: u64,
    /// Of the measurement with many threads at once; each is a second of the product and less of the rest.
    rounds: usize,
}

const FULL: Amount = Amount { turns: 1_000, turns_s_max: 120, rounds: 5 };
const QUICK: Amount = Amount { turns: 100, turns_s_max: 20, rounds: 2 };

/// All that is measured against each other: on one disk, in one runtime.
struct Bench {
    host: Host,
    graph: Graph,
    bare_commit: BareCommit,
    bare_call: BareCall,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut amount = FULL;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => amount = QUICK,
            // Cargo's own word for "not a test".
            "--bench" => {}
            other => bail!("unknown argument {other:?}; there is only --quick"),
        }
    }
    // On a worker of the runtime, as a server's requests are, and not on the thread that only waits for it.
    tokio::spawn(run(amount)).await?
}

async fn run(amount: Amount) -> anyhow::Result<()> {
    let target = target_dir()?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let mut report = Report::default();
    report.line(machine::line(dir.path()));
    if cfg!(debug_assertions) {
        report.line("NOT OPTIMISED: these numbers say nothing");
    }
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|set| set != "0") {
        report.line("RUST_BACKTRACE is set: every pause takes a backtrace of the host, which costs more than the rest");
    }
    let mut bench = Bench::open(dir.path()).await?;
    turns::measure(&mut bench, amount, &mut report).await?;
    crowd::measure(&mut bench, amount, &mut report).await?;
    report.line(machine::load());
    bench.host.close().await;

    let path = target.join("bench/bench.json");
    report.write(&path)?;
    println!("\nrows written to {}", path.display());
    Ok(())
}

impl Bench {
    async fn open(dir: &Path) -> anyhow::Result<Self> {
        let component = node::component();
        let bytes = std::fs::read(&component)
            .with_context(|| format!("{} is not there; `make bench` builds it", component.display()))?;
        let host = Host::open(dir.join("holdpoint.db")).await?;
        let graph = host.compile(&node::graph(&component)).await?;
        Ok(Self {
            host,
            graph,
            bare_commit: BareCommit::open(&dir.join("bare.db")).await?,
            bare_call: BareCall::new(&bytes).map_err(anyhow::Error::msg)?,
        })
    }
}

/// Cargo names only a folder in it.
fn target_dir() -> anyhow::Result<PathBuf> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Ok(tmp.parent().context("a target directory")?.to_owned())
}
