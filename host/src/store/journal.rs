//! Journals: what a task asked of the host, and what is known of the replies. A question is stored once, and
//! its answer with it: they are put into the entry that asked when that is read, and one that was asked by
//! itself is the whole entry.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::batch::Write;
use super::codec::{BlobId, Columns, encode, int};
use super::error::StoreError;
use super::reader::tenant;
use super::write::{Pen, Stop};
use super::{Store, interrupts, sql};
use crate::model::checkpoint::{Answer, InterruptRow, InterruptState, JournalRow};
use crate::model::ids::{InterruptId, TaskId, TenantId, Timestamp};
use crate::model::interrupt::{InterruptKind, Question};
use crate::model::journal::{Call, EffectReply, Entry, Reply};
use crate::model::json::{Json, present};

pub(super) const OF_TASK: &str = concat!(
    "SELECT j.task, j.entry, j.call, j.reply_kind, j.reply, j.at FROM journal j \
     WHERE j.tenant = ",
    tenant!(),
    " AND j.task = ?2 ORDER BY j.entry"
);
// Of tasks that will run again.
pub(super) const BY_NUMBER: &str = "SELECT j.task, j.entry, j.call, j.reply_kind, j.reply, j.at \
    FROM tasks t JOIN journal j ON j.tenant = t.tenant AND j.task = t.task \
    WHERE t.thread = ?1 AND t.boundary = ?2 AND t.state <> 'finished' ORDER BY t.place, j.entry";
pub(super) const PUT: &str = "INSERT INTO journal (tenant, task, entry, call, reply_kind, reply, at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
    ON CONFLICT (tenant, task, entry) DO UPDATE SET call = excluded.call, reply_kind = excluded.reply_kind, \
        reply = excluded.reply, at = excluded.at";

const CUT: &str = "DELETE FROM journal WHERE tenant = ?1 AND task = ?2 AND entry >= ?3";

impl Store {
    /// A task's journal, answers included.
    pub async fn journal(&self, tenant: &TenantId, task: TaskId) -> Result<Vec<JournalRow>, StoreError> {
        let mut view = self.snapshot().await?;
        let questions = sql(interrupts::OF_TASK).bind(tenant.as_str()).bind(task.blob());
        let (questions, called): (Vec<_>, Vec<_>) =
            view.list("interrupts", questions, interrupts::read_called).await?.into_iter().unzip();
        let entries = sql(OF_TASK).bind(tenant.as_str()).bind(task.blob());
        let of = Questions::of(&questions);
        let mut journal = view.list("journal", entries, |row| read(row, &of)).await?;
        if add_implied(&mut journal, questions.iter().zip(called), &of) {
            journal.sort_by_key(|row| row.index);
        }
        Ok(journal)
    }
}

/// Of what is written together, the entries that need no row: a question that is asked by itself says all
/// that its entry would.
#[derive(Default)]
pub(super) struct Implied {
    entries: HashSet<(TaskId, usize)>,
    called_at: HashMap<InterruptId, Timestamp>,
}

impl Implied {
    pub fn of(writes: &[Write]) -> Self {
        let mut implied = Self::default();
        for write in writes {
            let Write::Journal(JournalRow { task, index, entry: Entry { call, reply, at } }) = write else {
                continue;
            };
            let (Call::Interrupt { question }, Reply::Answers(_)) = (call, reply) else { continue };
            let asks = |write: &&Write| {
                matches!(write, Write::Interrupt(row)
                    if (row.task, row.entry, row.place, row.kind) == (*task, *index, 0, InterruptKind::Node))
            };
            // The newest counts.
            if let Some(Write::Interrupt(row)) = writes.iter().rfind(asks)
                && interrupts::question(row).as_ref() == Some(question)
            {
                implied.entries.insert((*task, *index));
                implied.called_at.insert(row.interrupt, *at);
            }
        }
        implied
    }

    pub fn has(&self, row: &JournalRow) -> bool {
        self.entries.contains(&(row.task, row.index))
    }

    pub fn called_at(&self, row: &InterruptRow) -> Option<Timestamp> {
        self.called_at.get(&row.interrupt).copied()
    }
}

/// Adds the entries that questions are by themselves, at the end. Says whether there were any.
pub(super) fn add_implied<'a>(
    journal: &mut Vec<JournalRow>,
    asked: impl Iterator<Item = (&'a InterruptRow, Option<Timestamp>)>,
    questions: &Questions<'_>,
) -> bool {
    let called = |(row, at): (&'a InterruptRow, Option<Timestamp>)| {
        let (question, at) = (interrupts::question(row)?, at?);
        let entry = Entry { call: Call::Interrupt { question }, reply: Reply::Answers(Vec::new()), at };
        filled(JournalRow { task: row.task, index: row.entry, entry }, questions).ok()
    };
    let mut known: HashSet<(TaskId, usize)> = HashSet::new();
    let mut asked = asked.filter_map(called).peekable();
    if asked.peek().is_none() {
        return false;
    }
    known.extend(journal.iter().map(|row| (row.task, row.index)));
    journal.extend(asked.filter(|row| known.insert((row.task, row.index))));
    true
}

pub(super) async fn put(pen: &mut Pen<'_>, row: &JournalRow) -> Result<(), Stop> {
    let (kind, reply) = match &row.entry.reply {
        Reply::Answers(_) => ("answers", None),
        Reply::Effect(EffectReply::Begun) => ("begun", None),
        Reply::Effect(EffectReply::Asked { kind, .. }) => ("asked", Some(kind.as_str().to_owned())),
        Reply::Effect(EffectReply::Known(outcome)) => ("known", Some(encode(outcome)?)),
        Reply::Effect(EffectReply::Retryable(outcome)) => ("retryable", Some(encode(outcome)?)),
        Reply::Steering(instructions) => ("steering", Some(encode(instructions)?)),
        Reply::Attempt => ("attempt", None),
    };
    let sql = sql(PUT)
        .bind(pen.tenant)
        .bind(row.task.blob())
        .bind(int(row.index))
        .bind(encode(&row.entry.call)?)
        .bind(kind)
        .bind(reply)
        .bind(row.entry.at.0);
    pen.one_row(sql).await
}

/// Drops a task's entries from `kept` on.
pub(super) async fn cut(pen: &mut Pen<'_>, task: TaskId, kept: usize) -> Result<(), Stop> {
    for statement in [CUT, interrupts::CUT] {
        pen.change(sql(statement).bind(pen.tenant).bind(task.blob()).bind(int(kept))).await?;
    }
    Ok(())
}

/// Questions by the journal entry that asked them, in the order of their places. Where an entry was cut
/// and asked anew, the newest question of a place comes last, and counts.
pub(super) struct Questions<'a>(BTreeMap<(TaskId, usize), Vec<&'a InterruptRow>>);

impl<'a> Questions<'a> {
    /// `rows`: those of one place are in the order in which they were asked.
    pub fn of(rows: &'a [InterruptRow]) -> Self {
        let mut by_entry: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in rows {
            by_entry.entry((row.task, row.entry)).or_default().push(row);
        }
        Self(by_entry)
    }

    fn asked_by(
        &self,
        task: TaskId,
        entry: usize,
        kind: InterruptKind,
    ) -> impl Iterator<Item = &'a InterruptRow> {
        let rows = self.0.get(&(task, entry)).map(Vec::as_slice).unwrap_or_default();
        rows.iter().copied().filter(move |row| row.kind == kind)
    }
}

fn answer(row: &InterruptRow) -> Option<&Answer> {
    match &row.state {
        InterruptState::Answered(answer) => Some(answer),
        InterruptState::Pending | InterruptState::Withdrawn { .. } => None,
    }
}

pub(super) fn read(row: &Columns<'_>, questions: &Questions<'_>) -> Result<JournalRow, StoreError> {
    let (task, index, at) = (row.id("task")?, row.int("entry")?, row.at("at")?);
    let call = row.decoded::<StoredCall>("call")?.into_call().map_err(|what| row.wrong("call", what))?;
    let reply = match row.text("reply_kind")?.as_str() {
        "answers" => Reply::Answers(Vec::new()),
        "begun" => Reply::Effect(EffectReply::Begun),
        "asked" => {
            let kind = row.word("reply", InterruptKind::parse)?;
            Reply::Effect(EffectReply::Asked { kind, answer: None })
        }
        "known" => Reply::Effect(EffectReply::Known(row.decoded("reply")?)),
        "retryable" => Reply::Effect(EffectReply::Retryable(row.decoded("reply")?)),
        "steering" => Reply::Steering(row.decoded("reply")?),
        "attempt" => Reply::Attempt,
        _ => return Err(row.wrong("reply_kind", "no kind of reply")),
    };
    let stored = JournalRow { task, index, entry: Entry { call, reply, at } };
    filled(stored, questions).map_err(|place| row.wrong("call", format!("it asks no question {place}")))
}

/// An entry with the answers to what it asked, and when it was known with them. An error: an answer to a
/// question that it did not ask.
pub(super) fn filled(mut row: JournalRow, questions: &Questions<'_>) -> Result<JournalRow, usize> {
    let (task, index) = (row.task, row.index);
    let Entry { call, reply, at } = &mut row.entry;
    let value = |answer: &Answer| answer.value.clone();
    match reply {
        Reply::Answers(answers) => {
            let mut places = vec![None; call.questions().len()];
            for question in questions.asked_by(task, index, InterruptKind::Node) {
                *places.get_mut(question.place).ok_or(question.place)? = answer(question);
            }
            *at = places.iter().flatten().map(|answer| answer.at).fold(*at, Ord::max);
            *answers = places.into_iter().map(|place| place.map(value)).collect();
        }
        Reply::Effect(EffectReply::Asked { kind, answer: known }) => {
            let answer = questions.asked_by(task, index, *kind).last().and_then(answer);
            *at = answer.map_or(*at, |answer| answer.at.max(*at));
            *known = answer.map(value);
        }
        Reply::Effect(_) | Reply::Steering(_) | Reply::Attempt => {}
    }
    Ok(row)
}

/// [`Call`] as it is read: JSON that passes through as text cannot be read by way of a tag beside it.
#[derive(Deserialize)]
struct StoredCall {
    call: String,
    question: Option<Question>,
    questions: Option<Vec<Question>>,
    name: Option<String>,
    key: Option<String>,
    #[serde(default, deserialize_with = "present")]
    input: Option<Json>,
}

impl StoredCall {
    fn into_call(self) -> Result<Call, &'static str> {
        let call = match self.call.as_str() {
            "interrupt" => self.question.map(|question| Call::Interrupt { question }),
            "interrupt-all" => self.questions.map(|all| Call::InterruptAll { questions: all }),
            "effect" => (|| Some(Call::Effect { name: self.name?, key: self.key?, input: self.input? }))(),
            "steering" => Some(Call::Steering),
            "attempt" => Some(Call::Attempt),
            _ => return Err("none of interrupt, interrupt-all, effect, steering, attempt"),
        };
        call.ok_or("a part of it is missing")
    }
}
