//! Group commit, and what sinks what.

use super::*;
use futures::future::join_all;

#[tokio::test]
async fn batches_that_wait_are_committed_together_and_a_refused_one_sinks_alone() {
    let fixture = Fixture::new().await;
    let before = fixture.store.counters();
    let mut batches = Vec::new();
    for i in 0..60 {
        batches.push(fixture.starting(&format!("t{i}")).0);
    }
    // Among them: one that conflicts, one that the schema refuses.
    batches.insert(20, fixture.starting("nobody").1.batch(Vec::new()));
    let mut bad = fixture.starting("bad").0;
    bad.writes.push(bad.writes[0].clone());
    batches.insert(40, bad);

    let ends = join_all(batches.into_iter().map(|batch| fixture.store.commit(batch))).await;
    let failed: Vec<_> = ends.iter().enumerate().filter(|(_, end)| end.is_err()).collect();
    assert!(matches!(
        failed[..],
        [(20, Err(CommitError::Conflict)), (40, Err(CommitError::Store(StoreError::Rejected { .. })))]
    ));
    let after = fixture.store.counters();
    assert_eq!(after.batches - before.batches, 62);
    assert!(after.commits - before.commits < 20, "{after:?}");
    assert!(fixture.store.load(&tenant(), &thread("bad")).await.unwrap().is_none());
    for i in 0..60 {
        assert!(fixture.store.load(&tenant(), &thread(&format!("t{i}"))).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_whole_group_and_the_next_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.db");
    let options = OpenOptions::default();
    open::open(&path, options).await.unwrap();
    // At 100 pages the disk is full.
    let writing = Connect::new(&path, options).pragma("max_page_count", 100);
    let store = Store::start(&path, writing, options).unwrap();
    let graph = store.put_graph(&tenant(), &graph(), Timestamp(1)).await.unwrap();
    let fixture = Fixture { path, store, graph, _folder: folder };

    let (small, at) = fixture.starting("small");
    let (mut big, _) = fixture.starting("big");
    big.writes.push(appended(0, &format!("\"{}\"", "x".repeat(2 << 20)), None));
    let big_again = big.clone();
    let small_again = small.clone();
    // Both come while the writer waits for another process, and are next together.
    let mut other = fixture.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let waiting = fixture.store.commit(fixture.starting("waiting").0);
    let (small, big) = (fixture.store.commit(small), fixture.store.commit(big));
    futures::pin_mut!(waiting, small, big);
    let before = fixture.store.counters().batches;
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    while fixture.store.counters().batches == before {
        tokio::task::yield_now().await;
    }
    assert!(futures::poll!(small.as_mut()).is_pending() && futures::poll!(big.as_mut()).is_pending());
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    waiting.await.unwrap();
    let (first, second) = tokio::join!(small, big);
    let full = Err(CommitError::Store(StoreError::Full { file: fixture.path.display().to_string() }));
    assert_eq!(second, full);
    assert_eq!(first, full, "they were in one transaction");
    assert_eq!(fixture.store.load(&tenant(), &at.thread).await.unwrap(), None);

    fixture.store.commit(small_again).await.unwrap();
    assert!(fixture.store.load(&tenant(), &at.thread).await.unwrap().is_some());
    assert_eq!(fixture.store.commit(big_again).await, full);
}

#[tokio::test]
async fn a_locked_file_is_waited_for_and_then_named() {
    let mut fixture = Fixture::new().await;
    let options = OpenOptions { locked_after_ms: 200, ..OpenOptions::default() };
    fixture.store.close().await;
    fixture.store = Store::open_with(&fixture.path, options).await.unwrap();
    let mut other = fixture.raw().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let (batch, at) = fixture.starting("t");
    let locked = StoreError::Locked { file: fixture.path.display().to_string(), waited_ms: 200 };
    assert_eq!(fixture.store.commit(batch.clone()).await, Err(CommitError::Store(locked)));
    // Readers do not mind.
    assert_eq!(fixture.store.load(&tenant(), &at.thread).await.unwrap(), None);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    fixture.store.commit(batch).await.unwrap();
}

#[tokio::test]
async fn a_closed_store_says_so_and_leaves_one_file() {
    let fixture = Fixture::new().await;
    let at = fixture.start("t").await;
    let clone = fixture.store.clone();
    fixture.store.close().await;
    let closed = StoreError::Closed { file: fixture.path.display().to_string() };
    assert_eq!(clone.commit(at.batch(Vec::new())).await, Err(CommitError::Store(closed.clone())));
    assert_eq!(clone.load(&tenant(), &at.thread).await, Err(closed));
    let names: Vec<_> = std::fs::read_dir(fixture.path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["h.db"]);
    let again = Store::open(&fixture.path).await.unwrap();
    assert!(again.load(&tenant(), &at.thread).await.unwrap().is_some());
}

#[tokio::test]
async fn a_batch_goes_on_when_its_caller_stops_waiting() {
    let fixture = Fixture::new().await;
    let (batch, at) = fixture.starting("t");
    let waiting = fixture.store.commit(batch);
    futures::pin_mut!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let clone = fixture.store.clone();
    clone
        .put_graph(&tenant(), &CompiledGraph { name: "after".into(), ..graph() }, Timestamp(1))
        .await
        .unwrap();
    assert!(fixture.store.load(&tenant(), &at.thread).await.unwrap().is_some());
}
