//! What a guest or a client can hand in, as bytes. Each entry panics where the host would do what it must not:
//! panic, take what it must refuse, or blame itself for it. What it returns is whether it was taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard};

use holdpoint::model::compile::Work;
use holdpoint::model::grants::Grants;
use holdpoint::model::graph::{Names, NodeSpec};
use holdpoint::model::ids::{CheckpointId, InterruptId};
use holdpoint::model::journal::{Journal, Next};
use holdpoint::model::{
    CompiledGraph, Digest, Json, JsonBounds, Kind, Limits, NodeInfo, PendingChildren, RunId, RunStatus,
    TaskId, TenantId,
};
use holdpoint::store::{Store, StoreError};
use holdpoint::{Command, EngineError, Execution, Graph, GraphSpec, Host, Reducer, ResumeTarget, RunConfig};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tokio::runtime::Runtime;

mod outcome;
mod request;
mod schema;

pub type Entry = fn(&[u8]) -> bool;

/// By the name of its corpus.
const ALL: [(&str, Entry); 8] = [
    ("answers", answers),
    ("component", component),
    ("graph_file", graph_file),
    ("journal_rows", journal_rows),
    ("json_guard", json_guard),
    ("outcome", outcome::outcome),
    ("request", request::request),
    ("schema", schema::schema),
];

pub fn named(name: &str) -> Option<Entry> {
    ALL.iter().find(|(of, _)| *of == name).map(|(_, entry)| *entry)
}

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}

/// A graph file, with components that declare all that it grants.
fn graph_file(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(spec) = GraphSpec::from_toml(text) else { return false };
    let again = GraphSpec::from_toml(&spec.to_toml());
    assert_eq!(again.as_ref(), Ok(&spec), "a graph is read as it was written");
    let own =
        |names: &Names| names.pairs().into_iter().map(|(own, _)| own.to_owned()).collect::<BTreeSet<_>>();
    let declared = |node: &NodeSpec| NodeInfo {
        name: "n".into(),
        version: "1".into(),
        reads: own(&node.reads),
        writes: own(&node.writes),
        routes: own(&node.routes),
        effects: own(&node.effects),
    };
    let with_component = spec.nodes.iter().filter(|(_, node)| node.component.is_some());
    let components: BTreeMap<_, _> =
        with_component.map(|(name, node)| (name.clone(), (Digest::of(b"c"), declared(node)))).collect();
    for node in spec.nodes.values() {
        Grants::of(&spec, node, &declared(node));
    }
    let Ok(graph) = CompiledGraph::compile(&spec, &components, &BTreeMap::new()) else { return false };
    let kept = graph.to_json();
    assert_ne!(kept, Json::null(), "a graph that compiles can be kept");
    let read = CompiledGraph::from_json(kept.as_str()).expect("what was kept can be read");
    assert_eq!((read.digest(), &read), (graph.digest(), &graph));
    assert!(graph.nodes.values().all(|node| matches!(node.work, Work::Component(_))));
    true
}

/// The first byte says how deep and how large.
fn json_guard(data: &[u8]) -> bool {
    let Some((&first, data)) = data.split_first() else { return false };
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let depth_max = usize::from(first % 121);
    let bytes_max = if first >= 128 { usize::from(first) } else { usize::MAX };
    let Ok(json) = Json::parse(text, JsonBounds { bytes_max, depth_max }) else { return false };
    assert!(text.len() <= bytes_max);
    let whole: Value = serde_json::from_str(text).expect("what the guard takes is JSON");
    assert!(depth(&whole) <= depth_max, "{} > {depth_max}", depth(&whole));
    let canonical = Json::parse(json.as_str(), JsonBounds { bytes_max: usize::MAX, depth_max });
    assert_eq!(canonical.as_ref(), Ok(&json), "a canonical text is its own");
    assert_eq!(json.value(), whole, "it says the same");
    // A reader may write an exponent's plus sign that was left out, which is the same number.
    let back = Json::from_value(&whole).expect("what was taken once is taken again");
    assert_eq!(back.value(), whole);
    if let Some(members) = json.members() {
        let back = Json::object(members.iter().map(|(name, value)| (name.as_str(), value)));
        assert_eq!(back, json);
    }
    json.elements_text();
    true
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Lines: the entry's call, kind and reply; then a question's kind, place, payload, schema and answer. They
/// stand in a row of a journal and one of its questions, as no Holdpoint wrote them.
fn journal_rows(data: &[u8]) -> bool {
    let mut library = Library::borrow();
    let Library { runtime, store, connection, .. } = &mut *library;
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n').map(|line| (!line.is_empty()).then_some(line));
    let mut next = || lines.next().flatten();
    let entry = [next().unwrap_or_default(), next().unwrap_or_default()];
    let reply = next();
    let question = [next().unwrap_or("node"), next().unwrap_or("0")];
    let (payload, schema, answer) = (next().unwrap_or("null"), next(), next());
    let state = if answer.is_some() { "answered" } else { "pending" };
    let place: i64 = question[1].parse().unwrap_or(0);
    let read = runtime.block_on(async {
        sqlx::query("UPDATE journal SET call = ?1, reply_kind = ?2, reply = ?3")
            .bind(entry[0])
            .bind(entry[1])
            .bind(reply)
            .execute(&mut *connection)
            .await
            .unwrap();
        sqlx::query(
            "UPDATE interrupts SET kind = ?1, place = ?2, payload = ?3, answer_schema = ?4, answer = ?5, state = ?6, \
             settled_at = 1",
        )
        .bind(question[0])
        .bind(place)
        .bind(payload)
        .bind(schema)
        .bind(answer)
        .bind(state)
        .execute(&mut *connection)
        .await
        .unwrap();
        store.journal(&TenantId::default(), TASK).await
    });
    let rows = match read {
        Ok(rows) => rows,
        Err(error) => {
            // It says which row of which table, and is no fault of anything else.
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
            assert!(error.to_string().len() < 10_000, "{error}");
            return false;
        }
    };
    assert_eq!(rows.len(), 1);
    let entries: Vec<_> = rows.into_iter().map(|row| row.entry).collect();
    let calls: Vec<_> = entries.iter().map(|entry| entry.call.clone()).collect();
    let mut journal = Journal::recorded(entries, 0);
    journal.rewind();
    journal.waiting();
    if journal.is_replaying() {
        assert!(matches!(journal.next(&calls[0]), Next::Recorded { .. }), "what was done is done again");
    }
    assert_eq!(journal.finish(), Ok(()));
    journal.retry(holdpoint::model::Timestamp(1));
    true
}

const TASK: TaskId = TaskId(uuid::Uuid::from_u128(7));

/// A database with one journal entry, that asked one question.
struct Library {
    runtime: Runtime,
    store: Store,
    connection: SqliteConnection,
    _dir: tempfile::TempDir,
}

impl Library {
    fn borrow() -> MutexGuard<'static, Self> {
        static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(|| Mutex::new(Library::new()));
        LIBRARY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn new() -> Self {
        let runtime = runtime();
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rows.db");
        let (store, connection) = runtime.block_on(async {
            let store = Store::open(&db).await.unwrap();
            let options = SqliteConnectOptions::new()
                .filename(&db)
                .foreign_keys(false)
                .pragma("ignore_check_constraints", "ON")
                .pragma("synchronous", "OFF")
                .disable_statement_logging();
            let mut connection = options.connect().await.unwrap();
            for statement in [
                "INSERT INTO journal (tenant, task, entry, call, reply_kind, reply, at) \
                 VALUES (1, ?1, 0, '', '', NULL, 1)",
                "INSERT INTO interrupts (tenant, interrupt, thread, run, task, node, boundary, checkpoint, kind, \
                     asked_order, entry, place, payload, asked_at, state) \
                 VALUES (1, ?1, 1, ?1, ?1, 'n', ?1, ?1, 'node', 0, 0, 0, 'null', 1, 'pending')",
            ] {
                sqlx::query(statement).bind(TASK.0.as_bytes().as_slice()).execute(&mut connection).await.unwrap();
            }
            (store, connection)
        });
        Self { runtime, store, connection, _dir: dir }
    }
}

/// A thread with questions in several nodes and a subgraph; the bytes are a command on it, whatever it says.
fn answers(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(2, '\n');
    let (head, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut desk = AnswerDesk::borrow();
    let pending = desk.pending();
    let bounds = Limits::default().json(1 << 20);
    let value = Json::parse(value, bounds).map_or_else(|_| Value::from(value), |json| json.value());
    let (target, command) = command(head.as_bytes(), &value, &pending);
    let AnswerDesk { runtime, graph, .. } = &mut *desk;
    let resumed = runtime.block_on(async {
        match target {
            Some(target) => graph.resume_targeted(target, command.clone()).await,
            None => graph.resume(RunConfig::thread("t"), command.clone()).await,
        }
    });
    let now = desk.look();
    match resumed {
        Ok(execution) => {
            assert_eq!(now.checkpoint_id, execution.checkpoint_id, "{command:?}");
            assert_eq!(now.interrupts, execution.interrupts, "{command:?}");
            let asked: BTreeSet<InterruptId> = ids(&now).collect();
            if let holdpoint::model::Resume::Answers(given) = &command.resume {
                assert!(given.keys().all(|id| !asked.contains(id)), "answered, and asked still: {command:?}");
            }
            true
        }
        // Refused: it says what is pending, and nothing has changed.
        Err(EngineError::Refused(refused)) => {
            assert_ne!(refused.error.kind, Kind::Store, "{command:?}: {refused}");
            assert_eq!(now, pending, "{command:?}: {refused}");
            false
        }
        Err(error) => panic!("{command:?}: {error:?}"),
    }
}

fn ids(execution: &Execution) -> impl Iterator<Item = InterruptId> {
    execution.interrupts.iter().map(|pending| pending.interrupt.id)
}

/// Each byte narrows or names something; what is missing is left out.
fn command(head: &[u8], value: &Value, now: &Execution) -> (Option<ResumeTarget>, Command) {
    let mut bytes = head.iter().map(|&byte| usize::from(byte));
    let mut next = || bytes.next().unwrap_or(0);
    let known: Vec<_> = now.interrupts.iter().collect();
    let fresh = InterruptId(uuid::Uuid::from_u128(1));
    let id = |byte: usize| known.get(byte % (known.len() + 1)).map_or(fresh, |pending| pending.interrupt.id);
    let mut command = match next() % 4 {
        0 => Command::resume(value.clone()),
        1 => Command::proceed(),
        2 => Command::answers((0..next() % 5).map(|_| (id(next()), value.clone())).collect::<Vec<_>>()),
        _ => {
            // By its ids as text, as a document says them.
            let members = value.as_object().into_iter().flatten();
            let parsed = members.filter_map(|(id, value)| Some((id.parse().ok()?, value.clone())));
            Command::answers(parsed.collect::<Vec<_>>())
        }
    };
    command.pending_children = match next() % 5 {
        0 | 1 => PendingChildren::Leave,
        2 => PendingChildren::Refuse,
        3 => PendingChildren::Resolve(value.clone()),
        _ => PendingChildren::Cancel,
    };
    let text = |byte: usize| value.as_str().map_or_else(|| format!("{byte}"), str::to_owned);
    match next() {
        0 => {}
        byte if byte % 5 == 0 => command = command.by(text(byte)),
        byte if byte % 5 == 1 => command = command.steer(text(byte)),
        byte if byte % 5 == 2 => {
            command = command.expecting(now.checkpoint_id.unwrap_or_else(CheckpointId::fresh))
        }
        byte if byte % 5 == 3 => command = command.expecting(CheckpointId::fresh()),
        _ => {}
    }
    let run = match next() % 5 {
        0 | 1 => return (None, command),
        2 => now.run_id,
        3 => RunId::fresh(),
        _ => known.last().and_then(|pending| pending.run_path.last()).copied().unwrap_or(now.run_id),
    };
    let mut target = ResumeTarget::run(run);
    if next() % 3 == 1 {
        target = target.interrupt(id(next()));
    }
    if next() % 3 == 1 {
        let task = known.get(next() % (known.len() + 1)).map(|pending| pending.interrupt.task_id);
        target = target.task(task.unwrap_or(TASK));
    }
    match next() % 4 {
        1 => target.namespace = vec!["s".into()],
        2 => target.namespace = vec![text(0)],
        _ => {}
    }
    (Some(target), command)
}

/// A host with a thread `t` that asks whenever it is looked at.
struct AnswerDesk {
    runtime: Runtime,
    host: Host,
    graph: Graph,
    _dir: tempfile::TempDir,
}

impl AnswerDesk {
    fn borrow() -> MutexGuard<'static, Self> {
        static DESK: LazyLock<Mutex<AnswerDesk>> = LazyLock::new(|| Mutex::new(AnswerDesk::new()));
        DESK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn new() -> Self {
        let runtime = runtime();
        let dir = tempfile::tempdir().unwrap();
        let (host, graph) = runtime.block_on(async {
            let builder = Host::builder().database(dir.path().join("answers.db")).cache(cache());
            let host = builder.open().await.unwrap();
            let node = || NodeSpec::component(component_file("script")).reads(&["script"]).writes(&["a"]);
            let empty = |entry| {
                GraphSpec::new("asks", entry)
                    .channel("script", Reducer::Replace)
                    .channel("a", Reducer::Append)
            };
            let below = host.compile(&empty("x").node("x", node())).await.unwrap().digest();
            let mut gated = node();
            gated.interrupt_before = true;
            let mut spec = empty("n")
                .node("n", node())
                .node("g", gated)
                .node("s", NodeSpec::subgraph(below).reads(&["script"]).writes(&["a"]));
            let entries = ["n", "g", "s"].map(String::from).to_vec();
            spec.entry = holdpoint::model::OneOrMany::Many(entries);
            let graph = host.compile(&spec).await.unwrap();
            (host, graph)
        });
        Self { runtime, host, graph, _dir: dir }
    }

    fn look(&self) -> Execution {
        self.runtime.block_on(self.host.execution(RunConfig::thread("t"))).unwrap()
    }

    /// What is pending on the thread; if nothing is, it starts again.
    fn pending(&self) -> Execution {
        let asks = json!({
            "n": [{ "ask_all": [1, 2] }, { "ask": "then?", "schema": { "type": "string" } }, { "put_results": "a" }],
            "g": [],
            "s/x": [{ "ask": "below?", "schema": { "enum": [1, null, "", true, "x"] } }, { "put_results": "a" }],
        });
        match self.runtime.block_on(self.host.execution(RunConfig::thread("t"))) {
            Ok(execution) if execution.status == RunStatus::Interrupted => execution,
            _ => {
                let run = self.graph.invoke(RunConfig::thread("t"), json!({ "script": asks }));
                let started = self.runtime.block_on(run).unwrap();
                assert_eq!(started.status, RunStatus::Interrupted, "{started:?}");
                self.look()
            }
        }
    }
}

/// A file that somebody installs.
fn component(data: &[u8]) -> bool {
    static INSTALLER: LazyLock<(Runtime, Host, tempfile::TempDir)> = LazyLock::new(|| {
        let runtime = runtime();
        let dir = tempfile::tempdir().unwrap();
        // Nothing of it is kept: each is compiled anew.
        let host = runtime.block_on(Host::builder().cache(dir.path().join("cache")).open()).unwrap();
        (runtime, host, dir)
    });
    let (runtime, host, _) = &*INSTALLER;
    match runtime.block_on(host.install("fuzz", data.to_vec())) {
        Ok(installed) => {
            assert_eq!(installed.digest, Digest::of(data));
            true
        }
        Err(error) => {
            // The file's fault, and not the host's.
            assert_ne!(error.kind(), Kind::Store, "{error:?}");
            assert!(error.to_string().len() < 10_000, "{error}");
            false
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn built() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let roots = [here.join("../target"), here.join("../../target")];
    let [near, far] = roots;
    if near.join("components").exists() { near } else { far }
}

fn component_file(name: &str) -> String {
    built().join("components").join(format!("{name}.wasm")).display().to_string()
}

fn cache() -> PathBuf {
    built().join("tmp/components-compiled")
}
