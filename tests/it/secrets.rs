//! What proves to a service whose request it is: it comes to that service, and nobody else sees it.

use std::path::Path;
use std::process::{Command as Process, Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use holdpoint::model::{AuthSpec, EffectSpec, HttpSpec, Kind, RetrySpec, TenantId};
use holdpoint::{Command, EngineError, GraphSpec, Host, NodeSpec, RunStatus};
use serde_json::{Value, json};

use crate::process::binary;
use crate::world::*;

const VALUE: &str = "tOp-5eCret_9f8e7d6c5b4a";

/// Answers each request with the next status, the last one from then on, and shows what it was sent.
pub struct Mirror {
    pub address: String,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Mirror {
    pub async fn start(statuses: &'static [u16]) -> Self {
        Self::leading_to(statuses, String::new()).await
    }

    async fn leading_to(statuses: &'static [u16], location: String) -> Self {
        let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
        let taken = seen.clone();
        let take = move |headers: HeaderMap| async move {
            let nth = {
                let mut taken = taken.lock().unwrap();
                taken.push(headers.clone());
                taken.len()
            };
            let status = statuses[nth.min(statuses.len()) - 1];
            if status == SILENT {
                std::future::pending::<()>().await;
            }
            let shown: Value = headers
                .iter()
                .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap_or_default())))
                .collect::<serde_json::Map<_, _>>()
                .into();
            let status = StatusCode::from_u16(status).unwrap();
            (status, [(header::LOCATION, location)], axum::Json(shown)).into_response()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = axum::Router::new().fallback(take);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, seen }
    }

    pub fn seen(&self, name: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|headers| headers.get(name).map_or("", |v| v.to_str().unwrap()).to_owned()).collect()
    }
}

/// In place of a status: no answer.
pub const SILENT: u16 = 0;

/// The node's `e` goes there.
pub fn sends_to(address: &str, effect: EffectSpec, secret: Option<&str>) -> GraphSpec {
    let http = HttpSpec {
        method: "POST".into(),
        url: format!("http://{address}/"),
        headers: Default::default(),
        timeout_ms: Some(5_000),
        auth: secret.map(|secret| AuthSpec { secret: secret.into(), header: None }),
    };
    let http = effect.http.clone().unwrap_or(http);
    let effect = EffectSpec { http: Some(http), ..effect };
    scripted(&["n"]).effect("e", effect.clone()).effect("f", effect)
}

fn send() -> Value {
    json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "put_results": "a" }])
}

/// Of the default tenant, for this address, which is opened.
async fn knowing(world: &World, address: &str) -> Host {
    let builder = world.builder().database(world.db()).egress(address);
    builder.secret(TenantId::default(), "pay-token", address, VALUE).open().await.unwrap()
}

#[track_caller]
fn denied<T>(result: Result<T, EngineError>) -> String {
    match result.map(|_| ()) {
        Err(EngineError::Refused(refused)) if refused.error.kind == Kind::Denied => refused.error.message,
        other => panic!("not denied: {other:?}"),
    }
}

/// A folder, and the program in it.
struct Folder {
    dir: tempfile::TempDir,
    egress: String,
}

impl Folder {
    fn holdpoint(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = Process::new(binary());
        command.current_dir(self.dir.path()).args(args).args(["--db", "desk.db", "--egress", &self.egress]);
        command.arg("--cache").arg(artifacts()).stdin(Stdio::null()).envs(env.iter().copied());
        command.output().unwrap()
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn holds(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

fn files_with_the_secret(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let holding = entries.filter(|entry| holds(&std::fs::read(entry.path()).unwrap(), VALUE));
    holding.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_comes_to_its_host_and_is_in_nothing_that_is_kept_or_shown() {
    let mirror = Mirror::start(&[200]).await;
    let folder = Folder { dir: tempfile::tempdir().unwrap(), egress: mirror.address.clone() };
    let spec =
        sends_to(&mirror.address, EffectSpec { approve: true, ..EffectSpec::default() }, Some("pay-token"));
    folder.write("graph.toml", &spec.to_toml(), 0o644);
    let file = format!("[[secrets]]\nname = 'pay-token'\nhost = '{}'\nvalue = '{VALUE}'\n", mirror.address);
    folder.write("secrets.toml", &file, 0o600);
    let env = format!("{} {VALUE}", mirror.address);
    let from_file = ["--secrets", "secrets.toml"];
    let input = script(send()).to_string();
    let said = tokio::task::spawn_blocking(move || {
        let run = ["run", "graph.toml", "--thread", "t", "--input", &input, "--log", "trace"];
        let mut said = Vec::new();
        let mut say = |args: &[&str], env: &[(&str, &str)], exit: i32| {
            let output = folder.holdpoint(args, env);
            assert_eq!(output.status.code(), Some(exit), "{args:?} {output:?}");
            said.push((args.join(" "), [output.stdout, output.stderr].concat()));
        };
        say(&[&run[..], &from_file].concat(), &[], 3);
        say(&["pending", "--json"], &[], 0);
        let approve = ["resume", "--thread", "t", r#"{"approved": true}"#, "--log", "trace"];
        // Without it nothing is answered.
        say(&approve, &[], 4);
        say(&approve, &[("HOLDPOINT_SECRET_PAY_TOKEN", &env)], 0);
        for look in ["show", "history"] {
            say(&[look, "--thread", "t", "--json"], &[], 0);
        }
        say(&["state", "get", "--thread", "t", "--json"], &[], 0);
        say(&[&["inspect", "graph.toml"][..], &from_file].concat(), &[], 0);
        assert_eq!(files_with_the_secret(folder.dir.path()), ["secrets.toml"]);
        said
    });
    let said = said.await.unwrap();
    for (command, text) in &said {
        assert!(!holds(text, VALUE), "{command}: {}", String::from_utf8_lossy(text));
    }
    // The person who approves sees which secret goes along; the service showed it, and the node sees a blot.
    assert!(holds(&said[1].1, r#""secret":"pay-token""#), "{}", String::from_utf8_lossy(&said[1].1));
    assert!(holds(&said[2].1, "HOLDPOINT_SECRET_PAY_TOKEN"));
    assert!(holds(&said[6].1, "Bearer [secret]"), "{}", String::from_utf8_lossy(&said[6].1));
    assert_eq!(mirror.seen("authorization"), [format!("Bearer {VALUE}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_out_in_the_header_that_the_graph_names() {
    let (world, mirror) = (World::new(), Mirror::start(&[200]).await);
    let mut spec = sends_to(&mirror.address, EffectSpec::default(), Some("pay-token"));
    let http = spec.effects.get_mut("e").unwrap().http.as_mut().unwrap();
    http.auth.as_mut().unwrap().header = Some("X-Api-Key".into());
    let graph = knowing(&world, &mirror.address).await.compile(&spec).await.unwrap();
    completed(graph.invoke(on("t"), script(send())).await.unwrap());
    assert_eq!(mirror.seen("x-api-key"), [VALUE]);
    assert_eq!(mirror.seen("authorization"), [""]);
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"][0]["ok"]["body"]["x-api-key"], "[secret]", "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_the_tenant_has_not_or_for_another_host_is_refused_by_name() {
    let (world, mirror, other) = (World::new(), Mirror::start(&[200]).await, Mirror::start(&[200]).await);
    let host = knowing(&world, &mirror.address).await;
    let spec = |address: &str, secret| sends_to(address, EffectSpec::default(), Some(secret));
    host.compile(&spec(&mirror.address, "pay-token")).await.unwrap();
    let missing = denied(host.compile(&spec(&mirror.address, "pay-tokens")).await);
    assert!(missing.contains("effect e") && missing.contains("\"pay-tokens\""), "{missing}");
    // It is this tenant's, and for this host.
    let stranger = host.for_tenant(TenantId::parse("stranger").unwrap());
    let theirs = denied(stranger.compile(&spec(&mirror.address, "pay-token")).await);
    assert!(theirs.contains("tenant stranger has no secret"), "{theirs}");
    let host = world
        .builder()
        .database(world.db())
        .egress(&mirror.address)
        .egress(&other.address)
        .secret(TenantId::default(), "pay-token", &mirror.address, VALUE)
        .open()
        .await
        .unwrap();
    let elsewhere = denied(host.compile(&spec(&other.address, "pay-token")).await);
    assert!(elsewhere.contains(&other.address) && !elsewhere.contains(VALUE), "{elsewhere}");
    assert_eq!(other.seen("authorization"), [""; 0]);
    // A digest that another tenant knows gives it neither the graph nor the secret.
    let kept = host.compile(&spec(&mirror.address, "pay-token")).await.unwrap().digest();
    let stranger = host.for_tenant(TenantId::parse("stranger").unwrap());
    let around = GraphSpec::new("around", "s").node("s", NodeSpec::subgraph(kept));
    let refused = stranger.compile(&around).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), Kind::NotFound, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_not_used_up_where_a_secret_is_missing_that_the_run_may_come_to() {
    let (world, mirror) = (World::new(), Mirror::start(&[200]).await);
    // The node that asks is above; the graph that sends comes after the answer.
    let host = knowing(&world, &mirror.address).await;
    let below = sends_to(&mirror.address, EffectSpec::default(), Some("pay-token"));
    let below = host.compile(&below).await.unwrap().digest();
    let subgraph = NodeSpec::subgraph(below).reads(&["script"]).writes(&["a"]);
    let graph = host.compile(&scripted(&["p"]).node("s", subgraph).edge("p", "s")).await.unwrap();
    let ops = json!({ "p": [{ "ask": "on?" }, { "put_results": "a" }], "s/n": send() });
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap());

    let without = world.builder().database(world.db()).egress(&mirror.address).open().await.unwrap();
    let why = denied(without.resume(on("t"), Command::resume("yes")).await);
    assert!(why.contains("pay-token"), "{why}");
    assert_eq!(without.execution(on("t")).await.unwrap().interrupts, asked);
    let with = knowing(&world, &mirror.address).await;
    completed(with.resume(on("t"), Command::resume("yes")).await.unwrap());
    assert_eq!(with.state(on("t")).await.unwrap()["a"][0], "yes");
    assert_eq!(mirror.seen("authorization"), [format!("Bearer {VALUE}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s28_a_redirect_is_not_followed_and_takes_no_secret_along() {
    let (world, other) = (World::new(), Mirror::start(&[200]).await);
    for status in [&[301_u16], &[302], &[303], &[307], &[308]] {
        let mirror = Mirror::leading_to(status, format!("http://{}/", other.address)).await;
        // Even where the operator opened both.
        let host = world
            .builder()
            .database(world.db())
            .egress(&mirror.address)
            .egress(&other.address)
            .secret(TenantId::default(), "pay-token", &mirror.address, VALUE)
            .open()
            .await
            .unwrap();
        let spec = sends_to(&mirror.address, EffectSpec::default(), Some("pay-token"));
        let graph = host.compile(&spec).await.unwrap();
        let thread = format!("t{}", status[0]);
        completed(graph.invoke(on(&thread), script(send())).await.unwrap());
        let failed = &graph.state(on(&thread)).await.unwrap()["a"][0]["err"]["value"];
        assert_eq!(failed["status"], status[0], "{failed}");
        assert!(failed["error"].as_str().unwrap().contains("none is followed"), "{failed}");
        assert_eq!(mirror.seen("authorization").len(), 1);
    }
    assert_eq!(other.seen("authorization"), [""; 0], "nothing came to where it led");
}

#[test]
fn a_file_of_secrets_that_others_can_read_or_that_is_none_is_refused_unseen() {
    let folder = Folder { dir: tempfile::tempdir().unwrap(), egress: "127.0.0.1:9".into() };
    let good = format!("[[secrets]]\nname = 'pay-token'\nhost = 'pay.example'\nvalue = '{VALUE}'\n");
    for (text, mode, says) in [
        (good.clone(), 0o644, "chmod 600"),
        (good.clone(), 0o620, "chmod 600"),
        (good.replace("value", "valeu"), 0o600, "no list of secrets"),
        (good.replace(&format!("'{VALUE}'"), VALUE), 0o600, "about line 4"),
        (good.replace("host = 'pay.example'", ""), 0o600, "no list of secrets"),
        (good.replace(VALUE, &format!("{VALUE}\\u000a").replace('\\', "ß")), 0o600, "printable ASCII"),
    ] {
        folder.write("secrets.toml", &text, mode);
        for json in [&["--json"][..], &[]] {
            let args = [&["threads", "--secrets", "secrets.toml"][..], json].concat();
            let output = folder.holdpoint(&args, &[]);
            // To look at a database that is not there is refused before; make it.
            let output = match output.status.code() {
                Some(4) => {
                    std::fs::write(folder.dir.path().join("desk.db"), "").unwrap();
                    folder.holdpoint(&args, &[])
                }
                _ => output,
            };
            let said = [output.stdout, output.stderr].concat();
            let shown = String::from_utf8_lossy(&said);
            assert!(matches!(output.status.code(), Some(2 | 4)), "{shown}");
            assert!(shown.contains(says), "{says}: {shown}");
            assert!(!holds(&said, VALUE), "{shown}");
        }
    }
    folder.write("secrets.toml", &good, 0o600);
    assert!(folder.holdpoint(&["threads", "--secrets", "secrets.toml"], &[]).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_sent_again_after_what_may_pass_under_the_same_key() {
    let world = World::new();
    for (nth, (statuses, attempts, sendings, outcome)) in [
        (&[503_u16, 429, 200][..], 3, 3, "ok"),
        (&[503, 503, 200], 2, 2, "failed"),
        // It may have been done; this is an effect that may be sent again.
        (&[500, 200], 3, 2, "ok"),
        (&[SILENT, 200], 3, 2, "ok"),
        // It would fail again.
        (&[400, 200], 3, 1, "failed"),
        (&[302, 200], 3, 1, "failed"),
    ]
    .into_iter()
    .enumerate()
    {
        let mirror = Mirror::start(statuses).await;
        let host = world.builder().database(world.db()).egress(&mirror.address).open().await.unwrap();
        let retry = Some(RetrySpec { attempts, backoff_ms: 1 });
        let mut spec = sends_to(&mirror.address, EffectSpec { retry, ..EffectSpec::default() }, None);
        spec.effects.get_mut("e").unwrap().http.as_mut().unwrap().timeout_ms = Some(700);
        let graph = host.compile(&spec).await.unwrap();
        let thread = format!("t{nth}");
        completed(graph.invoke(on(&thread), script(send())).await.unwrap());
        let result = &graph.state(on(&thread)).await.unwrap()["a"][0];
        match outcome {
            "ok" => assert_eq!(result["ok"]["status"], 200, "{statuses:?}: {result}"),
            _ => assert_eq!(result["err"]["kind"], outcome, "{statuses:?}: {result}"),
        }
        let keys = mirror.seen("idempotency-key");
        assert_eq!(keys.len(), sendings, "{statuses:?}");
        assert!(keys.iter().all(|key| *key == keys[0] && !key.is_empty()), "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_not_sent_again_by_a_host_that_lost_the_thread_while_it_waited() {
    let (world, mirror) = (World::new(), Mirror::start(&[503, 200]).await);
    let open = async || world.builder().database(world.db()).egress(&mirror.address).open().await.unwrap();
    let retry = Some(RetrySpec { attempts: 2, backoff_ms: 400 });
    let spec = sends_to(&mirror.address, EffectSpec { retry, ..EffectSpec::default() }, None);
    let graph = open().await.compile(&spec).await.unwrap();
    let running = tokio::spawn({
        let graph = graph.clone();
        async move { graph.invoke(on("t"), script(send())).await }
    });
    while mirror.seen("host").is_empty() {
        tokio::task::yield_now().await;
    }
    // Somebody else calls the run off: the lease is gone.
    open().await.cancel(on("t"), None, Some("no longer wanted")).await.unwrap();
    let ended = running.await.unwrap();
    assert!(!matches!(&ended, Ok(done) if done.status == RunStatus::Completed), "{ended:?}");
    assert_eq!(mirror.seen("host").len(), 1);
}
