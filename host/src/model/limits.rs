//! Every bound that the host holds a node, a caller and itself to, in one place.

use serde::{Deserialize, Serialize};

use super::error::{ErrorRecord, Kind};
use super::json::{Json, JsonBounds, JsonError};

/// Bounds, with their units in their names. A refusal names the field and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Wasmtime fuel for one attempt: the deterministic bound on work.
    pub fuel: u64,
    /// Linear memory of one attempt, all its memories together.
    pub memory_bytes: u64,
    /// Elements of one attempt's tables, together.
    pub table_elements: u64,
    /// Core instances that a component may make.
    pub instances: u32,
    /// Resource handles that a guest may hold at once.
    pub handles: u32,
    /// What a guest may hand over in one host call, and the host allocate for it.
    pub host_call_bytes: u64,
    /// The safety net behind fuel: the wall time of one attempt.
    pub deadline_ms: u64,
    /// A question's payload, schema and default answer, each.
    pub payload_bytes: u64,
    /// One answer.
    pub answer_bytes: u64,
    /// What a person tells a node beside an answer.
    pub instruction_bytes: u64,
    /// One task's update.
    pub update_bytes: u64,
    /// The state object that a node is handed; the input of a run.
    pub state_bytes: u64,
    /// An effect's input; an outcome.
    pub effect_bytes: u64,
    /// Levels of arrays and objects in any JSON, checked before it is parsed.
    pub json_depth: u32,
    /// One attempt's log lines, stdout and stderr, kept.
    pub log_bytes: u64,
    /// Host calls on record for one task.
    pub journal_entries: u32,
    /// What one task asks of the host and is told, in those calls together.
    pub journal_bytes: u64,
    /// Questions that one task may ask.
    pub interrupts: u32,
    /// Steps of one run, across all its resumes.
    pub steps: u32,
    /// Tasks of one step.
    pub step_tasks: u32,
    /// Child runs that may be open at once: the subgraph tasks of a step, times those of the steps above it.
    pub child_runs: u32,
    /// Subgraphs within subgraphs.
    pub subgraph_depth: u32,
    /// A component's file.
    pub component_bytes: u64,
    /// Tasks that run at once in this process; of one tenant, if it is given less.
    pub tasks_at_once: u32,
    /// What the tasks that run at once may have of linear memory together: each counts with the
    /// `memory_bytes` that it may grow to, and waits until there is room for that.
    pub memory_bytes_at_once: u64,
    /// Fuel that a tenant's nodes may use in any minute, in one process. An attempt for which the host worked longer
    /// than its fuel pays for, at 2 ns each, is charged with that.
    pub fuel_per_minute: u64,
    /// Threads that a tenant may have.
    pub threads: u64,
    /// What a tenant may keep: components, state, and what its tasks asked and were told.
    pub storage_bytes: u64,
    /// Compilations that run at once in this process.
    pub compiles_at_once: u32,
    /// Wall time of one compilation.
    pub compile_ms: u64,
    /// Memory of one compile process.
    pub compile_memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            fuel: 2_000_000_000,
            memory_bytes: 256 * MIB,
            table_elements: 100_000,
            instances: 64,
            handles: 1_000,
            host_call_bytes: 16 * MIB,
            deadline_ms: 60_000,
            payload_bytes: 4 * MIB,
            answer_bytes: 4 * MIB,
            instruction_bytes: 64 * 1024,
            update_bytes: 8 * MIB,
            state_bytes: 16 * MIB,
            effect_bytes: 4 * MIB,
            json_depth: 100,
            log_bytes: 64 * 1024,
            journal_entries: 10_000,
            journal_bytes: 64 * MIB,
            interrupts: 1_000,
            steps: 10_000,
            step_tasks: 1_000,
            child_runs: 1_000,
            subgraph_depth: 16,
            component_bytes: 64 * MIB,
            tasks_at_once: 64,
            memory_bytes_at_once: 8 * 1024 * MIB,
            // Whoever serves tenants says what each of them may use.
            fuel_per_minute: u64::MAX,
            threads: u64::MAX,
            storage_bytes: u64::MAX,
            compiles_at_once: 2,
            // A Python component takes a quarter of a minute on a free machine, and many times that on a busy one.
            compile_ms: 600_000,
            compile_memory_bytes: 2 * 1024 * MIB,
        }
    }
}

macro_rules! node_limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        /// What a graph holds one of its nodes to, in words of [`Limits`]: less than its tenant is held to.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct NodeLimits {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }

        impl NodeLimits {
            /// The first of these that is more than `limits` allow: its name, its value, and what is allowed.
            pub fn over(&self, limits: &Limits) -> Option<(&'static str, u64, u64)> {
                $(if let Some(own) = self.$name && own > limits.$name {
                    return Some((stringify!($name), own.into(), limits.$name.into()));
                })*
                None
            }

            /// `limits`, lowered to these. The tenant's may have been lowered since the graph was compiled.
            pub fn within(&self, limits: &Limits) -> Limits {
                Limits { $($name: self.$name.map_or(limits.$name, |own| own.min(limits.$name)),)* ..limits.clone() }
            }

            pub fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }
    };
}

node_limits! {
    fuel: u64,
    memory_bytes: u64,
    table_elements: u64,
    instances: u32,
    handles: u32,
    host_call_bytes: u64,
    deadline_ms: u64,
    payload_bytes: u64,
    update_bytes: u64,
    state_bytes: u64,
    effect_bytes: u64,
    log_bytes: u64,
    journal_entries: u32,
    journal_bytes: u64,
    interrupts: u32,
}

impl Limits {
    pub fn json(&self, bytes_max: u64) -> JsonBounds {
        JsonBounds {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            // The parser behind the guard gives up at 128 levels: the guard must come first.
            depth_max: (self.json_depth as usize).min(JsonBounds::TRUSTED.depth_max - 8),
        }
    }

    /// Takes JSON from outside. `what` begins the error's sentence; `bound` is the field of this that holds
    /// for its size.
    pub fn take_json(&self, text: &str, what: &str, bound: (&str, u64)) -> Result<Json, ErrorRecord> {
        let (name, bytes_max) = bound;
        Json::parse(text, self.json(bytes_max)).map_err(|error| match error {
            JsonError::Bytes { value, .. } => {
                let message = format!("{what} has {value} bytes; at most {bytes_max} are taken ({name})");
                ErrorRecord::limit(name, bytes_max, message)
            }
            JsonError::Depth { limit } => ErrorRecord::limit(
                "json_depth",
                limit as u64,
                format!("{what} is nested deeper than {limit} levels (json_depth)"),
            ),
            other => {
                ErrorRecord::new(Kind::Invalid, format!("{what} is no JSON that the host takes: {other}"))
            }
        })
    }
}
