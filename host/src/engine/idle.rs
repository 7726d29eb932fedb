//! A command on a thread that nobody runs: it changes how the run stands, and the run goes on from there.

use futures::future::BoxFuture;

use super::error::EngineError;
use super::graph::busy;
use super::host::Host;
use super::resume::{RACES_MAX, refused, refused_as, too_many_races};
use super::session::{Ended, Session};
use crate::model::command::RunConfig;
use crate::model::error::{ErrorRecord, Kind};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{RunId, ThreadId};
use crate::store::Store;

/// `Err`: why it cannot be done. Nothing is changed then.
pub(super) type Applied = Result<(), ErrorRecord>;

/// What such a command does.
pub(super) trait OnIdle: Send {
    /// Why a run that stands like this does not take it; `None`: it does.
    fn refuses(&self, status: RunStatus) -> Option<&'static str>;

    /// Whether this is a run that the caller began for this very command, and that nobody runs yet.
    fn has_begun(&self, _: RunId) -> bool {
        false
    }

    /// Does it. Durable with the session's first commit; done again from what is true then if that is lost.
    fn apply<'a>(&'a mut self, session: &'a mut Session) -> BoxFuture<'a, Result<Applied, Ended>>;
}

impl Host {
    /// Does to a thread what the command says, and runs it to where it completes or pauses. A thread that
    /// somebody runs is busy.
    pub(super) async fn change(
        &self,
        config: &RunConfig,
        command: &mut dyn OnIdle,
    ) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(config)?;
        let lock = self.shared.thread_lock(&self.tenant, &thread);
        let Ok(_only) = lock.try_lock() else {
            return Err(busy(&thread, None).into());
        };
        self.change_held(&store, &thread, command).await
    }

    /// The caller holds the thread's lock.
    pub(super) async fn change_held(
        &self,
        store: &Store,
        thread: &ThreadId,
        command: &mut dyn OnIdle,
    ) -> Result<Execution, EngineError> {
        for _ in 0..RACES_MAX {
            let snapshot = self.load(store, thread).await?;
            if snapshot.status == RunStatus::Running && !command.has_begun(snapshot.root.run.run) {
                return Err(busy(thread, Some(&snapshot)).into());
            }
            if let Some(why) = command.refuses(snapshot.status) {
                let (run, status) = (snapshot.root.run.run, snapshot.status.as_str());
                let what = format!("run {run} on thread {thread} is {status}; {why}");
                return Err(refused(&snapshot, Kind::NotPending, what).into());
            }
            let (invocation, mut session) = self.reopen(store, thread, snapshot).await?;
            let session = match command.apply(&mut session).await {
                Ok(Ok(())) => Ok(session),
                Ok(Err(error)) => {
                    return Err(refused_as(&self.load(store, thread).await?, error).into());
                }
                Err(ended) => Err(ended),
            };
            if let Some(execution) = self.drive(&invocation, session).await? {
                return Ok(execution);
            }
        }
        Err(too_many_races())
    }
}
