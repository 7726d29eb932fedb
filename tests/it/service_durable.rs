//! What was acknowledged is carried out, whoever dies: the real program, killed at every commit.

use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::process::binary;
use crate::service::*;
use crate::world::{artifacts, scripted};

/// `holdpoint serve` in a process of its own.
pub struct Process {
    pub dir: Arc<tempfile::TempDir>,
    child: Child,
    url: String,
    /// What it said on its standard error.
    said: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub async fn start(args: &[&str]) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), args, None).await
    }

    /// `kill_at`: it kills itself, as SIGKILL does, at this place of its code.
    pub async fn start_in(dir: Arc<tempfile::TempDir>, args: &[&str], kill_at: Option<String>) -> Self {
        Self::start_at("127.0.0.1:0", dir, args, kill_at).await
    }

    pub async fn start_at(
        listen: &str,
        dir: Arc<tempfile::TempDir>,
        args: &[&str],
        kill_at: Option<String>,
    ) -> Self {
        let mut command = std::process::Command::new(binary());
        command
            .current_dir(dir.path())
            .args(["serve", "--listen", listen, "--db", "s.db"])
            .args(if args.contains(&"--lease-ms") { &[][..] } else { &["--lease-ms", "300"][..] })
            .args(["--heartbeat-ms", "100"])
            .args(args)
            .arg("--cache")
            .arg(artifacts())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(kill_at) = kill_at {
            command.env("HOLDPOINT_KILL_AT", kill_at);
        }
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (tell, told) = tokio::sync::oneshot::channel();
        let keeps = said.clone();
        // Read to its end: what it says later must not fill the pipe.
        std::thread::spawn(move || {
            use std::io::BufRead as _;
            let mut tell = Some(tell);
            for line in std::io::BufReader::new(stderr).lines().map_while(Result::ok) {
                let url =
                    line.split_once("http://").map(|(_, rest)| rest.split(';').next().unwrap_or_default());
                if let (Some(url), true) = (url, line.starts_with("serving"))
                    && let Some(tell) = tell.take()
                {
                    tell.send(format!("http://{url}")).ok();
                }
                keeps.lock().unwrap().push(line);
            }
        });
        // None: it died before.
        let url = told.await.unwrap_or_default();
        Self { dir, child, url, said }
    }

    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it says something with this in it.
    pub async fn says(&self, what: &str) {
        while !self.said.lock().unwrap().iter().any(|line| line.contains(what)) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// A key that is made on the command line.
    pub fn key(&self, tenant: &str, scopes: &[&str]) -> String {
        let mut command = std::process::Command::new(binary());
        command.current_dir(self.dir.path()).args(["key", "create", "--tenant", tenant, "--name", tenant]);
        command.args(scopes.iter().flat_map(|scope| ["--scope", *scope])).args(["--db", "s.db", "--json"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        made["key"].as_str().unwrap().to_owned()
    }

    pub fn caller(&self) -> Caller {
        Caller { client: client(), url: self.url.clone(), key: None }
    }

    pub fn kill(mut self) -> Arc<tempfile::TempDir> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.dir.clone()
    }

    pub fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    pub async fn ended(&mut self) -> std::process::ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// What it holds in memory now.
    pub fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A request whose server may die over it.
async fn tried(request: reqwest::RequestBuilder) -> Option<Value> {
    let response = request.send().await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    response.json().await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_run_that_was_acknowledged_is_done_once_wherever_the_host_dies() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let process = Process::start_in(dir.clone(), &[], None).await;
    process.caller().scripted(&["n"]).await;
    process.kill();
    let script = json!([{ "put": { "c": 1 } }, { "ask": "?" }, { "put_results": "a" }]);
    let mut survived = 0;
    let mut deaths = 0;
    for n in 1.. {
        let thread = format!("t{n}");
        let kill_at = format!("store::after_commit#{n}");
        let process = Process::start_in(dir.clone(), &[], Some(kill_at)).await;
        let caller = process.caller();
        let input =
            json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
        let path = format!("/threads/{thread}/runs");
        let begun = tried(caller.request(reqwest::Method::POST, &path).json(&input)).await;
        let mut answered = None;
        if let Some(run) = &begun {
            let join = format!("{path}/{}/join", run["run_id"].as_str().unwrap());
            tried(caller.request(reqwest::Method::GET, &join)).await;
            let resume = json!({ "assistant_id": "scripted", "command": { "resume": n } });
            answered = tried(caller.request(reqwest::Method::POST, &path).json(&resume)).await;
            if let Some(run) = &answered {
                let join = format!("{path}/{}/join", run["run_id"].as_str().unwrap());
                tried(caller.request(reqwest::Method::GET, &join)).await;
            }
        }
        let has_lived = tried(caller.request(reqwest::Method::GET, "/ok")).await.is_some();
        drop(process);
        // The next one finds what was left, and what was acknowledged comes true.
        let process = Process::start_in(dir.clone(), &[], None).await;
        let caller = process.caller();
        if let Some(run) = &begun {
            let join = format!("{path}/{}/join", run["run_id"].as_str().unwrap());
            let values = caller.get(&join).await.is(200);
            assert!(values.get("__error__").is_none(), "{n}: {values}");
        }
        if let Some(run) = &answered {
            let join = format!("{path}/{}/join", run["run_id"].as_str().unwrap());
            let values = caller.get(&join).await.is(200);
            assert_eq!((&values["a"], &values["c"]), (&json!([n]), &json!(1)), "{n}: {values}");
            let state = caller.get(&format!("/threads/{thread}/state")).await.is(200);
            assert_eq!(state["next"], json!([]), "{n}");
        }
        drop(process);
        deaths += u32::from(!has_lived);
        if has_lived {
            survived += 1;
            break;
        }
    }
    assert_eq!(survived, 1);
    // Two commits for each of the two calls.
    assert!(deaths >= 4, "it died at {deaths} places only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_told_to_end_lets_go_what_runs_and_the_next_goes_on_with_it() {
    let mut process = Process::start(&["--drain-ms", "50"]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    // It computes for longer than the host will wait.
    let script =
        json!([{ "repeat": { "times": 400, "ops": [{ "hash_order": 300 }] } }, { "put": { "c": 1 } }]);
    let input =
        json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
    let run = caller.post("/threads/t/runs", input.clone()).await.is(200);
    let waits = caller.post("/threads/t/runs", {
        let mut input = input;
        input["multitask_strategy"] = json!("enqueue");
        input["input"] = json!({ "script": [{ "put": { "c": 10 } }] });
        input
    });
    let waits = waits.await.is(200);
    process.terminate();
    assert!(process.ended().await.success());
    let dir = process.dir.clone();
    let process = Process::start_in(dir, &[], None).await;
    let caller = process.caller();
    for (run, c) in [(run, None), (waits, Some(11))] {
        let join = format!("/threads/t/runs/{}/join", run["run_id"].as_str().unwrap());
        let values = caller.get(&join).await.is(200);
        assert!(c.is_none_or(|c| values["c"] == json!(c)), "{values}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_on_the_command_line_and_count_while_the_service_runs() {
    let process = Process::start(&["--require-keys"]).await;
    let caller = process.caller();
    caller.get("/ok").await.is(200);
    caller.post("/threads", json!({})).await.is(401);
    let holdpoint = |args: &[&str]| {
        let mut command = std::process::Command::new(binary());
        command.current_dir(process.dir.path()).args(args).args(["--db", "s.db", "--json"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let made = holdpoint(&["key", "create", "--tenant", "acme", "--name", "maria", "--scope", "run"]);
    let key = made["key"].as_str().unwrap().to_owned();
    let maria = Caller { key: Some(key.clone()), ..caller };
    maria.post("/threads", json!({})).await.is(200);
    maria.get("/tenants").await.is(403);
    let bearer = maria.client.get(format!("{}/threads/x", maria.url)).bearer_auth(&key);
    maria.send(bearer).await.is(404);
    let listed = holdpoint(&["key", "list", "--tenant", "acme"]);
    assert_eq!(listed["keys"][0]["name"], "maria");
    assert!(!listed.to_string().contains(key.rsplit('_').next().unwrap()));
    holdpoint(&["key", "revoke", "--tenant", "acme", made["key_id"].as_str().unwrap()]);
    maria.post("/threads", json!({})).await.is(401);

    let scope = ["--scope", "answer", "--only-node", "approve", "--only-graph", "refund"];
    holdpoint(&[&["key", "create", "--tenant", "acme", "--name", "inbox"], scope.as_slice()].concat());
    let mut command = std::process::Command::new(binary());
    command.current_dir(process.dir.path()).args(["key", "list", "--tenant", "acme", "--db", "s.db"]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.contains("graph refund, node approve"), "{text}");
}

/// Somebody else holds the database for longer than the store waits: what was taken before is not over, and is done
/// once it can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_meets_a_database_that_is_held_by_others_is_taken_up_again() {
    let outside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = outside.local_addr().unwrap().to_string();
    let process = Process::start(&["--lease-ms", "60000", "--egress", &address]).await;
    let caller = process.caller();
    caller.deploy_sending(&scripted(&["n"]), &address).await;
    let effect = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
    let script = json!([effect, { "put": { "c": 1 } }]);
    let input =
        json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
    let run = caller.post("/threads/t/runs", input).await.is(200);
    let (first, _) = outside.accept().await.unwrap();
    let mut other = crate::refusals::connect(&process.dir.path().join("s.db")).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    // Now it is done outside, and that cannot be written down.
    tokio::spawn(async move {
        let mut next = Some(first);
        loop {
            let mut asked = match next.take() {
                Some(first) => first,
                None => outside.accept().await.unwrap().0,
            };
            tokio::spawn(async move {
                let mut request = vec![0; 64 << 10];
                while asked.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    asked.write_all(reply).await.ok();
                }
            });
        }
    });
    let said = process.says("a call waits for the database, and is taken up again");
    tokio::time::timeout(std::time::Duration::from_secs(60), said).await.expect("it meets the lock");
    let path = format!("/threads/t/runs/{}", run["run_id"].as_str().unwrap());
    assert_eq!(caller.get(&path).await.is(200)["status"], "running");
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    let values = caller.get(&format!("{path}/join")).await.is(200);
    assert_eq!(values["c"], 1, "once, and not twice: {values}");
    assert_eq!(caller.get(&path).await.is(200)["status"], "success");
}
