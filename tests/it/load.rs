//! Many clients of many tenants who start, are asked and answer, while the host is killed every few seconds:
//! nothing that was acknowledged is lost, and no answer is used twice. `make load` does it at length.
//!
//! Each client has a thread of its own and counts: the n-th run asks for the n-th answer, sends one effect with
//! it, and adds it to the thread's state. So what the thread has at the end is 0, 1, 2, …, and the service that
//! the effects go to has seen one key for each of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use holdpoint::model::{TenantId, Timestamp};
use holdpoint::server::keys::{self, NewKey};
use holdpoint::store::{OnlyFor, Scope, Store};
use reqwest::Method;
use serde_json::{Value, json};

use crate::service::*;
use crate::service_durable::Process;
use crate::world::scripted;

const TENANTS: usize = 10;
/// In a run of the tests; `make load` says more.
const CLIENTS: usize = 60;
const SECONDS: u64 = 12;
const KILL_EVERY_MS: u64 = 3_000;
/// How long the dead keep others off their threads.
const LEASE_MS: &str = "2000";

fn told(variable: &str, usually: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
}

/// By client and number: the idempotency keys that came, and how often each did.
type Received = Arc<Mutex<BTreeMap<(String, u64), BTreeMap<String, u64>>>>;

async fn outside() -> (String, Received) {
    let received: Received = Arc::default();
    let keeps = received.clone();
    let take = move |headers: HeaderMap, body: axum::Json<Value>| async move {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let of = (body["client"].as_str().unwrap().to_owned(), body["n"].as_u64().unwrap());
        *keeps.lock().unwrap().entry(of).or_default().entry(key).or_default() += 1;
        "done"
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let app = axum::Router::new().fallback(take);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, received)
}

/// What all clients saw.
#[derive(Default)]
struct Seen {
    pauses_ms: Mutex<Vec<u64>>,
    answers_ms: Mutex<Vec<u64>>,
    /// Requests without an answer, or with one that says to come again.
    broken_off: AtomicU64,
    put_off: AtomicU64,
    /// What was found otherwise than it must be.
    wrong: Mutex<Vec<String>>,
}

struct Client {
    caller: Caller,
    thread: String,
    seen: Arc<Seen>,
    /// Answers that were acknowledged.
    acknowledged: u64,
    /// A question that was acknowledged, and not answered yet.
    asked: Option<String>,
}

enum Came {
    Body(u16, Value),
    Nothing,
}

impl Client {
    async fn send(&self, method: Method, path: &str, body: Option<Value>, name: Option<String>) -> Came {
        let mut request = self.caller.request(method, path).timeout(Duration::from_secs(30));
        if let Some(body) = body {
            request = request.json(&body);
        }
        if let Some(name) = name {
            request = request.header("idempotency-key", name);
        }
        let came = match request.send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                response.json::<Value>().await.map(|body| (status, body))
            }
            Err(error) => Err(error),
        };
        match came {
            Ok((503, _)) => {
                self.seen.put_off.fetch_add(1, Ordering::Relaxed);
                Came::Nothing
            }
            Ok((status, body)) => Came::Body(status, body),
            Err(_) => {
                self.seen.broken_off.fetch_add(1, Ordering::Relaxed);
                Came::Nothing
            }
        }
    }

    fn wrong(&self, what: String) {
        self.seen.wrong.lock().unwrap().push(format!("{}: {what}", self.thread));
    }

    /// Makes its thread, however often that takes.
    async fn enter(&self) {
        let body = json!({ "thread_id": self.thread, "if_exists": "do_nothing" });
        loop {
            match self.send(Method::POST, "/threads", Some(body.clone()), None).await {
                Came::Body(200, _) => return,
                Came::Body(status, body) => {
                    return self.wrong(format!("a thread is answered with {status}: {body}"));
                }
                Came::Nothing => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Looks where its thread is, and does the next thing. Returns whether it came to rest between two runs.
    async fn turn(&mut self, goes_on: bool) -> bool {
        let path = format!("/threads/{}", self.thread);
        let Came::Body(status, thread) = self.send(Method::GET, &path, None, None).await else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            return false;
        };
        if status != 200 {
            self.wrong(format!("the thread is answered with {status}: {thread}"));
            return false;
        }
        let has = thread["values"]["a"].as_array().map_or(0, |a| a.len() as u64);
        if has < self.acknowledged {
            self.wrong(format!("{} answers were acknowledged, and {has} are there", self.acknowledged));
        }
        self.acknowledged = has;
        match thread["status"].as_str().unwrap_or_default() {
            "interrupted" => {
                let asked: Vec<&Value> =
                    thread["interrupts"].as_object().into_iter().flat_map(|of| of.values()).collect();
                let id = asked[0][0]["id"].as_str().unwrap().to_owned();
                let payload = asked[0][0]["value"].as_u64();
                if payload != Some(has) || asked.len() != 1 {
                    self.wrong(format!("asks {asked:?} where {has} answers are there"));
                }
                if self.asked.as_ref().is_some_and(|before| *before != id) {
                    self.wrong(format!("asked {:?}, then {id}, for the same answer", self.asked));
                }
                self.answer(&id, has).await;
                false
            }
            "idle" if goes_on => {
                if let Some(asked) = &self.asked {
                    self.wrong(format!("the question {asked} was acknowledged and is gone"));
                }
                self.start(has).await;
                false
            }
            "idle" => true,
            "busy" => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                false
            }
            other => {
                self.wrong(format!("its thread is {other}"));
                true
            }
        }
    }

    async fn start(&mut self, n: u64) {
        let effect = json!({ "effect": { "name": "e", "key": format!("n{n}"), "input": { "client": self.thread, "n": n } } });
        let script = json!([{ "ask": n }, effect, { "put": { "a": [n] } }]);
        let body = json!({ "assistant_id": "scripted", "input": { "script": script } });
        let (path, began) = (format!("/threads/{}/runs/wait", self.thread), Instant::now());
        match self.send(Method::POST, &path, Some(body), None).await {
            Came::Body(200, paused) => match paused["__interrupt__"][0]["id"].as_str() {
                Some(id) => {
                    self.asked = Some(id.to_owned());
                    self.seen.pauses_ms.lock().unwrap().push(began.elapsed().as_millis() as u64);
                }
                None => self.wrong(format!("a run that was started does not ask: {paused}")),
            },
            // It was started by the request before, of which nothing was heard.
            Came::Body(409, _) => {}
            Came::Body(status, body) => self.wrong(format!("a start is answered with {status}: {body}")),
            Came::Nothing => {}
        }
    }

    async fn answer(&mut self, id: &str, n: u64) {
        let (path, began) = (format!("/interrupts/{id}/answer"), Instant::now());
        let name = Some(format!("{}-{n}", self.thread));
        match self.send(Method::POST, &path, Some(json!({ "value": n })), name).await {
            Came::Body(200, standing) => {
                self.asked = None;
                if standing["status"] == "completed" {
                    self.acknowledged = n + 1;
                    self.seen.answers_ms.lock().unwrap().push(began.elapsed().as_millis() as u64);
                }
            }
            // The answer was taken with a request before, of which nothing was heard.
            Came::Body(409, _) => self.asked = None,
            Came::Body(status, body) => self.wrong(format!("an answer is answered with {status}: {body}")),
            Came::Nothing => self.asked = None,
        }
    }
}

/// The value below which so many of a hundred are.
fn percentile(sorted: &[u64], of_100: usize) -> u64 {
    sorted.get(sorted.len() * of_100 / 100).or(sorted.last()).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_no_answer_is_used_twice_while_the_host_is_killed() {
    let clients = told("HOLDPOINT_LOAD_CLIENTS", CLIENTS as u64) as usize;
    let kill_every_ms = told("HOLDPOINT_LOAD_KILL_MS", KILL_EVERY_MS);
    let seconds = told("HOLDPOINT_LOAD_SECONDS", SECONDS);
    let (address, received) = outside().await;
    let dir = Arc::new(tempfile::tempdir().unwrap());
    // The same port for all of them: a client goes on with the address that it has.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let args = ["--require-keys", "--egress", &address, "--requests-at-once", "2000", "--drain-ms", "60000"];
    let args: Vec<&str> = args.into_iter().chain(["--lease-ms", LEASE_MS]).collect();
    let mut callers = Vec::new();
    let store = Store::open(&dir.path().join("s.db")).await.unwrap();
    for i in 0..TENANTS {
        let tenant = TenantId::parse(format!("tenant-{i}")).unwrap();
        let scopes = vec![Scope::Deploy, Scope::Run, Scope::Answer];
        let new = NewKey { name: "load".into(), scopes, only_for: OnlyFor::default(), expires_at: None };
        let (key, _) = keys::create(&store, &tenant, new, Timestamp(1)).await.unwrap();
        callers.push(Caller { client: client(), url: format!("http://{listen}"), key: Some(key) });
    }
    store.close().await;
    let mut process = Process::start_at(&listen, dir.clone(), &args, None).await;
    for caller in &callers {
        caller.deploy_sending(&scripted(&["n"]), &address).await;
    }
    let (seen, goes_on) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(true)));
    let mut all = Vec::new();
    for i in 0..clients {
        let caller = callers[i % TENANTS].clone();
        let thread = format!("client-{i}");
        let (seen, goes_on) = (seen.clone(), goes_on.clone());
        all.push(tokio::spawn(async move {
            let mut client = Client { caller, thread, seen, acknowledged: 0, asked: None };
            client.enter().await;
            while !client.turn(goes_on.load(Ordering::Relaxed)).await {}
            client
        }));
    }
    let (began, mut kills) = (Instant::now(), 0);
    let mut longest_start = Duration::ZERO;
    while began.elapsed().as_secs() < seconds {
        // Not always at the same moment of what goes on.
        let jitter = u64::from(Instant::now().elapsed().subsec_nanos()) % 500 + kills * 37 % 500;
        tokio::time::sleep(Duration::from_millis(kill_every_ms + jitter)).await;
        process.kill();
        kills += 1;
        let started = Instant::now();
        process = Process::start_at(&listen, dir.clone(), &args, None).await;
        longest_start = longest_start.max(started.elapsed());
    }
    let took = began.elapsed();
    goes_on.store(false, Ordering::Relaxed);
    // Each comes to the end of what it began.
    let mut done: BTreeMap<String, u64> = BTreeMap::new();
    for client in all {
        let client = tokio::time::timeout(Duration::from_secs(300), client).await.expect("it ends").unwrap();
        let state = client.caller.get(&format!("/threads/{}/state", client.thread)).await.is(200);
        let has = state["values"]["a"].as_array().cloned().unwrap_or_default();
        let wanted: Vec<Value> = (0..client.acknowledged).map(Value::from).collect();
        assert_eq!(has, wanted, "{}", client.thread);
        done.insert(client.thread, client.acknowledged);
    }
    let wrong = seen.wrong.lock().unwrap().clone();
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    let received = std::mem::take(&mut *received.lock().unwrap());
    let (mut cycles, mut again) = (0, 0);
    for (client, count) in &done {
        for n in 0..*count {
            let keys = received.get(&(client.clone(), n));
            let keys =
                keys.unwrap_or_else(|| panic!("{client}: answer {n} counts, and its effect never came"));
            assert_eq!(keys.len(), 1, "{client}: answer {n} was used under several keys: {keys:?}");
            again += keys.values().sum::<u64>() - 1;
            cycles += 1;
        }
    }
    let answers: u64 = done.values().sum();
    assert_eq!(received.len() as u64, answers, "an effect came of which no answer counts");
    assert!(kills >= 2 && cycles > clients as u64, "{kills} kills, {cycles} cycles");
    let figures = |times: &Mutex<Vec<u64>>| {
        let mut times = times.lock().unwrap().clone();
        times.sort_unstable();
        json!({
            "count": times.len(), "p50_ms": percentile(&times, 50), "p95_ms": percentile(&times, 95),
            "p99_ms": percentile(&times, 99), "max_ms": times.last(),
        })
    };
    let report = json!({
        "clients": clients, "tenants": TENANTS, "seconds": took.as_secs(), "kills": kills,
        "kill_every_ms": kill_every_ms, "cycles": cycles,
        "cycles_per_second": cycles as f64 / took.as_secs_f64(), "effects_sent_again_under_their_key": again,
        "requests_broken_off": seen.broken_off.load(Ordering::Relaxed),
        "requests_put_off": seen.put_off.load(Ordering::Relaxed),
        "longest_start_ms": longest_start.as_millis() as u64,
        "start_to_pause": figures(&seen.pauses_ms), "answer_to_completed": figures(&seen.answers_ms),
    });
    println!("{report:#}");
    if let Ok(file) = std::env::var("HOLDPOINT_LOAD_REPORT") {
        std::fs::write(file, format!("{report:#}\n")).unwrap();
    }
    process.terminate();
    assert!(process.ended().await.success());
}
