//! The one writer. SQLite takes one writer at a time, so there is one: a task that owns the write
//! connection. What waits for it is committed together, one disk flush for all.

use std::sync::Arc;

use fail::fail_point;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Acquire, ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::batch::Batch;
use super::delete::Delete;
use super::error::{CommitError, StoreError, is_busy};
use super::prune::{Prune, Pruned};
use super::service::ServiceWrite;
use super::write::{self, Stop};
use super::{Committed, Tally, faults};
use crate::model::ids::{Digest, TenantId, Timestamp};
use crate::model::json::Json;

/// How much may wait for the writer before those who bring more wait too.
pub(super) const QUEUE_MAX: usize = 256;
/// How much is committed together at most: what came first need not wait for all that came since.
const GROUP_MAX: usize = 64;

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
    pub reply: oneshot::Sender<Result<Done, CommitError>>,
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
    pub options: SqliteConnectOptions,
    pub locked_after_ms: u64,
    pub tally: Arc<Tally>,
    /// None after a failure, until the next work opens it again.
    pub connection: Option<SqliteConnection>,
}

impl Writer {
    /// Ends when it is told to close, or when nobody can ask it for anything any more.
    pub async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut closing = None;
        while closing.is_none() {
            let Some(first) = messages.recv().await else { break };
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
            }
            if !group.is_empty() {
                self.carry_out(group).await;
            }
            if let Some(reply) = vacuum {
                let vacuumed = self.vacuum().await;
                let error = |error| StoreError::of(&self.file, self.locked_after_ms, &error);
                reply.send(vacuumed.map_err(error)).ok();
            }
        }
        if let Some(mut connection) = self.connection.take() {
            // All is durable in the log already; this tidies up, and a reader elsewhere may hinder it.
            sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.ok();
            connection.close().await.ok();
        }
        if let Some(done) = closing {
            done.send(()).ok();
        }
    }

    async fn carry_out(&mut self, group: Vec<Job>) {
        self.tally.batches(group.len());
        match self.transaction(&group).await {
            Ok(ends) => {
                for (job, end) in group.into_iter().zip(ends) {
                    job.reply.send(end).ok();
                }
            }
            Err(error) => {
                // Whatever the connection is in the middle of, it does not go on.
                if !is_busy(&error)
                    && let Some(connection) = self.connection.take()
                {
                    connection.close().await.ok();
                }
                let error = StoreError::of(&self.file, self.locked_after_ms, &error);
                for job in group {
                    job.reply.send(Err(CommitError::Store(error.clone()))).ok();
                }
            }
        }
    }

    /// The whole file is written anew, through the log, which is folded into the file and cut afterwards. What
    /// is being put together is kept in a file meanwhile: it is as large as the database.
    async fn vacuum(&mut self) -> Result<(), sqlx::Error> {
        let connection = self.connection().await?;
        sqlx::query("PRAGMA temp_store = FILE").execute(&mut *connection).await?;
        let vacuumed = sqlx::query("VACUUM").execute(&mut *connection).await;
        sqlx::query("PRAGMA temp_store = MEMORY").execute(&mut *connection).await?;
        vacuumed?;
        // A reader elsewhere may hinder it; then the log is cut when it is next folded.
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *connection).await?;
        Ok(())
    }

    async fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        Ok(match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await?),
        })
    }

    /// All of the group that holds, committed together. An error: none of it.
    async fn transaction(&mut self, group: &[Job]) -> Result<Vec<Result<Done, CommitError>>, sqlx::Error> {
        let tally = self.tally.clone();
        let connection = self.connection().await?;
        faults::operation()?;
        // Immediate: a transaction that becomes a writer later can be refused in its middle.
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut ends = Vec::with_capacity(group.len());
        // One alone needs no savepoint: what undoes it undoes the transaction.
        let alone = group.len() == 1;
        for job in group {
            let written = match alone {
                true => job.work.write(&mut transaction, &tally).await,
                false => {
                    let mut savepoint = transaction.begin().await?;
                    let written = job.work.write(&mut savepoint, &tally).await;
                    match &written {
                        Ok(_) => savepoint.commit().await?,
                        Err(Stop::Conflict | Stop::Rejected(_)) => savepoint.rollback().await?,
                        // Nothing goes on in it.
                        Err(Stop::Failed(_)) => {}
                    }
                    written
                }
            };
            ends.push(match written {
                Ok(done) => Ok(done),
                Err(Stop::Conflict) => Err(CommitError::Conflict),
                Err(Stop::Rejected(error)) => Err(CommitError::Store(error)),
                Err(Stop::Failed(error)) => return Err(error),
            });
        }
        if ends.iter().all(Result::is_err) {
            transaction.rollback().await?;
            return Ok(ends);
        }
        fail_point!("store::before_commit");
        faults::operation()?;
        transaction.commit().await?;
        tally.commit();
        fail_point!("store::after_commit");
        faults::operation()?;
        Ok(ends)
    }
}

impl Work {
    async fn write(&self, connection: &mut SqliteConnection, tally: &Tally) -> Result<Done, Stop> {
        match self {
            Self::Batch(batch) => Ok(Done::Thread(write::batch(connection, tally, batch).await?)),
            Self::Content { tenant, content } => {
                write::content(connection, tally, tenant, content).await?;
                Ok(Done::Content)
            }
            Self::Prune(prune) => write::prune(connection, tally, prune).await.map(Done::Pruned),
            Self::Delete(delete) => {
                write::delete(connection, tally, delete).await?;
                Ok(Done::Deleted)
            }
            Self::Service { tenant, writes } => {
                write::service(connection, tally, tenant, writes).await?;
                Ok(Done::Content)
            }
        }
    }
}
