//! What things cost: linear in what is written, and the same whatever else is stored.

use sqlx::{AssertSqlSafe, Row};

use super::*;

#[tokio::test]
async fn a_chain_of_appends_reads_back_right() {
    let fixture = Fixture::new().await;
    let mut at = fixture.start("t").await;
    let mut right = Vec::new();
    for i in 1..=300_i64 {
        // Now and then nothing, now and then several elements.
        let elements: Vec<i64> = (0..i % 4).map(|n| 10 * i + n).collect();
        let text = elements.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        right.extend(elements);
        let after = (i > 1).then_some(i - 1);
        fixture.store.commit(at.step(vec![appended(i, &text, after)])).await.unwrap();
    }
    let whole = |version, text: &str| {
        Write::Channel(ChannelRow {
            channel: channel("log"),
            version,
            value: ChannelValue::Whole(json(text)),
        })
    };
    fixture.store.commit(at.step(vec![whole(301, "[]")])).await.unwrap();
    fixture.store.commit(at.step(vec![appended(302, "1,2", Some(301))])).await.unwrap();
    fixture.store.commit(at.step(vec![appended(303, "3", Some(302))])).await.unwrap();

    let before = fixture.store.counters().statements;
    let wanted = [303, 300, 1, 301].map(|version| (channel("log"), version));
    let values = fixture.store.values(&tenant(), &at.thread, &wanted).await.unwrap();
    let values: Vec<String> = values.iter().map(Json::to_string).collect();
    assert_eq!(values, ["[1,2,3]", &serde_json::to_string(&right).unwrap(), "[10]", "[]"]);
    assert_eq!(fixture.store.counters().statements - before, 1);
    assert_eq!(fixture.store.values(&tenant(), &at.thread, &[]).await.unwrap(), []);
}

#[tokio::test]
async fn two_hundred_appends_of_a_kilobyte_cost_little_more_than_two_hundred_kilobytes() {
    let mut fixture = Fixture::new().await;
    let mut at = fixture.start("t").await;
    fixture.store.close().await;
    let before = std::fs::metadata(&fixture.path).unwrap().len();
    fixture.store = Store::open(&fixture.path).await.unwrap();
    let text = format!("\"{}\"", "x".repeat(1022));
    for i in 1..=200 {
        let after = (i > 1).then_some(i - 1);
        fixture.store.commit(at.step(vec![appended(i, &text, after)])).await.unwrap();
    }
    fixture.store.close().await;
    let grown = std::fs::metadata(&fixture.path).unwrap().len() - before;
    assert!(grown < 300_000, "{grown} bytes");
}

#[tokio::test]
async fn a_load_costs_the_same_among_a_thousand_threads_and_after_a_long_past() {
    let fixture = Fixture::new().await;
    let mut at = fixture.start("t").await;
    let cost = async |head| {
        let before = fixture.store.counters().statements;
        let loaded = fixture.store.load(&tenant(), &thread("t")).await.unwrap().unwrap();
        assert_eq!(loaded.head, head);
        fixture.store.counters().statements - before
    };
    let alone = cost(at.head).await;
    let more = (0..1_000).map(|i| fixture.store.commit(fixture.starting(&format!("t{i}")).0));
    for end in futures::future::join_all(more).await {
        end.unwrap();
    }
    for _ in 0..100 {
        fixture.store.commit(at.step(Vec::new())).await.unwrap();
    }
    assert_eq!(cost(at.head).await, alone);
}

/// A count of statements says nothing of what one statement reads: here, none reads a whole table.
#[tokio::test]
async fn no_statement_scans_a_table() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    for statement in [
        snapshot::THREAD,
        checkpoints::BY_ID,
        checkpoints::BY_NUMBER,
        checkpoints::NEWEST,
        checkpoints::BEFORE,
        runs::BY_ID,
        runs::BY_NUMBER,
        runs::OF_THREAD,
        tasks::BY_ID,
        tasks::BY_NUMBER,
        tasks::OF_BOUNDARY,
        interrupts::BY_ID,
        interrupts::BY_NUMBER,
        interrupts::OF_TASK,
        journal::BY_NUMBER,
        journal::OF_TASK,
        channels::CHAINS,
        effects::BY_SCOPE,
        requests::BY_ID,
        components::BYTES,
        components::INFO,
        components::LIST,
        components::GRAPH,
        threads::LEASE,
        threads::HEAD,
        threads::ALL,
        threads::OF_STATUS,
        write::STANDS,
        write::THREAD,
        interrupts::SETTLE,
        effects::OF_THREAD,
        origin::SEQ,
        origin::LINEAGE,
        origin::PRUNED,
        prune::NUMBER,
        prune::GUARD,
        prune::NOTE,
        interrupts::CUT,
        since::WAITING,
        prune::HELD,
        prune::LATEST_DROPPED,
        prune::LINKS,
        prune::DROP_VALUES,
        prune::DROP_CHECKPOINTS,
        prune::DROP_TASKS,
        prune::DROP_RUNS,
        prune::DROP_STEERING,
        delete::DELETE,
    ] {
        let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
        for row in plan.fetch_all(&mut raw).await.unwrap() {
            let detail: String = row.get("detail");
            let small = [
                "SCAN w VIRTUAL TABLE",
                "SCAN c",
                "SCAN CONSTANT ROW",
                // What was gathered of one thread.
                "SCAN json_each VIRTUAL TABLE",
                "SCAN ranked",
                "SCAN k",
                "SCAN (subquery",
            ];
            let scans = detail.starts_with("SCAN") && !small.iter().any(|s| detail.starts_with(s));
            assert!(!scans, "{detail}\n{statement}");
            // A thread may have very many values: each is found by its whole key.
            let by_key = ["channel=? AND version=?", "rowid=?"].iter().any(|key| detail.contains(key));
            let of_values = statement == channels::CHAINS && detail.starts_with("SEARCH v ");
            assert!(by_key || !of_values, "{detail}");
            let sorts = detail.contains("USE TEMP B-TREE");
            let few = [
                runs::OF_THREAD,
                channels::CHAINS,
                tasks::BY_NUMBER,
                since::WAITING,
                prune::HELD,
                prune::LATEST_DROPPED,
                prune::DROP_CHECKPOINTS,
            ];
            assert!(!sorts || few.contains(&statement), "{detail}\n{statement}");
        }
    }
}

/// A list of words in a check, or a row that is given back, is a table in memory for each row that is written.
#[tokio::test]
async fn no_row_that_is_written_takes_a_table_of_its_own() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    sqlx::query("PRAGMA ignore_check_constraints = OFF").execute(&mut raw).await.unwrap();
    for statement in [
        write::NEW_THREAD,
        write::THREAD,
        runs::INSERT,
        runs::SET_STATUS,
        runs::SET_HEAD,
        checkpoints::INSERT,
        channels::INSERT,
        tasks::PUT,
        journal::PUT,
        interrupts::INSERT,
        interrupts::SETTLE,
        effects::PUT,
    ] {
        let program = sqlx::query(AssertSqlSafe(format!("EXPLAIN {statement}")));
        let program = program.fetch_all(&mut raw).await.unwrap();
        let opens: Vec<&str> =
            program.iter().map(|row| row.get("opcode")).filter(|code| *code == "OpenEphemeral").collect();
        assert!(program.len() > 10 && opens.is_empty(), "{statement}");
    }
}

#[tokio::test]
async fn a_word_that_a_column_cannot_say_is_not_written() {
    let fixture = Fixture::new().await;
    fixture.start("t").await;
    let mut raw = fixture.raw().await;
    sqlx::query("PRAGMA ignore_check_constraints = OFF").execute(&mut raw).await.unwrap();
    let no_id = "zeroblob(16)";
    let statements = [
        ("UPDATE threads SET status = '_'".to_owned(), "failed"),
        ("UPDATE runs SET status = '_'".to_owned(), "diverged"),
        ("UPDATE checkpoints SET status = '_'".to_owned(), "completed"),
        (
            format!(
                "REPLACE INTO tasks (tenant, task, thread, run, boundary, place, node, component, attempts, \
                 generation, settings, failures, state) \
                 VALUES (1, {no_id}, 1, {no_id}, {no_id}, 0, 'n', x'', 0, 0, 0, 0, '_')"
            ),
            "paused",
        ),
        (
            format!(
                "REPLACE INTO journal (tenant, task, entry, call, reply_kind, at) \
                 VALUES (1, {no_id}, 0, '', '_', 1)"
            ),
            "attempt",
        ),
        (
            format!(
                "REPLACE INTO interrupts (tenant, interrupt, thread, run, task, node, boundary, checkpoint, kind, \
                 asked_order, entry, place, payload, asked_at, state) VALUES (1, {no_id}, 1, {no_id}, {no_id}, 'n', \
                 {no_id}, {no_id}, '_', 0, 0, 0, '1', 1, 'pending')"
            ),
            "in-doubt",
        ),
        (
            "INSERT INTO invocations (tenant, invocation, thread, assistant, ask, strategy, metadata, status, \
             created_at, updated_at) VALUES (1, randomblob(16), 't', x'', '1', '1', '1', '_', 1, 1)"
                .to_owned(),
            "pending",
        ),
    ];
    for (statement, word) in statements {
        for (word, is_one) in [("odd", false), (word, true)] {
            let written = sqlx::query(AssertSqlSafe(statement.replace("'_'", &format!("'{word}'"))))
                .execute(&mut raw)
                .await;
            assert_eq!(written.is_ok(), is_one, "{word}: {statement}: {written:?}");
        }
    }
}
