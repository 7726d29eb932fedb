//! The ops, one by one. What only a hostile node does is in [`hostile`].

use std::{
    collections::HashMap,
    io::Read,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Map, Value, json};

use crate::{
    bindings::{
        exports::holdpoint::node::handler::Context,
        holdpoint::node::{
            effects::{self, EffectError},
            events,
            interrupts::{self, Question},
            log::{self, Level},
            steering,
            types::{Failure, NodeError, Outcome, Route, Send},
        },
    },
    hostile, nonsense, parse,
};

pub struct Machine {
    context: Context,
    state: Value,
    began: Instant,
    results: Vec<Value>,
    update: Map<String, Value>,
    raw_update: Option<String>,
    routes: Vec<Route>,
}

impl Machine {
    pub fn new(context: Context, state: Value) -> Self {
        Self {
            context,
            state,
            began: Instant::now(),
            results: Vec::new(),
            update: Map::new(),
            raw_update: None,
            routes: Vec::new(),
        }
    }

    pub fn run(&mut self, program: &[Value]) -> Result<(), NodeError> {
        program.iter().try_for_each(|op| self.step(op))
    }

    pub fn outcome(self) -> Outcome {
        let update = self.raw_update.unwrap_or_else(|| Value::Object(self.update).to_string());
        Outcome { update, routes: self.routes }
    }

    fn step(&mut self, op: &Value) -> Result<(), NodeError> {
        const OPTIONS: [&str; 3] = ["schema", "expires_ms", "default"];
        let (verb, what) = op
            .as_object()
            .and_then(|op| op.iter().find(|(key, _)| !OPTIONS.contains(&key.as_str())))
            .ok_or_else(|| nonsense(format!("no op: {op}")))?;
        let gives = match verb.as_str() {
            "ask" => parse(&interrupts::interrupt(&question(what.to_string(), op)))?,
            "raw_ask" => parse(&interrupts::interrupt(&question(text(what)?, op)))?,
            "ask_results" => {
                let payload = json!(self.results).to_string();
                parse(&interrupts::interrupt(&question(payload, op)))?
            }
            "ask_all" => {
                let questions: Vec<_> =
                    list(what)?.iter().map(|payload| question(payload.to_string(), op)).collect();
                let answers = interrupts::interrupt_all(&questions);
                Value::Array(answers.iter().map(|answer| parse(answer)).collect::<Result<_, _>>()?)
            }
            "effect" => perform(what, what["input"].to_string())?,
            "raw_effect" => perform(what, text(&what["input"])?)?,
            "steering" => steering::instructions()
                .into_iter()
                .map(|given| json!({ "actor": given.actor, "text": given.text }))
                .collect(),
            "stdin" => {
                let mut read = String::new();
                hostile::got(std::io::stdin().read_to_string(&mut read).map(|_| read))
            }
            "now" => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                json!(now.map_or(0, |since| since.as_millis() as u64))
            }
            "monotonic" => json!(self.began.elapsed().as_nanos() as u64),
            "random" => hex(&wasip2::random::random::get_random_bytes(number(what)? as u64)),
            "insecure_random" => {
                hex(&wasip2::random::insecure::get_insecure_random_bytes(number(what)? as u64))
            }
            "insecure_seed" => {
                let (high, low) = wasip2::random::insecure_seed::insecure_seed();
                Value::from(format!("{high:016x}{low:016x}"))
            }
            "hash_order" => {
                let keys: HashMap<u32, ()> = (0..20).map(|key| (key, ())).collect();
                json!(keys.into_keys().collect::<Vec<_>>())
            }
            "read" => self.state[text(what)?.as_str()].clone(),
            "context" => self.context(),
            "value" => what.clone(),
            "catch" => self.catch(list(what)?)?,
            "grow" => json!(hostile::grow(number(what)?)),
            "env" => json!(std::env::vars().collect::<HashMap<_, _>>()),
            "args" => json!(std::env::args().collect::<Vec<_>>()),
            "open" => hostile::open(&text(what)?),
            "write" => hostile::write(&text(what)?),
            "list" => hostile::list(&text(what)?),
            "connect" => hostile::connect(&text(what)?)?,
            "udp" => hostile::udp(&text(what)?)?,
            _ => return self.silent(verb, what),
        };
        self.results.push(gives);
        Ok(())
    }

    /// The ops that give nothing.
    fn silent(&mut self, verb: &str, what: &Value) -> Result<(), NodeError> {
        match verb {
            "log" => log::write(level(&what["level"])?, &text(&what["message"])?),
            "emit" => events::emit(&what.to_string()),
            "raw_emit" => events::emit(&text(what)?),
            "print" => println!("{}", text(what)?),
            "eprint" => eprintln!("{}", text(what)?),
            "sleep_ms" => std::thread::sleep(Duration::from_millis(number(what)? as u64)),
            "put" => self.update.extend(what.as_object().cloned().unwrap_or_default()),
            "put_last" => {
                self.update.insert(text(what)?, self.last());
            }
            "put_results" => {
                self.update.insert(text(what)?, Value::Array(self.results.clone()));
            }
            "raw_update" => self.raw_update = Some(text(what)?),
            "go" => self.routes.push(Route::Go(text(what)?)),
            "send" => {
                let send = Send { label: text(&what["label"])?, arg: what["arg"].to_string() };
                self.routes.push(Route::Send(send));
            }
            "end" => self.routes.push(Route::End),
            "fail" => return Err(NodeError::Fail(failure(what)?)),
            "retry" => return Err(NodeError::Retry(failure(what)?)),
            "repeat" => {
                for _ in 0..number(&what["times"])? {
                    self.run(list(&what["ops"])?)?;
                }
            }
            "if_last" => {
                let branch = if self.last() == what["equals"] { "then" } else { "else" };
                self.run(what[branch].as_array().map_or(&[], Vec::as_slice))?;
            }
            "panic" => panic!("{}", text(what)?),
            "trap" => hostile::trap(&text(what)?)?,
            "loop" => hostile::spin(),
            "recurse" => hostile::recurse(),
            "spam_log" | "spam_print" => {
                let message = "x".repeat(number(&what["bytes"])?);
                for _ in 0..number(&what["times"])? {
                    match verb {
                        "spam_log" => log::write(Level::Info, &message),
                        _ => println!("{message}"),
                    }
                }
            }
            "exit" => std::process::exit(number(what)? as i32),
            _ => return Err(nonsense(format!("unknown verb `{verb}`"))),
        }
        Ok(())
    }

    fn catch(&mut self, ops: &[Value]) -> Result<Value, NodeError> {
        struct Guard;
        impl Drop for Guard {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    log::write(Level::Error, "unwound");
                    eprintln!("unwound");
                }
            }
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _guard = Guard;
            self.run(ops)
        }));
        match caught {
            Ok(done) => done.map(|()| json!("finished")),
            Err(_) => Ok(json!("caught")),
        }
    }

    fn context(&self) -> Value {
        let Context { thread_id, run_id, task_id, node, path, step, arg } = &self.context;
        let arg = arg.as_deref().map(|arg| parse(arg).unwrap_or_default());
        json!({
            "thread_id": thread_id, "run_id": run_id, "task_id": task_id,
            "node": node, "path": path, "step": step, "arg": arg,
        })
    }

    fn last(&self) -> Value {
        self.results.last().cloned().unwrap_or_default()
    }
}

fn question(payload: String, op: &Value) -> Question {
    Question {
        payload,
        answer_schema: op.get("schema").map(Value::to_string),
        expires_after_ms: op["expires_ms"].as_u64(),
        default_answer: op.get("default").map(Value::to_string),
    }
}

fn perform(what: &Value, input: String) -> Result<Value, NodeError> {
    let value = |text: &str| parse(text).unwrap_or_else(|_| Value::from(text));
    let done = effects::perform(&text(&what["name"])?, &text(&what["key"])?, &input);
    Ok(match done {
        Ok(outcome) => json!({ "ok": value(&outcome) }),
        Err(error) => json!({ "err": match error {
            EffectError::Denied(why) => json!({ "kind": "denied", "message": why }),
            EffectError::Invalid(why) => json!({ "kind": "invalid", "message": why }),
            EffectError::KeyConflict => json!({ "kind": "key-conflict", "message": null }),
            EffectError::Failed(known) => json!({ "kind": "failed", "value": value(&known) }),
            EffectError::InDoubt(why) => json!({ "kind": "in-doubt", "message": why }),
        }}),
    })
}

fn failure(what: &Value) -> Result<Failure, NodeError> {
    match what {
        Value::Object(failure) => Ok(Failure {
            message: failure.get("message").map_or_else(|| Ok(String::new()), text)?,
            detail: failure.get("detail").map(Value::to_string),
        }),
        _ => Ok(Failure { message: text(what)?, detail: None }),
    }
}

fn level(what: &Value) -> Result<Level, NodeError> {
    Ok(match text(what)?.as_str() {
        "trace" => Level::Trace,
        "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" => Level::Warn,
        "error" => Level::Error,
        other => return Err(nonsense(format!("unknown level `{other}`"))),
    })
}

fn text(what: &Value) -> Result<String, NodeError> {
    what.as_str().map(str::to_owned).ok_or_else(|| nonsense(format!("not a string: {what}")))
}

fn list(what: &Value) -> Result<&[Value], NodeError> {
    what.as_array().map(Vec::as_slice).ok_or_else(|| nonsense(format!("not a list: {what}")))
}

fn hex(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn number(what: &Value) -> Result<usize, NodeError> {
    what.as_u64()
        .and_then(|number| usize::try_from(number).ok())
        .ok_or_else(|| nonsense(format!("not a number: {what}")))
}
