//! What a thread no longer needs, dropped: old states with their tasks, journals and questions, and channel
//! values that no state is left to hold. Effects stay: a key is done once for as long as its thread lives.
//!
//! Of each run the latest boundaries stay, so many as are asked for, with their pauses; a child run goes with
//! the boundary that it hangs on. The latest boundary of a run that is not done always stays, and with it all
//! that going on takes.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::{BlobId, Columns, encode};
use super::error::{CommitError, StoreError};
use super::reader::thread;
use super::write::{Pen, Stop};
use super::writer::{Done, Work};
use super::{Store, sql};
use crate::model::checkpoint::Version;
use crate::model::ids::{ChannelName, CheckpointId, TenantId, ThreadId};
use crate::model::json::Json;

// The boundaries that stay: `?1` is the thread's number, `?2` how many of each run. Root runs follow one
// another and count as one.
macro_rules! kept {
    () => {
        "WITH RECURSIVE ranked (checkpoint, run, parent_task, place) AS ( \
             SELECT c.checkpoint, c.run, r.parent_task, row_number() OVER ( \
                 PARTITION BY CASE WHEN r.parent_task IS NULL THEN NULL ELSE c.run END ORDER BY c.seq DESC) \
             FROM threads h \
                 JOIN checkpoints c ON c.thread = h.thread \
                 JOIN runs r ON r.tenant = h.tenant AND r.run = c.run \
             WHERE h.thread = ?1 AND c.boundary IS NULL \
         ), kept (checkpoint) AS ( \
             SELECT checkpoint FROM ranked WHERE parent_task IS NULL AND place <= ?2 \
             UNION ALL \
             SELECT b.checkpoint FROM kept k \
                 JOIN tasks t ON t.thread = ?1 AND t.boundary = k.checkpoint \
                 JOIN ranked b ON b.parent_task = t.task AND b.place <= ?2 \
         ) "
    };
}

pub(super) const NUMBER: &str =
    concat!("SELECT h.name, h.thread, h.head, h.epoch FROM threads h WHERE h.thread = ", thread!());
pub(super) const HELD: &str = concat!(
    kept!(),
    "SELECT c.checkpoint, c.channels, r.given FROM kept k \
         JOIN checkpoints c ON c.thread = ?1 AND c.checkpoint = k.checkpoint \
         JOIN threads h ON h.thread = ?1 \
         JOIN runs r ON r.tenant = h.tenant AND r.run = c.run"
);
pub(super) const LATEST_DROPPED: &str = concat!(
    "SELECT max(c.checkpoint) AS latest FROM checkpoints c \
     WHERE c.thread = ?1 AND coalesce(c.boundary, c.checkpoint) NOT IN (",
    kept!(),
    "SELECT checkpoint FROM kept)"
);
pub(super) const LINKS: &str = "SELECT channel, version, continues FROM channel_values \
    WHERE thread = ?1 AND continues IS NOT NULL";
pub(super) const GUARD: &str = "SELECT h.thread FROM threads h \
    WHERE h.tenant = ?1 AND h.name = ?2 AND h.head = ?3 AND h.epoch = ?4";
const MAKE_WHOLE: &str = "UPDATE channel_values SET whole = 1, continues = NULL, value = ?4 \
    WHERE thread = ?1 AND channel = ?2 AND version = ?3";
pub(super) const DROP_VALUES: &str = "DELETE FROM channel_values WHERE thread = ?1 AND (channel, version) NOT IN \
    (SELECT value ->> 0, value ->> 1 FROM json_each(?2))";
// What waits is counted anew: a run that failed may have been left with a question.
pub(super) const NOTE: &str = "UPDATE threads SET pruned = max(coalesce(pruned, x''), ?2), pending = \
    (SELECT count(*) FROM tasks t JOIN interrupts i ON i.tenant = t.tenant AND i.task = t.task \
     WHERE t.thread = ?1 AND i.state = 'pending') WHERE thread = ?1";
pub(super) const DROP_CHECKPOINTS: &str = concat!(
    "DELETE FROM checkpoints WHERE thread = ?1 AND coalesce(boundary, checkpoint) NOT IN (",
    kept!(),
    "SELECT checkpoint FROM kept)"
);
// What hangs on a boundary that is gone. Journals and questions go with their tasks.
pub(super) const DROP_TASKS: &str = "DELETE FROM tasks WHERE thread = ?1 AND boundary NOT IN \
    (SELECT checkpoint FROM checkpoints WHERE thread = ?1)";
pub(super) const DROP_RUNS: &str = "DELETE FROM runs WHERE thread = ?1 \
    AND run NOT IN (SELECT run FROM checkpoints WHERE thread = ?1) \
    AND run <> (SELECT run FROM threads WHERE thread = ?1)";
pub(super) const DROP_STEERING: &str = "DELETE FROM steering WHERE thread = ?1 \
    AND run NOT IN (SELECT run FROM runs WHERE thread = ?1)";

/// What was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub checkpoints: u64,
    pub tasks: u64,
    pub runs: u64,
    pub values: u64,
}

/// What the writer is asked to do: as far as it needs values, these are read before, and hold for as long as
/// the guard does.
pub(super) struct Prune {
    pub tenant: TenantId,
    pub thread: ThreadId,
    /// The thread as it was when that was found out.
    head: CheckpointId,
    epoch: i64,
    boundaries: u32,
    /// Of the checkpoints that are dropped.
    latest: CheckpointId,
    kept: Vec<(ChannelName, Version)>,
    /// Those of them whose beginning is dropped.
    whole: Vec<(ChannelName, Version, Json)>,
}

impl Store {
    /// Drops all but the latest `boundaries` boundaries of each run, and what nothing needs then. A conflict:
    /// the thread got further meanwhile, and nothing was dropped. `None`: there is no such thread.
    pub async fn prune(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        boundaries: u32,
    ) -> Result<Option<Pruned>, CommitError> {
        let prune = match self.to_prune(tenant, thread, boundaries.max(1)).await? {
            None => return Ok(None),
            Some(None) => return Ok(Some(Pruned::default())),
            Some(Some(prune)) => prune,
        };
        self.inner.recent.take(tenant, thread);
        match self.inner.work(Work::Prune(Box::new(prune))).await? {
            (Done::Pruned(pruned), _) => Ok(Some(pruned)),
            _ => Err(StoreError::rejected("the writer answered something else").into()),
        }
    }

    /// What there is to drop of a thread, if there is a thread, and anything.
    pub(super) async fn to_prune(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        boundaries: u32,
    ) -> Result<Option<Option<Prune>>, StoreError> {
        let mut view = self.snapshot().await?;
        let number = sql(NUMBER).bind(tenant.as_str()).bind(thread.as_str());
        let found = view.find("threads", number, |row| {
            Ok((row.get::<i64>("thread")?, row.id("head")?, row.get::<i64>("epoch")?))
        });
        let Some((number, head, epoch)) = found.await? else {
            return Ok(None);
        };
        let latest = sql(LATEST_DROPPED).bind(number).bind(boundaries);
        let latest = view.find("checkpoints", latest, |row| row.id_or_null("latest")).await?.flatten();
        let Some(latest) = latest else {
            return Ok(Some(None));
        };
        let held = sql(HELD).bind(number).bind(boundaries);
        let read = |row: &Columns<'_>| {
            let channels: BTreeMap<ChannelName, Version> = row.decoded("channels")?;
            let given: BTreeMap<ChannelName, Version> = row.decoded("given")?;
            Ok(channels.into_iter().chain(given).collect::<Vec<_>>())
        };
        let kept: BTreeSet<(ChannelName, Version)> =
            view.scan("checkpoints", held, read).await?.into_iter().flatten().collect();
        let links = sql(LINKS).bind(number);
        let links = view.scan("channel_values", links, |row| {
            Ok((row.name::<ChannelName>("channel")?, row.get("version")?, row.get("continues")?))
        });
        // Whoever continues what is dropped is made whole; what continues it in turn needs nothing more.
        let loose: Vec<(ChannelName, Version)> = links
            .await?
            .into_iter()
            .filter(|(channel, version, continues)| {
                kept.contains(&(channel.clone(), *version)) && !kept.contains(&(channel.clone(), *continues))
            })
            .map(|(channel, version, _)| (channel, version))
            .collect();
        let values = view.values(tenant, thread, &loose).await?;
        let whole =
            loose.into_iter().zip(values).map(|((channel, version), value)| (channel, version, value));
        Ok(Some(Some(Prune {
            tenant: tenant.clone(),
            thread: thread.clone(),
            head,
            epoch,
            boundaries,
            whole: whole.collect(),
            kept: kept.into_iter().collect(),
            latest,
        })))
    }
}

/// Makes it true, or says why not; the caller holds the savepoint.
pub(super) async fn carry_out(pen: &mut Pen<'_>, prune: &Prune) -> Result<Pruned, Stop> {
    let guard =
        sql(GUARD).bind(pen.tenant).bind(prune.thread.as_str()).bind(prune.head.blob()).bind(prune.epoch);
    pen.find_thread(guard).await?;
    let (thread, boundaries) = (pen.thread, prune.boundaries);
    for (channel, version, value) in &prune.whole {
        let sql = sql(MAKE_WHOLE).bind(thread).bind(channel.as_str()).bind(*version).bind(value.as_str());
        pen.change(sql).await?;
    }
    let checkpoints = pen.change(sql(DROP_CHECKPOINTS).bind(thread).bind(boundaries)).await?;
    let tasks = pen.change(sql(DROP_TASKS).bind(thread)).await?;
    pen.change(sql(NOTE).bind(thread).bind(prune.latest.blob())).await?;
    let runs = pen.change(sql(DROP_RUNS).bind(thread)).await?;
    pen.change(sql(DROP_STEERING).bind(thread)).await?;
    let values = pen.change(sql(DROP_VALUES).bind(thread).bind(encode(&prune.kept)?)).await?;
    Ok(Pruned { checkpoints, tasks, runs, values })
}
