//! What the tests of this layer share: components written by hand, attempts, and a world outside.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use super::super::*;
pub use super::by_hand::{component, module, node};
use crate::model::ids::Timestamp;
use crate::model::journal::{EffectOutcome, Entry, Instruction, Journal};
use crate::model::json::{Json, JsonBounds};

pub fn sandbox() -> Sandbox {
    Sandbox::new(options(Limits::default())).unwrap()
}

pub fn options(limits: Limits) -> SandboxOptions {
    SandboxOptions { cache_dir: None, compiler: Compiler::InProcess, limits }
}

pub async fn compiled(sandbox: &Sandbox, bytes: Vec<u8>) -> Component {
    sandbox.check(&bytes, &Limits::default()).unwrap();
    compile(sandbox, bytes).await.unwrap()
}

pub async fn compile(sandbox: &Sandbox, bytes: Vec<u8>) -> Result<Component, SandboxError> {
    sandbox.compile((&TenantId::default(), &Limits::default()), Digest::of(&bytes), bytes).await
}

pub async fn describe(sandbox: &Sandbox, component: &Component) -> Result<NodeInfo, SandboxError> {
    sandbox.describe((&TenantId::default(), &Limits::default()), component).await
}

pub fn json(text: &str) -> Json {
    Json::parse(text, JsonBounds::TRUSTED).unwrap()
}

/// Records what reached it, and answers effects with what it is told to.
#[derive(Default)]
pub struct World {
    pub lines: Mutex<Vec<(LogLevel, String)>>,
    pub events: Mutex<Vec<Json>>,
    pub performed: Mutex<Vec<(usize, String, String, Json)>>,
    /// Front to back; once empty, every effect is done with its own input, at time 0.
    pub outcomes: Mutex<Vec<Performed>>,
    pub instructions: Mutex<Vec<Instruction>>,
    pub hangs: bool,
    pub charges: Mutex<Vec<u64>>,
}

impl World {
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().map(|(_, line)| line.clone()).collect()
    }
}

impl Outside for World {
    fn perform<'a>(
        &'a self,
        index: usize,
        name: &'a str,
        key: &'a str,
        input: &'a Json,
    ) -> BoxFuture<'a, Performed> {
        Box::pin(async move {
            self.performed.lock().unwrap().push((index, name.into(), key.into(), input.clone()));
            if self.hangs {
                std::future::pending::<()>().await;
            }
            let mut outcomes = self.outcomes.lock().unwrap();
            match outcomes.is_empty() {
                true => Performed::Known(EffectOutcome::Done(input.clone()), Timestamp(0)),
                false => outcomes.remove(0),
            }
        })
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        let instructions = self.instructions.lock().unwrap().clone();
        Box::pin(async { Some(instructions) })
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.lines.lock().unwrap().push((level, message.into()));
    }

    fn emit(&self, event: Json) {
        self.events.lock().unwrap().push(event);
    }

    fn charge(&self, amount: u64) {
        self.charges.lock().unwrap().push(amount);
    }
}

pub fn attempt(state: &str, journal: &Arc<Mutex<Journal>>, world: &Arc<World>, limits: &Limits) -> Attempt {
    journal.lock().unwrap().rewind();
    Attempt {
        tenant: TenantId::default(),
        context: Context {
            thread_id: "t".into(),
            run_id: "r".into(),
            task_id: "k".into(),
            node: "n".into(),
            path: vec!["outer".into()],
            step: 3,
            arg: None,
        },
        state: json(state),
        journal: Arc::clone(journal),
        outside: Arc::clone(world) as Arc<dyn Outside>,
        clock: Timestamp(1_700_000_000_000),
        seed: [5; 32],
        limits: limits.clone(),
    }
}

pub fn journal(entries: Vec<Entry>) -> Arc<Mutex<Journal>> {
    Arc::new(Mutex::new(Journal::recorded(entries, 0)))
}

/// One attempt with nothing on record and nothing outside.
pub async fn run(bytes: Vec<u8>, limits: &Limits) -> Ran {
    let sandbox = sandbox();
    let component = compiled(&sandbox, bytes).await;
    sandbox.run(&component, attempt("{}", &journal(vec![]), &Arc::default(), limits)).await
}
