//! What is dropped, and that what is left can be read.

use super::*;
use crate::model::checkpoint::{TaskRow, TaskState};
use crate::model::ids::TaskId;

/// Three hundred boundaries, each of which appends to `log`, now and then nothing or several elements, and
/// now and then starts it anew. Returns the right value after each.
async fn log(fixture: &Fixture, at: &mut At) -> Vec<String> {
    let (mut elements, mut right) = (Vec::<i64>::new(), vec!["[]".to_owned()]);
    for i in 1..=300_i64 {
        let new: Vec<i64> = (0..i % 4).map(|n| 10 * i + n).collect();
        let write = if i % 97 == 0 {
            elements = new;
            let value = ChannelValue::Whole(json(&serde_json::to_string(&elements).unwrap()));
            Write::Channel(ChannelRow { channel: channel("log"), version: i, value })
        } else {
            let text = new.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            elements.extend(new);
            appended(i, &text, (i > 1).then_some(i - 1))
        };
        fixture.store.commit(at.step(vec![write])).await.unwrap();
        right.push(serde_json::to_string(&elements).unwrap());
    }
    right
}

async fn value(fixture: &Fixture, version: Version) -> Result<String, StoreError> {
    let wanted = [(channel("log"), version)];
    let values = fixture.store.values(&tenant(), &thread("t"), &wanted).await?;
    Ok(values[0].to_string())
}

async fn rows(fixture: &Fixture) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM channel_values");
    count.fetch_one(&mut fixture.raw().await).await.unwrap()
}

#[tokio::test]
async fn a_chain_whose_beginning_is_dropped_reads_as_before() {
    for keep in [1, 2, 7, 40, 299] {
        let fixture = Fixture::new().await;
        let mut at = fixture.start("t").await;
        let right = log(&fixture, &mut at).await;
        let pruned = fixture.store.prune(&tenant(), &at.thread, keep).await.unwrap().unwrap();
        assert_eq!(pruned.checkpoints, 301 - u64::from(keep));
        assert_eq!(rows(&fixture).await, i64::from(keep), "keep {keep}");
        let oldest = 301 - i64::from(keep);
        for version in oldest..=300 {
            assert_eq!(value(&fixture, version).await.unwrap(), right[usize::try_from(version).unwrap()]);
        }
        assert!(value(&fixture, oldest - 1).await.is_err());
        // And goes on.
        fixture.store.commit(at.step(vec![appended(301, "7", Some(300))])).await.unwrap();
        assert_eq!(value(&fixture, 301).await.unwrap(), right[300].replace(']', ",7]").replace("[,", "["));
    }
}

#[tokio::test]
async fn what_was_found_out_of_a_thread_that_has_moved_on_drops_nothing() {
    let fixture = Fixture::new().await;
    let mut at = fixture.start("t").await;
    log(&fixture, &mut at).await;
    let late = fixture.store.to_prune(&tenant(), &at.thread, 2).await.unwrap().unwrap().unwrap();
    fixture.store.commit(at.step(vec![appended(301, "7", Some(300))])).await.unwrap();
    let end = fixture.store.inner.work(Work::Prune(Box::new(late))).await;
    assert!(matches!(end, Err(CommitError::Conflict)));
    assert_eq!(rows(&fixture).await, 301);
    let head = at.head;
    fixture.store.commit(at.step(Vec::new())).await.unwrap();
    assert_eq!(fixture.store.delete(&tenant(), &at.thread, head, at.epoch).await, Err(CommitError::Conflict));
    assert_eq!(fixture.store.delete(&tenant(), &at.thread, at.head, at.epoch).await, Ok(()));
    assert_eq!(
        fixture.store.delete(&tenant(), &at.thread, at.head, at.epoch).await,
        Err(CommitError::Conflict)
    );
    assert_eq!(rows(&fixture).await, 0);
    assert_eq!(fixture.store.prune(&tenant(), &at.thread, 2).await, Ok(None));
}

#[tokio::test]
async fn two_that_prune_at_once_leave_what_both_keep() {
    for order in [[1, 5], [5, 1]] {
        let fixture = Fixture::new().await;
        let mut at = fixture.start("t").await;
        let right = log(&fixture, &mut at).await;
        let mut found = Vec::new();
        for keep in order {
            found.push(fixture.store.to_prune(&tenant(), &at.thread, keep).await.unwrap().unwrap().unwrap());
        }
        for prune in found {
            fixture.store.inner.work(Work::Prune(Box::new(prune))).await.unwrap();
        }
        assert_eq!(rows(&fixture).await, 1);
        assert_eq!(value(&fixture, 300).await.unwrap(), right[300]);
    }
}

/// A task of a boundary, and the child run that it is, at so many boundaries of its own.
fn child(fixture: &Fixture, at: &At, place: usize, versions: &[Version]) -> Vec<Write> {
    let task = TaskId::derive(at.head, place, &node("a"));
    let mut run = run_row(fixture.graph);
    let boundaries: Vec<_> = versions.iter().map(|&version| boundary(run.run, None, version)).collect();
    (run.parent, run.head) = (Some((at.run, task)), boundaries.last().map(|row| row.checkpoint));
    let task = TaskRow {
        task,
        run: at.run,
        boundary: at.head,
        index: place,
        node: node("a"),
        component: fixture.graph,
        child: Some(run.run),
        attempts: 1,
        generation: 0,
        settings: 0,
        failures: 0,
        state: TaskState::Paused,
    };
    let boundaries = boundaries.into_iter().map(Write::Checkpoint);
    [Write::Run(run), Write::Task(task)].into_iter().chain(boundaries).collect()
}

#[tokio::test]
async fn of_each_run_the_latest_stay_and_a_child_goes_with_what_it_hangs_on() {
    let fixture = Fixture::new().await;
    let mut at = fixture.start("t").await;
    let mut version = 0;
    for _ in 0..4 {
        let children: Vec<Write> =
            (0..2).flat_map(|place| child(&fixture, &at, place, &[version; 5])).collect();
        fixture.store.commit(at.batch(children)).await.unwrap();
        fixture.store.commit(at.step(Vec::new())).await.unwrap();
        version += 1;
    }
    let children: Vec<Write> = child(&fixture, &at, 0, &[version; 5]);
    fixture.store.commit(at.batch(children)).await.unwrap();
    let before = fixture.store.load(&tenant(), &at.thread).await.unwrap();
    // Five boundaries of the root, two children each but the last, five boundaries each.
    let pruned = fixture.store.prune(&tenant(), &at.thread, 2).await.unwrap().unwrap();
    assert_eq!(fixture.store.load(&tenant(), &at.thread).await.unwrap(), before);
    // Left: two of the root; three children with two each.
    let left = fixture.store.history(&tenant(), &at.thread, None, 100).await.unwrap();
    assert_eq!((left.len(), pruned.checkpoints), (8, 5 + 9 * 5 - 8));
    assert_eq!((pruned.tasks, pruned.runs), (6, 6));
    assert_eq!(fixture.store.runs(&tenant(), &at.thread).await.unwrap().len(), 4);
}

#[tokio::test]
async fn pruning_costs_what_there_is_to_look_at() {
    let fixture = Fixture::new().await;
    let mut at = fixture.start("t").await;
    for _ in 0..1_500 {
        fixture.store.commit(at.batch(child(&fixture, &at, 0, &[0, 1]))).await.unwrap();
        fixture.store.commit(at.step(Vec::new())).await.unwrap();
    }
    let before = fixture.store.counters().statements;
    let pruned = fixture.store.prune(&tenant(), &at.thread, 700).await.unwrap().unwrap();
    assert_eq!(pruned.checkpoints, 801 + 801 * 2);
    assert!(fixture.store.counters().statements - before < 20);
}
