//! One task of a step, as far as it got: what it waits for, and what it asks.

use std::sync::{Arc, Mutex};

use super::host::locked;
use super::task::host_question;
use crate::model::checkpoint::{InterruptRow, InterruptState, TaskRow, TaskState};
use crate::model::ids::{CheckpointId, InterruptId, NodeId, Timestamp};
use crate::model::interrupt::{Interrupt, InterruptKind, PendingInterrupt};
use crate::model::journal::{EffectReply, Journal, Reply};
use crate::model::json::Json;

pub struct Slot {
    pub row: TaskRow,
    pub arg: Option<Json>,
    pub journal: Arc<Mutex<Journal>>,
    /// All that this task asked at this boundary.
    pub interrupts: Vec<InterruptRow>,
    /// Where the graph or the run says to stop.
    pub gated: Gated,
    /// It has to run: it never did, its process died, or it was answered.
    pub ready: bool,
    /// The store has not seen it as it stands.
    pub changed: bool,
}

/// Where the graph or the run says to stop a task.
#[derive(Clone, Copy)]
pub struct Gated {
    pub before: bool,
    pub after: bool,
}

impl Slot {
    pub fn end(&mut self, state: TaskState) {
        self.row.state = state;
        self.ready = false;
        self.changed = true;
    }

    pub fn is_pending(&self) -> bool {
        self.row.state == TaskState::Paused || self.gate().is_some()
    }

    /// The gate that this task stands at, as far as it got.
    pub fn gate(&self) -> Option<InterruptKind> {
        let (kind, gated) = match &self.row.state {
            TaskState::Finished(_) => (InterruptKind::After, self.gated.after),
            TaskState::Failed(_) => return None,
            TaskState::Started | TaskState::Paused => (InterruptKind::Before, self.gated.before),
        };
        let passed =
            |row: &InterruptRow| row.kind == kind && matches!(row.state, InterruptState::Answered(_));
        (gated && !self.interrupts.iter().any(passed)).then_some(kind)
    }

    /// Whether running it again gets it further: it waited, and for nothing any more.
    pub fn is_answered(&self) -> bool {
        self.row.state == TaskState::Paused
            && self.gate().is_none()
            && locked(&self.journal).waiting().is_none_or(|(_, entry)| entry.is_answered())
    }

    /// What a person sees at a gate: what the task was sent, or the update that is held back.
    fn gate_payload(&self) -> Json {
        match &self.row.state {
            TaskState::Finished(finish) => {
                Json::object(finish.update.iter().map(|(channel, value)| (channel.as_str(), value)))
            }
            _ => self.arg.clone().unwrap_or_else(Json::null),
        }
    }

    /// Rows for what it asks, those that it has not asked yet: a gate, or the questions of the journal's
    /// last entry.
    pub fn ask(
        &mut self,
        pause: CheckpointId,
        now: Timestamp,
        shown: impl Fn(&NodeId, &str, &str) -> Json,
    ) -> Vec<InterruptRow> {
        let journal = locked(&self.journal);
        let question =
            |kind: InterruptKind, order: usize, (entry, place): (usize, usize), payload: Json| InterruptRow {
                interrupt: InterruptId::derive(
                    self.row.task,
                    kind.as_str(),
                    (order, if kind == InterruptKind::Node { 0 } else { place }),
                    journal.generation(),
                ),
                run: self.row.run,
                task: self.row.task,
                node: self.row.node.clone(),
                boundary: self.row.boundary,
                checkpoint: pause,
                kind,
                order,
                entry,
                place,
                payload,
                answer_schema: None,
                asked_at: now,
                expires_at: None,
                default_answer: None,
                state: InterruptState::Pending,
            };
        let mut rows = Vec::new();
        if let Some(gate) = self.gate() {
            rows.push(question(gate, 0, (0, 0), self.gate_payload()));
        } else if let (TaskState::Paused, Some((entry, waiting))) = (&self.row.state, journal.waiting()) {
            if let Reply::Effect(EffectReply::Asked { kind, .. }) = &waiting.reply {
                // One effect can end in doubt more than once; each time is a question of its own.
                let settled = |row: &&InterruptRow| {
                    row.kind == *kind && row.entry == entry && row.state != InterruptState::Pending
                };
                let times = self.interrupts.iter().filter(settled).count();
                let (payload, schema) =
                    host_question(*kind, &waiting.call, |name, key| shown(&self.row.node, name, key));
                rows.push(InterruptRow {
                    answer_schema: Some(schema),
                    ..question(*kind, entry, (entry, times), payload)
                });
            }
            let first = journal.orders_before(entry);
            for (place, asked) in waiting.call.questions().iter().enumerate() {
                rows.push(InterruptRow {
                    answer_schema: asked.answer_schema.clone(),
                    expires_at: asked.expires_after_ms.map(|ms| now.plus_ms(ms)),
                    default_answer: asked.default_answer.clone(),
                    ..question(InterruptKind::Node, first + place, (entry, place), asked.payload.clone())
                });
            }
        }
        rows.retain(|row| !self.interrupts.iter().any(|known| known.interrupt == row.interrupt));
        self.interrupts.extend(rows.iter().cloned());
        rows
    }
}

/// Pending questions as they are shown.
pub fn pending<'a>(rows: impl Iterator<Item = &'a InterruptRow>) -> Vec<PendingInterrupt> {
    rows.filter(|row| row.state == InterruptState::Pending)
        .map(|row| PendingInterrupt {
            interrupt: Interrupt {
                id: row.interrupt,
                node: row.node.clone(),
                task_id: row.task,
                payload: row.payload.value(),
                order: row.order,
            },
            kind: row.kind,
            namespace: Vec::new(),
            run_path: vec![row.run],
            agent: None,
            checkpoint_id: row.checkpoint,
            answer_schema: row.answer_schema.as_ref().map(Json::value),
            expires_at: row.expires_at,
        })
        .collect()
}
