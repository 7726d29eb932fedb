//! The n-th operation of the store fails, once or with all that follow, for n = 0, 1, 2, … until a run never
//! comes that far.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command as Process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use holdpoint::engine::Settings;
use holdpoint::model::{EffectSpec, Kind};
use holdpoint::{Command, EffectFailure, EffectRequest, EngineError, Execution, Graph, Host, RunStatus};
use serde_json::{Value, json};

use crate::errand;
use crate::invariants::Witness;
use crate::world::*;

/// Set in the child process, since fail points hold for all of it: how often the operation fails, and which
/// share of the operations is this child's.
const CHILD: &str = "HOLDPOINT_TEST_FAULTS";
const TEST: &str = "faults::a_fault_at_any_operation_of_the_store_changes_nothing_about_the_end";
const SHARES: usize = 2;
const POINT: &str = "store::operation";

#[test]
fn a_fault_at_any_operation_of_the_store_changes_nothing_about_the_end() {
    if let Ok(child) = std::env::var(CHILD) {
        let (how, share) = child.split_once('/').unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(sweep(how, share.parse().unwrap()));
    }
    let children = ["once/0", "once/1", "from then on/0", "from then on/1"].map(|how| {
        let mut child = Process::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST, "--nocapture"]).env(CHILD, how);
        (how, std::thread::spawn(move || child.output().unwrap()))
    });
    for (how, child) in children {
        let output = child.join().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("every operation failed"), "{how}: {said}");
    }
}

async fn sweep(how: &str, share: usize) {
    // What is common to all is made once.
    let template = World::new();
    let errands = Errands::open(&template).await.unwrap();
    errands.host.close().await;

    let counted = Arc::new(AtomicUsize::new(0));
    let counting = counted.clone();
    fail::cfg_callback(POINT, move || {
        counting.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap();
    assert_eq!(disturbed(&template, 0, None).await, 0);
    let operations = counted.load(Ordering::SeqCst);
    fail::remove(POINT);
    assert!(operations > 50, "{operations}");

    let mut seen = 0;
    for n in (share..).step_by(SHARES) {
        let action = match how {
            "once" => format!("{n}*off->1*return->off"),
            _ => format!("{n}*off->return"),
        };
        let errors = disturbed(&template, n, Some(&action)).await;
        seen += errors;
        // What only some runs come to, such as the renewal of a lease, may come after what all do.
        if errors == 0 && n >= operations {
            break;
        }
        assert!(n < operations * 2, "{n} of {operations}");
    }
    println!("every operation failed: {operations} of them, {seen} errors");
    assert!(seen >= operations / SHARES / 2, "{seen} of {operations}");
}

/// A host that can do the errand.
struct Errands {
    host: Host,
    graph: Graph,
}

type Sent = Arc<Mutex<Vec<EffectRequest>>>;

fn done() -> Value {
    json!("done")
}

impl Errands {
    async fn open(world: &World) -> Result<Self, EngineError> {
        let sent: Sent = world.sent.clone();
        let settings = Settings { lease_ms: 400, ..Settings::default() };
        let builder = world.builder().settings(settings).database(world.db());
        let builder = builder.effect("e", move |request: EffectRequest| {
            let mut sent = sent.lock().unwrap();
            let is_first = sent.iter().all(|before| before.input != request.input);
            let failed = errand::is_flaky(&request.input) && is_first;
            sent.push(request);
            std::future::ready(match failed {
                true => Err(EffectFailure::Retryable(json!("busy"))),
                false => Ok(done()),
            })
        });
        let host = builder.open().await?;
        let below = host.compile(&errand::below(EffectSpec::default())).await?.digest();
        let graph = host.compile(&errand::above(EffectSpec::default(), below)).await?;
        Ok(Self { host, graph })
    }

    /// What somebody does who looks how the thread stands. `None`: it is at its end.
    async fn next(&self, given: &mut BTreeMap<String, bool>) -> Result<Option<Execution>, EngineError> {
        let look = match self.host.execution(on("t")).await {
            Err(error) if error.kind() == Kind::NotFound => {
                return self.graph.invoke(on("t"), errand::input("t", &done())).await.map(Some);
            }
            look => look?,
        };
        match look.status {
            RunStatus::Completed => Ok(None),
            RunStatus::Running => self.host.continue_run(on("t")).await.map(Some),
            RunStatus::Interrupted => {
                let asked = &look.interrupts[0].interrupt;
                let taken = given.get(&asked.id.to_string());
                assert_ne!(taken, Some(&true), "an answer that was taken is asked for again: {asked:?}");
                let answers = Command::answers([(asked.id, errand::answer(&asked.payload))]);
                let resumed = self.host.resume(on("t"), answers).await;
                given.insert(asked.id.to_string(), resumed.is_ok());
                resumed.map(Some)
            }
            _ => panic!("it ends otherwise: {look:#?}"),
        }
    }
}

/// Does the errand while the disk behaves so, and checks all that holds. How many errors were seen.
async fn disturbed(template: &World, n: usize, action: Option<&str>) -> usize {
    let world = World::new();
    std::fs::copy(template.db(), world.db()).unwrap();
    let mut witness = Witness::default();
    let (mut errors, mut given) = (0, BTreeMap::new());
    let mut errands = Some(Errands::open(&world).await.unwrap());
    if let Some(action) = action {
        fail::cfg(POINT, action).unwrap();
    }
    for _ in 0..20 {
        let open = match errands.take() {
            Some(open) => Ok(open),
            None => Errands::open(&world).await,
        };
        let next = match open {
            Ok(open) => {
                let next = open.next(&mut given).await;
                // Every other time the host that saw the error goes on, else another one.
                if next.is_ok() || (n / SHARES).is_multiple_of(2) {
                    errands = Some(open);
                }
                next
            }
            Err(error) => Err(error),
        };
        match next {
            Ok(Some(_)) => {}
            Ok(None) => {
                fail::remove(POINT);
                drop(errands);
                at_the_end(&world, &mut witness, action).await;
                return errors;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Store, "{n} {action:?}: {error:?}");
                errors += 1;
                if action.is_some_and(|action| !action.ends_with("off")) {
                    // The disk is mended.
                    fail::remove(POINT);
                }
                check(&world.db(), &mut witness, n, action).await;
            }
        }
    }
    panic!("{n} {action:?}: it never ends");
}

async fn check(db: &Path, witness: &mut Witness, n: usize, action: Option<&str>) {
    if let Err(broken) = witness.look(db).await {
        panic!("{n} {action:?}: {broken}");
    }
}

async fn at_the_end(world: &World, witness: &mut Witness, action: Option<&str>) {
    check(&world.db(), witness, 0, action).await;
    let reopened = Errands::open(world).await.unwrap();
    completed(reopened.host.execution(on("t")).await.unwrap());
    assert_eq!(reopened.host.state(on("t")).await.unwrap()["a"], errand::result(&done()), "{action:?}");
    let sent = world.sent.lock().unwrap().clone();
    let mut keys: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for request in &sent {
        let of = keys.entry(&request.idempotency_key).or_default();
        *of = (request.input["n"].as_u64().unwrap(), of.1 + 1);
    }
    assert_eq!(keys.len(), 2, "{action:?}: each under one key: {sent:#?}");
    // Once each, once more for the one that failed; and one may have been done and not written down.
    let most = 3 + usize::from(action.is_some());
    assert!((3..=most).contains(&sent.len()), "{action:?}: {sent:#?}");
}
