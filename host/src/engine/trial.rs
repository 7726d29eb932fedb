//! One node without a graph and without a database: it is run as a graph would run it, and whoever tries it is
//! asked what a person and the world outside would say. Nothing of it is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt as _};

use super::clock::Clock;
use super::watch::{Watched, Watcher};
use crate::model::compile::NodeInfo;
use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::{Digest, NodeId, TaskId};
use crate::model::interrupt::{InterruptKind, Question};
use crate::model::journal::{Call, Divergence, EffectOutcome, EffectReply, Instruction, Journal, Reply};
use crate::model::json::Json;
use crate::model::limits::Limits;
use crate::model::schema::{AnswerSchema, Mismatch};
use crate::sandbox::{
    Attempt, Component, Context, End, LogLevel, Output, Outside, Performed, Ran, Route, Sandbox,
};

/// A node that is being tried.
pub struct Trial {
    sandbox: Sandbox,
    component: Component,
    info: NodeInfo,
    state: Json,
    context: Context,
    journal: Arc<Mutex<Journal>>,
    outside: Arc<TrialOutside>,
    done: BTreeMap<(String, String), (Json, EffectOutcome)>,
    clock: Clock,
    limits: Limits,
    cost: Cost,
}

/// What the node's attempts took.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// How often it ran from its beginning.
    pub attempts: u32,
    /// Of the last attempt, which did everything again.
    pub fuel: u64,
    /// The most that any attempt had.
    pub memory_bytes: u64,
    /// What the last attempt printed.
    pub output: Output,
}

/// Where the node stands.
#[derive(Debug)]
pub enum Turn {
    /// It asks; `order` counts its questions before these.
    Asks {
        questions: Vec<Question>,
        order: usize,
    },
    /// It wants this done.
    Performs {
        name: String,
        key: String,
        input: Json,
    },
    Finished {
        update: Vec<(String, Json)>,
        routes: Vec<Route>,
    },
    Failed {
        error: ErrorRecord,
        retryable: bool,
    },
    Diverged(Box<Divergence>),
}

impl Trial {
    /// `state`: an object under the node's own names.
    pub fn new(
        sandbox: Sandbox,
        component: Component,
        info: NodeInfo,
        state: Json,
        watcher: Watcher,
    ) -> Self {
        // A node may call itself what no graph can.
        let node = NodeId::parse(info.name.as_str()).or_else(|_| NodeId::parse("node"));
        let node = node.unwrap_or_else(|_| unreachable!("`node` is a node's name"));
        let task = TaskId::derive(crate::model::ids::CheckpointId::fresh(), 0, &node);
        let context = Context {
            thread_id: "try".into(),
            run_id: crate::model::ids::RunId::fresh().to_string(),
            task_id: task.to_string(),
            node: node.to_string(),
            path: Vec::new(),
            step: 0,
            arg: None,
        };
        let outside =
            TrialOutside { info: info.clone(), node, task, watcher, instructions: Mutex::default() };
        Self {
            sandbox,
            component,
            info,
            state,
            context,
            journal: Arc::default(),
            outside: Arc::new(outside),
            done: BTreeMap::new(),
            clock: Clock::System,
            limits: Limits::default(),
            cost: Cost::default(),
        }
    }

    /// The argument of a `send`, for a node that is started by one.
    pub fn with_arg(mut self, arg: Option<Json>) -> Self {
        self.context.arg = arg;
        self
    }

    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Runs the node from its beginning, as far as what is known so far takes it.
    pub async fn run(&mut self) -> Turn {
        loop {
            let turn = self.attempt().await;
            let Turn::Performs { name, key, input } = &turn else { return turn };
            // A key that was used before needs nobody to say what comes of it.
            let Some((before, outcome)) = self.done.get(&(name.clone(), key.clone())) else { return turn };
            let outcome = if before == input { outcome.clone() } else { EffectOutcome::KeyConflict };
            self.settle(outcome);
        }
    }

    async fn attempt(&mut self) -> Turn {
        self.journal().rewind();
        let attempt = Attempt {
            tenant: Default::default(),
            context: self.context.clone(),
            state: self.state.clone(),
            journal: self.journal.clone(),
            outside: self.outside.clone(),
            clock: self.clock.now(),
            // One trial is one task: its own numbers, the same in each of its attempts.
            seed: Digest::of(self.context.task_id.as_bytes()).0,
            limits: self.limits.clone(),
        };
        let Ran { end, fuel, memory_bytes, output } = self.sandbox.run(&self.component, attempt).await;
        self.cost = Cost {
            attempts: self.cost.attempts + 1,
            fuel,
            memory_bytes: self.cost.memory_bytes.max(memory_bytes),
            output,
        };
        match end {
            End::Finished { update, routes } => match self.undeclared(&update, &routes) {
                None => Turn::Finished { update, routes },
                Some(error) => Turn::Failed { error, retryable: false },
            },
            End::Failed { error, retryable } => Turn::Failed { error, retryable },
            End::Diverged(divergence) => Turn::Diverged(divergence),
            End::Paused => self.waits(),
            End::Fault => Turn::Failed {
                error: ErrorRecord::new(
                    Kind::Store,
                    "the host could not carry out the attempt; its log says why",
                ),
                retryable: true,
            },
        }
    }

    fn waits(&self) -> Turn {
        let journal = self.journal();
        let waiting = journal.waiting().map(|(index, entry)| (index, entry.call.clone()));
        match waiting {
            Some((_, Call::Effect { name, key, input })) => Turn::Performs { name, key, input },
            Some((index, call)) => {
                Turn::Asks { questions: call.questions().to_vec(), order: journal.orders_before(index) }
            }
            None => Turn::Failed {
                error: ErrorRecord::new(Kind::Invalid, "the node stopped without a question"),
                retryable: false,
            },
        }
    }

    /// Whether the answer is one that the question takes.
    pub fn check(question: &Question, answer: &Json) -> Result<(), Mismatch> {
        let Some(schema) = &question.answer_schema else { return Ok(()) };
        // The sandbox has refused a question whose schema cannot be compiled.
        AnswerSchema::compile(schema).map_or(Ok(()), |schema| schema.check(&answer.value()))
    }

    /// Gives the question at `place` of those that the node asks its answer, if it is one.
    pub fn answer(&mut self, place: usize, answer: Json) -> Result<(), Mismatch> {
        let at = self.clock.now();
        let mut journal = self.journal();
        let Some((index, entry)) = journal.waiting() else { return Ok(()) };
        if let Some(question) = entry.call.questions().get(place) {
            Self::check(question, &answer)?;
        }
        journal.answer(index, place, answer, at);
        Ok(())
    }

    /// Says what came of the effect that the node wants done.
    pub fn settle(&mut self, outcome: EffectOutcome) {
        let at = self.clock.now();
        let waiting = self.journal().waiting().map(|(index, entry)| (index, entry.call.clone()));
        let Some((index, Call::Effect { name, key, input })) = waiting else { return };
        self.journal().settle(index, Reply::Effect(EffectReply::Known(outcome.clone())), at);
        self.done.entry((name, key)).or_insert((input, outcome));
    }

    /// Adds what a person says beside an answer.
    pub fn steer(&mut self, instruction: Instruction) {
        self.outside.instructions.lock().unwrap_or_else(PoisonError::into_inner).push(instruction);
    }

    fn undeclared(&self, update: &[(String, Json)], routes: &[Route]) -> Option<ErrorRecord> {
        let writes = update.iter().map(|(name, _)| ("output", name, &self.info.writes));
        let labels = routes.iter().filter_map(|route| match route {
            Route::Go(label) | Route::Send { label, .. } => Some(("route", label, &self.info.routes)),
            Route::End => None,
        });
        let mut all = writes.chain(labels);
        let (what, name, declared) = all.find(|(_, name, declared)| !declared.contains(*name))?;
        Some(undeclared(what, name, declared))
    }

    fn journal(&self) -> std::sync::MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn undeclared<'a>(what: &str, name: &str, declared: impl IntoIterator<Item = &'a String>) -> ErrorRecord {
    let name: String = name.chars().take(80).collect();
    let declared: Vec<&str> = declared.into_iter().map(String::as_str).collect();
    let declared = if declared.is_empty() { "none".to_owned() } else { declared.join(", ") };
    ErrorRecord::new(
        Kind::Undeclared,
        format!("the node used the {what} {name:?}, which it does not declare; declared: {declared}"),
    )
    .with("what", what)
    .with("name", name)
}

/// What the node reaches outside: nothing is done there, it is asked for.
struct TrialOutside {
    info: NodeInfo,
    node: NodeId,
    task: TaskId,
    watcher: Watcher,
    instructions: Mutex<Vec<Instruction>>,
}

impl Outside for TrialOutside {
    fn perform<'a>(
        &'a self,
        _index: usize,
        name: &'a str,
        _key: &'a str,
        _input: &'a Json,
    ) -> BoxFuture<'a, Performed> {
        let performed = if self.info.effects.contains(name) {
            // The attempt ends here, so that whoever is asked may take their time.
            Performed::Ask(InterruptKind::Approve)
        } else {
            Performed::Refused(undeclared("effect", name, &self.info.effects))
        };
        std::future::ready(performed).boxed()
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        let given = self.instructions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        std::future::ready(Some(given)).boxed()
    }

    fn log(&self, level: LogLevel, message: &str) {
        (self.watcher)(&Watched::Log { node: self.node.as_str(), task: self.task, level, message });
    }

    fn emit(&self, event: Json) {
        let tenant = Default::default();
        (self.watcher)(&Watched::Emitted {
            tenant: &tenant,
            thread: None,
            node: self.node.as_str(),
            task: self.task,
            attempt: 1,
            event,
        });
    }

    fn charge(&self, _: u64) {}
}
