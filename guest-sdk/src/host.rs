//! The host's functions, wherever the node runs: in a component, or in a test that plays the host.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::SystemTime;

use crate::bindings::holdpoint::node::{effects, interrupts, log, steering};

#[cfg(target_family = "wasm")]
mod there {
    pub use crate::bindings::holdpoint::node::{
        effects::perform,
        events::emit,
        interrupts::{interrupt, interrupt_all},
        log::write,
        steering::instructions,
    };

    /// The host answers where std asks.
    pub fn now() -> Option<std::time::SystemTime> {
        None
    }

    pub fn random() -> Option<u64> {
        None
    }
}

#[cfg(not(target_family = "wasm"))]
use crate::testing as there;

pub fn interrupt(question: &interrupts::Question) -> String {
    there::interrupt(question)
}

pub fn interrupt_all(questions: &[interrupts::Question]) -> Vec<String> {
    there::interrupt_all(questions)
}

pub fn perform(name: &str, key: &str, input: &str) -> Result<String, effects::EffectError> {
    there::perform(name, key, input)
}

pub fn instructions() -> Vec<steering::Instruction> {
    there::instructions()
}

pub fn write(level: log::Level, message: &str) {
    there::write(level, message);
}

pub fn emit(event: &str) {
    there::emit(event);
}

pub fn now() -> SystemTime {
    there::now().unwrap_or_else(SystemTime::now)
}

pub fn random() -> u64 {
    // Each one has keys of its own.
    there::random().unwrap_or_else(|| RandomState::new().hash_one(()))
}
