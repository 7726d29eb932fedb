//! A database with many paused threads, made fast: SQL copies the rows of one thread that really paused, under
//! names, numbers and ids of their own. That they are threads shows when they are resumed.

use std::path::{Path, PathBuf};

use holdpoint::{GraphSpec, RunConfig, RunStatus};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::attempt::now;
use crate::report::Report;
use crate::rows::{Ids, Names, Rows};
use crate::{Page, node};

/// In one transaction.
const CHUNK: usize = 20_000;

const NAMES: Names = Names { thread: "c.thread", name: "c.name", id: |at| format!("c.id{at}") };

/// The thread that is copied.
const EXAMPLE: &str = "example";

/// The name of a copy.
pub fn name(i: usize) -> String {
    format!("paused-{i}")
}

/// A database of this name that holds, beside an example, `count` threads which wait for the answer to the
/// last of `questions`.
pub async fn database(
    (page, report): (&Page, &Report),
    name: &str,
    (count, questions): (usize, usize),
    (graph, input): (&GraphSpec, Value),
) -> anyhow::Result<PathBuf> {
    let db = page.dir.join(name).with_extension("db");
    if db.exists() {
        return Ok(db);
    }
    let host = page.host(&db).await?;
    let graph = host.compile(graph).await?;
    let mut execution = graph.invoke(RunConfig::thread(EXAMPLE), input).await?;
    for _ in 1..questions {
        let command = holdpoint::Command::resume(node::answer());
        execution = graph.resume(RunConfig::thread(EXAMPLE), command).await?;
    }
    anyhow::ensure!(execution.status == RunStatus::Interrupted, "{execution:#?}");
    host.close().await;

    let mut connection = connect(&db).await?;
    let mut ids = Ids::new();
    let rows = Rows::of(&mut connection, EXAMPLE, &mut ids).await?;
    if count >= CHUNK {
        report.progress(format!("{count} paused threads are put into a database"));
    }
    for from in (0..count).step_by(CHUNK) {
        copy(&mut connection, &rows, &ids, from..count.min(from + CHUNK), count).await?;
    }
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    connection.close().await?;
    Ok(db)
}

/// The same for one question; made once in a run.
pub async fn paused(of: (&Page, &Report), count: usize) -> anyhow::Result<PathBuf> {
    let spec = node::graph(&node::component());
    database(of, &format!("paused-{count}"), (count, 1), (&spec, node::input())).await
}

/// To a file that nobody else has open, and that need not outlive the machine.
async fn connect(db: &Path) -> anyhow::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(db)
        .synchronous(SqliteSynchronous::Off)
        .foreign_keys(false)
        .pragma("temp_store", "MEMORY")
        .pragma("cache_size", "-262144")
        .disable_statement_logging();
    Ok(options.connect().await?)
}

async fn copy(
    connection: &mut SqliteConnection,
    rows: &Rows,
    ids: &Ids,
    range: std::ops::Range<usize>,
    count: usize,
) -> anyhow::Result<()> {
    let mut transaction = connection.begin().await?;
    let columns: Vec<String> = (0..ids.len()).map(|at| format!("id{at} BLOB")).collect();
    let table = format!("CREATE TEMP TABLE copies (thread INTEGER, name TEXT, {})", columns.join(", "));
    sqlx::query(AssertSqlSafe(table)).execute(&mut *transaction).await?;
    // Ids begin with a time here too; theirs lies in the past.
    let slots = ids.len();
    let began_ms = now().0 - (count * slots) as i64;
    let fresh: Vec<String> = ids
        .iter()
        .enumerate()
        .map(|(slot, id)| {
            let version = id[6] >> 4;
            format!(
                "unhex(printf('%012x{version}000', {began_ms} + {slots} * n + {slot}) || hex(randomblob(8)))"
            )
        })
        .collect();
    let fill = format!(
        "WITH RECURSIVE k(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM k WHERE n + 1 < {}) \
         INSERT INTO copies SELECT 2 + n, 'paused-' || n, {} FROM k",
        range.start,
        range.end,
        fresh.join(", "),
    );
    sqlx::query(AssertSqlSafe(fill)).execute(&mut *transaction).await?;
    for insert in rows.inserts(&NAMES, " FROM copies c") {
        sqlx::query(AssertSqlSafe(insert)).persistent(false).execute(&mut *transaction).await?;
    }
    sqlx::query("DROP TABLE copies").execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}
