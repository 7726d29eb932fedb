//! What a start and a resume take in instructions of the host: counted by callgrind, so that it is the same on
//! a machine that is busy, and held down. This very program again, which goes through some cycles; then through
//! more of them, and the difference is theirs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use holdpoint::Host;
use tokio::process::Command;

use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Page, cycle, node};

/// The argument of a process whose instructions are counted; how many cycles, database and cache follow.
pub const CHILD: &str = "--go-through-cycles";

const FEW: u64 = 50;
const MANY: u64 = 150;
/// Of a start and its resume. A change that makes it more says why; one that makes it less brings this down.
const CYCLE_MAX: u64 = 1_450_000;

pub async fn measure(page: &Page, report: &mut Report) -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        report.line(
            "\nInstructions: valgrind is not here, which counts them; on Debian: apt-get install valgrind",
        );
        return Ok(());
    }
    let few = counted(&page.dir, "few", FEW).await?;
    let many = counted(&page.dir, "many", MANY).await?;
    let cycle = many.saturating_sub(few) / (MANY - FEW);
    report.title("Instructions of a start and its resume, by callgrind");
    report.add(Row::value("instructions of a cycle", cycle as f64, "instructions"));
    anyhow::ensure!(
        cycle <= CYCLE_MAX,
        "a cycle takes {cycle} instructions; it took {CYCLE_MAX} at most: make it less, or say why it is more"
    );
    Ok(())
}

async fn counted(dir: &Path, name: &str, cycles: u64) -> anyhow::Result<u64> {
    // A cache of its own: valgrind shows another processor than there is, for which other code is compiled.
    let of = |what: &str| -> PathBuf { dir.join(format!("instructions-{name}-{what}")) };
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", of("profile").display()))
        .arg(std::env::current_exe()?)
        .args([CHILD, &cycles.to_string()])
        .args([of("db"), of("cache")])
        .stdin(Stdio::null())
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{CHILD} under valgrind: {:?}\n{said}", output.status);
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let (_, count) = collected.with_context(|| format!("callgrind says no sum:\n{said}"))?;
    Ok(count.trim().parse()?)
}

/// The process whose instructions are counted.
pub async fn child(arguments: &[String]) -> anyhow::Result<()> {
    let [cycles, db, cache] = arguments else {
        anyhow::bail!("{CHILD} takes a number, a database and a cache")
    };
    let host = Host::builder().database(db).cache(cache).open().await?;
    let graph = host.compile(&node::graph(&node::component())).await?;
    let (mut starts, mut resumes) = (Samples::default(), Samples::default());
    for i in 0..cycles.parse::<u64>()? {
        cycle::cycle(&graph, &format!("i{i}"), (&mut starts, &mut resumes)).await?;
    }
    host.close().await;
    Ok(())
}
