//! SQLite by itself: three rows in a transaction that is durable, with the pragmas of the product's database.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};

const TABLE: &str =
    "CREATE TABLE rows (row INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, value TEXT NOT NULL) STRICT";
const INSERT: &str = "INSERT INTO rows (id, value) VALUES (?1, ?2)";
/// All of it handed to SQLite's thread at once.
const AT_ONCE: &str = "BEGIN IMMEDIATE; \
    INSERT INTO rows (id, value) VALUES ($1, $4); \
    INSERT INTO rows (id, value) VALUES ($2, $4); \
    INSERT INTO rows (id, value) VALUES ($3, $4); \
    COMMIT";

/// A question, a task, a checkpoint are of about this size.
const VALUE_BYTES: usize = 160;
pub const ROWS: usize = 3;

pub struct BareCommit {
    connection: SqliteConnection,
    value: String,
}

impl BareCommit {
    pub async fn open(path: &Path) -> anyhow::Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(5))
            .foreign_keys(true)
            .page_size(8192)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", "16777216")
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        sqlx::query(TABLE).execute(&mut connection).await?;
        Ok(Self { connection, value: "x".repeat(VALUE_BYTES) })
    }

    /// `batches` times three rows, one commit.
    pub async fn commit(&mut self, batches: usize) -> anyhow::Result<()> {
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        for _ in 0..batches * ROWS {
            let insert = sqlx::query(INSERT).bind(id()).bind(self.value.as_str());
            insert.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// The same three rows, without waiting for each.
    pub async fn commit_at_once(&mut self) -> anyhow::Result<()> {
        let all = sqlx::query(AT_ONCE).bind(id()).bind(id()).bind(id()).bind(self.value.as_str());
        all.execute(&mut self.connection).await?;
        Ok(())
    }

    /// What any statement costs before it does anything: to SQLite's thread and back.
    pub async fn trip(&mut self) -> anyhow::Result<()> {
        sqlx::query("SELECT 1 WHERE ?1").bind(false).execute(&mut self.connection).await?;
        Ok(())
    }
}

fn id() -> Vec<u8> {
    uuid::Uuid::now_v7().as_bytes().to_vec()
}
