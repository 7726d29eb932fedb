//! A process of the real program, from its start to the first pause and to the answer, with compiled components
//! at hand; beside one that has many more installed, and one that only says its version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::amount::Amount;
use crate::chart::{Bar, Chart, Panel};
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Page, node};

// Small components that differ: it is their number that counts here.
#[path = "../../src/sandbox/tests/by_hand.rs"]
mod by_hand;

const PROGRAM: &str = env!("CARGO_BIN_EXE_holdpoint");

/// How `run` ends where a question waits, and `resume` where the run completes.
const WAITS: i32 = 3;
const COMPLETED: i32 = 0;

/// A database with a cache of its own.
struct Place {
    graph: PathBuf,
    db: PathBuf,
    cache: PathBuf,
    run: Samples,
    resume: Samples,
}

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let mut few = Place::new(&page.dir, "few")?;
    let mut many = Place::new(&page.dir, "many")?;
    report.progress(format!("{} components are installed", amount.installed));
    many.install(&page.dir.join("by-hand"), amount.installed).await?;
    let mut version = Samples::default();
    for i in amount.turns(amount.processes + 1) {
        version.time(ends(Command::new(PROGRAM).arg("--version"), 0)).await?;
        few.cycle(i).await?;
        many.cycle(i).await?;
        if i == 0 {
            // Compiled now, and read by the system.
            version = Samples::default();
            for place in [&mut few, &mut many] {
                (place.run, place.resume) = (Samples::default(), Samples::default());
            }
        }
    }

    report.title("Start of a process, compiled components at hand; raw: it only says its version");
    let raw = version.p50();
    report.add(Row::times("holdpoint --version", &mut version));
    let installed = amount.installed;
    let mut bars = vec![Bar::raw("says its version", raw)];
    for (place, what) in [(&mut few, "1 component installed"), (&mut many, "")] {
        let what =
            if what.is_empty() { format!("{} components installed", installed + 1) } else { what.to_owned() };
        let run = Row::times(format!("process start to paused, {what}"), &mut place.run);
        bars.push(Bar::of(format!("start to paused, {what}"), report.add(run.raw(raw).on_page())));
        let resume = Row::times(format!("process start to completed, {what}"), &mut place.resume);
        bars.push(Bar::of(format!("start to completed, {what}"), report.add(resume.raw(raw).on_page())));
    }
    report.chart(Chart {
        name: "start",
        title: "Start of a process to the first pause, and to the answer",
        columns: 1,
        panels: vec![Panel::Bars { title: "Start of a process, median time".into(), unit: "µs", bars }],
    });
    Ok(())
}

impl Place {
    fn new(dir: &Path, name: &str) -> anyhow::Result<Self> {
        let dir = dir.join(name);
        fs::create_dir(&dir)?;
        let graph = dir.join("graph.toml");
        fs::write(&graph, node::graph(&node::component()).to_toml())?;
        Ok(Self {
            graph,
            db: dir.join("holdpoint.db"),
            cache: dir.join("cache"),
            run: Samples::default(),
            resume: Samples::default(),
        })
    }

    fn program(&self, verb: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg(verb).arg("--json").arg("--db").arg(&self.db).arg("--cache").arg(&self.cache);
        command
    }

    async fn install(&self, files: &Path, count: usize) -> anyhow::Result<()> {
        fs::create_dir(files)?;
        let mut command = self.program("install");
        for i in 0..count {
            let path = files.join(format!("{i}.wasm"));
            let own = format!("(global (export \"own\") i32 (i32.const {i}))");
            fs::write(&path, by_hand::node(&own, "(i32.const 0)"))?;
            command.arg(path);
        }
        ends(&mut command, 0).await
    }

    async fn cycle(&mut self, i: usize) -> anyhow::Result<()> {
        let thread = format!("p{i}");
        let input = node::input().to_string();
        let mut command = self.program("run");
        command.arg(&self.graph).args(["--thread", &thread, "--input", &input]);
        self.run.time(ends(&mut command, WAITS)).await?;
        let answer = node::answer().to_string();
        let mut command = self.program("resume");
        command.args(["--thread", &thread, &answer]);
        self.resume.time(ends(&mut command, COMPLETED)).await
    }
}

/// Runs it to its end, which must be this.
async fn ends(command: &mut Command, code: i32) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.code() == Some(code), "{command:?}: {:?}: {said}", output.status);
    Ok(())
}
