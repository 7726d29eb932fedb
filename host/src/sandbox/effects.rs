//! Doing something outside: once, whatever is run again.

use std::sync::Arc;

use super::attempt::Performed;
use super::bindings::holdpoint::node::effects::{EffectError, Host};
use super::guest::{Guest, Recalled, Task, damaged};
use super::stop::{Stop, take_json};
use crate::model::error::Kind;
use crate::model::ids::Timestamp;
use crate::model::journal::{Call, EffectOutcome, EffectReply, Reply};

const NAME_CHARS_MAX: usize = 255;
const KEY_CHARS_MAX: usize = 255;

impl Host for Guest {
    #[tracing::instrument(level = "info", name = "host_call", skip_all, fields(call = "effect"))]
    async fn perform(
        &mut self,
        name: String,
        key: String,
        input: String,
    ) -> wasmtime::Result<Result<String, EffectError>> {
        let task = self.task()?.clone();
        // What the arguments alone decide is decided the same way on every replay, and needs no entry.
        if let Err(what) = in_bounds("an effect's name", &name, NAME_CHARS_MAX)
            .and_then(|()| in_bounds("an idempotency key", &key, KEY_CHARS_MAX))
        {
            return Ok(Err(EffectError::Invalid(what)));
        }
        let bound = ("effect_bytes", self.limits.effect_bytes);
        let input = match take_json(&input, "an effect's input", bound, &self.limits) {
            Ok(input) => input,
            Err(error) if error.kind == Kind::Invalid => {
                return Ok(Err(EffectError::Invalid(error.message)));
            }
            Err(error) => return Err(Stop::failed(error).into()),
        };
        let call = Call::Effect { name: name.clone(), key: key.clone(), input: input.clone() };
        let index = match self.recall(&call)? {
            Recalled::Known { index, reply: Reply::Effect(reply), at } => match reply {
                EffectReply::Known(outcome) | EffectReply::Retryable(outcome) => {
                    self.clock.advance_to(at);
                    return Ok(told(outcome));
                }
                EffectReply::Asked { answer: None, .. } => return Err(Stop::Paused.into()),
                EffectReply::Begun | EffectReply::Asked { answer: Some(_), .. } => index,
            },
            Recalled::Known { index, .. } => return Err(damaged(index).into()),
            Recalled::Fresh { index } => {
                self.record(call, Reply::Effect(EffectReply::Begun))?;
                index
            }
        };
        let outside = Arc::clone(&task.outside);
        match outside.perform(index, &name, &key, &input).await {
            Performed::Known(outcome, at) => {
                let reply = EffectReply::Known(outcome.clone());
                self.settle(&task, index, (reply, at), outcome)
            }
            Performed::Retryable(outcome, at) => {
                let reply = EffectReply::Retryable(outcome.clone());
                self.settle(&task, index, (reply, at), outcome)
            }
            Performed::Ask(kind) => {
                let reply = Reply::Effect(EffectReply::Asked { kind, answer: None });
                task.journal().settle(index, reply, self.clock.timestamp());
                Err(Stop::Paused.into())
            }
            Performed::Refused(error) => Err(Stop::failed(error).into()),
            Performed::Fault => Err(Stop::Fault.into()),
        }
    }
}

impl Guest {
    fn settle(
        &mut self,
        task: &Task,
        index: usize,
        (reply, at): (EffectReply, Timestamp),
        outcome: EffectOutcome,
    ) -> wasmtime::Result<Result<String, EffectError>> {
        let reply = Reply::Effect(reply);
        let bytes = reply.bytes();
        task.journal().settle(index, reply, at);
        self.takes(bytes)?;
        self.clock.advance_to(at);
        Ok(told(outcome))
    }
}

fn in_bounds(what: &str, text: &str, chars_max: usize) -> Result<(), String> {
    match text.chars().take(chars_max + 1).count() {
        0 => Err(format!("{what} is empty; it has 1 to {chars_max} characters")),
        count if count > chars_max => Err(format!("{what} has more than {chars_max} characters")),
        _ => Ok(()),
    }
}

fn told(outcome: EffectOutcome) -> Result<String, EffectError> {
    Err(match outcome {
        EffectOutcome::Done(value) => return Ok(value.as_str().to_owned()),
        EffectOutcome::Denied(why) => EffectError::Denied(why),
        EffectOutcome::Invalid(why) => EffectError::Invalid(why),
        EffectOutcome::KeyConflict => EffectError::KeyConflict,
        EffectOutcome::Failed(known) => EffectError::Failed(known.as_str().to_owned()),
        EffectOutcome::InDoubt(why) => EffectError::InDoubt(why),
    })
}
