//! The rows that are made of what was measured: printed as they come, written at the end as JSON, as the table
//! and the charts of a page.

use std::fmt::{Display, Write as _};
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::chart::Chart;
use crate::samples::{Samples, median};

/// One line of the table, one object of the file.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub p50: f64,
    /// 95 of 100 were no worse than this; of a rate, the lowest.
    pub p95: f64,
    pub unit: &'static str,
    /// What the same takes without the product; where sizes are compared, what the smallest takes.
    pub raw_p50: Option<f64>,
    /// How many times raw it is; of a rate, how many times faster raw is.
    pub ratio: Option<f64>,
    /// Of the whole that it is a part of.
    #[serde(skip)]
    share: Option<f64>,
    /// Whether it stands in the page's table, and not only in the file.
    #[serde(skip)]
    on_page: bool,
}

impl Row {
    pub fn times(name: impl Into<String>, samples: &mut Samples) -> Self {
        Self { p95: samples.p95(), ..Self::value(name, samples.p50(), "µs") }
    }

    /// A number that is what it is.
    pub fn value(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            p50: value,
            p95: value,
            unit,
            raw_p50: None,
            ratio: None,
            share: None,
            on_page: false,
        }
    }

    /// The more, the better.
    pub fn rate(name: impl Into<String>, rates: impl Iterator<Item = f64> + Clone, raw_p50: f64) -> Self {
        let p50 = median(rates.clone());
        Self {
            p95: rates.fold(f64::INFINITY, f64::min),
            raw_p50: Some(raw_p50),
            ratio: Some(raw_p50 / p50),
            ..Self::value(name, p50, "1/s")
        }
    }

    pub fn raw(self, raw_p50: f64) -> Self {
        let ratio = (raw_p50 > 0.0).then(|| self.p50 / raw_p50);
        Self { raw_p50: Some(raw_p50), ratio, ..self }
    }

    pub fn of_whole(self, whole: f64) -> Self {
        Self { share: Some(self.p50 / whole), ..self }
    }

    pub fn on_page(self) -> Self {
        Self { on_page: true, ..self }
    }
}

#[derive(Default)]
pub struct Report {
    titles: Vec<(usize, String)>,
    rows: Vec<Row>,
    charts: Vec<Chart>,
}

impl Report {
    pub fn line(&self, line: impl Display) {
        println!("{line}");
    }

    /// What goes on where nothing is printed for long.
    pub fn progress(&self, what: impl Display) {
        eprintln!("  … {what}");
    }

    pub fn title(&mut self, title: impl Into<String>) {
        let title = title.into();
        println!("\n{title}");
        println!("  {:<56}{:>10} {:>10} {:>10}{:>8}{:>7}", "", "p50", "p95", "raw p50", "ratio", "share");
        self.titles.push((self.rows.len(), title));
    }

    /// Gives back the median.
    pub fn add(&mut self, row: Row) -> f64 {
        let name = &row.name;
        let [p50, p95, raw] = row.shown();
        let share = row.share.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default();
        println!("  {name:<56}{p50:>10} {p95:>10} {raw:>10}{:>8}{share:>7}", row.ratio_shown());
        let p50 = row.p50;
        self.rows.push(row);
        p50
    }

    /// What the known parts of `whole` leave. Medians do not quite add up; this is as near as it gets.
    pub fn rest(&mut self, name: &str, whole: f64, known: f64) {
        self.add(Row::value(name, whole - known, "µs").of_whole(whole));
    }

    /// Panels of one name come into one picture.
    pub fn chart(&mut self, chart: Chart) {
        match self.charts.iter_mut().find(|known| known.name == chart.name) {
            Some(known) => known.panels.extend(chart.panels),
            None => self.charts.push(chart),
        }
    }

    /// `{name}.json` with all rows, `{name}.md` with the page's table, and `{name}-charts`.
    pub fn write(&self, folder: &Path, name: &str, taken_on: &str) -> anyhow::Result<()> {
        let charts = folder.join(format!("{name}-charts"));
        fs::create_dir_all(&charts)?;
        fs::write(
            folder.join(name).with_extension("json"),
            serde_json::to_string_pretty(&self.rows)? + "\n",
        )?;
        fs::write(folder.join(name).with_extension("md"), self.page(taken_on)?)?;
        for chart in &self.charts {
            chart.draw(&charts)?;
        }
        Ok(())
    }

    fn page(&self, taken_on: &str) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        writeln!(page, "\nFrom one run; {taken_on}.\n")?;
        writeln!(page, "| | p50 | p95 | raw p50 | ratio |\n|---|--:|--:|--:|--:|")?;
        let mut titles = self.titles.iter().peekable();
        for (i, row) in self.rows.iter().enumerate().filter(|(_, row)| row.on_page) {
            let mut title = None;
            while let Some((_, next)) = titles.next_if(|(at, _)| *at <= i) {
                title = Some(next);
            }
            if let Some(title) = title {
                writeln!(page, "| **{title}** | | | | |")?;
            }
            let [p50, p95, raw] = row.shown();
            writeln!(page, "| {} | {p50} | {p95} | {raw} | {} |", row.name, row.ratio_shown())?;
        }
        writeln!(page)?;
        for chart in &self.charts {
            writeln!(page, "![{}](host/benches/charts/{}.svg)\n", chart.title, chart.name)?;
        }
        Ok(page)
    }
}

impl Row {
    /// The median, the 95th percentile if it says more, and raw, as a person reads them.
    fn shown(&self) -> [String; 3] {
        let p95 = Some(self.p95).filter(|p95| *p95 != self.p50);
        let shown = |value: Option<f64>| value.map(|value| human(value, self.unit)).unwrap_or_default();
        [shown(Some(self.p50)), shown(p95), shown(self.raw_p50)]
    }

    fn ratio_shown(&self) -> String {
        self.ratio.map(|ratio| human(ratio, "")).unwrap_or_default()
    }
}

/// Three digits, in the unit that they are best read in.
pub fn human(value: f64, unit: &'static str) -> String {
    let larger: &[(f64, &str)] = match unit {
        "µs" => &[(1e6, "s"), (1e3, "ms")],
        "bytes" => &[(1024.0 * 1024.0, "MB"), (1024.0, "KB")],
        "fuel" => &[(1e9, "G"), (1e6, "M"), (1e3, "k")],
        _ => &[],
    };
    let found = larger.iter().copied().find(|(factor, _)| value.abs() >= *factor);
    let (factor, unit) = found.unwrap_or((1.0, unit));
    let value = value / factor;
    let digits = match value.abs() {
        whole if whole.fract() == 0.0 || whole >= 100.0 => 0,
        tens if tens >= 10.0 => 1,
        small if small >= 0.1 => 2,
        _ => 3,
    };
    let unit = match unit {
        "bytes" => "B",
        // What is counted stands in the row's name.
        "statements" | "commits" | "instances" | "fuel" => "",
        unit => unit,
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}
