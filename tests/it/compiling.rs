//! Components that are hard to compile: in a process apart, which can be stopped, and takes nobody with it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use holdpoint::model::{Kind, Limits};
use holdpoint::sandbox::Compiler;
use holdpoint::{EngineError, Host};

use crate::by_hand::node;
use crate::hostile::is_limit;
use crate::process::binary;
use crate::world::*;

/// Minutes for the compiler, and little by the estimate: loops within loops.
pub fn slow() -> Vec<u8> {
    let (open, close) = ("(loop ".repeat(2_500), "(br_if 0 (local.get 0)))".repeat(2_500));
    let body = format!("{}{open}{close}", "(local i32)".repeat(200));
    node(&format!("(func (param i32) {body})"), "(i32.const 0)")
}

/// Gigabytes for the compiler: many values that live across many blocks.
pub fn large() -> Vec<u8> {
    const LOCALS: usize = 9_000;
    let blocks = (0..5_000).map(|i| {
        let (test, to, from) = (i % LOCALS, (i * 7 + 1) % LOCALS, i * 13 % LOCALS);
        format!(
            "(block (br_if 0 (local.get {test}))
                (local.set {to} (i32.add (local.get {from}) (i32.const 1))))"
        )
    });
    let body = format!("{}{}", "(local i32)".repeat(LOCALS), blocks.collect::<String>());
    node(&format!("(func (param i32) {body})"), "(i32.const 0)")
}

fn quick(n: u32) -> Vec<u8> {
    node("", &format!("(drop (i32.const {n})) (i32.const 0)"))
}

async fn host(world: &World, program: PathBuf, limits: Limits) -> Host {
    let cache = world.dir.path().join("cache");
    let builder = world.builder().cache(cache).compiler(Compiler::Process { program }).limits(limits);
    builder.database(world.db()).open().await.unwrap()
}

/// A program that takes down its process id, and then is the compile process.
fn noted(world: &World) -> (PathBuf, PathBuf) {
    let (program, pids) = (world.dir.path().join("compiler"), world.dir.path().join("pids"));
    let text = format!("#!/bin/sh\necho $$ >> '{}'\nexec '{}' \"$@\"\n", pids.display(), binary().display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, pids)
}

/// The process ids, once there are so many.
async fn started(pids: &Path, count: usize) -> Vec<String> {
    loop {
        let noted = std::fs::read_to_string(pids).unwrap_or_default();
        if noted.ends_with('\n') && noted.lines().count() >= count {
            return noted.lines().map(str::to_owned).collect();
        }
        tokio::task::yield_now().await;
    }
}

/// Once the process is neither running nor a zombie that somebody still waits for.
async fn gone(pid: &str) {
    while Path::new("/proc").join(pid).exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_what_takes_too_long_or_too_much_to_compile_is_stopped_at_its_limit() {
    let world = World::new();
    let limits = Limits { compile_ms: 4_000, ..Limits::default() };
    let host_of = host(&world, binary(), limits).await;
    let error = host_of.install("slow", slow()).await.unwrap_err();
    assert!(matches!(error, EngineError::Component { .. }), "{error:?}");
    is_limit(&error.record(), "compile_ms", 4_000);
    host_of.install("quick", quick(1)).await.unwrap();
    host_of.close().await;

    let bytes = 200 << 20;
    let tight = host(&world, binary(), Limits { compile_memory_bytes: bytes, ..Limits::default() }).await;
    let error = tight.install("large", large()).await.unwrap_err();
    assert!(matches!(error, EngineError::Component { .. }), "{error:?}");
    is_limit(&error.record(), "compile_memory_bytes", bytes);
    tight.install("quick", quick(2)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_compile_process_that_is_killed_takes_no_other_install_with_it() {
    let world = World::new();
    let (program, pids) = noted(&world);
    let host = host(&world, program, Limits::default()).await;
    let other = host.for_tenant("other".parse().unwrap());
    let slow = tokio::spawn({
        let host = host.clone();
        async move { host.install("slow", slow()).await }
    });
    let first = started(&pids, 1).await.remove(0);
    // While the one is at it, others are served: of another tenant, and then of the same.
    other.install("quick", quick(1)).await.unwrap();
    assert!(!slow.is_finished());
    assert!(Process::new("kill").args(["-KILL", &first]).status().unwrap().success());
    let error = slow.await.unwrap().unwrap_err();
    assert!(matches!(error, EngineError::Sandbox(_)), "{error:?}");
    assert_eq!(error.kind(), Kind::Store);
    let text = error.to_string();
    assert!(text.contains("signal: 9") && text.contains("tried again"), "{text}");
    host.install("quick", quick(2)).await.unwrap();
    assert_eq!(started(&pids, 3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_compile_process_ends_when_nobody_waits_for_it() {
    let world = World::new();
    let (program, pids) = noted(&world);
    let host = host(&world, program, Limits { compiles_at_once: 1, ..Limits::default() }).await;
    let slow_install = tokio::spawn({
        let host = host.clone();
        async move { host.install("slow", slow()).await }
    });
    let first = started(&pids, 1).await.remove(0);
    let queued = tokio::spawn({
        let host = host.clone();
        async move { host.install("quick", quick(1)).await }
    });
    slow_install.abort();
    gone(&first).await;
    queued.await.unwrap().unwrap();

    // Also when all of the host is gone without a word.
    let desk = world.dir.path().join("slow.wasm");
    std::fs::write(&desk, slow()).unwrap();
    let mut command = Process::new(binary());
    command.args(["install", "--db"]).arg(world.dir.path().join("other.db")).arg("--cache");
    command.arg(world.dir.path().join("other-cache")).arg(&desk);
    let mut installing = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let child = loop {
        let children = format!("/proc/{0}/task/{0}/children", installing.id());
        let of = |tid: std::fs::DirEntry| std::fs::read_to_string(tid.path().join("children")).ok();
        let tasks = Path::new(&children).parent().unwrap().parent().unwrap();
        let found: String = std::fs::read_dir(tasks).unwrap().flatten().filter_map(of).collect();
        if let Some(child) = found.split_whitespace().next() {
            break child.to_owned();
        }
        assert!(installing.try_wait().unwrap().is_none(), "it ended before it compiled anything");
    };
    installing.kill().unwrap();
    installing.wait().unwrap();
    gone(&child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_only_this_very_program_may_compile() {
    let world = World::new();
    for (what, text) in [
        ("nothing", "#!/bin/sh\ncat > /dev/null &\n"),
        ("another artifact", "#!/bin/sh\nhead -c 48 > /dev/null\nprintf 'c%032d%s' 0 code\n"),
    ] {
        let program = world.dir.path().join("other");
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let host = host(&world, program, Limits::default()).await;
        let error = host.install("quick", quick(1)).await.unwrap_err();
        assert!(matches!(error, EngineError::Sandbox(_)), "{what}: {error:?}");
        host.close().await;
    }
    let missing = host(&world, world.dir.path().join("missing"), Limits::default()).await;
    let error = missing.install("quick", quick(1)).await.unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("cannot be started"), "{error}");
}
