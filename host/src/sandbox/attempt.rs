//! One attempt: what goes into a fresh instance of a node, and what comes out.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde::Serialize;

use crate::model::error::ErrorRecord;
use crate::model::ids::{TenantId, Timestamp};
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{Divergence, EffectOutcome, Instruction, Journal};
use crate::model::json::Json;
use crate::model::limits::Limits;

/// Where and why a node runs, as the guest is told. The same in every attempt of one task.
#[derive(Clone, Debug)]
pub struct Context {
    pub thread_id: String,
    pub run_id: String,
    pub task_id: String,
    pub node: String,
    pub path: Vec<String>,
    pub step: u32,
    pub arg: Option<Json>,
}

/// What one attempt starts from.
pub struct Attempt {
    /// Whose it is: tenants take turns.
    pub tenant: TenantId,
    pub context: Context,
    /// The object of the channels that the node was granted, under its own names.
    pub state: Json,
    /// The task's host calls so far; what is new is added as it happens.
    pub journal: Arc<Mutex<Journal>>,
    pub outside: Arc<dyn Outside>,
    /// Where the guest's wall clock starts.
    pub clock: Timestamp,
    /// Of all the guest's random numbers.
    pub seed: [u8; 32],
    pub limits: Limits,
}

/// The part of the host that a running node can reach, beyond its journal.
pub trait Outside: Send + Sync {
    /// Carry out the effect at journal index `index`, which is recorded as begun but not known. Called
    /// anew on every attempt until its outcome is known. Names here are the node's own.
    fn perform<'a>(
        &'a self,
        index: usize,
        name: &'a str,
        key: &'a str,
        input: &'a Json,
    ) -> BoxFuture<'a, Performed>;

    /// Instructions for this task so far, oldest first; called only where the journal has none on record.
    /// `None` as [`Performed::Fault`].
    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>>;

    /// One line that the node logged, or one that it printed.
    fn log(&self, level: LogLevel, message: &str);

    /// One value for those who watch.
    fn emit(&self, event: Json);

    /// What the attempt is charged with, told once, at its end or when it is dropped.
    fn charge(&self, amount: u64);
}

/// What became of an effect.
#[derive(Debug)]
pub enum Performed {
    /// Known, and when; the sandbox settles it in the journal and goes on.
    Known(EffectOutcome, Timestamp),
    /// Likewise, and another attempt after this one may send it again.
    Retryable(EffectOutcome, Timestamp),
    /// A person is asked first: the sandbox settles the entry as asked, and the attempt pauses.
    Ask(InterruptKind),
    /// The attempt fails with this.
    Refused(ErrorRecord),
    /// The host could not do its part (its store failed, its handler panicked, it lost the thread's lease);
    /// the attempt ends without an outcome.
    Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// How an attempt ended. What the node did wrong is data, not an `Err`.
#[derive(Debug)]
pub enum End {
    /// In the node's own names; nothing of it is checked against grants yet.
    Finished {
        update: Vec<(String, Json)>,
        routes: Vec<Route>,
    },
    /// The journal's last entry waits for a person. The instance is gone.
    Paused,
    Failed {
        error: ErrorRecord,
        retryable: bool,
    },
    Diverged(Box<Divergence>),
    /// [`Performed::Fault`] was said; whoever said it knows why.
    Fault,
}

/// A route by label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Go(String),
    Send { label: String, arg: Json },
    End,
}

/// One attempt's end and what it took.
#[derive(Debug)]
pub struct Ran {
    pub end: End,
    pub fuel: u64,
    /// The most linear memory that it had.
    pub memory_bytes: u64,
    /// What it printed and logged, up to the limit; for a failure's record and for `show`.
    pub output: Output,
}

/// What was printed, as far as it was kept, and whether anything of it, or of the log, was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    /// The last of each, which is no part of the above where that was cut off.
    pub stdout_tail: String,
    pub stderr_tail: String,
    pub truncated: bool,
}
