//! `holdpoint deploy`: a graph file, with all that it names, to a service that runs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use holdpoint::model::Digest;
use holdpoint::server::ServeSettings;
use holdpoint::store::Scope;
use serde_json::{Value, json};

use crate::process::{Service, binary};
use crate::service::*;
use crate::service_durable::Process;
use crate::world::{artifacts, component};

/// What one `holdpoint deploy` said.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    #[track_caller]
    fn document(&self, code: i32) -> Value {
        assert_eq!(self.code, code, "{self:#?}");
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:#?}"))
    }
}

async fn deploy(dir: &Path, url: &str, key: Option<&str>, args: &[&str]) -> Ran {
    let mut command = tokio::process::Command::new(binary());
    command.current_dir(dir).arg("deploy").args(args).args(["--url", url]);
    command.env_remove("HOLDPOINT_KEY").env("HOLDPOINT_CACHE", artifacts());
    if let Some(key) = key {
        command.env("HOLDPOINT_KEY", key);
    }
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) };
    // No terminal is there: nothing that steers one.
    let steers = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    assert!(!steers(&ran.out) && !steers(&ran.err), "{ran:#?}");
    assert!(key.is_none_or(|key| !format!("{ran:?}").contains(key)), "the key is shown");
    // It has no database, and makes none.
    assert!(!dir.join("holdpoint.db").exists());
    ran
}

/// A graph of scripted nodes in this folder, each with a component of its own file.
fn graph(dir: &Path, file: &str, name: &str, nodes: &[(&str, &str)]) {
    let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "name = \"{name}\"\nentry = {names:?}\n[channels]\nscript = {{ reducer = \"replace\" }}\n\
         a = {{ reducer = \"append\" }}\n"
    );
    for (node, what) in nodes {
        text += &format!("[nodes.{node}]\n{what}\nreads = [\"script\"]\nwrites = [\"a\"]\n");
    }
    std::fs::write(dir.join(file), text).unwrap();
}

fn uploaded(document: &Value) -> Vec<bool> {
    let components = document["components"].as_array().unwrap();
    components.iter().map(|component| component["uploaded"].as_bool().unwrap()).collect()
}

/// The issue desk, with its service outside at this address.
fn desk(dir: &Path, address: &str) -> PathBuf {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests");
    let text = std::fs::read_to_string(guests.join("issue-desk.toml")).unwrap();
    for name in ["classify", "draft", "approve", "publish"] {
        std::fs::copy(component(name), dir.join(format!("{name}.wasm"))).unwrap();
    }
    let text = text.replace("../target/components/", "").replace("127.0.0.1:8700", address);
    std::fs::write(dir.join("desk.toml"), text).unwrap();
    guests
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issue_desk_is_deployed_from_its_file_and_runs_to_the_question_and_the_answer() {
    let outside = Service::start().await;
    let process = Process::start(&["--egress", &outside.address]).await;
    process.says("no graph is deployed yet: holdpoint deploy GRAPH.toml --url http://127.0.0.1:").await;
    let caller = process.caller();
    let dir = tempfile::tempdir().unwrap();
    let guests = desk(dir.path(), &outside.address);

    let first = deploy(dir.path(), &caller.url, None, &["desk.toml", "--json"]).await;
    let document = first.document(0);
    assert_eq!((&document["name"], &document["version"]), (&json!("issue-desk"), &json!(1)));
    assert_eq!(uploaded(&document), [true; 4]);
    let served = caller.get("/graphs/issue-desk").await.is(200);
    for key in ["digest", "version", "assistant_id"] {
        assert_eq!(document[key], served[key]);
    }

    let issue = std::fs::read(guests.join("fixtures/issues.opened.json")).unwrap();
    let issue: Value = serde_json::from_slice(&issue).unwrap();
    assert_eq!(document["next"]["body"]["input"].as_object().unwrap().keys().collect::<Vec<_>>(), ["issue"]);
    let mut body = document["next"]["body"].clone();
    body["input"]["issue"] = issue;
    let start = document["next"]["url"].as_str().unwrap().strip_prefix(&caller.url).unwrap();
    let paused = caller.post(&start.replace("THREAD", "support-123"), body).await.is(200);
    assert_eq!(paused["__interrupt__"].as_array().unwrap().len(), 1, "{paused}");

    // Again: nothing is sent, nothing is another.
    let again = deploy(dir.path(), &caller.url, None, &["desk.toml", "--json"]).await.document(0);
    assert_eq!(uploaded(&again), [false; 4]);
    assert_eq!((&again["digest"], &again["version"]), (&document["digest"], &json!(1)));

    // Another component: a section that nobody reads at the end of its bytes.
    let mut other = std::fs::read(dir.path().join("approve.wasm")).unwrap();
    other.extend(b"\0\x05\x04note");
    std::fs::write(dir.path().join("approve.wasm"), other).unwrap();
    let said = deploy(dir.path(), &caller.url, None, &["desk.toml"]).await;
    assert_eq!(said.code, 0, "{said:#?}");
    for (file, became) in [("approve.wasm", "uploaded"), ("draft.wasm", "there already")] {
        let line = said.err.lines().find(|line| line.contains(file)).unwrap();
        assert!(line.contains(" kB") && line.ends_with(became), "{line}");
    }
    assert!(said.out.starts_with("deployed issue-desk  version 2\n    digest     sha256:"), "{}", said.out);
    assert!(said.out.contains("curl -H 'content-type: application/json' -d '{"), "{}", said.out);
    let latest = caller.get("/graphs/issue-desk").await.is(200);
    assert_ne!(latest["digest"], document["digest"]);

    // The run that waits stays with the graph that it began with, and comes to its end.
    let body = json!({ "assistant_id": "issue-desk", "command": { "resume": { "approved": true } } });
    let done = caller.post("/threads/support-123/runs/wait", body).await.is(200);
    assert_eq!(done["published"]["receipt"]["status"], 200, "{done}");
    assert_eq!(outside.received(), 1);
    let run = caller.get("/threads/support-123/runs").await.is(200)[0]["holdpoint_run_id"].clone();
    let tree = caller.get(&format!("/runs/{}/tree", run.as_str().unwrap())).await.is(200);
    assert_eq!(tree["graph"], document["digest"]);

    // A service that has a graph says nothing of how to deploy one.
    let process = Process::start_in(process.kill(), &[], None).await;
    process.caller().get("/ok").await.is(200);
    assert!(!process.said().iter().any(|line| line.contains("holdpoint deploy")), "{:?}", process.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_below_goes_first_and_the_one_above_has_it_by_its_digest() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    let dir = tempfile::tempdir().unwrap();
    let script = format!("component = {:?}", component("script"));
    graph(dir.path(), "child.toml", "child", &[("y", &script)]);
    let below = "graph = \"child.toml\"\nagent = \"scout\"";
    graph(dir.path(), "above.toml", "above", &[("n", &script), ("s", below), ("t", below)]);
    let args = ["above.toml", "--name", "desk", "--json"];
    let document = deploy(dir.path(), &caller.url, None, &args).await.document(0);
    assert_eq!(uploaded(&document), [true], "one component, however often it is named");
    let child = caller.get("/graphs/child").await.is(200);
    assert_eq!(document["subgraphs"][0]["digest"], child["digest"]);
    assert_eq!(document["subgraphs"].as_array().unwrap().len(), 1);
    caller.get("/graphs/above").await.is(404);

    let ops = json!({ "n": [{ "put": { "a": 1 } }], "y": [{ "ask": "below?" }, { "put_results": "a" }] });
    let body = json!({ "assistant_id": "desk", "input": { "script": ops }, "if_not_exists": "create" });
    let paused = caller.post("/threads/t/runs/wait", body).await.is(200);
    assert_eq!(paused["__interrupt__"].as_array().unwrap().len(), 2, "{paused}");
    let asked = caller.get("/interrupts?thread_id=t").await.is(200);
    assert_eq!((&asked[0]["namespace"], &asked[0]["agent"]), (&json!(["s"]), &json!("scout")));

    // What its nodes would have and are not given is said of each graph.
    let said = deploy(dir.path(), &caller.url, None, &args[..3]).await.out;
    for (name, of) in [("desk", &document), ("child", &document["subgraphs"][0])] {
        let withheld = of["withheld"][0].as_str().unwrap();
        assert!(said.contains(&format!("\nnote: {name}: {withheld}\n")), "{said}");
    }

    // Only the child is another one: so is the graph above it, then.
    graph(dir.path(), "child.toml", "child", &[("y", &script), ("z", &script)]);
    let again = deploy(dir.path(), &caller.url, None, &args).await.document(0);
    assert_eq!((&again["version"], &again["subgraphs"][0]["version"]), (&json!(2), &json!(2)));

    // By a digest that the service has, no file is needed.
    let pinned = format!("component = {:?}", document["components"][0]["digest"].as_str().unwrap());
    let kept = format!("graph = {}", child["digest"]);
    graph(dir.path(), "pinned.toml", "pinned", &[("n", &pinned), ("s", &kept)]);
    let document = deploy(dir.path(), &caller.url, None, &["pinned.toml", "--json"]).await.document(0);
    assert_eq!((&document["components"], &document["subgraphs"]), (&json!([]), &json!([])));
    served.end().await;
}

/// Something that is not a service, or not one that can be trusted; it writes down what it is asked.
struct Other {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Other {
    /// `answers`: by the path.
    async fn start(answers: fn(&str, Option<&str>) -> axum::response::Response) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let takes = asked.clone();
        let app = axum::Router::new().fallback(move |request: axum::extract::Request| {
            let key = request.headers().get("x-api-key").map(|key| key.to_str().unwrap().to_owned());
            let path = request.uri().path().to_owned();
            takes.lock().unwrap().push(format!("{path} {}", key.is_some()));
            async move { answers(&path, key.as_deref()) }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, asked }
    }
}

fn says(body: Value) -> axum::response::Response {
    axum::response::IntoResponse::into_response(axum::Json(body))
}

fn refuses(status: u16, body: Value) -> axum::response::Response {
    let mut response = says(body);
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// As far as being asked what it is.
fn poses(path: &str) -> Option<axum::response::Response> {
    (path == "/info").then(|| says(json!({ "name": "holdpoint", "version": "9" })))
}

const KEY: &str = "hp_0123456789abcdef_secret";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_service_is_told_apart_and_gets_no_key() {
    let dir = tempfile::tempdir().unwrap();
    graph(dir.path(), "g.toml", "g", &[("n", &format!("component = {:?}", component("script")))]);
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let served = Served::start(settings()).await;
    let tls = format!("https://{}", served.url.strip_prefix("http://").unwrap());
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silence = format!("http://{}", silent.local_addr().unwrap());
    let text = Other::start(|_, _| axum::response::IntoResponse::into_response("hello")).await;
    let other = Other::start(|_, _| says(json!({ "version": "1", "flags": {} }))).await;
    let sends_on = Other::start(|_, _| {
        axum::response::IntoResponse::into_response(axum::response::Redirect::temporary("http://10.0.0.1/x"))
    })
    .await;
    let endless = Other::start(|_, _| {
        let pieces = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 1 << 16]));
        axum::response::Response::new(axum::body::Body::from_stream(pieces))
    })
    .await;
    let large = Other::start(|_, _| says(json!({ "name": " ".repeat(2 << 20) }))).await;
    for (what, url, code, kind, words) in [
        ("nobody", &nobody, 1, "busy", &["nothing answers at", "refused", "holdpoint serve", "--url"][..]),
        ("silence", &silence, 1, "busy", &["did not answer within 300 ms", "--timeout-ms"]),
        ("no TLS", &tls, 1, "busy", &["does not speak TLS"]),
        ("a page", &text.url, 2, "invalid", &["is no Holdpoint"]),
        ("another service", &other.url, 2, "invalid", &["is no Holdpoint"]),
        ("a redirect", &sends_on.url, 2, "invalid", &["sends on to", "http://10.0.0.1/x", "say --url"]),
        ("an endless answer", &endless.url, 2, "invalid", &["more than 1048576 bytes"]),
        ("a large answer", &large.url, 2, "invalid", &["more than 1048576 bytes"]),
    ] {
        let timeout = if what == "silence" { "300" } else { "20000" };
        let ran = deploy(dir.path(), url, Some(KEY), &["g.toml", "--json", "--timeout-ms", timeout]).await;
        let document = ran.document(code);
        assert_eq!(document["error"]["kind"], kind, "{what}: {document}");
        for word in words {
            assert!(
                document["error"]["message"].as_str().unwrap().contains(word),
                "{what}: {word}: {document}"
            );
        }
    }
    served.end().await;
    for other in [text, other, sends_on, endless, large] {
        assert_eq!(*other.asked.lock().unwrap(), ["/info false"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_stopped_says_so() {
    let dir = tempfile::tempdir().unwrap();
    graph(dir.path(), "g.toml", "g", &[("n", &format!("component = {:?}", component("script")))]);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for signal in ["-INT", "-TERM"] {
        let mut command = tokio::process::Command::new(binary());
        command.current_dir(dir.path()).args(["deploy", "g.toml", "--json", "--url"]);
        command.arg(format!("http://{}", silent.local_addr().unwrap())).env_remove("HOLDPOINT_KEY");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let _asked = silent.accept().await.unwrap();
        let id = child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(130), "{signal}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document["error"]["message"].as_str().unwrap().starts_with("stopped"), "{document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_says_what_cannot_be_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    graph(dir.path(), "g.toml", "g", &[("n", &format!("component = {:?}", component("script")))]);
    let echo = Other::start(|path, key| {
        poses(path).unwrap_or_else(|| refuses(422, json!({ "detail": format!("{key:?} \u{1b}[2J") })))
    })
    .await;
    let sends_on = Other::start(|path, key| {
        let to = format!("http://10.0.0.1/{}", key.unwrap_or_default());
        let on = axum::response::Redirect::permanent(&to);
        poses(path).unwrap_or_else(|| axum::response::IntoResponse::into_response(on))
    })
    .await;
    let damages = Other::start(|path, _| match path {
        "/components" => says(json!({ "digest": Digest::of(b"another") })),
        path => poses(path).unwrap_or_else(|| {
            refuses(404, json!({ "detail": "no", "error": { "kind": "not-found", "message": "no" } }))
        }),
    })
    .await;
    let babbles = Other::start(|path, _| poses(path).unwrap_or_else(|| says(json!(["?"])))).await;
    for (what, url, code, words) in [
        ("shows the key", &echo.url, 1, &["[key]", "\\u{1b}[2J"][..]),
        ("sends the key on", &sends_on.url, 2, &["sends on to", "http://10.0.0.1/[key]"]),
        ("another digest", &damages.url, 1, &["script.wasm", "damaged on its way"]),
        ("no document", &babbles.url, 2, &["is no Holdpoint", "cannot be read"]),
    ] {
        let ran = deploy(dir.path(), url, Some(KEY), &["g.toml"]).await;
        assert_eq!(ran.code, code, "{what}: {ran:#?}");
        for word in words {
            assert!(ran.err.contains(word), "{what}: {word}: {ran:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_said_by_file_and_in_the_services_own_words() {
    let served = Served::start(ServeSettings { body_bytes: 100_000, ..settings() }).await;
    let dir = tempfile::tempdir().unwrap();
    let script = format!("component = {:?}", component("script"));
    std::fs::write(dir.path().join("text.wasm"), "hello").unwrap();
    std::fs::write(dir.path().join("core.wasm"), wat::parse_str("(module)").unwrap()).unwrap();
    std::fs::create_dir(dir.path().join("project")).unwrap();
    let absent = Digest::of(b"absent").to_string();
    let unknown = script.clone() + "\nroutes = { x = \"nowhere\" }";
    let cases: [(&str, &str, i32, &str, &[&str]); 9] = [
        ("text", "component = \"text.wasm\"", 2, "invalid", &["text.wasm was refused", "a text file"]),
        ("a module", "component = \"core.wasm\"", 2, "invalid", &["core.wasm was refused", "wasm-tools"]),
        (
            "a folder",
            "component = \"project\"",
            2,
            "invalid",
            &["project (node n of the graph g)", "regular file"],
        ),
        ("no file", "component = \"gone.wasm\"", 2, "not-found", &["gone.wasm (node n of the graph g)"]),
        ("no graph", "graph = \"gone.toml\"", 2, "not-found", &["gone.toml (node n of the graph g)"]),
        ("itself", "graph = \"g.toml\"", 2, "invalid", &["contains itself"]),
        (
            "not there",
            &format!("component = \"{absent}\""),
            4,
            "not-found",
            &["g.toml was refused", &absent, "PUT /components"],
        ),
        (
            "a graph not there",
            &format!("graph = \"{absent}\""),
            4,
            "not-found",
            &["g.toml was refused", &absent],
        ),
        ("does not compile", &unknown, 2, "invalid", &["g.toml was refused", "nowhere"]),
    ];
    for (what, node, code, kind, words) in cases {
        graph(dir.path(), "g.toml", "g", &[("n", node)]);
        let ran = deploy(dir.path(), &served.url, None, &["g.toml", "--json"]).await;
        let document = ran.document(code);
        assert_eq!(document["error"]["kind"], kind, "{what}: {document}");
        let message = document["error"]["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "{what}: {word:?} is not in: {message}");
        }
    }
    let ran = deploy(dir.path(), &served.url, None, &["none.toml"]).await;
    assert!(ran.code == 2 && ran.err.contains("cannot read the graph none.toml"), "{ran:#?}");
    // What would be left of it may well be a graph, and another one.
    graph(dir.path(), "g.toml", "g", &[("n", &script)]);
    let text = std::fs::read_to_string(dir.path().join("g.toml")).unwrap();
    std::fs::write(dir.path().join("g.toml"), format!("{text}\n#{}\n", "#".repeat(4 << 20))).unwrap();
    let document = deploy(dir.path(), &served.url, None, &["g.toml", "--json"]).await.document(2);
    assert_eq!(document["error"]["limit"], "graph_bytes", "{document}");
    assert!(document["error"]["message"].as_str().unwrap().contains("at most 4194304"), "{document}");
    std::fs::write(dir.path().join("g.toml"), format!("{text}{}", "\0".repeat(1 << 20))).unwrap();
    let ran = deploy(dir.path(), &served.url, None, &["g.toml"]).await;
    assert!(ran.code == 2 && ran.err.contains("g.toml is no graph file"), "{}", ran.err.len());
    assert!(ran.err.len() < 2_000, "a line of a mebibyte is not repeated");

    let ran = deploy(dir.path(), "127.0.0.1:2024", None, &["g.toml"]).await;
    assert!(ran.code == 2 && ran.err.contains("http://127.0.0.1:2024"), "{ran:#?}");
    let listed = served.caller().get("/graphs").await.is(200);
    assert_eq!(listed, json!([]), "nothing of what was refused is there");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for_and_must_be_for_deploying() {
    let process = Process::start(&["--require-keys"]).await;
    process.says("HOLDPOINT_KEY=").await;
    let url = process.caller().url;
    let dir = tempfile::tempdir().unwrap();
    // One that is there already, and one that is large, so that it is refused while it is being sent.
    let deployer = process.key("acme", &["deploy"]);
    graph(dir.path(), "small.toml", "small", &[("n", &format!("component = {:?}", component("script")))]);
    let made = deploy(dir.path(), &url, Some(&deployer), &["small.toml"]).await;
    assert_eq!(made.code, 0, "{made:#?}");
    let printed = "printf 'x-api-key: %s' \"$HOLDPOINT_KEY\" | curl -H @- ";
    assert!(made.out.contains(printed), "{made:#?}");
    graph(
        dir.path(),
        "large.toml",
        "large",
        &[("n", &format!("component = {:?}", component("draft-python")))],
    );

    let (runs, answers) = (process.key("acme", &["run"]), process.key("acme", &["answer"]));
    let made_up = format!("{deployer}0");
    for (what, key, words) in [
        ("none", None, &["a key is needed", "put one into HOLDPOINT_KEY", "holdpoint key create"][..]),
        ("unknown", Some(made_up.as_str()), &["not known, or counts no more", "holdpoint key create"]),
        ("run", Some(runs.as_str()), &["takes the scope deploy", "--scope deploy", "holdpoint key create"]),
        ("answer", Some(answers.as_str()), &["takes the scope deploy", "--scope deploy"]),
    ] {
        for file in ["small.toml", "large.toml"] {
            let ran = deploy(dir.path(), &url, key, &[file, "--json"]).await;
            let document = ran.document(4);
            assert_eq!(document["error"]["kind"], "denied", "{what}: {document}");
            for word in words {
                let message = document["error"]["message"].as_str().unwrap();
                assert!(message.contains(word), "{what}, {file}: {word:?} is not in: {message}");
            }
        }
    }
    let caller = Caller { key: Some(runs), ..process.caller() };
    assert_eq!(caller.get("/graphs").await.is(200).as_array().unwrap().len(), 1);
}

/// The answer comes before all of what is sent is read, and must not be lost with what is not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_while_it_is_sent_is_said_all_the_same() {
    let served = Served::start(ServeSettings { needs_keys: true, ..settings() }).await;
    let runs = served.key("acme", &[Scope::Run]).await;
    let large = vec![0; 32 << 20];
    for _ in 0..20 {
        let request = runs.request(reqwest::Method::PUT, "/components").body(large.clone());
        let said = runs.send(request).await.is(403);
        assert_eq!(said["error"]["scopes"], json!(["deploy"]), "{said}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_not_sent_in_the_clear_to_another_machine_and_is_no_argument() {
    let dir = tempfile::tempdir().unwrap();
    graph(dir.path(), "g.toml", "g", &[("n", &format!("component = {:?}", component("script")))]);
    let ran = deploy(dir.path(), "http://192.0.2.1:2024", Some(KEY), &["g.toml", "--json"]).await;
    let document = ran.document(2);
    assert!(document["error"]["message"].as_str().unwrap().contains("--insecure-http"), "{document}");
    // With that said it goes there, where nobody is.
    let args = ["g.toml", "--json", "--insecure-http", "--timeout-ms", "200"];
    let document = deploy(dir.path(), "http://192.0.2.1:2024", Some(KEY), &args).await.document(1);
    assert!(document["error"]["message"].as_str().unwrap().contains("192.0.2.1"), "{document}");
    let url = format!("http://me:{KEY}@127.0.0.1:2024");
    let ran = deploy(dir.path(), &url, Some(KEY), &["g.toml"]).await;
    assert!(ran.code == 2 && ran.err.contains("HOLDPOINT_KEY"), "{ran:#?}");
    let help = deploy(dir.path(), "http://x", None, &["--help"]).await;
    assert!(help.code == 0 && help.out.contains("HOLDPOINT_KEY") && !help.out.contains("--key"), "{help:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_is_put_says_since_when_it_is_there() {
    let served = Served::start(settings()).await;
    let caller = served.key("acme", &[Scope::Deploy]).await;
    let bytes = std::fs::read(component("script")).unwrap();
    let put = || caller.send(caller.request(reqwest::Method::PUT, "/components").body(bytes.clone()));
    let first = put().await.is(200);
    assert!(first["installed_at"].is_string(), "{first}");
    assert_eq!(put().await.is(200), first);
    let digest = first["digest"].as_str().unwrap();
    assert_eq!(caller.get(&format!("/components/{digest}")).await.is(200), first);
    served.end().await;
}
