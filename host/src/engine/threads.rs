//! What is done to whole threads.

use super::error::EngineError;
use super::graph::busy;
use super::host::Host;
use super::resume::{RACES_MAX, too_many_races};
use crate::model::command::RunConfig;
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::ThreadId;
use crate::model::way_out::WayOut;
use crate::store::{CommitError, Pruned};

/// What becomes of a run that is under way when its thread is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileRunning {
    /// The thread stays.
    #[default]
    Refuse,
    /// It is broken off: whoever runs it can write nothing more.
    BreakOff,
}

impl Host {
    /// Makes a new thread that stands as this one does: a fork at its latest checkpoint. State, held updates
    /// and the record of effects are the same; ids are not, since each names something of one thread, so what
    /// is asked is asked again under new ones. Its past stays with the first.
    pub async fn copy(&self, from: RunConfig, to: ThreadId) -> Result<Execution, EngineError> {
        self.fork(from, None, to).await
    }

    /// Removes a thread, all of it.
    pub async fn delete(&self, config: RunConfig, running: WhileRunning) -> Result<(), EngineError> {
        let (store, thread) = self.durable(&config)?;
        for _ in 0..RACES_MAX {
            let snapshot = self.load(&store, &thread).await?;
            if running == WhileRunning::Refuse {
                let lock = self.shared.thread_lock(&self.tenant, &thread);
                if snapshot.status == RunStatus::Running || lock.try_lock().is_err() {
                    let mut refusal = busy(&thread, Some(&snapshot));
                    refusal.error.ways_out.push(WayOut::DeleteRunning);
                    return Err(refusal.into());
                }
            }
            match store.delete(&self.tenant, &thread, snapshot.head, snapshot.epoch).await {
                Ok(()) => {
                    self.shared.used.count_again(&self.tenant);
                    self.shared.called_off(&self.tenant, &thread);
                    return Ok(());
                }
                Err(CommitError::Conflict) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
            }
        }
        Err(too_many_races())
    }

    /// Drops what a thread no longer needs: of each of its runs all but the latest `boundaries` boundaries,
    /// with the tasks, journals and questions of those, and the channel values that no checkpoint is left to
    /// hold. What going on takes stays, and so does the record of effects.
    pub async fn prune(&self, config: RunConfig, boundaries: u32) -> Result<Pruned, EngineError> {
        let (store, thread) = self.durable(&config)?;
        for _ in 0..RACES_MAX {
            match store.prune(&self.tenant, &thread, boundaries).await {
                Ok(Some(pruned)) => {
                    self.shared.used.count_again(&self.tenant);
                    return Ok(pruned);
                }
                // Says that there is no such thread.
                Ok(None) => drop(self.load(&store, &thread).await?),
                Err(CommitError::Conflict) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
            }
        }
        Err(too_many_races())
    }

    /// Gives what is free in the database's file back to the file system. Everybody who writes waits for it.
    pub async fn vacuum(&self) -> Result<(), EngineError> {
        Ok(self.durable_store()?.vacuum().await?)
    }
}
