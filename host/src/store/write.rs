//! What becomes of a batch inside the writer's transaction: its guard, then its rows.

use std::fmt::Display;

use fail::fail_point;
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};

use super::batch::{Batch, Expect, LeaseChange, Write};
use super::codec::BlobId;
use super::delete::{self, Delete};
use super::error::{Failure, StoreError};
use super::journal::Implied;
use super::prune::{self, Prune, Pruned};
use super::reader::Sql;
use super::service::ServiceWrite;
use super::writer::Content;
use super::{
    Committed, Tally, channels, checkpoints, components, effects, faults, inputs, interrupts, invocations,
    journal, requests, runs, steering,
};
use super::{sql, tasks};
use crate::model::checkpoint::{CheckpointKind, CheckpointRow, InterruptState, RunRow};
use crate::model::ids::TenantId;

const TENANT: &str = "SELECT tenant FROM tenants WHERE name = ?1";
const NEW_TENANT: &str = "INSERT INTO tenants (name) VALUES (?1) RETURNING tenant";
pub(super) const NEW_THREAD: &str = "INSERT INTO threads \
        (tenant, name, secret, head, epoch, owner, until, status, run, version, created_at, pending) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (tenant, name) DO NOTHING";
// The compare, by itself: to have the change give its row back (`RETURNING`) makes SQLite keep a table for it,
// which costs several times what this does. A lease that nobody holds cannot be renewed.
pub(super) const STANDS: &str = "SELECT h.tenant, h.thread, \
        EXISTS (SELECT 1 FROM inputs q WHERE q.thread = h.thread) AS queued \
    FROM tenants n JOIN threads h ON h.tenant = n.tenant \
    WHERE n.name = ?1 AND h.name = ?2 AND h.head = ?3 AND h.epoch = ?4 AND (NOT ?5 OR h.owner IS NOT NULL)";
// The swap.
pub(super) const THREAD: &str = "UPDATE threads SET head = ?4, status = ?5, run = coalesce(?6, run), \
        version = max(version, ?7), epoch = ?8, pending = pending + ?9, \
        owner = CASE ?10 WHEN 'claim' THEN ?11 WHEN 'release' THEN NULL ELSE owner END, \
        until = CASE ?10 WHEN 'keep' THEN until ELSE ?12 END \
    WHERE thread = ?1 AND head = ?2 AND epoch = ?3";
const CHECKPOINT: &str = "SELECT 1 FROM checkpoints WHERE thread = ?1 AND checkpoint = ?2";

/// Why nothing more is written for a batch.
#[derive(Debug)]
pub(super) enum Stop {
    /// A guard failed. Its savepoint is rolled back, the others go on.
    Conflict,
    /// The batch itself is at fault. Its savepoint is rolled back, the others go on.
    Rejected(StoreError),
    /// The disk, or SQLite: perhaps the whole transaction is gone already, so nothing goes on in it.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        if failure.is_constraint() {
            Self::Rejected(StoreError::rejected(failure))
        } else {
            Self::Failed(failure)
        }
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Rejected(error)
    }
}

impl Stop {
    fn rejected(what: impl Display) -> Self {
        Self::Rejected(StoreError::rejected(what))
    }

    /// SQLite does not say whose row it refused.
    fn while_writing(self, noun: impl Display) -> Self {
        match self {
            Self::Rejected(StoreError::Rejected { what }) => Self::rejected(format!("{noun}: {what}")),
            other => other,
        }
    }
}

/// The writer's connection, with the keys of what is written to. Its functions never wait: they are `async`
/// because they would where the database is a server, and what is said here in SQL stays as it is then.
pub(super) struct Pen<'c> {
    connection: &'c Connection,
    tally: &'c Tally,
    pub tenant: i64,
    pub thread: i64,
    /// Whether anything is written by now that a stop would have to take back.
    has_written: bool,
}

impl<'c> Pen<'c> {
    pub fn new(connection: &'c Connection, tally: &'c Tally) -> Self {
        Self { connection, tally, tenant: 0, thread: 0, has_written: false }
    }

    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// How many rows changed.
    pub async fn change(&mut self, sql: Sql) -> Result<u64, Stop> {
        self.passed()?;
        self.has_written = true;
        let mut statement = self.connection.prepare_cached(sql.text)?;
        Ok(statement.execute(params_from_iter(&sql.values))? as u64)
    }

    /// For a row that goes in or is there, unless the writer is wrong about it.
    pub async fn one_row(&mut self, sql: Sql) -> Result<(), Stop> {
        match self.change(sql).await? {
            1 => Ok(()),
            _ => Err(Stop::rejected("there is no such row on this thread")),
        }
    }

    /// The number of the row that goes in, unless there is one like it.
    pub async fn made(&mut self, sql: Sql) -> Result<Option<i64>, Stop> {
        let had_written = self.has_written;
        let made = self.change(sql).await? == 1;
        // Whoever finds one like it has written nothing.
        self.has_written = made || had_written;
        Ok(made.then(|| self.connection.last_insert_rowid()))
    }

    /// The thread that is written to, if the statement finds it as it is expected.
    pub async fn find_thread(&mut self, sql: Sql) -> Result<(), Stop> {
        self.thread = self.returned(sql, |row| row.get("thread"))?.ok_or(Stop::Conflict)?;
        Ok(())
    }

    pub async fn is_there(&mut self, sql: Sql) -> Result<bool, Stop> {
        Ok(self.returned(sql, |_| Ok(()))?.is_some())
    }

    /// The row that a statement gives back, if there is one.
    fn returned<T>(
        &mut self,
        sql: Sql,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Stop> {
        self.passed()?;
        let mut statement = self.connection.prepare_cached(sql.text)?;
        Ok(statement.query_row(params_from_iter(&sql.values), read).optional()?)
    }

    /// Where tests break in, before each statement.
    fn passed(&self) -> Result<(), Stop> {
        fail_point!("store::in_batch");
        injected()?;
        self.tally.statement();
        Ok(())
    }
}

/// Lets a test fill the disk.
fn injected() -> Result<(), Stop> {
    fail_point!("store::write", |_| {
        Err(Stop::Failed(std::io::Error::from(std::io::ErrorKind::StorageFull).into()))
    });
    Ok(faults::operation()?)
}

/// Makes a batch true, or says why not; the caller takes back what was written.
pub(super) async fn batch(pen: &mut Pen<'_>, batch: &Batch) -> Result<Committed, Stop> {
    let committed = guard(pen, batch).await?;
    // In the order of the schema, so that a row finds the rows that it refers to however the batch
    // lists them.
    let mut writes: Vec<&Write> = batch.writes.iter().collect();
    writes.sort_by_key(|write| rank(write));
    let implied = Implied::of(&batch.writes);
    for write in writes {
        one(pen, write, &implied).await.map_err(|stop| stop.while_writing(Noun(write)))?;
    }
    head_is_there(pen, batch).await?;
    Ok(committed)
}

/// Stores content under its digest.
pub(super) async fn content(pen: &mut Pen<'_>, tenant: &TenantId, content: &Content) -> Result<(), Stop> {
    enter(pen, tenant).await?;
    components::insert(pen, content).await
}

/// Drops what a thread no longer needs.
pub(super) async fn prune(pen: &mut Pen<'_>, prune: &Prune) -> Result<Pruned, Stop> {
    enter(pen, &prune.tenant).await?;
    prune::carry_out(pen, prune).await
}

/// Carries out what the service asks for one tenant.
pub(super) async fn service(
    pen: &mut Pen<'_>,
    tenant: &TenantId,
    writes: &[ServiceWrite],
) -> Result<(), Stop> {
    enter(pen, tenant).await?;
    for write in writes {
        super::service::one(pen, write).await?;
    }
    Ok(())
}

/// Removes a thread.
pub(super) async fn delete(pen: &mut Pen<'_>, delete: &Delete) -> Result<(), Stop> {
    enter(pen, &delete.tenant).await?;
    delete::carry_out(pen, delete).await
}

/// Finds the tenant's number; others appear when something is first written for them.
async fn enter(pen: &mut Pen<'_>, tenant: &TenantId) -> Result<(), Stop> {
    let number = |row: &Row<'_>| row.get("tenant");
    pen.tenant = match pen.returned(sql(TENANT).bind(tenant.as_str()), number)? {
        Some(tenant) => tenant,
        None => {
            pen.has_written = true;
            let made = pen.returned(sql(NEW_TENANT).bind(tenant.as_str()), number)?;
            made.ok_or_else(|| Stop::rejected("the tenant was not made"))?
        }
    };
    Ok(())
}

/// Finds the thread as it is expected, or makes it, and says what becomes of it.
async fn guard(pen: &mut Pen<'_>, batch: &Batch) -> Result<Committed, Stop> {
    let (lease, owner, until) = match batch.lease {
        LeaseChange::Keep => ("keep", None, None),
        LeaseChange::Claim { owner, until } => ("claim", Some(owner.0.to_be_bytes().to_vec()), Some(until.0)),
        LeaseChange::Renew { until } => ("renew", None, Some(until.0)),
        LeaseChange::Release => ("release", None, None),
    };
    let run = root_run(batch);
    let version = boundaries(batch).map(|row| row.version).max();
    let committed = match &batch.expect {
        Expect::Absent { secret } => {
            enter(pen, &batch.tenant).await?;
            let Some(run) = run else {
                return Err(Stop::rejected("a thread starts with a root run"));
            };
            let epoch: i64 = match batch.lease {
                LeaseChange::Keep => 0,
                LeaseChange::Claim { .. } | LeaseChange::Release => 1,
                LeaseChange::Renew { .. } => return Err(Stop::Conflict),
            };
            let sql = sql(NEW_THREAD)
                .bind(pen.tenant)
                .bind(batch.thread.as_str())
                .bind(secret.as_slice())
                .bind(batch.head.blob())
                .bind(epoch)
                .bind(owner)
                .bind(until)
                .bind(batch.status.as_str())
                .bind(run.run.blob())
                .bind(version.unwrap_or(0))
                .bind(run.created_at.0)
                .bind(grown(batch));
            pen.thread = pen.made(sql).await?.ok_or(Stop::Conflict)?;
            Committed { epoch, queued: false }
        }
        Expect::At { head, epoch } => {
            let stands = sql(STANDS)
                .bind(batch.tenant.as_str())
                .bind(batch.thread.as_str())
                .bind(head.blob())
                .bind(*epoch)
                .bind(matches!(batch.lease, LeaseChange::Renew { .. }));
            let found = pen.returned(stands, |row| {
                Ok((row.get("tenant")?, row.get("thread")?, row.get::<_, bool>("queued")?))
            })?;
            let (tenant, thread, queued) = found.ok_or(Stop::Conflict)?;
            (pen.tenant, pen.thread) = (tenant, thread);
            let changes_hands = matches!(batch.lease, LeaseChange::Claim { .. } | LeaseChange::Release);
            let grown_epoch = epoch + i64::from(changes_hands);
            let sql = sql(THREAD)
                .bind(thread)
                .bind(head.blob())
                .bind(*epoch)
                .bind(batch.head.blob())
                .bind(batch.status.as_str())
                .bind(run.map(|row| row.run.blob()))
                .bind(version.unwrap_or(i64::MIN))
                .bind(grown_epoch)
                .bind(grown(batch))
                .bind(lease)
                .bind(owner)
                .bind(until);
            pen.one_row(sql).await?;
            Committed { epoch: grown_epoch, queued }
        }
    };
    Ok(committed)
}

/// A thread whose head is nowhere could never be loaded again.
async fn head_is_there(pen: &mut Pen<'_>, batch: &Batch) -> Result<(), Stop> {
    let known = match &batch.expect {
        Expect::At { head, .. } => *head == batch.head,
        Expect::Absent { .. } => false,
    };
    if known || checkpoints_of(batch).any(|row| row.checkpoint == batch.head) {
        return Ok(());
    }
    let sql = sql(CHECKPOINT).bind(pen.thread).bind(batch.head.blob());
    match pen.is_there(sql).await? {
        true => Ok(()),
        false => Err(Stop::rejected(format!("the head {} is no checkpoint of the thread", batch.head))),
    }
}

fn checkpoints_of(batch: &Batch) -> impl Iterator<Item = &CheckpointRow> {
    batch.writes.iter().filter_map(|write| match write {
        Write::Checkpoint(row) => Some(row),
        _ => None,
    })
}

fn boundaries(batch: &Batch) -> impl Iterator<Item = &CheckpointRow> {
    checkpoints_of(batch).filter(|row| row.kind == CheckpointKind::Boundary)
}

/// By how many the thread's pending questions become more. Each answer and withdrawal is one's whose row is
/// pending, or the batch does not hold.
fn grown(batch: &Batch) -> i64 {
    let count = |write: &Write| match write {
        Write::Interrupt(row) if row.state == InterruptState::Pending => 1,
        Write::Answer { .. } | Write::Withdraw { .. } => -1,
        _ => 0,
    };
    batch.writes.iter().map(count).sum()
}

fn root_run(batch: &Batch) -> Option<&RunRow> {
    let mut runs = batch.writes.iter().filter_map(|write| match write {
        Write::Run(row) if row.parent.is_none() => Some(row),
        _ => None,
    });
    runs.next_back()
}

async fn one(pen: &mut Pen<'_>, write: &Write, implied: &Implied) -> Result<(), Stop> {
    match write {
        Write::Run(row) => runs::insert(pen, row).await,
        Write::RunStatus { run, status, error, ended_at } => {
            runs::set_status(pen, *run, *status, error.as_ref(), *ended_at).await
        }
        Write::RunGraph { run, graph } => runs::set_graph(pen, *run, *graph).await,
        Write::RunHead { run, head } => runs::set_head(pen, *run, *head).await,
        Write::Checkpoint(row) => checkpoints::insert(pen, row).await,
        Write::Channel(row) => channels::insert(pen, row).await,
        Write::Task(row) => tasks::put(pen, row).await,
        Write::Cut { task, kept } => journal::cut(pen, *task, *kept).await,
        Write::Journal(row) if implied.has(row) => Ok(()),
        Write::Journal(row) => journal::put(pen, row).await,
        Write::Effect(row) => effects::put(pen, row).await,
        Write::Interrupt(row) => interrupts::insert(pen, row, implied.called_at(row)).await,
        Write::Answer { interrupt, answer } => interrupts::answer(pen, *interrupt, answer).await,
        Write::Withdraw { interrupt, withdrawal } => interrupts::withdraw(pen, *interrupt, withdrawal).await,
        Write::Steer(row) => steering::insert(pen, row).await,
        Write::Delivered { run, id, at } => steering::delivered(pen, *run, *id, *at).await,
        Write::Enqueue(row) => inputs::insert(pen, row).await,
        Write::Dequeue { seq } => inputs::remove(pen, *seq).await,
        Write::Request { request_id, command, at, reply } => {
            requests::put(pen, request_id, *command, *at, reply.as_ref()).await
        }
        Write::Under { invocation } => invocations::is_open(pen, *invocation).await,
        Write::End(end) => invocations::end(pen, end).await,
    }
}

fn rank(write: &Write) -> u8 {
    match write {
        Write::Run(_) => 0,
        Write::RunStatus { .. } | Write::RunGraph { .. } => 1,
        Write::Checkpoint(_) => 2,
        Write::RunHead { .. } => 3,
        Write::Channel(_) => 4,
        Write::Task(_) => 5,
        Write::Cut { .. } | Write::Journal(_) => 6,
        Write::Effect(_) => 7,
        Write::Interrupt(_) => 8,
        Write::Answer { .. } | Write::Withdraw { .. } => 9,
        Write::Steer(_) => 10,
        Write::Delivered { .. } => 11,
        Write::Enqueue(_) | Write::Dequeue { .. } => 12,
        Write::Request { .. } => 13,
        // It counts the checkpoints that are there by then.
        Write::Under { .. } | Write::End(_) => 14,
    }
}

/// What a write is about, for whoever reads why it was refused.
struct Noun<'a>(&'a Write);

impl Display for Noun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Write::Run(row) => write!(f, "run {} of graph {}", row.run, row.graph),
            Write::RunStatus { run, .. } => write!(f, "status of run {run}"),
            Write::RunGraph { run, graph } => write!(f, "graph {graph} of run {run}"),
            Write::RunHead { run, head } => write!(f, "head {head} of run {run}"),
            Write::Checkpoint(row) => write!(f, "checkpoint {}", row.checkpoint),
            Write::Channel(row) => write!(f, "channel {} at version {}", row.channel, row.version),
            Write::Task(row) => write!(f, "task {}", row.task),
            Write::Cut { task, kept } => write!(f, "cut of task {task} from entry {kept}"),
            Write::Journal(row) => write!(f, "journal entry {} of task {}", row.index, row.task),
            Write::Effect(row) => write!(f, "effect {} of node {}", row.scope.effect, row.scope.node),
            Write::Interrupt(row) => write!(f, "interrupt {}", row.interrupt),
            Write::Answer { interrupt, .. } => write!(f, "answer to {interrupt}"),
            Write::Withdraw { interrupt, .. } => write!(f, "withdrawal of {interrupt}"),
            Write::Steer(row) => write!(f, "instruction {}", row.id),
            Write::Delivered { id, .. } => write!(f, "delivery of instruction {id}"),
            Write::Enqueue(row) => write!(f, "input for graph {}", row.graph),
            Write::Dequeue { seq } => write!(f, "input {seq}"),
            Write::Request { request_id, .. } => write!(f, "request {request_id}"),
            Write::Under { invocation } => write!(f, "call {invocation}"),
            Write::End(end) => write!(f, "end of call {}", end.invocation),
        }
    }
}
