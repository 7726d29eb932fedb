//! What a person writes into a thread's state, as if a node had.

use futures::future::BoxFuture;
use serde_json::Value;

use super::error::EngineError;
use super::host::Host;
use super::idle::{Applied, OnIdle};
use super::plan;
use super::resume::name_of;
use super::run::Run;
use super::session::{Ended, Session};
use crate::model::checkpoint::{Finish, Plan, PlannedTask, TaskState};
use crate::model::command::RunConfig;
use crate::model::error::{ErrorRecord, Kind, Refused};
use crate::model::execution::{Execution, RunStatus};
use crate::model::ids::{ChannelName, NodeId, RunId};
use crate::model::json::Json;

/// What is written, and in whose name.
#[derive(Clone, Debug, Default)]
pub struct StateUpdate {
    /// An object from channel names to values, which go through the channels' reducers.
    pub values: Value,
    /// The node that it counts for: its edges are followed, and if it waits, it is done with this.
    pub as_node: Option<String>,
    /// Who writes it.
    pub actor: Option<String>,
    pub onward: Onward,
}

/// What happens after a state was written into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Onward {
    /// The thread goes on from there.
    #[default]
    Run,
    /// What asked asks anew. All else stands at a gate until somebody lets it pass.
    Hold,
}

impl Host {
    /// Writes into a thread's state, and goes on from there. What siblings of a paused task finished is
    /// folded first, and they do not run again; what was not done runs from the new state, and asks again
    /// under new ids. Effects that were done are not done again.
    pub async fn set_state(&self, config: RunConfig, update: StateUpdate) -> Result<Execution, EngineError> {
        self.room_for_bytes(0).await?;
        self.change(&config, &mut self.set(&update, None)?).await
    }

    /// The update as a command. `begun`: a run of the caller's own, which nobody runs yet.
    pub(super) fn set<'s>(
        &self,
        update: &'s StateUpdate,
        begun: Option<RunId>,
    ) -> Result<Set<'s>, EngineError> {
        if let Some(actor) = &update.actor {
            name_of("who sets the state", actor)?;
        }
        let limits = &self.limits;
        let bound = ("state_bytes", limits.state_bytes);
        let values =
            limits.take_json(&update.values.to_string(), "the update", bound).map_err(Refused::of)?;
        Ok(Set { values, update, begun })
    }
}

/// An update whose values were taken.
pub(super) struct Set<'s> {
    values: Json,
    update: &'s StateUpdate,
    begun: Option<RunId>,
}

impl OnIdle for Set<'_> {
    fn refuses(&self, status: RunStatus) -> Option<&'static str> {
        (status == RunStatus::Cancelled).then_some("start another, or fork from before")
    }

    fn has_begun(&self, run: RunId) -> bool {
        self.begun == Some(run)
    }

    fn apply<'a>(&'a mut self, session: &'a mut Session) -> BoxFuture<'a, Result<Applied, Ended>> {
        let StateUpdate { as_node, actor, onward, .. } = self.update;
        Box::pin(session.root.set_state(&self.values, (as_node.as_deref(), *onward), actor.as_deref()))
    }
}

impl Run {
    /// A boundary of its own: what is finished and what is set, and then what is not done yet. Crash before
    /// its commit: nothing of it. Crash after: the thread is there, to be continued from it.
    async fn set_state(
        &mut self,
        values: &Json,
        (as_node, onward): (Option<&str>, Onward),
        by: Option<&str>,
    ) -> Result<Applied, Ended> {
        let graph = self.graph.clone();
        let as_node = match as_node.map(|name| named(&graph.nodes, name)).transpose() {
            Ok(as_node) => as_node,
            Err(error) => return Ok(Err(error)),
        };
        let values = match plan::accept_input(&graph, values) {
            Ok(values) => values,
            Err(error) => return Ok(Err(error)),
        };
        let planned = self.plan().clone();
        let done: Vec<bool> = self.slots.iter().map(|slot| slot.is_through()).collect();
        // Of several activations of the node, the first that waits is the one that is done with this.
        let stands_for = as_node
            .as_ref()
            .and_then(|node| (0..done.len()).find(|&i| !done[i] && planned.tasks[i].node == *node));
        let written = Finish { update: values, ..Finish::default() };
        let mut finished = Plan { tasks: Vec::new(), arrived: planned.arrived.clone() };
        let mut finishes: Vec<Finish> = Vec::new();
        let mut rest = Plan::default();
        // Of the tasks that are left, those that asked.
        let mut asked: Vec<bool> = Vec::new();
        for (i, task) in planned.tasks.iter().enumerate() {
            match &self.slots[i].row.state {
                TaskState::Finished(finish) if done[i] => {
                    finished.tasks.push(task.clone());
                    finishes.push(finish.clone());
                }
                _ if stands_for == Some(i) => {}
                state => {
                    asked.push(*state == TaskState::Paused && self.slots[i].gate().is_none());
                    rest.tasks.push(task.clone());
                }
            }
        }
        if let Some(node) = &as_node {
            finished.tasks.push(PlannedTask { node: node.clone(), arg: None });
            finishes.push(written.clone());
        }
        let after = plan::next(&graph, &finished, &finishes.iter().collect::<Vec<_>>());
        for task in after.tasks {
            let meets = task.arg.is_none() && rest.tasks.contains(&task);
            if !meets {
                rest.tasks.push(task);
            }
        }
        rest.arrived = after.arrived;
        if let Err(error) = self.in_bounds(&rest) {
            return Ok(Err(error));
        }
        let mut left = self.leave(by, "the thread's state was set");
        // One boundary after the other: what siblings wrote is there already when this is written over it.
        let siblings = finished.tasks.iter().zip(&finishes).take(done.iter().filter(|&&done| done).count());
        let siblings: Vec<(&str, &[(ChannelName, Json)])> =
            siblings.map(|(task, finish)| (task.node.as_str(), finish.update.as_slice())).collect();
        let writer = as_node.as_ref().map_or("who sets the state", NodeId::as_str);
        for updates in [siblings, vec![(writer, written.update.as_slice())]] {
            if updates.is_empty() {
                continue;
            }
            match self.fold(updates).await? {
                Ok(changes) => self.step_to(rest.clone(), changes, std::mem::take(&mut left)).await,
                Err(error) => return Ok(Err(error)),
            }
        }
        if onward == Onward::Hold {
            asked.resize(self.slots.len(), false);
            for (slot, _) in self.slots.iter_mut().zip(asked).filter(|(_, asked)| !asked) {
                slot.gated.before = true;
            }
        }
        Ok(Ok(()))
    }
}

fn named<T>(nodes: &std::collections::BTreeMap<NodeId, T>, name: &str) -> Result<NodeId, ErrorRecord> {
    nodes.get_key_value(name).map(|(node, _)| node.clone()).ok_or_else(|| {
        let known: Vec<&str> = nodes.keys().map(NodeId::as_str).collect();
        let what = format!("no node is named {name:?}; the graph has {}", known.join(", "));
        ErrorRecord::new(Kind::Invalid, what)
    })
}
