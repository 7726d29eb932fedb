//! A compiled graph, and what can be asked of it.

use std::sync::Arc;

use serde_json::Value;

use super::error::EngineError;
use super::host::Host;
use super::ledger::Ledger;
use super::plan;
use super::queue::{Input, not_free};
use super::resume::{RACES_MAX, too_many_races};
use super::session::Session;
use super::task::Invocation;
use crate::model::checkpoint::{Gates, Version};
use crate::model::command::{Command, IfBusy, ResumeTarget, RunConfig};
use crate::model::compile::CompiledGraph;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{ChannelName, CheckpointId, Digest, NodeId, RunId, ThreadId};
use crate::model::json::Json;
use crate::model::way_out::WayOut;
use crate::store::{Expect, Store, ThreadSnapshot, Write};

/// A graph that can be run. Its runs are pinned to it and to its components.
#[derive(Clone)]
pub struct Graph {
    pub(super) host: Host,
    pub(super) compiled: Arc<CompiledGraph>,
    pub(super) withheld: Vec<String>,
}

impl Graph {
    pub fn digest(&self) -> Digest {
        self.compiled.digest()
    }

    /// What its components declare to read or write and this graph does not grant, one sentence each: often
    /// on purpose, and otherwise only noticed when a node fails.
    pub fn withheld(&self) -> &[String] {
        &self.withheld
    }

    pub fn compiled(&self) -> &CompiledGraph {
        &self.compiled
    }

    /// Starts a run with new input: an object from channel names to values.
    ///
    /// Returns when the run completes, pauses or fails; all that its resume needs is durable by then. On a
    /// thread that is paused or busy it is refused, or what [`RunConfig::if_busy`] says.
    pub async fn invoke(&self, config: RunConfig, input: Value) -> Result<Execution, EngineError> {
        let limits = &self.host.limits;
        let input = limits
            .take_json(&input.to_string(), "the input", ("state_bytes", limits.state_bytes))
            .and_then(|input| plan::accept_input(&self.compiled, &input))
            .map_err(Refused::of)?;
        let gates = self.gates(&config)?;
        self.host.may_spend()?;
        let thread = self.host.thread_named(&config)?;
        let (Some(store), Some(thread)) = (self.host.shared.store.clone(), thread) else {
            return self.host.fleeting(&self.compiled, (input, gates)).await;
        };
        let input = Input { update: input, gates, queued: None, run: config.run_id, from: config.from };
        let lock = self.host.shared.thread_lock(&self.host.tenant, &thread);
        let _only = match (lock.try_lock(), config.if_busy) {
            (Ok(only), _) => only,
            (Err(_), IfBusy::Refuse) => return Err(busy_for_input(&thread, None).into()),
            (Err(_), IfBusy::Enqueue) => {
                let waits = self.host.enqueue_behind(&store, &thread, &self.compiled, &input).await?;
                match waits {
                    Some(execution) => return Ok(execution),
                    // It is over by now.
                    None => lock.lock().await,
                }
            }
            (Err(_), IfBusy::Supersede) => {
                self.host.call_off_for_new(&config).await?;
                lock.lock().await
            }
        };
        self.host.start(&store, &thread, &self.compiled, &input, Some(config.if_busy)).await
    }

    /// Whether a run of this graph would take this as its input; starts nothing.
    pub fn check_input(&self, input: &Value) -> Result<(), EngineError> {
        let limits = &self.host.limits;
        let taken = limits
            .take_json(&input.to_string(), "the input", ("state_bytes", limits.state_bytes))
            .and_then(|input| plan::accept_input(&self.compiled, &input));
        Ok(taken.map(drop).map_err(Refused::of)?)
    }

    /// Where one run stops, beside what the graph says.
    fn gates(&self, config: &RunConfig) -> Result<Gates, EngineError> {
        let named = |names: &[String]| {
            names
                .iter()
                .map(|name| match self.compiled.nodes.get_key_value(name.as_str()) {
                    Some((node, _)) => Ok(node.clone()),
                    None => {
                        let known: Vec<&str> = self.compiled.nodes.keys().map(NodeId::as_str).collect();
                        let what = format!("a gate at {name:?}: the graph has {}", known.join(", "));
                        Err(EngineError::from(Refused::plain(Kind::Invalid, what)))
                    }
                })
                .collect::<Result<_, EngineError>>()
        };
        Ok(Gates { before: named(&config.interrupt_before)?, after: named(&config.interrupt_after)? })
    }

    /// Answers what is pending on a thread of this graph.
    pub async fn resume(&self, config: RunConfig, command: Command) -> Result<Execution, EngineError> {
        self.host.resume(config, command).await
    }

    /// Answers what is pending within a target.
    pub async fn resume_targeted(
        &self,
        target: ResumeTarget,
        command: Command,
    ) -> Result<Execution, EngineError> {
        self.host.resume_targeted(target, command).await
    }

    /// Goes on with a run whose process died or was stopped.
    pub async fn continue_run(&self, config: RunConfig) -> Result<Execution, EngineError> {
        self.host.continue_run(config).await
    }

    /// Tries again what failed on a thread, and only that.
    pub async fn retry(&self, config: RunConfig) -> Result<Execution, EngineError> {
        self.host.retry(config).await
    }

    /// A thread's channels, as of its latest boundary.
    pub async fn state(&self, config: RunConfig) -> Result<Value, EngineError> {
        self.host.state(config).await
    }
}

impl Host {
    /// Starts a run on a thread that is free, or as the policy says if it is not; without one it is refused.
    /// The caller holds the thread's lock.
    pub(super) async fn start(
        &self,
        store: &Store,
        thread: &ThreadId,
        graph: &Arc<CompiledGraph>,
        input: &Input,
        policy: Option<IfBusy>,
    ) -> Result<Execution, EngineError> {
        // A thread that is free as far as this process knows is taken to be so: its head and epoch say at the
        // commit whether it was.
        let mut known =
            store.recent(&self.tenant, thread).filter(|before| not_free(thread, before).is_none());
        for _ in 0..RACES_MAX {
            let before = match known.take() {
                Some(before) => Some(before),
                // A thread is new more often than not, and that is told by one statement.
                None if store.head(&self.tenant, thread).await?.is_none() => None,
                None => store.load(&self.tenant, thread).await?,
            };
            let mut superseded = Vec::new();
            if let Some(before) = &before
                && let Some(refusal) = not_free(thread, before)
            {
                match policy {
                    Some(IfBusy::Supersede) if before.status == RunStatus::Interrupted => {
                        superseded = self.calling_off(before, None, SUPERSEDED).1;
                        // The new run's first boundary follows; a checkpoint between would be nobody's head.
                        superseded.retain(|write| !matches!(write, Write::Checkpoint(_)));
                    }
                    Some(IfBusy::Supersede) => {
                        self.call_off_for_new(&RunConfig::thread(thread.to_string())).await?;
                        continue;
                    }
                    Some(IfBusy::Enqueue) => match self.enqueue(store, thread, before, graph, input).await? {
                        Some(execution) => return Ok(execution),
                        None => continue,
                    },
                    Some(IfBusy::Refuse) | None => return Err(refusal.into()),
                }
            }
            let secret = before.as_ref().map_or_else(rand_secret, |before| before.secret);
            if before.is_none() {
                self.room_for_thread().await?;
            }
            self.room_for_bytes(0).await?;
            let ids = (input.run.unwrap_or_else(RunId::fresh), CheckpointId::fresh());
            let expect = match &before {
                None => Expect::Absent { secret },
                Some(before) => Expect::At { head: before.head, epoch: before.epoch },
            };
            let has_owner = before.as_ref().is_some_and(|before| before.lease.is_some());
            let head = before.as_ref().map_or(ids.1, |before| before.head);
            let known = (secret, before.as_ref().map_or(0, |before| before.version));
            let invocation = self.invocation(store, thread, known, (expect, head), has_owner);
            superseded.extend(input.queued.map(|seq| Write::Dequeue { seq }));
            invocation.push(superseded).await;
            let what = (input.update.clone(), input.gates.clone());
            let stood = match (&before, input.from) {
                (Some(before), Some(at)) => Some(self.as_it_stood(store, thread, before, at).await?),
                _ => None,
            };
            let from = stood.as_ref().or(before.as_ref());
            let started = Session::start(invocation.clone(), graph.clone(), from, ids, what).await;
            if let Some(execution) = self.drive(&invocation, started).await? {
                return Ok(execution);
            }
            if let Some(seq) = input.queued
                && store.next_input(&self.tenant, thread).await?.is_none_or(|(first, _)| first != seq)
            {
                // Somebody else took it off.
                let snapshot = self.load(store, thread).await?;
                return Err(busy(thread, Some(&snapshot)).into());
            }
        }
        Err(too_many_races())
    }

    /// Calls off what runs on a thread, for new input; nothing to call off is as good.
    async fn call_off_for_new(&self, config: &RunConfig) -> Result<(), EngineError> {
        match self.cancel(config.clone(), None, Some(SUPERSEDED)).await {
            Err(error) if !matches!(error.kind(), Kind::NotPending | Kind::NotFound) => Err(error),
            _ => Ok(()),
        }
    }

    /// Puts input behind the run that this process is at. `None`: it is over.
    async fn enqueue_behind(
        &self,
        store: &Store,
        thread: &ThreadId,
        graph: &Arc<CompiledGraph>,
        input: &Input,
    ) -> Result<Option<Execution>, EngineError> {
        for _ in 0..RACES_MAX {
            let Some(before) = store.load(&self.tenant, thread).await? else {
                return Ok(None);
            };
            if not_free(thread, &before).is_none() {
                return Ok(None);
            }
            if let Some(execution) = self.enqueue(store, thread, &before, graph, input).await? {
                return Ok(Some(execution));
            }
        }
        Err(too_many_races())
    }

    /// Without durability: what pauses fails.
    async fn fleeting(
        &self,
        graph: &Arc<CompiledGraph>,
        input: (Vec<(ChannelName, Json)>, Gates),
    ) -> Result<Execution, EngineError> {
        let invocation = Invocation::new(self, None, (rand_secret(), 0), None);
        let ids = (RunId::fresh(), CheckpointId::fresh());
        let started = Session::start(invocation.clone(), graph.clone(), None, ids, input).await;
        // Without a thread there is nobody to race with.
        self.drive(&invocation, started).await?.ok_or_else(too_many_races)
    }

    pub(super) fn invocation(
        &self,
        store: &Store,
        thread: &ThreadId,
        known: ([u8; 32], Version),
        at: (Expect, CheckpointId),
        has_owner: bool,
    ) -> Arc<Invocation> {
        let ledger = Ledger::new(
            store.clone(),
            (self.tenant.clone(), thread.clone()),
            (self.shared.owner, self.shared.settings.lease_ms),
            self.shared.clock.clone(),
            at,
            has_owner,
            self.call.iter().map(|call| call.guard()).collect(),
        );
        Invocation::new(self, Some(thread.clone()), known, Some(ledger))
    }

    pub(super) fn thread_named(&self, config: &RunConfig) -> Result<Option<ThreadId>, EngineError> {
        let named = config.thread_id().transpose();
        Ok(named.map_err(|error| Refused::plain(Kind::Invalid, error.to_string()))?)
    }
}

/// Why a run was called off for another.
const SUPERSEDED: &str = "superseded by new input";

/// The same for new input, which can wait.
pub(super) fn busy_for_input(thread: &ThreadId, snapshot: Option<&ThreadSnapshot>) -> Refused {
    let mut refusal = busy(thread, snapshot);
    refusal.error.ways_out.push(WayOut::Queue);
    refusal
}

/// The refusal for a thread that somebody runs, or died running.
pub(super) fn busy(thread: &ThreadId, snapshot: Option<&ThreadSnapshot>) -> Refused {
    let error = ErrorRecord::new(Kind::Busy, format!("thread {thread} is running"))
        .way_out(WayOut::Continue { thread: thread.clone() });
    match snapshot {
        Some(snapshot) => super::resume::refused_as(snapshot, error),
        None => Refused::of(error),
    }
}

pub(super) fn rand_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    // Without an entropy source there is no safe way to go on, on any system that this runs on.
    getrandom::fill(&mut secret).expect("the system has random numbers");
    secret
}
