//! The mistakes in the author's manual, each as a node that makes it. `mistake` says which.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    mistake: String,
    #[serde(default)]
    size: u64,
}

static PASSES: AtomicU32 = AtomicU32::new(0);

/// Says what it does, as it is dropped.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        log::info!("released");
        println!("released");
    }
}

#[node(reads = ["mistake", "size"], writes = ["result"], effects = ["pay"])]
fn mistakes(input: Input) -> Result<Value, NodeError> {
    let result = match input.mistake.as_str() {
        "key-from-time" => {
            let key = format!("{:?}", SystemTime::now());
            let _: Value = effect("pay", &key, &input.size)?;
            let _: Value = ask()?;
            json!(key)
        }
        "key-from-random" => {
            let key = format!("{:x}", random());
            let _: Value = effect("pay", &key, &input.size)?;
            let _: Value = ask()?;
            json!(key)
        }
        "key-from-counter" => {
            let key = format!("payment-{}", PASSES.fetch_add(1, Ordering::Relaxed) + 1);
            let _: Value = effect("pay", &key, &input.size)?;
            let _: Value = ask()?;
            json!(key)
        }
        "random-as-secret" => {
            let secret = random();
            let _: Value = ask()?;
            json!(format!("{secret:x}"))
        }
        "static" => {
            let pass = PASSES.fetch_add(1, Ordering::Relaxed) + 1;
            let _: Value = ask()?;
            json!({ "pass": pass })
        }
        "drop" => {
            let _guard = Guard;
            let _: Value = ask()?;
            json!("done")
        }
        "catch-unwind" => match catch_unwind(|| ask::<Value>()) {
            Ok(answer) => json!({ "answered": answer? }),
            Err(_) => {
                log::info!("caught");
                json!("caught")
            }
        },
        "slow" => {
            let sum = (0..input.size).fold(0_u64, |sum, n| sum.wrapping_mul(31).wrapping_add(n ^ (sum >> 7)));
            let _: Value = ask()?;
            json!(sum > 0)
        }
        "no-schema" => {
            let name: String = ask()?;
            json!(name)
        }
        "schema" => {
            let question = Question::new("your name?").schema(json!({ "type": "string" }));
            let name: String = interrupt(question)?;
            json!(name)
        }
        other => return Err(Fail(format!("no mistake is named {other:?}")).into()),
    };
    Ok(json!({ "result": result }))
}

fn ask<T: for<'de> Deserialize<'de>>() -> Result<T, NodeError> {
    interrupt("go on?")
}

/// From the source that `HashMap` takes its order from.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
