//! `holdpoint try`: one node, here and now, with a person at the terminal in place of everybody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dialoguer::console::style;
use serde_json::{Value, json};

use super::choices::choices;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{Shell, answer, build, compiler, input, install, prose, tenant};
use crate::engine::{EngineError, Trial, Turn, Watched};
use crate::model::interrupt::Question;
use crate::model::journal::{EffectOutcome, Instruction};
use crate::model::{Digest, ErrorRecord, Json, Kind, Limits, NodeInfo};
use crate::sandbox::{InvalidComponent, Route, Sandbox, SandboxError, SandboxOptions};

pub const ABOUT: &str = "\
Run one node without a graph: show what it logs, ask its questions, take the answers, print what comes of it.

NODE is a component, or the folder of a node, which is built first. Effects are not carried out: you say what
comes of each, or --effects does. Nothing is kept.

Without a terminal, answers come from --answers, in the order asked; when they run out the command ends with exit
status 3, and shows the question. An effect that --effects does not name comes to null.

    holdpoint try refund --input '{\"amount\": 250}'
    holdpoint try refund.wasm --input @order.json --answers '[\"keep\"]' --effects '{\"refund\": {\"receipt\": 5}}' --json";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A component, or the folder of a node
    #[arg(value_name = "NODE")]
    node: PathBuf,

    /// An object of what the node reads, under its own names: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    input: String,

    /// The answers in the order asked: a JSON array, or @FILE
    #[arg(long, value_name = "JSON")]
    answers: Option<String>,

    /// What comes of effects: an object from their names to outcomes, or @FILE
    #[arg(long, value_name = "JSON")]
    effects: Option<String>,

    /// Something that a person says beside the first answer; may be repeated
    #[arg(long, value_name = "TEXT")]
    steer: Vec<String>,

    /// The argument of the `send` that starts the node: JSON, or @FILE
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    arg: Option<String>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let limits = Limits::default();
    let state_bound = ("state_bytes", limits.state_bytes);
    let json = |what, text: &str| input::json(what, text, &limits, state_bound);
    let state = json("--input", &args.input)?;
    let arg = args.arg.as_deref().map(|text| json("--arg", text)).transpose()?;
    let mut company = Company {
        answers: args
            .answers
            .as_deref()
            .map(|text| list(json("--answers", text)?))
            .transpose()?
            .unwrap_or_default(),
        effects: args
            .effects
            .as_deref()
            .map(|text| object("--effects", json("--effects", text)?))
            .transpose()?
            .unwrap_or_default(),
        asks: args.answers.is_none()
            && !shell.options.json
            && io::stdin().is_terminal()
            && io::stderr().is_terminal(),
        steer: args.steer,
        questions: Vec::new(),
        performed: Vec::new(),
    };
    let path = component(&args.node, shell).await?;
    let bytes = install::read(&path).await?;
    let (sandbox, component, info) = compiled(shell, &path, bytes).await?;
    let state = known(state, &info, shell)?;
    let given: BTreeSet<String> = state.members().into_iter().flatten().map(|(name, _)| name).collect();

    let events: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (shown, emitted) = (shell.screen.watcher(), events.clone());
    let watcher = Arc::new(move |watched: &Watched<'_>| {
        if let Watched::Emitted { event, .. } = watched {
            emitted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(event.value());
        }
        shown(watched);
    });
    let mut trial = Trial::new(sandbox, component, info.clone(), state, watcher).with_arg(arg);
    let turn = loop {
        shell.screen.busy(format!("running {}", info.name));
        let turn = trial.run().await;
        shell.screen.rest();
        if !company.moves_on(&mut trial, &turn, shell)? {
            break turn;
        }
    };
    let events = std::mem::take(&mut *events.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    let not_given: Vec<&str> =
        info.reads.iter().filter(|name| !given.contains(*name)).map(String::as_str).collect();
    Ok(said(&info, &trial, &turn, company, events, &not_given))
}

/// Those who answer: the command line, or whoever sits at the terminal.
struct Company {
    answers: VecDeque<Json>,
    effects: BTreeMap<String, Json>,
    asks: bool,
    steer: Vec<String>,
    questions: Vec<Value>,
    performed: Vec<Value>,
}

impl Company {
    /// Whether the node can go on.
    fn moves_on(&mut self, trial: &mut Trial, turn: &Turn, shell: &Shell) -> Result<bool, Failure> {
        match turn {
            Turn::Asks { questions, order } => {
                for (place, question) in questions.iter().enumerate() {
                    let Some(answer) = self.answer(question, order + place)? else {
                        let waits = &questions[place..];
                        self.questions.extend(
                            waits
                                .iter()
                                .enumerate()
                                .map(|(i, question)| asked(question, order + place + i, None)),
                        );
                        return Ok(false);
                    };
                    trial.answer(place, answer.clone()).map_err(|mismatch| {
                        Failure::argument(format!(
                            "the answer to question {} is not one that its schema takes, {mismatch}",
                            order + place
                        ))
                    })?;
                    self.questions.push(asked(question, order + place, Some(&answer)));
                    for text in self.steer.drain(..) {
                        trial.steer(Instruction { actor: "you".into(), text });
                    }
                }
                Ok(true)
            }
            Turn::Performs { name, key, input } => {
                let outcome = self.outcome(name, key, input, shell)?;
                self.performed.push(
                    json!({ "name": name, "key": key, "input": input.value(), "outcome": outcome.value() }),
                );
                trial.settle(EffectOutcome::Done(outcome));
                Ok(true)
            }
            Turn::Finished { .. } | Turn::Failed { .. } | Turn::Diverged(_) => Ok(false),
        }
    }

    fn answer(&mut self, question: &Question, order: usize) -> Result<Option<Json>, Failure> {
        if let Some(answer) = self.answers.pop_front() {
            return Ok(Some(answer));
        }
        if !self.asks {
            return Ok(None);
        }
        let schema = question.answer_schema.as_ref().map(Json::value);
        let mut text = format!("\n{} (order {order}):\n", style("the node asks").cyan().bold());
        text.push_str(&prose::indented(&prose::pretty(&question.payload.value())));
        let _ = writeln!(text, "takes {}", choices(schema.as_ref()));
        let _ = writeln!(
            text,
            "type it as JSON: {}",
            harmless(&answer::examples(schema.as_ref()).join("  or  "))
        );
        if let Some(default) = &question.default_answer {
            let _ = writeln!(text, "(when it expires, {} counts)", prose::short(&default.value()));
        }
        eprint!("{text}");
        loop {
            let answer = line("answer")?;
            match Trial::check(question, &answer) {
                Ok(()) => return Ok(Some(answer)),
                Err(mismatch) => {
                    eprintln!("{}", harmless(&format!("the question does not take that: {mismatch}")))
                }
            }
        }
    }

    fn outcome(&mut self, name: &str, key: &str, input: &Json, shell: &Shell) -> Result<Json, Failure> {
        if let Some(outcome) = self.effects.get(name) {
            return Ok(outcome.clone());
        }
        let shown = format!(
            "{} under the key {}, with {}",
            harmless(name),
            harmless(key),
            prose::short(&input.value())
        );
        if self.asks {
            eprintln!("\n{} {shown}", style("the node has this done:").cyan().bold());
            return line("what comes of it");
        }
        shell.screen.line(&format!("effect {shown}: null, since --effects does not name it"));
        Ok(Json::null())
    }
}

/// One line of JSON from whoever sits there.
fn line(prompt: &str) -> Result<Json, Failure> {
    let limits = Limits::default();
    loop {
        eprint!("{prompt}> ");
        let _ = io::stderr().flush();
        let mut text = String::new();
        match io::stdin().read_line(&mut text) {
            Ok(0) => return Err(Failure::Stopped("stopped before the node was done")),
            Ok(_) => {}
            Err(error) => return Err(Failure::Host(format!("cannot read what you type: {error}"))),
        }
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        match input::json(prompt, text, &limits, ("answer_bytes", limits.answer_bytes)) {
            Ok(json) => return Ok(json),
            Err(failure) => eprintln!("{}", harmless(&failure.to_string())),
        }
    }
}

/// Builds it, where a folder is named.
pub async fn component(node: &Path, shell: &Shell) -> Result<PathBuf, Failure> {
    if !node.is_dir() {
        return Ok(node.to_owned());
    }
    let built = build::nodes(vec![node.to_owned()], shell).await?;
    match &built[..] {
        [one] => Ok(one.path.clone()),
        many => {
            let names: Vec<&str> = many.iter().map(|built| built.name.as_str()).collect();
            Err(Failure::argument(format!(
                "{} holds {} nodes: {}; try one of them",
                node.display(),
                many.len(),
                names.join(", ")
            )))
        }
    }
}

async fn compiled(
    shell: &Shell,
    path: &Path,
    bytes: Vec<u8>,
) -> Result<(Sandbox, crate::sandbox::Component, NodeInfo), Failure> {
    let invalid = |source: InvalidComponent| {
        Failure::from(EngineError::Component { name: path.display().to_string(), source })
    };
    let refused = |error: SandboxError| match error {
        SandboxError::Invalid(source) => invalid(source),
        error => EngineError::from(error).into(),
    };
    shell.screen.busy(format!("compiling {} ({} kB)", path.display(), bytes.len().div_ceil(1000)));
    let (tenant, limits) = (tenant(), Limits::default());
    let options = SandboxOptions { cache_dir: shell.cache(), compiler: compiler(), limits: limits.clone() };
    let sandbox = Sandbox::new(options).map_err(refused)?;
    sandbox.check(&bytes, &limits).map_err(invalid)?;
    let component = sandbox.compile((&tenant, &limits), Digest::of(&bytes), bytes).await.map_err(refused)?;
    let info = sandbox.describe((&tenant, &limits), &component).await.map_err(refused)?;
    shell.screen.rest();
    Ok((sandbox, component, info))
}

/// The input, as far as the node declares to read it: it would get no more in a graph.
fn known(input: Json, info: &NodeInfo, shell: &Shell) -> Result<Json, Failure> {
    let members = object("--input", input)?;
    let (known, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
        members.into_iter().partition(|(name, _)| info.reads.contains(name));
    for name in unknown.keys() {
        shell.screen.line(&format!(
            "note: the node does not declare that it reads {}; it is left away",
            harmless(name)
        ));
    }
    Ok(Json::object(known.iter().map(|(name, value)| (name.as_str(), value))))
}

fn object(what: &str, json: Json) -> Result<BTreeMap<String, Json>, Failure> {
    match json.members() {
        Some(members) => Ok(members.into_iter().collect()),
        None => Err(Failure::argument(format!("{what}: it takes an object; this is {}", json.kind()))),
    }
}

fn list(json: Json) -> Result<VecDeque<Json>, Failure> {
    let Value::Array(items) = json.value() else {
        return Err(Failure::argument(format!(
            "--answers: it takes an array, in the order asked; this is {}",
            json.kind()
        )));
    };
    let item = |item: &Value| {
        Json::from_value(item).map_err(|error| Failure::argument(format!("--answers: {error}")))
    };
    items.iter().map(item).collect()
}

fn asked(question: &Question, order: usize, answer: Option<&Json>) -> Value {
    json!({
        "order": order,
        "payload": question.payload.value(),
        "answer_schema": question.answer_schema.as_ref().map(Json::value),
        "answer": answer.map(Json::value),
    })
}

fn said(
    info: &NodeInfo,
    trial: &Trial,
    turn: &Turn,
    company: Company,
    events: Vec<Value>,
    not_given: &[&str],
) -> Said {
    let (mut update, mut routes) = (Value::Null, Vec::new());
    let (status, exit, error) = match turn {
        Turn::Finished { update: written, routes: taken } => {
            update = written.iter().map(|(name, value)| (name.clone(), value.value())).collect();
            routes = taken.iter().map(route).collect();
            ("completed", Exit::Completed, None)
        }
        Turn::Failed { error, .. } => ("failed", Exit::Failed, Some(error.clone())),
        Turn::Diverged(divergence) => {
            let error = ErrorRecord::new(Kind::Diverged, divergence.to_string())
                .with("divergence", divergence.to_value());
            ("diverged", Exit::Failed, Some(error))
        }
        Turn::Asks { .. } | Turn::Performs { .. } => ("interrupted", Exit::Interrupted, None),
    };
    let cost = trial.cost();
    let document = json!({
        "node": info.name, "status": status, "update": update, "routes": routes,
        "questions": company.questions, "effects": company.performed, "events": events, "error": error,
        "retryable": matches!(turn, Turn::Failed { retryable: true, .. }),
        "attempts": cost.attempts, "fuel": cost.fuel, "memory_bytes": cost.memory_bytes,
    });

    let mut text =
        format!("{}  {} {}\n", style(status).bold(), harmless(&info.name), harmless(&info.version));
    if let Some(error) = &error {
        text.push_str(&prose::error_text(error));
        if matches!(turn, Turn::Failed { retryable: true, .. }) {
            text.push_str("    the node says that another attempt may help\n");
        }
        if !not_given.is_empty() {
            let names = not_given.join(", ");
            let _ = writeln!(text, "    --input is what it reads, and has no {}", harmless(&names));
        }
    }
    if let Turn::Asks { questions, order } = turn {
        for (i, question) in questions.iter().enumerate() {
            let _ = writeln!(text, "\nthe node asks (order {}):", order + i);
            text.push_str(&prose::indented(&prose::pretty(&question.payload.value())));
            let _ = writeln!(
                text,
                "takes {}",
                choices(question.answer_schema.as_ref().map(Json::value).as_ref())
            );
        }
        text.push_str("answer it at a terminal, or with --answers\n");
    }
    if let Turn::Finished { update, .. } = turn {
        text.push_str("\nwrites\n");
        for (name, value) in update {
            let _ = writeln!(text, "    {}: {}", harmless(name), prose::short(&value.value()));
        }
        for route in &routes {
            let _ = writeln!(text, "goes    {}", prose::short(route));
        }
    }
    let _ = writeln!(
        text,
        "\n{}, {} fuel in the last, {} kB of memory",
        prose::counted(cost.attempts as usize, "attempt"),
        cost.fuel,
        cost.memory_bytes.div_ceil(1000)
    );
    Said::new(exit, &document, text)
}

fn route(route: &Route) -> Value {
    match route {
        Route::Go(label) => json!({ "go": label }),
        Route::Send { label, arg } => json!({ "send": { "label": label, "arg": arg.value() } }),
        Route::End => json!({ "end": true }),
    }
}
