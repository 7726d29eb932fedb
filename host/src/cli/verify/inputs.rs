//! What the command line gives a node: its input, what people answer, how effects end.

use serde::Serialize;
use serde_json::Value;

use super::super::answer::ways;
use super::super::failure::Failure;
use super::super::input;
use super::{Args, report};
use crate::engine::verify::Outcomes;
use crate::model::journal::EffectOutcome;
use crate::model::sample::{self, MadeFrom};
use crate::model::schema::AnswerSchema;
use crate::model::{Json, Limits, NodeId, Question};

#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub answer: Json,
    pub from: From,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum From {
    Given(Given),
    Made(MadeFrom),
}

#[derive(Clone, Copy, Debug, Serialize)]
pub enum Given {
    #[serde(rename = "given")]
    Given,
}

/// All that stands on the command line, read.
pub struct Inputs {
    pub state: Json,
    pub arg: Option<Json>,
    pub answers: Option<Vec<Json>>,
    pub outcomes: Outcomes,
}

impl Inputs {
    pub fn read(args: &Args, limits: &Limits) -> Result<Self, Failure> {
        let texts = [&args.input, &args.arg, &args.answers, &args.effects, &args.failures];
        if texts.iter().filter(|text| text.as_deref() == Some("-")).count() > 1 {
            return Err(Failure::argument("standard input, -, can be read for one of the options only"));
        }
        let state_bound = ("state_bytes", limits.state_bytes);
        let read = |what: &str, text: &Option<String>| {
            text.as_ref().map(|text| input::json(what, text, limits, state_bound)).transpose()
        };
        let mut outcomes = Outcomes::new();
        type End = fn(Json) -> EffectOutcome;
        for (what, text, end) in [
            ("--effects", &args.effects, EffectOutcome::Done as End),
            ("--failures", &args.failures, EffectOutcome::Failed),
        ] {
            let Some(map) = read(what, text)? else { continue };
            for (name, value) in members(what, &map)? {
                if outcomes.insert(name.clone(), end(value)).is_some() {
                    return Err(Failure::argument(format!(
                        "the effect {name} stands in --effects and in --failures; it ends in one way"
                    )));
                }
            }
        }
        Ok(Self {
            state: read("--input", &args.input)?.unwrap_or_else(|| Json::object([])),
            arg: read("--arg", &args.arg)?,
            answers: read("--answers", &args.answers)?
                .map(|list| elements("--answers", &list))
                .transpose()?,
            outcomes,
        })
    }
}

fn members(what: &str, map: &Json) -> Result<Vec<(String, Json)>, Failure> {
    map.members().ok_or_else(|| {
        Failure::argument(format!("{what}: it takes an object from effects' names; this is {}", map.kind()))
    })
}

fn elements(what: &str, list: &Json) -> Result<Vec<Json>, Failure> {
    match list.value() {
        Value::Array(values) => values
            .iter()
            .map(|value| {
                Json::from_value(value).map_err(|error| Failure::argument(format!("{what}: {error}")))
            })
            .collect(),
        _ => Err(Failure::argument(format!(
            "{what}: it takes a list of answers, in the order in which they are asked for; this is {}",
            list.kind()
        ))),
    }
}

/// The answer that was given.
pub fn taken(node: &NodeId, given: &[Json], order: usize, question: &Question) -> Result<Answer, String> {
    let asked = report::clipped(question.payload.as_str());
    let Some(answer) = given.get(order) else {
        return Err(format!(
            "--answers has {} of them, and node {node} asks question {}: {asked}; give it an answer too",
            given.len(),
            order
        ));
    };
    if let Some(schema) = &question.answer_schema {
        AnswerSchema::compile(schema)?.check(&answer.value()).map_err(|mismatch| {
            format!(
                "--answers: answer {order}, {}, does not fit question {order} of node {node}, {asked}: {mismatch}",
                report::clipped(answer.as_str()),
            )
        })?;
    }
    Ok(Answer { answer: answer.clone(), from: From::Given(Given::Given) })
}

/// At most so many for one question.
const ANSWERS_MAX: usize = 8;

/// Those that are made, since none was given: one, or each that the schema names, the likeliest first; and to
/// how many ways that it names none could be made.
pub fn alternatives(
    node: &NodeId,
    order: usize,
    question: &Question,
) -> Result<(Vec<Answer>, usize), String> {
    let (mut all, mut unmade) = (vec![made(node, order, question)?], 0);
    let Some(schema) = &question.answer_schema else { return Ok((all, 0)) };
    let Ok(check) = AnswerSchema::compile(schema) else { return Ok((all, 0)) };
    for way in ways(&schema.value(), ANSWERS_MAX) {
        let way =
            Question { answer_schema: Json::from_value(&way).ok(), default_answer: None, ..question.clone() };
        let Some((answer, MadeFrom::Schema)) = sample::answer(&way) else {
            unmade += 1;
            continue;
        };
        let is_new = all.iter().all(|known| known.answer != answer);
        if is_new && all.len() < ANSWERS_MAX && check.check(&answer.value()).is_ok() {
            all.push(Answer { answer, from: From::Made(MadeFrom::Schema) });
        }
    }
    Ok((all, unmade))
}

fn made(node: &NodeId, order: usize, question: &Question) -> Result<Answer, String> {
    let (answer, from) = sample::answer(question).ok_or_else(|| {
        format!(
            "no answer could be made for question {} of node {node}, {}; give --answers a list, in the order \
             in which they are asked for",
            order,
            report::clipped(question.payload.as_str()),
        )
    })?;
    Ok(Answer { answer, from: From::Made(from) })
}
