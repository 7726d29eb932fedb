//! Calling a run off: what is pending is withdrawn, and whoever runs it can write nothing more.

use super::error::EngineError;
use super::host::Host;
use super::resume::{RACES_MAX, name_of, refused, too_many_races};
use super::tree;
use crate::model::checkpoint::{CheckpointKind, CheckpointRow, Plan, Withdrawal};
use crate::model::command::RunConfig;
use crate::model::error::{ErrorRecord, Kind};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::CheckpointId;
use crate::store::{LeaseChange, RunSnapshot, ThreadSnapshot, Write};

impl Host {
    /// Calls off a thread's run, with its child runs, whoever runs it: what it asks is withdrawn, and an
    /// effect that is on its way is not recorded. A run that is over is refused.
    pub async fn cancel(
        &self,
        config: RunConfig,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        if let Some(by) = by {
            name_of("who calls off", by)?;
        }
        if let Some(reason) = reason {
            super::steer::bounded(reason, &self.limits)?;
        }
        for _ in 0..RACES_MAX {
            let snapshot = self.load(&store, &thread).await?;
            if !matches!(snapshot.status, RunStatus::Running | RunStatus::Interrupted) {
                let (run, status) = (snapshot.root.run.run, snapshot.status.as_str());
                let what = format!("run {run} on thread {thread} is {status}; there is nothing to call off");
                return Err(refused(&snapshot, Kind::NotPending, what).into());
            }
            let reason = reason.unwrap_or("the run was called off");
            let (head, writes) = self.calling_off(&snapshot, by, reason);
            // Released also where nobody holds it: the epoch grows, and so an invocation that has not claimed
            // the thread yet finds that it has only computed.
            let ends = (head, RunStatus::Cancelled, LeaseChange::Release);
            if let Some(committed) = self.commit_at(&store, (&thread, &snapshot), ends, writes).await? {
                self.shared.called_off(&self.tenant, &thread);
                // Only then: the worker holds the thread while it looks, and new input would find it busy.
                if committed.queued {
                    self.then_queued(&thread);
                }
                return self.execution(config).await;
            }
        }
        Err(too_many_races())
    }

    /// What calls off the latest run, and the checkpoint that says so.
    pub(super) fn calling_off(
        &self,
        snapshot: &ThreadSnapshot,
        by: Option<&str>,
        reason: &str,
    ) -> (CheckpointId, Vec<Write>) {
        let now = self.shared.clock.now();
        let pending = tree::asked(&snapshot.root);
        let mut writes: Vec<Write> = pending
            .iter()
            .filter(|asked| asked.is_pending())
            .map(|asked| Write::Withdraw {
                interrupt: asked.row.interrupt,
                withdrawal: Withdrawal::new(now, by, reason),
            })
            .collect();
        let mut error = ErrorRecord::new(Kind::Cancelled, reason);
        if let Some(by) = by {
            error = error.with("by", by);
        }
        runs(&snapshot.root, &mut |run| {
            if run.run.status != RunStatus::Completed {
                writes.push(Write::RunStatus {
                    run: run.run.run,
                    status: RunStatus::Cancelled,
                    error: Some(error.clone()),
                    ended_at: Some(now),
                });
            }
        });
        let root = &snapshot.root;
        let head = CheckpointId::fresh();
        writes.push(Write::Checkpoint(CheckpointRow {
            checkpoint: head,
            parent: Some(snapshot.head),
            run: root.run.run,
            kind: CheckpointKind::Pause { boundary: root.boundary },
            step: root.checkpoint.step,
            version: root.checkpoint.version,
            plan: Plan::default(),
            channels: Default::default(),
            status: RunStatus::Cancelled,
            created_at: now,
        }));
        (head, writes)
    }
}

fn runs(run: &RunSnapshot, seen: &mut dyn FnMut(&RunSnapshot)) {
    seen(run);
    for child in &run.children {
        runs(child, seen);
    }
}
