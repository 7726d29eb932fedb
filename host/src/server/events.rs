//! What a call's stream has to say, read from what is durable: each checkpoint that became durable since
//! the call was begun is a few events, in an order that is the same whenever they are read. So a stream can
//! be broken off and taken up anywhere, by any process, and a slow reader costs no memory. Only what nodes
//! emit comes from memory: it is provisional, bounded, and says so when some of it is gone.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::hub::{Key, value_of};
use super::problem::Problem;
use super::shapes::{Interrupt, waited_at};
use super::state::{Reader, boundary_of};
use crate::model::channel::added;
use crate::model::checkpoint::{CheckpointKind, CheckpointRow, TaskState};
use crate::model::ids::RunId;
use crate::model::{NodeId, TaskId};
use crate::store::InvocationRow;

/// Where in a stream its reader is: after so many events of the checkpoint with this number (0: after all
/// of it), and after what was said at this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub seq: i64,
    pub events: usize,
    pub said: i64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.seq, self.events, self.said)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().ok_or(());
        Ok(Self {
            seq: next()?.parse().map_err(|_| ())?,
            events: next()?.parse().map_err(|_| ())?,
            said: next()?.parse().map_err(|_| ())?,
        })
    }
}

/// What a reader wants to see.
#[derive(Clone, Debug)]
pub struct Modes {
    pub names: Vec<String>,
    pub subgraphs: bool,
}

impl Modes {
    fn has(&self, mode: &str) -> bool {
        self.names.iter().any(|name| name == mode)
    }
}

#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    pub data: String,
    /// The place in the stream after it.
    pub cursor: Cursor,
}

/// So many checkpoints are read at once.
const PAGE: u32 = 8;

/// The events after a cursor that can be had now: of a few checkpoints at most. `None` in the place of the
/// cursor's advance means that there were none.
pub async fn next(
    reader: &Reader<'_>,
    row: &InvocationRow,
    modes: &Modes,
    cursor: &mut Cursor,
    namespaces: &mut BTreeMap<RunId, String>,
) -> Result<VecDeque<Event>, Problem> {
    let mut events = VecDeque::new();
    let key: Key = (reader.allowed.tenant.clone(), reader.thread.clone());
    let (said, dropped) = reader.allowed.service.hub.said(&key, cursor.said);
    if modes.has("custom") {
        if dropped {
            let data = json!({ "dropped": true, "provisional": true }).to_string();
            events.push_back(Event { name: "custom".into(), data, cursor: *cursor });
        }
        for said in said {
            cursor.said = said.at;
            let data = value_of(&said).to_string();
            events.push_back(Event { name: "custom".into(), data, cursor: *cursor });
        }
    }
    if row.from_seq.is_none() {
        return Ok(events);
    }
    // One of which some events were taken is read again.
    let until = row.to_seq.unwrap_or(i64::MAX);
    let store = reader.allowed.store();
    let from = if cursor.events > 0 { cursor.seq - 1 } else { cursor.seq };
    let rows = store.checkpoints_since(&reader.allowed.tenant, reader.thread, (from, until), PAGE).await?;
    for (seq, checkpoint) in rows {
        let of = of_checkpoint(reader, &checkpoint, modes, namespaces).await?;
        let taken = if seq == cursor.seq { cursor.events } else { 0 };
        for (i, event) in of.into_iter().enumerate().skip(taken) {
            // Counted whether it is wanted or not: a place is the same for every reader.
            *cursor = Cursor { seq, events: i + 1, said: cursor.said };
            if let Some((name, data)) = event {
                events.push_back(Event { name, data: data.to_string(), cursor: *cursor });
            }
        }
        // All of it: the next begins after it.
        *cursor = Cursor { seq, events: 0, said: cursor.said };
    }
    Ok(events)
}

type Maybe = Option<(String, Value)>;

/// A checkpoint's events, in order; those that are not wanted keep their places.
async fn of_checkpoint(
    reader: &Reader<'_>,
    row: &CheckpointRow,
    modes: &Modes,
    namespaces: &mut BTreeMap<RunId, String>,
) -> Result<Vec<Maybe>, Problem> {
    let namespace = reader.namespace(row.run, namespaces).await?;
    let is_shown = namespace.is_empty() || modes.subgraphs;
    let named = |mode: &str| match namespace.as_str() {
        "" => mode.to_owned(),
        path => format!("{mode}|{path}"),
    };
    let wanted = |mode: &str| is_shown && modes.has(mode);
    let mut events: Vec<Maybe> = Vec::new();
    let (store, tenant, thread) = (reader.allowed.store(), &reader.allowed.tenant, reader.thread);
    match row.kind {
        CheckpointKind::Boundary => {
            // What led here: the tasks of the boundary before it, in their order.
            let parent = match row.parent {
                Some(parent) => store.checkpoint(tenant, thread, parent).await?,
                None => None,
            };
            // A new run begins with its input: what the run before it did was told by its own stream.
            let parent = parent.filter(|parent| parent.run == row.run);
            if let Some(parent) = parent {
                let tasks = store.tasks(tenant, thread, boundary_of(&parent)).await?;
                let done: Vec<_> = tasks
                    .iter()
                    .filter_map(|task| match &task.state {
                        TaskState::Finished(finish) => Some((task, finish)),
                        _ => None,
                    })
                    .collect();
                let nodes: Vec<NodeId> = done.iter().map(|(task, _)| task.node.clone()).collect();
                let (of_each, of_all) = match wanted("tasks") || wanted("updates") {
                    true => written(reader, &parent, row, &nodes).await?,
                    false => (vec![Map::new(); nodes.len()], Map::new()),
                };
                for ((task, finish), update) in done.iter().zip(of_each) {
                    let node = task.node.to_string();
                    let data = json!({
                        "id": task.task, "name": node, "error": finish.error, "result": update, "interrupts": [],
                    });
                    events.push(wanted("tasks").then(|| (named("tasks"), data)));
                    events.push(wanted("updates").then(|| (named("updates"), json!({ node: update }))));
                }
                let is_shared = !of_all.is_empty();
                events.push(
                    (wanted("updates") && is_shared).then(|| (named("updates"), json!({ STEP: of_all }))),
                );
            }
            for (index, planned) in row.plan.tasks.iter().enumerate() {
                let id = TaskId::derive(row.checkpoint, index, &planned.node);
                let data = || json!({ "id": id, "name": planned.node, "input": null, "triggers": [] });
                events.push(wanted("tasks").then(|| (named("tasks"), data())));
            }
            events.push(match wanted("checkpoints") {
                true => Some((named("checkpoints"), json!(reader.told(row, &namespace).await?))),
                false => None,
            });
            events.push(match wanted("values") {
                true => Some((named("values"), reader.values(row).await?)),
                false => None,
            });
        }
        CheckpointKind::Pause { boundary } => {
            // A root run's pause shows what is asked all through the tree.
            let asked = match namespace.is_empty() {
                true => store.waiting_at(tenant, thread, row.created_at).await?,
                false => store.asked(tenant, thread, boundary).await?,
            };
            let waits: Vec<_> = asked.iter().filter(|asked| waited_at(asked, row.created_at)).collect();
            for asked in &waits {
                let data = || {
                    json!({
                        "id": asked.task, "name": asked.node, "error": null, "result": null,
                        "interrupts": [Interrupt::of_row(asked)],
                    })
                };
                events.push(wanted("tasks").then(|| (named("tasks"), data())));
            }
            let waits: Vec<Value> = waits.iter().map(|asked| json!(Interrupt::of_row(asked))).collect();
            let asks = !waits.is_empty();
            events.push(
                (wanted("updates") && asks).then(|| (named("updates"), json!({ "__interrupt__": waits }))),
            );
            events.push(match wanted("checkpoints") {
                true => Some((named("checkpoints"), json!(reader.told(row, &namespace).await?))),
                false => None,
            });
            events.push(match wanted("values") {
                true => {
                    let mut values = reader.values(row).await?;
                    if asks {
                        values["__interrupt__"] = Value::Array(waits);
                    }
                    Some((named("values"), values))
                }
                false => None,
            });
        }
    }
    Ok(events)
}

/// In the place of a node: what several nodes of one step may have written together.
const STEP: &str = "__step__";

/// What the tasks of a step wrote, read from how the channels changed: what only one of its nodes may write
/// is that node's, and the rest is the step's.
async fn written(
    reader: &Reader<'_>,
    before: &CheckpointRow,
    row: &CheckpointRow,
    nodes: &[NodeId],
) -> Result<(Vec<Map<String, Value>>, Map<String, Value>), Problem> {
    let (store, tenant, thread) = (reader.allowed.store(), &reader.allowed.tenant, reader.thread);
    let (mut of_each, mut of_all) = (vec![Map::new(); nodes.len()], Map::new());
    let Some((_, run)) = store.run(tenant, row.run).await? else { return Ok((of_each, of_all)) };
    let graph = reader.allowed.host.kept_graph(run.graph).await?;
    let graph = graph.compiled();
    for (channel, version) in &row.channels {
        let old = before.channels.get(channel);
        if old == Some(version) {
            continue;
        }
        let mut wanted = vec![(channel.clone(), *version)];
        wanted.extend(old.map(|old| (channel.clone(), *old)));
        let values = store.values(tenant, thread, &wanted).await?;
        let value = match (values.as_slice(), graph.channels.get(channel)) {
            ([now, old], Some(reducer)) => added(*reducer, old, now).value(),
            ([now, ..], _) => now.value(),
            ([], _) => continue,
        };
        let may = |node: &NodeId| {
            let node = graph.nodes.get(node);
            node.is_some_and(|node| node.writes.values().any(|written| written == channel))
        };
        let mut writers = (0..nodes.len()).filter(|&i| may(&nodes[i]));
        match (writers.next(), writers.next()) {
            (Some(only), None) => of_each[only].insert(channel.to_string(), value),
            _ => of_all.insert(channel.to_string(), value),
        };
    }
    Ok((of_each, of_all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_stream_survives_its_text() {
        let cursor = Cursor { seq: 12, events: 3, said: 1_700_000_000_000_000 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for wrong in ["", "1", "1.2", "a.b.c", "1.2.3.4", "1.-2.3"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
