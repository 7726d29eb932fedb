//! What a node can count on, whatever it is written in: one table, which the test component of every language
//! goes through. A new language joins by making it pass.
//!
//! Rust's and C's components are written against the bare contract, C's without any SDK there is: what wit-bindgen
//! makes of `wit/` is enough. The others are written with their SDK. What a language does not have (QuickJS has no sleep, say) is said in its row of [`LANGUAGES`], and shown in the table as such.

use std::sync::{Arc, Mutex};

use holdpoint::engine::Watched;
use holdpoint::model::{EffectSpec, GraphSpec, Kind, Limits};
use holdpoint::{Command, EffectFailure, Host, NodeSpec, RunStatus};
use serde_json::{Value, json};

use crate::world::{World, completed, component, on, paused, refused, script, scripted};

struct Language {
    name: &'static str,
    component: &'static str,
    /// Behaviours that the language does not know.
    lacks: &'static [&'static str],
    /// What becomes of an error that nobody caught.
    unhandled: Kind,
}

const LANGUAGES: [Language; 4] = [
    // Helpers of the SDK are tested natively for Rust; a panic is a trap.
    Language { name: "Rust", component: "script", lacks: &["approval"], unhandled: Kind::Trap },
    Language { name: "Python", component: "script-python", lacks: &[], unhandled: Kind::NodeFailed },
    Language {
        name: "JavaScript",
        component: "script-javascript",
        // No timers, no files, no environment, no standard input.
        lacks: &["sleep", "nothing of the machine is seen"],
        unhandled: Kind::NodeFailed,
    },
    // The helper is the SDKs', and C has none.
    Language { name: "C", component: "script-c", lacks: &["approval"], unhandled: Kind::Trap },
];

/// A host with one node of a language, and what it said.
struct Stage {
    world: World,
    language: &'static Language,
    emitted: Arc<Mutex<Vec<Value>>>,
}

impl Stage {
    fn new(language: &'static Language) -> Self {
        Self { world: World::new(), language, emitted: Arc::default() }
    }

    fn node(&self) -> NodeSpec {
        NodeSpec { component: Some(component(self.language.component)), ..crate::world::script_node() }
    }

    fn spec(&self) -> GraphSpec {
        scripted(&["n"]).node("n", self.node())
    }

    async fn host(&self) -> Host {
        self.host_with(Limits::default()).await
    }

    /// Effect `e` succeeds; of `f`, the input says how it fails.
    async fn host_with(&self, limits: Limits) -> Host {
        let (logged, emitted) = (self.world.logged.clone(), self.emitted.clone());
        let watcher = Arc::new(move |watched: &Watched<'_>| match watched {
            Watched::Log { message, .. } => logged.lock().unwrap().push((*message).to_owned()),
            Watched::Emitted { event, .. } => emitted.lock().unwrap().push(event.value()),
            _ => {}
        });
        let builder = self.world.builder().database(self.world.db()).watcher(watcher).limits(limits);
        let builder = builder.effect("f", |request| async move { Err(EffectFailure::Final(request.input)) });
        builder.open().await.unwrap()
    }

    /// Runs the script; each answer is given by another host on the same database.
    async fn run(&self, thread: &str, ops: Value, answers: &[Value]) -> holdpoint::Execution {
        let graph = self.host().await.compile(&self.spec()).await.unwrap();
        let mut run = graph.invoke(on(thread), script(ops)).await.unwrap();
        for answer in answers {
            let pending = paused(run);
            let host = self.host().await;
            let target =
                holdpoint::ResumeTarget::run(pending[0].run_path[0]).interrupt(pending[0].interrupt.id);
            let graph = host.compile(&self.spec()).await.unwrap();
            run = graph.resume_targeted(target, Command::resume(answer.clone())).await.unwrap();
        }
        run
    }

    /// What the ops gave, which the script put into channel `a`.
    async fn results(&self, thread: &str, ops: Value, answers: &[Value]) -> Value {
        let Value::Array(mut ops) = ops else { panic!("a script is a list") };
        ops.push(json!({ "put_results": "a" }));
        let run = self.run(thread, Value::Array(ops), answers).await;
        assert_eq!(run.status, RunStatus::Completed, "{}: {run:#?}", self.language.name);
        self.host().await.state(on(thread)).await.unwrap()["a"].clone()
    }

    fn logged(&self) -> Vec<String> {
        std::mem::take(&mut *self.world.logged.lock().unwrap())
    }
}

/// The behaviours, by name.
const BEHAVIOURS: [&str; 24] = [
    "interrupt",
    "answer schema, expiry, default",
    "interrupt-all",
    "approval",
    "effect",
    "effect errors",
    "steering",
    "log",
    "events",
    "print",
    "context",
    "routes",
    "retry and fail",
    "unicode",
    "large integers",
    "1 MB payloads",
    "deep JSON",
    "exception",
    "nothing catches the stop",
    "clock, random, hash order repeat",
    "random differs between tasks",
    "sleep",
    "nothing of the machine is seen",
    "endless recursion and loops end",
];

async fn behave(stage: &Stage, behaviour: &str) {
    let unhandled = stage.language.unhandled;
    match behaviour {
        "interrupt" => {
            let ops = json!([{ "ask": { "q": 1 } }, { "ask": null }]);
            let right = json!([{ "yes": [true, 1.5, "x"] }, null]);
            assert_eq!(stage.results("t", ops, &[right[0].clone(), Value::Null]).await, right);
        }
        "answer schema, expiry, default" => {
            let ops = json!([
                { "ask": "?", "schema": { "type": "integer" }, "expires_ms": 90_000, "default": 7 },
                { "put_results": "a" }
            ]);
            let graph = stage.host().await.compile(&stage.spec()).await.unwrap();
            let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap());
            assert_eq!(asked[0].answer_schema, Some(json!({ "type": "integer" })));
            assert!(asked[0].expires_at.is_some());
            assert_eq!(refused(graph.resume(on("t"), Command::resume("no")).await).error.kind, Kind::Schema);
            completed(graph.resume(on("t"), Command::resume(5)).await.unwrap());
            assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([5]));
        }
        "interrupt-all" => {
            let ops = json!([{ "ask_all": [] }, { "ask_all": ["a", { "b": 2 }, null] }]);
            let answers = [json!("one"), json!({ "two": 2 }), json!([3])];
            assert_eq!(stage.results("t", ops, &answers).await, json!([[], answers]));
        }
        "approval" => {
            let args = json!({ "cents": 1200 });
            let changed = json!({ "action": "refund", "args": { "cents": 5 } });
            for (i, (answer, decision)) in [
                (
                    json!({ "type": "accept", "args": null }),
                    json!({ "kind": "accept", "action": { "action": "refund", "args": args } }),
                ),
                (json!({ "type": "edit", "args": changed }), json!({ "kind": "edit", "action": changed })),
                (
                    json!({ "type": "response", "args": "why?" }),
                    json!({ "kind": "response", "text": "why?" }),
                ),
                (json!({ "type": "ignore" }), json!({ "kind": "ignore" })),
            ]
            .into_iter()
            .enumerate()
            {
                let thread = format!("t{i}");
                let given = stage.results(&thread, json!([{ "approve": args }]), &[json!([answer])]).await;
                assert_eq!(given, json!([decision]));
            }
            let graph = stage.host().await.compile(&stage.spec()).await.unwrap();
            let asked = paused(graph.invoke(on("u"), script(json!([{ "approve": args }]))).await.unwrap());
            assert_eq!(
                asked[0].interrupt.payload[0]["action_request"],
                json!({ "action": "refund", "args": args })
            );
            assert_eq!(asked[0].interrupt.payload[0]["config"]["allow_edit"], json!(true));
            let wrong = graph.resume(on("u"), Command::resume(json!([{ "type": "edit" }]))).await;
            assert_eq!(refused(wrong).error.kind, Kind::Schema);
        }
        "effect" => {
            let effect =
                |key: &str| json!({ "effect": { "name": "e", "key": key, "input": { "ü": [1, null] } } });
            let ops = json!([effect("k"), { "ask": "?" }, effect("k"), effect("l")]);
            let right =
                json!([{ "ok": { "sent": 1 } }, true, { "ok": { "sent": 1 } }, { "ok": { "sent": 2 } }]);
            assert_eq!(stage.results("t", ops, &[json!(true)]).await, right);
            assert_eq!(stage.world.sent(), 2);
            assert_eq!(stage.world.sent.lock().unwrap()[0].input, json!({ "ü": [1, null] }));
        }
        "effect errors" => {
            let effect = |name: &str, key: &str, input: Value| json!({ "effect": { "name": name, "key": key, "input": input } });
            let ops = json!([
                effect("e", "k", json!(1)),
                effect("e", "k", json!(2)),
                effect("e", "", json!(1)),
                effect("f", "k", json!({ "status": 500, "body": "ö" })),
            ]);
            let given = stage.results("t", ops, &[]).await;
            let kinds: Vec<&Value> = (1..4).map(|i| &given[i]["err"]["kind"]).collect();
            assert_eq!(kinds, ["key-conflict", "invalid", "failed"], "{given}");
            assert_eq!(given[3]["err"]["value"], json!({ "status": 500, "body": "ö" }));
            // A person says no.
            let spec = stage.spec().effect("e", EffectSpec { approve: true, ..EffectSpec::default() });
            let graph = stage.host().await.compile(&spec).await.unwrap();
            let ops = script(json!([effect("e", "k", json!(1)), { "put_results": "a" }]));
            paused(graph.invoke(on("u"), ops).await.unwrap());
            completed(graph.resume(on("u"), Command::resume(json!({ "approved": false }))).await.unwrap());
            assert_eq!(graph.state(on("u")).await.unwrap()["a"][0]["err"]["kind"], "denied");
        }
        "steering" => {
            let ops =
                json!([{ "steering": true }, { "ask": 1 }, { "steering": true }, { "put_results": "a" }]);
            let graph = stage.host().await.compile(&stage.spec()).await.unwrap();
            paused(graph.invoke(on("t"), script(ops)).await.unwrap());
            let command = Command::resume("yes").by("maria").steer("sei kürzer");
            completed(stage.host().await.resume(on("t"), command).await.unwrap());
            let right = json!([[], "yes", [{ "actor": "maria", "text": "sei kürzer" }]]);
            assert_eq!(graph.state(on("t")).await.unwrap()["a"], right);
        }
        "log" => {
            let log = |level: &str| json!({ "log": { "level": level, "message": format!("{level} ✓") } });
            let ops =
                json!([log("trace"), log("debug"), log("info"), { "ask": 1 }, log("warn"), log("error")]);
            stage.results("t", ops, &[json!(1)]).await;
            // Once each, though the node ran twice.
            assert_eq!(stage.logged(), ["trace ✓", "debug ✓", "info ✓", "warn ✓", "error ✓"]);
        }
        "events" => {
            let ops = json!([{ "emit": { "ä": [1] } }, { "ask": 1 }, { "emit": "two" }]);
            stage.results("t", ops, &[json!(1)]).await;
            assert_eq!(*stage.emitted.lock().unwrap(), [json!({ "ä": [1] }), json!("two")]);
        }
        "print" => {
            stage.results("t", json!([{ "print": "out ✓" }, { "eprint": "err ✓" }]), &[]).await;
            assert_eq!(stage.logged(), ["out ✓", "err ✓"]);
        }
        "context" => {
            let context = stage.results("t-ü", json!([{ "context": true }]), &[]).await[0].clone();
            assert_eq!((&context["thread_id"], &context["node"]), (&json!("t-ü"), &json!("n")));
            assert_eq!(
                (&context["path"], &context["step"], &context["arg"]),
                (&json!([]), &json!(0), &Value::Null)
            );
            for id in ["run_id", "task_id"] {
                context[id].as_str().unwrap().parse::<uuid::Uuid>().unwrap();
            }
        }
        "routes" => {
            let to = stage.node().routes(&[("x", "x"), ("y", "x")]);
            let spec = scripted(&["n"]).node("n", to).node("x", stage.node());
            let graph = stage.host().await.compile(&spec).await.unwrap();
            let arg =
                |n: u32| json!({ "script": [{ "value": n }, { "context": true }, { "put_results": "a" }] });
            let input = json!({
                "n": [{ "go": "x" }, { "send": { "label": "x", "arg": arg(1) } }, { "send": { "label": "y", "arg": arg(2) } }],
                "x": [{ "value": 0 }, { "put_results": "a" }],
            });
            completed(graph.invoke(on("t"), script(input)).await.unwrap());
            let a = graph.state(on("t")).await.unwrap()["a"].clone();
            assert_eq!((&a[0], &a[1], &a[3]), (&json!(0), &json!(1), &json!(2)), "{a}");
            assert_eq!(a[2]["arg"], arg(1));
            let spec = scripted(&["n"]).node("n", stage.node()).node("x", stage.node()).edge("n", "x");
            let graph = stage.host().await.compile(&spec).await.unwrap();
            let input = json!({ "n": [{ "end": true }], "x": [{ "value": 0 }, { "put_results": "a" }] });
            completed(graph.invoke(on("u"), script(input)).await.unwrap());
            assert_eq!(graph.state(on("u")).await.unwrap().get("a"), None);
        }
        "retry and fail" => {
            for verb in ["retry", "fail"] {
                let ops = json!([{ verb: { "message": "kein Vorrat", "detail": { "sku": 7 } } }]);
                let run = stage.run(verb, ops, &[]).await;
                let error = run.error.unwrap();
                assert_eq!((error.kind, error.message.as_str()), (Kind::NodeFailed, "kein Vorrat"));
                assert_eq!(error.more["detail"], json!({ "sku": 7 }));
            }
        }
        "unicode" => {
            let text = "🦀 é 👩‍👩‍👧 \u{0} \u{2028} \\ \" \n \u{7f} \u{feff} ẞ";
            same(stage, json!({ text: [text, ""] })).await;
        }
        "large integers" => {
            for text in [
                "9007199254740993",
                "-9223372036854775808",
                "12345678901234567890123",
                "[0,-1,18446744073709551615]",
            ] {
                same(stage, serde_json::from_str(text).unwrap()).await;
            }
        }
        "1 MB payloads" => same(stage, json!(["x".repeat(1 << 20), "ü".repeat(1 << 18)])).await,
        "deep JSON" => same(stage, (0..90).fold(json!(1), |inner, _| json!([inner]))).await,
        "exception" => {
            let run = stage
                .run(
                    "t",
                    json!([{ "log": { "level": "info", "message": "before" } }, { "panic": "out of paper" }]),
                    &[],
                )
                .await;
            let error = run.error.unwrap();
            assert_eq!(error.kind, unhandled, "{error}");
            assert!(
                error.to_string().contains("out of paper")
                    || error.more["stderr"].to_string().contains("out of paper")
            );
            let (stack, function) = match unhandled {
                Kind::Trap => (error.more["frames"].to_string(), "panic"),
                _ => (error.more["detail"]["stack"].to_string(), "script"),
            };
            assert!(stack.contains(function), "{stack}");
            completed(stage.run("u", json!([]), &[]).await);
        }
        "nothing catches the stop" => {
            let ops = json!([{ "catch": [{ "ask": "?" }] }]);
            let graph = stage.host().await.compile(&stage.spec()).await.unwrap();
            paused(graph.invoke(on("t"), script(ops.clone())).await.unwrap());
            assert_eq!(stage.logged(), [""; 0]);
            assert_eq!(stage.results("u", ops, &[json!(1)]).await, json!([1, "finished"]));
        }
        "clock, random, hash order repeat" => {
            // The question shows what was seen before it: were that another thing on the second pass, it would
            // be another question, and the run diverged.
            let ops = json!([{ "now": true }, { "random": 16 }, { "hash_order": true }, { "ask_results": true }, { "now": true }]);
            let seen = stage.results("t", ops, &[json!("later")]).await;
            let (before, after) = (seen[0].as_i64().unwrap(), seen[4].as_i64().unwrap());
            assert!(before > 1_700_000_000_000 && after >= before, "{seen}");
        }
        "random differs between tasks" => {
            let draw = async |thread: &str| stage.results(thread, json!([{ "random": 16 }]), &[]).await;
            assert_ne!(draw("t").await, draw("u").await);
        }
        "sleep" => {
            let began = std::time::Instant::now();
            let ops = json!([{ "now": true }, { "sleep_ms": 3_600_000 }, { "now": true }]);
            let seen = stage.results("t", ops, &[]).await;
            let slept = seen[1].as_i64().unwrap() - seen[0].as_i64().unwrap();
            assert!((3_600_000..3_700_000).contains(&slept), "{slept}");
            assert!(began.elapsed().as_secs() < 60);
        }
        "nothing of the machine is seen" => {
            let ops =
                json!([{ "env": true }, { "args": true }, { "stdin": true }, { "open": "/etc/passwd" }]);
            let seen = stage.results("t", ops, &[]).await;
            assert_eq!(
                (&seen[0], &seen[1], &seen[2]),
                (&json!({}), &json!([]), &json!({ "ok": "" })),
                "{seen}"
            );
            assert!(seen[3]["err"].is_string(), "{seen}");
        }
        "endless recursion and loops end" => {
            let run = stage.run("t", json!([{ "recurse": true }]), &[]).await;
            let kind = run.error.unwrap().kind;
            assert!(matches!(kind, Kind::Trap | Kind::NodeFailed | Kind::Limit), "{kind}");
            let host = stage.host_with(Limits { fuel: 100_000_000, ..Limits::default() }).await;
            let graph = host.compile(&stage.spec()).await.unwrap();
            let error =
                graph.invoke(on("u"), script(json!([{ "loop": true }]))).await.unwrap().error.unwrap();
            assert_eq!((error.kind, &error.more["limit"]), (Kind::Limit, &json!("fuel")));
            completed(graph.invoke(on("v"), script(json!([]))).await.unwrap());
        }
        other => panic!("nobody knows how {other:?} is tested"),
    }
}

/// A value comes back as it went in: through the state, a question, an answer, and the update.
async fn same(stage: &Stage, value: Value) {
    let thread = uuid::Uuid::now_v7().to_string();
    let ops = json!([{ "ask": value }, { "put_results": "a" }]);
    let graph = stage.host().await.compile(&stage.spec()).await.unwrap();
    let asked = paused(graph.invoke(on(&thread), script(ops)).await.unwrap());
    assert_eq!(asked[0].interrupt.payload, value);
    completed(graph.resume(on(&thread), Command::resume(value.clone())).await.unwrap());
    assert_eq!(graph.state(on(&thread)).await.unwrap()["a"], json!([value]));
}

/// One test a language, so that they run side by side.
async fn conforms(language: &'static Language) {
    for behaviour in BEHAVIOURS {
        if language.lacks.contains(&behaviour) {
            continue;
        }
        let stage = Stage::new(language);
        eprintln!("{}: {behaviour}", language.name);
        behave(&stage, behaviour).await;
    }
    for lacking in language.lacks {
        assert!(BEHAVIOURS.contains(lacking), "{lacking} is no behaviour");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_rust_conforms() {
    conforms(&LANGUAGES[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_python_conforms() {
    conforms(&LANGUAGES[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_javascript_conforms() {
    conforms(&LANGUAGES[2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_c_without_an_sdk_conforms() {
    conforms(&LANGUAGES[3]).await;
}
