//! The memory that one instance takes, all its parts together.
//!
//! Over the limit it stops with an error that names the limit. It never gets a failed `memory.grow`
//! instead: what a guest does then is no use to anybody, and the operator would not see why.

use wasmtime::ResourceLimiter;

use super::stop::Stop;
use crate::model::error::{ErrorRecord, Kind};
use crate::model::limits::Limits;

pub(super) struct Meter {
    memory_bytes: u64,
    memory_bytes_max: u64,
    memory_bytes_peak: u64,
    table_elements: u64,
    table_elements_max: u64,
    instances_max: usize,
}

impl Meter {
    pub fn new(limits: &Limits) -> Self {
        Self {
            memory_bytes: 0,
            memory_bytes_max: limits.memory_bytes,
            memory_bytes_peak: 0,
            table_elements: 0,
            table_elements_max: limits.table_elements,
            instances_max: limits.instances as usize,
        }
    }

    pub fn memory_bytes_peak(&self) -> u64 {
        self.memory_bytes_peak
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // A memory that has a maximum of its own answers the same on every host.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let total = grown(self.memory_bytes, current, desired);
        if total > self.memory_bytes_max {
            return Err(over_memory(self.memory_bytes_max).into());
        }
        self.memory_bytes = total;
        self.memory_bytes_peak = self.memory_bytes_peak.max(total);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        // Also said of a growth past what the memory's type can address, which no host could grant.
        if error.to_string().contains("memory type's limits") {
            return Ok(());
        }
        Err(host_is_short().into())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let total = grown(self.table_elements, current, desired);
        let limit = self.table_elements_max;
        if total > limit {
            let message = format!("the node's tables would have more than {limit} elements (table_elements)");
            return Err(Stop::limit("table_elements", limit, message).into());
        }
        self.table_elements = total;
        Ok(true)
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(host_is_short().into())
    }

    fn instances(&self) -> usize {
        self.instances_max
    }

    // A module has a table or memory seldom, and more than one of each hardly ever.
    fn tables(&self) -> usize {
        self.instances_max.saturating_mul(2)
    }

    fn memories(&self) -> usize {
        self.instances_max.saturating_mul(2)
    }
}

pub(super) fn over_memory(limit: u64) -> Stop {
    let message = format!("the node would have more than {limit} bytes of memory (memory_bytes)");
    Stop::limit("memory_bytes", limit, message)
}

fn grown(total: u64, current: usize, desired: usize) -> u64 {
    total.saturating_sub(current as u64).saturating_add(desired as u64)
}

/// Not the node's doing, and not to be answered with a failed growth that a replay would not see.
pub(super) fn host_is_short() -> Stop {
    Stop::Failed {
        error: ErrorRecord::new(Kind::Trap, "the host has no memory left for the node; try again later")
            .with("trap", "host-memory"),
        retryable: true,
    }
}
