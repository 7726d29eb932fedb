//! What a command says: one document for programs, a text for people, and an exit status.

use serde::Serialize;
use serde_json::Value;

use super::failure::Failure;
use super::screen::harmless;
use super::way_out;
use crate::engine::{EngineError, Host};
use crate::model::{
    CheckpointId, ErrorRecord, Execution, PendingInterrupt, Refused, RunConfig, RunId, RunStatus, ThreadId,
};

/// How a command ended, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The run completed; the command did what was asked.
    Completed,
    /// The run failed or diverged; the host could not do its job.
    Failed,
    /// The command, or a file that it names, is not what it must be.
    Usage,
    /// The run waits for an answer.
    Interrupted,
    /// The thread is not as the command takes it to be.
    Refused,
    /// `verify` found no way through a node that does not fail.
    Unverified,
    /// Told to stop.
    Stopped,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 3,
            Self::Refused => 4,
            Self::Unverified => 5,
            // As shells report a program that Ctrl-C ended.
            Self::Stopped => 130,
        }
    }

    /// How an invocation ended.
    pub fn of(status: RunStatus) -> Self {
        match status {
            RunStatus::Completed => Self::Completed,
            RunStatus::Interrupted => Self::Interrupted,
            RunStatus::Running | RunStatus::Failed | RunStatus::Diverged | RunStatus::Cancelled => {
                Self::Failed
            }
        }
    }
}

/// What a command has to say.
#[derive(Debug)]
pub struct Said {
    pub exit: Exit,
    /// On one line, for standard output, with `--json`.
    pub document: String,
    /// Without `--json`: for standard output …
    pub text: String,
    /// … and for standard error.
    pub notice: String,
}

impl Said {
    pub fn new(exit: Exit, document: &impl Serialize, text: impl Into<String>) -> Self {
        Self { exit, document: one_line(document), text: text.into(), notice: String::new() }
    }

    /// A failure that says nothing of a thread.
    pub fn failed(failure: &Failure) -> Self {
        #[derive(Serialize)]
        struct Failed {
            status: RunStatus,
            error: ErrorRecord,
        }
        let failed = Failed { status: RunStatus::Failed, error: failure.record() };
        Self { notice: harmless(&failure.to_string()).into_owned(), ..Self::new(failure.exit(), &failed, "") }
    }
}

fn one_line(document: &impl Serialize) -> String {
    // Documents have strings for keys and no numbers but JSON's own, so they serialise.
    serde_json::to_string(document).unwrap_or_default()
}

/// How a thread stands: what `run`, `resume`, `continue` and `show` print, and `pending` of each thread.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    pub thread: Option<ThreadId>,
    pub run_id: RunId,
    pub checkpoint_id: Option<CheckpointId>,
    pub status: RunStatus,
    pub state: Value,
    pub interrupts: Vec<PendingInterrupt>,
    pub error: Option<ErrorRecord>,
}

impl Document {
    /// What came of an invocation on a thread.
    pub async fn of(host: &Host, thread: &ThreadId, execution: Execution) -> Result<Self, EngineError> {
        let Execution { thread: of, run_id, checkpoint_id, status, interrupts, error } = execution;
        let state = host.state(RunConfig::thread(thread.as_str())).await?;
        Ok(Self { thread: of, run_id, checkpoint_id, status, state, interrupts, error })
    }

    pub async fn now(host: &Host, thread: &ThreadId) -> Result<Self, EngineError> {
        let execution = host.execution(RunConfig::thread(thread.as_str())).await?;
        Self::of(host, thread, execution).await
    }

    /// The pause as the refusal saw it, with the refusal as the error.
    pub fn refused(self, refused: &Refused) -> Self {
        // The document has the latest run and checkpoint; its step goes with the error.
        let error = way_out::told(refused.error.clone());
        let error = match refused.step {
            Some(step) => error.with("step", step),
            None => error,
        };
        let error = Some(error);
        match refused.run_id {
            None => Self { error, ..self },
            Some(run_id) => Self {
                run_id,
                checkpoint_id: refused.checkpoint_id,
                interrupts: refused.pending.clone(),
                error,
                ..self
            },
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::model::{Interrupt, InterruptKind, Kind, NodeId, TaskId};
    use serde_json::json;
    use uuid::Uuid;

    /// A thread that waits for one answer.
    pub fn paused() -> Document {
        let id = Uuid::from_u128;
        Document {
            thread: Some(ThreadId::parse("support-123").unwrap()),
            run_id: RunId(id(1)),
            checkpoint_id: Some(CheckpointId(id(2))),
            status: RunStatus::Interrupted,
            state: json!({ "labels": ["docs"] }),
            interrupts: vec![PendingInterrupt {
                interrupt: Interrupt {
                    id: crate::model::InterruptId(id(3)),
                    node: NodeId::parse("approve").unwrap(),
                    task_id: TaskId(id(4)),
                    // A number keeps the digits that it was written with.
                    payload: serde_json::from_str(r#"{ "amount": 12.50 }"#).unwrap(),
                    order: 0,
                },
                kind: InterruptKind::Node,
                namespace: Vec::new(),
                run_path: vec![RunId(id(1))],
                agent: None,
                checkpoint_id: CheckpointId(id(2)),
                answer_schema: None,
                expires_at: None,
            }],
            error: None,
        }
    }

    #[test]
    fn the_document_is_as_it_was_promised() {
        let id = |n: u128| Uuid::from_u128(n).to_string();
        let said = Said::new(Exit::Interrupted, &paused(), "");
        assert!(!said.document.contains('\n'));
        assert!(said.document.contains(r#"{"amount":12.50}"#));
        let document: Value = serde_json::from_str(&said.document).unwrap();
        assert_eq!(
            document,
            json!({
                "thread": "support-123", "run_id": id(1), "checkpoint_id": id(2),
                "status": "interrupted",
                "state": { "labels": ["docs"] },
                "interrupts": [{
                    "id": id(3), "node": "approve", "task_id": id(4), "payload": paused().interrupts[0].interrupt.payload,
                    "order": 0, "kind": "node", "namespace": [], "run_path": [id(1)], "agent": null,
                    "checkpoint_id": id(2), "answer_schema": null, "expires_at": null,
                }],
                "error": null,
            })
        );
    }

    #[test]
    fn a_refusal_shows_the_pause_and_the_reason() {
        let plain = Refused::plain(Kind::Stale, "too late");
        let shown = paused().refused(&plain);
        assert_eq!(shown.interrupts.len(), 1);
        assert_eq!(shown.error.unwrap().kind, Kind::Stale);

        let moved_on = Refused { run_id: Some(RunId(Uuid::from_u128(9))), ..plain };
        let shown = paused().refused(&moved_on);
        assert_eq!((shown.run_id, shown.interrupts.len()), (RunId(Uuid::from_u128(9)), 0));
    }

    #[test]
    fn an_error_is_a_document_too() {
        let said = Said::failed(&Failure::argument("no"));
        let document: Value = serde_json::from_str(&said.document).unwrap();
        assert_eq!(document, json!({ "status": "failed", "error": { "kind": "invalid", "message": "no" } }));
        assert_eq!(said.exit.code(), 2);
    }

    #[test]
    fn an_invocation_ends_with_its_status() {
        for (status, code) in [
            (RunStatus::Completed, 0),
            (RunStatus::Failed, 1),
            (RunStatus::Diverged, 1),
            (RunStatus::Cancelled, 1),
            (RunStatus::Interrupted, 3),
        ] {
            assert_eq!(Exit::of(status).code(), code, "{status:?}");
        }
    }
}
