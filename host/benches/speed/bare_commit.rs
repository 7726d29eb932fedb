//! SQLite by itself, with the pragmas of the product's database: the same rows that a start and a resume leave,
//! in tables of the same schema, and three rows in a table that has nothing else. Each is one transaction that
//! is durable, handed to SQLite's thread in one text.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdpoint::{Command, RunConfig};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Sqlite, SqliteConnection};
use uuid::Uuid;

use crate::rows::{Ids, Names, Rows};
use crate::{Page, node};

const TABLE: &str =
    "CREATE TABLE rows (row INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, value TEXT NOT NULL) STRICT";
const INSERT: &str = "INSERT INTO rows (id, value) VALUES (?1, ?2)";
const THREE: &str = "BEGIN IMMEDIATE; \
    INSERT INTO rows (id, value) VALUES ($1, $4); \
    INSERT INTO rows (id, value) VALUES ($2, $4); \
    INSERT INTO rows (id, value) VALUES ($3, $4); \
    COMMIT";

/// A question, a task, a checkpoint are of about this size.
const VALUE_BYTES: usize = 160;
const ROWS: usize = 3;

const NAMES: Names = Names { thread: "$1", name: "$2", id: |at| format!("${}", at + 3) };

pub struct BareCommit {
    three: SqliteConnection,
    value: String,
    same: SqliteConnection,
    start: Text,
    resume: Text,
    ids: Ids,
    threads: i64,
}

struct Text {
    /// A statement a row.
    rows: usize,
    bare: Arc<str>,
    /// In a transaction of its own.
    durable: Arc<str>,
}

/// A thread that was put down, by its number and ids.
pub struct Put(i64, Vec<Uuid>);

impl BareCommit {
    pub async fn open(page: &Page) -> anyhow::Result<Self> {
        let mut three = connect(&page.dir.join("bare.db")).await?;
        sqlx::query(TABLE).execute(&mut three).await?;

        let db = page.dir.join("bare-same.db");
        let host = page.host(&db).await?;
        let graph = host.compile(&node::graph(&node::component())).await?;
        let mut same = connect(&db).await?;
        let mut ids = Ids::new();
        graph.invoke(RunConfig::thread("example"), node::input()).await?;
        let paused = Rows::of(&mut same, "example", &mut ids).await?;
        graph.resume(RunConfig::thread("example"), Command::resume(node::answer())).await?;
        let completed = Rows::of(&mut same, "example", &mut ids).await?;
        host.close().await;

        let start = Text::of(&paused.inserts(&NAMES, ""));
        let resume = Text::of(&completed.changes(&paused, &NAMES));
        Ok(Self { three, value: "x".repeat(VALUE_BYTES), same, start, resume, ids, threads: 1 })
    }

    /// How many rows a start inserts, and a resume inserts or changes.
    pub fn rows(&self) -> (usize, usize) {
        (self.start.rows, self.resume.rows)
    }

    /// What a start writes, on a thread of its own.
    pub async fn start(&mut self) -> anyhow::Result<Put> {
        let put = self.fresh();
        put.with(self.start.durable.clone()).execute(&mut self.same).await?;
        Ok(put)
    }

    /// What a resume writes, on a thread that was put down.
    pub async fn resume(&mut self, put: &Put) -> anyhow::Result<()> {
        put.with(self.resume.durable.clone()).execute(&mut self.same).await?;
        Ok(())
    }

    /// What so many starts write and then as many resumes, each of the two in one commit.
    pub async fn cycles(&mut self, count: usize) -> anyhow::Result<()> {
        let put: Vec<Put> = (0..count).map(|_| self.fresh()).collect();
        for text in [&self.start, &self.resume] {
            let mut transaction = self.same.begin_with("BEGIN IMMEDIATE").await?;
            for put in &put {
                put.with(text.bare.clone()).execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
        }
        Ok(())
    }

    fn fresh(&mut self) -> Put {
        self.threads += 1;
        // All begin with the time, as those of the product do.
        let ids = self.ids.iter().map(|_| Uuid::now_v7());
        Put(self.threads, ids.collect())
    }

    /// Three rows.
    pub async fn three(&mut self) -> anyhow::Result<()> {
        let all = sqlx::query(THREE).bind(id()).bind(id()).bind(id()).bind(self.value.as_str());
        all.execute(&mut self.three).await?;
        Ok(())
    }

    /// `batches` times three rows, one commit.
    pub async fn batches(&mut self, batches: usize) -> anyhow::Result<()> {
        let mut transaction = self.three.begin_with("BEGIN IMMEDIATE").await?;
        for _ in 0..batches * ROWS {
            let insert = sqlx::query(INSERT).bind(id()).bind(self.value.as_str());
            insert.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// What any statement costs before it does anything: to SQLite's thread and back.
    pub async fn trip(&mut self) -> anyhow::Result<()> {
        sqlx::query("SELECT 1 WHERE ?1").bind(false).execute(&mut self.three).await?;
        Ok(())
    }
}

impl Text {
    fn of(statements: &[String]) -> Self {
        let all = statements.join("; ");
        let durable = format!("BEGIN IMMEDIATE; {all}; COMMIT").into();
        Self { rows: statements.len(), bare: all.into(), durable }
    }
}

impl Put {
    fn with(&self, text: Arc<str>) -> Query<'static, Sqlite, SqliteArguments> {
        let query = sqlx::query(AssertSqlSafe(text)).bind(self.0).bind(format!("bare-{}", self.0));
        self.1.iter().fold(query, |query, id| query.bind(id.as_bytes().to_vec()))
    }
}

async fn connect(path: &Path) -> anyhow::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(Duration::from_secs(5))
        .foreign_keys(true)
        .page_size(8192)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", "16777216")
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging();
    Ok(options.connect().await?)
}

fn id() -> Vec<u8> {
    Uuid::now_v7().as_bytes().to_vec()
}
