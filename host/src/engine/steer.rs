//! Instructions to a run that waits or goes on, apart from any answer.

use super::error::EngineError;
use super::host::Host;
use super::resume::{RACES_MAX, refused, shown, too_many_races};
use crate::model::checkpoint::SteeringRow;
use crate::model::command::RunConfig;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::InstructionId;
use crate::model::limits::Limits;
use crate::store::{Batch, CommitError, Expect, LeaseChange, Write};

impl Host {
    /// Tells a paused or running run something, for all of its tasks; they see it when they next look. A
    /// run that is over takes none.
    pub async fn steer(&self, config: RunConfig, actor: &str, text: &str) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        bounded(text, &self.limits)?;
        for _ in 0..RACES_MAX {
            let snapshot = self.load(&store, &thread).await?;
            if !matches!(snapshot.status, RunStatus::Running | RunStatus::Interrupted) {
                let (run, status) = (snapshot.run.run, snapshot.status.as_str());
                let what =
                    format!("run {run} on thread {thread} is {status}; it takes no instruction any more");
                return Err(refused(&snapshot, Kind::NotPending, what).into());
            }
            let row = SteeringRow {
                run: snapshot.run.run,
                id: InstructionId::fresh(),
                task: None,
                interrupt: None,
                actor: actor.to_owned(),
                text: text.to_owned(),
                at: self.shared.clock.now(),
            };
            // Head, epoch and lease stay: whoever runs the thread goes on undisturbed.
            let batch = Batch {
                tenant: self.tenant.clone(),
                thread: thread.clone(),
                expect: Expect::At { head: snapshot.head, epoch: snapshot.epoch },
                head: snapshot.head,
                status: snapshot.status,
                lease: LeaseChange::Keep,
                writes: vec![Write::Steer(row)],
            };
            match store.commit(batch).await {
                Ok(_) => return Ok(shown(&thread, &snapshot)),
                Err(CommitError::Conflict) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
            }
        }
        Err(too_many_races())
    }
}

/// A node is handed all of them, so none may be large.
pub(super) fn bounded(text: &str, limits: &Limits) -> Result<(), EngineError> {
    let limit = limits.instruction_bytes;
    if text.len() as u64 <= limit {
        return Ok(());
    }
    let what =
        format!("the instruction has {} bytes; at most {limit} are taken (instruction_bytes)", text.len());
    let error = ErrorRecord::limit("instruction_bytes", limit, what);
    Err(Refused::of(error).into())
}
