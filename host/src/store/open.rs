//! Opening the file: made if it is not there, brought up to this build's schema, or refused and left
//! as it is.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection as _, SqliteConnection};

use super::error::{StoreError, is_busy};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// "HOLD": says in the file's header whose it is.
const APPLICATION_ID: i64 = 0x484F_4C44;
const SET_APPLICATION_ID: &str = "PRAGMA application_id = 0x484F4C44";
/// Of a new file. Four rows of a kilobyte do not fit into SQLite's usual 4 KB, seven do into this.
const PAGE_BYTES: u32 = 8192;
/// What the log is cut back to after a burst; between bursts SQLite folds it into the file at 8 MB.
const LOG_BYTES_MAX: i64 = 16 << 20;
/// Pages that the writer keeps at hand; negative, because else SQLite counts pages.
const WRITER_CACHE_KIB: i64 = -16 * 1024;
/// More than there are different statements.
const STATEMENTS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Readers at once; more wait for one another.
    pub readers: u32,
    /// How long another process's transaction is waited for.
    pub locked_after_ms: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { readers: 4, locked_after_ms: 5_000 }
    }
}

/// What every connection to the file has in common.
pub(super) fn connecting(path: &Path, options: OpenOptions) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(Duration::from_millis(options.locked_after_ms))
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", LOG_BYTES_MAX.to_string())
        // What a savepoint could undo is kept in memory; else SQLite copies it to a file in /var/tmp.
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// A connection to a file that is ours and of this build's schema by now.
pub(super) async fn open(path: &Path, options: OpenOptions) -> Result<SqliteConnection, StoreError> {
    let file = path.display().to_string();
    // By its mode, not by opening it: to close a file that SQLite has open drops SQLite's locks. And
    // SQLite itself would open it for reading, and root for writing.
    if std::fs::metadata(path).is_ok_and(|of| of.permissions().readonly()) {
        return Err(StoreError::ReadOnly { file });
    }
    let failed = |error: sqlx::Error| StoreError::of(&file, options.locked_after_ms, error);
    let connect = connecting(path, options).create_if_missing(true).page_size(PAGE_BYTES);
    super::faults::operation().map_err(|error| StoreError::of(&file, options.locked_after_ms, error))?;
    let mut connection = connect.connect().await.map_err(failed)?;
    if look(&mut connection, &file).await.map_err(|e| e.of(&file, options))? == Found::Older {
        migrate(&mut connection, &file).await.map_err(|e| e.of(&file, options))?;
    }
    log_ahead(&mut connection, options).await.map_err(failed)?;
    Ok(connection)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Empty, or of an earlier schema.
    Older,
    Current,
}

enum Refused {
    Store(StoreError),
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl Refused {
    fn of(self, file: &str, options: OpenOptions) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => StoreError::of(file, options.locked_after_ms, error),
        }
    }
}

/// Whose file it is, and how old. Changes nothing.
async fn look(connection: &mut SqliteConnection, file: &str) -> Result<Found, Refused> {
    let mut connection = connection.begin().await?;
    let owner: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(&mut *connection).await?;
    if tables == 0 {
        return Ok(Found::Older);
    }
    if owner != APPLICATION_ID {
        let what = match owner {
            0 => "it holds tables of something else".to_owned(),
            other => format!("its application id is {other:#010x}"),
        };
        return Err(Refused::Store(StoreError::NotOurs { file: file.to_owned(), what }));
    }
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")
            .fetch_all(&mut *connection)
            .await?;
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let found = applied.last().map_or(0, |(version, _)| *version);
    if found > known {
        return Err(Refused::Store(StoreError::Newer { file: file.to_owned(), found, known }));
    }
    for (version, checksum) in &applied {
        let same = |migration: &sqlx::migrate::Migration| {
            migration.version == *version && *migration.checksum == **checksum
        };
        if !MIGRATIONS.iter().any(same) {
            let version = *version;
            return Err(Refused::Store(StoreError::OtherSchema { file: file.to_owned(), version }));
        }
    }
    Ok(if found == known { Found::Current } else { Found::Older })
}

/// All missing migrations in one transaction, which is the lock between processes: the migrator's own
/// does nothing on SQLite. Who comes second waits here, and finds nothing left to do.
async fn migrate(connection: &mut SqliteConnection, file: &str) -> Result<(), Refused> {
    let mut transaction = connection.begin_with("BEGIN EXCLUSIVE").await?;
    if look(&mut transaction, file).await? == Found::Older {
        sqlx::query(SET_APPLICATION_ID).execute(&mut *transaction).await?;
        MIGRATIONS.run_direct(None, &mut *transaction, false).await.map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Refused::Sql(error),
            other => Refused::Store(StoreError::Io { file: file.to_owned(), what: other.to_string() }),
        })?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Write-ahead logging stays with the file once it is set. To set it takes the file alone, for which
/// SQLite does not wait by itself.
async fn log_ahead(connection: &mut SqliteConnection, options: OpenOptions) -> Result<(), sqlx::Error> {
    let deadline = Instant::now() + Duration::from_millis(options.locked_after_ms);
    loop {
        match sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *connection).await {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => return other.map(drop),
        }
    }
}

/// How connections to a file that is open already are made: the one that writes, anew after a failure, and
/// readers.
#[derive(Clone)]
pub(super) struct Connect {
    path: PathBuf,
    locked_after_ms: u64,
    /// Of the one that writes, beside those that all have.
    pragmas: Vec<(&'static str, i64)>,
}

impl Connect {
    pub fn new(path: &Path, options: OpenOptions) -> Self {
        Self { path: path.to_owned(), locked_after_ms: options.locked_after_ms, pragmas: Vec::new() }
    }

    #[cfg(test)]
    pub fn pragma(mut self, name: &'static str, value: i64) -> Self {
        self.pragmas.push((name, value));
        self
    }

    pub fn writer(&self) -> rusqlite::Result<Connection> {
        let connection = self.connection(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
        connection.pragma_update(None, "cache_size", WRITER_CACHE_KIB)?;
        for (name, value) in &self.pragmas {
            connection.pragma_update(None, name, value)?;
        }
        Ok(connection)
    }

    pub fn reader(&self) -> rusqlite::Result<Connection> {
        self.connection(OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn connection(&self, how: OpenFlags) -> rusqlite::Result<Connection> {
        // One thread at a time has it, so SQLite need not lock it.
        let connection = Connection::open_with_flags(&self.path, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(Duration::from_millis(self.locked_after_ms))?;
        // What a savepoint could undo, or what is sorted; else SQLite copies it to a file in /var/tmp.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(connection)
    }
}
