use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{NodeError, bindings::holdpoint::node::types as wit, json};

/// Where and why a node runs: the same in every attempt of one task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Context {
    /// The thread's name, as the caller chose it.
    pub thread_id: String,
    /// The run that this task belongs to.
    pub run_id: String,
    /// This activation of the node. It stays the same across retries and resumes, so it makes a good
    /// idempotency key for what a node does once an activation.
    pub task_id: String,
    /// The node's name in the graph.
    pub node: String,
    /// The subgraph nodes that lead here from the root; empty in the root graph.
    pub path: Vec<String>,
    /// The step of the run, from 0.
    pub step: u32,
    /// The argument of the [`send`](crate::Outcome::send) that started this task.
    pub arg: Option<Value>,
}

impl Context {
    /// The argument of the [`send`](crate::Outcome::send) that started this task, as the type that
    /// the sender meant. Without an argument it is read from `null`, so that an `Option` will do.
    pub fn arg<T: DeserializeOwned>(&self) -> Result<T, NodeError> {
        json::from_value(self.arg.as_ref().unwrap_or(&Value::Null))
            .map_err(|why| NodeError::fail(format!("the argument of `{}`: {why}", self.node)))
    }

    pub(crate) fn from_wit(context: wit::Context) -> Result<Self, NodeError> {
        let arg = context.arg.as_deref().map(json::parse).transpose()?;
        Ok(Self {
            thread_id: context.thread_id,
            run_id: context.run_id,
            task_id: context.task_id,
            node: context.node,
            path: context.path,
            step: context.step,
            arg,
        })
    }
}
