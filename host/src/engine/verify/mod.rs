//! Whether a node does again what it did: it is run, then replayed at every prefix of its journal, twice
//! each, in fresh instances, and every attempt is held against the first.
//!
//! Nothing is durable here and nothing goes out: answers and the outcomes of effects are what the caller
//! says they are. Clock and random numbers start from the same place each time, so that a report can be
//! repeated.

mod attempt;
mod difference;
mod subject;

pub use difference::{At, Difference, Ended, Outcome, compare};
pub use subject::{Outcomes, Subject};

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::model::error::ErrorRecord;
use crate::model::interrupt::Question;
use crate::model::journal::{Call, Entry};
use crate::model::json::Json;
use crate::sandbox::Sandbox;
use attempt::{ANOTHER, Done, attempt, host_failed};
use difference::diverged;

/// How long people take to answer, on the node's clock. No round number, so that a node that reads the clock
/// sees it.
const ANSWER_MS: u64 = 3_723_004;
/// Each prefix is replayed so often.
const REPLAYS: usize = 2;

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// What the node called, with what it was told.
    pub journal: Vec<Entry>,
    /// How the first run ended, once all questions were answered.
    pub ended: Ended,
    /// Of the journal; 0 calls have one prefix.
    pub prefixes: usize,
    pub attempts: usize,
    /// The first that was found; the rest of the prefixes is left out.
    pub difference: Option<Difference>,
}

/// Why nothing can be said of the node.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The caller gave no answer that the question takes.
    #[error("{0}")]
    Answer(String),
    /// The host could not carry an attempt to its end.
    #[error("an attempt was cut short, which says nothing of the node: {}", .0.message)]
    CutShort(ErrorRecord),
}

/// `answer` is asked for each question, by its order. `progress` is told how many of the prefixes, of how
/// many, are done.
pub async fn verify(
    sandbox: &Sandbox,
    subject: &Subject,
    mut answer: impl FnMut(usize, &Question) -> Result<Json, String>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Report, VerifyError> {
    let first = record(sandbox, subject, &mut answer).await?;
    first.replayed_by(sandbox, subject, &mut progress).await
}

/// At which calls an effect has another key when the node is activated again, at another time and with other
/// random numbers: the key comes from one of these, and so the same thing is done again.
pub async fn keys_by_chance(
    sandbox: &Sandbox,
    subject: &Subject,
    journal: &[Entry],
    mut answer: impl FnMut(usize, &Question) -> Result<Json, String>,
) -> Vec<usize> {
    let is_keyed = |entry: &Entry| matches!(entry.call, Call::Effect { .. });
    if !journal.iter().any(is_keyed) {
        return Vec::new();
    }
    let elsewhere = Subject { world: ANOTHER, ..subject.clone() };
    // It may well go another way, and then nothing is known of the rest.
    let Ok(other) = record(sandbox, &elsewhere, &mut answer).await else { return Vec::new() };
    let differs = |(index, pair): (usize, (&Entry, &Entry))| match (&pair.0.call, &pair.1.call) {
        (Call::Effect { name, key, .. }, Call::Effect { name: same, key: other, .. }) => {
            // A key of the task's id is another one on purpose.
            (name == same && *key != other.replace(ANOTHER.task, subject.world.task)).then_some(index)
        }
        _ => None,
    };
    journal.iter().zip(&other.journal).enumerate().filter_map(differs).collect()
}

/// A node's first run: what all replays are held against.
#[derive(Debug)]
pub struct Recording {
    /// All of it settled, but where a difference, or what the node did wrong, cut it short.
    journal: Vec<Entry>,
    /// At which call an attempt paused, and how.
    pauses: Vec<(usize, Ended)>,
    ended: Ended,
    attempts: usize,
    /// Each question's answer is followed by an attempt that replays what came before.
    difference: Option<Difference>,
}

impl Recording {
    /// Has `subject` do it again: the node itself, or another that is said to do the same.
    pub async fn replayed_by(
        self,
        sandbox: &Sandbox,
        subject: &Subject,
        progress: &mut impl FnMut(usize, usize),
    ) -> Result<Report, VerifyError> {
        let subject = Arc::new(subject.clone());
        let prefixes = self.journal.len() + 1;
        let (mut attempts, mut difference) = (self.attempts, self.difference.clone());
        for prefix in 0..prefixes {
            if difference.is_some() {
                break;
            }
            progress(prefix, prefixes);
            attempts += REPLAYS;
            difference = self.replay(sandbox, &subject, prefix).await?;
        }
        let Self { journal, ended, .. } = self;
        Ok(Report { journal, ended, prefixes, attempts, difference })
    }

    /// Where an attempt ends that knows the first `prefix` calls: so many calls it has made by then.
    fn stop_after(&self, prefix: usize) -> (&[Entry], &Ended) {
        match self.pauses.iter().find(|(index, _)| *index >= prefix) {
            Some((index, ended)) => (&self.journal[..=*index], ended),
            None => (&self.journal, &self.ended),
        }
    }

    /// All replays of one prefix at once.
    async fn replay(
        &self,
        sandbox: &Sandbox,
        subject: &Arc<Subject>,
        prefix: usize,
    ) -> Result<Option<Difference>, VerifyError> {
        let mut replays = JoinSet::new();
        for replay in 1..=REPLAYS {
            let (sandbox, subject) = (sandbox.clone(), subject.clone());
            let known = self.journal[..prefix].to_vec();
            replays.spawn(async move { (replay, attempt(&sandbox, &subject, known).await) });
        }
        let (expected, stop) = self.stop_after(prefix);
        let mut differences = Vec::new();
        while let Some(done) = replays.join_next().await {
            let (replay, done) = done.map_err(|_| VerifyError::CutShort(host_failed()))?;
            let Done { journal, ended, divergence } = done?;
            let difference = match divergence {
                Some(divergence) => Some(diverged(*divergence, &ended, prefix, replay)),
                None => compare((expected, stop), (journal.entries(), &ended))
                    .map(|(at, first, replayed)| Difference { prefix, replay, at, first, replayed }),
            };
            differences.extend(difference);
        }
        differences.sort_by_key(|difference| difference.replay);
        Ok(differences.into_iter().next())
    }
}

/// Runs a node to its end, through all its questions, of which a task asks a bounded number.
pub async fn record(
    sandbox: &Sandbox,
    subject: &Subject,
    answer: &mut impl FnMut(usize, &Question) -> Result<Json, String>,
) -> Result<Recording, VerifyError> {
    let (mut known, mut pauses, mut order) = (Vec::new(), Vec::new(), 0);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let prefix = known.len();
        let Done { mut journal, ended, divergence } =
            attempt(sandbox, subject, std::mem::take(&mut known)).await?;
        let difference = divergence.map(|divergence| diverged(*divergence, &ended, prefix, 1));
        // Only a question waits like this: every effect that is granted has an outcome.
        let waiting = journal.waiting().filter(|_| difference.is_none() && ended.outcome == Outcome::Paused);
        let Some((index, entry)) = waiting else {
            let journal = journal.entries().to_vec();
            return Ok(Recording { journal, pauses, ended, attempts, difference });
        };
        let (questions, at) = (entry.call.questions().to_vec(), entry.at.plus_ms(ANSWER_MS));
        for (place, question) in questions.iter().enumerate() {
            let given = answer(order, question).map_err(VerifyError::Answer)?;
            journal.answer(index, place, given, at);
            order += 1;
        }
        pauses.push((index, ended));
        known = journal.entries().to_vec();
    }
}
