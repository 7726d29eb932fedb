//! New input for a thread that is not free: it is refused, waits its turn, or takes the place of what is there.

use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::error::EngineError;
use super::graph::busy_for_input;
use super::host::{Host, Shared};
use super::plan;
use super::resume::{refused_as, shown};
use crate::model::checkpoint::{Gates, QueuedInput};
use crate::model::command::RunConfig;
use crate::model::compile::CompiledGraph;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{ChannelName, CheckpointId, RunId, TenantId, ThreadId};
use crate::model::json::Json;
use crate::model::way_out::WayOut;
use crate::store::{LeaseChange, Store, ThreadSnapshot, Write};

/// Input that was accepted, and how it came.
pub(super) struct Input {
    pub update: Vec<(ChannelName, Json)>,
    pub gates: Gates,
    /// The number of its place in the queue, if it waited there.
    pub queued: Option<i64>,
    /// The id that its run will have, if its caller chose one.
    pub run: Option<RunId>,
    /// The state that it is put into, if that is an earlier one.
    pub from: Option<CheckpointId>,
}

/// Word to the worker that starts what waits.
pub(super) enum Waiting {
    /// A thread that is free, and on which input waits.
    Thread(TenantId, ThreadId),
    /// Tells when all that was asked for before is done.
    Idle(oneshot::Sender<()>),
}

/// Starts what waits, as threads become free. Ends with the host.
pub(super) async fn worker(mut words: mpsc::UnboundedReceiver<Waiting>, shared: Weak<Shared>) {
    let mut running = JoinSet::new();
    while let Some(word) = words.recv().await {
        match word {
            Waiting::Thread(tenant, thread) => {
                let Some(shared) = shared.upgrade() else { return };
                let host = Host::of(shared, tenant);
                running.spawn(async move {
                    if let Err(error) = host.start_queued(RunConfig::thread(thread.to_string())).await {
                        tracing::warn!(%thread, %error, "the input that waits was not started");
                    }
                });
                while running.try_join_next().is_some() {}
            }
            Waiting::Idle(done) => {
                while running.join_next().await.is_some() {}
                done.send(()).ok();
            }
        }
    }
}

impl Host {
    /// Starts the input that waits on a thread, if the thread is free. `None`: nothing waits, or not yet.
    pub async fn start_queued(&self, config: RunConfig) -> Result<Option<Execution>, EngineError> {
        let (store, thread) = self.durable(&config)?;
        let lock = self.shared.thread_lock(&self.tenant, &thread);
        let _only = lock.lock().await;
        let Some((seq, queued)) = store.next_input(&self.tenant, &thread).await? else {
            return Ok(None);
        };
        let status = self.load(&store, &thread).await?.status;
        if matches!(status, RunStatus::Running | RunStatus::Interrupted) {
            return Ok(None);
        }
        let graph = self.shared.graph(&self.tenant, queued.graph).await?;
        let update = plan::accept_input(&graph, &queued.input).map_err(Refused::of)?;
        let input = Input { update, gates: queued.gates, queued: Some(seq), run: None, from: None };
        self.start(&store, &thread, &graph, &input, None).await.map(Some)
    }

    /// Puts input behind what a thread does now. Durable when this returns; a crash before leaves nothing of it.
    /// `None`: the thread changed meanwhile.
    pub(super) async fn enqueue(
        &self,
        store: &Store,
        thread: &ThreadId,
        before: &ThreadSnapshot,
        graph: &Arc<CompiledGraph>,
        input: &Input,
    ) -> Result<Option<Execution>, EngineError> {
        let text = Json::object(input.update.iter().map(|(channel, value)| (channel.as_str(), value)));
        let row = QueuedInput {
            graph: graph.digest(),
            input: text,
            gates: input.gates.clone(),
            at: self.shared.clock.now(),
        };
        let stays = (before.head, before.status, LeaseChange::Keep);
        let committed = self.commit_at(store, (thread, before), stays, vec![Write::Enqueue(row)]).await?;
        Ok(committed.map(|_| shown(thread, before)))
    }

    /// After an invocation: what waits on the thread is started, now or when the thread is free.
    pub(super) fn then_queued(&self, thread: &ThreadId) {
        self.shared.waiting(Waiting::Thread(self.tenant.clone(), thread.clone()));
    }
}

/// The refusal of new input, where the thread is not free for it.
pub(super) fn not_free(thread: &ThreadId, before: &ThreadSnapshot) -> Option<Refused> {
    match before.status {
        RunStatus::Interrupted => {
            let what = format!(
                "thread {thread} is paused; answer what is pending before it takes new input, or say what becomes \
                 of the run"
            );
            Some(refused_as(before, ErrorRecord::new(Kind::Busy, what).way_out(WayOut::Queue)))
        }
        RunStatus::Running => Some(busy_for_input(thread, Some(before))),
        RunStatus::Completed | RunStatus::Failed | RunStatus::Diverged | RunStatus::Cancelled => None,
    }
}
