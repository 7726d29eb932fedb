//! Whatever stands in the file, reading it is an answer or an error that names table and row.

use super::*;
use crate::model::NodeInfo;
use crate::model::checkpoint::{
    EffectRow, EffectScope, EffectState, Finish, InterruptRow, InterruptState, JournalRow, TaskRow, TaskState,
};
use crate::model::ids::{EffectName, InterruptId, TaskId};
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{Call, Entry, Reply};

/// Damages a row of a thread that has one of each, reads, and expects the error.
async fn check(statement: &'static str, table: &str, what: &str) {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut at = fixture.start("t").await;
    store.commit(at.step(vec![appended(1, "1", None)])).await.unwrap();
    store.commit(at.step(vec![appended(2, "2", Some(1))])).await.unwrap();
    let ids = [0, 1].map(|index| TaskId::derive(at.head, index, &node("a")));
    let task = |index: usize, state| TaskRow {
        task: ids[index],
        run: at.run,
        boundary: at.head,
        index,
        node: node("a"),
        component: Digest::of(b"c"),
        child: None,
        attempts: 1,
        generation: 0,
        settings: 0,
        failures: 0,
        state,
    };
    let interrupt = InterruptId::derive(ids[0], "node", (0, 0), 0);
    let asked = InterruptRow {
        interrupt,
        run: at.run,
        task: ids[0],
        node: node("a"),
        boundary: at.head,
        checkpoint: at.head,
        kind: InterruptKind::Node,
        order: 0,
        entry: 0,
        place: 0,
        payload: Json::null(),
        answer_schema: None,
        asked_at: Timestamp(1),
        expires_at: None,
        default_answer: None,
        state: InterruptState::Pending,
    };
    let entry = Entry { call: Call::Steering, reply: Reply::Steering(Vec::new()), at: Timestamp(1) };
    let scope = EffectScope { node: "a".into(), effect: EffectName::parse("e").unwrap(), key: "k".into() };
    let effect = EffectRow {
        scope: scope.clone(),
        input: Digest::of(b""),
        task: ids[0],
        state: EffectState::Intended,
        at: Timestamp(1),
    };
    let writes = vec![
        Write::Task(task(0, TaskState::Paused)),
        Write::Task(task(1, TaskState::Finished(Finish::default()))),
        Write::Journal(JournalRow { task: ids[0], index: 0, entry }),
        Write::Interrupt(asked),
        Write::Effect(effect),
        Write::Request {
            request_id: "r".into(),
            command: Digest([7; 32]),
            at: Timestamp(1),
            reply: Some(Json::null()),
        },
    ];
    store.commit(at.batch(writes)).await.unwrap();
    let component = Digest::of(b"component");
    let info = NodeInfo::default();
    store.put_component(&tenant(), component, b"component".to_vec(), &info, Timestamp(1)).await.unwrap();

    fixture.execute(statement).await;
    let name = &at.thread;
    let list = ThreadFilter { limit: 10, ..ThreadFilter::default() };
    let wanted = [(channel("log"), 2)];
    let errors: Vec<StoreError> = [
        store.load(&tenant(), name).await.err(),
        store.values(&tenant(), name, &wanted).await.err(),
        store.effect(&tenant(), name, &scope).await.err(),
        store.request(&tenant(), name, "r").await.err(),
        store.threads(&tenant(), &list).await.err(),
        store.component(&tenant(), component).await.err(),
        store.component_info(&tenant(), component).await.err(),
        store.graph(&tenant(), fixture.graph).await.err(),
        store.interrupt(&tenant(), interrupt).await.err(),
        store.lease(&tenant(), name).await.err(),
        store.journal(&tenant(), ids[0]).await.err(),
        store.history(&tenant(), name, None, 10).await.err(),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(!errors.is_empty(), "{statement}: nothing minded");
    for error in errors {
        let StoreError::Corrupt { file, table: found, row, what: why } = &error else {
            panic!("{statement}: {error:?}")
        };
        assert_eq!(*found, table, "{statement}: {error}");
        assert!(why.contains(what), "{statement}: {error}");
        assert!(row != "?" && *file == fixture.path.display().to_string(), "{statement}: {error}");
    }
}

#[tokio::test]
async fn damaged_rows_are_errors_that_name_table_and_row() {
    for (statement, table, what) in [
        ("UPDATE threads SET head = x'00'", "threads", "head"),
        ("UPDATE threads SET head = zeroblob(16)", "threads", "is not there"),
        ("UPDATE threads SET run = zeroblob(16)", "threads", "run"),
        ("UPDATE threads SET secret = x'0102'", "threads", "2 bytes instead of 32"),
        ("UPDATE threads SET status = 'asleep'", "threads", "asleep"),
        ("UPDATE threads SET owner = x'01', until = 1", "threads", "owner"),
        ("UPDATE runs SET graph = x''", "runs", "graph"),
        ("UPDATE runs SET namespace = '['", "runs", "namespace"),
        ("UPDATE runs SET gates = '{\"before\":[\"end\"]}'", "runs", "gates"),
        ("UPDATE runs SET error = '{\"kind\":\"odd\"}'", "runs", "error"),
        ("UPDATE checkpoints SET plan = '{'", "checkpoints", "plan"),
        ("UPDATE checkpoints SET plan = NULL", "checkpoints", "plan"),
        ("UPDATE checkpoints SET channels = '{\"a b\":1}'", "checkpoints", "channels"),
        ("UPDATE checkpoints SET step = -1", "checkpoints", "out of range"),
        ("UPDATE channel_values SET value = '\"' WHERE version = 1", "channel_values", "no JSON"),
        ("UPDATE channel_values SET continues = 7 WHERE version = 2", "channel_values", "not there"),
        ("UPDATE channel_values SET continues = 2 WHERE version = 1", "channel_values", "not there"),
        ("UPDATE channel_values SET whole = 1 WHERE version = 1", "channel_values", "no array"),
        ("DELETE FROM channel_values", "channel_values", "no such row"),
        ("UPDATE tasks SET node = 'end'", "tasks", "node"),
        ("UPDATE tasks SET attempts = 4294967296", "tasks", "attempts"),
        ("UPDATE tasks SET outcome = '[1]' WHERE place = 1", "tasks", "outcome"),
        ("UPDATE journal SET call = '{\"call\":\"dance\"}'", "journal", "call"),
        ("UPDATE journal SET call = '{\"call\":\"effect\"}'", "journal", "missing"),
        ("UPDATE journal SET reply_kind = 'odd'", "journal", "reply_kind"),
        ("UPDATE journal SET reply = NULL", "journal", "reply"),
        ("UPDATE interrupts SET kind = 'odd'", "interrupts", "kind"),
        ("UPDATE interrupts SET payload = 'NaN'", "interrupts", "payload"),
        ("UPDATE interrupts SET state = 'answered'", "interrupts", "answer"),
        ("UPDATE effects SET state = 'known'", "effects", "outcome"),
        ("UPDATE requests SET reply = '{\"a\":1,\"a\":1}'", "requests", "reply"),
        ("UPDATE components SET bytes = x'00'", "components", "digest"),
        ("UPDATE components SET info = '1'", "components", "info"),
        ("UPDATE graphs SET graph = '{}'", "graphs", "digest"),
    ] {
        check(statement, table, what).await;
    }
}

#[tokio::test]
async fn a_file_that_sqlite_cannot_read_is_damaged() {
    let fixture = Fixture::new().await;
    fixture.store.clone().close().await;
    let mut bytes = std::fs::read(&fixture.path).unwrap();
    for page in bytes.chunks_mut(8192).skip(1) {
        page.fill(0xff);
    }
    std::fs::write(&fixture.path, bytes).unwrap();
    let end = match Store::open(&fixture.path).await {
        Err(error) => Err(error),
        Ok(store) => store.load(&tenant(), &thread("t")).await,
    };
    assert!(matches!(end, Err(StoreError::Damaged { .. })), "{end:?}");
}
