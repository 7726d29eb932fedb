//! What the engine asks to become true, all of it or nothing.

use super::invocations::InvocationEnd;
use crate::model::checkpoint::{
    Answer, ChannelRow, CheckpointRow, EffectRow, InterruptRow, JournalRow, QueuedInput, RunRow, SteeringRow,
    TaskRow, Withdrawal,
};
use crate::model::ids::{
    CheckpointId, Digest, InstructionId, InterruptId, RunId, TaskId, TenantId, ThreadId, Timestamp,
};
use crate::model::json::Json;
use crate::model::{ErrorRecord, RunStatus};
use uuid::Uuid;

/// Identifies one process's claim to run threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId(pub u128);

/// One transaction on one thread, carried out only if the thread is as the writer thinks it is.
#[derive(Clone, Debug)]
pub struct Batch {
    pub tenant: TenantId,
    pub thread: ThreadId,
    pub expect: Expect,
    /// The thread's state afterwards.
    pub head: CheckpointId,
    pub status: RunStatus,
    pub lease: LeaseChange,
    pub writes: Vec<Write>,
}

/// The guard of every state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The thread is not there yet; it is made with this secret, from which its guests' random
    /// numbers come and which no guest sees.
    Absent { secret: [u8; 32] },
    /// Its head and epoch are these.
    At { head: CheckpointId, epoch: i64 },
}

/// What happens to the right to run the thread. Every change but `Keep` and `Renew` grows the epoch, so
/// that whoever held it before can write nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// As it is; the writer holds it, or nobody does and the writer needs none.
    Keep,
    Claim {
        owner: OwnerId,
        until: Timestamp,
    },
    Renew {
        until: Timestamp,
    },
    Release,
}

/// The same writes with fewer statements: what another of them overwrites, or could have said at once, is left
/// out. Their order stays.
pub fn merged(writes: Vec<Write>) -> Vec<Write> {
    let mut kept: Vec<Write> = Vec::with_capacity(writes.len());
    for write in writes {
        let is_same = |before: &Write| match (before, &write) {
            (Write::Task(before), Write::Task(now)) => before.task == now.task,
            (Write::RunStatus { run: before, .. }, Write::RunStatus { run: now, .. })
            | (Write::RunHead { run: before, .. }, Write::RunHead { run: now, .. }) => before == now,
            _ => false,
        };
        if let Some(place) = kept.iter().rposition(is_same) {
            kept[place] = write;
            continue;
        }
        if let Write::End(end) = &write {
            kept.retain(
                |before| !matches!(before, Write::Under { invocation } if *invocation == end.invocation),
            );
        }
        let begins = |before: &Write| match (before, &write) {
            (Write::Run(row), Write::RunStatus { run, .. } | Write::RunHead { run, .. }) => row.run == *run,
            _ => false,
        };
        let born = kept.iter().position(begins).and_then(|place| match &mut kept[place] {
            Write::Run(row) => Some(row),
            _ => None,
        });
        match (born, write) {
            (Some(row), Write::RunStatus { status, error, ended_at, .. }) => {
                (row.status, row.error, row.ended_at) = (status, error, ended_at);
            }
            (Some(row), Write::RunHead { head, .. }) => row.head = Some(head),
            (_, write) => kept.push(write),
        }
    }
    kept
}

#[derive(Clone, Debug)]
pub enum Write {
    Run(RunRow),
    RunStatus {
        run: RunId,
        status: RunStatus,
        error: Option<ErrorRecord>,
        ended_at: Option<Timestamp>,
    },
    /// The graph that a run is pinned to from now on.
    RunGraph {
        run: RunId,
        graph: Digest,
    },
    /// The latest checkpoint of a child run.
    RunHead {
        run: RunId,
        head: CheckpointId,
    },
    Checkpoint(CheckpointRow),
    Channel(ChannelRow),
    /// Inserted, or put in the place of what stands for this task.
    Task(TaskRow),
    /// Entries of a task's journal are dropped, from `kept` on; before others are put there.
    Cut {
        task: TaskId,
        kept: usize,
    },
    /// Inserted, or put in the place of what stands at this index.
    Journal(JournalRow),
    /// Inserted, or its state put in the place of what stands for this scope.
    Effect(EffectRow),
    Interrupt(InterruptRow),
    /// Only if it is pending; else the batch is a conflict.
    Answer {
        interrupt: InterruptId,
        answer: Answer,
    },
    /// As an answer.
    Withdraw {
        interrupt: InterruptId,
        withdrawal: Withdrawal,
    },
    Steer(SteeringRow),
    /// A node was told of it.
    Delivered {
        run: RunId,
        id: InstructionId,
        at: Timestamp,
    },
    /// Behind all that waits on the thread.
    Enqueue(QueuedInput),
    /// Taken off by whoever starts it; if it is not there any more, the batch is a conflict.
    Dequeue {
        seq: i64,
    },
    /// A request was carried out; the reply is repeated to whoever sends it again. Without one, it was
    /// accepted and is not finished yet. Inserted, or its reply set.
    Request {
        request_id: String,
        /// Of what was asked.
        command: Digest,
        at: Timestamp,
        reply: Option<Json>,
    },
    /// Only while this call is not over; else the batch is a conflict.
    Under {
        invocation: Uuid,
    },
    /// A call is over with this; if it was before, the batch is a conflict.
    End(InvocationEnd),
}
