//! How threads stand that this process has just written: put together from what was committed, so that going
//! on with one reads nothing.
//!
//! Only a guess at what is in the file, which another process may have changed since. Whoever goes on from it
//! commits under the head and epoch that it names, and loses to whoever was faster; whoever would refuse
//! something because of it looks into the file first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LinkedHashMap;

use super::batch::{Batch, Expect, LeaseChange, Write};
use super::journal::{Questions, filled};
use super::snapshot::{RunSnapshot, ThreadSnapshot};
use super::threads::Lease;
use super::{Committed, Store};
use crate::model::checkpoint::{
    ChannelRow, ChannelValue, CheckpointKind, CheckpointRow, InterruptRow, InterruptState, JournalRow,
    RunRow, TaskRow, TaskState, Version,
};
use crate::model::ids::{ChannelName, CheckpointId, RunId, TenantId, ThreadId};
use crate::model::json::Json;

/// Of all that is kept, estimated.
const BYTES_MAX: usize = 8 << 20;
/// Of one thread; one that is larger is read when it is needed.
const THREAD_BYTES_MAX: usize = BYTES_MAX / 32;
/// Of a row, beside the text in it.
const ROW_BYTES: usize = 512;

type Key = (TenantId, ThreadId);

/// The least recently written in front.
#[derive(Default)]
pub(super) struct Recent(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    threads: LinkedHashMap<Key, (Arc<ThreadSnapshot>, usize)>,
    bytes: usize,
}

impl Store {
    /// How a thread stands as far as this process knows without looking. What follows from it is to be
    /// committed under its head and epoch; no refusal may follow from it.
    pub fn recent(&self, tenant: &TenantId, thread: &ThreadId) -> Option<ThreadSnapshot> {
        let key = (tenant.clone(), thread.clone());
        let snapshot = self.inner.recent.kept().threads.get(&key).map(|(snapshot, _)| snapshot.clone())?;
        // Copied when nobody waits for the others any more.
        Some(Arc::unwrap_or_clone(snapshot))
    }
}

impl Recent {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Whole between any two of its calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out how a thread stands: it is about to change, and perhaps nobody hears what it comes to.
    pub fn take(&self, tenant: &TenantId, thread: &ThreadId) -> Option<ThreadSnapshot> {
        self.kept().take(&(tenant.clone(), thread.clone())).map(Arc::unwrap_or_clone)
    }

    /// Takes down what became true of a thread that stood so before.
    pub fn put(&self, before: Option<ThreadSnapshot>, batch: Batch, committed: Committed) {
        let key = (batch.tenant.clone(), batch.thread.clone());
        if let Some(mut snapshot) = after(before, batch, committed) {
            let mut bytes = weight(&snapshot);
            if bytes > THREAD_BYTES_MAX {
                // Without its values it may do; they are read when somebody needs them.
                snapshot.values.clear();
                bytes = weight(&snapshot);
            }
            if bytes <= THREAD_BYTES_MAX {
                self.kept().put(key, snapshot, bytes);
            }
        }
    }
}

impl Kept {
    fn take(&mut self, key: &Key) -> Option<Arc<ThreadSnapshot>> {
        let (snapshot, bytes) = self.threads.remove(key)?;
        self.bytes -= bytes;
        Some(snapshot)
    }

    fn put(&mut self, key: Key, snapshot: ThreadSnapshot, bytes: usize) {
        self.take(&key);
        self.threads.insert(key, (Arc::new(snapshot), bytes));
        self.bytes += bytes;
        while self.bytes > BYTES_MAX {
            let Some((_, (_, bytes))) = self.threads.pop_front() else { break };
            self.bytes -= bytes;
        }
    }
}

/// The thread after a batch. `None`: it takes more than the batch and what was known before to say so.
fn after(before: Option<ThreadSnapshot>, batch: Batch, committed: Committed) -> Option<ThreadSnapshot> {
    let begun = batch.writes.iter().any(|write| matches!(write, Write::Run(_)));
    let (secret, before) = match (&batch.expect, before) {
        (Expect::Absent { secret }, _) => (*secret, None),
        (Expect::At { head, epoch }, Some(before)) if before.head == *head && before.epoch == *epoch => {
            (before.secret, Some(before))
        }
        (Expect::At { .. }, _) => return None,
    };
    let lease = match batch.lease {
        LeaseChange::Keep => before.as_ref().and_then(|before| before.lease),
        LeaseChange::Claim { owner, until } => Some(Lease { owner, until }),
        LeaseChange::Renew { until } => Some(Lease { until, ..before.as_ref()?.lease? }),
        LeaseChange::Release => None,
    };
    let mut version = before.as_ref().map_or(0, |before| before.version);
    let mut values = BTreeMap::new();
    let mut root = match before {
        // A new run keeps nothing of the one before but the channels.
        Some(before) if begun => {
            values = before.values;
            None
        }
        Some(before) => {
            values = before.values;
            Some(Tree::of(before.root))
        }
        None => None,
    };
    let mut waiting = Vec::new();
    for write in batch.writes {
        match write {
            Write::Run(row) if row.parent.is_none() && root.is_none() => root = Some(Tree::new(row)),
            // Of a boundary that is not told yet, since a batch lists its writes in no order.
            write => waiting.push(write),
        }
    }
    let mut root = root?;
    waiting.sort_by_key(|write| !matches!(write, Write::Checkpoint(_)));
    for write in waiting {
        match write {
            Write::Checkpoint(row) => {
                if row.kind == CheckpointKind::Boundary {
                    version = version.max(row.version);
                }
                root.move_to(row)?;
            }
            Write::Channel(row) => put(&mut values, row),
            other => root.tell(other)?,
        }
    }
    let root = root.told(batch.head)?;
    // Of the channels as they are now.
    let at = &root.checkpoint.channels;
    values.retain(|name, (version, _)| at.get(name) == Some(version));
    Some(ThreadSnapshot {
        head: batch.head,
        epoch: committed.epoch,
        lease,
        secret,
        status: batch.status,
        version,
        root,
        values,
    })
}

/// What is only added to is put together when somebody reads it: whoever has it whole copies it at every addition.
fn put(values: &mut BTreeMap<ChannelName, (Version, Json)>, row: ChannelRow) {
    match row.value {
        ChannelValue::Whole(value) => values.insert(row.channel, (row.version, value)),
        ChannelValue::Appended { .. } => values.remove(&row.channel),
    };
}

/// A root run without child runs, while it is told what changed.
struct Tree {
    run: RunRow,
    /// Its latest boundary, and where it is now.
    boundary: Option<CheckpointRow>,
    head: Option<CheckpointRow>,
    tasks: BTreeMap<usize, TaskRow>,
    journal: Vec<JournalRow>,
    interrupts: Vec<InterruptRow>,
}

impl Tree {
    fn new(run: RunRow) -> Self {
        Self {
            run,
            boundary: None,
            head: None,
            tasks: BTreeMap::new(),
            journal: Vec::new(),
            interrupts: Vec::new(),
        }
    }

    fn of(snapshot: RunSnapshot) -> Self {
        let RunSnapshot {
            run, checkpoint, boundary, boundary_created_at, tasks, journal, interrupts, ..
        } = snapshot;
        // As far as it is shown through a pause.
        let of_boundary = CheckpointRow {
            checkpoint: boundary,
            kind: CheckpointKind::Boundary,
            created_at: boundary_created_at,
            ..checkpoint.clone()
        };
        Self {
            run,
            boundary: Some(of_boundary),
            head: Some(checkpoint),
            tasks: tasks.into_iter().map(|row| (row.index, row)).collect(),
            journal,
            interrupts,
        }
    }

    fn is(&self, run: RunId) -> Option<()> {
        (self.run.run == run).then_some(())
    }

    fn move_to(&mut self, row: CheckpointRow) -> Option<()> {
        self.is(row.run)?;
        match row.kind {
            CheckpointKind::Boundary => {
                self.tasks.clear();
                self.journal.clear();
                self.interrupts.clear();
                self.boundary = Some(row.clone());
                self.head = Some(row);
            }
            CheckpointKind::Pause { boundary } => {
                let of = self.boundary.as_ref().filter(|of| of.checkpoint == boundary)?;
                self.head =
                    Some(CheckpointRow { plan: of.plan.clone(), channels: of.channels.clone(), ..row });
            }
        }
        Some(())
    }

    fn tell(&mut self, write: Write) -> Option<()> {
        let boundary = self.boundary.as_ref()?.checkpoint;
        match write {
            Write::RunStatus { run, status, error, ended_at } => {
                self.is(run)?;
                (self.run.status, self.run.error, self.run.ended_at) = (status, error, ended_at);
            }
            Write::Task(row) if row.child.is_some() => return None,
            Write::Task(row) if row.boundary == boundary => {
                self.tasks.insert(row.index, row);
            }
            Write::Interrupt(row) if row.boundary == boundary => self.interrupts.push(row),
            Write::Journal(row) => {
                self.journal.retain(|before| (before.task, before.index) != (row.task, row.index));
                self.journal.push(row);
            }
            Write::Answer { interrupt, answer } => {
                let asked = self.interrupts.iter_mut().find(|row| row.interrupt == interrupt);
                if let Some(row) = asked {
                    row.state = InterruptState::Answered(answer);
                }
            }
            Write::Withdraw { interrupt, withdrawal } => {
                let asked = self.interrupts.iter_mut().find(|row| row.interrupt == interrupt);
                if let Some(row) = asked {
                    row.state = InterruptState::Withdrawn(withdrawal);
                }
            }
            // Of a boundary that is left; or nothing that a snapshot shows.
            Write::Task(_) | Write::Interrupt(_) => {}
            Write::Effect(_)
            | Write::Steer(_)
            | Write::Delivered { .. }
            | Write::Enqueue(_)
            | Write::Dequeue { .. }
            | Write::Request { .. }
            | Write::Under { .. }
            | Write::End(_) => {}
            _ => return None,
        }
        Some(())
    }

    /// In the order in which it is read.
    fn told(self, head: CheckpointId) -> Option<RunSnapshot> {
        let (boundary, checkpoint) = (self.boundary?, self.head.filter(|row| row.checkpoint == head)?);
        let tasks: Vec<TaskRow> = self.tasks.into_values().collect();
        if tasks.iter().any(|task| task.child.is_some()) {
            return None;
        }
        let place = |id| tasks.iter().position(|task| task.task == id);
        let mut interrupts = self.interrupts;
        interrupts.retain(|row| place(row.task).is_some());
        interrupts.sort_by_key(|row| (place(row.task), row.entry, row.place));
        let is_open = |row: &JournalRow| {
            place(row.task).is_some_and(|at| !matches!(tasks[at].state, TaskState::Finished(_)))
        };
        let mut journal = self.journal;
        journal.retain(is_open);
        journal.sort_by_key(|row| (place(row.task), row.index));
        let questions = Questions::of(&interrupts);
        let journal = journal.into_iter().map(|row| filled(row, &questions).ok()).collect::<Option<_>>()?;
        Some(RunSnapshot {
            run: self.run,
            checkpoint,
            boundary: boundary.checkpoint,
            boundary_created_at: boundary.created_at,
            tasks,
            journal,
            interrupts,
            children: Vec::new(),
        })
    }
}

fn weight(snapshot: &ThreadSnapshot) -> usize {
    let root = &snapshot.root;
    let of = |json: &Json| json.as_str().len();
    let rows = 2 + root.tasks.len() + root.journal.len() + root.interrupts.len() + snapshot.values.len();
    let values: usize = snapshot.values.values().map(|(_, value)| of(value)).sum();
    let asked = root.interrupts.iter().map(|row| {
        let given = match &row.state {
            InterruptState::Answered(answer) => of(&answer.value),
            InterruptState::Pending | InterruptState::Withdrawn(_) => 0,
        };
        of(&row.payload)
            + given
            + [&row.answer_schema, &row.default_answer].into_iter().flatten().map(of).sum::<usize>()
    });
    let journal = root.journal.iter().map(|row| (row.entry.call.bytes() + row.entry.reply.bytes()) as usize);
    let plan = root.checkpoint.plan.tasks.iter().map(|task| 64 + task.arg.as_ref().map_or(0, of));
    let held = root.tasks.iter().map(|task| match &task.state {
        TaskState::Finished(finish) => finish.update.iter().map(|(_, value)| of(value)).sum(),
        TaskState::Started | TaskState::Paused | TaskState::Failed(_) => 0,
    });
    let channels = root.checkpoint.channels.len() * 64;
    rows * ROW_BYTES + values + channels + asked.chain(journal).chain(plan).chain(held).sum::<usize>()
}
