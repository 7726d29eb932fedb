//! Which questions a command answers. Pure: from what is pending, a target and a command to deliveries
//! or a refusal; nothing is guessed from the shape of a value.

use serde_json::Value;

use super::tree::Asked;
use crate::model::checkpoint::InterruptRow;
use crate::model::command::{PendingChildren, Resume, ResumeTarget};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::{InterruptId, RunId, TaskId};
use crate::model::json::Json;
use crate::model::limits::Limits;
use crate::model::schema::AnswerSchema;

/// One answer for one pending question.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub interrupt: InterruptId,
    pub value: Json,
}

/// Why a command fits nothing here. The engine adds how the thread stands.
#[derive(Clone, Debug, PartialEq)]
pub enum NoMatch {
    /// The id is not pending on this boundary; whether it ever was is for the store to say.
    NotPending(InterruptId),
    /// The value may have been for a question that has expired.
    Expired(String),
    Other(ErrorRecord),
}

impl NoMatch {
    fn other(kind: Kind, message: impl Into<String>) -> Self {
        Self::Other(ErrorRecord::new(kind, message))
    }
}

/// `interrupts`: all of the tree's boundaries, in any state. `target`: its run is already known to be in
/// that tree.
pub fn matching(
    interrupts: &[Asked<'_>],
    target: Option<&ResumeTarget>,
    resume: &Resume,
    limits: &Limits,
) -> Result<Vec<Delivery>, NoMatch> {
    if let Some(id) = target.and_then(|target| target.interrupt_id) {
        pending(interrupts, id)?;
    }
    let fits: Vec<&InterruptRow> = interrupts
        .iter()
        .filter(|asked| asked.is_pending() && within(asked, target))
        .map(|asked| asked.row)
        .collect();
    let deliveries = match resume {
        Resume::Value(value) => vec![(the_question(&fits, target)?, value)],
        Resume::Answers(answers) => {
            if answers.is_empty() {
                return Err(NoMatch::other(
                    Kind::Invalid,
                    "the map of answers is empty; it takes at least one interrupt id with its answer",
                ));
            }
            let mut deliveries = Vec::new();
            for (&id, value) in answers {
                let asked = pending(interrupts, id)?;
                if !within(asked, target) {
                    return Err(NoMatch::other(
                        Kind::NotPending,
                        format!("interrupt {id} is pending, but not within the target"),
                    ));
                }
                deliveries.push((asked.row, value));
            }
            deliveries
        }
        Resume::Proceed => {
            let gate = the_gate(&fits, target)?;
            return Ok(vec![Delivery { interrupt: gate.interrupt, value: Json::null() }]);
        }
    };
    // All are checked before any is delivered.
    deliveries.into_iter().map(|(row, value)| deliver(row, value, limits)).collect()
}

/// What was matched before somebody else changed the thread, if all of it still waits.
pub fn still_pending(interrupts: &[Asked<'_>], deliveries: Vec<Delivery>) -> Result<Vec<Delivery>, NoMatch> {
    for delivery in &deliveries {
        pending(interrupts, delivery.interrupt)?;
    }
    Ok(deliveries)
}

/// What becomes of the questions in children of the runs that are answered: answers to them, or the tasks
/// whose child runs are called off.
pub fn children(
    interrupts: &[Asked<'_>],
    deliveries: &[Delivery],
    policy: &PendingChildren,
    limits: &Limits,
) -> Result<(Vec<Delivery>, Vec<TaskId>), NoMatch> {
    if *policy == PendingChildren::Leave {
        return Ok(Default::default());
    }
    let is_answered = |asked: &&Asked<'_>| deliveries.iter().any(|d| d.interrupt == asked.row.interrupt);
    let runs: Vec<RunId> = interrupts.iter().filter(is_answered).map(|asked| asked.run.run).collect();
    let below = |asked: &&Asked<'_>| {
        asked.is_pending()
            && !is_answered(asked)
            && runs.iter().any(|&run| run != asked.run.run && asked.run_path.contains(&run))
    };
    let waiting: Vec<&Asked<'_>> = interrupts.iter().filter(below).collect();
    match policy {
        PendingChildren::Leave => Ok(Default::default()),
        PendingChildren::Refuse if waiting.is_empty() => Ok(Default::default()),
        PendingChildren::Refuse => {
            let rows: Vec<&InterruptRow> = waiting.iter().map(|asked| asked.row).collect();
            let what = format!(
                "child runs still wait: {}; answer those first, or say what becomes of them (leave, cancel, resolve)",
                listed(&rows)
            );
            Err(NoMatch::other(Kind::Busy, what))
        }
        PendingChildren::Resolve(value) => {
            let resolved = waiting.iter().map(|asked| deliver(asked.row, value, limits));
            Ok((resolved.collect::<Result<_, _>>()?, Vec::new()))
        }
        PendingChildren::Cancel => {
            let mut tasks: Vec<TaskId> = waiting
                .iter()
                .filter_map(|asked| {
                    // The child of a run that is answered, which may be above the one that asks.
                    let at = asked.run_path.iter().rposition(|run| runs.contains(run))?;
                    asked.run_tasks.get(at).copied()
                })
                .collect();
            tasks.dedup();
            Ok((Vec::new(), tasks))
        }
    }
}

pub fn within(asked: &Asked<'_>, target: Option<&ResumeTarget>) -> bool {
    target.is_none_or(|target| {
        asked.run_path.contains(&target.run_id)
            && target.task_id.is_none_or(|task| task == asked.row.task)
            && target.interrupt_id.is_none_or(|id| id == asked.row.interrupt)
            && asked.run.namespace.starts_with(&target.namespace)
    })
}

fn pending<'a, 'b>(interrupts: &'b [Asked<'a>], id: InterruptId) -> Result<&'b Asked<'a>, NoMatch> {
    interrupts
        .iter()
        .find(|asked| asked.row.interrupt == id && asked.is_pending())
        .ok_or(NoMatch::NotPending(id))
}

/// A value is for a question: a gate beside it takes none, and so is no candidate.
fn the_question<'a>(
    fits: &[&'a InterruptRow],
    target: Option<&ResumeTarget>,
) -> Result<&'a InterruptRow, NoMatch> {
    let questions: Vec<&InterruptRow> = fits.iter().copied().filter(|row| !row.kind.is_gate()).collect();
    match (questions.as_slice(), fits) {
        ([one], _) => Ok(one),
        // `deliver` says what a gate takes.
        ([], [gate, ..]) => Ok(gate),
        ([], []) => Err(nothing("question", target)),
        (several, _) => Err(NoMatch::other(
            Kind::Ambiguous,
            format!(
                "one value, and {} questions that it could answer: {}; name one by its id, or give a map \
                 from ids to answers",
                several.len(),
                listed(several)
            ),
        )),
    }
}

fn the_gate<'a>(
    fits: &[&'a InterruptRow],
    target: Option<&ResumeTarget>,
) -> Result<&'a InterruptRow, NoMatch> {
    let gates: Vec<&InterruptRow> = fits.iter().copied().filter(|row| row.kind.is_gate()).collect();
    match (gates.as_slice(), fits) {
        ([one], _) => Ok(one),
        ([], [_, ..]) => Err(NoMatch::other(
            Kind::NotPending,
            format!("proceed passes a gate, and none is pending: {} takes a value", listed(fits)),
        )),
        ([], []) => Err(nothing("gate", target)),
        (several, _) => Err(NoMatch::other(
            Kind::Ambiguous,
            format!("{} gates are pending: {}; name one by its id", several.len(), listed(several)),
        )),
    }
}

fn nothing(what: &str, target: Option<&ResumeTarget>) -> NoMatch {
    let place = if target.is_some() { "within the target" } else { "on this thread" };
    NoMatch::other(Kind::NotPending, format!("no {what} is pending {place}"))
}

fn listed(rows: &[&InterruptRow]) -> String {
    let shown = |row: &&InterruptRow| format!("{} ({}, order {})", row.interrupt, row.node, row.order);
    rows.iter().map(shown).collect::<Vec<_>>().join("; ")
}

fn deliver(row: &InterruptRow, value: &Value, limits: &Limits) -> Result<Delivery, NoMatch> {
    if row.kind.is_gate() {
        return Err(NoMatch::other(
            Kind::GateTakesNoValue,
            format!("interrupt {} is a gate: it asks nothing, and is passed with proceed", row.interrupt),
        ));
    }
    let value = limits
        .take_json(&value.to_string(), "the answer", ("answer_bytes", limits.answer_bytes))
        .map_err(NoMatch::Other)?;
    if let Some(schema) = &row.answer_schema {
        // It compiled when the question was asked.
        let schema = AnswerSchema::compile(schema)
            .map_err(|error| NoMatch::other(Kind::Schema, format!("the question's schema: {error}")))?;
        schema.check(&value.value()).map_err(|mismatch| {
            let message = format!(
                "the answer to {} ({}, order {}) does not fit the question's schema, {mismatch}",
                row.interrupt, row.node, row.order
            );
            NoMatch::Other(ErrorRecord::new(Kind::Schema, message).with("path", mismatch.path))
        })?;
    }
    Ok(Delivery { interrupt: row.interrupt, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunStatus;
    use crate::model::checkpoint::{Answer, InterruptState, RunRow};
    use crate::model::ids::{CheckpointId, NodeId, RunId, TaskId, Timestamp};
    use crate::model::interrupt::InterruptKind;
    use serde_json::json;
    use uuid::Uuid;

    fn row(n: u128) -> InterruptRow {
        InterruptRow {
            interrupt: InterruptId(Uuid::from_u128(n)),
            run: RunId(Uuid::from_u128(100)),
            task: TaskId(Uuid::from_u128(200 + n)),
            node: NodeId::parse("n").unwrap(),
            boundary: CheckpointId(Uuid::from_u128(300)),
            checkpoint: CheckpointId(Uuid::from_u128(301)),
            kind: InterruptKind::Node,
            order: 0,
            entry: 0,
            place: 0,
            payload: Json::null(),
            answer_schema: None,
            asked_at: Timestamp(0),
            expires_at: None,
            default_answer: None,
            state: InterruptState::Pending,
        }
    }

    fn run() -> RunRow {
        RunRow {
            run: RunId(Uuid::from_u128(100)),
            parent: None,
            graph: crate::model::Digest([0; 32]),
            namespace: Vec::new(),
            agent: None,
            given: Default::default(),
            head: None,
            gates: Default::default(),
            status: RunStatus::Interrupted,
            error: None,
            created_at: Timestamp(0),
            ended_at: None,
        }
    }

    fn answered(n: u128) -> InterruptRow {
        let answer = Answer { value: Json::null(), at: Timestamp(1), by: None, reason: None };
        InterruptRow { state: InterruptState::Answered(answer), ..row(n) }
    }

    fn id(n: u128) -> InterruptId {
        InterruptId(Uuid::from_u128(n))
    }

    fn check(
        rows: &[InterruptRow],
        target: Option<ResumeTarget>,
        resume: Resume,
        right: Result<&[(u128, &str)], &str>,
    ) {
        let root = run();
        let asked = |row| Asked { row, run: &root, run_path: vec![root.run], run_tasks: vec![] };
        let asked: Vec<Asked<'_>> = rows.iter().map(asked).collect();
        let got = matching(&asked, target.as_ref(), &resume, &Limits::default());
        let got = got
            .map(|deliveries| {
                deliveries
                    .into_iter()
                    .map(|d| (d.interrupt.0.as_u128(), d.value.to_string()))
                    .collect::<Vec<_>>()
            })
            .map_err(|error| match error {
                NoMatch::Expired(what) => what,
                NoMatch::NotPending(id) => format!("not pending {}", id.0.as_u128()),
                NoMatch::Other(error) => error.kind.to_string(),
            });
        let right = right
            .map(|list| list.iter().map(|(n, v)| (*n, v.to_string())).collect::<Vec<_>>())
            .map_err(str::to_owned);
        assert_eq!(got, right, "{resume:?}");
    }

    #[test]
    fn one_value_needs_one_question() {
        let value = || Resume::Value(json!(1));
        check(&[row(1)], None, value(), Ok(&[(1, "1")]));
        check(&[row(1), answered(2)], None, value(), Ok(&[(1, "1")]));
        check(&[row(1), row(2)], None, value(), Err("ambiguous"));
        check(&[answered(1)], None, value(), Err("not-pending"));
        check(&[row(1), row(2)], None, Resume::Value(json!([1, 2])), Err("ambiguous"));
    }

    #[test]
    fn a_map_is_a_map_only_where_the_caller_says_so() {
        let ids = |ns: &[u128]| Resume::Answers(ns.iter().map(|&n| (id(n), json!(n))).collect());
        check(&[row(1), row(2)], None, ids(&[1, 2]), Ok(&[(1, "1"), (2, "2")]));
        check(&[row(1), row(2)], None, ids(&[2]), Ok(&[(2, "2")]));
        check(&[row(1), row(2)], None, ids(&[1, 3]), Err("not pending 3"));
        check(&[row(1), answered(2)], None, ids(&[1, 2]), Err("not pending 2"));
        check(&[row(1)], None, ids(&[]), Err("invalid"));
        let looks_like = json!({ id(1).to_string(): true });
        check(&[row(1)], None, Resume::Value(looks_like.clone()), Ok(&[(1, &looks_like.to_string())]));
    }

    #[test]
    fn every_part_of_a_target_narrows() {
        let target = ResumeTarget::run(RunId(Uuid::from_u128(100)));
        let value = || Resume::Value(json!("v"));
        let rows = [row(1), row(2)];
        check(&rows, Some(target.clone()), value(), Err("ambiguous"));
        check(&rows, Some(target.clone().task(rows[1].task)), value(), Ok(&[(2, "\"v\"")]));
        check(&rows, Some(target.clone().interrupt(id(1))), value(), Ok(&[(1, "\"v\"")]));
        check(&rows, Some(target.clone().task(rows[1].task).interrupt(id(1))), value(), Err("not-pending"));
        check(&rows, Some(target.clone().interrupt(id(9))), value(), Err("not pending 9"));
        let elsewhere = ResumeTarget { namespace: vec!["sub".into()], ..target };
        check(&rows, Some(elsewhere), value(), Err("not-pending"));
    }

    #[test]
    fn gates_take_no_value_and_questions_no_proceed() {
        let gate = |n| InterruptRow { kind: InterruptKind::Before, ..row(n) };
        let value = || Resume::Value(json!(1));
        check(&[gate(1)], None, value(), Err("gate-takes-no-value"));
        check(&[gate(1), row(2)], None, value(), Ok(&[(2, "1")]));
        check(&[gate(1), row(2)], None, Resume::Proceed, Ok(&[(1, "null")]));
        check(&[row(1)], None, Resume::Proceed, Err("not-pending"));
        check(&[], None, Resume::Proceed, Err("not-pending"));
        check(&[gate(1), gate(2)], None, Resume::Proceed, Err("ambiguous"));
        let one = ResumeTarget::run(RunId(Uuid::from_u128(100))).interrupt(id(2));
        check(&[gate(1), gate(2)], Some(one), Resume::Proceed, Ok(&[(2, "null")]));
        let map = Resume::Answers([(id(1), json!(1))].into());
        check(&[gate(1)], None, map, Err("gate-takes-no-value"));
    }
}
