//! What cannot be done is refused with a kind that programs act on, and words that show the way out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use holdpoint::model::{Digest, InterruptId, Kind, Limits};
use holdpoint::{Command, EngineError, GraphSpec, Host, NodeSpec, Reducer, ResumeTarget, RunConfig};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use uuid::Uuid;

use crate::by_hand::{component as around, module, node};
use crate::hostile::{Bench, is_limit};
use crate::world::*;

#[track_caller]
fn check<T>(what: &str, result: Result<T, impl Into<EngineError>>, kind: Kind, words: &[&str]) {
    let Err(error) = result else { panic!("{what}: not refused") };
    let error = error.into().record();
    assert_eq!(error.kind, kind, "{what}: {error}");
    for word in words {
        assert!(error.message.contains(word), "{what}: {word:?} is not in: {error}");
    }
}

#[test]
fn a_graph_file_that_is_none_is_refused_by_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.toml");
    let name = path.display().to_string();
    check("missing", GraphSpec::from_file(&path), Kind::NotFound, &[&name, "No such file"]);
    check("a folder", GraphSpec::from_file(dir.path()), Kind::Invalid, &["cannot read the graph"]);
    fs::write(&path, b"name = '\xff'").unwrap();
    check("no text", GraphSpec::from_file(&path), Kind::Invalid, &[&name, "UTF-8"]);
    let head = "name = 'g'\nentry = 'a'\n";
    for (text, words) in [
        ("", &["line 1, column 1", "missing field `name`"][..]),
        ("name = 'g'\nentry = [", &["line 2, column 10"]),
        ("nmae = 'g'", &["line 1, column 1", "unknown field `nmae`", "`name`"]),
        (
            &format!("{head}[channels]\nc = {{ reducer = 'concat' }}"),
            &["line 4, column 17", "`concat`", "`append`"],
        ),
        (&format!("{head}[channels]\nc = {{ reducer = 1 }}"), &["line 4, column 17"]),
        (&format!("{head}[nodes.a]\ncomponnet = 'x'"), &["line 4, column 1", "`componnet`", "`component`"]),
        (&format!("{head}[nodes.a]\nreads = 1"), &["line 4, column 9"]),
        (&format!("{head}[[edges]]\nfrom = 'a'"), &["line 3, column 1", "missing field `to`"]),
        (&format!("{head}[effects.e]\nmode = 'once'"), &["line 4, column 8", "`once`", "`at-most-once`"]),
        (&format!("{head}entry = 'b'"), &["line 3, column 1", "duplicate key"]),
        (&format!("{head}[effects.e.http]\nmethod = 'POST'"), &["line 3, column 1", "missing field `url`"]),
    ] {
        fs::write(&path, text).unwrap();
        check(text, GraphSpec::from_file(&path), Kind::Invalid, &[&[name.as_str()], words].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_cannot_run_is_refused_by_place_and_with_what_there_is() {
    let world = World::new();
    let host = world.host().await;
    let spec = || scripted(&["n"]);
    let with = |node: NodeSpec| spec().node("n", node);
    let mut reserved = spec();
    reserved.nodes.insert("end".into(), script_node());
    let mut nobody = spec();
    nobody.nodes.clear();
    let mut entry = spec();
    entry.entry = "nn".into();
    let absent = Digest::of(b"absent").to_string();
    for (what, spec, kind, words) in [
        ("entry", entry, Kind::Invalid, &["graph scripted", "entry", "\"nn\"", "there are n"][..]),
        ("edge from", spec().edge("m", "n"), Kind::Invalid, &["edges[0].from", "\"m\"", "there are n"]),
        ("edge to", spec().edge("n", "m"), Kind::Invalid, &["edges[0].to", "\"m\"", "there are n"]),
        ("edge twice", spec().edge("n", "end").edge("n", "end"), Kind::Invalid, &["edges[1]", "twice"]),
        (
            "route",
            with(script_node().routes(&[("x", "m")])),
            Kind::Invalid,
            &["nodes.n.routes.x", "\"m\"", "there are n"],
        ),
        (
            "channel",
            with(script_node().reads_as(&[("a", "q")])),
            Kind::Invalid,
            &["nodes.n.reads.a", "\"q\"", "script"],
        ),
        (
            "output",
            with(script_node().writes(&["q"])),
            Kind::Invalid,
            &["nodes.n.writes.q", "does not declare", "a, b, c, d"],
        ),
        (
            "effect",
            with(script_node().effects(&["g"])),
            Kind::Invalid,
            &["nodes.n.effects.g", "does not declare", "e, f"],
        ),
        ("unreachable", spec().node("m", script_node()), Kind::Invalid, &["nodes.m", "no edge or route"]),
        ("no node", nobody, Kind::Invalid, &["nodes", "[nodes.NAME]"]),
        ("a reserved name", reserved, Kind::Invalid, &["nodes.end", "not \"end\""]),
        (
            "a channel's name",
            spec().channel("a b", Reducer::Sum),
            Kind::Invalid,
            &["channels.a b", "letters"],
        ),
        ("no component", with(NodeSpec::default()), Kind::Invalid, &["nodes.n", "component = "]),
        (
            "no file",
            with(NodeSpec::component("/nowhere/n.wasm")),
            Kind::NotFound,
            &["/nowhere/n.wasm", "No such file"],
        ),
        ("a folder", with(NodeSpec::component("/")), Kind::Invalid, &["component /", "cannot read it"]),
        (
            "no digest",
            with(NodeSpec::component("sha256:12")),
            Kind::Invalid,
            &["nodes.n.component", "sha256:12", "64"],
        ),
        (
            "not installed",
            with(NodeSpec::component(&absent)),
            Kind::NotFound,
            &["nodes.n.component", &absent, "is not installed"],
        ),
    ] {
        check(what, host.compile(&spec).await, kind, words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_what_is_no_node_is_refused_at_install_by_name() {
    let bench = Bench::new(Limits::default()).await;
    let wat = |text: &str| wat::parse_str(text).unwrap();
    let importing = |imports: &str| around(imports, "", &module("", "(i32.const 0)"));
    for (what, bytes, words) in [
        ("nothing", vec![], &["an empty file"][..]),
        ("an image", b"\x89PNG\r\n\x1a\n0000".to_vec(), &["an image (PNG)"]),
        ("a graph", b"name = 'g'\n".to_vec(), &["a text file"]),
        ("a program", fs::read("/proc/self/exe").unwrap()[..4096].to_vec(), &["a native program"]),
        ("text", b"(component)".to_vec(), &["WebAssembly text", "binary"]),
        ("a core module", wat("(module)"), &["core WebAssembly module", "wasm-tools component new"]),
        (
            "another world",
            wat(r#"(component (instance $i) (export "wasi:cli/run@0.2.0" (instance $i)))"#),
            &["holdpoint:node/handler@0.1", "it exports wasi:cli/run@0.2.0", "holdpoint:node/node"],
        ),
        ("an empty component", wat("(component)"), &["it exports nothing"]),
        (
            "a handler with no functions",
            wat(r#"(component (instance $i) (export "holdpoint:node/handler@0.1.0" (instance $i)))"#),
            &["does not fit the contract", "describe"],
        ),
        (
            "forbidden imports",
            importing(
                r#"(import "wasi:http/types@0.2.0" (instance)) (import "my:own/secrets@1.0.0" (instance))"#,
            ),
            &["wasi:http/types@0.2.0", "my:own/secrets@1.0.0", "a node may import holdpoint:node@0.1"],
        ),
        (
            "another version of the contract",
            importing(r#"(import "holdpoint:node/log@0.2.0" (instance))"#),
            &["holdpoint:node/log@0.2.0"],
        ),
        (
            "an interface that the contract does not have",
            importing(r#"(import "holdpoint:node/secrets@0.1.0" (instance))"#),
            &["holdpoint:node/secrets@0.1.0"],
        ),
        (
            "an interface that WASI does not have",
            importing(r#"(import "wasi:io/cables@0.2.0" (instance (export "pull" (func))))"#),
            &["does not fit the contract", "wasi:io/cables@0.2.0"],
        ),
        (
            "a function of another type",
            importing(
                r#"(import "holdpoint:node/events@0.1.0" (instance (export "emit" (func (param "event" u64)))))"#,
            ),
            &["does not fit the contract", "holdpoint:node/events@0.1.0", "emit"],
        ),
        ("threads", node("(memory $s 1 1 shared)", "(i32.const 0)"), &["does not take", "threads"]),
    ] {
        let error = bench.install_fails(bytes).await;
        assert_eq!(error.kind, Kind::Invalid, "{what}: {error}");
        for word in [&["component by hand: "], words].concat() {
            assert!(error.message.contains(word), "{what}: {word:?} is not in: {error}");
        }
        assert!(error.message.len() < 1_200, "{what}: {error}");
    }
    // By its path in a graph, the same.
    let path = bench.world.dir.path().join("n.wasm");
    fs::write(&path, b"\x89PNG\r\n\x1a\n").unwrap();
    let spec = GraphSpec::new("g", "n").node("n", NodeSpec::component(path.display()));
    check("an image", bench.host.compile(&spec).await, Kind::Invalid, &["n.wasm", "an image (PNG)"]);
    assert_eq!(bench.host.store().unwrap().components(&Default::default()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_a_component_that_is_too_large_cut_short_or_not_the_one_named_is_refused() {
    let bench = Bench::new(Limits::default()).await;
    let error = bench.install_fails(vec![0; 200 << 20]).await;
    is_limit(&error, "component_bytes", 64 << 20);
    assert!(error.message.contains(&(200 << 20).to_string()), "{error}");

    let whole = fs::read(component("script")).unwrap();
    for length in [8, 100, whole.len() / 2, whole.len() - 1] {
        let error = bench.install_fails(whole[..length].to_vec()).await;
        assert_eq!(error.kind, Kind::Invalid, "{length}: {error}");
        assert!(error.message.contains("damaged or cut short") || length == 8, "{length}: {error}");
    }
    let other = Digest::of(b"other");
    let whose = (&holdpoint::model::TenantId::default(), bench.host.limits());
    let error = bench.host.sandbox().compile(whose, other, node("", "(i32.const 1)")).await.unwrap_err();
    assert!(
        error.to_string().contains(&other.to_string()) && error.to_string().contains("send them again"),
        "{error}"
    );
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_a_precompiled_artifact_is_no_component() {
    let bench = Bench::new(Limits::default()).await;
    let digest = Digest::of(&fs::read(component("script")).unwrap()).hex();
    let artifact = fs::read_dir(artifacts())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.display().to_string().contains(&digest))
        .unwrap();
    let artifact = fs::read(artifact).unwrap();
    // As the host keeps it, behind what vouches for it, and as the compiler wrote it.
    let error = bench.install_fails(artifact[32..].to_vec()).await;
    assert_eq!(error.kind, Kind::Invalid, "{error}");
    assert!(error.message.contains("precompiled artifact"), "{error}");
    assert!(error.message.contains("install the component that it was made from"), "{error}");
    assert_eq!(bench.install_fails(artifact).await.kind, Kind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_the_graph_does_not_take_is_refused_and_starts_nothing() {
    let world = World::new();
    let graph = world.one().await;
    for (what, input, words) in [
        ("no object", json!([1]), &["an array", "an object from channel names to values"][..]),
        ("no object", json!(null), &["null"]),
        ("unknown channel", json!({ "scrpt": [] }), &["\"scrpt\"", "a, b, c, d, script"]),
        ("append", json!({ "a": 1 }), &["channel a", "an array", "a number", "the input"]),
        ("sum", json!({ "c": "1" }), &["channel c", "a number", "a string"]),
        ("merge", json!({ "d": [] }), &["channel d", "an object", "an array"]),
    ] {
        for config in [on("t"), RunConfig::fleeting()] {
            check(what, graph.invoke(config, input.clone()).await, Kind::Invalid, words);
        }
    }
    check("no name", graph.invoke(on(""), json!({})).await, Kind::Invalid, &["thread id", "1 to 255 bytes"]);
    check(
        "a long name",
        graph.invoke(on(&"t".repeat(256)), json!({})).await,
        Kind::Invalid,
        &["1 to 255 bytes"],
    );
    check("still no thread", graph.state(on("t")).await, Kind::NotFound, &["there is no thread t"]);
    assert!(world.started().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_run_or_interrupt_that_is_not_there_is_refused_and_says_what_is() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let yes = || Command::resume("yes");
    let missing = &["there is no thread nobody"][..];
    check("resume", graph.resume(on("nobody"), yes()).await, Kind::NotFound, missing);
    check("continue", graph.continue_run(on("nobody")).await, Kind::NotFound, missing);
    check("state", graph.state(on("nobody")).await, Kind::NotFound, missing);
    check("show", host.execution(on("nobody")).await, Kind::NotFound, missing);

    let nowhere = ResumeTarget::run("00000000-0000-0000-0000-000000000001".parse().unwrap());
    let words = &["there is no run 00000000-0000-0000-0000-000000000001"];
    check("run", graph.resume_targeted(nowhere, yes()).await, Kind::NotFound, words);
    check(
        "no thread",
        graph.resume(RunConfig::fleeting(), yes()).await,
        Kind::Resume,
        &["RunConfig::thread"],
    );
    let fleeting = world.builder().open().await.unwrap();
    check("no database", fleeting.resume(on("t"), yes()).await, Kind::Resume, &["Host::open"]);

    let execution = graph.invoke(on("t"), script(json!([{ "ask": "ok?" }]))).await.unwrap();
    let run = execution.run_id;
    let asked = paused(execution).remove(0).interrupt;
    let unknown = InterruptId(Uuid::from_u128(7));
    for result in [
        graph.resume(on("t"), Command::answers([(unknown, json!(1))])).await,
        graph.resume_targeted(ResumeTarget::run(run).interrupt(unknown), yes()).await,
    ] {
        let refused = refused(result);
        assert_eq!(refused.error.kind, Kind::NotPending);
        assert!(refused.error.message.contains(&unknown.to_string()), "{refused}");
        assert_eq!((refused.pending.len(), refused.pending[0].interrupt.id), (1, asked.id));
    }
    assert_eq!(world.started(), ["n"]);
}

pub async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn sql(path: &Path, statement: &'static str) {
    let mut connection = connect(path).await;
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// A world whose database holds the thread `t`, paused; no host has it open.
async fn closed() -> World {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    paused(graph.invoke(on("t"), script(json!([{ "ask": "ok?" }]))).await.unwrap());
    host.close().await;
    world
}

/// Opens the world's database and looks at its thread.
async fn look(world: &World) -> Result<(), EngineError> {
    let host = world.builder().database(world.db()).open().await?;
    host.execution(on("t")).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_ours_is_refused_and_left_as_it_is() {
    let world = World::new();
    let name = world.db().display().to_string();
    let way_out = [name.as_str(), "no Holdpoint database", "left as it is", "name another file"];
    fs::write(world.db(), "dear diary\n".repeat(1_000)).unwrap();
    let before = fs::read(world.db()).unwrap();
    check("a text", Host::open(world.db()).await.map(drop), Kind::Store, &way_out);
    assert_eq!(fs::read(world.db()).unwrap(), before);
    fs::remove_file(world.db()).unwrap();
    sql(&world.db(), "CREATE TABLE notes (text TEXT)").await;
    let before = fs::read(world.db()).unwrap();
    check("another's", Host::open(world.db()).await.map(drop), Kind::Store, &way_out);
    assert_eq!(fs::read(world.db()).unwrap(), before);
    let nowhere = world.dir.path().join("no/such/folder.db");
    check(
        "no folder",
        Host::open(&nowhere).await.map(drop),
        Kind::Store,
        &["folder.db", "its folder must exist"],
    );
    check("a folder", Host::open(world.dir.path()).await.map(drop), Kind::Store, &["cannot be opened"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_newer_or_read_only_is_refused() {
    let world = closed().await;
    look(&world).await.unwrap();
    sql(&world.db(), "INSERT INTO _sqlx_migrations VALUES (9000, 'later', '2100-01-01', 1, x'00', 1)").await;
    check("newer", look(&world).await, Kind::Store, &["newer Holdpoint", "9000", "use that Holdpoint"]);
    sql(&world.db(), "DELETE FROM _sqlx_migrations WHERE version = 9000").await;

    fs::set_permissions(world.db(), fs::Permissions::from_mode(0o444)).unwrap();
    check("read-only", look(&world).await, Kind::Store, &["cannot be written to", "chmod u+w"]);
    fs::set_permissions(world.db(), fs::Permissions::from_mode(0o644)).unwrap();
    look(&world).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_is_waited_for_and_then_refused() {
    let words = &["locked by another process", "5000 ms", "try again"];
    let fresh = World::new();
    let mut other = connect(&fresh.db()).await;
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let paused = closed().await;
    let host = paused.host().await;
    let mut writer = connect(&paused.db()).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
    let (opened, resumed) = tokio::join!(
        fresh.builder().database(fresh.db()).open(),
        host.resume(on("t"), Command::resume("yes"))
    );
    check("open", opened.map(drop), Kind::Store, words);
    check("resume", resumed, Kind::Store, words);
    // Nothing was taken: the same answer again, once the other is done.
    sqlx::query("ROLLBACK").execute(&mut writer).await.unwrap();
    completed(host.resume(on("t"), Command::resume("yes")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_is_refused_by_table_and_row() {
    for (statement, words) in [
        ("UPDATE interrupts SET payload = '{'", &["table interrupts", "restore a backup"][..]),
        ("UPDATE tasks SET node = 'a b'", &["table tasks", "restore a backup"]),
        ("UPDATE interrupts SET kind = 'before'", &["table interrupts", "called_at", "restore a backup"]),
        ("DELETE FROM checkpoints", &["restore a backup"]),
    ] {
        let world = closed().await;
        sql(&world.db(), statement).await;
        let name = world.db().display().to_string();
        check(statement, look(&world).await, Kind::Store, &[&[name.as_str()], words].concat());
    }
    for (what, from) in [("the schema", 100), ("all but the schema", 8_192)] {
        let world = closed().await;
        let mut bytes = fs::read(world.db()).unwrap();
        bytes[from..].fill(0xa5);
        fs::write(world.db(), bytes).unwrap();
        check(what, look(&world).await, Kind::Store, &["is damaged", "restore a backup", ".recover"]);
    }
    // What a run needs is checked when it is needed.
    let world = closed().await;
    sql(&world.db(), "UPDATE components SET bytes = x'00'").await;
    let fresh =
        world.builder().cache(world.dir.path().join("cache")).database(world.db()).open().await.unwrap();
    let result = fresh.resume(on("t"), Command::resume("yes")).await;
    check("a component", result, Kind::Store, &["table components", "digest", "restore a backup"]);
}
