//! Time as a node sees it: it starts where the attempt says, goes on when the journal or a sleep says,
//! and moves a little whenever it is read, so that nobody waits for it in vain.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};

use super::super::guest::Guest;
use crate::model::ids::Timestamp;

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;
/// How far one look moves the clock; also the resolution that it claims.
pub(in super::super) const LOOK_NS: u64 = 1_000;

pub(in super::super) struct Clock {
    start: Timestamp,
    /// Since `start`. This is the monotonic clock, too: what moves one moves the other.
    elapsed_ns: u64,
}

impl Clock {
    pub fn new(start: Timestamp) -> Self {
        Self { start, elapsed_ns: 0 }
    }

    /// To the time of a journal entry that was consumed; never back.
    pub fn advance_to(&mut self, at: Timestamp) {
        let ms = u64::try_from(at.0.saturating_sub(self.start.0)).unwrap_or(0);
        self.sleep_until(ms.saturating_mul(NS_PER_MS));
    }

    pub fn timestamp(&self) -> Timestamp {
        self.start.plus_ms(self.elapsed_ns / NS_PER_MS)
    }

    /// The monotonic clock, after the little that looking takes.
    pub fn look(&mut self) -> u64 {
        self.elapsed_ns = self.elapsed_ns.saturating_add(LOOK_NS);
        self.elapsed_ns
    }

    /// The monotonic clock, without a look.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    pub fn sleep_until(&mut self, monotonic_ns: u64) {
        self.elapsed_ns = self.elapsed_ns.max(monotonic_ns);
    }

    fn wall(&self) -> wall_clock::Datetime {
        let start_ms = u64::try_from(self.start.0).unwrap_or(0);
        let ns = (start_ms % 1_000) * NS_PER_MS + self.elapsed_ns % NS_PER_S;
        wall_clock::Datetime {
            seconds: start_ms / 1_000 + self.elapsed_ns / NS_PER_S + ns / NS_PER_S,
            // Below a thousand million, so it fits.
            nanoseconds: (ns % NS_PER_S) as u32,
        }
    }
}

impl wall_clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.clock.look();
        Ok(self.clock.wall())
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: LOOK_NS as u32 })
    }
}

impl monotonic_clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.clock.look())
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(LOOK_NS)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.subscribe_until(when)
    }

    fn subscribe_duration(&mut self, ns: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let when = self.clock.look().saturating_add(ns);
        self.subscribe_until(when)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_moves_it_and_the_journal_moves_it_on_but_never_back() {
        let mut clock = Clock::new(Timestamp(1_999));
        assert_eq!(clock.look(), LOOK_NS);
        let wall = clock.wall();
        assert_eq!((wall.seconds, wall.nanoseconds), (1, 999_001_000));
        clock.advance_to(Timestamp(5_000));
        assert_eq!((clock.wall().seconds, clock.wall().nanoseconds), (5, 0));
        clock.advance_to(Timestamp(3_000));
        assert_eq!(clock.timestamp(), Timestamp(5_000));
        clock.sleep_until(u64::MAX);
        clock.look();
        assert_eq!(clock.timestamp(), Timestamp(1_999).plus_ms(u64::MAX / NS_PER_MS));
    }

    #[test]
    fn a_time_before_the_epoch_reads_as_the_epoch() {
        assert_eq!(Clock::new(Timestamp(-5)).wall().seconds, 0);
    }
}
