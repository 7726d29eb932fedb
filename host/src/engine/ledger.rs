//! What an invocation still has to make durable, and the right to do so.
//!
//! Writes gather here and go out in one transaction: when the invocation ends, before an effect is sent,
//! and when the invocation outlives its budget. The guard is the thread's head and epoch. A run that did
//! nothing outside holds no lease: if somebody else was faster, it has only computed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::clock::Clock;
use crate::model::RunStatus;
use crate::model::checkpoint::{EffectRow, EffectScope, SteeringRow, Version};
use crate::model::ids::{ChannelName, CheckpointId, RunId, TenantId, ThreadId, Timestamp};
use crate::model::json::Json;
use crate::store::{
    Batch, CommitError, Expect, LeaseChange, OwnerId, Store, StoreError, Underway, Write, merged,
};

/// How often a lease that lapsed is claimed again for one look.
const RENEWALS_MAX: usize = 4;

/// Why nothing more can be written by this invocation.
#[derive(Debug)]
pub enum Lost {
    /// The thread is not as it was: somebody else moved its head or took its lease.
    Conflict,
    Store(StoreError),
}

pub struct Ledger {
    store: Store,
    tenant: TenantId,
    thread: ThreadId,
    owner: OwnerId,
    lease_ms: u64,
    clock: Clock,
    state: Arc<Mutex<State>>,
    _underway: Underway,
}

struct State {
    expect: Expect,
    head: CheckpointId,
    writes: Vec<Write>,
    /// Until when the lease lasts that this invocation took.
    claimed: Option<Timestamp>,
    /// The thread's row names an owner, this one or a dead one.
    has_owner: bool,
    /// Input waits on the thread.
    queued: bool,
    /// How the invocation ended is with the writer, and stands.
    ended: bool,
    /// And is durable.
    over: bool,
}

impl Ledger {
    pub fn new(
        store: Store,
        (tenant, thread): (TenantId, ThreadId),
        (owner, lease_ms): (OwnerId, u64),
        clock: Clock,
        (expect, head): (Expect, CheckpointId),
        has_owner: bool,
        writes: Vec<Write>,
    ) -> Self {
        let state = State {
            expect,
            head,
            writes,
            claimed: None,
            has_owner,
            queued: false,
            ended: false,
            over: false,
        };
        let (state, _underway) = (Arc::new(Mutex::new(state)), store.underway());
        Self { store, tenant, thread, owner, lease_ms, clock, state, _underway }
    }

    pub async fn push(&self, writes: impl IntoIterator<Item = Write>) {
        self.state.lock().await.writes.extend(writes);
    }

    /// Like [`Self::push`], with the checkpoint that the thread's head moves to.
    pub async fn advance(&self, head: CheckpointId, writes: impl IntoIterator<Item = Write>) {
        let mut state = self.state.lock().await;
        state.head = head;
        state.writes.extend(writes);
    }

    /// Whether input waits on the thread, as of the last commit.
    pub async fn is_queued(&self) -> bool {
        self.state.lock().await.queued
    }

    pub async fn is_claimed(&self) -> bool {
        self.state.lock().await.claimed.is_some()
    }

    /// Whether how the invocation ended is durable: whatever is heard after that comes too late for it.
    pub async fn is_over(&self) -> bool {
        self.state.lock().await.over
    }

    /// Makes everything gathered durable and holds the thread from here on, so that other processes see
    /// it as busy. Crash before: nothing of it was promised. Crash after: the run is there, to be
    /// continued from it.
    pub async fn hold(&self) -> Result<(), Lost> {
        let state = self.state.clone().lock_owned().await;
        if state.ended {
            drop(state);
            // Whoever waited for the end to be written and would claim the thread again, after it was let
            // go, is about to be dropped.
            return std::future::pending().await;
        }
        let until = self.clock.now().plus_ms(self.lease_ms);
        let lease = match state.claimed {
            None => LeaseChange::Claim { owner: self.owner, until },
            Some(_) => LeaseChange::Renew { until },
        };
        self.commit(state, RunStatus::Running, lease).await
    }

    /// Makes everything gathered durable, with how the run stands, and lets the thread go. The first end
    /// stands: a word to stop that comes while it is written changes nothing.
    pub async fn finish(&self, status: RunStatus) -> Result<(), Lost> {
        let mut state = self.state.clone().lock_owned().await;
        if std::mem::replace(&mut state.ended, true) {
            return Ok(());
        }
        let lease = if state.has_owner { LeaseChange::Release } else { LeaseChange::Keep };
        self.commit(state, status, lease).await
    }

    async fn commit(
        &self,
        mut state: OwnedMutexGuard<State>,
        status: RunStatus,
        lease: LeaseChange,
    ) -> Result<(), Lost> {
        let batch = Batch {
            tenant: self.tenant.clone(),
            thread: self.thread.clone(),
            expect: state.expect.clone(),
            head: state.head,
            status,
            lease,
            writes: merged(std::mem::take(&mut state.writes)),
        };
        let store = self.store.clone();
        let span = tracing::info_span!("commit", status = status.as_str());
        let committing = async move {
            let committed = store.commit(batch).await.map_err(|error| match error {
                CommitError::Conflict => Lost::Conflict,
                CommitError::Store(error) => Lost::Store(error),
            })?;
            state.expect = Expect::At { head: state.head, epoch: committed.epoch };
            state.queued = committed.queued;
            state.over = state.ended;
            match lease {
                LeaseChange::Keep => {}
                LeaseChange::Claim { until, .. } | LeaseChange::Renew { until } => {
                    state.claimed = Some(until);
                    state.has_owner = true;
                }
                LeaseChange::Release => {
                    state.claimed = None;
                    state.has_owner = false;
                }
            }
            Ok(())
        };
        Committing(Some(Box::pin(tracing::Instrument::instrument(committing, span)))).await
    }

    /// What is durable of an effect under its key.
    pub async fn effect(&self, scope: &EffectScope) -> Result<Option<EffectRow>, Lost> {
        self.store.effect(&self.tenant, &self.thread, scope).await.map_err(Lost::Store)
    }

    /// All durable instructions of these runs, oldest first.
    pub async fn steering(&self, runs: &[RunId]) -> Result<Vec<SteeringRow>, Lost> {
        self.store.steering(&self.tenant, &self.thread, runs).await.map_err(Lost::Store)
    }

    /// Values of channels at these versions.
    pub async fn values(&self, at: &[(ChannelName, Version)]) -> Result<Vec<Json>, Lost> {
        self.store.values(&self.tenant, &self.thread, at).await.map_err(Lost::Store)
    }

    /// The last look before something leaves the host: the lease is still ours, in the row and by the
    /// clock. The window in which a stopped process could still send is this one check wide. One that lapsed
    /// on a machine that is too busy is claimed again, as long as nobody has taken it: the commit's guard says.
    pub async fn is_held(&self) -> Result<bool, Lost> {
        for _ in 0..RENEWALS_MAX {
            let (epoch, until) = {
                let state = self.state.lock().await;
                match (&state.expect, state.claimed) {
                    (Expect::At { epoch, .. }, Some(until)) => (*epoch, until),
                    _ => return Ok(false),
                }
            };
            let lease = self.store.lease(&self.tenant, &self.thread).await.map_err(Lost::Store)?;
            if lease.is_none_or(|lease| lease.epoch != epoch) {
                return Ok(false);
            }
            if self.clock.now() < until {
                return Ok(true);
            }
            self.hold().await?;
        }
        Ok(false)
    }
}

/// A commit that is under way. It goes on as a task of its own if its caller is dropped while it waits: the batch
/// is with the writer by then, and what is known here must be what comes of it.
struct Committing(Option<BoxFuture<'static, Result<(), Lost>>>);

impl Future for Committing {
    type Output = Result<(), Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(committing) = &mut self.0 else { return Poll::Pending };
        let committed = ready!(committing.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(committed)
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        // Without a runtime the process is about to end, and what was committed is found by the next.
        if let (Some(committing), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(committing);
        }
    }
}
