//! Two who answer at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdpoint::engine::{Settings, Watched};
use holdpoint::model::Kind;
use holdpoint::{Command, EffectFailure, EngineError, Execution, Host};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::world::*;

/// Where two meet before either goes on.
#[derive(Default)]
struct Meeting(Mutex<usize>, Condvar);

impl Meeting {
    fn wait(&self) {
        let mut here = self.0.lock().unwrap();
        *here += 1;
        self.1.notify_all();
        let (_here, timeout) =
            self.1.wait_timeout_while(here, Duration::from_secs(60), |here| *here < 2).unwrap();
        assert!(!timeout.timed_out(), "the other never came");
    }
}

/// Two hosts, each with a runtime of its own as in a process of its own, send these commands; both have
/// found what they answer, and started its node, before either goes on.
fn at_once(world: &World, commands: [Command; 2]) -> [Result<Execution, EngineError>; 2] {
    let meeting = Arc::new(Meeting::default());
    let racers = commands.map(|command| {
        let meeting = meeting.clone();
        let watcher = Arc::new(move |watched: &Watched<'_>| {
            if matches!(watched, Watched::TaskStarted { .. }) {
                meeting.wait();
            }
        });
        let settings = Settings { budget_ms: 600_000, ..Settings::default() };
        let host = world.builder().database(world.db()).settings(settings).watcher(watcher);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async { host.open().await.unwrap().resume(on("t"), command).await })
        })
    });
    racers.map(|racer| racer.join().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_of_two_answers_at_once_one_wins() {
    let value = |value: &str| Command::resume(value);
    for (named, effect) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        let host = world.host().await;
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let send = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
        let effects = if effect { vec![send] } else { vec![] };
        let ops = [vec![json!({ "ask": "first?" })], effects, vec![json!({ "ask": "second?" })]].concat();
        let ops = [ops, vec![json!({ "put_results": "a" })]].concat();
        let asked = paused(graph.invoke(on("t"), script(json!(ops))).await.unwrap());
        let commands = ["A", "B"].map(|answer| match named {
            false => value(answer),
            true => Command::answers([(asked[0].interrupt.id, json!(answer))]),
        });
        let ended = at_once(&world, commands);
        let (winner, won, lost) = match ended {
            [Ok(won), lost @ Err(_)] => ("A", won, lost),
            [lost @ Err(_), Ok(won)] => ("B", won, lost),
            other => panic!("not one winner: {other:?}"),
        };
        let lost = refused(lost);
        assert_eq!((lost.error.kind, lost.run_id), (Kind::Stale, Some(won.run_id)));
        assert!(lost.error.message.contains("was answered at"), "{lost}");
        if !effect {
            // With one, the loser is refused as soon as the winner's answer is durable.
            assert_eq!((lost.checkpoint_id, &lost.pending), (won.checkpoint_id, &won.interrupts));
        }
        assert_eq!(host.execution(on("t")).await.unwrap(), won);
        assert_eq!(paused(won)[0].interrupt.payload, json!("second?"));
        completed(host.resume(on("t"), Command::resume("C")).await.unwrap());
        let results = host.state(on("t")).await.unwrap()["a"].as_array().unwrap().clone();
        assert_eq!((&results[0], results.last().unwrap()), (&json!(winner), &json!("C")));
        assert_eq!(world.sent(), usize::from(effect));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_the_same_request_in_two_processes_at_once_gets_one_reply() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ops = json!([{ "ask": 1 }, { "effect": { "name": "e", "key": "k", "input": 1 } }, { "ask": 2 }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let click = || Command::resume("A").request("click");
    let [one, other] = at_once(&world, [click(), click()]);
    let one = one.unwrap();
    assert_eq!(other.unwrap(), one);
    assert_eq!(paused(one)[0].interrupt.payload, json!(2));
    assert_eq!(world.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i18_a_request_that_was_broken_off_is_gone_on_with() {
    let world = World::new();
    let panicked = Arc::new(AtomicBool::new(false));
    let handler = move |_| {
        let first = !panicked.swap(true, Ordering::SeqCst);
        async move {
            assert!(!first, "the handler's bug");
            Ok::<Value, EffectFailure>(json!("sent"))
        }
    };
    let host = world.builder().database(world.db()).effect("e", handler).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ops =
        json!([{ "ask": 1 }, { "effect": { "name": "e", "key": "k", "input": 1 } }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let click = || host.resume(on("t"), Command::resume("A").request("click"));
    assert!(matches!(click().await, Err(EngineError::HandlerPanicked { .. })));
    let reply = click().await.unwrap();
    assert_eq!(click().await.unwrap(), reply);
    completed(reply);
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!(["A", { "ok": "sent" }]));
}

/// A bare value that comes while another is worked on was meant for the question that its sender saw.
#[tokio::test(flavor = "multi_thread")]
async fn i20_a_value_that_waits_its_turn_does_not_slip_to_the_next_question() {
    let world = World::new();
    let (entered, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let handler = {
        let (entered, release) = (entered.clone(), release.clone());
        move |_| {
            let (entered, release) = (entered.clone(), release.clone());
            async move {
                entered.add_permits(1);
                release.acquire().await.unwrap().forget();
                Ok::<Value, EffectFailure>(json!(null))
            }
        }
    };
    let host: Host = world.builder().database(world.db()).effect("e", handler).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ops = json!([{ "ask": 1 }, { "effect": { "name": "e", "key": "k", "input": 1 } }, { "ask": 2 }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let first = tokio::spawn({
        let host = host.clone();
        async move { host.resume(on("t"), Command::resume("A")).await }
    });
    entered.acquire().await.unwrap().forget();
    let late =
        tokio::time::timeout(Duration::from_secs(30), host.resume(on("t"), Command::resume("B"))).await;
    release.add_permits(1);
    let refusal = refused(late.expect("it is refused at once"));
    assert!(matches!(refusal.error.kind, Kind::NotPending | Kind::Stale | Kind::Busy), "{refusal}");
    assert_eq!(paused(first.await.unwrap().unwrap())[0].interrupt.payload, json!(2));
}
