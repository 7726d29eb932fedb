//! Asking a person: the call that ends an attempt.

use super::bindings::holdpoint::node::interrupts::{Host, Question as Asked};
use super::guest::{Guest, Recalled, damaged};
use super::stop::{Stop, take_json};
use crate::model::interrupt::Question;
use crate::model::journal::{Call, Reply};
use crate::model::json::Json;
use crate::model::limits::Limits;
use crate::model::schema::AnswerSchema;

impl Host for Guest {
    #[tracing::instrument(level = "info", name = "host_call", skip_all, fields(call = "interrupt"))]
    async fn interrupt(&mut self, question: Asked) -> wasmtime::Result<String> {
        let question = checked(question, &self.limits)?;
        let mut answers = self.ask(Call::Interrupt { question }).await?;
        Ok(answers.pop().ok_or(Stop::Fault)?)
    }

    #[tracing::instrument(level = "info", name = "host_call", skip_all, fields(call = "interrupt-all"))]
    async fn interrupt_all(&mut self, questions: Vec<Asked>) -> wasmtime::Result<Vec<String>> {
        // Nothing to wait for, so nothing for the journal either.
        if questions.is_empty() {
            self.task()?;
            return Ok(Vec::new());
        }
        let questions = questions
            .into_iter()
            .map(|question| checked(question, &self.limits))
            .collect::<Result<_, _>>()?;
        Ok(self.ask(Call::InterruptAll { questions }).await?)
    }
}

impl Guest {
    async fn ask(&mut self, call: Call) -> Result<Vec<String>, Stop> {
        let count = call.questions().len();
        match self.recall(&call)? {
            Recalled::Known { reply: Reply::Answers(answers), at, .. } if answers.len() == count => {
                let answers: Option<Vec<Json>> = answers.into_iter().collect();
                let answers = answers.ok_or(Stop::Paused)?;
                self.clock.advance_to(at);
                Ok(answers.iter().map(|answer| answer.as_str().to_owned()).collect())
            }
            Recalled::Known { index, .. } => Err(damaged(index)),
            Recalled::Fresh { index } => {
                let limit = self.limits.interrupts as usize;
                if self.task()?.journal().orders_before(index) + count > limit {
                    return Err(Stop::limit(
                        "interrupts",
                        limit as u64,
                        format!("the task asks more than {limit} questions (interrupts)"),
                    ));
                }
                for question in call.questions() {
                    can_be_answered(question).await?;
                }
                self.record(call, Reply::Answers(vec![None; count]))?;
                Err(Stop::Paused)
            }
        }
    }
}

fn checked(asked: Asked, limits: &Limits) -> Result<Question, Stop> {
    let json = |text: &str, what| {
        take_json(text, what, ("payload_bytes", limits.payload_bytes), limits).map_err(Stop::failed)
    };
    Ok(Question {
        payload: json(&asked.payload, "a question's payload")?,
        answer_schema: asked
            .answer_schema
            .map(|text| json(&text, "a question's answer schema"))
            .transpose()?,
        expires_after_ms: asked.expires_after_ms,
        default_answer: asked
            .default_answer
            .map(|text| json(&text, "a question's default answer"))
            .transpose()?,
    })
}

/// A schema that no answer can be held against is the node's failure now, not the person's later.
async fn can_be_answered(question: &Question) -> Result<(), Stop> {
    let Some(schema) = question.answer_schema.clone() else {
        return Ok(());
    };
    let default = question.default_answer.clone();
    // A large schema takes a while to compile, and other tasks share this thread.
    let checked = tokio::task::spawn_blocking(move || {
        let schema = AnswerSchema::compile(&schema)
            .map_err(|error| format!("a question's answer schema is no JSON Schema: {error}"))?;
        match default.map(|default| schema.check(&default.value())) {
            Some(Err(mismatch)) => {
                Err(format!("a question's default answer does not meet its own answer schema {mismatch}"))
            }
            Some(Ok(())) | None => Ok(()),
        }
    });
    match checked.await {
        Ok(checked) => checked.map_err(Stop::invalid),
        Err(_) => Err(Stop::invalid("a question's answer schema cannot be compiled")),
    }
}
