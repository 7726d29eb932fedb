//! Samples, and the rows that are made of them: printed as they come, written as JSON at the end.

use std::fmt::Display;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

/// How long something took, many times.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

/// One line of the table, one object of the file.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub p50: f64,
    /// 95 of 100 were no worse than this; of a rate, the lowest.
    pub p95: f64,
    pub unit: &'static str,
    /// What the same takes without the product.
    pub raw_p50: Option<f64>,
    /// How much worse than raw it is.
    pub ratio: Option<f64>,
    /// Of the whole that it is a part of.
    #[serde(skip)]
    pub share: Option<f64>,
}

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Samples {
    /// Times what may fail; a failure ends the benchmark.
    pub async fn time<T, E: Into<anyhow::Error>>(
        &mut self,
        what: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T> {
        self.time_only(what).await.map_err(Into::into)
    }

    pub async fn time_only<T>(&mut self, what: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let done = what.await;
        self.0.push(began.elapsed());
        done
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// In microseconds, as all times here.
    pub fn p50(&mut self) -> f64 {
        self.at(0.50)
    }

    pub fn p95(&mut self) -> f64 {
        self.at(0.95)
    }

    fn at(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let sample = self.0.get((last as f64 * share).round() as usize);
        sample.map_or(0.0, |sample| sample.as_secs_f64() * 1e6)
    }
}

pub fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

impl Report {
    pub fn line(&self, line: impl Display) {
        println!("{line}");
    }

    pub fn title(&self, title: impl Display) {
        println!("\n{title}");
        println!(
            "  {:<48}{:>10}{:>10} {:<10}{:>9}{:>8}{:>7}",
            "", "p50", "p95", "", "raw p50", "ratio", "share"
        );
    }

    pub fn times(&mut self, name: &str, samples: &mut Samples, raw_p50: Option<f64>) {
        self.row(Row::times(name, samples, raw_p50));
    }

    /// A part of something that takes `whole`; gives its median.
    pub fn part(&mut self, name: &str, samples: &mut Samples, whole: f64, raw_p50: Option<f64>) -> f64 {
        let row = Row::times(name, samples, raw_p50);
        let p50 = row.p50;
        self.row(Row { share: Some(p50 / whole), ..row });
        p50
    }

    /// What the known parts of `whole` leave. Medians do not quite add up; this is as near as it gets.
    pub fn rest(&mut self, name: &str, whole: f64, known: &[f64]) {
        let rest = whole - known.iter().sum::<f64>();
        self.row(Row { share: Some(rest / whole), ..Row::value(name, rest, "µs", None) });
    }

    /// The more, the better: the ratio says how many times faster raw is.
    pub fn rate(&mut self, name: &str, rates: impl Iterator<Item = f64> + Clone, raw_p50: f64) {
        let p50 = median(rates.clone());
        let p95 = rates.fold(f64::INFINITY, f64::min);
        let ratio = Some(raw_p50 / p50);
        self.row(Row { p95, ratio, ..Row::value(name, p50, "1/s", Some(raw_p50)) });
    }

    /// A number that is what it is.
    pub fn value(&mut self, name: &str, value: f64, unit: &'static str, raw_p50: Option<f64>) {
        self.row(Row::value(name, value, unit, raw_p50));
    }

    pub fn count(&mut self, name: &str, count: u64, unit: &'static str, raw: Option<u64>) {
        self.value(name, count as f64, unit, raw.map(|raw| raw as f64));
    }

    fn row(&mut self, row: Row) {
        let shown = |value: Option<f64>, digits: usize| {
            value.map(|value| format!("{value:.digits$}")).unwrap_or_default()
        };
        let Row { name, p50, p95, unit, .. } = &row;
        let digits = if *p50 < 10.0 { 2 } else { 0 };
        let share = row.share.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default();
        println!(
            "  {name:<48}{p50:>10.digits$}{p95:>10.digits$} {unit:<10}{:>9}{:>8}{share:>7}",
            shown(row.raw_p50, 0),
            shown(row.ratio, 2),
        );
        self.rows.push(row);
    }

    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, serde_json::to_string_pretty(&self.rows)? + "\n")?;
        Ok(())
    }
}

impl Row {
    fn times(name: &str, samples: &mut Samples, raw_p50: Option<f64>) -> Self {
        Self { p95: samples.p95(), ..Self::value(name, samples.p50(), "µs", raw_p50) }
    }

    fn value(name: &str, value: f64, unit: &'static str, raw_p50: Option<f64>) -> Self {
        let ratio = raw_p50.map(|raw| value / raw);
        Self { name: name.into(), p50: value, p95: value, unit, raw_p50, ratio, share: None }
    }
}
