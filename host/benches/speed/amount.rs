//! How much is measured. A run ends by itself: counts are bounded, and so is the time that each part may take.

use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub struct Amount {
    pub is_quick: bool,
    /// Cycles, one after another, that the first part measures.
    pub cycles: usize,
    /// Of the measurement with many threads at once; each is a second of the product and less of the rest.
    pub rounds: usize,
    /// What is measured at each size, where sizes are compared.
    pub turns: usize,
    pub part_s_max: u64,
    /// Sizes, each growing from the first.
    pub paused: &'static [usize],
    pub steps: &'static [usize],
    pub state_bytes: &'static [usize],
    pub questions: &'static [usize],
    pub nodes: &'static [usize],
    /// Processes that are started.
    pub processes: usize,
    pub installed: usize,
    pub resident: &'static [usize],
}

const KB: usize = 1_024;
const MB: usize = 1_024 * KB;

/// To see that all of it works.
pub const QUICK: Amount = Amount {
    is_quick: true,
    cycles: 60,
    rounds: 1,
    turns: 8,
    part_s_max: 10,
    paused: &[100, 1_000],
    steps: &[10, 100],
    state_bytes: &[KB, 100 * KB],
    questions: &[1, 20],
    nodes: &[10, 100],
    processes: 5,
    installed: 10,
    resident: &[0, 1_000],
};

pub const USUAL: Amount = Amount {
    is_quick: false,
    cycles: 1_000,
    rounds: 5,
    turns: 60,
    part_s_max: 45,
    paused: &[100, 10_000, 100_000],
    steps: &[10, 1_000, 10_000],
    state_bytes: &[KB, 100 * KB, 10 * MB],
    questions: &[1, 20, 100],
    nodes: &[10, 100, 1_000],
    processes: 20,
    installed: 100,
    resident: &[0, 1_000, 100_000],
};

/// With what takes minutes to prepare and gigabytes of disk.
pub const FULL: Amount =
    Amount { turns: 100, part_s_max: 120, processes: 40, paused: &[100, 10_000, 1_000_000], ..USUAL };

impl Amount {
    /// So many turns, or as many as a part's time allows.
    pub fn turns(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let ends = Instant::now() + Duration::from_secs(self.part_s_max);
        (0..count).take_while(move |_| Instant::now() < ends)
    }
}
