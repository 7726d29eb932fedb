//! A database in which somebody else wrote, or an earlier build.

use holdpoint::model::{EffectSpec, Kind};
use holdpoint::{Command, EffectFailure, EngineError, NodeSpec};
use serde_json::json;

use crate::world::*;

/// All rows of what a thread consists of, as text.
async fn rows(raw: &mut sqlx::SqliteConnection) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["threads", "runs", "checkpoints", "tasks", "journal", "interrupts", "effects", "steering"] {
        let columns = format!(
            "SELECT group_concat('quote(\"' || name || '\")', ' || '','' || ') FROM pragma_table_info('{table}')"
        );
        let columns: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(columns)).fetch_one(&mut *raw).await.unwrap();
        let every = format!("SELECT '{table}: ' || {columns} FROM {table} ORDER BY 1");
        all.extend(
            sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(every)).fetch_all(&mut *raw).await.unwrap(),
        );
    }
    all
}

/// Whoever can write to the file can take out rows: what is left does not fit together, and an answer to it is
/// refused before it is used up, each time it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_whose_rows_do_not_fit_together_is_damage_and_uses_up_no_answer() {
    let ask = json!([{ "ask": "first?" }, { "ask_all": ["second?", "third?"] }]);
    for (damage, words) in [
        ("UPDATE tasks SET node = '-7'", &["node -7"][..]),
        ("DELETE FROM tasks", &["is not there, and has a question"]),
        ("DELETE FROM journal", &["of entry 1 of its journal, which did not ask it"]),
        // A question asked by itself is its own entry.
        ("DELETE FROM interrupts WHERE state = 'answered'", &["entry 0 of its journal is not there"]),
        ("DELETE FROM journal WHERE entry = 1", &["of entry 1 of its journal, which did not ask it"]),
        ("UPDATE journal SET entry = 2 WHERE entry = 1", &["entry 1 of its journal is not there"]),
        ("UPDATE interrupts SET entry = 0, place = 5 WHERE place = 1", &["damaged"]),
        (
            "UPDATE interrupts SET state = 'withdrawn', reason = '', settled_at = 1 WHERE place = 1",
            &["at entry 1 of its journal", "cannot be given"],
        ),
        ("UPDATE runs SET parent_run = run, parent_task = (SELECT task FROM tasks)", &["child of run"]),
        ("UPDATE checkpoints SET run = zeroblob(16)", &["the head", "is of run"]),
        ("DELETE FROM runs", &["its run", "not there"]),
    ] {
        let world = World::new();
        let host = world.host().await;
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let paused_at = paused(graph.invoke(on("t"), script(ask.clone())).await.unwrap());
        let again = host.resume(on("t"), Command::resume("one")).await.unwrap();
        let second = paused(again)[0].interrupt.id;
        assert_ne!(second, paused_at[0].interrupt.id);
        drop((graph, host));
        let mut raw = crate::refusals::connect(&world.db()).await;
        for statement in ["PRAGMA foreign_keys = OFF", "PRAGMA ignore_check_constraints = ON", damage] {
            sqlx::query(statement).execute(&mut raw).await.unwrap();
        }
        let left = rows(&mut raw).await;
        for _ in 0..2 {
            let host = world.host().await;
            let answers = Command::answers([(second, json!("two"))]);
            let error = host.resume(on("t"), answers).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Store, "{damage}: {error}");
            for word in words.iter().chain(&["restore a backup"]) {
                assert!(error.to_string().contains(word), "{damage}: {error}");
            }
            assert_eq!(rows(&mut raw).await, left, "{damage}: nothing was written");
        }
    }
}

/// As an earlier build could leave it: paused, behind an effect that is under way, and nobody is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_paused_behind_an_effect_under_way_is_gone_on_with() {
    let world = World::new();
    let open = async || {
        let builder = world.builder().database(world.db());
        builder.effect("e", |_| async { Ok::<_, EffectFailure>(json!("sent")) }).open().await.unwrap()
    };
    let host = open().await;
    let spec = scripted(&["n"]).effect("e", EffectSpec { approve: true, ..EffectSpec::default() });
    let graph = host.compile(&spec).await.unwrap();
    let sends = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "put_results": "a" }]);
    let first = paused(graph.invoke(on("t"), script(sends)).await.unwrap())[0].interrupt.id;
    drop((graph, host));
    let mut raw = crate::refusals::connect(&world.db()).await;
    for statement in [
        "UPDATE journal SET reply_kind = 'begun', reply = NULL WHERE reply_kind = 'asked'",
        "UPDATE interrupts SET state = 'withdrawn', settled_at = 1, reason = ''",
    ] {
        assert_eq!(sqlx::query(statement).execute(&mut raw).await.unwrap().rows_affected(), 1, "{statement}");
    }
    let host = open().await;
    let again = paused(host.continue_run(on("t")).await.unwrap());
    assert_ne!(again[0].interrupt.id, first, "it is asked anew");
    completed(host.resume(on("t"), Command::resume(json!({ "approved": true }))).await.unwrap());
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!([{ "ok": "sent" }]));
}

/// As a process can leave it that died before it asked, or whoever deleted the question.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_paused_task_waits_for_and_nobody_is_asked_is_asked() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ask = json!([{ "ask_all": ["first?", "second?"] }, { "put_results": "a" }]);
    let asked: Vec<_> =
        paused(graph.invoke(on("t"), script(ask)).await.unwrap()).iter().map(|p| p.interrupt.id).collect();
    drop((graph, host));
    let mut raw = crate::refusals::connect(&world.db()).await;
    let deleted = sqlx::query("DELETE FROM interrupts WHERE place = 1").execute(&mut raw).await.unwrap();
    assert_eq!(deleted.rows_affected(), 1);
    let host = world.host().await;
    let again = paused(host.continue_run(on("t")).await.unwrap());
    assert_eq!(again.iter().map(|p| p.interrupt.id).collect::<Vec<_>>(), asked);
    assert_eq!(again[1].interrupt.payload, json!("second?"));
    let answers = [(asked[0], json!(1)), (asked[1], json!(2))];
    completed(host.resume(on("t"), Command::answers(answers)).await.unwrap());
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!([[1, 2]]));
}

/// Of two questions, one is answered: what is wrong with the other's rows is seen before that.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_not_used_up_where_its_step_could_not_be_written() {
    let damages = [
        ("DELETE FROM tasks WHERE node = 'm'", "its row is not there"),
        ("UPDATE tasks SET boundary = zeroblob(16) WHERE node = 'm'", "its row is not there"),
        ("UPDATE interrupts SET task = zeroblob(16) WHERE node = 'm'", "cannot be given"),
        ("UPDATE interrupts SET kind = 'after' WHERE node = 'm'", "cannot be given"),
        ("UPDATE tasks SET settings = settings + 1 WHERE node = 'n'", "determinism settings"),
    ];
    for (damage, word) in damages {
        let world = World::new();
        let host = world.host().await;
        let graph = host.compile(&scripted(&["n", "m"])).await.unwrap();
        // Both ask two at once: what is asked so has a journal.
        let asked = paused(graph.invoke(on("t"), script(json!([{ "ask_all": ["?", "?"] }]))).await.unwrap());
        let of_n: Vec<_> = asked.iter().filter(|asked| asked.interrupt.node.as_str() == "n").collect();
        let answers = || Command::answers(of_n.iter().map(|asked| (asked.interrupt.id, json!(1))));
        drop((graph, host));
        let mut raw = crate::refusals::connect(&world.db()).await;
        for statement in ["PRAGMA foreign_keys = OFF", "PRAGMA ignore_check_constraints = ON", damage] {
            sqlx::query(statement).execute(&mut raw).await.unwrap();
        }
        let left = rows(&mut raw).await;
        let host = world.host().await;
        let error = host.resume(on("t"), answers()).await.unwrap_err();
        assert!(error.to_string().contains(word), "{damage}: {error}");
        assert_eq!(rows(&mut raw).await, left, "{damage}: nothing was written");
    }
}

/// As an earlier build could leave it, which put down a child run's task by itself: another task's commit came between
/// the two, and the process died.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_run_that_was_never_put_down_is_begun_anew() {
    let world = World::new();
    let open = async |dies: bool| {
        let handler = move |_| async move {
            assert!(!dies, "the process dies here");
            Ok::<_, EffectFailure>(json!("sent"))
        };
        world.builder().database(world.db()).effect("e", handler).open().await.unwrap()
    };
    let host = open(true).await;
    let child = host.compile(&scripted(&["w"]).effect("e", EffectSpec::default())).await.unwrap().digest();
    let below = NodeSpec::subgraph(child).reads(&["script", "a"]).writes(&["a"]);
    let graph = host.compile(&scripted(&["p"]).node("s", below).edge("p", "s")).await.unwrap();
    let sends = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "put_results": "a" }]);
    let died = graph.invoke(on("t"), script(json!({ "p": [], "w": sends }))).await;
    assert!(matches!(died, Err(EngineError::HandlerPanicked { .. })), "{died:?}");
    drop((graph, host));
    let mut raw = crate::refusals::connect(&world.db()).await;
    for statement in [
        "PRAGMA foreign_keys = OFF",
        "DELETE FROM journal",
        "DELETE FROM tasks WHERE child IS NULL AND state = 'started'",
        "DELETE FROM checkpoints WHERE run IN (SELECT run FROM runs WHERE parent_run IS NOT NULL)",
        "DELETE FROM runs WHERE parent_run IS NOT NULL",
    ] {
        assert!(sqlx::query(statement).execute(&mut raw).await.is_ok(), "{statement}");
    }
    let lacking = "SELECT count(*) FROM tasks WHERE child IS NOT NULL AND state = 'started'";
    assert_eq!(sqlx::query_scalar::<_, i64>(lacking).fetch_one(&mut raw).await.unwrap(), 1);
    let host = open(false).await;
    completed(host.continue_run(on("t")).await.unwrap());
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!([{ "ok": "sent" }]));
}
