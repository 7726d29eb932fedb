//! One attempt of one task: the part of the host that its node can reach.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::call::ForCall;
use super::effects::{EffectDesk, EffectFailure, EffectRequest, Unsent, wire_key};
use super::host::{Host, Shared, locked};
use super::http::Unsendable;
use super::ledger::{Ledger, Lost};
use super::plan;
use super::watch::Watched;
use crate::model::checkpoint::{
    ChannelRow, EffectRow, EffectScope, EffectState, JournalRow, SteeringRow, TaskRow, Version,
};
use crate::model::compile::{CompiledEffect, CompiledGraph, CompiledNode};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::graph::EffectMode;
use crate::model::ids::{Digest, NodeId, RunId, TenantId, ThreadId};
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{Call, EffectOutcome, EffectReply, Instruction, Journal, Reply};
use crate::model::json::Json;
use crate::model::limits::Limits;
use crate::sandbox::{Attempt, Component, LogLevel, Outside, Performed, Ran};
use crate::store::Write;

/// Why an invocation cannot go on, whatever its nodes do.
#[derive(Debug)]
pub enum Fault {
    Lost(Lost),
    HandlerPanicked {
        effect: String,
    },
    /// An attempt ended without an outcome, and nobody said why: damage in the database, or a bug here.
    Attempt {
        node: NodeId,
    },
}

/// What all tasks of an invocation share.
pub struct Invocation {
    pub shared: Arc<Shared>,
    pub tenant: TenantId,
    pub limits: Arc<Limits>,
    pub thread: Option<ThreadId>,
    /// Of the thread: seeds its guests' random numbers.
    pub secret: [u8; 32],
    /// The highest number that a boundary of the thread has.
    version: AtomicI64,
    /// `None`: nothing is durable.
    pub ledger: Option<Ledger>,
    pub call: Option<ForCall>,
    pub desk: EffectDesk,
    /// Instructions that came with this invocation's answers.
    pub steered: Mutex<Vec<SteeringRow>>,
    /// The first fault; it ends the invocation.
    pub fault: Mutex<Option<Fault>>,
}

impl Invocation {
    pub fn new(
        host: &Host,
        thread: Option<ThreadId>,
        (secret, version): ([u8; 32], Version),
        ledger: Option<Ledger>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: host.shared.clone(),
            tenant: host.tenant.clone(),
            limits: host.limits.clone(),
            thread,
            secret,
            version: AtomicI64::new(version),
            ledger,
            call: host.call,
            desk: EffectDesk::default(),
            steered: Mutex::default(),
            fault: Mutex::default(),
        })
    }

    /// As guests are told; empty without a thread.
    pub fn thread_name(&self) -> String {
        self.thread.as_ref().map(ThreadId::to_string).unwrap_or_default()
    }

    /// A number for another boundary of the thread, whichever run it is of.
    pub fn next_version(&self) -> Version {
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub async fn push(&self, writes: impl IntoIterator<Item = Write>) {
        if let Some(ledger) = &self.ledger {
            ledger.push(writes).await;
        }
    }

    /// How an effect goes out, for a person who is asked about it: its name in the graph, the key that the
    /// service sees, and where to.
    pub fn what_is_sent(
        &self,
        graph: &CompiledGraph,
        namespace: &[String],
        node: &NodeId,
        name: &str,
        key: &str,
    ) -> Json {
        let Some(effect) = graph.node(node).and_then(|granted| granted.effects.get(name)) else {
            return Json::null();
        };
        let scope =
            EffectScope { node: path_of(namespace, node), effect: effect.clone(), key: key.to_owned() };
        let wire = wire_key(&self.tenant, &self.thread_name(), &scope);
        let http = graph.effects[effect].http.as_ref();
        let mut sent = json!({
            "effect": effect.as_str(),
            "idempotency_key": wire,
            "method": http.map(|http| &http.method),
            "url": http.map(|http| &http.url),
        });
        if let Some(auth) = http.and_then(|http| http.auth.as_ref()) {
            sent["secret"] = auth.secret.as_str().into();
        }
        Json::from_value(&sent).unwrap_or_else(|_| Json::null())
    }

    /// An attempt, once the tenant has fuel for it.
    pub async fn run(&self, component: &Component, attempt: Attempt) -> Ran {
        self.shared.fuel(&self.tenant, &self.limits).await;
        self.shared.sandbox.run(component, attempt).await
    }

    /// The tenant pays for what an attempt took.
    pub fn charge(&self, amount: u64) {
        self.shared.used.spend(&self.tenant, &self.limits, amount, self.shared.clock.now());
    }

    pub fn has_room(&self) -> Result<(), ErrorRecord> {
        self.shared.used.has_room(&self.tenant, &self.limits)
    }

    pub fn stored(&self, rows: &[ChannelRow]) {
        for row in rows {
            self.shared.used.stored(&self.tenant, &self.limits, row.value.bytes());
        }
    }

    pub fn fail(&self, fault: Fault) -> Performed {
        let mut first = locked(&self.fault);
        first.get_or_insert(fault);
        Performed::Fault
    }
}

/// The outside of one attempt.
pub struct TaskOutside {
    pub invocation: Arc<Invocation>,
    /// Of its run.
    pub graph: Arc<CompiledGraph>,
    /// Its node with the subgraph nodes above it.
    pub path: String,
    /// From the root run to its own.
    pub run_path: Vec<RunId>,
    /// As it stands while the attempt runs.
    pub row: TaskRow,
    pub journal: Arc<Mutex<Journal>>,
}

impl Outside for TaskOutside {
    fn perform<'a>(
        &'a self,
        index: usize,
        name: &'a str,
        key: &'a str,
        input: &'a Json,
    ) -> BoxFuture<'a, Performed> {
        Box::pin(async move {
            match self.perform_granted(index, name, key, input).await {
                Ok(performed) => performed,
                Err(fault) => self.invocation.fail(fault),
            }
        })
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        Box::pin(async move {
            match self.instructions().await {
                Ok(instructions) => Some(instructions),
                Err(lost) => {
                    self.invocation.fail(Fault::Lost(lost));
                    None
                }
            }
        })
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.invocation.shared.watch(Watched::Log { node: &self.path, task: self.row.task, level, message });
    }

    fn emit(&self, event: Json) {
        let Invocation { tenant, thread, .. } = &*self.invocation;
        let (task, attempt) = (self.row.task, self.row.attempts);
        let (thread, node) = (thread.as_ref(), self.path.as_str());
        self.invocation.shared.watch(Watched::Emitted { tenant, thread, node, task, attempt, event });
    }

    fn charge(&self, amount: u64) {
        self.invocation.charge(amount);
    }
}

impl TaskOutside {
    fn node(&self) -> &CompiledNode {
        // The plan was made from this graph.
        &self.graph.nodes[&self.row.node]
    }

    async fn perform_granted(
        &self,
        index: usize,
        name: &str,
        key: &str,
        input: &Json,
    ) -> Result<Performed, Fault> {
        let granted = &self.node().effects;
        let Some(effect) = granted.get(name) else {
            return Ok(Performed::Refused(plan::undeclared(&self.row.node, "effect", name, granted.keys())));
        };
        let spec = &self.graph.effects[effect];
        let scope = EffectScope { node: self.path.clone(), effect: effect.clone(), key: key.to_owned() };
        let place = self.invocation.desk.scope(&scope);
        // Held until the outcome is known: whoever asks for the same meanwhile waits for it.
        let mut place = place.lock().await;
        if place.is_none() {
            *place = self.load(&scope).await?;
        }
        let digest = Digest::of(input.as_str().as_bytes());
        if let Some(row) = &*place {
            if row.input != digest {
                return Ok(self.known(EffectOutcome::KeyConflict));
            }
            if let EffectState::Known(outcome) = &row.state {
                return Ok(Performed::Known(outcome.clone(), row.at));
            }
        }
        let intent = EffectRow {
            scope,
            input: digest,
            task: self.row.task,
            state: EffectState::Intended,
            at: self.invocation.shared.clock.now(),
        };
        let asked = self.asked(index);
        if place.is_some() && spec.mode == EffectMode::AtMostOnce {
            // It may have been sent by a process that died: only a person can say.
            match asked {
                Some((InterruptKind::InDoubt, Some(answer))) => {
                    if let Some(outcome) = answer.value().get("done") {
                        let outcome = EffectOutcome::Done(self.json(outcome));
                        return Ok(self.settle(&mut place, intent, outcome).await);
                    }
                }
                _ => return Ok(Performed::Ask(InterruptKind::InDoubt)),
            }
        } else if place.is_none() && spec.approve {
            match asked {
                Some((InterruptKind::Approve, Some(answer))) => {
                    let answer = answer.value();
                    if answer.get("approved") != Some(&Value::Bool(true)) {
                        let reason = answer.get("reason").and_then(Value::as_str).unwrap_or("not approved");
                        let denied = EffectOutcome::Denied(reason.to_owned());
                        return Ok(self.settle(&mut place, intent, denied).await);
                    }
                }
                _ => return Ok(Performed::Ask(InterruptKind::Approve)),
            }
        }
        if let Err(unsent) = self.can_send(effect.as_str(), spec) {
            return Ok(self.unsent(effect.as_str(), unsent));
        }
        *place = Some(intent.clone());
        self.before_sending(index, &intent).await?;
        self.send(spec, intent, input, &mut place).await
    }

    async fn send(
        &self,
        spec: &CompiledEffect,
        intent: EffectRow,
        input: &Json,
        place: &mut Option<EffectRow>,
    ) -> Result<Performed, Fault> {
        let effect = intent.scope.effect.as_str().to_owned();
        let request = EffectRequest {
            effect: effect.clone(),
            input: input.value(),
            idempotency_key: wire_key(&self.invocation.tenant, &self.invocation.thread_name(), &intent.scope),
        };
        fail::fail_point!("engine::before_effect");
        let sent = self.sendings(spec, request).await?;
        fail::fail_point!("engine::after_effect");
        match sent {
            Err(Unsent::Panicked) => Err(Fault::HandlerPanicked { effect }),
            Err(unsent) => Ok(self.unsent(&effect, unsent)),
            Ok(Ok(value)) => self.sent(spec, place, intent, EffectOutcome::Done(self.json(&value))).await,
            Ok(Err(EffectFailure::Final(value))) => {
                self.sent(spec, place, intent, EffectOutcome::Failed(self.json(&value))).await
            }
            Ok(Err(EffectFailure::Unknown(_))) if spec.mode == EffectMode::AtMostOnce => {
                Ok(Performed::Ask(InterruptKind::InDoubt))
            }
            // At most once: this was the once, though nothing came of it.
            Ok(Err(EffectFailure::Retryable(value))) if spec.mode == EffectMode::AtMostOnce => {
                self.sent(spec, place, intent, EffectOutcome::Failed(self.json(&value))).await
            }
            // The node learns of it, but it is not the key's outcome: another attempt sends it again.
            Ok(Err(EffectFailure::Retryable(value) | EffectFailure::Unknown(value))) => {
                Ok(self.retryable(EffectOutcome::Failed(self.json(&value))))
            }
        }
    }

    fn can_send(&self, effect: &str, spec: &CompiledEffect) -> Result<(), Unsent> {
        self.invocation.shared.handlers.can_send(&self.invocation.tenant, effect, spec)
    }

    /// Sends it, and again under the same key where the graph says so: after what may pass, while the thread
    /// is still ours.
    async fn sendings(
        &self,
        spec: &CompiledEffect,
        request: EffectRequest,
    ) -> Result<Result<Result<Value, EffectFailure>, Unsent>, Fault> {
        let Invocation { shared, tenant, ledger, .. } = &*self.invocation;
        let mut failures = 0;
        loop {
            let sent = shared.handlers.send(tenant, spec, request.clone()).await;
            let may_pass = matches!(sent, Ok(Err(EffectFailure::Retryable(_) | EffectFailure::Unknown(_))));
            failures += 1;
            let retry = spec.retry.filter(|_| may_pass && spec.mode == EffectMode::AtLeastOnce);
            let Some(wait_ms) = retry.and_then(|retry| retry.wait_ms(failures)) else {
                return Ok(sent);
            };
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            if let Some(ledger) = ledger
                && !ledger.is_held().await.map_err(Fault::Lost)?
            {
                return Err(Fault::Lost(Lost::Conflict));
            }
        }
    }

    /// Output commit: the run, its answers, this task and all it did so far are durable, and the thread is
    /// ours, before anything leaves. Crash before: nothing was sent. Crash after: the intent says that it
    /// may have been.
    async fn before_sending(&self, index: usize, intent: &EffectRow) -> Result<(), Fault> {
        let Some(ledger) = &self.invocation.ledger else {
            return Ok(());
        };
        // What a person said about an earlier sending is used up by this one: should this end in doubt too,
        // they are asked again.
        let begun = Reply::Effect(EffectReply::Begun);
        self.journal().settle(index, begun, intent.at);
        let mut writes = vec![Write::Task(self.row.clone())];
        writes.extend(self.take_journal());
        writes.push(Write::Effect(intent.clone()));
        ledger.push(writes).await;
        fail::fail_point!("engine::before_intent");
        ledger.hold().await.map_err(Fault::Lost)?;
        fail::fail_point!("engine::after_intent");
        debug_assert!(self.journal().entries().len() > index, "the sandbox records a call before it is made");
        match ledger.is_held().await.map_err(Fault::Lost)? {
            true => Ok(()),
            false => Err(Fault::Lost(Lost::Conflict)),
        }
    }

    async fn sent(
        &self,
        spec: &CompiledEffect,
        place: &mut Option<EffectRow>,
        intent: EffectRow,
        outcome: EffectOutcome,
    ) -> Result<Performed, Fault> {
        let performed = self.settle(place, intent, outcome).await;
        if let (EffectMode::AtMostOnce, Some(ledger)) = (spec.mode, &self.invocation.ledger) {
            // Nothing depends on it yet, but a crash now would cost a person's time.
            ledger.hold().await.map_err(Fault::Lost)?;
        }
        Ok(performed)
    }

    /// The outcome under its key. It goes out with the next commit, before anything that depends on it;
    /// until then a crash sends the effect again under the same key, or asks.
    async fn settle(
        &self,
        place: &mut Option<EffectRow>,
        intent: EffectRow,
        outcome: EffectOutcome,
    ) -> Performed {
        let at = self.invocation.shared.clock.now();
        let row = EffectRow { state: EffectState::Known(outcome.clone()), at, ..intent };
        *place = Some(row.clone());
        if let Some(ledger) = &self.invocation.ledger {
            ledger.push([Write::Effect(row)]).await;
        }
        Performed::Known(outcome, at)
    }

    /// Those that are durable, which others may have added while this runs, and then those that came with
    /// the answers of this invocation and are not durable yet.
    async fn instructions(&self) -> Result<Vec<Instruction>, Lost> {
        let mut rows = match &self.invocation.ledger {
            Some(ledger) => ledger.steering(&self.run_path).await?,
            None => Vec::new(),
        };
        let steered = locked(&self.invocation.steered).clone();
        let new = steered.into_iter().filter(|new| rows.iter().all(|row| row.id != new.id));
        rows.extend(new.collect::<Vec<_>>());
        // What is said to a run is said to those below it.
        rows.retain(|row| self.run_path.contains(&row.run));
        rows.retain(|row| row.task.is_none_or(|task| task == self.row.task));
        let now = self.invocation.shared.clock.now();
        let new = rows.iter().filter(|row| row.delivered_at.is_none());
        let delivered: Vec<Write> =
            new.map(|row| Write::Delivered { run: row.run, id: row.id, at: now }).collect();
        self.invocation.push(delivered).await;
        Ok(rows.into_iter().map(|SteeringRow { actor, text, .. }| Instruction { actor, text }).collect())
    }

    async fn load(&self, scope: &EffectScope) -> Result<Option<EffectRow>, Fault> {
        let Some(ledger) = &self.invocation.ledger else {
            return Ok(None);
        };
        ledger.effect(scope).await.map_err(Fault::Lost)
    }

    /// What a person was asked about the call at `index`, and said.
    fn asked(&self, index: usize) -> Option<(InterruptKind, Option<Json>)> {
        match self.journal().entries().get(index).map(|entry| &entry.reply) {
            Some(Reply::Effect(EffectReply::Asked { kind, answer })) => Some((*kind, answer.clone())),
            _ => None,
        }
    }

    fn journal(&self) -> std::sync::MutexGuard<'_, Journal> {
        locked(&self.journal)
    }

    fn take_journal(&self) -> Vec<Write> {
        take_journal(&self.row, &mut self.journal())
    }

    fn known(&self, outcome: EffectOutcome) -> Performed {
        Performed::Known(outcome, self.invocation.shared.clock.now())
    }

    fn retryable(&self, outcome: EffectOutcome) -> Performed {
        Performed::Retryable(outcome, self.invocation.shared.clock.now())
    }

    fn unsent(&self, effect: &str, unsent: Unsent) -> Performed {
        match unsent {
            // The operator may open the way, and have the task tried again.
            Unsent::Unsendable(why @ (Unsendable::Url(_) | Unsendable::Closed { .. })) => {
                self.retryable(EffectOutcome::Denied(why.to_string()))
            }
            unsent => {
                Performed::Refused(ErrorRecord::new(Kind::Denied, format!("effect {effect}: {unsent}")))
            }
        }
    }

    /// A handler's value is the embedder's; one that no guest could be handed is shown as text.
    fn json(&self, value: &Value) -> Json {
        let limits = self.node().limits.within(&self.invocation.limits);
        let text = value.to_string();
        Json::parse(&text, limits.json(limits.effect_bytes)).unwrap_or_else(|error| {
            let shown: String = text.chars().take(1_000).collect();
            Json::object([("error", &Json::string(&error.to_string())), ("text", &Json::string(&shown))])
        })
    }
}

/// A node with the subgraph nodes above it.
pub fn path_of(namespace: &[String], node: &NodeId) -> String {
    namespace.iter().map(String::as_str).chain([node.as_str()]).collect::<Vec<_>>().join("/")
}

/// What of a task's journal is not durable yet, as writes; from here on it is the ledger's.
pub fn take_journal(row: &TaskRow, journal: &mut Journal) -> Vec<Write> {
    let writes = journal
        .undurable()
        .map(|(index, entry)| Write::Journal(JournalRow { task: row.task, index, entry: entry.clone() }))
        .collect();
    journal.mark_durable();
    writes
}

/// What a person is shown of an effect that waits for them: exactly what will be sent, from `shown`, and
/// the node's words for it.
pub fn host_question(kind: InterruptKind, call: &Call, shown: impl Fn(&str, &str) -> Json) -> (Json, Json) {
    let payload = match call {
        Call::Effect { name, key, input } => Json::object([
            ("effect", &Json::string(name)),
            ("key", &Json::string(key)),
            ("input", input),
            ("sends", &shown(name, key)),
        ]),
        _ => Json::null(),
    };
    let schema = match kind {
        InterruptKind::InDoubt => json!({
            "oneOf": [
                { "type": "object", "required": ["done"], "properties": { "done": {} }, "additionalProperties": false },
                { "type": "object", "required": ["not_done"], "properties": { "not_done": { "const": true } },
                  "additionalProperties": false },
            ]
        }),
        _ => json!({
            "type": "object", "required": ["approved"],
            "properties": { "approved": { "type": "boolean" }, "reason": { "type": "string" } },
            "additionalProperties": false,
        }),
    };
    (payload, Json::from_value(&schema).unwrap_or_else(|_| Json::null()))
}
