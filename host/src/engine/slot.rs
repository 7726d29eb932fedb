//! One task of a step, as far as it got: what it waits for, and what it asks.

use std::sync::{Arc, Mutex};

use super::host::locked;
use super::run::Run;
use super::task::{host_question, take_journal};
use crate::model::checkpoint::{InterruptRow, InterruptState, TaskRow, TaskState, Withdrawal};
use crate::model::ids::{CheckpointId, NodeId, Timestamp};
use crate::model::interrupt::InterruptKind;
use crate::model::journal::{EffectReply, Journal, Reply};
use crate::model::json::Json;
use crate::store::Write;

pub struct Slot {
    pub row: TaskRow,
    pub arg: Option<Json>,
    pub journal: Arc<Mutex<Journal>>,
    /// All that this task asked at this boundary.
    pub interrupts: Vec<InterruptRow>,
    /// Of a subgraph node, once it is started.
    pub child: Option<Box<Run>>,
    /// Where the graph or the run says to stop.
    pub gated: Gated,
    /// It has to run: it never did, its process died, or it was answered. For a subgraph see
    /// [`Self::is_ready`].
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
            // What takes a failure is not the update that the gate is for.
            TaskState::Finished(finish) => (InterruptKind::After, self.gated.after && finish.error.is_none()),
            TaskState::Failed(_) => return None,
            // A task that has begun is past it, also where the graph has it only since.
            TaskState::Started | TaskState::Paused => {
                let waits = |row: &InterruptRow| {
                    row.kind == InterruptKind::Before && row.state == InterruptState::Pending
                };
                let is_held = self.interrupts.iter().any(waits);
                (InterruptKind::Before, (self.gated.before || is_held) && self.row.attempts == 0)
            }
        };
        let passed =
            |row: &InterruptRow| row.kind == kind && matches!(row.state, InterruptState::Answered(_));
        (gated && !self.interrupts.iter().any(passed)).then_some(kind)
    }

    /// Whether a pause of it can be ended: all that it waits for is asked, and takes an answer. What a process that
    /// died had taken down and not yet asked is not so, until it is gone on with.
    pub fn can_be_answered(&self) -> Result<(), String> {
        if self.row.state != TaskState::Paused || self.gate().is_some() || self.row.child.is_some() {
            return Ok(());
        }
        let journal = locked(&self.journal);
        let is_pending = |kind, entry, place: Option<usize>| {
            self.interrupts.iter().any(|row| {
                row.state == InterruptState::Pending
                    && (row.kind, row.entry) == (kind, entry)
                    && place.is_none_or(|place| row.place == place)
            })
        };
        let Some((entry, waiting)) = journal.waiting().filter(|(_, waiting)| !waiting.is_answered()) else {
            return Ok(());
        };
        let is_asked = match &waiting.reply {
            Reply::Answers(answers) => answers
                .iter()
                .enumerate()
                .filter(|(_, answer)| answer.is_none())
                .all(|(place, _)| is_pending(InterruptKind::Node, entry, Some(place))),
            Reply::Effect(EffectReply::Asked { kind, .. }) => is_pending(*kind, entry, None),
            _ => true,
        };
        match is_asked {
            true => Ok(()),
            false => {
                Err(format!("it waits at entry {entry} of its journal for an answer that cannot be given"))
            }
        }
    }

    /// Whether what is pending of it belongs to a call that its journal has.
    pub fn asks_what_it_called(&self) -> Result<(), String> {
        let journal = locked(&self.journal);
        let pending = self.interrupts.iter().filter(|row| row.state == InterruptState::Pending);
        for row in pending.filter(|row| !row.kind.is_gate()) {
            let is_asked = journal.entries().get(row.entry).is_some_and(|entry| match &entry.reply {
                Reply::Answers(answers) => row.kind == InterruptKind::Node && row.place < answers.len(),
                Reply::Effect(EffectReply::Asked { kind, .. }) => *kind == row.kind,
                _ => false,
            });
            if !is_asked {
                let (interrupt, entry) = (row.interrupt, row.entry);
                return Err(format!(
                    "interrupt {interrupt} is of entry {entry} of its journal, which did not ask it"
                ));
            }
        }
        Ok(())
    }

    /// Whether running it again gets it further: it waited, and for nothing any more.
    pub fn is_answered(&self) -> bool {
        self.row.state == TaskState::Paused
            && self.gate().is_none()
            && locked(&self.journal).waiting().is_none_or(|(_, entry)| entry.is_answered())
            && self.child.as_ref().is_none_or(|child| child.can_move())
    }

    /// Whether it has to run, or something below it has.
    pub fn is_ready(&self) -> bool {
        let below = || self.child.as_ref().is_some_and(|child| child.can_move());
        self.ready || (self.row.state == TaskState::Paused && self.gate().is_none() && below())
    }

    /// It waits for a person, or something below it does.
    pub fn waits(&self) -> bool {
        match &self.row.state {
            _ if self.gate().is_some() => true,
            TaskState::Paused => !self.is_answered(),
            TaskState::Started | TaskState::Finished(_) | TaskState::Failed(_) => false,
        }
    }

    /// It is done, and nothing holds its update back.
    pub fn is_through(&self) -> bool {
        matches!(self.row.state, TaskState::Finished(_)) && self.gate().is_none()
    }

    /// Begins another attempt at this time, after one that failed. What there was of a child run that was
    /// called off is left.
    pub fn retry(&mut self, at: Timestamp) -> Vec<Write> {
        let mut journal = locked(&self.journal);
        let kept = journal.retry(at);
        self.row.generation = journal.generation();
        self.row.state = TaskState::Started;
        self.ready = true;
        self.changed = true;
        // In one commit: a journal that is cut under a task that does not say so would ask anew under old ids.
        let mut writes = vec![Write::Cut { task: self.row.task, kept }, Write::Task(self.row.clone())];
        writes.extend(take_journal(&self.row, &mut journal));
        writes
    }

    /// Withdraws what is pending of what it asks, where `why` says so.
    pub fn withdraw(&mut self, why: impl Fn(&InterruptRow) -> Option<Withdrawal>) -> Vec<Write> {
        let pending = self.interrupts.iter_mut().filter(|row| row.state == InterruptState::Pending);
        let withdrawn = pending.filter_map(|row| {
            let withdrawal = why(row)?;
            row.state = InterruptState::Withdrawn(withdrawal.clone());
            Some(Write::Withdraw { interrupt: row.interrupt, withdrawal })
        });
        withdrawn.collect()
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
            |kind, place, payload| InterruptRow::fresh(&self.row, (pause, now), kind, place, payload);
        let mut rows = Vec::new();
        if let Some(gate) = self.gate() {
            rows.push(question(gate, (0, 0, 0), self.gate_payload()));
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
                    ..question(*kind, (entry, entry, times), payload)
                });
            }
            let first = journal.orders_before(entry);
            for (place, asked) in waiting.call.questions().iter().enumerate() {
                rows.push(InterruptRow {
                    answer_schema: asked.answer_schema.clone(),
                    expires_at: asked.expires_after_ms.map(|ms| now.plus_ms(ms)),
                    default_answer: asked.default_answer.clone(),
                    ..question(InterruptKind::Node, (first + place, entry, place), asked.payload.clone())
                });
            }
        }
        rows.retain(|row| !self.interrupts.iter().any(|known| known.interrupt == row.interrupt));
        self.interrupts.extend(rows.iter().cloned());
        rows
    }
}
