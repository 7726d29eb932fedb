//! Nothing is written on a thread that is not as its writer thinks.

use super::*;
use crate::model::checkpoint::{Answer, InterruptRow, InterruptState, TaskRow, TaskState, Withdrawal};
use crate::model::ids::{InterruptId, TaskId};
use crate::model::interrupt::InterruptKind;

#[tokio::test]
async fn a_stale_head_or_epoch_or_a_second_birth_is_a_conflict() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (birth, _) = fixture.starting("t");
    let nobody = fixture.starting("nobody").1;
    let mut at = fixture.start("t").await;
    assert_eq!(store.commit(birth).await, Err(CommitError::Conflict));
    assert_eq!(store.commit(nobody.batch(Vec::new())).await, Err(CommitError::Conflict));
    let elsewhere = Batch { tenant: TenantId::parse("x").unwrap(), ..at.batch(Vec::new()) };
    assert_eq!(store.commit(elsewhere).await, Err(CommitError::Conflict));

    let before = at.clone();
    let step = at.step(Vec::new());
    store.commit(step).await.unwrap();
    let mut late = before.clone();
    assert_eq!(store.commit(late.step(Vec::new())).await, Err(CommitError::Conflict));
    let wrong_epoch = At { epoch: 1, ..at.clone() };
    assert_eq!(store.commit(wrong_epoch.batch(Vec::new())).await, Err(CommitError::Conflict));
    let loaded = store.load(&tenant(), &at.thread).await.unwrap().unwrap();
    assert_eq!((loaded.head, loaded.version), (at.head, 1));
    assert_eq!(store.history(&tenant(), &at.thread, None, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn of_two_racing_batches_one_wins() {
    let fixture = Fixture::new().await;
    for round in 0..20 {
        let at = fixture.start(&format!("t{round}")).await;
        let [mut one, mut two] = [at.clone(), at.clone()];
        let (one, two) = tokio::join!(
            fixture.store.commit(one.step(Vec::new())),
            fixture.store.commit(two.step(Vec::new()))
        );
        assert_eq!([&one, &two].iter().filter(|end| end.is_ok()).count(), 1);
        assert!([one, two].contains(&Err(CommitError::Conflict)));
    }
}

#[tokio::test]
async fn a_claim_shuts_out_whoever_held_the_thread_before() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let at = fixture.start("t").await;
    let change = async |epoch, lease| {
        let at = At { epoch, ..at.clone() };
        store.commit(Batch { lease, ..at.batch(Vec::new()) }).await.map(|committed| committed.epoch)
    };
    let lease = async || store.lease(&tenant(), &at.thread).await.unwrap().unwrap();
    let claim = |owner, until| LeaseChange::Claim { owner: OwnerId(owner), until: Timestamp(until) };
    let renew = |until| LeaseChange::Renew { until: Timestamp(until) };
    let held = |owner, until| Some(Lease { owner: OwnerId(owner), until: Timestamp(until) });

    assert_eq!(change(0, renew(5)).await, Err(CommitError::Conflict), "nobody holds it");
    assert_eq!(change(0, claim(1, 10)).await, Ok(1));
    assert_eq!(lease().await, LeaseState { epoch: 1, lease: held(1, 10) });
    assert_eq!(change(1, renew(20)).await, Ok(1));
    assert_eq!(change(1, LeaseChange::Keep).await, Ok(1));
    assert_eq!(lease().await, LeaseState { epoch: 1, lease: held(1, 20) });
    assert_eq!(change(1, claim(2, 30)).await, Ok(2));
    assert_eq!(change(1, renew(40)).await, Err(CommitError::Conflict), "the first owner is too late");
    assert_eq!(change(1, LeaseChange::Keep).await, Err(CommitError::Conflict));
    assert_eq!(change(2, LeaseChange::Release).await, Ok(3));
    assert_eq!(lease().await, LeaseState { epoch: 3, lease: None });
    assert_eq!(store.lease(&tenant(), &thread("other")).await, Ok(None));
}

#[tokio::test]
async fn a_question_takes_one_answer_and_a_conflict_writes_nothing() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut at = fixture.start("t").await;
    let task = TaskId::derive(at.head, 0, &node("a"));
    let task_row = TaskRow {
        task,
        run: at.run,
        boundary: at.head,
        index: 0,
        node: node("a"),
        component: Digest::of(b"c"),
        child: None,
        attempts: 1,
        generation: 0,
        settings: 0,
        failures: 0,
        state: TaskState::Paused,
    };
    let interrupt = InterruptId::derive(task, "node", (0, 0), 0);
    let asked = InterruptRow {
        interrupt,
        run: at.run,
        task,
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
    store.commit(at.batch(vec![Write::Task(task_row), Write::Interrupt(asked)])).await.unwrap();

    // Not through another thread.
    let other = fixture.start("other").await;
    let answer = |value: &str| Answer { value: json(value), at: Timestamp(2), by: None, reason: None };
    let give = |value: &str| Write::Answer { interrupt, answer: answer(value) };
    assert_eq!(store.commit(other.batch(vec![give("0")])).await, Err(CommitError::Conflict));

    store.commit(at.batch(vec![give("1")])).await.unwrap();
    let before = at.clone();
    let second = at.step(vec![give("2")]);
    assert_eq!(store.commit(second).await, Err(CommitError::Conflict));
    let withdraw = Write::Withdraw {
        interrupt,
        withdrawal: Withdrawal { at: Timestamp(3), by: None, reason: "late".into() },
    };
    assert_eq!(store.commit(before.batch(vec![withdraw])).await, Err(CommitError::Conflict));
    let loaded = store.load(&tenant(), &at.thread).await.unwrap().unwrap();
    assert_eq!(loaded.head, before.head);
    assert_eq!(loaded.root.interrupts[0].state, InterruptState::Answered(answer("1")));
}

#[tokio::test]
async fn what_the_schema_does_not_take_is_refused_by_name() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut at = fixture.start("t").await;
    let rejected = async |batch: Batch| match store.commit(batch).await {
        Err(CommitError::Store(StoreError::Rejected { what })) => what,
        other => panic!("{other:?}"),
    };
    let run = run_row(Digest::of(b"no graph"));
    let what = rejected(at.batch(vec![Write::Run(run.clone())])).await;
    assert!(what.contains(&run.run.to_string()) && what.contains("FOREIGN KEY"), "{what}");

    let nowhere = Batch { head: CheckpointId::fresh(), ..at.batch(Vec::new()) };
    assert!(rejected(nowhere).await.contains("no checkpoint"));
    let (mut birth, _) = fixture.starting("new");
    let run = birth.writes.remove(0);
    assert!(rejected(birth.clone()).await.contains("starts with"));
    birth.writes = vec![run];
    assert!(rejected(birth).await.contains("no checkpoint"));

    let mut writes = vec![appended(1, "1", None), appended(1, "2", None)];
    assert!(rejected(at.clone().step(writes.clone())).await.contains("channel log at version 1"));
    writes.truncate(1);
    store.commit(at.step(writes)).await.unwrap();
}
