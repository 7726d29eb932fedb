//! What is written is what is read.

use super::*;
use crate::model::checkpoint::{
    Answer, EffectRow, EffectScope, EffectState, Finish, InterruptRow, InterruptState, JournalRow, Routed,
    TaskRow, TaskState, Withdrawal,
};
use crate::model::ids::{EffectName, InterruptId, TaskId};
use crate::model::interrupt::{InterruptKind, Question};
use crate::model::journal::{Call, EffectOutcome, EffectReply, Entry, Instruction, Reply};
use crate::model::{ErrorRecord, NodeInfo};

fn task(at: &At, index: usize, state: TaskState) -> TaskRow {
    let node = node("a");
    TaskRow {
        task: TaskId::derive(at.head, index, &node),
        run: at.run,
        boundary: at.head,
        index,
        node,
        component: Digest::of(b"component"),
        child: None,
        attempts: 3,
        generation: 1,
        settings: -7,
        failures: 2,
        state,
    }
}

fn question(
    task: &TaskRow,
    pause: CheckpointId,
    kind: InterruptKind,
    entry: usize,
    place: usize,
) -> InterruptRow {
    InterruptRow {
        interrupt: InterruptId::derive(task.task, kind.as_str(), (entry, place), 0),
        run: task.run,
        task: task.task,
        node: task.node.clone(),
        boundary: task.boundary,
        checkpoint: pause,
        kind,
        order: place,
        entry,
        place,
        payload: json(r#"{"a":1.10}"#),
        answer_schema: Some(json(r#"{"type":"boolean"}"#)),
        asked_at: Timestamp(200),
        expires_at: Some(Timestamp(900)),
        default_answer: Some(json("null")),
        state: InterruptState::Pending,
    }
}

fn asks(default_answer: Option<Json>) -> Question {
    let expires_after_ms = default_answer.is_some().then_some(700);
    Question { payload: json("[1]"), answer_schema: None, expires_after_ms, default_answer }
}

fn entry(task: &TaskRow, index: usize, call: Call, reply: Reply) -> JournalRow {
    JournalRow { task: task.task, index, entry: Entry { call, reply, at: Timestamp(200) } }
}

fn effect_call() -> Call {
    Call::Effect { name: "pay".into(), key: "k".into(), input: Json::null() }
}

fn error() -> ErrorRecord {
    ErrorRecord::limit("fuel", 7, "too much").with("deep", serde_json::json!({ "n": [1.5, null] }))
}

#[tokio::test]
async fn a_thread_is_loaded_as_it_was_committed() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (mut batch, mut at) = fixture.starting("t");
    let Write::Checkpoint(first) = &mut batch.writes[1] else { panic!() };
    first.plan.tasks.push(PlannedTask { node: node("b"), arg: Some(Json::null()) });
    first.plan.arrived = BTreeMap::from([(2, vec![node("c")])]);
    first.channels = BTreeMap::from([(channel("log"), 0)]);
    let first = first.clone();
    let Write::Run(run) = batch.writes[0].clone() else { panic!() };
    store.commit(batch).await.unwrap();

    // A pause: four tasks, each in another state, with all kinds of entries and questions.
    let pause = CheckpointId::fresh();
    let finish = Finish {
        update: vec![(channel("log"), json("[null]"))],
        routes: vec![Routed::Go(None), Routed::Go(Some(node("b"))), Routed::Send(node("c"), Json::null())],
        error: Some(error()),
    };
    let tasks = [
        task(&at, 0, TaskState::Paused),
        task(&at, 1, TaskState::Finished(finish)),
        task(&at, 2, TaskState::Failed(error())),
        task(&at, 3, TaskState::Started),
    ];
    let both = Call::InterruptAll { questions: vec![asks(Some(Json::null())), asks(None)] };
    let instruction = Instruction { actor: "ann".into(), text: "slowly".into() };
    let known = |outcome| Reply::Effect(EffectReply::Known(outcome));
    let outcomes = [
        EffectOutcome::Done(Json::null()),
        EffectOutcome::Denied("d".into()),
        EffectOutcome::Invalid("i".into()),
        EffectOutcome::KeyConflict,
        EffectOutcome::Failed(json("{}")),
        EffectOutcome::InDoubt("?".into()),
    ];
    let mut journal = vec![
        entry(&tasks[0], 0, Call::Steering, Reply::Steering(vec![instruction])),
        entry(&tasks[0], 1, both, Reply::Answers(vec![None, None])),
        entry(&tasks[2], 0, Call::Interrupt { question: asks(None) }, Reply::Answers(vec![None])),
    ];
    journal
        .extend((1..).zip(outcomes).map(|(i, outcome)| entry(&tasks[2], i, effect_call(), known(outcome))));
    let asked = |answer| Reply::Effect(EffectReply::Asked { kind: InterruptKind::Approve, answer });
    journal.push(entry(&tasks[3], 0, effect_call(), asked(None)));
    journal.push(entry(&tasks[3], 1, effect_call(), Reply::Effect(EffectReply::Begun)));
    let mut questions = vec![
        question(&tasks[0], pause, InterruptKind::Node, 1, 0),
        question(&tasks[0], pause, InterruptKind::Node, 1, 1),
        question(&tasks[2], pause, InterruptKind::Node, 0, 0),
        question(&tasks[3], pause, InterruptKind::Approve, 0, 0),
    ];
    let hidden = entry(&tasks[1], 0, Call::Steering, Reply::Steering(Vec::new()));

    let paused = CheckpointRow {
        checkpoint: pause,
        parent: Some(at.head),
        kind: CheckpointKind::Pause { boundary: at.head },
        status: RunStatus::Interrupted,
        created_at: Timestamp(200),
        ..first.clone()
    };
    // Listed back to front: the store puts each row after those it refers to.
    let mut writes: Vec<Write> = questions.iter().cloned().map(Write::Interrupt).collect();
    writes.extend(journal.iter().chain([&hidden]).cloned().map(Write::Journal));
    writes.extend(tasks.iter().cloned().map(Write::Task));
    writes.push(Write::Checkpoint(paused.clone()));
    let owner = OwnerId(u128::MAX - 5);
    let lease = LeaseChange::Claim { owner, until: Timestamp(5_000) };
    let batch = Batch { head: pause, status: RunStatus::Interrupted, lease, ..at.batch(writes) };
    assert_eq!(store.commit(batch).await.unwrap(), Committed { epoch: 1, queued: false });

    let mut right = ThreadSnapshot {
        head: pause,
        epoch: 1,
        lease: Some(Lease { owner, until: Timestamp(5_000) }),
        secret: [7; 32],
        status: RunStatus::Interrupted,
        version: 0,
        root: RunSnapshot {
            run: run.clone(),
            checkpoint: paused.clone(),
            boundary: first.checkpoint,
            boundary_created_at: first.created_at,
            tasks: tasks.to_vec(),
            journal: journal.clone(),
            interrupts: questions.clone(),
            children: Vec::new(),
        },
        values: BTreeMap::new(),
    };
    assert_eq!(store.load(&tenant(), &at.thread).await.unwrap().unwrap(), right);

    // Answers: to the second of two, to the host's question, and one that withdraws.
    (at.head, at.epoch) = (pause, 1);
    let answer = |value: &str, at| Answer {
        value: json(value),
        at: Timestamp(at),
        by: Some("ann".into()),
        reason: None,
    };
    let answers = [answer("false", 300), Answer { by: None, ..answer("null", 100) }];
    let withdrawal = Withdrawal { at: Timestamp(310), by: Some("bob".into()), reason: "superseded".into() };
    let withdrawn = InterruptState::Withdrawn(withdrawal.clone());
    let mut writes: Vec<Write> = [1, 3]
        .iter()
        .zip(&answers)
        .map(|(&i, answer)| Write::Answer { interrupt: questions[i].interrupt, answer: answer.clone() })
        .collect();
    writes.push(Write::Withdraw { interrupt: questions[2].interrupt, withdrawal });
    let ended_at = Some(Timestamp(400));
    writes.push(Write::RunStatus { run: run.run, status: RunStatus::Failed, error: Some(error()), ended_at });
    let batch = Batch { lease: LeaseChange::Release, status: RunStatus::Failed, ..at.batch(writes) };
    assert_eq!(store.commit(batch).await.unwrap(), Committed { epoch: 2, queued: false });

    questions[1].state = InterruptState::Answered(answers[0].clone());
    questions[3].state = InterruptState::Answered(answers[1].clone());
    questions[2].state = withdrawn;
    journal[1].entry.reply = Reply::Answers(vec![None, Some(json("false"))]);
    journal[1].entry.at = Timestamp(300);
    // An answer stamped before its question does not set the clock back.
    let host_asked = journal.len() - 2;
    journal[host_asked].entry.reply = asked(Some(Json::null()));
    right.root.run = RunRow { status: RunStatus::Failed, error: Some(error()), ended_at, ..run };
    (right.epoch, right.lease, right.status) = (2, None, RunStatus::Failed);
    (right.root.journal, right.root.interrupts) = (journal.clone(), questions.clone());
    assert_eq!(store.load(&tenant(), &at.thread).await.unwrap().unwrap(), right);

    // One by one.
    let name = at.thread.clone();
    assert_eq!(
        store.run(&tenant(), right.root.run.run).await.unwrap(),
        Some((name.clone(), right.root.run.clone()))
    );
    assert_eq!(store.runs(&tenant(), &name).await.unwrap(), [right.root.run]);
    assert_eq!(store.task(&tenant(), tasks[1].task).await.unwrap(), Some((name.clone(), tasks[1].clone())));
    assert_eq!(store.tasks(&tenant(), &name, first.checkpoint).await.unwrap(), tasks);
    assert_eq!(store.journal(&tenant(), tasks[0].task).await.unwrap(), journal[..2]);
    assert_eq!(store.journal(&tenant(), tasks[1].task).await.unwrap(), [hidden]);
    let found = store.interrupt(&tenant(), questions[2].interrupt).await.unwrap();
    assert_eq!(found, Some((name.clone(), questions[2].clone())));
    assert_eq!(store.checkpoint(&tenant(), &name, pause).await.unwrap(), Some(paused.clone()));
    assert_eq!(store.history(&tenant(), &name, None, 9).await.unwrap(), [paused, first.clone()]);
    assert_eq!(store.history(&tenant(), &name, Some(pause), 9).await.unwrap(), [first]);
    assert_eq!(store.history(&tenant(), &name, None, 1).await.unwrap().len(), 1);

    // Nothing of it is there for another tenant.
    let other = TenantId::parse("other").unwrap();
    assert_eq!(store.load(&other, &name).await.unwrap(), None);
    assert_eq!(store.task(&other, tasks[1].task).await.unwrap(), None);
    assert_eq!(store.interrupt(&other, questions[2].interrupt).await.unwrap(), None);
    assert_eq!(store.journal(&other, tasks[0].task).await.unwrap(), []);
    assert_eq!(store.graph(&other, fixture.graph).await.unwrap(), None);
}

#[tokio::test]
async fn of_two_questions_at_one_place_the_newer_counts() {
    let fixture = Fixture::new().await;
    let at = fixture.start("t").await;
    let task = task(&at, 0, TaskState::Paused);
    let old = question(&task, at.head, InterruptKind::Node, 0, 0);
    let new = InterruptRow { interrupt: InterruptId::derive(task.task, "node", (0, 0), 1), ..old.clone() };
    let answer = Answer { value: json("1"), at: Timestamp(300), by: None, reason: Some("it expired".into()) };
    let call = Call::Interrupt { question: asks(None) };
    let row = entry(&task, 0, call, Reply::Answers(vec![None]));
    let writes = vec![
        Write::Task(task.clone()),
        Write::Journal(row.clone()),
        Write::Interrupt(InterruptRow { state: InterruptState::Answered(answer), ..old }),
        Write::Interrupt(new),
    ];
    fixture.store.commit(at.batch(writes)).await.unwrap();
    assert_eq!(fixture.store.journal(&tenant(), task.task).await.unwrap(), [row]);
}

#[tokio::test]
async fn an_effect_and_a_request_keep_what_stood_first() {
    let fixture = Fixture::new().await;
    let at = fixture.start("t").await;
    let scope =
        EffectScope { node: "sub/a".into(), effect: EffectName::parse("pay").unwrap(), key: "k\0".into() };
    let first = EffectRow {
        scope: scope.clone(),
        input: Digest::of(b"input"),
        task: TaskId::derive(at.head, 0, &node("a")),
        state: EffectState::Intended,
        at: Timestamp(1),
    };
    let outcome = EffectState::Known(EffectOutcome::Done(json("{}")));
    let later = EffectRow {
        task: TaskId::derive(at.head, 1, &node("a")),
        state: outcome.clone(),
        at: Timestamp(2),
        ..first.clone()
    };
    let request = |at, reply| Write::Request {
        request_id: "r".into(),
        command: Digest([7; 32]),
        at: Timestamp(at),
        reply,
    };
    let store = &fixture.store;
    store.commit(at.batch(vec![Write::Effect(first.clone()), request(1, None)])).await.unwrap();
    assert_eq!(store.effect(&tenant(), &at.thread, &scope).await.unwrap(), Some(first.clone()));
    let stored = store.request(&tenant(), &at.thread, "r").await.unwrap();
    assert_eq!(stored, Some(RequestRow { command: Digest([7; 32]), at: Timestamp(1), reply: None }));

    store.commit(at.batch(vec![Write::Effect(later), request(2, Some(json("[]")))])).await.unwrap();
    let right = EffectRow { state: outcome, at: Timestamp(2), ..first };
    assert_eq!(store.effect(&tenant(), &at.thread, &scope).await.unwrap(), Some(right));
    store.commit(at.batch(vec![request(3, None)])).await.unwrap();
    let stored = store.request(&tenant(), &at.thread, "r").await.unwrap();
    assert_eq!(
        stored,
        Some(RequestRow { command: Digest([7; 32]), at: Timestamp(1), reply: Some(json("[]")) })
    );
    assert_eq!(store.request(&tenant(), &at.thread, "other").await.unwrap(), None);
}

#[tokio::test]
async fn content_is_stored_once_and_by_tenant() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let info = NodeInfo { name: "n".into(), version: "1".into(), ..NodeInfo::default() };
    let bytes = vec![1; 100_000];
    let digest = Digest::of(&bytes);
    let other = TenantId::parse("other").unwrap();
    for _ in 0..2 {
        store.put_component(&tenant(), digest, bytes.clone(), &info, Timestamp(5)).await.unwrap();
    }
    let row = ComponentRow { digest, info: info.clone(), size_bytes: 100_000, installed_at: Timestamp(5) };
    assert_eq!(store.component(&tenant(), digest).await.unwrap(), Some(bytes.clone()));
    assert_eq!(store.component_info(&tenant(), digest).await.unwrap().as_ref(), Some(&row));
    assert_eq!(store.components(&tenant()).await.unwrap(), [row]);
    assert_eq!(store.component(&other, digest).await.unwrap(), None);
    store.put_component(&other, digest, bytes.clone(), &info, Timestamp(6)).await.unwrap();
    assert_eq!(store.component(&other, digest).await.unwrap(), Some(bytes.clone()));

    let wrong = store.put_component(&tenant(), Digest::of(b"x"), bytes, &info, Timestamp(5)).await;
    assert!(matches!(wrong, Err(StoreError::Rejected { .. })), "{wrong:?}");

    assert_eq!(store.graph(&tenant(), fixture.graph).await.unwrap(), Some(graph()));
    assert_eq!(store.put_graph(&tenant(), &graph(), Timestamp(9)).await.unwrap(), fixture.graph);
}

#[tokio::test]
async fn threads_are_listed_in_pages() {
    let fixture = Fixture::new().await;
    for name in ["b", "a", "c"] {
        let mut at = fixture.start(name).await;
        if name == "b" {
            let task = task(&at, 0, TaskState::Paused);
            let asked = question(&task, at.head, InterruptKind::Node, 0, 0);
            let writes = vec![Write::Task(task), Write::Interrupt(asked)];
            let batch = Batch { status: RunStatus::Interrupted, ..at.batch(writes) };
            fixture.store.commit(batch).await.unwrap();
        } else if name == "c" {
            let batch = at.step(Vec::new());
            fixture.store.commit(batch).await.unwrap();
        }
    }
    let list = async |status, after: Option<&str>, limit| {
        let filter = ThreadFilter { status, after: after.map(thread), limit };
        fixture.store.threads(&tenant(), &filter).await.unwrap()
    };
    let names = |rows: &[ThreadRow]| rows.iter().map(|row| row.thread.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&list(None, None, 2).await), ["a", "b"]);
    let rest = list(None, Some("b"), 2).await;
    assert_eq!(names(&rest), ["c"]);
    assert_eq!((rest[0].created_at, rest[0].updated_at), (Timestamp(10), Timestamp(101)));
    let interrupted = list(Some(RunStatus::Interrupted), None, u32::MAX).await;
    assert_eq!(names(&interrupted), ["b"]);
    assert_eq!((interrupted[0].pending, interrupted[0].graph.as_str()), (1, "g"));
}
