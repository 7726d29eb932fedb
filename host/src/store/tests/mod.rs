//! The store under test is the store: real files in folders of their own.

mod cost;
mod damage;
mod guards;
mod opening;
mod pruning;
mod rows;
mod writing;

use std::collections::BTreeMap;
use std::path::PathBuf;

use sqlx::SqliteConnection;
use tempfile::TempDir;

use super::*;
use crate::model::RunStatus;
use crate::model::checkpoint::{
    ChannelRow, ChannelValue, CheckpointKind, CheckpointRow, Gates, Plan, PlannedTask, RunRow, Version,
};
use crate::model::compile::CompiledGraph;
use crate::model::ids::{ChannelName, CheckpointId, Digest, NodeId, RunId, ThreadId, Timestamp};
use crate::model::json::{Json, JsonBounds};

struct Fixture {
    /// Removes the folder when it is dropped.
    _folder: TempDir,
    path: PathBuf,
    store: Store,
    graph: Digest,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.db");
        let store = Store::open(&path).await.unwrap();
        let graph = store.put_graph(&tenant(), &graph(), Timestamp(1)).await.unwrap();
        Self { _folder: folder, path, store, graph }
    }

    /// A new thread at its first boundary.
    async fn start(&self, name: &str) -> At {
        let (batch, at) = self.starting(name);
        self.store.commit(batch).await.unwrap();
        at
    }

    fn starting(&self, name: &str) -> (Batch, At) {
        let run = run_row(self.graph);
        let boundary = boundary(run.run, None, 0);
        let at = At { thread: thread(name), run: run.run, head: boundary.checkpoint, epoch: 0, version: 0 };
        let mut batch = at.batch(vec![Write::Run(run), Write::Checkpoint(boundary)]);
        batch.expect = Expect::Absent { secret: [7; 32] };
        (batch, at)
    }

    /// A second connection, which can write what no Holdpoint would.
    async fn raw(&self) -> SqliteConnection {
        use sqlx::ConnectOptions;
        let connecting = open::connecting(&self.path, OpenOptions::default());
        connecting.pragma("ignore_check_constraints", "ON").foreign_keys(false).connect().await.unwrap()
    }

    async fn execute(&self, statement: &'static str) {
        let changed = sqlx::query(statement).execute(&mut self.raw().await).await.unwrap();
        assert_ne!(changed.rows_affected(), 0, "{statement}");
    }
}

/// A thread as its writer knows it.
#[derive(Clone)]
struct At {
    thread: ThreadId,
    run: RunId,
    head: CheckpointId,
    epoch: i64,
    version: Version,
}

impl At {
    fn batch(&self, writes: Vec<Write>) -> Batch {
        Batch {
            tenant: tenant(),
            thread: self.thread.clone(),
            expect: Expect::At { head: self.head, epoch: self.epoch },
            head: self.head,
            status: RunStatus::Running,
            lease: LeaseChange::Keep,
            writes,
        }
    }

    /// On to the next boundary.
    fn step(&mut self, mut writes: Vec<Write>) -> Batch {
        self.version += 1;
        let mut next = boundary(self.run, Some(self.head), self.version);
        next.channels.extend(writes.iter().filter_map(|write| match write {
            Write::Channel(row) => Some((row.channel.clone(), row.version)),
            _ => None,
        }));
        let head = next.checkpoint;
        writes.push(Write::Checkpoint(next));
        let batch = Batch { head, ..self.batch(writes) };
        self.head = head;
        batch
    }
}

fn tenant() -> TenantId {
    TenantId::default()
}

fn thread(name: &str) -> ThreadId {
    ThreadId::parse(name).unwrap()
}

fn node(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn json(text: &str) -> Json {
    Json::parse(text, JsonBounds::TRUSTED).unwrap()
}

fn graph() -> CompiledGraph {
    CompiledGraph {
        name: "g".into(),
        entry: vec![node("a")],
        channels: BTreeMap::new(),
        nodes: BTreeMap::new(),
        edges: Vec::new(),
        effects: BTreeMap::new(),
        named: Default::default(),
    }
}

fn run_row(graph: Digest) -> RunRow {
    RunRow {
        run: RunId::fresh(),
        parent: None,
        graph,
        namespace: Vec::new(),
        agent: None,
        given: BTreeMap::new(),
        head: None,
        gates: Gates { before: [NodeId::parse("n").unwrap()].into(), after: Default::default() },
        status: RunStatus::Running,
        error: None,
        created_at: Timestamp(10),
        ended_at: None,
    }
}

fn boundary(run: RunId, parent: Option<CheckpointId>, version: Version) -> CheckpointRow {
    CheckpointRow {
        checkpoint: CheckpointId::fresh(),
        parent,
        run,
        kind: CheckpointKind::Boundary,
        step: u32::try_from(version).unwrap(),
        version,
        plan: Plan { tasks: vec![PlannedTask { node: node("a"), arg: None }], arrived: BTreeMap::new() },
        channels: BTreeMap::new(),
        status: RunStatus::Running,
        created_at: Timestamp(100 + version),
    }
}

fn appended(version: Version, text: &str, after: Option<Version>) -> Write {
    let value = ChannelValue::Appended { text: text.into(), after };
    Write::Channel(ChannelRow { channel: channel("log"), version, value })
}
