//! Nodes that tell what they find out, and a stage on which they are verified.

use holdpoint::Host;
use holdpoint::engine::verify::{Outcome, Outcomes, Report, Subject, verify};
use holdpoint::model::{Json, JsonBounds, Limits};
use serde_json::{Value, json};

use crate::by_hand::{component, module};
use crate::world::World;

const WITH: &str = r#"(with "host" (instance $host))"#;

/// A node that has imports from everywhere, and `$say`, which asks a question with 16 hexadecimal digits
/// in it. `run` says what it finds out; its plain loads and stores are to a memory that the host's results
/// are put into, from 4096 on.
pub fn telling(items: &str, run: &str) -> Vec<u8> {
    let imports = r#"
        (import "holdpoint:node/interrupts@0.1.0" (instance $interrupts
            (type $q (record (field "payload" string) (field "answer-schema" (option string))
                (field "expires-after-ms" (option u64)) (field "default-answer" (option string))))
            (export "question" (type $question (eq $q)))
            (export "interrupt" (func (param "question" $question) (result string)))))
        (import "holdpoint:node/steering@0.1.0" (instance $steering
            (type $i (record (field "actor" string) (field "text" string)))
            (export "instruction" (type $instruction (eq $i)))
            (export "instructions" (func (result (list $instruction))))))
        (import "holdpoint:node/events@0.1.0" (instance $events (export "emit" (func (param "event" string)))))
        (import "wasi:io/poll@0.2.0" (instance $poll
            (export "pollable" (type $p (sub resource)))
            (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
        (alias export $poll "pollable" (type $pollable))
        (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
            (alias outer 1 $pollable (type $p)) (export "pollable" (type $pollable (eq $p)))
            (export "now" (func (result u64)))
            (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
        (import "wasi:random/random@0.2.0" (instance $random (export "get-random-u64" (func (result u64)))))
        (core module $shared (memory (export "memory") 16)
            (global $free (mut i32) (i32.const 4096))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
                (global.get $free)
                (global.set $free (i32.add (global.get $free)
                    (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16))))))
        (core instance $shared (instantiate $shared))
        (alias core export $shared "memory" (core memory $memory))
        (alias core export $shared "realloc" (core func $realloc))
        (core func $interrupt
            (canon lower (func $interrupts "interrupt") (memory $memory) (realloc $realloc)))
        (core func $instructions
            (canon lower (func $steering "instructions") (memory $memory) (realloc $realloc)))
        (core func $emit (canon lower (func $events "emit") (memory $memory)))
        (core func $poll (canon lower (func $poll "poll") (memory $memory) (realloc $realloc)))
        (core func $now (canon lower (func $clock "now")))
        (core func $subscribe (canon lower (func $clock "subscribe-duration")))
        (core func $drop (canon resource.drop $pollable))
        (core func $random (canon lower (func $random "get-random-u64")))
        (core instance $host
            (export "memory" (memory $memory)) (export "realloc" (func $realloc))
            (export "interrupt" (func $interrupt)) (export "instructions" (func $instructions))
            (export "emit" (func $emit)) (export "poll" (func $poll)) (export "now" (func $now))
            (export "subscribe" (func $subscribe)) (export "drop" (func $drop))
            (export "random" (func $random)))"#;
    let items = format!(
        r#"
        (import "host" "memory" (memory $shared 1))
        (import "host" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
        (import "host" "interrupt" (func $interrupt
            (param i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32)))
        (import "host" "instructions" (func $instructions (param i32)))
        (import "host" "emit" (func $emit (param i32 i32)))
        (import "host" "poll" (func $poll (param i32 i32 i32)))
        (import "host" "now" (func $now (result i64)))
        (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
        (import "host" "drop" (func $drop (param i32)))
        (import "host" "random" (func $random (result i64)))
        (func $say (param $value i64) (local $at i32)
            (i32.store8 (i32.const 1024) (i32.const 34))
            (i32.store8 (i32.const 1041) (i32.const 34))
            (local.set $at (i32.const 1040))
            (loop $digits
                (i32.store8 (local.get $at) (i32.load8_u (i32.add (i32.const 1100)
                    (i32.wrap_i64 (i64.and (local.get $value) (i64.const 15))))))
                (local.set $value (i64.shr_u (local.get $value) (i64.const 4)))
                (local.set $at (i32.sub (local.get $at) (i32.const 1)))
                (br_if $digits (i32.gt_u (local.get $at) (i32.const 1024))))
            (call $interrupt (i32.const 1024) (i32.const 18) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1200)))
        (data (memory $shared) (i32.const 1100) "0123456789abcdef")
        {items}"#
    );
    component(imports, WITH, &module(&items, &format!("{run} (i32.const 0)")))
}

pub struct Stage {
    pub host: Host,
    limits: Limits,
}

impl Stage {
    pub async fn new(limits: Limits) -> Self {
        let host = World::new().builder().limits(limits.clone()).open().await.unwrap();
        Self { host, limits }
    }

    pub async fn subject(&self, bytes: Vec<u8>, state: Value) -> Subject {
        let state = Json::from_value(&state).unwrap();
        self.host.subject("by hand", bytes, &state, &Outcomes::new()).await.unwrap()
    }

    pub async fn report(&self, bytes: Vec<u8>, state: Value) -> Report {
        let subject = self.subject(bytes, state).await;
        assert_eq!(subject.limits, self.limits);
        let yes = Json::parse("true", JsonBounds::TRUSTED).unwrap();
        verify(self.host.sandbox(), &subject, |_, _| Ok(yes.clone()), |_, _| {}).await.unwrap()
    }

    /// What a node by hand said, one number a question, and how it ended: the same at every prefix.
    pub async fn told(&self, items: &str, run: &str) -> (Vec<u64>, Outcome) {
        let report = self.report(telling(items, run), json!({})).await;
        assert_eq!(report.difference, None, "{run}");
        assert_eq!(report.prefixes, report.journal.len() + 1);
        let said = report.journal.iter().flat_map(|entry| entry.call.questions()).map(|question| {
            let digits: String = question.payload.value().as_str().unwrap().into();
            u64::from_str_radix(&digits, 16).unwrap()
        });
        (said.collect(), report.ended.outcome)
    }
}

pub fn finished(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Finished { .. })
}

/// The kind of trap, or the limit.
pub fn stopped_by(outcome: &Outcome) -> String {
    let Outcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
    let what = error.more.get("trap").or_else(|| error.more.get("limit"));
    what.and_then(Value::as_str).unwrap_or_default().to_owned()
}
