//! Instructions to a run that waits or goes on, apart from any answer.

use super::error::EngineError;
use super::host::Host;
use super::resume::{RACES_MAX, name_of, refused, shown, too_many_races};
use super::tree;
use crate::model::checkpoint::SteeringRow;
use crate::model::command::{ResumeTarget, RunConfig};
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{InstructionId, ThreadId};
use crate::model::limits::Limits;
use crate::store::{LeaseChange, Store, Write};

impl Host {
    /// Tells a paused or running run something, for all of its tasks and those below it; they see it when
    /// they next look. A run that is over takes none.
    pub async fn steer(&self, config: RunConfig, actor: &str, text: &str) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        self.instruct(&store, &thread, None, (actor, text)).await
    }

    /// Likewise, for one run of the tree, or one of its tasks.
    pub async fn steer_targeted(
        &self,
        target: ResumeTarget,
        actor: &str,
        text: &str,
    ) -> Result<Execution, EngineError> {
        let (store, thread) = self.thread_of(target.run_id).await?;
        self.instruct(&store, &thread, Some(target), (actor, text)).await
    }

    async fn instruct(
        &self,
        store: &Store,
        thread: &ThreadId,
        target: Option<ResumeTarget>,
        (actor, text): (&str, &str),
    ) -> Result<Execution, EngineError> {
        bounded(text, &self.limits)?;
        if !actor.is_empty() {
            name_of("who instructs", actor)?;
        }
        for _ in 0..RACES_MAX {
            let snapshot = self.load(store, thread).await?;
            let run = match &target {
                None => Some(&snapshot.root),
                Some(target) => tree::find(&snapshot.root, target.run_id),
            };
            let is_open = |status| matches!(status, RunStatus::Running | RunStatus::Interrupted);
            let Some(run) = run.filter(|run| is_open(snapshot.status) && is_open(run.run.status)) else {
                let (run, status) = (snapshot.root.run.run, snapshot.status.as_str());
                let (kind, what) = match &target {
                    Some(target) if target.run_id != run => (
                        Kind::Stale,
                        format!(
                            "run {} is over; the thread's latest is {run}, which is {status}",
                            target.run_id
                        ),
                    ),
                    _ => (
                        Kind::NotPending,
                        format!("run {run} on thread {thread} is {status}; it takes no instruction any more"),
                    ),
                };
                return Err(refused(&snapshot, kind, what).into());
            };
            let task = target.as_ref().and_then(|target| target.task_id);
            if let Some(task) = task.filter(|&task| !run.tasks.iter().any(|row| row.task == task)) {
                let what = format!("task {task} is none of run {}'s present step", run.run.run);
                return Err(refused(&snapshot, Kind::Stale, what).into());
            }
            let row = SteeringRow {
                run: run.run.run,
                id: InstructionId::fresh(),
                task,
                interrupt: None,
                actor: actor.to_owned(),
                text: text.to_owned(),
                at: self.shared.clock.now(),
                delivered_at: None,
            };
            // Head, epoch and lease stay: whoever runs the thread goes on undisturbed.
            let stays = (snapshot.head, snapshot.status, LeaseChange::Keep);
            let committed = self.commit_at(store, (thread, &snapshot), stays, vec![Write::Steer(row)]);
            if committed.await?.is_some() {
                return Ok(shown(thread, &snapshot));
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
