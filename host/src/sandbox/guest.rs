//! What the host keeps for one instance: everything that a host function can reach.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::WasiCtx;

use super::attempt::Outside;
use super::bindings::holdpoint::node as contract;
use super::console::Console;
use super::meter::Meter;
use super::stop::Stop;
use super::wasi::{self, Clock, Sleeps};
use crate::model::ids::Timestamp;
use crate::model::journal::{Call, Journal, Next, Reply};
use crate::model::limits::Limits;

pub(super) struct Guest {
    /// `None`: it is only being described, and may ask nothing of the host.
    task: Option<Task>,
    pub limits: Limits,
    pub meter: Meter,
    pub console: Arc<Console>,
    pub clock: Clock,
    pub sleeps: Sleeps,
    /// One stream for all that is random: how often each source is read is then part of the replay.
    pub random: ChaCha20Rng,
    /// What it asked of the host and was told, as far as that is on record.
    journal_bytes: u64,
    /// How much it may still show to those who watch.
    pub emit_bytes_left: u64,
    pub table: ResourceTable,
    pub wasi: WasiCtx,
}

/// The task that an instance works for.
#[derive(Clone)]
pub(super) struct Task {
    pub journal: Arc<Mutex<Journal>>,
    pub outside: Arc<dyn Outside>,
}

/// What is on record of a call.
pub(super) enum Recalled {
    Known { index: usize, reply: Reply, at: Timestamp },
    Fresh { index: usize },
}

/// All imports that a node may have, and nothing else.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    contract::types::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    contract::interrupts::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    contract::effects::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    contract::steering::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    contract::log::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    contract::events::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    wasi::link(linker)
}

/// It has no functions.
impl contract::types::Host for Guest {}

impl Guest {
    pub fn new(task: Option<Task>, clock: Timestamp, seed: [u8; 32], limits: Limits) -> Self {
        let mut table = ResourceTable::new();
        // The guest's own table holds the limit; this one has a few entries that no guest sees.
        table.set_max_capacity(limits.handles as usize + 8);
        Self {
            console: Arc::new(Console::new(task.clone(), limits.log_bytes)),
            task,
            meter: Meter::new(&limits),
            clock: Clock::new(clock),
            sleeps: Sleeps::default(),
            random: ChaCha20Rng::from_seed(seed),
            journal_bytes: 0,
            emit_bytes_left: limits.host_call_bytes,
            table,
            wasi: wasi::context(),
            limits,
        }
    }

    pub fn task(&self) -> Result<&Task, Stop> {
        self.task.as_ref().ok_or_else(|| {
            Stop::invalid(
                "describe called an import of holdpoint:node; it may only return what the node needs",
            )
        })
    }

    /// Looks `call` up in the journal: the one way in for every call that is on record.
    pub fn recall(&mut self, call: &Call) -> Result<Recalled, Stop> {
        let limit = self.limits.journal_entries;
        self.takes(call.bytes())?;
        let next = self.task()?.journal().next(call);
        match next {
            Next::Recorded { index, reply, at } => {
                self.takes(reply.bytes())?;
                Ok(Recalled::Known { index, reply, at })
            }
            Next::Diverged(divergence) => Err(Stop::Diverged(divergence)),
            Next::Fresh { index } if index < limit as usize => Ok(Recalled::Fresh { index }),
            Next::Fresh { .. } => Err(Stop::limit(
                "journal_entries",
                limit.into(),
                format!("the task makes more than {limit} host calls that go on record (journal_entries)"),
            )),
        }
    }

    /// So much more is to be kept of the task. It comes to the same in every attempt: what was asked, and
    /// what was told, in their order.
    pub fn takes(&mut self, bytes: u64) -> Result<(), Stop> {
        let limit = self.limits.journal_bytes;
        self.journal_bytes = self.journal_bytes.saturating_add(bytes);
        if self.journal_bytes > limit {
            let message = format!(
                "what the task asked of the host and was told amounts to more than {limit} bytes (journal_bytes)"
            );
            return Err(Stop::limit("journal_bytes", limit, message));
        }
        Ok(())
    }

    /// Takes down a call that was fresh, as of now.
    pub fn record(&mut self, call: Call, reply: Reply) -> Result<(), Stop> {
        self.takes(reply.bytes())?;
        let now = self.clock.timestamp();
        self.task()?.journal().record(call, reply, now);
        Ok(())
    }
}

impl Task {
    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        // A journal is whole between any two of its calls, so another thread's panic has not broken it.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what the node does now was done in an earlier attempt, and so was seen.
    pub fn is_replaying(&self) -> bool {
        self.journal().is_replaying()
    }
}

/// The store says one thing and the journal's rules another: a damaged database, or a bug. Not the node's doing.
pub(super) fn damaged(index: usize) -> Stop {
    tracing::error!(index, "a journal entry holds a reply that does not fit its call");
    Stop::Fault
}
