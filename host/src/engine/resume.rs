//! What enters a thread after its start: answers, and a word to go on.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tracing::Instrument as _;

use super::error::EngineError;
use super::graph::busy;
use super::host::{HEAVY, Host, LEASE_MS_MAX};
use super::idle::{Applied, OnIdle};
use super::ledger::Lost;
use super::matching::{Delivery, NoMatch, children, matching, still_pending, within};
use super::session::{Brought, Ended, Request, Session};
use super::task::{Fault, Invocation};
use super::tree::{self, Asked};
use crate::model::checkpoint::{InterruptRow, InterruptState, Withdrawal};
use crate::model::command::{Command, PendingChildren, Resume, ResumeTarget, RunConfig};
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{CheckpointId, Digest, InterruptId, RunId, ThreadId, Timestamp, is_line};
use crate::model::json::Json;
use crate::model::limits::Limits;
use crate::model::schema::AnswerSchema;
use crate::model::way_out::WayOut;
use crate::store::{
    Batch, CommitError, Committed, Expect, LeaseChange, RunSnapshot, Sought, Store, ThreadSnapshot, Write,
};

/// How often an invocation that lost a race starts over before it gives up. Each time somebody else got
/// further, so this is reached only where very many answer one thread at once.
pub(super) const RACES_MAX: usize = 32;

/// What a command comes to.
enum Taken {
    /// It was sent before.
    Replied(Execution),
    Brought(Brought),
}

impl Host {
    /// Answers what is pending on a thread, on the graph and components that its run is pinned to.
    pub async fn resume(&self, config: RunConfig, command: Command) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        self.answer(&store, &thread, None, command).await
    }

    /// Answers what is pending within a target.
    pub async fn resume_targeted(
        &self,
        target: ResumeTarget,
        command: Command,
    ) -> Result<Execution, EngineError> {
        let (store, thread) = self.thread_of(target.run_id).await?;
        self.answer(&store, &thread, Some(target), command).await
    }

    /// The thread of a run.
    pub(super) async fn thread_of(&self, run: RunId) -> Result<(Store, ThreadId), EngineError> {
        let store = self.durable_store()?;
        let Some((thread, _)) = store.run(&self.tenant, run).await? else {
            let error = ErrorRecord::new(Kind::NotFound, format!("there is no run {run} in this database"));
            return Err(Refused::of(error.way_out(WayOut::Pending)).into());
        };
        Ok((store, thread))
    }

    async fn answer(
        &self,
        store: &Store,
        thread: &ThreadId,
        target: Option<ResumeTarget>,
        command: Command,
    ) -> Result<Execution, EngineError> {
        let request = request(&command, target.as_ref())?;
        let request = request.as_ref();
        if let Some(actor) = &command.actor {
            name_of("who answers", actor)?;
        }
        if let Some(text) = &command.steer {
            super::steer::bounded(text, &self.limits)?;
        }
        self.may_spend()?;
        let lock = self.shared.thread_lock(&self.tenant, thread);
        // What the command was first found to be for. If somebody else is faster, it must not slip on to
        // the question that came after: not if the race is lost, and not while it waits its turn.
        let mut found: Option<Result<Vec<Delivery>, NoMatch>> = None;
        let _only = match lock.try_lock() {
            Ok(only) => only,
            Err(_) => {
                let snapshot = self.load(store, thread).await?;
                let first = self.matched(&snapshot, target.as_ref(), &command, meant).await;
                match first {
                    // A request that names itself may be at work right now: that is seen when it is done.
                    Err(no_match) if command.request_id.is_none() => {
                        return Err(self.unmatched(store, thread, &snapshot, no_match).await?.into());
                    }
                    first => found = Some(first),
                }
                lock.lock().await
            }
        };
        match self.deliver(store, thread, target, (&command, request), found).await {
            // Perhaps because of this very request, sent to another process at the same time.
            Err(EngineError::Refused(refused)) => match self.replied(store, thread, request).await? {
                Some(reply) => Ok(reply),
                None => Err(EngineError::Refused(refused)),
            },
            delivered => delivered,
        }
    }

    async fn deliver(
        &self,
        store: &Store,
        thread: &ThreadId,
        target: Option<ResumeTarget>,
        (command, request): (&Command, Option<&Request>),
        mut found: Option<Result<Vec<Delivery>, NoMatch>>,
    ) -> Result<Execution, EngineError> {
        // What this process knows of the thread without looking will do to go on from, since head and epoch say
        // at the commit whether it was so; it will not do to refuse anything.
        let mut known = match found {
            None => self.guessed(store, thread, target.as_ref(), command).await?,
            Some(_) => None,
        };
        for _ in 0..RACES_MAX {
            let guessed = known.take();
            let is_guess = guessed.is_some();
            let snapshot = match guessed {
                Some(snapshot) => snapshot,
                None => self.load(store, thread).await?,
            };
            let was_found = found.take();
            let taken = self.taken(store, thread, &snapshot, (&target, command, request), was_found).await;
            let brought = match taken {
                Ok(Taken::Replied(reply)) => return Ok(reply),
                Ok(Taken::Brought(brought)) => brought,
                Err(_) if is_guess => continue,
                Err(error) => return Err(error),
            };
            found = Some(Ok(brought.deliveries.clone()));
            let (invocation, mut session) = self.reopen(store, thread, snapshot).await?;
            session.can_take(&brought).map_err(Refused::of)?;
            session.accept(brought).await;
            if let Some(execution) = self.drive(&invocation, Ok(session)).await? {
                return Ok(execution);
            }
        }
        Err(too_many_races())
    }

    /// How a thread stands that this process left last. A command that does not name what it answers is for
    /// what is asked when it comes: there one look at the head says whether the guess is right.
    async fn guessed(
        &self,
        store: &Store,
        thread: &ThreadId,
        target: Option<&ResumeTarget>,
        command: &Command,
    ) -> Result<Option<ThreadSnapshot>, EngineError> {
        let Some(guess) = store.recent(&self.tenant, thread) else { return Ok(None) };
        let is_named = command.expect_checkpoint.is_some()
            || matches!(command.resume, Resume::Answers(_))
            || target.is_some_and(|target| target.interrupt_id.is_some());
        let is_right = is_named || store.head(&self.tenant, thread).await? == Some((guess.head, guess.epoch));
        Ok(is_right.then_some(guess))
    }

    /// What a command comes to where the thread stands so.
    async fn taken(
        &self,
        store: &Store,
        thread: &ThreadId,
        snapshot: &ThreadSnapshot,
        (target, command, request): (&Option<ResumeTarget>, &Command, Option<&Request>),
        found: Option<Result<Vec<Delivery>, NoMatch>>,
    ) -> Result<Taken, EngineError> {
        // After the thread was read: a twin of this request that was accepted before is seen here, and
        // one that is accepted later moves the head from under this one.
        if let Some(reply) = self.replied(store, thread, request).await? {
            return Ok(Taken::Replied(reply));
        }
        self.expect(store, thread, snapshot, target, command).await?;
        let matched = self.matched(snapshot, target.as_ref(), command, |asked, target, command, limits| {
            let deliveries = match found {
                None => meant(asked, target, command, limits)?,
                Some(found) => still_pending(&asked.open, found?)?,
            };
            let along = children(&asked.open, &deliveries, &command.pending_children, limits)?;
            Ok((deliveries, along))
        });
        let (deliveries, (resolved, cancelled)) = match matched.await {
            Ok(matched) => matched,
            Err(no_match) => return Err(self.unmatched(store, thread, snapshot, no_match).await?.into()),
        };
        if self.is_run_elsewhere(snapshot) {
            return Err(busy(thread, Some(snapshot)).into());
        }
        Ok(Taken::Brought(Brought {
            deliveries,
            resolved,
            cancelled,
            actor: command.actor.clone(),
            steer: command.steer.clone(),
            request: request.cloned(),
        }))
    }

    /// What a command comes to at what is asked. To hold its answers against their schemas may take seconds: that is
    /// done apart, one at a time, and keeps nothing else of this process waiting.
    async fn matched<T: Send + 'static>(
        &self,
        snapshot: &ThreadSnapshot,
        target: Option<&ResumeTarget>,
        command: &Command,
        matches: impl FnOnce(&AskedAt<'_>, Option<&ResumeTarget>, &Command, &Limits) -> Result<T, NoMatch>
        + Send
        + 'static,
    ) -> Result<T, NoMatch> {
        let now = self.shared.clock.now();
        {
            let asked = asked_at(snapshot, now);
            if is_light(&asked.open, command) {
                return matches(&asked, target, command, &self.limits);
            }
        }
        let (snapshot, target, command) = (snapshot.clone(), target.cloned(), command.clone());
        let limits = self.limits.clone();
        // It goes on without the caller that went away, and so it keeps its turn.
        let turn = self.shared.heavy.take(&self.tenant, 1, HEAVY).await;
        let apart = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            matches(&asked_at(&snapshot, now), target.as_ref(), &command, &limits)
        });
        apart.await.unwrap_or_else(|broken| {
            let what = format!("the answer could not be held against its schema: {broken}");
            Err(NoMatch::Other(ErrorRecord::new(Kind::Store, what)))
        })
    }

    /// The reply to a request that was sent before.
    async fn replied(
        &self,
        store: &Store,
        thread: &ThreadId,
        sent: Option<&Request>,
    ) -> Result<Option<Execution>, EngineError> {
        let Some(sent) = sent else {
            return Ok(None);
        };
        let request_id = &sent.id;
        let Some(request) = store.request(&self.tenant, thread, request_id).await? else {
            return Ok(None);
        };
        if request.command != sent.command {
            let what = format!(
                "request {request_id:?} was sent at {} with another command; a new command needs a new id",
                request.at
            );
            let snapshot = self.load(store, thread).await?;
            return Err(refused(&snapshot, Kind::KeyConflict, what).into());
        }
        let mut reply = request.reply;
        if reply.is_none() {
            // Accepted by a process that is still at it, or died: its answer is kept, what is left is to go on.
            let execution = self.go_on(store, thread, Some(sent)).await?;
            reply = store.request(&self.tenant, thread, request_id).await?.and_then(|request| request.reply);
            if reply.is_none() {
                return Ok(Some(execution));
            }
        }
        let reply = reply.unwrap_or_else(Json::null);
        serde_json::from_str(reply.as_str()).map(Some).map_err(|error| {
            let what = format!("the reply on record for request {request_id} is damaged: {error}");
            Refused::plain(Kind::Store, what).into()
        })
    }

    /// Goes on with a run whose process died or was stopped, or whose questions have expired. Delivers no
    /// answer; where only answers are missing, it says so by returning the pause. Waits for the lease of a
    /// process that may have died.
    pub async fn continue_run(&self, config: RunConfig) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        let lock = self.shared.thread_lock(&self.tenant, &thread);
        let _only = lock.lock().await;
        self.go_on(&store, &thread, None).await
    }

    /// For a request that was accepted: there is nothing to refuse, however the run ended since.
    pub(super) async fn go_on(
        &self,
        store: &Store,
        thread: &ThreadId,
        request: Option<&Request>,
    ) -> Result<Execution, EngineError> {
        for _ in 0..RACES_MAX {
            let snapshot = self.let_go(store, thread).await?;
            let now = self.shared.clock.now();
            let mut waits = None;
            match snapshot.status {
                RunStatus::Running => {}
                RunStatus::Interrupted
                    if tree::asked(&snapshot.root).iter().any(|asked| asked.row.is_due(now)) => {}
                RunStatus::Interrupted => waits = Some(shown(thread, &snapshot)),
                _ if request.is_some() => return Ok(shown(thread, &snapshot)),
                status => {
                    let message = format!(
                        "run {} on thread {thread} is {}; only a run that was broken off can be continued",
                        snapshot.root.run.run,
                        status.as_str()
                    );
                    return Err(refused(&snapshot, Kind::NotPending, message).into());
                }
            }
            let (invocation, mut session) = self.reopen(store, thread, snapshot).await?;
            // Only where it waits for somebody: what nobody is asked any more can go on.
            if let Some(execution) = waits.filter(|_| !session.root.can_move()) {
                return Ok(execution);
            }
            session.accept(Brought { request: request.cloned(), ..Brought::default() }).await;
            if let Some(execution) = self.drive(&invocation, Ok(session)).await? {
                return Ok(execution);
            }
        }
        Err(too_many_races())
    }

    /// The thread once nobody else runs it: waits for the lease of a process that may have died.
    async fn let_go(&self, store: &Store, thread: &ThreadId) -> Result<ThreadSnapshot, EngineError> {
        let mut snapshot = self.load(store, thread).await?;
        let patience = self.shared.clock.now().plus_ms(self.shared.settings.lease_ms * 2);
        while self.is_run_elsewhere(&snapshot) {
            if self.shared.clock.now() >= patience {
                return Err(busy(thread, Some(&snapshot)).into());
            }
            tokio::time::sleep(Duration::from_millis((self.shared.settings.lease_ms / 20).max(5))).await;
            snapshot = self.load(store, thread).await?;
        }
        Ok(snapshot)
    }

    /// How a thread stands; runs nothing.
    pub async fn execution(&self, config: RunConfig) -> Result<Execution, EngineError> {
        let (store, thread) = self.durable(&config)?;
        Ok(shown(&thread, &self.load(&store, &thread).await?))
    }

    /// A thread's channels as of its latest boundary.
    pub async fn state(&self, config: RunConfig) -> Result<Value, EngineError> {
        Ok(self.standing(config).await?.1)
    }

    /// How a thread stands and its channels, as of one moment; runs nothing.
    pub async fn standing(&self, config: RunConfig) -> Result<(Execution, Value), EngineError> {
        let (store, thread) = self.durable(&config)?;
        let snapshot = self.load(&store, &thread).await?;
        let execution = shown(&thread, &snapshot);
        let versions: Vec<_> = snapshot.root.checkpoint.channels.into_iter().collect();
        let values = store.values(&self.tenant, &thread, &versions).await?;
        let state: Map<String, Value> =
            versions.iter().zip(values).map(|((name, _), value)| (name.to_string(), value.value())).collect();
        Ok((execution, Value::Object(state)))
    }

    pub(super) async fn reopen(
        &self,
        store: &Store,
        thread: &ThreadId,
        snapshot: ThreadSnapshot,
    ) -> Result<(Arc<Invocation>, Session), EngineError> {
        self.count_bytes().await?;
        let expect = Expect::At { head: snapshot.head, epoch: snapshot.epoch };
        let at = (expect, snapshot.head);
        let known = (snapshot.secret, snapshot.version);
        let invocation = self.invocation(store, thread, known, at, snapshot.lease.is_some());
        let mut session = Session::reopen(invocation.clone(), snapshot).await?;
        session.expire().await;
        Ok((invocation, session))
    }

    /// Drives a session to its end. `None`: it lost a race before it did anything outside; the caller
    /// starts over from what is true now.
    pub(super) async fn drive(
        &self,
        invocation: &Invocation,
        session: Result<Session, Ended>,
    ) -> Result<Option<Execution>, EngineError> {
        let ended = match session {
            Ok(session) => {
                let (run, thread) = (session.root.row.run, invocation.thread_name());
                session.drive().instrument(tracing::info_span!("run", %run, thread)).await
            }
            Err(ended) => Err(ended),
        };
        let fault = match ended {
            Ok(execution) => {
                if let (Some(ledger), Some(thread)) = (&invocation.ledger, &execution.thread)
                    && ledger.is_queued().await
                {
                    self.then_queued(thread);
                }
                return Ok(Some(execution));
            }
            Err(Ended::Engine(error)) => return Err(error),
            Err(Ended::Stopped) => return Err(EngineError::Stopped),
            Err(Ended::Fault(fault)) => fault,
        };
        match fault {
            Fault::HandlerPanicked { effect } => Err(EngineError::HandlerPanicked { effect }),
            Fault::Attempt { node } => Err(EngineError::Attempt { node }),
            Fault::Lost(Lost::Store(error)) => Err(error.into()),
            Fault::Lost(Lost::Conflict) => {
                let (held, over) = match &invocation.ledger {
                    Some(ledger) => (ledger.is_claimed().await, ledger.is_over().await),
                    None => (false, false),
                };
                if let (true, Some(thread)) = (over, &invocation.thread) {
                    // Called off just as its end became durable: how that stands now is what came of it, and it is
                    // not begun anew.
                    return Ok(Some(self.execution(RunConfig::thread(thread.as_str())).await?));
                }
                if held && let Some(execution) = self.called_off(invocation).await? {
                    return Ok(Some(execution));
                }
                self.is_wanted().await?;
                if held {
                    let what =
                        "another process took this thread over, or may have, while it was being run here";
                    return Err(Refused::of(ErrorRecord::new(Kind::Busy, what).with("lost", "lease")).into());
                }
                Ok(None)
            }
        }
    }

    /// How the thread stands, if that is because its run was called off.
    async fn called_off(&self, invocation: &Invocation) -> Result<Option<Execution>, EngineError> {
        let (Some(store), Some(thread)) = (&self.shared.store, &invocation.thread) else {
            return Ok(None);
        };
        let snapshot = self.load(store, thread).await?;
        Ok((snapshot.status == RunStatus::Cancelled).then(|| shown(thread, &snapshot)))
    }

    /// Tries again what failed for good on a thread, here and in child runs, and only that. Answers, effects
    /// that are done, and what is pending stay as they are.
    pub async fn retry(&self, config: RunConfig) -> Result<Execution, EngineError> {
        self.change(&config, &mut Retry).await
    }

    async fn expect(
        &self,
        store: &Store,
        thread: &ThreadId,
        snapshot: &ThreadSnapshot,
        target: &Option<ResumeTarget>,
        command: &Command,
    ) -> Result<(), EngineError> {
        if let Some(target) = target
            && tree::find(&snapshot.root, target.run_id).is_none()
        {
            let latest = snapshot.root.run.run;
            let message = format!("run {} is over; the thread's latest is {latest}", target.run_id);
            return Err(refused(snapshot, Kind::Stale, message).into());
        }
        match command.expect_checkpoint {
            Some(expected) if expected != snapshot.head => {
                let error = match store.sought(&self.tenant, thread, expected).await? {
                    Sought::Found(()) => {
                        let what = format!(
                            "expected checkpoint {expected}; the latest is {}; an earlier one can be forked",
                            snapshot.head
                        );
                        let fork = WayOut::Fork { thread: thread.clone(), checkpoint: expected };
                        ErrorRecord::new(Kind::Stale, what).way_out(fork)
                    }
                    Sought::Unknown => {
                        let what = format!(
                            "expected checkpoint {expected}, which is none of thread {thread}; the latest is {}",
                            snapshot.head
                        );
                        ErrorRecord::new(Kind::Stale, what)
                    }
                    pruned => super::fork::not_there(thread, expected, &pruned),
                };
                Err(refused_as(snapshot, error).into())
            }
            _ => Ok(()),
        }
    }

    async fn unmatched(
        &self,
        store: &Store,
        thread: &ThreadId,
        snapshot: &ThreadSnapshot,
        no_match: NoMatch,
    ) -> Result<Refused, EngineError> {
        let status = snapshot.status;
        let error = match no_match {
            NoMatch::NotPending(id) => {
                let (kind, message) = self.gone(store, thread, snapshot, id).await?;
                ErrorRecord::new(kind, message)
            }
            NoMatch::Expired(what) => {
                let goes_on = WayOut::Continue { thread: thread.clone() };
                ErrorRecord::new(Kind::Stale, what).way_out(goes_on)
            }
            NoMatch::Other(mut error) => {
                if error.kind == Kind::NotPending && status != RunStatus::Interrupted {
                    // Nothing is asked here at all: say how the run stands as well.
                    error.message =
                        format!("run {} is {}: {}", snapshot.root.run.run, status.as_str(), error.message);
                }
                error
            }
        };
        Ok(refused_as(snapshot, error.with("status", status.as_str())))
    }

    /// Why an id is not pending.
    async fn gone(
        &self,
        store: &Store,
        thread: &ThreadId,
        snapshot: &ThreadSnapshot,
        id: InterruptId,
    ) -> Result<(Kind, String), EngineError> {
        let asked = tree::asked(&snapshot.root);
        let here = asked.iter().find(|asked| asked.row.interrupt == id).map(|asked| asked.row.clone());
        drop(asked);
        let row = match here {
            Some(row) => Some(row),
            None => {
                store.interrupt(&self.tenant, id).await?.filter(|(of, _)| of == thread).map(|(_, row)| row)
            }
        };
        Ok(match row {
            None if store.is_pruned(&self.tenant, thread).await? => {
                let what = format!("thread {thread} has no interrupt {id}; if it had, it was pruned of it");
                (Kind::NotPending, what)
            }
            None => (Kind::NotPending, format!("thread {thread} never had an interrupt {id}")),
            Some(row) if row.state == InterruptState::Pending && is_at(&snapshot.root, row.boundary) => {
                (Kind::Store, super::run::damaged(row.task, "it is not there, and has a question").message)
            }
            Some(row) => (Kind::Stale, became(&row, self.shared.clock.now())),
        })
    }

    fn is_run_elsewhere(&self, snapshot: &ThreadSnapshot) -> bool {
        let now = self.shared.clock.now();
        // A lease that ends later than any that is given comes from a clock that was wrong.
        let lasts = |until: Timestamp| until > now && until <= now.plus_ms(LEASE_MS_MAX);
        snapshot.lease.as_ref().is_some_and(|lease| lease.owner != self.shared.owner && lasts(lease.until))
    }

    /// Commits to a thread as it was loaded; `None`: it is not that any more, and then nothing of it is done.
    pub(super) async fn commit_at(
        &self,
        store: &Store,
        (thread, snapshot): (&ThreadId, &ThreadSnapshot),
        (head, status, lease): (CheckpointId, RunStatus, LeaseChange),
        mut writes: Vec<Write>,
    ) -> Result<Option<Committed>, EngineError> {
        writes.extend(self.call.map(|call| call.guard()));
        let batch = Batch {
            tenant: self.tenant.clone(),
            thread: thread.clone(),
            expect: Expect::At { head: snapshot.head, epoch: snapshot.epoch },
            head,
            status,
            lease,
            writes,
        };
        match store.commit(batch).await {
            Ok(committed) => Ok(Some(committed)),
            Err(CommitError::Conflict) => self.is_wanted().await.map(|()| None),
            Err(CommitError::Store(error)) => Err(error.into()),
        }
    }

    pub(super) async fn load(&self, store: &Store, thread: &ThreadId) -> Result<ThreadSnapshot, EngineError> {
        let snapshot = store.load(&self.tenant, thread).await?;
        let missing = || {
            let what = format!("there is no thread {thread} in this database");
            Refused::of(ErrorRecord::new(Kind::NotFound, what).way_out(WayOut::Threads))
        };
        Ok(snapshot.ok_or_else(missing)?)
    }

    pub(super) fn durable_store(&self) -> Result<Store, EngineError> {
        let missing = || {
            Refused::plain(
                Kind::Resume,
                "the host has no database to resume from; open it with one (Host::open)",
            )
        };
        Ok(self.shared.store.clone().ok_or_else(missing)?)
    }

    pub(super) fn durable(&self, config: &RunConfig) -> Result<(Store, ThreadId), EngineError> {
        let store = self.durable_store()?;
        let thread = self.thread_named(config)?;
        let missing =
            || Refused::plain(Kind::Resume, "no thread is named to resume from (RunConfig::thread)");
        Ok((store, thread.ok_or_else(missing)?))
    }
}

/// What failed is tried again.
struct Retry;

impl OnIdle for Retry {
    fn refuses(&self, status: RunStatus) -> Option<&'static str> {
        matches!(status, RunStatus::Completed | RunStatus::Cancelled).then_some(NOTHING_FAILED)
    }

    fn apply<'a>(&'a mut self, session: &'a mut Session) -> BoxFuture<'a, Result<Applied, Ended>> {
        Box::pin(async move {
            let any = session.retry().await;
            Ok(any.then_some(()).ok_or_else(|| ErrorRecord::new(Kind::NotPending, NOTHING_FAILED)))
        })
    }
}

const NOTHING_FAILED: &str = "nothing in the run has failed";

pub(super) fn too_many_races() -> EngineError {
    let what = format!("lost the race for this thread {RACES_MAX} times; try again");
    Refused::plain(Kind::Busy, what).into()
}

/// What identifies a command that names its request.
fn request(command: &Command, target: Option<&ResumeTarget>) -> Result<Option<Request>, EngineError> {
    let Some(id) = &command.request_id else {
        return Ok(None);
    };
    name_of("a request id", id)?;
    let (how, value) = match &command.resume {
        Resume::Value(value) => ("value", value.clone()),
        Resume::Answers(answers) => ("answers", json!(answers)),
        Resume::Proceed => ("proceed", Value::Null),
    };
    let (policy, resolve) = match &command.pending_children {
        PendingChildren::Leave => ("leave", Value::Null),
        PendingChildren::Cancel => ("cancel", Value::Null),
        PendingChildren::Resolve(value) => ("resolve", value.clone()),
        PendingChildren::Refuse => ("refuse", Value::Null),
    };
    let asked = json!({
        "how": how, "value": value, "target": target, "steer": command.steer,
        "children": policy, "resolve": resolve,
    });
    Ok(Some(Request { id: id.clone(), command: Digest::of(asked.to_string().as_bytes()) }))
}

/// A caller's text that is stored and shown as one word in a line.
pub(super) fn name_of(what: &str, text: &str) -> Result<(), EngineError> {
    if is_line(text) {
        return Ok(());
    }
    let rule = format!("{what} has 1 to 255 bytes without control characters");
    Err(Refused::plain(Kind::Invalid, rule).into())
}

/// What a thread asks.
struct AskedAt<'a> {
    /// What still takes an answer.
    open: Vec<Asked<'a>>,
    /// What has expired and is not settled.
    due: Vec<Asked<'a>>,
    now: Timestamp,
}

fn asked_at(snapshot: &ThreadSnapshot, now: Timestamp) -> AskedAt<'_> {
    let (due, open) = tree::asked(&snapshot.root).into_iter().partition(|asked| asked.row.is_due(now));
    AskedAt { open, due, now }
}

/// Whether what a command brings is held against the schemas of what is asked at once.
fn is_light(open: &[Asked<'_>], command: &Command) -> bool {
    // Each is looked at for a moment only, and there may be very many.
    const LOOKS_MAX: usize = 16;
    let mut looks = 0;
    open.iter().filter_map(|asked| Some((asked.row, asked.row.answer_schema.as_ref()?))).all(
        |(row, schema)| {
            let answer = match &command.resume {
                Resume::Value(value) => Some(value),
                Resume::Answers(answers) => answers.get(&row.interrupt),
                Resume::Proceed => None,
            };
            let resolves = match &command.pending_children {
                PendingChildren::Resolve(value) => Some(value),
                _ => None,
            };
            answer.into_iter().chain(resolves).all(|value| {
                looks += 1;
                looks <= LOOKS_MAX && AnswerSchema::is_light(schema, value)
            })
        },
    )
}

/// What a command is for. A value that names no question may have been meant for one that has expired: it
/// goes to no other.
fn meant(
    asked: &AskedAt<'_>,
    target: Option<&ResumeTarget>,
    command: &Command,
    limits: &Limits,
) -> Result<Vec<Delivery>, NoMatch> {
    let due = asked.due.iter().find(|due| within(due, target));
    if let (Resume::Value(_), Some(due)) = (&command.resume, due) {
        let became = became(due.row, asked.now);
        let what = format!("{became}; answer what is left then, by its id");
        return Err(NoMatch::Expired(what));
    }
    matching(&asked.open, target, &command.resume, limits)
}

/// Whether a run of the tree stands at this boundary, or waits there.
fn is_at(root: &RunSnapshot, boundary: CheckpointId) -> bool {
    let mut is_there = false;
    root.visit(&mut |run| is_there |= run.boundary == boundary);
    is_there
}

/// What became of a question, in a sentence.
fn became(row: &InterruptRow, now: Timestamp) -> String {
    let which = format!("interrupt {} ({}, order {})", row.interrupt, row.node, row.order);
    match &row.state {
        InterruptState::Pending if row.is_due(now) => {
            format!("{which} has expired; what follows from that is done when the run goes on")
        }
        InterruptState::Pending => format!("{which} belongs to a state that the thread has left"),
        InterruptState::Answered(answer) => {
            let by = answer.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{which} was answered at {}{by}", answer.at)
        }
        InterruptState::Withdrawn(Withdrawal { at, by, reason }) => {
            let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{which} was withdrawn at {at}{by}: {reason}")
        }
    }
}

/// A refusal with how the thread stands.
pub(super) fn refused(snapshot: &ThreadSnapshot, kind: Kind, message: impl Into<String>) -> Refused {
    refused_as(snapshot, ErrorRecord::new(kind, message))
}

pub(super) fn refused_as(snapshot: &ThreadSnapshot, error: ErrorRecord) -> Refused {
    Refused {
        error,
        run_id: Some(snapshot.root.run.run),
        checkpoint_id: Some(snapshot.head),
        step: Some(snapshot.root.checkpoint.step),
        pending: tree::pending(&snapshot.root),
    }
}

pub(super) fn shown(thread: &ThreadId, snapshot: &ThreadSnapshot) -> Execution {
    Execution {
        thread: Some(thread.clone()),
        run_id: snapshot.root.run.run,
        checkpoint_id: Some(snapshot.head),
        status: snapshot.status,
        interrupts: tree::pending(&snapshot.root),
        error: snapshot.root.run.error.clone(),
    }
}
