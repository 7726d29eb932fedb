//! Carrying out what was accepted: each call on a thread stands in the database before its caller is told
//! that it was taken, and is taken up again by the next start if this process dies over it.
//!
//! Starts stand in line on their thread. Answers and words to go on do not: the engine holds them to one at
//! a time, and each is for a question that is there now.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::Instrument as _;
use uuid::Uuid;

use super::hub::Key;
use super::problem::Problem;
use super::service::Service;
use super::webhooks;
use crate::engine::{CallEnd, EngineError, Host, Onward, Rewind, StateUpdate, Swept};
use crate::model::{
    CheckpointId, Command, Digest, Execution, IfBusy, InterruptId, Json, Kind, PendingChildren, ResumeTarget,
    RunConfig, RunId, RunStatus, TenantId, ThreadId,
};
use crate::store::{InvocationEnd, InvocationRow, InvocationStatus, ServiceWrite, StoreError};

/// What a call is to do, as it is kept until it is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// A run with new input.
    Start {
        graph: Digest,
        input: Value,
        before: Vec<String>,
        after: Vec<String>,
        supersede: bool,
        /// The state that it is put into, if that is an earlier one.
        #[serde(default)]
        from: Option<CheckpointId>,
    },
    Answer(Box<Answering>),
    /// Lets gates pass, one after the other.
    Proceed {
        run: RunId,
        gates: Vec<InterruptId>,
    },
    /// Tries again what failed, if the thread still is as it was then.
    Retry {
        at: CheckpointId,
    },
    /// Writes into the state, likewise, and goes on from there.
    Set(Written),
    /// Writes into the state, likewise, and runs nothing that did not wait.
    Edit(Written),
    /// Takes the thread back to an earlier state.
    Rewind {
        to: CheckpointId,
        then: Then,
    },
    /// Its thread is a new one, from a state of another.
    Fork {
        from: ThreadId,
        at: Option<CheckpointId>,
    },
    /// Says how the thread stands.
    Look,
}

/// What is written into the state at a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    pub at: CheckpointId,
    pub values: Value,
    pub as_node: Option<String>,
}

/// What follows once a thread was taken back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    GoOn,
    /// What is asked there is answered.
    Answer(Value),
    /// Nothing runs before somebody says so.
    Edit {
        values: Value,
        as_node: Option<String>,
    },
}

/// An answer, and what it is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answering {
    pub target: Option<ResumeTarget>,
    pub give: Give,
    pub steer: Option<String>,
    pub children: Children,
    pub expect: Option<CheckpointId>,
    /// The caller's own name for this request; without one, the call's id is it.
    pub request: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Give {
    Value(Value),
    Answers(BTreeMap<InterruptId, Value>),
    Proceed,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Children {
    #[default]
    Leave,
    Cancel,
    Resolve(Value),
    Refuse,
}

/// The strategies of calls as they stand in the database.
pub const IN_LINE: &str = "queue";
pub const AT_ONCE: &str = "now";

/// A call that is durable, and what comes of it in this process.
pub struct Accepted {
    pub row: InvocationRow,
    pub done: oneshot::Receiver<Result<Execution, EngineError>>,
}

type Done = oneshot::Sender<Result<Execution, EngineError>>;

impl Service {
    /// Takes a call: durable when this returns, and being carried out.
    pub async fn accept(
        self: &Arc<Self>,
        tenant: &TenantId,
        row: InvocationRow,
        before: Vec<ServiceWrite>,
        only_if_free: bool,
    ) -> Result<Option<Accepted>, StoreError> {
        let id = row.invocation;
        let mut writes = before;
        writes.push(ServiceWrite::Accept { row: Box::new(row), only_if_free });
        if self.store().serve(tenant, writes).await?.is_err() {
            return Ok(None);
        }
        let Some(row) = self.store().invocation(tenant, id).await? else {
            return Ok(None);
        };
        let (done, receiver) = oneshot::channel();
        match row.status {
            InvocationStatus::Running => self.spawn(tenant.clone(), row.clone(), Some(done)),
            // Perhaps the thread became free before this was in line.
            _ => self.wake(&(tenant.clone(), row.thread.clone())),
        }
        Ok(Some(Accepted { row, done: receiver }))
    }

    /// What a process before this one left: calls that were accepted and are not over.
    pub async fn pick_up(self: Arc<Self>) -> Result<(), StoreError> {
        let mut seq = 0;
        loop {
            let open = self.store().open_invocations(seq).await?;
            let Some((_, last)) = open.last() else { return Ok(()) };
            seq = last.seq;
            for (tenant, row) in open {
                match row.status {
                    InvocationStatus::Running => self.spawn(tenant, row, None),
                    _ => self.wake(&(tenant, row.thread)),
                }
            }
        }
    }

    fn spawn(self: &Arc<Self>, tenant: TenantId, row: InvocationRow, done: Option<Done>) {
        let service = self.clone();
        self.at_work.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            let _at_work = AtWork(service.clone());
            service.carry_out(tenant, row, done).await;
        });
    }

    /// Works off the line of a thread, if it is free.
    pub fn wake(self: &Arc<Self>, key: &Key) {
        {
            let mut lines = self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(again) = lines.get_mut(key) {
                *again = true;
                return;
            }
            lines.insert(key.clone(), false);
        }
        let (service, key) = (self.clone(), key.clone());
        self.at_work.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            let _at_work = AtWork(service.clone());
            loop {
                if let Err(error) = service.work_off(&key).await {
                    tracing::warn!(thread = %key.1, %error, "what waits on this thread was not begun");
                }
                let mut lines = service.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                match lines.get_mut(&key) {
                    Some(again) if *again && !service.is_stopping() => *again = false,
                    _ => {
                        lines.remove(&key);
                        return;
                    }
                }
            }
        });
    }

    async fn work_off(self: &Arc<Self>, key: &Key) -> Result<(), StoreError> {
        while !self.is_stopping() {
            let Some(row) = self.store().next_invocation(&key.0, &key.1).await? else {
                return Ok(());
            };
            let at = self.host.clock().now();
            let begin = ServiceWrite::Begin { invocation: row.invocation, at };
            if self.store().serve(&key.0, vec![begin]).await?.is_err() {
                // It was called off meanwhile.
                continue;
            }
            self.hub.tell(key);
            self.carry_out(key.0.clone(), row, None).await;
        }
        Ok(())
    }

    async fn carry_out(self: &Arc<Self>, tenant: TenantId, row: InvocationRow, done: Option<Done>) {
        let span = tracing::info_span!(
            "invocation", tenant = %tenant, thread = %row.thread, invocation = %row.invocation
        );
        let began = Instant::now();
        let _carried = Carried::new(self.clone(), (tenant.clone(), row.thread.clone()), row.invocation);
        let this = self.clone();
        let (call, call_tenant) = (row.clone(), tenant.clone());
        // A task of its own: if it breaks off, this one says so.
        let executed = tokio::spawn(
            async move {
                let settings = loop {
                    match this.tenant_settings(&call_tenant).await {
                        Ok(settings) => break settings,
                        Err(error) if error.may_pass() && !this.is_stopping() => {
                            tokio::time::sleep(Duration::from_secs(1)).await;
                        }
                        Err(error) => return Err(error.into()),
                    }
                };
                let _one_of = this.meter.run(&call_tenant, &settings.quotas).await;
                // Who is told of it is told in the same breath as its end is written down.
                let is_told = call.webhook.is_some() || settings.webhook.is_some();
                let end = if is_told { CallEnd::Apart } else { CallEnd::WithRun };
                loop {
                    // Called off, or forgotten, before it began, or before it is taken up again: nothing more of
                    // it is done.
                    let row = this.store().invocation(&call_tenant, call.invocation).await?;
                    if row.is_none_or(|row| row.status.is_over()) {
                        let what = "the call was called off before it began";
                        return Err(crate::model::Refused::plain(Kind::Cancelled, what).into());
                    }
                    // What was taken waits where new things are refused.
                    let host = this.host.for_tenant(call_tenant.clone());
                    match execute(host, &call, end).await {
                        Err(error) if is_out_of_fuel(&error) && !this.is_stopping() => {
                            tokio::time::sleep(Duration::from_millis(250)).await;
                            this.tenant_settings(&call_tenant).await.ok();
                        }
                        Err(error) if is_out_of_fuel(&error) => return Err(EngineError::Stopped),
                        // On a machine that is too busy to renew a lease in time, this process may be the one that
                        // goes on: what was accepted is not over.
                        Err(error) if has_lost_lease(&error) && !this.is_stopping() => {
                            tracing::warn!("a lease lapsed; the call is taken up again");
                        }
                        // Nor is it where the database cannot be used for a while.
                        Err(EngineError::Store(error)) if error.may_pass() && !this.is_stopping() => {
                            tracing::error!(%error, "a call waits for the database, and is taken up again");
                            tokio::time::sleep(Duration::from_secs(1)).await;
                        }
                        Err(EngineError::Store(error)) if error.may_pass() => {
                            return Err(EngineError::Stopped);
                        }
                        executed => return executed,
                    }
                }
            }
            .instrument(span.clone()),
        );
        let result = executed.await.unwrap_or_else(|error| {
            let what = format!("the call broke off: {error}");
            tracing::error!(parent: &span, %error, "a call broke off");
            Err(crate::model::Refused::plain(Kind::Store, what).into())
        });
        self.metrics.invocation(&tenant, &row, &result, began.elapsed());
        if matches!(result, Err(EngineError::Stopped)) {
            // It stays as it is, and goes on with the next start.
            if let Some(done) = done {
                done.send(result).ok();
            }
            return;
        }
        // A disk that is full now may have room later; if this process ends first, the next start finds the
        // call open, and that it was done.
        while let Err(error) = self.end(&tenant, &row, &result).await {
            tracing::error!(parent: &span, %error, "that a call is over could not be written down yet");
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                () = self.stopped() => break,
            }
        }
        let key = (tenant, row.thread);
        self.hub.tell(&key);
        if let Some(done) = done {
            done.send(result).ok();
        }
        self.wake(&key);
    }

    /// Writes down that a call is over, and in the same breath who has to be told.
    async fn end(
        &self,
        tenant: &TenantId,
        row: &InvocationRow,
        result: &Result<Execution, EngineError>,
    ) -> Result<(), StoreError> {
        let at = self.host.clock().now();
        let end = match result {
            Ok(execution) => {
                let run = (execution.run_id, execution.status);
                InvocationEnd::of(row.invocation, run, execution.error.clone(), at)
            }
            Err(error) => InvocationEnd {
                invocation: row.invocation,
                status: InvocationStatus::Error,
                error: Some(super::way_out::told(error.record())),
                run: None,
                at,
            },
        };
        let mut writes = vec![ServiceWrite::End(end.clone())];
        let told = webhooks::news(self, tenant, row, &end, result.as_ref().ok()).await?;
        let is_told = !told.is_empty();
        match self.store().invocation(tenant, row.invocation).await? {
            // With the run's own commit; who is to be told of it was named since.
            Some(row) if row.status == end.status && row.webhook.is_none() => writes.clear(),
            Some(row) if !row.status.is_over() => {}
            // It was called off meanwhile, or is forgotten, and that is how it ended.
            _ => return Ok(()),
        }
        writes.extend(told);
        if writes.is_empty() {
            return Ok(());
        }
        let ended = self.store().serve(tenant, writes).await?;
        if ended.is_ok() && is_told {
            self.news.notify_one();
        }
        Ok(())
    }

    /// Waits until a call is over; or, once the host is being ended, for as long as it lets things go on.
    pub async fn ended(&self, tenant: &TenantId, row: InvocationRow) -> Result<InvocationRow, Problem> {
        let ends = async {
            self.stopped().await;
            tokio::time::sleep(Duration::from_millis(self.settings.drain_ms + 500)).await;
        };
        tokio::select! {
            ended = self.over(tenant, row) => ended,
            () = ends => Err(Problem::unavailable("the host ends; the run goes on after")),
        }
    }

    async fn over(&self, tenant: &TenantId, row: InvocationRow) -> Result<InvocationRow, Problem> {
        let key = (tenant.clone(), row.thread.clone());
        // Listen before looking, or a change between the two is missed.
        let mut news = self.hub.listen(&key);
        loop {
            let row = self.store().invocation(tenant, row.invocation).await?;
            let row = row.ok_or_else(|| Problem::not_found("such run any more"))?;
            if row.status.is_over() {
                return Ok(row);
            }
            tokio::select! {
                _ = news.changed() => {}
                // Another process may be the one that carries it out.
                () = tokio::time::sleep(Duration::from_millis(self.settings.heartbeat_ms)) => {}
            }
        }
    }

    fn carried(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.carried.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until nothing of a call that is over is done here any more: its thread is free then.
    pub async fn let_go(&self, tenant: &TenantId, row: &InvocationRow) {
        let key = (tenant.clone(), row.thread.clone());
        loop {
            // Listen before looking, or a change between the two is missed.
            let mut news = self.hub.listen(&key);
            if !self.carried().contains(&row.invocation) || news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sees to what is due, and to lines that nobody works off.
    pub async fn keep_sweeping(self: Arc<Self>) {
        let every = Duration::from_millis(self.settings.sweep_ms.max(1));
        let service = self.clone();
        let swept = self.host.keep_sweeping_with(every, move |swept| service.clone().swept(swept));
        tokio::select! {
            () = self.stopped() => {}
            ended = swept => if let Err(error) = ended {
                tracing::error!(%error, "what is due is not looked for any more");
            },
        }
    }

    async fn swept(self: Arc<Self>, swept: Vec<Swept>) {
        for Swept { tenant, thread, result } in swept {
            if let Ok(execution) = &result
                && let Err(error) = webhooks::swept(&self, &tenant, &thread, execution).await
            {
                tracing::error!(%thread, %error, "what a sweep found could not be told");
            }
            self.metrics.swept(&tenant, &result);
            let key = (tenant, thread);
            self.hub.tell(&key);
            self.wake(&key);
        }
        // In case another process left a thread free that calls wait on.
        match self.store().open_invocations(0).await {
            Ok(open) => {
                let waiting = open.into_iter().filter(|(_, row)| row.status == InvocationStatus::Pending);
                waiting.for_each(|(tenant, row)| self.wake(&(tenant, row.thread)));
            }
            Err(error) => tracing::warn!(%error, "it was not looked for lines"),
        }
    }
}

/// A call that is being carried out here.
struct Carried(Arc<Service>, Key, Uuid);

impl Carried {
    fn new(service: Arc<Service>, key: Key, call: Uuid) -> Self {
        service.carried().insert(call);
        Self(service, key, call)
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.0.carried().remove(&self.2);
        self.0.hub.tell(&self.1);
    }
}

struct AtWork(Arc<Service>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.send_modify(|count| *count -= 1);
    }
}

fn is_out_of_fuel(error: &EngineError) -> bool {
    let record = error.record();
    record.kind == Kind::Limit && record.more.get("limit").is_some_and(|limit| limit == "fuel_per_minute")
}

fn has_lost_lease(error: &EngineError) -> bool {
    error.record().more.get("lost").is_some_and(|lost| lost == "lease")
}

/// Does what a call asks, as often as it takes: each way is one that can be gone twice.
async fn execute(host: Host, row: &InvocationRow, end: CallEnd) -> Result<Execution, EngineError> {
    let ask: Ask = serde_json::from_str(row.ask.as_str()).map_err(|error| {
        let what = format!("what invocation {} asks is damaged: {error}", row.invocation);
        crate::model::Refused::plain(Kind::Store, what)
    })?;
    let config = RunConfig::thread(row.thread.as_str());
    let end = match ask {
        // More than one thing that a run pauses or ends with.
        Ask::Proceed { .. } | Ask::Rewind { then: Then::Answer(_), .. } => CallEnd::Apart,
        _ => end,
    };
    let host = &host.for_call(row.invocation, end);
    match ask {
        Ask::Start { graph, input, before, after, supersede, from } => {
            let run = RunId(row.invocation);
            if is_begun(host, run).await? {
                return go_on(host, config).await;
            }
            let graph = host.kept_graph(graph).await?;
            // Whoever goes on from an earlier state leaves what waits at the latest.
            let leaves = match from {
                Some(_) => host.execution(config.clone()).await?.status == RunStatus::Interrupted,
                None => false,
            };
            let if_busy = if supersede || leaves { IfBusy::Supersede } else { IfBusy::Refuse };
            let mut config = config.run_id(run).if_busy(if_busy);
            config.from = from;
            (config.interrupt_before, config.interrupt_after) = (before, after);
            graph.invoke(config, input).await
        }
        Ask::Answer(answering) => answer(host, config, row, *answering).await,
        Ask::Proceed { run, gates } => {
            let mut last = None;
            for (i, gate) in gates.into_iter().enumerate() {
                let target = ResumeTarget::run(run).interrupt(gate);
                let command = by(Command::proceed(), row).request(format!("{}/{i}", row.invocation));
                last = Some(host.resume_targeted(target, command).await?);
            }
            match last {
                Some(execution) => Ok(execution),
                None => host.execution(config).await,
            }
        }
        Ask::Retry { at } => {
            let now = host.execution(config.clone()).await?;
            match now.checkpoint_id == Some(at) && now.status != RunStatus::Running {
                true => host.retry(config).await,
                false => go_on(host, config).await,
            }
        }
        Ask::Set(written) => write(host, config, row, written, Onward::Run).await,
        Ask::Edit(written) => write(host, config, row, written, Onward::Hold).await,
        Ask::Rewind { to, then } => {
            let run = RunId(row.invocation);
            let back = Rewind { run: Some(run), actor: row.actor.clone(), ..Rewind::to(to) };
            match then {
                Then::GoOn => host.rewind(config, back).await,
                Then::Edit { values, as_node } => {
                    let update =
                        StateUpdate { values, as_node, actor: row.actor.clone(), onward: Onward::Hold };
                    host.rewind(config, Rewind { update: Some(update), ..back }).await
                }
                Then::Answer(value) => {
                    let asks = host.rewind(config, back).await?;
                    if asks.status != RunStatus::Interrupted {
                        return Ok(asks);
                    }
                    let command = by(Command::resume(value), row).request(row.invocation.to_string());
                    host.resume_targeted(ResumeTarget::run(run), command).await
                }
            }
        }
        Ask::Fork { from, at } => {
            let is_there = match host.store() {
                Some(store) => store.head(host.tenant(), &row.thread).await?.is_some(),
                None => false,
            };
            match is_there {
                true => go_on(host, config).await,
                false => host.fork(RunConfig::thread(from.as_str()), at, row.thread.clone()).await,
            }
        }
        Ask::Look => host.execution(config).await,
    }
}

async fn is_begun(host: &Host, run: RunId) -> Result<bool, EngineError> {
    match host.store() {
        Some(store) => Ok(store.run(host.tenant(), run).await?.is_some()),
        None => Ok(false),
    }
}

async fn write(
    host: &Host,
    config: RunConfig,
    row: &InvocationRow,
    written: Written,
    onward: Onward,
) -> Result<Execution, EngineError> {
    let Written { at, values, as_node } = written;
    if host.execution(config.clone()).await?.checkpoint_id != Some(at) {
        return go_on(host, config).await;
    }
    host.set_state(config, StateUpdate { values, as_node, actor: row.actor.clone(), onward }).await
}

async fn answer(
    host: &Host,
    config: RunConfig,
    row: &InvocationRow,
    answering: Answering,
) -> Result<Execution, EngineError> {
    let Answering { target, give, steer, children, expect, request } = answering;
    let command = match give {
        Give::Value(value) => Command::resume(value),
        Give::Answers(answers) => Command::answers(answers),
        Give::Proceed => Command::proceed(),
    };
    let mut command = by(command, row)
        .request(request.unwrap_or_else(|| row.invocation.to_string()))
        .pending_children(match children {
            Children::Leave => PendingChildren::Leave,
            Children::Cancel => PendingChildren::Cancel,
            Children::Resolve(value) => PendingChildren::Resolve(value),
            Children::Refuse => PendingChildren::Refuse,
        });
    command.steer = steer;
    command.expect_checkpoint = expect;
    match target {
        None => host.resume(config, command).await,
        Some(target) => host.resume_targeted(target, command).await,
    }
}

fn by(command: Command, row: &InvocationRow) -> Command {
    match &row.actor {
        Some(actor) => command.by(actor.clone()),
        None => command,
    }
}

/// What was begun before is gone on with, or over.
async fn go_on(host: &Host, config: RunConfig) -> Result<Execution, EngineError> {
    match host.execution(config.clone()).await? {
        execution if execution.status != RunStatus::Running => Ok(execution),
        _ => match host.continue_run(config.clone()).await {
            // The sweep was faster.
            Err(error) if error.kind() == Kind::NotPending => host.execution(config).await,
            continued => continued,
        },
    }
}

/// A call as it is accepted now.
pub fn call(
    id: Uuid,
    thread: ThreadId,
    (assistant, metadata): (Uuid, Json),
    (ask, strategy): (&Ask, &str),
    now: crate::model::Timestamp,
) -> Result<InvocationRow, Problem> {
    let ask = serde_json::to_value(ask).ok().and_then(|ask| Json::from_value(&ask).ok());
    let ask = ask.ok_or_else(|| Problem::invalid("the call has something that is no JSON"))?;
    Ok(InvocationRow {
        seq: 0,
        invocation: id,
        thread,
        assistant,
        ask,
        strategy: strategy.to_owned(),
        actor: None,
        metadata,
        webhook: None,
        status: InvocationStatus::Pending,
        run: None,
        error: None,
        from_seq: None,
        to_seq: None,
        created_at: now,
        updated_at: now,
    })
}
