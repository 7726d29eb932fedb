//! What must not grow, at sizes that do. All sizes of one thing are there at once and take turns.

mod threads;
mod steps;
mod state;
mod questions;
mod graphs;

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::Page;
use crate::amount::Amount;
use crate::chart::{Chart, Curve, Panel};
use crate::report::{Report, Row};
use crate::samples::Samples;

pub async fn measure(part: &str, page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    match part {
        "threads" => threads::measure(page, amount, report).await,
        "steps" => steps::measure(page, amount, report).await,
        "state" => state::measure(page, amount, report).await,
        "questions" => questions::measure(page, amount, report).await,
        "graphs" => graphs::measure(page, amount, report).await,
        other => anyhow::bail!("nothing grows by the name of {other:?}"),
    }
}

/// One thing that is measured at each size.
struct Line {
    name: &'static str,
    /// By size, from the smallest.
    at: Vec<(usize, Samples)>,
}

impl Line {
    fn new(name: &'static str, sizes: &[usize]) -> Self {
        Self { name, at: sizes.iter().map(|size| (*size, Samples::default())).collect() }
    }

    fn samples(&mut self, size: usize) -> &mut Samples {
        // Each is made with all the sizes that are measured.
        let found = self.at.iter().position(|(known, _)| *known == size).unwrap_or_default();
        &mut self.at[found].1
    }
}

/// A row for each size, beside the smallest, and the chart of all.
fn show(
    report: &mut Report,
    (title, sizes): (&str, &str),
    shown: impl Fn(usize) -> String,
    lines: &mut [Line],
) {
    let mut curves = Vec::new();
    for line in lines {
        let first = line.at.first_mut().map(|(_, samples)| samples.p50()).unwrap_or_default();
        let mut points = Vec::new();
        for (size, samples) in &mut line.at {
            let row = Row::times(format!("{}, {}", line.name, shown(*size)), samples).raw(first);
            points.push((*size as f64, report.add(row.on_page())));
        }
        curves.push(Curve { name: line.name, points });
    }
    let panel = Panel::Curves { title: title.to_owned(), sizes: sizes.to_owned(), unit: "µs", curves };
    let title = "What must not grow, at sizes that do";
    report.chart(Chart { name: "growth", title, columns: 2, panels: vec![panel] });
}

/// With its thousands apart.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// What the rows of a database say: their columns' bytes, without indexes, pages and what is free in them.
async fn said_bytes(db: &Path) -> anyhow::Result<u64> {
    let options = SqliteConnectOptions::new().filename(db).disable_statement_logging();
    let mut connection = options.connect().await?;
    let sum = "SELECT sum(payload) FROM dbstat WHERE aggregate = TRUE \
        AND name IN (SELECT name FROM sqlite_schema WHERE type = 'table')";
    let said: i64 = sqlx::query_scalar(sum).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(u64::try_from(said)?)
}

/// What a database holds, what waits in its log included.
async fn stored_bytes(db: &Path) -> anyhow::Result<u64> {
    let options = SqliteConnectOptions::new().filename(db).disable_statement_logging();
    let mut connection = options.connect().await?;
    let mut numbers = [0_i64; 3];
    for (number, pragma) in
        numbers.iter_mut().zip(["PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size"])
    {
        *number = sqlx::query_scalar(pragma).fetch_one(&mut connection).await?;
    }
    connection.close().await?;
    let [pages, free, page_bytes] = numbers;
    Ok(u64::try_from((pages - free) * page_bytes)?)
}
