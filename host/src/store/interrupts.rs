//! Questions, and what became of each.

use super::codec::{BlobId, Columns, int};
use super::error::StoreError;
use super::reader::tenant;
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::{Answer, InterruptRow, InterruptState, Withdrawal};
use crate::model::ids::{InterruptId, TenantId, ThreadId, Timestamp};
use crate::model::interrupt::{InterruptKind, Question};
use crate::model::json::Json;

macro_rules! columns {
    () => {
        "i.interrupt, i.run, i.task, i.node, i.boundary, i.checkpoint, i.kind, i.asked_order, i.entry, i.place, \
         i.payload, i.answer_schema, i.asked_at, i.expires_at, i.default_answer, i.state, i.settled_at, \
         i.settled_by, i.answer, i.reason, i.called_at"
    };
}
pub(super) use columns;

pub(super) const BY_ID: &str = concat!(
    "SELECT ",
    columns!(),
    ", h.name FROM interrupts i JOIN threads h ON h.thread = i.thread \
     WHERE i.tenant = ",
    tenant!(),
    " AND i.interrupt = ?2"
);
pub(super) const OF_TASK: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM interrupts i WHERE i.tenant = ",
    tenant!(),
    " AND i.task = ?2 \
     ORDER BY i.entry, i.place, i.seq"
);
pub(super) const BY_NUMBER: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t JOIN interrupts i ON i.tenant = t.tenant AND i.task = t.task \
     WHERE t.thread = ?1 AND t.boundary = ?2 ORDER BY t.place, i.entry, i.place, i.seq"
);
pub(super) const INSERT: &str = "INSERT INTO interrupts (tenant, interrupt, thread, run, task, node, boundary, checkpoint, \
        kind, asked_order, entry, place, payload, answer_schema, asked_at, expires_at, default_answer, state, \
        settled_at, settled_by, answer, reason, called_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";
// Only what is pending can be settled: of two answers one finds no row.
pub(super) const SETTLE: &str = "UPDATE interrupts SET state = ?4, settled_at = ?5, settled_by = ?6, answer = ?7, \
        reason = ?8 \
    WHERE tenant = ?1 AND interrupt = ?2 AND thread = ?3 AND state = 'pending'";
// Of a journal that is cut: what was asked from there on is on record, and no entry any more.
pub(super) const CUT: &str = "UPDATE interrupts SET called_at = NULL \
    WHERE tenant = ?1 AND task = ?2 AND entry >= ?3 AND called_at IS NOT NULL";

impl Store {
    /// A question by its id alone, whatever became of it, and the thread it is of.
    pub async fn interrupt(
        &self,
        tenant: &TenantId,
        id: InterruptId,
    ) -> Result<Option<(ThreadId, InterruptRow)>, StoreError> {
        let sql = sql(BY_ID).bind(tenant.as_str()).bind(id.blob());
        self.view().await?.find("interrupts", sql, |row| Ok((row.name("name")?, read(row)?))).await
    }
}

/// `called_at`: it is its own journal entry, see [`super::journal::Implied`].
pub(super) async fn insert(
    pen: &mut Pen<'_>,
    row: &InterruptRow,
    called_at: Option<Timestamp>,
) -> Result<(), Stop> {
    let state = Settled::of(&row.state);
    let sql = sql(INSERT)
        .bind(pen.tenant)
        .bind(row.interrupt.blob())
        .bind(pen.thread)
        .bind(row.run.blob())
        .bind(row.task.blob())
        .bind(row.node.as_str())
        .bind(row.boundary.blob())
        .bind(row.checkpoint.blob())
        .bind(row.kind.as_str())
        .bind(int(row.order))
        .bind(int(row.entry))
        .bind(int(row.place))
        .bind(row.payload.as_str())
        .bind(row.answer_schema.as_ref().map(Json::as_str))
        .bind(row.asked_at.0)
        .bind(row.expires_at.map(|at| at.0))
        .bind(row.default_answer.as_ref().map(Json::as_str))
        .bind(state.state)
        .bind(state.at)
        .bind(state.by)
        .bind(state.answer)
        .bind(state.reason)
        .bind(called_at.map(|at| at.0));
    pen.one_row(sql).await
}

/// What its node asked, as the journal would have it.
pub(super) fn question(row: &InterruptRow) -> Option<Question> {
    let expires_after_ms = match row.expires_at {
        None => None,
        Some(at) => Some(u64::try_from(at.0.checked_sub(row.asked_at.0)?).ok()?),
    };
    let (payload, answer_schema) = (row.payload.clone(), row.answer_schema.clone());
    Some(Question { payload, answer_schema, expires_after_ms, default_answer: row.default_answer.clone() })
}

pub(super) async fn answer(pen: &mut Pen<'_>, interrupt: InterruptId, answer: &Answer) -> Result<(), Stop> {
    settle(pen, interrupt, Settled::answered(answer)).await
}

pub(super) async fn withdraw(
    pen: &mut Pen<'_>,
    interrupt: InterruptId,
    withdrawal: &Withdrawal,
) -> Result<(), Stop> {
    settle(pen, interrupt, Settled::withdrawn(withdrawal)).await
}

async fn settle(pen: &mut Pen<'_>, interrupt: InterruptId, to: Settled<'_>) -> Result<(), Stop> {
    let sql = sql(SETTLE)
        .bind(pen.tenant)
        .bind(interrupt.blob())
        .bind(pen.thread)
        .bind(to.state)
        .bind(to.at)
        .bind(to.by)
        .bind(to.answer)
        .bind(to.reason);
    match pen.change(sql).await? {
        1 => Ok(()),
        _ => Err(Stop::Conflict),
    }
}

/// An [`InterruptState`] as columns.
#[derive(Default)]
struct Settled<'a> {
    state: &'static str,
    at: Option<i64>,
    answer: Option<&'a str>,
    by: Option<&'a str>,
    reason: Option<&'a str>,
}

impl<'a> Settled<'a> {
    fn of(state: &'a InterruptState) -> Self {
        match state {
            InterruptState::Pending => Self { state: "pending", ..Self::default() },
            InterruptState::Answered(answer) => Self::answered(answer),
            InterruptState::Withdrawn(withdrawal) => Self::withdrawn(withdrawal),
        }
    }

    fn answered(answer: &'a Answer) -> Self {
        Self {
            state: "answered",
            at: Some(answer.at.0),
            answer: Some(answer.value.as_str()),
            by: answer.by.as_deref(),
            reason: answer.reason.as_deref(),
        }
    }

    fn withdrawn(withdrawal: &'a Withdrawal) -> Self {
        Self {
            state: "withdrawn",
            at: Some(withdrawal.at.0),
            by: withdrawal.by.as_deref(),
            answer: None,
            reason: Some(&withdrawal.reason),
        }
    }
}

/// With when it was called, if it is its own journal entry.
pub(super) fn read_called(row: &Columns<'_>) -> Result<(InterruptRow, Option<Timestamp>), StoreError> {
    let (asked, called_at) = (read(row)?, row.at_or_null("called_at")?);
    if called_at.is_some() && (asked.kind != InterruptKind::Node || question(&asked).is_none()) {
        return Err(row.wrong("called_at", "it is no question that its node asked by itself"));
    }
    Ok((asked, called_at))
}

pub(super) fn read(row: &Columns<'_>) -> Result<InterruptRow, StoreError> {
    Ok(InterruptRow {
        interrupt: row.id("interrupt")?,
        run: row.id("run")?,
        task: row.id("task")?,
        node: row.name("node")?,
        boundary: row.id("boundary")?,
        checkpoint: row.id("checkpoint")?,
        kind: row.word("kind", InterruptKind::parse)?,
        order: row.int("asked_order")?,
        entry: row.int("entry")?,
        place: row.int("place")?,
        payload: row.json("payload")?,
        answer_schema: row.json_or_null("answer_schema")?,
        asked_at: row.at("asked_at")?,
        expires_at: row.at_or_null("expires_at")?,
        default_answer: row.json_or_null("default_answer")?,
        state: match row.text("state")?.as_str() {
            "pending" => InterruptState::Pending,
            "answered" => InterruptState::Answered(Answer {
                value: row.json("answer")?,
                at: row.at("settled_at")?,
                by: row.get("settled_by")?,
                reason: row.get("reason")?,
            }),
            "withdrawn" => InterruptState::Withdrawn(Withdrawal {
                at: row.at("settled_at")?,
                by: row.get("settled_by")?,
                reason: row.text("reason")?,
            }),
            _ => return Err(row.wrong("state", "none of pending, answered, withdrawn")),
        },
    })
}
