//! The sandbox by itself: an attempt as the engine makes one, with nothing behind it.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use holdpoint::model::journal::{Instruction, Journal};
use holdpoint::model::{Json, Limits, TenantId, Timestamp};
use holdpoint::sandbox::{Attempt, Context, LogLevel, Outside, Performed};

use crate::node;

pub fn attempt(state: Json, journal: Journal) -> Attempt {
    Attempt {
        tenant: TenantId::default(),
        context: Context {
            thread_id: "alone".into(),
            run_id: "0198f0c0-0000-7000-8000-000000000000".into(),
            task_id: "0198f0c0-0000-5000-8000-000000000000".into(),
            node: node::NODE.into(),
            path: Vec::new(),
            step: 0,
            arg: None,
        },
        state,
        journal: Arc::new(Mutex::new(journal)),
        outside: Arc::new(Nobody),
        clock: now(),
        seed: [7; 32],
        limits: Limits::default(),
    }
}

pub fn now() -> Timestamp {
    holdpoint::engine::Clock::System.now()
}

/// Nothing that a node which only asks could reach.
struct Nobody;

impl Outside for Nobody {
    fn perform<'a>(&'a self, _: usize, _: &'a str, _: &'a str, _: &'a Json) -> BoxFuture<'a, Performed> {
        Box::pin(std::future::ready(Performed::Fault))
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        Box::pin(async { Some(Vec::new()) })
    }

    fn log(&self, _: LogLevel, _: &str) {}

    fn emit(&self, _: Json) {}

    fn charge(&self, _: u64) {}
}
