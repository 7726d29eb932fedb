//! The call that an invocation is carried out for, where somebody wrote it down and may end it at any time: what is
//! not durable by then never is.

use uuid::Uuid;

use super::error::EngineError;
use super::host::Host;
use crate::model::error::{Kind, Refused};
use crate::model::execution::RunStatus;
use crate::model::ids::{RunId, ThreadId};
use crate::model::{ErrorRecord, Timestamp};
use crate::store::{InvocationEnd, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForCall {
    pub invocation: Uuid,
    pub end: CallEnd,
}

/// Who writes down that a call is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The commit with which its run ends or pauses.
    WithRun,
    /// Whoever carries it out, when there is nothing more to do.
    Apart,
}

impl ForCall {
    /// Goes with the first commit that is made for it. Later ones are under the epoch of the first.
    pub fn guard(self) -> Write {
        Write::Under { invocation: self.invocation }
    }

    /// Goes with the last one, if that ends it.
    pub fn over(self, run: (RunId, RunStatus), error: Option<ErrorRecord>, at: Timestamp) -> Option<Write> {
        match self.end {
            CallEnd::WithRun => Some(Write::End(InvocationEnd::of(self.invocation, run, error, at))),
            CallEnd::Apart => None,
        }
    }
}

impl Host {
    /// Has what is at work on a thread in this process look whether it still may be: a call was ended that may be
    /// the one.
    pub fn look_again(&self, thread: &ThreadId) {
        self.shared.called_off(&self.tenant, thread);
    }

    /// After a conflict: whether what it is carried out for may still be done. It is not tried again otherwise.
    pub(super) async fn is_wanted(&self) -> Result<(), EngineError> {
        let (Some(ForCall { invocation, .. }), Some(store)) = (self.call, &self.shared.store) else {
            return Ok(());
        };
        match store.invocation(&self.tenant, invocation).await? {
            Some(row) if !row.status.is_over() => Ok(()),
            _ => {
                Err(Refused::plain(Kind::Cancelled, "the call was called off before it was carried out")
                    .into())
            }
        }
    }
}
