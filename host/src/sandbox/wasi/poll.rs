//! Waiting, in a world where time passes only by waiting.
//!
//! Wasmtime's own `poll` would sleep for real, and would order what is ready by chance. Here the
//! streams of this world are always ready (stdin is closed, the others take everything), and a sleep
//! ends at once: if nothing is ready, the clock jumps to the earliest deadline.

use std::collections::HashMap;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi_io::bindings::wasi::io::poll::{Host, HostPollable};

use super::super::guest::Guest;
use super::super::stop::Stop;

/// Until when each of the clock's pollables sleeps. A pollable that is not here belongs to a stream.
#[derive(Default)]
pub(in super::super) struct Sleeps {
    until_ns: HashMap<u32, u64>,
    /// What all of the clock's pollables are children of, so that each costs one handle.
    clock: Option<u32>,
}

/// Has no readiness of its own.
struct AnyTime;

#[wasmtime_wasi_io::async_trait]
impl Pollable for AnyTime {
    async fn ready(&mut self) {}
}

impl Guest {
    pub(super) fn subscribe_until(&mut self, monotonic_ns: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let clock = match self.sleeps.clock {
            Some(clock) => clock,
            None => *self.sleeps.clock.insert(self.table.push(AnyTime)?.rep()),
        };
        let pollable = subscribe(&mut self.table, Resource::<AnyTime>::new_borrow(clock))?;
        self.sleeps.until_ns.insert(pollable.rep(), monotonic_ns);
        Ok(pollable)
    }

    /// `None`: it is ready at any time.
    fn deadline(&self, pollable: &Resource<DynPollable>) -> Option<u64> {
        self.sleeps.until_ns.get(&pollable.rep()).copied()
    }
}

impl Host for Guest {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        let deadlines: Vec<u64> =
            pollables.iter().map(|pollable| self.deadline(pollable).unwrap_or(0)).collect();
        let Some(&earliest) = deadlines.iter().min() else {
            return Err(Stop::invalid("the node polls an empty list, which can never be ready").into());
        };
        // Looking comes first, so that a loop that only ever polls what is ready sees time pass.
        self.clock.look();
        self.clock.sleep_until(earliest);
        let now = self.clock.elapsed_ns();
        Ok((0u32..).zip(deadlines).filter(|&(_, deadline)| deadline <= now).map(|(i, _)| i).collect())
    }
}

impl HostPollable for Guest {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        let now = self.clock.look();
        Ok(self.deadline(&pollable).is_none_or(|deadline| deadline <= now))
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.clock.look();
        if let Some(deadline) = self.deadline(&pollable) {
            self.clock.sleep_until(deadline);
        }
        Ok(())
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.sleeps.until_ns.remove(&pollable.rep());
        HostPollable::drop(&mut self.table, pollable)
    }
}
