//! With a guest that does as it is told, built from `tests/guests/script`. Where it is not built, these
//! tests have nothing to say; the tests of the whole build it and cannot do without.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::*;
use super::bench::{self, World, attempt, compiled, journal, json as canonical, sandbox};
use crate::model::error::Kind;
use crate::model::ids::Timestamp;
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{EffectOutcome, EffectReply, Instruction, Journal, Reply};

struct Stage {
    sandbox: Sandbox,
    component: Component,
    journal: Arc<Mutex<Journal>>,
    world: Arc<World>,
    limits: Limits,
}

impl Stage {
    async fn set() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/components/script.wasm");
        let bytes = std::fs::read(path).unwrap_or_else(|_| panic!("{path} is not there; run `make test`"));
        let sandbox = sandbox();
        let component = compiled(&sandbox, bytes).await;
        let (journal, world) = (journal(vec![]), Arc::default());
        Self { sandbox, component, journal, world, limits: Limits::default() }
    }

    async fn run(&self, script: &Value) -> Ran {
        let state = json!({ "script": script }).to_string();
        self.sandbox.run(&self.component, attempt(&state, &self.journal, &self.world, &self.limits)).await
    }

    /// The whole update's `a`, which the script fills with its results.
    async fn results(&self, script: Value) -> Value {
        match self.run(&script).await.end {
            End::Finished { update, .. } => update[0].1.value(),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, index: usize, place: usize, answer: &str, at: i64) {
        self.journal.lock().unwrap().answer(index, place, canonical(answer), Timestamp(at));
    }

    fn reply(&self, index: usize) -> Reply {
        self.journal.lock().unwrap().entries()[index].reply.clone()
    }
}

const START_MS: i64 = 1_700_000_000_000;

#[tokio::test]
async fn it_describes_itself() {
    let stage = Stage::set().await;
    let info = bench::describe(&stage.sandbox, &stage.component).await.unwrap();
    assert_eq!(info.name, "script");
    assert!(info.effects.contains("e") && info.routes.contains("w"));
}

#[tokio::test]
async fn a_question_pauses_and_its_answer_replays() {
    let stage = Stage::set().await;
    let script = json!([
        {"log": {"level": "info", "message": "before"}}, {"print": "printed before"}, {"emit": 1},
        {"ask": {"b": 1, "a": 2}, "schema": {"type": "boolean"}, "default": false, "expires_ms": 5},
        {"log": {"level": "warn", "message": "after"}}, {"print": "printed after"}, {"emit": 2},
        {"now": true}, {"put_results": "a"}, {"go": "w"}, {"send": {"label": "x", "arg": {"i": 1}}}, {"end": true}
    ]);
    let first = stage.run(&script).await;
    assert!(matches!(first.end, End::Paused), "{:?}", first.end);
    assert_eq!(stage.reply(0), Reply::Answers(vec![None]));
    let question = stage.journal.lock().unwrap().entries()[0].call.questions()[0].clone();
    assert_eq!(question.payload.as_str(), r#"{"a":2,"b":1}"#);
    assert_eq!(question.expires_after_ms, Some(5));

    assert!(matches!(stage.run(&script).await.end, End::Paused), "not answered yet");
    assert_eq!(stage.world.lines(), ["before", "printed before"], "not logged again");

    stage.answer(0, 0, "true", START_MS + 3_600_000);
    let second = stage.run(&script).await;
    let End::Finished { update, routes } = second.end else { panic!("{:?}", second.end) };
    assert_eq!(update[0].0, "a");
    assert_eq!(update[0].1.value(), json!([true, START_MS + 3_600_000]), "the clock goes on from the answer");
    assert_eq!(
        routes,
        [Route::Go("w".into()), Route::Send { label: "x".into(), arg: canonical(r#"{"i":1}"#) }, Route::End]
    );
    assert_eq!(stage.world.lines(), ["before", "printed before", "after", "printed after"]);
    assert_eq!(*stage.world.events.lock().unwrap(), [canonical("1"), canonical("2")]);
    assert_eq!(second.output.stdout, "printed before\nprinted after\n");
    assert!(second.memory_bytes >= 65_536 && second.fuel > first.fuel);
}

#[tokio::test]
async fn several_questions_wait_for_all_answers_and_none_for_nothing() {
    let stage = Stage::set().await;
    let script = json!([{"ask_all": []}, {"ask_all": ["x", "y"]}, {"put_results": "a"}]);
    assert!(matches!(stage.run(&script).await.end, End::Paused));
    stage.answer(0, 1, "2", START_MS);
    assert!(matches!(stage.run(&script).await.end, End::Paused));
    stage.answer(0, 0, "1", START_MS);
    assert_eq!(stage.results(script).await, json!([[], [1, 2]]));
}

#[tokio::test]
async fn nothing_in_the_guest_catches_the_stop() {
    let stage = Stage::set().await;
    let script = json!([{"catch": [{"ask": "x"}, {"log": {"level": "info", "message": "went on"}}]}, {"put_results": "a"}]);
    let ran = stage.run(&script).await;
    assert!(matches!(ran.end, End::Paused), "{:?}", ran.end);
    assert!(stage.world.lines().is_empty(), "{:?}", stage.world.lines());
}

#[tokio::test]
async fn another_call_or_none_in_its_place_is_a_divergence() {
    let stage = Stage::set().await;
    stage.run(&json!([{"ask": "x"}])).await;
    stage.answer(0, 0, "1", START_MS);
    for (script, actual) in [
        (json!([{"ask": "y"}]), Some("interrupt")),
        (json!([{"ask_all": ["x"]}]), Some("interrupt-all")),
        (json!([{"effect": {"name": "e", "key": "k", "input": 1}}]), Some("effect")),
        (json!([{"steering": true}]), Some("steering")),
        (json!([]), None),
        (json!([{"fail": "no"}]), None),
    ] {
        let End::Diverged(divergence) = stage.run(&script).await.end else { panic!("{script}") };
        assert_eq!(divergence.index, 0);
        assert_eq!(divergence.actual.as_ref().map(|call| call.name()), actual);
    }
    assert!(stage.world.performed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn time_is_virtual_and_a_sleep_ends_at_once() {
    let stage = Stage::set().await;
    let script = json!([
        {"now": true}, {"sleep_ms": 3_600_000}, {"now": true}, {"monotonic": true}, {"monotonic": true},
        {"put_results": "a"}
    ]);
    let began = std::time::Instant::now();
    let times = stage.results(script.clone()).await;
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
    assert_eq!(times[0], START_MS);
    assert_eq!(times[1], START_MS + 3_600_000);
    assert!(times[2].as_u64().unwrap() >= 3_600_000_000_000);
    assert!(times[3].as_u64() > times[2].as_u64(), "a clock that is read moves");
    assert_eq!(stage.results(script).await, times);
}

#[tokio::test]
async fn all_that_is_random_is_the_same_in_every_attempt_and_differs_by_seed() {
    let stage = Stage::set().await;
    let script = json!([
        {"random": 16}, {"insecure_random": 16}, {"insecure_seed": true}, {"hash_order": true}, {"random": 16},
        {"put_results": "a"}
    ]);
    let first = stage.results(script.clone()).await;
    assert_eq!(stage.results(script.clone()).await, first);
    assert_ne!(first[0], first[1]);
    assert_ne!(first[0], first[4]);
    let state = json!({ "script": script }).to_string();
    let other = Attempt { seed: [6; 32], ..attempt(&state, &stage.journal, &stage.world, &stage.limits) };
    let End::Finished { update, .. } = stage.sandbox.run(&stage.component, other).await.end else { panic!() };
    assert_ne!(update[0].1.value(), first);
}

#[tokio::test]
async fn an_effect_is_begun_performed_and_settled_once() {
    let stage = Stage::set().await;
    let effect = json!({"effect": {"name": "e", "key": "k", "input": {"n": 1.50}}});
    let script = json!([effect, {"now": true}, {"put_results": "a"}]);
    let later = Timestamp(START_MS + 1_000);
    stage.world.outcomes.lock().unwrap().extend([
        Performed::Fault,
        Performed::Ask(InterruptKind::Approve),
        Performed::Known(EffectOutcome::Failed(canonical("7")), later),
    ]);
    assert!(matches!(stage.run(&script).await.end, End::Fault));
    assert_eq!(stage.reply(0), Reply::Effect(EffectReply::Begun));

    assert!(matches!(stage.run(&script).await.end, End::Paused));
    let asked = EffectReply::Asked { kind: InterruptKind::Approve, answer: None };
    assert_eq!(stage.reply(0), Reply::Effect(asked));
    assert!(matches!(stage.run(&script).await.end, End::Paused), "still not answered");
    assert_eq!(stage.world.performed.lock().unwrap().len(), 2);

    stage.answer(0, 0, "true", START_MS);
    let told = json!([{"err": {"kind": "failed", "value": 7}}, START_MS + 1_000]);
    assert_eq!(stage.results(script.clone()).await, told);
    assert_eq!(stage.results(script).await, told, "from the journal");
    let performed = stage.world.performed.lock().unwrap();
    assert_eq!(performed.len(), 3);
    assert_eq!(performed[2], (0, "e".into(), "k".into(), canonical(r#"{"n":1.5}"#)));
}

#[tokio::test]
async fn an_effect_that_makes_no_sense_is_told_so_and_is_not_on_record() {
    let stage = Stage::set().await;
    for (name, key, input, word) in [
        ("", "k", "1", "name is empty"),
        ("e", "", "1", "key is empty"),
        ("e", &"x".repeat(256), "1", "more than 255"),
        ("e", "k", "{", "no JSON"),
        ("e", "k", r#"{"a":1,"a":2}"#, "stands twice"),
        ("e", "k", "NaN", "NaN"),
    ] {
        let script =
            json!([{"raw_effect": {"name": name, "key": key, "input": input}}, {"put_results": "a"}]);
        let told = stage.results(script).await;
        assert_eq!(told[0]["err"]["kind"], "invalid");
        assert!(told[0]["err"]["message"].as_str().unwrap().contains(word), "{told}");
    }
    assert!(stage.journal.lock().unwrap().entries().is_empty());
}

#[tokio::test]
async fn an_effect_that_hangs_ends_at_the_deadline_and_stays_begun() {
    let mut stage = Stage::set().await;
    stage.world = Arc::new(World { hangs: true, ..World::default() });
    stage.limits.deadline_ms = 100;
    let script = json!([{"effect": {"name": "e", "key": "k", "input": 1}}]);
    let End::Failed { error, retryable: true } = stage.run(&script).await.end else { panic!() };
    assert_eq!(error.more["limit"], "deadline_ms");
    assert_eq!(stage.reply(0), Reply::Effect(EffectReply::Begun));
}

#[tokio::test]
async fn a_panic_of_the_embedder_ends_the_attempt_alone() {
    struct Panics;
    impl Outside for Panics {
        fn perform<'a>(
            &'a self,
            _: usize,
            _: &'a str,
            _: &'a str,
            _: &'a crate::model::json::Json,
        ) -> futures::future::BoxFuture<'a, Performed> {
            Box::pin(async { panic!("a bug in a handler") })
        }
        fn steering(&self) -> futures::future::BoxFuture<'_, Option<Vec<Instruction>>> {
            panic!("a bug in a store")
        }
        fn log(&self, _: LogLevel, _: &str) {
            panic!("a bug in a log")
        }
        fn emit(&self, _: crate::model::json::Json) {}
        fn charge(&self, _: u64) {}
    }
    let stage = Stage::set().await;
    for script in [
        json!([{"effect": {"name": "e", "key": "k", "input": 1}}]),
        json!([{"steering": true}]),
        json!([{"log": {"level": "info", "message": "x"}}]),
        json!([{"print": "x"}]),
    ] {
        let state = json!({ "script": script }).to_string();
        let attempt = Attempt {
            outside: Arc::new(Panics),
            ..attempt(&state, &journal(vec![]), &stage.world, &stage.limits)
        };
        let ran = stage.sandbox.run(&stage.component, attempt).await;
        assert!(matches!(ran.end, End::Fault), "{script}: {:?}", ran.end);
    }
    assert_eq!(stage.results(json!([{"value": 1}, {"put_results": "a"}])).await, json!([1]));
}

#[tokio::test]
async fn steering_is_read_once_and_replayed() {
    let stage = Stage::set().await;
    let instruction = |text: &str| Instruction { actor: "ann".into(), text: text.into() };
    stage.world.instructions.lock().unwrap().push(instruction("be brief"));
    let script = json!([{"steering": true}, {"ask": 1}, {"steering": true}, {"put_results": "a"}]);
    assert!(matches!(stage.run(&script).await.end, End::Paused));
    stage.world.instructions.lock().unwrap().push(instruction("be kind"));
    stage.answer(1, 0, "2", START_MS + 1);
    let (brief, kind) =
        (json!({"actor": "ann", "text": "be brief"}), json!({"actor": "ann", "text": "be kind"}));
    assert_eq!(stage.results(script).await, json!([[brief], 2, [brief, kind]]));
}

#[tokio::test]
async fn what_is_too_much_or_no_json_fails_by_name() {
    let mut stage = Stage::set().await;
    stage.limits = Limits {
        payload_bytes: 1_000,
        effect_bytes: 1_000,
        update_bytes: 1_000,
        journal_entries: 5,
        interrupts: 3,
        json_depth: 20,
        ..Limits::default()
    };
    let big = "x".repeat(1_000);
    let deep = "[".repeat(100_000);
    let effect = |key: usize| json!({"effect": {"name": "e", "key": key.to_string(), "input": 1}});
    for (script, limit) in [
        (json!([{"ask": big}]), Some("payload_bytes")),
        (json!([{"ask": 1, "schema": {"const": big}}]), Some("payload_bytes")),
        (json!([{"ask": 1, "default": big}]), Some("payload_bytes")),
        (json!([{"emit": big}]), Some("payload_bytes")),
        (json!([{"effect": {"name": "e", "key": "k", "input": big}}]), Some("effect_bytes")),
        (json!([{"put": {"a": big}}]), Some("update_bytes")),
        (json!([{"send": {"label": "w", "arg": big}}]), Some("update_bytes")),
        (json!([{"raw_ask": &deep[..100]}]), Some("json_depth")),
        (json!([{"raw_ask": "[".repeat(100_000)}]), Some("payload_bytes")),
        (json!([{"ask_all": [1, 2, 3, 4]}]), Some("interrupts")),
        (Value::Array((0..6).map(effect).collect()), Some("journal_entries")),
        (json!([{"raw_ask": "{\"a\":NaN}"}]), None),
        (json!([{"raw_emit": "nothing"}]), None),
        (json!([{"raw_update": "[1]"}]), None),
        (json!([{"raw_update": "{\"a\":1,\"a\":2}"}]), None),
        (json!([{"put": {"": 1}}]), None),
        (json!([{"ask": 1, "schema": {"type": "nothing"}}]), None),
        (json!([{"ask": 1, "schema": {"$ref": "file:///etc/passwd"}}]), None),
        (json!([{"ask": 1, "schema": {"type": "string"}, "default": 5}]), None),
    ] {
        let fresh = Stage { journal: journal(vec![]), ..stage };
        let ran = fresh.run(&script).await;
        stage = fresh;
        let End::Failed { error, retryable: false } = ran.end else { panic!("{limit:?}: {:?}", ran.end) };
        match limit {
            Some(limit) => {
                assert_eq!((error.kind, error.more["limit"].as_str()), (Kind::Limit, Some(limit)), "{error}");
                assert!(error.message.contains(limit), "{error}");
            }
            None => assert_eq!(error.kind, Kind::Invalid, "{error}"),
        }
        assert!(error.message.len() < 600, "{error}");
    }
}

#[tokio::test]
async fn a_failure_is_the_nodes_own_words() {
    let stage = Stage::set().await;
    for (script, retryable) in [
        (json!([{"fail": {"message": "no stock", "detail": {"sku": 7}}}]), false),
        (json!([{"retry": {"message": "no stock", "detail": {"sku": 7}}}]), true),
    ] {
        let End::Failed { error, retryable: found } = stage.run(&script).await.end else { panic!() };
        assert_eq!((error.kind, error.message.as_str(), found), (Kind::NodeFailed, "no stock", retryable));
        assert_eq!(error.more["detail"], json!({"sku": 7}));
    }
}

#[tokio::test]
async fn a_panic_is_told_with_the_end_of_stderr_and_frames() {
    let stage = Stage::set().await;
    let script = json!([{"repeat": {"times": 5_000, "ops": [{"eprint": "noise, noise, noise"}]}}, {"panic": "out of paper"}]);
    let ran = stage.run(&script).await;
    let End::Failed { error, .. } = ran.end else { panic!("{:?}", ran.end) };
    assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &json!("unreachable")));
    let stderr = error.more["stderr"].as_str().unwrap();
    assert!(stderr.contains("out of paper") && stderr.len() <= 2_048, "{stderr}");
    let frames = error.more["frames"].to_string();
    assert!(frames.contains("panic") && !frames.contains("_ZN"), "{frames}");
    assert!(ran.output.truncated && ran.output.stderr.len() <= 64 * 1024);
}

#[tokio::test]
async fn logs_are_cut_off_and_say_so() {
    let stage = Stage::set().await;
    for script in [
        json!([{"spam_log": {"bytes": 100_000, "times": 100}}]),
        json!([{"spam_log": {"bytes": 10, "times": 100_000}}]),
        json!([{"spam_print": {"bytes": 1_000_000, "times": 10}}]),
        json!([{"spam_print": {"bytes": 0, "times": 100_000}}]),
    ] {
        let ran = stage.run(&script).await;
        assert!(matches!(ran.end, End::Finished { .. }), "{:?}", ran.end);
        assert!(ran.output.truncated);
        let lines = std::mem::take(&mut *stage.world.lines.lock().unwrap());
        let bytes: usize = lines.iter().map(|(_, line)| line.len() + 1).sum();
        assert!(bytes < 66 * 1024, "{bytes}");
        assert!(lines.last().unwrap().1.contains("cut off"), "{:?}", lines.last());
        assert_eq!(lines.iter().filter(|(_, line)| line.contains("cut off")).count(), 1);
    }
}

#[tokio::test]
async fn the_world_is_empty() {
    let stage = Stage::set().await;
    let script = json!([
        {"env": true}, {"args": true}, {"stdin": true}, {"open": "/etc/passwd"}, {"write": "/tmp/x"}, {"list": "/"},
        {"connect": "127.0.0.1:80"}, {"udp": "0.0.0.0:0"}, {"context": true}, {"put_results": "a"}
    ]);
    let told = stage.results(script).await;
    assert_eq!(told[0], json!({}));
    assert_eq!(told[1], json!([]));
    assert_eq!(told[2], json!({"ok": ""}));
    for i in 3..8 {
        assert!(told[i]["err"].is_string(), "{i}: {told}");
    }
    assert_eq!(told[8]["path"], json!(["outer"]));
    assert_eq!(told[8]["step"], 3);

    let End::Failed { error, .. } = stage.run(&json!([{"exit": 3}])).await.end else { panic!() };
    assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &json!("exit")));
}

#[tokio::test]
async fn fuel_and_outcome_are_the_same_in_every_attempt() {
    let stage = Stage::set().await;
    let script = json!([
        {"hash_order": true}, {"random": 8}, {"sleep_ms": 5}, {"now": true}, {"print": "x"}, {"grow": 1_000_000},
        {"put_results": "a"}
    ]);
    let first = stage.run(&script).await;
    for _ in 0..3 {
        let again = stage.run(&script).await;
        assert_eq!((again.fuel, again.memory_bytes), (first.fuel, first.memory_bytes));
        assert_eq!(format!("{:?}", again.end), format!("{:?}", first.end));
    }
}

#[tokio::test]
async fn json_as_deep_as_is_allowed_fits_on_the_stack_of_a_host_function() {
    let stage = Stage::set().await;
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let ran = stage.run(&json!([{"raw_ask": deep}])).await;
    assert!(matches!(ran.end, End::Paused), "{:?}", ran.end);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_run_on_any_thread() {
    let stage = Stage::set().await;
    let stage = Arc::new(stage);
    let runs = (0..20).map(|_| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            let fresh = journal(vec![]);
            let state = json!({"script": [{"random": 8}, {"put_results": "a"}]}).to_string();
            let attempt = attempt(&state, &fresh, &stage.world, &stage.limits);
            format!("{:?}", stage.sandbox.run(&stage.component, attempt).await)
        })
    });
    let ran: Vec<_> = futures::future::join_all(runs).await.into_iter().map(Result::unwrap).collect();
    assert!(ran[0].contains("Finished") && ran.iter().all(|one| *one == ran[0]), "{}", ran[0]);
}

#[tokio::test]
async fn what_the_host_does_for_a_node_is_charged_where_fuel_does_not_pay_for_it() {
    let stage = Stage::set().await;
    let charged = || std::mem::take(&mut *stage.world.charges.lock().unwrap());
    // Each message is read from the guest's memory and looked through before it is dropped.
    let ran = stage.run(&json!([{ "spam_log": { "bytes": 1 << 20, "times": 300 } }])).await;
    let all = charged();
    assert!(all.len() == 1 && all[0] > 3 * ran.fuel, "{} {all:?}", ran.fuel);
    // Also where nobody waits for its end.
    let endless = json!([{ "log": { "level": "info", "message": "begun" } }, { "loop": true }]);
    {
        let mut run = std::pin::pin!(stage.run(&endless));
        while !stage.world.lines().contains(&"begun".to_owned()) {
            assert!(futures::poll!(&mut run).is_pending());
            tokio::task::yield_now().await;
        }
    }
    while stage.world.charges.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(charged()[0] > 0);
}
