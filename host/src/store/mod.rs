//! All SQL. Never calls a guest.
//!
//! One SQLite file holds everything that a thread needs to go on. What becomes true goes through
//! [`Store::commit`]: one [`Batch`] on one thread, guarded by the head and the epoch that its writer
//! knows, durable when the call returns. Everything else here reads. What a row says is never trusted:
//! damage is an error that names table and row.
//!
//! Fail points, for the crash tests: `store::in_batch` before each statement of a batch, `store::write`
//! in the same place to fill the disk, `store::before_commit`, `store::after_commit`, and `store::operation`
//! to make any operation fail, a read, a statement, or a commit before and after it took place.

mod batch;
mod error;
mod open;
mod writer;
mod write;
mod statement;
mod reader;
mod codec;
mod faults;
mod threads;
mod snapshot;
mod recent;
mod runs;
mod checkpoints;
mod channels;
mod tasks;
mod journal;
mod interrupts;
mod steering;
mod effects;
mod requests;
mod inputs;
mod due;
mod components;
mod origin;
mod prune;
mod delete;
mod keys;
mod settings;
mod assistants;
mod notes;
mod invocations;
mod deliveries;
mod service;
mod since;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sqlx::Connection as _;
use tokio::sync::{broadcast, mpsc, oneshot};

pub use assistants::{AssistantFilter, AssistantRow, DeploymentRow};
pub use batch::{Batch, Expect, LeaseChange, OwnerId, Write, merged};
pub use components::ComponentRow;
pub use deliveries::DeliveryRow;
pub use error::{CommitError, StoreError};
pub use invocations::{InvocationEnd, InvocationRow, InvocationStatus};
pub use keys::{KeyRow, OnlyFor, Scope};
pub use notes::{ListFilter, ListedThread, NoteRow, ThreadOrder};
pub use open::OpenOptions;
pub use origin::{Lineage, Origin, Place, Sought, Waypoint};
pub use prune::Pruned;
pub use requests::RequestRow;
pub use service::{NotSo, ServiceWrite};
pub use settings::{SettingsRow, UsageRow};
pub use snapshot::{RunSnapshot, ThreadSnapshot};
pub use threads::{Lease, LeaseState, ThreadFilter, ThreadRow};

use crate::model::ids::{TenantId, ThreadId};
use error::Failure;
use open::Connect;
use reader::{Readers, Sql};
use recent::Recent;
use writer::{Content, Done, Job, Message, Work, Writer};

/// The most rows that one page of a list has, whatever is asked for.
pub const PAGE_ROWS_MAX: u32 = 1_000;

/// A database. Clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<str>,
    readers: Readers,
    writer: mpsc::Sender<Message>,
    locked_after_ms: u64,
    tally: Arc<Tally>,
    expected: Arc<Expected>,
    recent: Recent,
    changes: broadcast::Sender<(TenantId, ThreadId)>,
}

/// How many changes of threads a listener may be behind before it is told that it missed some.
const CHANGES_MAX: usize = 1024;

/// What a commit leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The thread's epoch from now on.
    pub epoch: i64,
    /// Whether input waits on the thread, or did when this was begun.
    pub queued: bool,
}

/// What was done so far, for benchmarks and for tests that hold it down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that became durable.
    pub commits: u64,
    /// Batches that were taken up, and contents; also those that were refused.
    pub batches: u64,
    /// Statements, of readers and the writer; those that only begin and end transactions apart.
    pub statements: u64,
    /// Groups that were committed together, by size: of 1, of up to 2, 4, 8, and so on; the last has the rest.
    pub groups: [u64; Counters::GROUPS],
}

impl Counters {
    pub const GROUPS: usize = 10;
}

impl Store {
    /// Opens the database in this file, and makes it if there is none. The runtime that this is called in
    /// must outlive the store.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, OpenOptions::default()).await
    }

    pub async fn open_with(path: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let opened = open::open(path, options).await?;
        let store = Self::start(path, Connect::new(path, options), options)?;
        opened.close().await.ok();
        Ok(store)
    }

    fn start(path: &Path, connect: Connect, options: OpenOptions) -> Result<Self, StoreError> {
        let file: Arc<str> = path.display().to_string().into();
        let readers = Readers::new(connect.clone(), options.readers);
        let tally = Arc::new(Tally::default());
        let locked_after_ms = options.locked_after_ms;
        let expected = Arc::new(Expected::default());
        let error = |error: Failure| StoreError::of(&file, locked_after_ms, error);
        let connection = connect.writer().map_err(|e| error(e.into()))?;
        let writer = Writer {
            file: file.clone(),
            connect,
            locked_after_ms,
            tally: tally.clone(),
            expected: expected.clone(),
            connection: Some(connection),
        };
        let (sender, messages) = mpsc::channel(writer::QUEUE_MAX);
        let thread = std::thread::Builder::new().name("holdpoint-writer".into());
        thread.spawn(move || writer.run(messages)).map_err(|e| error(e.into()))?;
        Ok(Self {
            inner: Arc::new(Inner {
                file,
                readers,
                writer: sender,
                locked_after_ms,
                tally,
                expected,
                recent: Recent::default(),
                changes: broadcast::Sender::new(CHANGES_MAX),
            }),
        })
    }

    /// Says, until it is dropped, that somebody will want to commit: where many do, they are waited for and
    /// share the disk's flush.
    pub fn underway(&self) -> Underway {
        self.inner.expected.0.fetch_add(1, Ordering::Relaxed);
        Underway(self.inner.expected.clone())
    }

    /// Makes a batch true, all of it or nothing; durable when this returns. It goes on if the caller
    /// stops waiting.
    pub async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let before = self.inner.recent.take(&batch.tenant, &batch.thread);
        match self.inner.work(Work::Batch(Box::new(batch))).await? {
            (Done::Thread(committed), Work::Batch(batch)) => {
                let changed = (batch.tenant.clone(), batch.thread.clone());
                self.inner.recent.put(before, *batch, committed);
                // Nobody may be listening.
                self.inner.changes.send(changed).ok();
                Ok(committed)
            }
            _ => Err(StoreError::rejected("the writer answered something else").into()),
        }
    }

    /// Names each thread that this process changes, once that is durable. A hint: what another process
    /// writes is not named, and a listener that is slow misses some, and is told so.
    pub fn changes(&self) -> broadcast::Receiver<(TenantId, ThreadId)> {
        self.inner.changes.subscribe()
    }

    async fn put(&self, tenant: &TenantId, content: Content) -> Result<(), StoreError> {
        match self.inner.work(Work::Content { tenant: tenant.clone(), content }).await {
            Ok(_) => Ok(()),
            Err(CommitError::Store(error)) => Err(error),
            Err(CommitError::Conflict) => Err(StoreError::rejected("content has no guard to fail")),
        }
    }

    /// Gives what is free in the file back to the file system. The whole file is written anew: this takes
    /// its size in time and once more on the disk, and everybody who writes waits.
    pub async fn vacuum(&self) -> Result<(), StoreError> {
        let closed = || StoreError::Closed { file: self.inner.file.to_string() };
        let (reply, vacuumed) = oneshot::channel();
        self.inner.writer.send(Message::Vacuum { reply }).await.map_err(|_| closed())?;
        vacuumed.await.map_err(|_| closed())?
    }

    /// Waits for what is being written, folds the log into the file, and closes it, for all clones.
    pub async fn close(self) {
        // Readers first: the log cannot be cut while one is in it.
        self.inner.readers.close().await;
        let (done, closed) = oneshot::channel();
        if self.inner.writer.send(Message::Close { done }).await.is_ok() {
            closed.await.ok();
        }
    }

    pub fn counters(&self) -> Counters {
        let tally = &self.inner.tally;
        Counters {
            commits: tally.commits.load(Ordering::Relaxed),
            batches: tally.batches.load(Ordering::Relaxed),
            statements: tally.statements.load(Ordering::Relaxed),
            groups: std::array::from_fn(|i| tally.groups[i].load(Ordering::Relaxed)),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.inner.file)
    }
}

impl Inner {
    /// Has it done; gives it back with what came of it.
    async fn work(&self, work: Work) -> Result<(Done, Work), CommitError> {
        let closed = || StoreError::Closed { file: self.file.to_string() };
        let (reply, answered) = oneshot::channel();
        self.writer.send(Message::Work(Job { work, reply })).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    fn error(&self, error: impl Into<error::Failure>) -> StoreError {
        StoreError::of(&self.file, self.locked_after_ms, error)
    }
}

/// How many are under way that will want to commit.
#[derive(Default)]
struct Expected(AtomicUsize);

impl Expected {
    /// How many are worth to be waited for: a part of them, since the others do something else meanwhile.
    fn group(&self) -> usize {
        self.0.load(Ordering::Relaxed) / 4
    }
}

/// See [`Store::underway`].
pub struct Underway(Arc<Expected>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// [`Counters`] while they count.
#[derive(Default)]
struct Tally {
    commits: AtomicU64,
    batches: AtomicU64,
    statements: AtomicU64,
    groups: [AtomicU64; Counters::GROUPS],
}

impl Tally {
    fn commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    fn batches(&self, count: usize) {
        self.batches.fetch_add(count as u64, Ordering::Relaxed);
        let group = (count.max(1).next_power_of_two().ilog2() as usize).min(Counters::GROUPS - 1);
        self.groups[group].fetch_add(1, Ordering::Relaxed);
    }

    fn statement(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }
}

fn sql(statement: &'static str) -> Sql {
    Sql::new(statement)
}
