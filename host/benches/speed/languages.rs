//! The same node in three languages, side by side.

use holdpoint::model::Json;
use holdpoint::model::journal::Journal;
use holdpoint::sandbox::{End, Sandbox};
use holdpoint::{Graph, Host};

use crate::amount::Amount;
use crate::attempt::attempt;
use crate::chart::{Bar, Chart, Panel};
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Page, cycle, node};

const LANGUAGES: [(&str, &str); 3] = [("Rust", ""), ("JavaScript", "javascript"), ("Python", "python")];

struct Language {
    name: &'static str,
    bytes: usize,
    graph: Graph,
    compile: Samples,
    start: Samples,
    resume: Samples,
}

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    // Nothing is compiled yet where compiling is measured; it takes the longest.
    let cache = if amount.is_quick { page.cache.clone() } else { page.dir.join("languages") };
    let host = Host::builder().database(page.dir.join("languages.db")).cache(cache).open().await?;
    let mut languages = Vec::new();
    for (name, suffix) in LANGUAGES {
        let component = node::component_in(suffix);
        let Ok(bytes) = std::fs::metadata(&component) else {
            report
                .line(format!("\n{name}: {} is not there; `make languages` builds it", component.display()));
            continue;
        };
        report.progress(format!("the node in {name} is compiled"));
        let mut compile = Samples::default();
        let graph = compile.time(host.compile(&node::graph(&component))).await?;
        let (start, resume) = (Samples::default(), Samples::default());
        languages.push(Language { name, bytes: bytes.len() as usize, graph, compile, start, resume });
    }
    for i in amount.turns(amount.turns + 1) {
        for language in &mut languages {
            let thread = format!("{}-{i}", language.name);
            if i == 1 {
                (language.start, language.resume) = (Samples::default(), Samples::default());
            }
            cycle::cycle(&language.graph, &thread, (&mut language.start, &mut language.resume)).await?;
        }
    }

    report.title("The same node in other languages; raw is Rust");
    let raw = languages.first_mut().map_or((0.0, 0.0), |first| (first.start.p50(), first.resume.p50()));
    let mut bars = Vec::new();
    for language in &mut languages {
        let name = language.name;
        let row = Row::times(format!("{name}: start to paused"), &mut language.start).raw(raw.0);
        bars.push(Bar::of(format!("{name}, start to paused"), report.add(row.on_page())));
        let row = Row::times(format!("{name}: resume to completed"), &mut language.resume).raw(raw.1);
        bars.push(Bar::of(format!("{name}, resume to completed"), report.add(row.on_page())));
        let (fuel, memory_bytes) = attempted(host.sandbox(), language).await?;
        report.add(Row::value(format!("{name}: fuel up to the question"), fuel as f64, "fuel").on_page());
        report.add(Row::value(format!("{name}: memory of the node"), memory_bytes as f64, "bytes").on_page());
        report.add(Row::value(format!("{name}: component"), language.bytes as f64, "bytes").on_page());
        if !amount.is_quick {
            report.add(Row::times(format!("{name}: compile, once"), &mut language.compile).on_page());
        }
    }
    report.chart(Chart {
        name: "languages",
        title: "A pause and a resume of the same node in other languages",
        columns: 1,
        panels: vec![Panel::Bars { title: "By language, median time".into(), unit: "µs", bars }],
    });
    host.close().await;
    Ok(())
}

/// What an attempt up to the question takes.
async fn attempted(sandbox: &Sandbox, language: &Language) -> anyhow::Result<(u64, u64)> {
    let nodes = &language.graph.compiled().nodes;
    let digest = nodes.values().find_map(|node| match node.work {
        holdpoint::model::compile::Work::Component(digest) => Some(digest),
        _ => None,
    });
    let component = sandbox.cached(digest.expect("the node is a component")).await;
    let component = component.expect("it was just run");
    let state = Json::from_value(&node::input())?;
    let ran = sandbox.run(&component, attempt(state, Journal::default())).await;
    anyhow::ensure!(matches!(ran.end, End::Paused), "{ran:#?}");
    Ok((ran.fuel, ran.memory_bytes))
}
