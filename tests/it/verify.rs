//! `holdpoint verify` and `holdpoint inspect`, as processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdpoint::model::GraphSpec;
use holdpoint::{NodeSpec, Reducer};
use serde_json::{Value, json};

use crate::by_hand::node;
use crate::process::{Said, binary, finish};
use crate::world::{artifacts, component, posts_to, scripted};

/// A folder to call the program in.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn graph(&self, name: &str, spec: &GraphSpec) {
        std::fs::write(self.path(name), spec.to_toml()).unwrap();
    }

    async fn say(&self, args: &[&str]) -> Said {
        finish(self.command(args, &["--json"]).spawn().unwrap()).await
    }

    /// What a person would read.
    fn text(&self, args: &[&str]) -> String {
        let output = self.command(args, &[]).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
    }

    fn command(&self, args: &[&str], more: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.current_dir(self.0.path()).args(args).args(more).arg("--cache").arg(artifacts());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn input(ops: &Value) -> String {
    json!({ "script": ops }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_verified_without_a_graph_or_a_database() {
    let folder = Folder::new();
    let script = component("script");
    let ops = json!([
        { "print": "to stdout" }, { "eprint": "to stderr" }, { "hash_order": true }, { "now": true },
        { "ask_results": true, "schema": { "type": "object", "properties": { "yes": { "type": "boolean" } } } },
        { "effect": { "name": "e", "key": "k", "input": 1 } }, { "effect": { "name": "f", "key": "k", "input": 1 } },
        { "ask": "again?" }, { "ask": "sure?", "default": "quite" }, { "put_results": "a" }
    ]);
    let input = input(&ops);
    let args = [
        "verify",
        &script,
        "--input",
        &input,
        "--effects",
        r#"{"e": {"id": 7}}"#,
        "--failures",
        r#"{"f": 1.50}"#,
    ];
    let said = folder.say(&args).await;
    let document = said.exit(0);
    assert_eq!((&document["replays"], &document["nodes"].as_array().unwrap().len()), (&json!(true), &1));
    let node = &document["nodes"][0];
    assert_eq!(node["calls"].as_array().unwrap().len(), 5);
    assert_eq!(
        (&node["prefixes"], &node["attempts"], &node["difference"]),
        (&json!(6), &json!(16), &Value::Null)
    );
    let from: Vec<&Value> =
        node["answers"].as_array().unwrap().iter().map(|answer| &answer["from"]).collect();
    assert_eq!(from, ["schema", "nothing", "default-answer"]);
    let told = node["outcome"]["finished"]["a"].to_string();
    let effects = r#"{"ok":{"id":7}},{"err":{"kind":"failed","value":1.50}}"#;
    assert!(told.ends_with(&format!(r#"{{"yes":true}},{effects},true,"quite"]"#)), "{told}");
    assert_eq!(
        (&node["output"]["stdout"], &node["output"]["stderr"]),
        (&json!("to stdout\n"), &json!("to stderr\n"))
    );
    assert!(node["fuel"].as_u64() > Some(10_000) && node["memory_bytes"].as_u64() > Some(65_536));
    // A report can be repeated, but for the time that it took.
    let again = folder.say(&args).await.document;
    let same = ["calls", "answers", "outcome", "fuel", "memory_bytes"];
    assert!(same.iter().all(|key| again["nodes"][0][key] == node[key]));
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0, "no database");

    let text = folder.text(&args);
    for part in ["script  replays", "5 host calls, 6 prefixes", "made from its schema", "fuel ", "to stderr"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_of_a_graph_is_verified_or_the_one_that_is_named() {
    let folder = Folder::new();
    // Where effects go does not matter, since none goes out; `f` has a handler that this program lacks.
    let spec =
        scripted(&["m", "n"]).effect("e", posts_to("127.0.0.1:1")).channel("mine", Reducer::Append).node(
            "m",
            NodeSpec::component(component("script"))
                .reads_as(&[("script", "script"), ("b", "mine")])
                .effects(&["e", "f"]),
        );
    folder.graph("graph.toml", &spec);
    let input = json!({
        "script": {
            "m": [{ "read": "b" }, { "read": "c" }, { "effect": { "name": "e", "key": "k", "input": 1 } }, { "put_results": "a" }],
            "n": [{ "ask": 1 }, { "ask": 2 }, { "put_results": "a" }],
        },
        "mine": [1, 2],
    })
    .to_string();
    let said = folder
        .say(&["verify", "graph.toml", "--input", &input, "--effects", r#"{"e": 9}"#, "--answers", "[8, 9]"])
        .await;
    let nodes = &said.exit(0)["nodes"];
    assert_eq!((&nodes[0]["node"], &nodes[1]["node"]), (&json!("m"), &json!("n")));
    assert_eq!(nodes[0]["outcome"]["finished"], json!({ "a": [[1, 2], null, { "ok": 9 }] }));
    assert_eq!(nodes[1]["outcome"]["finished"], json!({ "a": [8, 9] }));
    assert_eq!((&nodes[0]["answers_unused"], &nodes[1]["answers_unused"]), (&json!(2), &json!(0)));

    let said = folder.say(&["verify", "graph.toml", "--input", &input, "--node", "n"]).await;
    assert_eq!(said.exit(0)["nodes"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_command_is_said_and_nothing_is_guessed() {
    let folder = Folder::new();
    let script = component("script");
    folder.graph("graph.toml", &scripted(&["n"]));
    std::fs::write(folder.path("no.wasm"), "no component").unwrap();
    let asks =
        input(&json!([{ "ask": "how many?", "schema": { "type": "integer" } }, { "ask": "and now?" }]));
    let pattern =
        input(&json!([{ "ask": "code?", "schema": { "type": "string", "pattern": "^[A-Z]{3}-[0-9]$" } }]));
    for (args, part) in [
        (vec!["verify", "none.toml"], "none.toml"),
        (vec!["verify", "none.wasm"], "none.wasm"),
        (vec!["verify", "no.wasm"], "a text file"),
        (vec!["verify", "sha256:00"], "sha256"),
        (vec!["verify", &script, "--node", "n"], "--node"),
        (vec!["verify", "graph.toml", "--node", "m"], "there are n"),
        (vec!["verify", &script, "--input", "[]"], "reads an object"),
        (vec!["verify", &script, "--input", r#"{"z":1}"#], r#"has "z"; script"#),
        (vec!["verify", "graph.toml", "--input", r#"{"z":1}"#], r#"the channel "z""#),
        (vec!["verify", "graph.toml", "--input", r#"{"a":1}"#], "takes an array"),
        (vec!["verify", &script, "--input", "{"], "--input"),
        (vec!["verify", &script, "--answers", "{}"], "takes a list"),
        (vec!["verify", &script, "--effects", "[]"], "takes an object"),
        (vec!["verify", &script, "--effects", r#"{"g":1}"#], "there are e, f"),
        (vec!["verify", &script, "--effects", r#"{"e":1}"#, "--failures", r#"{"e":1}"#], "in one way"),
        (vec!["verify", &script, "--input", "-", "--answers", "-"], "standard input"),
        (vec!["verify", &script, "--input", &asks, "--answers", r#"["three"]"#], "does not fit question 0"),
        (vec!["verify", &script, "--input", &asks, "--answers", "[3]"], "asks question 1"),
        (vec!["verify", &script, "--input", &pattern], "no answer could be made"),
    ] {
        let said = folder.say(&args).await;
        let message = said.exit(2)["error"]["message"].to_string();
        let message = message.replace('\\', "");
        assert!(message.contains(part), "{args:?}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_inspected_by_what_each_node_gets_and_what_is_refused() {
    let folder = Folder::new();
    let approve = component("approve");
    let good = GraphSpec::new("good", "approve")
        .channel("tags", Reducer::Replace)
        .channel("draft", Reducer::Replace)
        .node(
            "approve",
            NodeSpec::component(&approve)
                .reads_as(&[("labels", "tags"), ("draft", "draft")])
                .routes(&[("done", "end")]),
        );
    folder.graph("good.toml", &good);
    let said = folder.say(&["inspect", "good.toml"]).await;
    let document = said.exit(0);
    assert_eq!((&document["runnable"], &document["error"]), (&json!(true), &Value::Null));
    assert!(document["digest"].as_str().unwrap().starts_with("sha256:"));
    let node = &document["nodes"]["approve"];
    assert_eq!(
        node["grants"]["reads"],
        json!({ "granted": { "draft": "draft", "labels": "tags" }, "withheld": [], "refused": [] })
    );
    assert_eq!(
        node["grants"]["routes"],
        json!({ "granted": { "done": "end" }, "withheld": ["publish"], "refused": [] })
    );
    assert_eq!(node["grants"]["writes"]["withheld"], json!(["decision"]));
    let weight = &node["component"]["weight"];
    assert!(weight["functions"].as_u64() > Some(50) && weight["work"].as_u64() < weight["work_max"].as_u64());
    let text = folder.text(&["inspect", "good.toml"]);
    for part in [
        "labels (from tags)",
        "declared and not granted: publish",
        "done (to end)",
        "functions",
        "can be run",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let bad = good
        .node("approve", NodeSpec::component(&approve).reads(&["secrets", "labels"]).effects(&["pay"]))
        .node("gone", NodeSpec::component("gone.wasm"));
    folder.graph("bad.toml", &bad);
    let said = folder.say(&["inspect", "bad.toml"]).await;
    let document = said.exit(2);
    assert_eq!((&document["runnable"], &document["digest"]), (&json!(false), &Value::Null));
    let grants = &document["nodes"]["approve"]["grants"];
    let why = |kind: &str, i: usize| grants[kind]["refused"][i]["why"].as_str().unwrap().to_owned();
    assert!(why("reads", 0).contains("approve 0.1.0 does not declare it; it declares draft, labels"));
    assert!(why("reads", 1).contains(r#"no channel of the graph is named "labels""#));
    assert!(why("effects", 0).contains("declares nothing"));
    assert!(document["nodes"]["gone"]["error"]["message"].as_str().unwrap().contains("gone.wasm"));
    assert!(!folder.text(&["inspect", "bad.toml"]).contains("can be run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_inspected_by_what_it_imports_declares_and_weighs() {
    let folder = Folder::new();
    let said = folder.say(&["inspect", &component("script")]).await;
    let document = said.exit(0);
    assert_eq!((&document["installable"], &document["refused_imports"]), (&json!(true), &json!([])));
    assert!(document["declares"]["effects"].as_array().unwrap().contains(&json!("e")));
    assert!(document["imports"].as_array().unwrap().contains(&json!("holdpoint:node/interrupts@0.1.0")));

    let stranger = wat::parse_str(
        r#"(component (import "wasi:http/outgoing-handler@0.2.0" (instance)) (import "wasi:io/poll@0.2.0" (instance)))"#,
    );
    write(&folder.path("stranger.wasm"), &stranger.unwrap());
    let heavy = format!(
        "(func (param i32) {}{})",
        "(local i32)".repeat(20_000),
        "(block (br_if 0 (local.get 0)))".repeat(20_000)
    );
    write(&folder.path("heavy.wasm"), &node(&heavy, "(i32.const 0)"));
    write(&folder.path("cut.wasm"), &node("", "(i32.const 0)")[..200]);
    for (file, part, is_weighed) in [
        ("stranger.wasm", "wasi:http/outgoing-handler@0.2.0", true),
        ("heavy.wasm", "compiling the component would take too long", true),
        ("cut.wasm", "damaged or cut short", false),
    ] {
        let said = folder.say(&["inspect", file]).await;
        let document = said.exit(2);
        assert_eq!(document["installable"], false);
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{file}: {message}");
        assert_eq!(document["weight"].is_object(), is_weighed, "{file}");
    }
    assert_eq!(
        folder.say(&["inspect", "stranger.wasm"]).await.document["refused_imports"],
        json!(["wasi:http/outgoing-handler@0.2.0"])
    );
    let text = folder.text(&["inspect", "stranger.wasm"]);
    assert!(text.contains("wasi:http/outgoing-handler@0.2.0   refused"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_installed_is_verified_and_inspected_by_its_digest() {
    let folder = Folder::new();
    let script = component("script");
    let installed = folder.say(&["install", &script]).await;
    let digest = installed.exit(0)["components"][0]["digest"].as_str().unwrap().to_owned();
    let mut spec = scripted(&["n"]);
    spec.nodes.get_mut("n").unwrap().component = Some(digest.clone());
    spec.nodes.get_mut("n").unwrap().effects = Default::default();
    spec.effects.clear();
    folder.graph("graph.toml", &spec);
    let input = input(&json!([{ "ask": 1 }]));
    for target in [digest.as_str(), "graph.toml"] {
        let said = folder.say(&["verify", target, "--input", &input]).await;
        assert_eq!(said.exit(0)["nodes"][0]["prefixes"], 2);
        folder.say(&["inspect", target]).await.exit(0);
    }
}

/// A process that may not have as much address space as one instance takes: what it cannot do is neither
/// the node's failure nor a difference.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_short_of_memory_does_not_blame_the_node() {
    let folder = Folder::new();
    folder.graph("graph.toml", &{
        let mut spec = scripted(&["n"]);
        spec.nodes.get_mut("n").unwrap().effects = Default::default();
        spec.effects.clear();
        spec
    });
    let ops = input(&json!([{ "ask": 1 }]));
    folder.say(&["run", "graph.toml", "--thread", "t", "--input", &ops]).await.exit(3);
    let short = async |args: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -v 3500000; exec \"$0\" \"$@\""]).arg(binary()).args(args).arg("--json");
        shell.current_dir(folder.0.path()).arg("--cache").arg(artifacts());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(shell.spawn().unwrap()).await
    };
    let said = short(&["resume", "--thread", "t", "true"]).await;
    let error = &said.exit(1)["error"];
    assert_eq!((&error["kind"], &error["trap"]), (&json!("trap"), &json!("host-memory")), "{error}");
    let said = short(&["verify", &component("script"), "--input", &ops]).await;
    let message = said.exit(1)["error"]["message"].as_str().unwrap();
    assert!(message.contains("the host has no memory left"), "{message}");
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_that_a_schema_names_is_gone_and_one_that_cannot_be_is_told() {
    let folder = Folder::new();
    let script = component("script");
    let verified = async |ops: Value, more: &[&str]| {
        let input = input(&ops);
        let said = folder.say(&[&["verify", &script, "--input", &input], more].concat()).await;
        (said.status.code().unwrap(), said.document["nodes"][0].clone(), said.document)
    };
    let outcomes = |node: &Value| -> Vec<Value> {
        let others = node["other_ways"].as_array().unwrap().iter();
        [node].into_iter().chain(others).map(|road| road["outcome"]["finished"]["a"].clone()).collect()
    };
    // Of each question each answer, with the first of the rest; then those that part further on.
    let asks = json!([
        { "ask": "which?", "schema": { "enum": ["a", "b", "c"] } },
        { "ask": "sure?", "schema": { "type": "boolean" } },
        { "put_results": "a" },
    ]);
    let (code, node, _) = verified(asks.clone(), &[]).await;
    let all: Vec<Value> =
        ["a", "b", "c"].iter().flat_map(|one| [json!([one, true]), json!([one, false])]).collect();
    let gone = outcomes(&node);
    assert!(code == 0 && gone.len() == 6 && all.iter().all(|way| gone.contains(way)), "{node}");
    assert_eq!(node["ways_left"], 0);
    // Answers that are given are one way.
    let (_, node, _) = verified(asks, &["--answers", r#"["c", false]"#]).await;
    assert_eq!(outcomes(&node), [json!(["c", false])]);
    // More than are gone, and one for which no answer can be made up.
    let many =
        json!([{ "repeat": { "times": 6, "ops": [{ "ask": "?", "schema": { "type": "boolean" } }] } }]);
    let (code, node, _) = verified(many, &[]).await;
    assert_eq!((code, node["other_ways"].as_array().unwrap().len()), (0, 11), "{node}");
    assert!(node["ways_left"].as_u64() > Some(10), "{node}");
    let schema = json!({ "oneOf": [{ "type": "boolean" }, { "type": "string", "pattern": "^[A-Z]{3}$" }] });
    let (code, node, _) = verified(json!([{ "ask": "?", "schema": schema }]), &[]).await;
    assert_eq!((code, &node["ways_left"]), (0, &json!(1)), "{node}");

    // Where some ways fail it is verified; where all do, it is not, unless that is what was asked for.
    let picks = |other: Value| {
        let schema = json!({ "enum": ["fail", "end"] });
        json!([{ "ask": "?", "schema": schema }, { "if_last": { "equals": "fail", "then": [{ "fail": "no" }], "else": other } }])
    };
    let (code, _, found) = verified(picks(json!([])), &[]).await;
    assert_eq!((code, &found["failing"]), (0, &json!([])), "{found}");
    let (code, _, found) = verified(picks(json!([{ "fail": "neither" }])), &[]).await;
    assert_eq!(
        (code, &found["failing"], &found["unverified"]),
        (5, &json!(["script"]), &json!([])),
        "{found}"
    );
    let effect = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
    let fails = json!([effect, { "fail": "it was not done" }]);
    assert_eq!(verified(fails.clone(), &[]).await.0, 5);
    assert_eq!(verified(fails, &["--failures", r#"{"e": 503}"#]).await.0, 0);
}

/// What the authors of other nodes start from.
#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_to_copy_replay() {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests");
    let issue = std::fs::read(guests.join("fixtures/issues.opened.json")).unwrap();
    let issue: Value = serde_json::from_slice(&issue).unwrap();
    let input =
        json!({ "issue": issue, "labels": ["bug"], "draft": "Thank you.", "decision": { "approved": true } });
    let graph = guests.join("issue-desk.toml").display().to_string();
    let said = Folder::new().say(&["verify", &graph, "--input", &input.to_string()]).await;
    for node in said.exit(0)["nodes"].as_array().unwrap() {
        assert!(node["outcome"]["finished"].is_object(), "{node}");
    }
}
