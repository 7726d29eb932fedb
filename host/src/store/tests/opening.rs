//! Which files are taken, and what is said of the others.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::*;

async fn file_with(path: &std::path::Path, statements: &'static str) {
    let connecting = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = connecting.connect().await.unwrap();
    sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn the_settings_that_durability_needs_are_on() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut raw).await.unwrap();
    assert_eq!(mode, "wal");
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut raw).await.unwrap();
    assert_eq!(synchronous, 2);
    let id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut raw).await.unwrap();
    assert_eq!(id, 0x484F_4C44);
    let loose: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0 \
         AND name NOT LIKE 'sqlite%' AND name NOT LIKE '_sqlx%'",
    )
    .fetch_one(&mut raw)
    .await
    .unwrap();
    assert_eq!(loose, 0, "every table is strict");
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("tables.db");
    file_with(&tables, "CREATE TABLE notes (text TEXT)").await;
    let id = folder.path().join("id.db");
    file_with(&id, "PRAGMA application_id = 7; CREATE TABLE notes (text TEXT)").await;
    let text = folder.path().join("text.db");
    std::fs::write(&text, "dear diary\n".repeat(1000)).unwrap();
    for path in [tables, id, text] {
        let before = std::fs::read(&path).unwrap();
        let error = Store::open(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{error}");
    }
    // Empty files are nobody's.
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    Store::open(&empty).await.unwrap();
}

#[tokio::test]
async fn a_newer_or_another_schema_is_refused_by_name() {
    let fixture = Fixture::new().await;
    fixture.execute("INSERT INTO _sqlx_migrations VALUES (9000, 'later', '2100-01-01', 1, x'00', 1)").await;
    let error = Store::open(&fixture.path).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 9000, known: 3, .. }), "{error}");
    fixture.execute("DELETE FROM _sqlx_migrations WHERE version = 9000").await;
    fixture.execute("UPDATE _sqlx_migrations SET checksum = x'00'").await;
    let error = Store::open(&fixture.path).await.unwrap_err();
    assert!(matches!(error, StoreError::OtherSchema { version: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_or_made_is_refused() {
    let fixture = Fixture::new().await;
    fixture.store.clone().close().await;
    let mut mode = std::fs::metadata(&fixture.path).unwrap().permissions();
    mode.set_readonly(true);
    std::fs::set_permissions(&fixture.path, mode).unwrap();
    let error = Store::open(&fixture.path).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");

    let nowhere = fixture.path.with_file_name("missing").join("h.db");
    let error = Store::open(&nowhere).await.unwrap_err();
    assert!(matches!(error, StoreError::CannotOpen { .. }), "{error}");
    let error = Store::open(fixture.path.parent().unwrap()).await.unwrap_err();
    assert!(matches!(error, StoreError::CannotOpen { .. }), "{error}");
}

#[tokio::test]
async fn a_locked_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.db");
    let connecting = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut other = connecting.connect().await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let options = OpenOptions { locked_after_ms: 100, ..OpenOptions::default() };
    let error = Store::open_with(&path, options).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked { waited_ms: 100, .. }), "{error}");
}
