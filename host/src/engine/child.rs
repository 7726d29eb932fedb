//! A subgraph's task: the child run that it is, what goes into it, and what of it comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::channels::Channels;
use super::plan;
use super::run::{Run, RunEnd};
use super::session::Ended;
use crate::model::channel::{self, Reducer};
use crate::model::checkpoint::{Finish, Gates, RunRow, TaskState, Withdrawal};
use crate::model::compile::{CompiledGraph, Work};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::execution::RunStatus;
use crate::model::ids::{ChannelName, CheckpointId, RunId, Timestamp};
use crate::model::json::Json;
use crate::store::Write;

impl Run {
    /// The child run of a task: as far as it got, or begun. `Err`: what it was given does not fit it.
    pub(super) async fn child(&mut self, i: usize) -> Result<Result<Box<Run>, ErrorRecord>, Ended> {
        if let Some(child) = self.slots[i].child.take() {
            return Ok(Ok(child));
        }
        let slot = &self.slots[i];
        let (invocation, node_id) = (self.invocation().clone(), slot.row.node.clone());
        let node = &self.graph.nodes[&node_id];
        let Work::Subgraph { graph, agent } = &node.work else {
            unreachable!("only a subgraph's task has a child run");
        };
        let limit = invocation.limits.subgraph_depth;
        if self.row.namespace.len() >= limit as usize {
            let what = format!(
                "node {node_id} is a subgraph {limit} levels deep; {limit} are the most (subgraph_depth)"
            );
            return Ok(Err(ErrorRecord::limit("subgraph_depth", limit.into(), what)));
        }
        let (width, limit) = (self.width_below(), invocation.limits.child_runs);
        if width > limit as usize {
            let what = format!(
                "node {node_id} and its like would be {width} child runs at once; {limit} are the most (child_runs)"
            );
            return Ok(Err(ErrorRecord::limit("child_runs", limit.into(), what)));
        }
        let graph = invocation.shared.graph(&invocation.tenant, *graph).await.map_err(Ended::Engine)?;
        let given = node.reads.iter().filter_map(|(own, channel)| {
            let (own, _) = graph.channels.get_key_value(own.as_str())?;
            Some((own.clone(), self.channels.get(channel)?.clone()))
        });
        let mut input: BTreeMap<ChannelName, Json> = given.collect();
        if let Some(arg) = &slot.arg {
            match sent(&graph, arg) {
                Ok(sent) => input.extend(sent),
                Err(error) => return Ok(Err(error)),
            }
        }
        let input: Vec<(ChannelName, Json)> = input.into_iter().collect();
        let row = RunRow {
            run: RunId::derive(slot.row.task, slot.row.generation),
            parent: Some((self.row.run, slot.row.task)),
            graph: graph.digest(),
            namespace: self.row.namespace.iter().cloned().chain([node_id.to_string()]).collect(),
            agent: agent.clone(),
            given: BTreeMap::new(),
            head: None,
            gates: Gates::default(),
            status: RunStatus::Running,
            error: None,
            created_at: invocation.shared.clock.now(),
            ended_at: None,
        };
        let slot = &mut self.slots[i];
        slot.row.attempts += 1;
        slot.row.state = TaskState::Started;
        slot.row.child = Some(row.run);
        // With the run, so that whoever finds the one finds the other, whatever another task commits meanwhile.
        let with = vec![Write::Task(slot.row.clone())];
        let writer = format!("node {node_id}");
        let first = (CheckpointId::fresh(), None);
        let input = (writer.as_str(), input.as_slice());
        let begun = Run::begin(invocation, graph, (row, &self.path, with), first, Channels::default(), input);
        let begun = Box::pin(begun).await?;
        if begun.is_err() {
            self.slots[i].row.child = None;
        }
        Ok(begun.map(|mut run| {
            run.width = width;
            Box::new(run)
        }))
    }

    /// A child run came to its end, or to where it waits.
    pub(super) async fn returned(&mut self, i: usize, mut child: Box<Run>, end: RunEnd) -> Result<(), Ended> {
        match (end.status, end.error) {
            (RunStatus::Completed, _) => match self.brought(i, &mut child).await? {
                Ok(finish) => self.task_ended(i, TaskState::Finished(finish)),
                Err(error) => self.task_failed(i, error),
            },
            (RunStatus::Interrupted, _) => {
                self.slots[i].child = Some(child);
                self.task_ended(i, TaskState::Paused);
            }
            (status, error) => {
                let error = error.unwrap_or_else(|| {
                    ErrorRecord::new(Kind::NodeFailed, format!("its child run is {}", status.as_str()))
                });
                // `node` and `task_id` of the error name this task from here on; `path` keeps the way down.
                let below = error.more.get("path").cloned().unwrap_or_else(|| {
                    error.more.get("node").cloned().into_iter().collect::<Vec<_>>().into()
                });
                let node = serde_json::Value::from(self.slots[i].row.node.as_str());
                let path: Vec<_> =
                    [node].into_iter().chain(below.as_array().cloned().unwrap_or_default()).collect();
                self.slots[i].child = Some(child);
                self.task_failed(i, error.with("path", path));
            }
        }
        Ok(())
    }

    /// What a child that completed changed, as its parent's update: of what only grows on both sides
    /// (`append`, `sum`) what was added, of anything else the value; nothing of what it left as it was given.
    async fn brought(&self, i: usize, child: &mut Run) -> Result<Result<Finish, ErrorRecord>, Ended> {
        let node_id = &self.slots[i].row.node;
        let node = &self.graph.nodes[node_id];
        let mut changed = Vec::new();
        for (own, channel) in &node.writes {
            let Some((own, &reducer)) = child.graph.channels.get_key_value(own.as_str()) else { continue };
            let now = child.channels.versions().get(own).copied();
            if now.is_some() && now != child.row.given.get(own).copied() {
                changed.push((own.clone(), reducer, channel.clone()));
            }
        }
        let ledger = self.invocation().ledger.as_ref();
        let names: Vec<ChannelName> = changed.iter().map(|(own, ..)| own.clone()).collect();
        child.channels.load(names.iter(), ledger).await?;
        let mut finish = Finish::default();
        for (own, reducer, channel) in changed {
            let Some(value) = child.channels.get(&own).cloned() else { continue };
            let grows =
                matches!(reducer, Reducer::Append | Reducer::Sum) && self.graph.channels[&channel] == reducer;
            let value = match child.row.given.get(&own) {
                Some(&version) if grows => {
                    let given = match (child.given.get(&own), ledger) {
                        (Some(given), _) => given.clone(),
                        (None, Some(ledger)) => {
                            let mut values = ledger.values(&[(own.clone(), version)]).await?;
                            values.pop().unwrap_or_else(Json::null)
                        }
                        (None, None) => Json::null(),
                    };
                    channel::added(reducer, &given, &value)
                }
                _ => value,
            };
            let taken =
                channel::check_type(&channel, self.graph.channels[&channel], node_id.as_str(), &value);
            if let Err(error) = taken {
                let error = ErrorRecord::new(Kind::Invalid, error.to_string());
                return Ok(Err(error.with("channel", channel.as_str())));
            }
            finish.update.push((channel, value));
        }
        finish.update.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Ok(finish))
    }

    /// Calls off this run and all below it: what is pending is withdrawn. Returns what says so.
    pub(super) fn call_off(&mut self, now: Timestamp, by: Option<&str>, reason: &str) -> Vec<Write> {
        let mut writes = self.withdraw(now, by, reason);
        self.row.status = RunStatus::Cancelled;
        self.row.error = Some(ErrorRecord::new(Kind::Cancelled, reason));
        self.row.ended_at = Some(now);
        writes.push(self.status_write());
        writes
    }

    /// The tasks of its boundary are left as they are: nothing of what they asked is asked any more.
    pub(super) fn leave(&mut self, by: Option<&str>, reason: &str) -> Vec<Write> {
        let now = self.invocation().shared.clock.now();
        self.withdraw(now, by, reason)
    }

    fn withdraw(&mut self, now: Timestamp, by: Option<&str>, reason: &str) -> Vec<Write> {
        let mut writes = Vec::new();
        for slot in &mut self.slots {
            writes.extend(slot.withdraw(|_| Some(Withdrawal::new(now, by, reason))));
            if let Some(child) = &mut slot.child {
                writes.extend(child.call_off(now, by, reason));
            }
        }
        writes
    }
}

/// What a `send` gives a subgraph: an object of its channels.
fn sent(graph: &Arc<CompiledGraph>, arg: &Json) -> Result<Vec<(ChannelName, Json)>, ErrorRecord> {
    plan::accept_input(graph, arg).map_err(|error| {
        let message = format!("the argument of a send to the graph {}: {}", graph.name, error.message);
        ErrorRecord { message, ..error }
    })
}
