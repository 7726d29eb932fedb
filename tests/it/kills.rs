//! Processes that are killed at any time and at any fail point, side by side on shared databases: what they leave
//! behind is whole, and the next one goes on from it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use holdpoint::model::Kind;
use holdpoint::{Execution, Host, RunStatus};
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::Mutex as Turn;

use crate::errand;
use crate::invariants::Witness;
use crate::process::{KILL_POINTS, Said, binary};
use crate::world::*;

/// In a run of the tests; `make soak` goes on until it is stopped.
const KILLS: usize = 500;
const DATABASES: usize = 3;
/// On each database.
const WORKERS: usize = 2;
/// How long the dead keep others off their threads.
const LEASE_MS: &str = "300";

/// By thread and key: how often it came.
type Received = Arc<Mutex<BTreeMap<(String, String), usize>>>;

fn done() -> Value {
    json!({ "status": 200, "body": "done" })
}

/// A service that is busy when it first sees what is flaky.
async fn service() -> (String, Received) {
    let received: Received = Arc::default();
    let taken = received.clone();
    let take = move |headers: HeaderMap, body: axum::Json<Value>| async move {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let thread = body["thread"].as_str().unwrap().to_owned();
        let mut taken = taken.lock().unwrap();
        let times = taken.entry((thread, key)).or_default();
        *times += 1;
        match *times == 1 && errand::is_flaky(&body) {
            true => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            false => (StatusCode::OK, "done"),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let app = axum::Router::new().fallback(take);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, received)
}

/// How a process ends.
#[derive(Clone, Copy)]
enum Death {
    /// By itself.
    None,
    After(Duration),
    /// When it comes by that one of the points for the nth time, if it does.
    At(usize, u32),
}

/// What all workers share.
struct Yard {
    dir: tempfile::TempDir,
    address: String,
    received: Received,
    kills: AtomicUsize,
    /// Of those, by fail point.
    kills_at: [AtomicUsize; KILL_POINTS.len()],
    /// Of errands that came to their end.
    ends: AtomicUsize,
    target: usize,
    seed: u128,
    /// Of kills that left a run behind which somebody has to go on with.
    broken_off: AtomicUsize,
    /// How long a process takes that is left alone, in microseconds, as of late: the machine is not always
    /// as fast.
    whole_us: AtomicU64,
    witnesses: Vec<Turn<Witness>>,
}

impl Yard {
    fn db(&self, nth: usize) -> PathBuf {
        self.dir.path().join(format!("{nth}.db"))
    }

    fn command(&self, db: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.current_dir(self.dir.path()).args(args).args(["--json", "--lease-ms", LEASE_MS]);
        command.arg("--db").arg(db).args(["--egress", &self.address]).arg("--cache").arg(artifacts());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn say(&self, db: &Path, args: &[&str], death: Death) -> Said {
        let mut command = self.command(db, args);
        if let Death::At(point, nth) = death {
            command.env("HOLDPOINT_KILL_AT", format!("{}#{nth}", KILL_POINTS[point]));
        }
        let mut child = tokio::process::Command::from(command).spawn().unwrap();
        let read = |mut from: Box<dyn AsyncRead + Send + Unpin>| {
            tokio::spawn(async move {
                let mut read = Vec::new();
                from.read_to_end(&mut read).await.unwrap();
                read
            })
        };
        let stdout = read(Box::new(child.stdout.take().unwrap()));
        let stderr = read(Box::new(child.stderr.take().unwrap()));
        if let Death::After(after) = death
            && tokio::time::timeout(after, child.wait()).await.is_err()
        {
            // It may have ended at this very moment.
            child.start_kill().ok();
        }
        let status = child.wait().await.unwrap();
        Said {
            status,
            document: serde_json::from_slice(&stdout.await.unwrap()).unwrap_or(Value::Null),
            stderr: String::from_utf8_lossy(&stderr.await.unwrap()).into_owned(),
        }
    }

    /// Past what the tests' own output is kept back by: how many it were is what a run is worth.
    fn tell(&self) {
        let of = |number: &AtomicUsize| number.load(Ordering::SeqCst);
        let at: Vec<_> =
            KILL_POINTS.iter().zip(&self.kills_at).map(|(point, at)| format!("{point} {}", of(at))).collect();
        let line = format!(
            "kills: {} of the real program ({}; all others at random times), {} runs broken off, {} errands done, \
             seed {}\n",
            of(&self.kills),
            at.join(", "),
            of(&self.broken_off),
            of(&self.ends),
            self.seed
        );
        std::io::stderr().write_all(line.as_bytes()).ok();
    }

    fn is_over(&self) -> bool {
        self.kills.load(Ordering::SeqCst) >= self.target
    }

    /// How a thread stands, as the next process would find it; `None`: it is not there.
    async fn look(&self, db: &Path, thread: &str) -> Option<Execution> {
        let host = Host::builder().database(db).cache(artifacts()).open().await.unwrap();
        let look = host.execution(on(thread)).await;
        host.close().await;
        match look {
            Err(error) if error.kind() == Kind::NotFound => None,
            look => Some(look.unwrap()),
        }
    }

    /// Does errand after errand, each as often as it takes.
    async fn work(self: Arc<Self>, worker: usize) {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&self.seed.to_le_bytes());
        seed[16] = worker as u8;
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        for nth in 0.. {
            if self.is_over() {
                break;
            }
            self.errand(worker, &format!("w{worker}-{nth}"), &mut rng).await;
        }
    }

    async fn errand(&self, worker: usize, thread: &str, rng: &mut TestRng) {
        let nth = worker % DATABASES;
        let db = self.db(nth);
        let input = errand::input(thread, &done()).to_string();
        let (mut killed, mut was_killed) = (0, false);
        for _ in 0..200 {
            let look = self.look(&db, thread).await;
            if was_killed && look.as_ref().is_some_and(|look| look.status == RunStatus::Running) {
                self.broken_off.fetch_add(1, Ordering::SeqCst);
            }
            let (id, answer);
            let next = match look.as_ref().map(|look| (look.status, look)) {
                None => vec!["run", "graph.toml", "--thread", thread, "--input", &input],
                Some((RunStatus::Running, _)) if rng.next_u32().is_multiple_of(4) => {
                    vec!["continue", "--all"]
                }
                Some((RunStatus::Running, _)) => vec!["continue", "--thread", thread],
                Some((RunStatus::Interrupted, look)) => {
                    let asked = &look.interrupts[0].interrupt;
                    id = asked.id.to_string();
                    answer = errand::answer(&asked.payload).to_string();
                    vec!["resume", "--thread", thread, "--interrupt", &id, &answer]
                }
                Some((RunStatus::Completed, _)) => return self.at_the_end(&db, thread, killed).await,
                Some((_, look)) => panic!("seed {}: {thread} ends otherwise: {look:#?}", self.seed),
            };
            // Most are killed, at any time from before they open the file until after they are done.
            let share = f64::from(rng.next_u32()) / f64::from(u32::MAX);
            let whole_us = self.whole_us.load(Ordering::SeqCst);
            let death = match rng.next_u32() % 16 {
                _ if self.is_over() => Death::None,
                0 | 1 => Death::None,
                2..=5 => {
                    let point = rng.next_u32() as usize % KILL_POINTS.len();
                    Death::At(point, 1 + rng.next_u32() % 3)
                }
                _ => Death::After(Duration::from_micros(whole_us).mul_f64(0.2 + share)),
            };
            let lives = matches!(death, Death::None);
            let began = Instant::now();
            let said = self.say(&db, &next, death).await;
            was_killed = said.was_killed();
            if was_killed {
                killed += 1;
                if let Death::At(point, _) = death {
                    self.kills_at[point].fetch_add(1, Ordering::SeqCst);
                }
                let kills = self.kills.fetch_add(1, Ordering::SeqCst) + 1;
                if kills.is_multiple_of(500) {
                    self.tell();
                }
            } else {
                if lives && next[0] != "continue" {
                    let took = u64::try_from(began.elapsed().as_micros()).unwrap();
                    self.whole_us.store((whole_us * 3 + took) / 4, Ordering::SeqCst);
                }
                // Another process may have gone on with the thread, and may hold it still.
                let expected = matches!(said.status.code(), Some(0 | 3 | 4));
                assert!(expected, "seed {}: {next:?}: {said:#?}", self.seed);
            }
            let broken = self.witnesses[nth].lock().await.look(&db).await;
            assert_eq!(broken, Ok(()), "seed {}: after {next:?} on {thread}", self.seed);
        }
        panic!("seed {}: {thread} never ends", self.seed);
    }

    async fn at_the_end(&self, db: &Path, thread: &str, killed: usize) {
        self.ends.fetch_add(1, Ordering::SeqCst);
        let host = Host::builder().database(db).cache(artifacts()).open().await.unwrap();
        let state = host.state(on(thread)).await.unwrap();
        host.close().await;
        assert_eq!(state["a"], errand::result(&done()), "seed {}: {thread}", self.seed);
        let received = self.received.lock().unwrap();
        let of_thread = received.iter().filter(|((of, _), _)| of == thread);
        let times: Vec<usize> = of_thread.map(|(_, times)| *times).collect();
        assert_eq!(times.len(), 2, "seed {}: {thread}: each effect under one key: {times:?}", self.seed);
        // Once each, and once more for the one that failed; each of the dead may have left one in doubt, also
        // those of the other worker, which may have gone on with this thread.
        let all = times.iter().sum::<usize>();
        let most = 3 + killed.max(self.kills.load(Ordering::SeqCst));
        assert!((3..=most).contains(&all), "seed {}: {thread}: {times:?}", self.seed);
    }
}

fn seed() -> u128 {
    match std::env::var("HOLDPOINT_TEST_SEED") {
        Ok(text) => text.parse().expect("a seed as it was printed"),
        Err(_) => uuid::Uuid::now_v7().as_u128(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_time_changes_nothing_about_the_end() {
    let seed = seed();
    println!("seed {seed}");
    let soak = std::env::var_os("HOLDPOINT_TEST_SOAK").is_some();
    let (address, received) = service().await;
    let effect = posts_to(&address);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("below.toml"), errand::below(effect.clone()).to_toml()).unwrap();
    std::fs::write(dir.path().join("graph.toml"), errand::above(effect, "below.toml").to_toml()).unwrap();
    let yard = Yard {
        dir,
        address,
        received,
        kills: AtomicUsize::new(0),
        kills_at: Default::default(),
        ends: AtomicUsize::new(0),
        target: if soak { usize::MAX } else { KILLS },
        seed,
        broken_off: AtomicUsize::new(0),
        whole_us: AtomicU64::new(0),
        witnesses: (0..DATABASES).map(|_| Turn::default()).collect(),
    };
    // The components are compiled by the first; how long the next takes is what the kills are spread over.
    for thread in ["first", "second"] {
        let db = yard.dir.path().join("first.db");
        let input = errand::input(thread, &done()).to_string();
        let began = Instant::now();
        let said =
            yard.say(&db, &["run", "graph.toml", "--thread", thread, "--input", &input], Death::None).await;
        said.exit(3);
        yard.whole_us.store(u64::try_from(began.elapsed().as_micros()).unwrap(), Ordering::SeqCst);
    }
    let yard = Arc::new(yard);
    let workers: Vec<_> =
        (0..DATABASES * WORKERS).map(|worker| tokio::spawn(yard.clone().work(worker))).collect();
    for worker in workers {
        worker.await.unwrap();
    }
    yard.tell();
    let (kills, ends) = (yard.kills.load(Ordering::SeqCst), yard.ends.load(Ordering::SeqCst));
    let broken_off = yard.broken_off.load(Ordering::SeqCst);
    let at_points: usize = yard.kills_at.iter().map(|at| at.load(Ordering::SeqCst)).sum();
    // They are killed while they work, and not only before they begin.
    assert!(ends > kills / 100 && broken_off > kills / 50, "{ends} ended, {broken_off} broken off");
    assert!(kills >= KILLS && at_points > kills / 20, "{at_points} of {kills} at a fail point");
}
