//! The ways through a node: what it does depends on what it is told, so it is run with each answer that its
//! questions name, as far as these are few.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;

use super::super::Shell;
use super::super::failure::Failure;
use super::inputs::{Answer, alternatives, taken};
use crate::engine::Host;
use crate::engine::verify::{Difference, Report, Subject, VerifyError, keys_by_chance, verify};
use crate::model::journal::Entry;
use crate::model::{Json, Question};
use crate::sandbox::Output;

/// So many ways of one node are gone.
pub const ROADS_MAX: usize = 12;

/// One way through a node, from its beginning to its end.
#[derive(Debug, Serialize)]
pub struct Road {
    pub calls: Vec<Value>,
    pub answers: Vec<Answer>,
    pub outcome: Value,
    pub prefixes: usize,
    pub attempts: usize,
    pub fuel: u64,
    pub memory_bytes: u64,
    pub output: Output,
    pub difference: Option<Difference>,
    #[serde(skip)]
    journal: Vec<Entry>,
}

impl Road {
    pub fn replays(&self) -> bool {
        self.difference.is_none()
    }

    pub fn failed(&self) -> bool {
        self.outcome.get("failed").is_some()
    }
}

/// All that were gone; at least one.
pub struct Roads {
    pub first: Road,
    pub others: Vec<Road>,
    /// How many more are known of, and were not gone.
    pub left: usize,
    /// At which calls of the first the key of an effect comes from the clock or a random number.
    pub keys_by_chance: Vec<usize>,
}

pub async fn all(
    host: &Host,
    subject: &Subject,
    given: Option<&[Json]>,
    shell: &Shell,
) -> Result<Roads, Failure> {
    let mut walk = Walk { host, subject, given, shell, gone: 0, unmade: 0 };
    let (first, turns) = walk.go(&[]).await?;
    let keys_by_chance = walk.keys_by_chance(&first).await;
    let mut roads = Roads { first, others: Vec::new(), left: walk.unmade, keys_by_chance };
    let mut ahead: VecDeque<Vec<usize>> = branches(&[], &turns).into();
    while let Some(turn) = ahead.pop_front() {
        if roads.others.iter().chain([&roads.first]).any(|road| !road.replays()) {
            break;
        }
        if walk.gone == ROADS_MAX {
            roads.left += 1 + ahead.len();
            break;
        }
        match walk.go(&turn).await {
            Ok((road, turns)) => {
                ahead.extend(branches(&turn, &turns));
                roads.left += walk.unmade;
                roads.others.push(road);
            }
            // A question that nothing is known to answer, which the first way did not meet.
            Err(Failure::Argument(_)) => roads.left += 1,
            Err(failure) => return Err(failure),
        }
    }
    Ok(roads)
}

/// The ways that part from one after the turns that it was told to take, each at one question.
fn branches(told: &[usize], turns: &[usize]) -> Vec<Vec<usize>> {
    let mut branches = Vec::new();
    for (at, &of) in turns.iter().enumerate().skip(told.len()) {
        for turn in 1..of {
            let mut branch = told.to_vec();
            branch.resize(at, 0);
            branch.push(turn);
            branches.push(branch);
        }
    }
    branches
}

struct Walk<'w> {
    host: &'w Host,
    subject: &'w Subject,
    given: Option<&'w [Json]>,
    shell: &'w Shell,
    gone: usize,
    /// Ways that part from the last one, and for which no answer could be made.
    unmade: usize,
}

impl Walk<'_> {
    /// Goes one way: at each question the turn that is told, or the first. Comes back with how many there were.
    async fn go(&mut self, told: &[usize]) -> Result<(Road, Vec<usize>), Failure> {
        self.gone += 1;
        let (node, screen) = (&self.subject.node, &self.shell.screen);
        screen.busy(format!("{node}: running it"));
        let (mut answers, mut turns, mut unmade) = (Vec::new(), Vec::new(), 0);
        let answer = |order: usize, question: &Question| {
            let mut all = match self.given {
                Some(given) => vec![taken(node, given, order, question)?],
                None => {
                    let (all, none) = alternatives(node, order, question)?;
                    // Those at earlier questions were counted where the way begins that this one parts from.
                    unmade += if order < told.len() { 0 } else { none };
                    all
                }
            };
            turns.push(all.len());
            let turn = told.get(order).copied().unwrap_or(0).min(all.len() - 1);
            let answer = all.swap_remove(turn);
            answers.push(answer.clone());
            Ok(answer.answer)
        };
        let progress =
            |done: usize, of: usize| screen.busy(format!("{node}: replaying prefix {} of {of}", done + 1));
        let report = verify(self.host.sandbox(), self.subject, answer, progress).await;
        let report = report.map_err(|error| match error {
            VerifyError::Answer(message) => Failure::argument(message),
            VerifyError::CutShort(_) => Failure::Host(format!("node {node}: {error}")),
        })?;
        self.unmade = unmade;
        Ok((road(report, answers), turns))
    }

    async fn keys_by_chance(&self, first: &Road) -> Vec<usize> {
        let said = |order: usize, _: &Question| {
            let answer = first.answers.get(order).ok_or("it asks more than it did")?;
            Ok(answer.answer.clone())
        };
        keys_by_chance(self.host.sandbox(), self.subject, &first.journal, said).await
    }
}

fn road(report: Report, answers: Vec<Answer>) -> Road {
    let Report { journal, ended, prefixes, attempts, difference } = report;
    Road {
        calls: journal.iter().map(|entry| serde_json::to_value(&entry.call).unwrap_or_default()).collect(),
        answers,
        outcome: ended.outcome.to_value(),
        prefixes,
        attempts,
        fuel: ended.fuel,
        memory_bytes: ended.memory_bytes,
        output: ended.output,
        difference,
        journal,
    }
}

#[cfg(test)]
impl Road {
    pub fn of(calls: Vec<Value>, outcome: Value, output: Output, difference: Option<Difference>) -> Self {
        let (answers, journal) = (Vec::new(), Vec::new());
        let (prefixes, attempts, fuel, memory_bytes) = (3, 8, 1_234, 65_537);
        Self { calls, answers, outcome, prefixes, attempts, fuel, memory_bytes, output, difference, journal }
    }
}

#[cfg(test)]
mod tests {
    use super::branches;

    #[test]
    fn every_way_parts_from_one_that_was_gone_at_one_question() {
        assert_eq!(branches(&[], &[2, 1, 3]), [vec![1], vec![0, 0, 1], vec![0, 0, 2]]);
        assert_eq!(branches(&[1], &[2, 2]), [vec![1, 1]]);
        assert!(branches(&[1, 1], &[2, 2]).is_empty());
    }
}
