//! One attempt of a node whose outside is known beforehand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use super::super::host::locked;
use super::super::plan;
use super::difference::{Ended, Outcome};
use super::{Subject, VerifyError};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::{NodeId, Timestamp};
use crate::model::journal::{Divergence, EffectOutcome, Entry, Instruction, Journal};
use crate::model::json::Json;
use crate::sandbox::{Attempt, Context, End, LogLevel, Outside, Performed, Ran, Sandbox};

/// What differs between two activations of a node that are given the same.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Where the node's clock starts.
    pub clock: Timestamp,
    pub seed: [u8; 32],
    pub task: &'static str,
}

/// The same each time, so that a report can be repeated: 1 January 2026.
pub const THIS: World = World {
    clock: Timestamp(1_767_225_600_000),
    seed: *b"what is random is so repeatably.",
    task: "00000000-0000-0000-0000-000000000000",
};

/// Some days later.
pub const ANOTHER: World = World {
    clock: Timestamp(1_767_776_643_217),
    seed: *b"and this is another activation's",
    task: "00000000-0000-0000-0000-000000000001",
};

/// How long services take to reply, on the node's clock.
const EFFECT_MS: u64 = 57;

/// One attempt, done.
pub struct Done {
    pub journal: Journal,
    pub ended: Ended,
    pub divergence: Option<Box<Divergence>>,
}

/// One attempt in a fresh instance that knows `known`.
pub async fn attempt(sandbox: &Sandbox, subject: &Subject, known: Vec<Entry>) -> Result<Done, VerifyError> {
    let journal = Arc::new(Mutex::new(Journal::recorded(known, 0)));
    let outside = Canned {
        node: subject.node.clone(),
        start: subject.world.clock,
        effects: subject.effects.clone(),
        journal: journal.clone(),
    };
    let nobody = uuid::Uuid::nil().to_string();
    let attempt = Attempt {
        tenant: subject.tenant.clone(),
        context: Context {
            thread_id: "verify".into(),
            run_id: nobody,
            task_id: subject.world.task.into(),
            node: subject.node.to_string(),
            path: Vec::new(),
            step: 0,
            arg: subject.arg.clone(),
        },
        state: subject.state.clone(),
        journal: journal.clone(),
        outside: Arc::new(outside),
        clock: subject.world.clock,
        seed: subject.world.seed,
        limits: subject.limits.clone(),
    };
    let ran = sandbox.run(&subject.component, attempt).await;
    let journal = locked(&journal).clone();
    let divergence = match &ran.end {
        End::Diverged(divergence) => Some(divergence.clone()),
        // However it ended: it may have trapped short of what it did before.
        _ => journal.finish().err(),
    };
    let ended = ended(ran, &journal, subject.world.clock)?;
    Ok(Done { journal, ended, divergence })
}

fn ended(ran: Ran, journal: &Journal, start: Timestamp) -> Result<Ended, VerifyError> {
    let Ran { end, fuel, memory_bytes, output } = ran;
    let outcome = match end {
        End::Finished { update, routes } => Outcome::Finished { update, routes },
        End::Paused => Outcome::Paused,
        // The journal knows more of it.
        End::Diverged(divergence) => Outcome::Failed {
            error: ErrorRecord::new(Kind::Diverged, divergence.to_string()),
            retryable: false,
        },
        // What the node calls worth a retry is its outcome; a deadline or a lack of memory is the host's.
        End::Failed { error, retryable: true } if error.kind != Kind::NodeFailed => {
            return Err(VerifyError::CutShort(error));
        }
        End::Failed { mut error, retryable } => {
            error.more.remove("frames");
            Outcome::Failed { error, retryable }
        }
        End::Fault => {
            return Err(VerifyError::CutShort(host_failed()));
        }
    };
    let clock = journal.entries().last().map_or(start, |entry| entry.at);
    Ok(Ended { outcome, clock, fuel, memory_bytes, output })
}

pub fn host_failed() -> ErrorRecord {
    ErrorRecord::new(Kind::Store, "the host failed while it ran the node; its log says why")
}

/// An outside in which everything is known beforehand.
struct Canned {
    node: NodeId,
    start: Timestamp,
    effects: BTreeMap<String, EffectOutcome>,
    journal: Arc<Mutex<Journal>>,
}

impl Outside for Canned {
    fn perform<'a>(
        &'a self,
        index: usize,
        name: &'a str,
        _key: &'a str,
        _input: &'a Json,
    ) -> BoxFuture<'a, Performed> {
        let performed = match self.effects.get(name) {
            None => Performed::Refused(plan::undeclared(&self.node, "effect", name, self.effects.keys())),
            Some(outcome) => {
                let asked = locked(&self.journal).entries().get(index).map_or(self.start, |entry| entry.at);
                Performed::Known(outcome.clone(), asked.plus_ms(EFFECT_MS))
            }
        };
        Box::pin(async { performed })
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        Box::pin(async { Some(Vec::new()) })
    }

    fn log(&self, _: LogLevel, _: &str) {}

    fn emit(&self, _: Json) {}

    fn charge(&self, _: u64) {}
}
