//! Plays the host for a node in a test, on your own machine's target.
//!
//! [`Script::run`] calls the node as the host would: from its beginning, and once more after each answer. What
//! the node did before the question must happen again in the same way; where it does not, the test fails and
//! says which call it was.
//!
//! An answer is held against its question's schema, and one that it does not take fails the test. Known are `type`,
//! `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, the bounds of numbers,
//! texts and lists, `allOf`, `anyOf`, `oneOf`, `not`, and `$ref` into the schema itself. `pattern`, `format`, `if` and
//! the rest are **not** checked here, but by the host.
//!
//! The clock ([`time::now`](crate::time::now)) begins on 1 January 2026, moves on by a microsecond each time that it is
//! read and by an hour with each answer; random numbers ([`random::number`](crate::random::number)) are the same in each
//! pass. So it is in a component with `SystemTime::now` and with every source of random numbers, which a test cannot take
//! over.

use std::{
    any::Any,
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, SystemTime},
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    EffectError, answer_schema,
    bindings::holdpoint::node::{effects, interrupts, log, steering},
    log::Level,
};

/// What people answer and what effects come to.
#[derive(Clone, Debug, Default)]
pub struct Script {
    answers: Vec<Value>,
    outcomes: BTreeMap<String, Result<Value, EffectError>>,
    /// With how many answers before it.
    steering: Vec<(usize, String, String)>,
}

/// What a node did.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ran<T> {
    /// What the function returned; `None`: it waits for an answer that the script does not have.
    pub returned: Option<T>,
    /// All questions, in the order asked.
    pub questions: Vec<Asked>,
    /// All effects, in order, each once.
    pub effects: Vec<Performed>,
    /// What it logged, without what a second pass would repeat.
    pub logs: Vec<(Level, String)>,
    /// What it showed to those who watch.
    pub events: Vec<Value>,
}

/// A question as the host gets it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are named as in Question")]
pub struct Asked {
    pub payload: Value,
    pub schema: Option<Value>,
    pub expires_after_ms: Option<u64>,
    pub default_answer: Option<Value>,
}

/// An effect as the host gets it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are named as in effect()")]
pub struct Performed {
    pub name: String,
    pub idempotency_key: String,
    pub input: Value,
}

impl Script {
    /// Nobody answers, and no effect is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The answer to the next question; questions that are asked at once take one each.
    pub fn answer(mut self, answer: impl Serialize) -> Self {
        self.answers.push(value_of(answer));
        self
    }

    /// What the effect `name` comes to, for every key.
    pub fn effect(mut self, name: impl Into<String>, outcome: impl Serialize) -> Self {
        self.outcomes.insert(name.into(), Ok(value_of(outcome)));
        self
    }

    /// How the effect `name` fails, for every key.
    pub fn effect_error(mut self, name: impl Into<String>, error: EffectError) -> Self {
        self.outcomes.insert(name.into(), Err(error));
        self
    }

    /// What somebody adds beside the answers so far.
    pub fn steer(mut self, actor: impl Into<String>, text: impl Into<String>) -> Self {
        self.steering.push((self.answers.len(), actor.into(), text.into()));
        self
    }

    /// Runs `node`, which calls the function with its input: `|| refund(Input { cents: 1200 })`.
    ///
    /// # Panics
    ///
    /// Where the node does, where a second pass differs from the first, where the script has no outcome for an
    /// effect, or an answer that the question's schema does not take.
    pub fn run<T>(&self, node: impl Fn() -> T) -> Ran<T> {
        let mut play = Play { script: self.clone(), ..Play::default() };
        loop {
            (play.at, play.ticks, play.got, play.drawn) = (0, 0, 0, 0);
            PLAY.with(|place| {
                assert!(place.borrow().is_none(), "a script runs one node, not one inside of another");
                *place.borrow_mut() = Some(std::mem::take(&mut play));
            });
            let done = catch_unwind(AssertUnwindSafe(&node));
            play = PLAY
                .with(|place| place.borrow_mut().take())
                .expect("it was put there, and is taken here alone");
            let returned = match done {
                Ok(returned) => {
                    play.ends();
                    Some(returned)
                }
                Err(why) if is_stop(&*why) && play.deliver() => continue,
                Err(why) if is_stop(&*why) => None,
                Err(why) => resume_unwind(why),
            };
            let Play { questions, effects, logs, events, .. } = play;
            return Ran { returned, questions, effects, logs, events };
        }
    }
}

fn value_of(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("what a script says can be written as JSON")
}

/// Ends an attempt, as the host does: no hook prints it.
struct Stop;

fn is_stop(why: &(dyn Any + Send)) -> bool {
    why.is::<Stop>()
}

thread_local! {
    static PLAY: RefCell<Option<Play>> = const { RefCell::new(None) };
}

/// A script while it is played: the journal, and how far this pass is in it.
#[derive(Default)]
struct Play {
    script: Script,
    journal: Vec<(Call, Option<Reply>)>,
    at: usize,
    answered: usize,
    /// In this pass: how often the clock was read, how many answers it has got, how many random numbers.
    ticks: u32,
    got: u32,
    drawn: u64,
    questions: Vec<Asked>,
    effects: Vec<Performed>,
    logs: Vec<(Level, String)>,
    events: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq)]
enum Call {
    Interrupt(Vec<Asked>),
    Effect(Performed),
    Steering,
}

#[derive(Clone)]
enum Reply {
    Answers(Vec<Value>),
    Effect(Result<Value, EffectError>),
    Steering(Vec<steering::Instruction>),
}

impl Play {
    /// What is on record of the call; what is new is taken down.
    fn recall(&mut self, call: &Call) -> Option<Option<Reply>> {
        let index = self.at;
        self.at += 1;
        let Some((expected, reply)) = self.journal.get(index) else {
            self.journal.push((call.clone(), None));
            return None;
        };
        assert!(
            expected == call,
            "the node diverged: host call {index} was {expected:?} on the first pass, and is {call:?} now (if that \
             comes of the clock or of a random number: the script has holdpoint_guest::time::now and random::number)"
        );
        Some(reply.clone())
    }

    fn settle(&mut self, reply: Reply) {
        if let Some((_, place)) = self.journal.last_mut() {
            *place = Some(reply);
        }
    }

    /// Gives the question that stopped the node its answer, if there is one.
    fn deliver(&mut self) -> bool {
        let Some((Call::Interrupt(asked), None)) = self.journal.last() else { return false };
        let until = self.answered + asked.len();
        let Some(answers) = self.script.answers.get(self.answered..until) else { return false };
        for (n, (answer, asked)) in answers.iter().zip(asked).enumerate() {
            let Some(why) = asked.schema.as_ref().and_then(|schema| answer_schema::mismatch(schema, answer))
            else {
                continue;
            };
            let (order, payload) = (self.answered + n, &asked.payload);
            panic!("answer {order} of the script is not one that its question takes, {payload}: {why}");
        }
        let answers = answers.to_vec();
        self.answered = until;
        self.settle(Reply::Answers(answers));
        true
    }

    fn ends(&self) {
        assert!(
            self.at == self.journal.len(),
            "the node diverged: it finished after {} host calls, and made {:?} next on the first pass",
            self.at,
            self.journal[self.at].0
        );
        let left = self.script.answers.len() - self.answered;
        assert!(left == 0, "the node finished, and {left} of the script's answers were never asked for");
    }

    fn is_replaying(&self) -> bool {
        self.at < self.journal.len()
    }
}

fn play<T>(with: impl FnOnce(&mut Play) -> T) -> T {
    PLAY.with(|place| {
        let mut place = place.borrow_mut();
        let play = place.as_mut().expect(
            "a host call outside of a component: there is no host here to answer it; in a test, run the node \
             through holdpoint_guest::testing::Script",
        );
        with(play)
    })
}

fn asked(question: &interrupts::Question) -> Asked {
    Asked {
        payload: parsed(&question.payload),
        schema: question.answer_schema.as_deref().map(parsed),
        expires_after_ms: question.expires_after_ms,
        default_answer: question.default_answer.as_deref().map(parsed),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("the SDK writes JSON")
}

pub(crate) fn interrupt(question: &interrupts::Question) -> String {
    interrupt_all(std::slice::from_ref(question)).remove(0)
}

pub(crate) fn interrupt_all(questions: &[interrupts::Question]) -> Vec<String> {
    if questions.is_empty() {
        return Vec::new();
    }
    let questions: Vec<Asked> = questions.iter().map(asked).collect();
    let answers = play(|play| match play.recall(&Call::Interrupt(questions.clone())) {
        Some(Some(Reply::Answers(answers))) => {
            play.got += 1;
            Some(answers)
        }
        Some(_) => None,
        None => {
            play.questions.extend(questions);
            None
        }
    });
    match answers {
        Some(answers) => answers.iter().map(Value::to_string).collect(),
        None => resume_unwind(Box::new(Stop)),
    }
}

pub(crate) fn perform(name: &str, key: &str, input: &str) -> Result<String, effects::EffectError> {
    let call = Performed { name: name.into(), idempotency_key: key.into(), input: parsed(input) };
    let done = play(|play| {
        if let Some(Some(Reply::Effect(done))) = play.recall(&Call::Effect(call.clone())) {
            return done;
        }
        let before = play.effects.iter().find(|done| done.name == name && done.idempotency_key == key);
        let done = match before {
            Some(before) if before.input != call.input => {
                Err(EffectError::KeyConflict { effect: name.into(), key: key.into() })
            }
            before => {
                let outcome = play.script.outcomes.get(name).cloned().unwrap_or_else(|| {
                    panic!("the script has no outcome for the effect `{name}`: add .effect(\"{name}\", …)")
                });
                if before.is_none() {
                    play.effects.push(call);
                }
                outcome
            }
        };
        play.settle(Reply::Effect(done.clone()));
        done
    });
    done.map(|outcome| outcome.to_string()).map_err(|error| match error {
        EffectError::Denied(why) => effects::EffectError::Denied(why),
        EffectError::Invalid(why) => effects::EffectError::Invalid(why),
        EffectError::KeyConflict { .. } => effects::EffectError::KeyConflict,
        EffectError::Failed(what) => effects::EffectError::Failed(what.to_string()),
        EffectError::InDoubt(why) => effects::EffectError::InDoubt(why),
        // It comes from the node's own type, and the host knows nothing of it.
        EffectError::Unreadable { message, .. } => effects::EffectError::Invalid(message),
    })
}

pub(crate) fn instructions() -> Vec<steering::Instruction> {
    play(|play| {
        if let Some(Some(Reply::Steering(given))) = play.recall(&Call::Steering) {
            return given;
        }
        let answered = play.answered;
        let given: Vec<steering::Instruction> = play
            .script
            .steering
            .iter()
            .filter(|(after, ..)| *after <= answered)
            .map(|(_, actor, text)| steering::Instruction { actor: actor.clone(), text: text.clone() })
            .collect();
        play.settle(Reply::Steering(given.clone()));
        given
    })
}

/// 1 January 2026.
const START: Duration = Duration::from_secs(1_767_225_600);
const ANSWER: Duration = Duration::from_secs(3600);

/// `None`: no script plays.
pub(crate) fn now() -> Option<SystemTime> {
    PLAY.with(|place| {
        let mut place = place.borrow_mut();
        let play = place.as_mut()?;
        play.ticks += 1;
        Some(SystemTime::UNIX_EPOCH + START + ANSWER * play.got + Duration::from_micros(play.ticks.into()))
    })
}

pub(crate) fn random() -> Option<u64> {
    PLAY.with(|place| {
        let mut place = place.borrow_mut();
        let play = place.as_mut()?;
        play.drawn += 1;
        // The finish of splitmix64.
        let mut number = play.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(number ^ (number >> 31))
    })
}

pub(crate) fn write(level: log::Level, message: &str) {
    let level = match level {
        log::Level::Trace => Level::Trace,
        log::Level::Debug => Level::Debug,
        log::Level::Info => Level::Info,
        log::Level::Warn => Level::Warn,
        log::Level::Error => Level::Error,
    };
    play(|play| {
        if !play.is_replaying() {
            play.logs.push((level, message.to_owned()));
        }
    });
}

pub(crate) fn emit(event: &str) {
    play(|play| {
        if !play.is_replaying() {
            play.events.push(parsed(event));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;
    use crate::{
        Fail, NodeError, Question, effect, events, interrupt, interrupt_all, log, random, steering, time,
    };

    fn node() -> Result<Value, NodeError> {
        log::info!("begins");
        let approved: bool = interrupt("Refund?")?;
        let receipt: Value = effect("refund", "order-17", &json!({ "cents": 12 }))?;
        events::emit(&receipt)?;
        let marks: Vec<u32> = interrupt_all(["speed", "taste"])?;
        let said: Vec<String> = steering::instructions().into_iter().map(|given| given.text).collect();
        log::info!("ends");
        Ok(json!([approved, receipt, marks, said]))
    }

    fn script() -> Script {
        Script::new()
            .answer(true)
            .steer("ada", "be quick")
            .answer(1)
            .answer(2)
            .effect("refund", json!({ "no": 5 }))
    }

    #[test]
    fn a_node_is_run_again_after_each_answer_and_does_everything_once() {
        let ran = script().run(node);
        assert_eq!(ran.returned, Some(Ok(json!([true, { "no": 5 }, [1, 2], ["be quick"]]))));
        assert_eq!(
            ran.questions.iter().map(|asked| &asked.payload).collect::<Vec<_>>(),
            ["Refund?", "speed", "taste"]
        );
        assert_eq!(ran.effects.len(), 1);
        assert_eq!(ran.events, [json!({ "no": 5 })]);
        assert_eq!(ran.logs, [(Level::Info, "begins".into()), (Level::Info, "ends".into())]);
    }

    #[test]
    fn without_an_answer_it_waits() {
        let ran = Script::new().run(node);
        assert_eq!((ran.returned, ran.questions.len(), ran.effects.len()), (None, 1, 0));
    }

    #[test]
    fn a_key_stands_for_one_input() {
        let ran = Script::new().effect("refund", 1).run(|| {
            let first = effect::<u32>("refund", "k", &1);
            [first, effect("refund", "k", &1), effect("refund", "k", &2)]
        });
        let conflict = EffectError::KeyConflict { effect: "refund".into(), key: "k".into() };
        assert!(conflict.to_string().starts_with(r#"the idempotency key "k" of the effect "refund" was"#));
        assert_eq!(ran.returned.unwrap(), [Ok(1), Ok(1), Err(conflict)]);
        assert_eq!(ran.effects.len(), 1);
    }

    #[test]
    #[should_panic(expected = "the node diverged: host call 0 was")]
    fn what_differs_on_the_second_pass_fails_the_test() {
        let passes = Cell::new(0);
        Script::new().answer(1).run(|| {
            passes.set(passes.get() + 1);
            interrupt::<Value>(passes.get())
        });
    }

    #[test]
    #[should_panic(
        expected = "answer 1 of the script is not one that its question takes, \"Why?\": at /reason: \
                               expected string, and it is 7"
    )]
    fn an_answer_that_the_schema_does_not_take_fails_the_test() {
        let why = json!({ "properties": { "reason": { "type": "string" } } });
        Script::new().answer(true).answer(json!({ "reason": 7 })).run(|| {
            interrupt::<bool>(Question::new("Refund?").schema(json!({ "type": "boolean" })))?;
            interrupt::<Value>(Question::new("Why?").schema(&why))
        });
    }

    #[test]
    fn the_clock_and_random_numbers_are_the_same_in_each_pass() {
        let ran = Script::new().answer(true).run(|| {
            let before = (time::now(), random::number(), random::number());
            let _: bool = interrupt(json!({ "at": before.0, "code": before.1 }))?;
            let since = time::now().duration_since(before.0).map_err(Fail)?;
            Ok::<_, NodeError>((before, since))
        });
        let (before, since) = ran.returned.unwrap().unwrap();
        assert_eq!(since, ANSWER + Duration::from_micros(1));
        assert!(before.1 != before.2 && before.0 > SystemTime::UNIX_EPOCH + START);
        // Without a script they are the machine's.
        assert!(time::now() > before.0 && random::number() != random::number());
    }

    #[test]
    #[should_panic(expected = "1 of the script's answers were never asked for")]
    fn an_answer_that_nobody_asked_for_fails_the_test() {
        Script::new().answer(1).run(|| ());
    }
}
