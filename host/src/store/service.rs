//! What the service writes: several rows of one tenant, all or none.

use super::assistants::{self, AssistantRow, DeploymentRow};
use super::deliveries::{self, DeliveryRow};
use super::invocations::{self, InvocationEnd, InvocationRow};
use super::keys::{self, KeyRow};
use super::notes::{self, NoteRow};
use super::settings::{self, SettingsRow};
use super::write::{Pen, Stop};
use super::{Store, writer};
use crate::model::ids::{RunId, TenantId, ThreadId, Timestamp};
use uuid::Uuid;

/// One row that the service wants to be so. Where it cannot be, nothing of its list is.
#[derive(Clone, Debug)]
pub enum ServiceWrite {
    /// A tenant that there is from now on.
    Tenant,
    Settings(SettingsRow),
    Key(KeyRow),
    /// Only one that is not revoked yet.
    RevokeKey {
        key: Uuid,
        at: Timestamp,
    },
    /// Which graph a name stands for; counts its versions.
    Deploy(DeploymentRow),
    /// Only if there is none of this id.
    NewAssistant(AssistantRow),
    /// Inserted, or left as it is.
    EnsureAssistant(AssistantRow),
    /// Only one that is there.
    Assistant(AssistantRow),
    RemoveAssistant {
        assistant: Uuid,
    },
    /// Only if there is no thread of this name.
    NewNote(NoteRow),
    /// Inserted, or left as it is.
    EnsureNote(NoteRow),
    /// Inserted, or in the place of what is there.
    Note(NoteRow),
    /// All of a thread that never ran.
    ForgetUnrun {
        thread: ThreadId,
    },
    /// Accepted. It runs at once where the thread is free of others, and waits else; with `only_if_free` it
    /// is a conflict then.
    Accept {
        row: Box<InvocationRow>,
        only_if_free: bool,
    },
    /// All others on this thread that are not over are.
    Supersede {
        thread: ThreadId,
        by: Uuid,
        at: Timestamp,
    },
    /// Only one that waits.
    Begin {
        invocation: Uuid,
        at: Timestamp,
    },
    /// The run that it is about.
    OfRun {
        invocation: Uuid,
        run: RunId,
    },
    /// Only one that is not over.
    End(InvocationEnd),
    /// Only one that is over.
    RemoveInvocation {
        invocation: Uuid,
    },
    Deliver(DeliveryRow),
    Delivered {
        seq: i64,
    },
    NotDelivered {
        seq: i64,
        next_at: Timestamp,
        error: String,
    },
}

/// Why nothing was written: a row is not as it was expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSo;

impl Store {
    /// Makes all of it so, or nothing; durable when this returns.
    pub async fn serve(
        &self,
        tenant: &TenantId,
        writes: Vec<ServiceWrite>,
    ) -> Result<Result<(), NotSo>, super::StoreError> {
        match self.inner.work(writer::Work::Service { tenant: tenant.clone(), writes }).await {
            Ok(_) => Ok(Ok(())),
            Err(super::CommitError::Conflict) => Ok(Err(NotSo)),
            Err(super::CommitError::Store(error)) => Err(error),
        }
    }
}

pub(super) async fn one(pen: &mut Pen<'_>, write: &ServiceWrite) -> Result<(), Stop> {
    match write {
        ServiceWrite::Tenant => Ok(()),
        ServiceWrite::Settings(row) => settings::put(pen, row).await,
        ServiceWrite::Key(row) => keys::insert(pen, row).await,
        ServiceWrite::RevokeKey { key, at } => keys::revoke(pen, *key, *at).await,
        ServiceWrite::Deploy(row) => assistants::deploy(pen, row).await,
        ServiceWrite::NewAssistant(row) => assistants::insert(pen, row, assistants::Or::Conflict).await,
        ServiceWrite::EnsureAssistant(row) => assistants::insert(pen, row, assistants::Or::Leave).await,
        ServiceWrite::Assistant(row) => assistants::update(pen, row).await,
        ServiceWrite::RemoveAssistant { assistant } => assistants::remove(pen, *assistant).await,
        ServiceWrite::NewNote(row) => notes::insert(pen, row).await,
        ServiceWrite::EnsureNote(row) => notes::ensure(pen, row).await,
        ServiceWrite::Note(row) => notes::put(pen, row).await,
        ServiceWrite::ForgetUnrun { thread } => notes::forget_unrun(pen, thread).await,
        ServiceWrite::Accept { row, only_if_free } => invocations::accept(pen, row, *only_if_free).await,
        ServiceWrite::Supersede { thread, by, at } => invocations::supersede(pen, thread, *by, *at).await,
        ServiceWrite::Begin { invocation, at } => invocations::begin(pen, *invocation, *at).await,
        ServiceWrite::OfRun { invocation, run } => invocations::of_run(pen, *invocation, *run).await,
        ServiceWrite::End(end) => invocations::end(pen, end).await,
        ServiceWrite::RemoveInvocation { invocation } => invocations::remove(pen, *invocation).await,
        ServiceWrite::Deliver(row) => deliveries::insert(pen, row).await,
        ServiceWrite::Delivered { seq } => deliveries::remove(pen, *seq).await,
        ServiceWrite::NotDelivered { seq, next_at, error } => {
            deliveries::put_off(pen, *seq, *next_at, error).await
        }
    }
}

/// For a change of one row that must be there.
pub(super) async fn one_or_conflict(pen: &mut Pen<'_>, sql: super::reader::Sql) -> Result<(), Stop> {
    match pen.change(sql).await? {
        0 => Err(Stop::Conflict),
        _ => Ok(()),
    }
}
