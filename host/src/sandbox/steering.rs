//! What people added beside their answers.

use std::sync::Arc;

use super::bindings::holdpoint::node::steering::{Host, Instruction as Told};
use super::guest::{Guest, Recalled, damaged};
use super::stop::Stop;
use crate::model::journal::{Call, Instruction, Reply};

impl Host for Guest {
    #[tracing::instrument(level = "info", name = "host_call", skip_all, fields(call = "steering"))]
    async fn instructions(&mut self) -> wasmtime::Result<Vec<Told>> {
        let instructions = match self.recall(&Call::Steering)? {
            Recalled::Known { reply: Reply::Steering(instructions), at, .. } => {
                self.clock.advance_to(at);
                instructions
            }
            Recalled::Known { index, .. } => return Err(damaged(index).into()),
            Recalled::Fresh { .. } => {
                let outside = Arc::clone(&self.task()?.outside);
                let instructions = outside.steering().await.ok_or(Stop::Fault)?;
                self.record(Call::Steering, Reply::Steering(instructions.clone()))?;
                instructions
            }
        };
        Ok(instructions.into_iter().map(|Instruction { actor, text }| Told { actor, text }).collect())
    }
}
