//! The one writer. SQLite takes one writer at a time, so there is one: a thread that owns the write
//! connection. What waits for it is committed together, one disk flush for all.
//!
//! A thread and not a task: a flush of the disk takes as long as it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fail::fail_point;
use futures::executor::block_on;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::batch::Batch;
use super::delete::Delete;
use super::error::{CommitError, Failure, StoreError};
use super::open::Connect;
use super::prune::{Prune, Pruned};
use super::service::ServiceWrite;
use super::write::{self, Pen, Stop};
use super::{Committed, Expected, Tally, faults};
use crate::model::ids::{Digest, TenantId, Timestamp};
use crate::model::json::Json;

/// How much may wait for the writer before those who bring more wait too.
pub(super) const QUEUE_MAX: usize = 256;
/// How much is committed together at most: what came first need not wait for all that came since.
const GROUP_MAX: usize = 64;
/// How long others are waited for, where many are under way.
const LINGER: Duration = Duration::from_micros(800);

pub(super) enum Message {
    Work(Job),
    /// Gives back to the file system what is free in the file; answered when that is done.
    Vacuum {
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Nothing is written after this; answered when the connection is closed.
    Close {
        done: oneshot::Sender<()>,
    },
}

pub(super) struct Job {
    pub work: Work,
    /// Whoever asked may be gone when the reply comes; what was committed stays.
    pub reply: oneshot::Sender<Result<(Done, Work), CommitError>>,
}

pub(super) enum Work {
    Batch(Box<Batch>),
    Content { tenant: TenantId, content: Content },
    Prune(Box<Prune>),
    Delete(Box<Delete>),
    Service { tenant: TenantId, writes: Vec<ServiceWrite> },
}

/// What is stored under its digest.
pub(super) enum Content {
    Component { digest: Digest, bytes: Arc<Vec<u8>>, info: String, at: Timestamp },
    Graph { digest: Digest, name: String, text: Json, at: Timestamp },
}

#[derive(Clone, Copy)]
pub(super) enum Done {
    Thread(Committed),
    Content,
    Pruned(Pruned),
    Deleted,
}

pub(super) struct Writer {
    pub file: Arc<str>,
    pub connect: Connect,
    pub locked_after_ms: u64,
    pub tally: Arc<Tally>,
    pub expected: Arc<Expected>,
    /// None after a failure, until the next work opens it again.
    pub connection: Option<Connection>,
}

impl Writer {
    /// Ends when it is told to close, or when nobody can ask it for anything any more.
    pub fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut closing = None;
        while closing.is_none() {
            let Some(first) = messages.blocking_recv() else { break };
            let began = Instant::now();
            let mut group = Vec::new();
            let mut vacuum = None;
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Work(job) => group.push(job),
                    Message::Vacuum { reply } => {
                        vacuum = Some(reply);
                        break;
                    }
                    Message::Close { done } => {
                        closing = Some(done);
                        break;
                    }
                }
                next = if group.len() < GROUP_MAX { messages.try_recv().ok() } else { None };
                while next.is_none() && group.len() < self.expected.group() && began.elapsed() < LINGER {
                    std::thread::sleep(LINGER / 8);
                    next = messages.try_recv().ok();
                }
            }
            if !group.is_empty() {
                self.carry_out(group);
            }
            if let Some(reply) = vacuum {
                let vacuumed = self.vacuum();
                let error = |error| StoreError::of(&self.file, self.locked_after_ms, error);
                reply.send(vacuumed.map_err(error)).ok();
            }
        }
        if let Some(connection) = self.connection.take() {
            // All is durable in the log already; this tidies up, and a reader elsewhere may hinder it.
            fold(&connection).ok();
        }
        if let Some(done) = closing {
            done.send(()).ok();
        }
    }

    fn carry_out(&mut self, group: Vec<Job>) {
        self.tally.batches(group.len());
        match self.transaction(&group) {
            Ok(ends) => {
                for (job, end) in group.into_iter().zip(ends) {
                    job.reply.send(end.map(|done| (done, job.work))).ok();
                }
            }
            Err(failure) => {
                // Whatever the connection is in the middle of, it does not go on: closed, it is rolled back.
                if !failure.is_busy() {
                    self.connection = None;
                }
                let error = StoreError::of(&self.file, self.locked_after_ms, failure);
                for job in group {
                    job.reply.send(Err(CommitError::Store(error.clone()))).ok();
                }
            }
        }
    }

    /// The whole file is written anew, through the log, which is folded into the file and cut afterwards. What
    /// is being put together is kept in a file meanwhile: it is as large as the database.
    fn vacuum(&mut self) -> Result<(), Failure> {
        let connection = self.connection()?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        let vacuumed = connection.execute_batch("VACUUM");
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        vacuumed?;
        // A reader elsewhere may hinder it; then the log is cut when it is next folded.
        Ok(fold(connection)?)
    }

    fn connection(&mut self) -> Result<&Connection, Failure> {
        Ok(match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.connect.writer()?),
        })
    }

    /// All of the group that holds, committed together. An error: none of it.
    fn transaction(&mut self, group: &[Job]) -> Result<Vec<Result<Done, CommitError>>, Failure> {
        let tally = self.tally.clone();
        let connection = self.connection()?;
        faults::operation()?;
        // Immediate: a transaction that becomes a writer later can be refused in its middle.
        say(connection, "BEGIN IMMEDIATE")?;
        let written = match all(connection, &tally, group, Apart::No) {
            Ok(Some(ends)) => Ok(ends),
            // One is at fault and has written already: what the others wrote goes with it, and is written
            // again.
            Ok(None) => say(connection, "ROLLBACK")
                .and_then(|()| say(connection, "BEGIN IMMEDIATE"))
                .and_then(|()| all(connection, &tally, group, Apart::Yes).map(Option::unwrap_or_default)),
            Err(failure) => Err(failure),
        };
        let committed = written.and_then(|ends| commit(connection, &tally, ends));
        if committed.is_err() && !connection.is_autocommit() {
            // It may be that it cannot be rolled back; then it ends with its connection.
            say(connection, "ROLLBACK").ok();
        }
        committed
    }
}

fn commit(
    connection: &Connection,
    tally: &Tally,
    ends: Vec<Result<Done, CommitError>>,
) -> Result<Vec<Result<Done, CommitError>>, Failure> {
    if ends.iter().all(Result::is_err) {
        say(connection, "ROLLBACK")?;
        return Ok(ends);
    }
    fail_point!("store::before_commit");
    faults::operation()?;
    say(connection, "COMMIT")?;
    tally.commit();
    fail_point!("store::after_commit");
    faults::operation()?;
    Ok(ends)
}

/// Whether each of a group has a savepoint of its own. That one costs a copy of every page that is changed in
/// it, and is hardly ever needed: whoever lost a race has written nothing yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    Yes,
    No,
}

/// Writes all of the group that holds. `None`: one of them stopped in its middle, and it was not kept apart.
fn all(
    connection: &Connection,
    tally: &Tally,
    group: &[Job],
    apart: Apart,
) -> Result<Option<Vec<Result<Done, CommitError>>>, Failure> {
    let mut ends = Vec::with_capacity(group.len());
    for job in group {
        if apart == Apart::Yes {
            say(connection, "SAVEPOINT batch")?;
        }
        let mut pen = Pen::new(connection, tally);
        let written = block_on(job.work.write(&mut pen));
        let sinks = match &written {
            Ok(_) => false,
            // Nothing goes on in it.
            Err(Stop::Failed(_)) => true,
            Err(Stop::Conflict | Stop::Rejected(_)) => pen.has_written(),
        };
        let end = match written {
            Ok(done) => Ok(done),
            Err(Stop::Conflict) => Err(CommitError::Conflict),
            Err(Stop::Rejected(error)) => Err(CommitError::Store(error)),
            Err(Stop::Failed(failure)) => return Err(failure),
        };
        if apart == Apart::Yes {
            if sinks {
                say(connection, "ROLLBACK TO batch")?;
            }
            say(connection, "RELEASE batch")?;
        } else if sinks && group.len() > 1 {
            return Ok(None);
        }
        ends.push(end);
    }
    Ok(Some(ends))
}

/// A word to SQLite about transactions, which gives nothing back.
fn say(connection: &Connection, word: &str) -> Result<(), Failure> {
    connection.prepare_cached(word)?.execute(())?;
    Ok(())
}

/// Folds the log into the file, and cuts it.
fn fold(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
}

impl Work {
    async fn write(&self, pen: &mut Pen<'_>) -> Result<Done, Stop> {
        match self {
            Self::Batch(batch) => Ok(Done::Thread(write::batch(pen, batch).await?)),
            Self::Content { tenant, content } => {
                write::content(pen, tenant, content).await?;
                Ok(Done::Content)
            }
            Self::Prune(prune) => write::prune(pen, prune).await.map(Done::Pruned),
            Self::Delete(delete) => {
                write::delete(pen, delete).await?;
                Ok(Done::Deleted)
            }
            Self::Service { tenant, writes } => {
                write::service(pen, tenant, writes).await?;
                Ok(Done::Content)
            }
        }
    }
}
