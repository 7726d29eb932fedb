//! What can go wrong with the database, told apart by what there is to do about it.

use std::fmt::Display;
use std::io::ErrorKind;

/// The host could not do its job. Each message names the file and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("{file} is no Holdpoint database ({what}); it was left as it is: name another file")]
    NotOurs { file: String, what: String },
    #[error(
        "{file} was last written by a newer Holdpoint: its schema is {found}, and this build knows {known}; \
         use that Holdpoint, or a newer one"
    )]
    Newer { file: String, found: i64, known: i64 },
    #[error(
        "{file} has another schema {version} than this build; it was made by an unreleased build: use that \
         one, or another file"
    )]
    OtherSchema { file: String, version: i64 },
    #[error("{file} cannot be written to; allow it (chmod u+w, or a writable mount), or name another file")]
    ReadOnly { file: String },
    #[error(
        "{file} is locked by another process, and still was after {waited_ms} ms; end that process or wait for \
         it, then try again"
    )]
    Locked { file: String, waited_ms: u64 },
    #[error(
        "the disk is full: {file} could not grow, and nothing was written; free some space, then try again"
    )]
    Full { file: String },
    #[error("{file}: too many wait for a connection; try again, or let fewer requests in at once")]
    Crowded { file: String },
    #[error("{file} cannot be opened: {what}; its folder must exist and be writable")]
    CannotOpen { file: String, what: String },
    /// SQLite itself cannot read the file.
    #[error(
        "{file} is damaged: {what}; restore a backup, or save what can be saved with `sqlite3 {file} .recover`"
    )]
    Damaged { file: String, what: String },
    /// SQLite can read the row, and it says what no Holdpoint wrote.
    #[error("{file}: table {table}, row {row}: {what}; the row was changed or damaged: restore a backup")]
    Corrupt { file: String, table: &'static str, row: String, what: String },
    /// After a failed commit it is unknown whether it took place, until the thread is loaded again.
    #[error("{file}: {what}; check the disk and the system's log, then try again")]
    Io { file: String, what: String },
    /// The engine asked for what the schema does not take: a fault in Holdpoint.
    #[error("refused by the database, and nothing was written: {what}")]
    Rejected { what: String },
    #[error("{file} is closed")]
    Closed { file: String },
}

/// Why a batch was not committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The thread is not as the writer thinks it is, or a question is not pending any more. Nothing was
    /// written.
    #[error("the thread was changed meanwhile; nothing was written")]
    Conflict,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// SQLite's primary result codes, where they matter.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const CONSTRAINT: i32 = 19;
const NOTADB: i32 = 26;

/// What SQLite or the system said, whichever client it came through.
#[derive(Debug)]
pub(super) struct Failure {
    /// SQLite's primary result code, if it is SQLite's.
    code: Option<i32>,
    cause: Cause,
    what: String,
}

pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error), Some(BUSY | LOCKED))
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok().map(primary)
}

/// What is worth telling apart of SQLite's extended codes.
fn primary(extended: i32) -> i32 {
    // The shared memory beside the file could not grow: only a full disk does that.
    const IOERR_SHMSIZE: i32 = 4874;
    if extended == IOERR_SHMSIZE { FULL } else { extended & 0xff }
}

/// What is not SQLite's to say.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Closed,
    Full,
    Crowded,
    Other,
}

impl Cause {
    fn of(error: &std::io::Error) -> Self {
        if error.kind() == ErrorKind::StorageFull { Self::Full } else { Self::Other }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let what = match &error {
            sqlx::Error::Database(error) => error.to_string(),
            other => other.to_string(),
        };
        let cause = match &error {
            sqlx::Error::Io(error) => Cause::of(error),
            _ => Cause::Other,
        };
        Self { code: code(&error), cause, what }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error().map(|error| error.extended_code);
        let what = match code {
            Some(extended) => format!("(code: {extended}) {error}"),
            None => error.to_string(),
        };
        Self { code: code.map(primary), cause: Cause::Other, what }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { code: None, cause: Cause::of(&error), what: error.to_string() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl Failure {
    pub fn closed() -> Self {
        Self { code: None, cause: Cause::Closed, what: "it is closed".into() }
    }

    pub fn crowded() -> Self {
        Self { code: None, cause: Cause::Crowded, what: "too many read".into() }
    }

    /// Whether it says something of the statement, and leaves the transaction whole.
    pub fn is_constraint(&self) -> bool {
        self.code == Some(CONSTRAINT)
    }

    pub fn is_busy(&self) -> bool {
        matches!(self.code, Some(BUSY | LOCKED))
    }
}

impl StoreError {
    pub(super) fn of(file: &str, waited_ms: u64, error: impl Into<Failure>) -> Self {
        let file = file.to_owned();
        let Failure { code, cause, what } = error.into();
        match code {
            Some(BUSY | LOCKED) => Self::Locked { file, waited_ms },
            Some(READONLY) => Self::ReadOnly { file },
            Some(FULL) => Self::Full { file },
            Some(CANTOPEN) => Self::CannotOpen { file, what },
            Some(CORRUPT) => Self::Damaged { file, what },
            Some(NOTADB) => Self::NotOurs { file, what: "it is no SQLite file".into() },
            Some(CONSTRAINT) => Self::Rejected { what },
            _ => match cause {
                Cause::Closed => Self::Closed { file },
                Cause::Full => Self::Full { file },
                Cause::Crowded => Self::Crowded { file },
                Cause::Other => Self::Io { file, what },
            },
        }
    }

    /// Whether the same thing may go well later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Full { .. } | Self::Crowded { .. } | Self::Io { .. })
    }

    pub(super) fn rejected(what: impl Display) -> Self {
        Self::Rejected { what: what.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_names_the_file() {
        let file = "a.db".to_owned();
        let what = "w".to_owned();
        for error in [
            StoreError::NotOurs { file: file.clone(), what: what.clone() },
            StoreError::Newer { file: file.clone(), found: 9, known: 1 },
            StoreError::OtherSchema { file: file.clone(), version: 1 },
            StoreError::ReadOnly { file: file.clone() },
            StoreError::Locked { file: file.clone(), waited_ms: 5 },
            StoreError::Full { file: file.clone() },
            StoreError::Crowded { file: file.clone() },
            StoreError::CannotOpen { file: file.clone(), what: what.clone() },
            StoreError::Damaged { file: file.clone(), what: what.clone() },
            StoreError::Corrupt { file: file.clone(), table: "runs", row: "1".into(), what: what.clone() },
            StoreError::Io { file: file.clone(), what },
            StoreError::Closed { file },
        ] {
            assert!(error.to_string().contains("a.db"), "{error}");
        }
    }
}
