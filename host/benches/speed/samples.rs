//! How long things took.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long something took, many times.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

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

    /// One more, of several that were timed together.
    pub fn push(&mut self, took: Duration) {
        self.0.push(took);
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
