//! The road of a node's author, with the program alone: `new`, `build`, `try`, `run`; and the manuals, whose code
//! is taken out, built and run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::process::binary;
use crate::world::artifacts;

/// The program in a folder. The tools of Python and JavaScript are in the tests' own cache.
pub fn holdpoint(dir: &Path, args: &[&str]) -> Output {
    Command::new(binary())
        .current_dir(dir)
        .args(args)
        .env("HOLDPOINT_CACHE", artifacts())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The document that it printed, and its exit status.
#[track_caller]
pub fn document(dir: &Path, args: &[&str]) -> (Value, i32) {
    let output = holdpoint(dir, &[args, &["--json"]].concat());
    let document = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)));
    (document, output.status.code().unwrap())
}

#[track_caller]
fn runs(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Kept between runs, so that what has not changed is not built again: for Python that is a minute.
fn kept(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("authors").join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// `new` into a folder of its own; files that are the same as before keep what was built of them.
fn made_new(name: &str, lang: &str, more: &[&str]) -> PathBuf {
    let fresh = tempfile::tempdir().unwrap();
    let (said, code) = document(fresh.path(), &[&["new", name, "--lang", lang], more].concat());
    assert_eq!((code, &said["name"]), (0, &json!(name)));
    let dir = kept("new").join(name);
    for part in ["vendor", "src"] {
        let _ = fs::remove_dir_all(dir.join(part));
    }
    runs(Command::new("cp").arg("-r").arg(fresh.path().join(name)).arg(dir.parent().unwrap()));
    dir
}

#[track_caller]
fn builds_and_asks(dir: &Path, name: &str) {
    let (built, code) = document(dir, &["build", "."]);
    assert_eq!(code, 0, "{built}");
    let component = &built["components"][0];
    let declares = &component["declares"];
    // As the manifest has them.
    assert_eq!((&declares["name"], &declares["version"]), (&json!(name), &json!("0.1.0")));
    assert_eq!((&declares["reads"], &declares["writes"]), (&json!(["amount"]), &json!(["decision"])));
    assert!(
        component["imports"].as_array().unwrap().iter().any(|name| name == "holdpoint:node/interrupts@0.1.0")
    );
    assert!(
        Path::new(component["path"].as_str().unwrap()).ends_with(format!("target/components/{name}.wasm"))
    );

    let input = r#"{"amount": 250}"#;
    let (asks, code) = document(dir, &["try", ".", "--input", input]);
    assert_eq!((code, &asks["status"]), (3, &json!("interrupted")), "{asks}");
    assert_eq!(asks["questions"][0]["payload"], json!({ "refund": 250 }));
    let (done, code) = document(dir, &["try", ".", "--input", input, "--answers", r#"["keep"]"#]);
    assert_eq!((code, &done["update"]), (0, &json!({ "decision": "keep" })), "{done}");
    assert_eq!((&done["attempts"], &done["questions"][0]["answer"]), (&json!(2), &json!("keep")));
    assert!(done["fuel"].as_u64() > Some(1_000) && done["memory_bytes"].as_u64() > Some(100_000), "{done}");
    let (wrong, code) = document(dir, &["try", ".", "--input", input, "--answers", r#"["lose"]"#]);
    assert_eq!(code, 2, "{wrong}");

    let (verified, code) = document(dir, &["verify", ".", "--input", input]);
    let ways = verified["nodes"][0]["other_ways"].as_array().map(Vec::len);
    assert_eq!((code, ways), (0, Some(1)), "each answer that the schema names: {verified}");

    // In a graph, across processes.
    let db = tempfile::tempdir().unwrap();
    let db = db.path().join("h.db").display().to_string();
    let (paused, code) =
        document(dir, &["run", "graph.toml", "--thread", "t", "--input", input, "--db", &db]);
    assert_eq!((code, &paused["interrupts"][0]["payload"]), (3, &json!({ "refund": 250 })), "{paused}");
    let (done, code) = document(dir, &["resume", "--thread", "t", "\"keep\"", "--db", &db]);
    assert_eq!((code, &done["state"]["decision"]), (0, &json!("keep")), "{done}");
}

/// For a crate: the std and the crates of the examples, which are built already.
fn with_what_is_built(dir: &Path) {
    let guests = dir.join("target/guests");
    if !guests.exists() {
        fs::create_dir_all(dir.join("target")).unwrap();
        std::os::unix::fs::symlink(repository().join("target/guests"), guests).unwrap();
    }
    fs::copy(repository().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
}

#[test]
fn a_new_node_with_an_effect_has_it_done_once_in_every_language() {
    for (lang, test) in [
        ("rust", "cargo test"),
        ("python", "python3 -m unittest"),
        ("javascript", "npm install --no-audit --no-fund && npm test"),
    ] {
        let name = format!("pay-{lang}");
        let dir = made_new(&name, lang, &["--with", "effect"]);
        if lang == "rust" {
            with_what_is_built(&dir);
        }
        let input = r#"{"order": 17, "amount": 250}"#;
        let more = ["--answers", r#"["refund"]"#, "--effects", r#"{"refund": {"receipt": 5}}"#];
        let (done, code) = document(&dir, &[&["try", ".", "--input", input], &more[..]].concat());
        let update = json!({ "decision": "refund", "receipt": { "receipt": 5 } });
        assert_eq!((code, &done["update"]), (0, &update), "{done}");
        let effects = done["effects"].as_array().unwrap();
        assert_eq!((effects.len(), &effects[0]["key"]), (1, &json!("refund-order-17")), "{done}");
        let component = format!("target/components/{name}.wasm");
        let (verified, code) =
            document(&dir, &[&["verify", &component, "--input", input], &more[..]].concat());
        assert_eq!((code, &verified["replays"]), (0, &json!(true)), "{verified}");
        runs(Command::new("sh").args(["-c", test]).current_dir(&dir));
    }
}

#[test]
fn a_new_node_in_rust_builds_and_asks() {
    let dir = made_new("ask-rust", "rust", &[]);
    with_what_is_built(&dir);
    builds_and_asks(&dir, "ask-rust");
    runs(Command::new("cargo").arg("test").current_dir(&dir));
}

#[test]
fn a_new_node_in_python_builds_and_asks() {
    let dir = made_new("ask-python", "python", &[]);
    builds_and_asks(&dir, "ask-python");
    runs(Command::new("python3").args(["-m", "unittest"]).current_dir(&dir));
}

#[test]
fn a_new_node_in_javascript_builds_and_asks() {
    let dir = made_new("ask-javascript", "javascript", &[]);
    builds_and_asks(&dir, "ask-javascript");
    let digest = || document(&dir, &["build", "."]).0["components"][0]["digest"].clone();
    let before = digest();
    assert!(before.is_string());
    runs(Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(&dir));
    runs(Command::new("npm").arg("test").current_dir(&dir));
    // Nothing of that is in the node: it is the same component, and threads that wait for it can go on.
    assert_eq!(digest(), before);
}

#[test]
fn a_node_in_typescript_builds() {
    let dir = kept("typescript");
    fs::write(dir.join("package.json"), r#"{ "name": "typed", "version": "2.0.1", "type": "module" }"#)
        .unwrap();
    let other = "export const enum Answer { Yes = \"yes\" }\nexport type Input = { amount: number };\n";
    fs::write(dir.join("answer.ts"), other).unwrap();
    let code = r#"
import { interrupt, node, type Context } from "holdpoint-guest";
import { Answer, type Input } from "./answer";

export const handler = node<Input, { ok: boolean }>({ reads: ["amount"], writes: ["ok"] }, (input: Input, context: Context) => {
  const answer: string = interrupt<string>({ amount: input.amount as number, step: context.step });
  return { ok: answer === Answer.Yes };
});
"#;
    fs::write(dir.join("index.ts"), code).unwrap();
    let more = ["--input", r#"{"amount": 1}"#, "--answers", r#"["yes"]"#];
    let (done, exit) = document(&dir, &[&["try", "."], &more[..]].concat());
    assert_eq!(
        (exit, &done["update"], &done["node"]),
        (0, &json!({ "ok": true }), &json!("typed")),
        "{done}"
    );
    assert_eq!(done["questions"][0]["payload"], json!({ "amount": 1, "step": 0 }));
}

#[test]
fn the_sdks_pass_their_own_tests() {
    let sdk = repository().join("guest-sdk");
    runs(
        Command::new("python3")
            .args(["-m", "unittest", "discover", "-s", "tests"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(sdk.join("python")),
    );
    runs(Command::new("node").args(["--test", "tests/sdk.test.js"]).current_dir(sdk.join("javascript")));
}

/// The code of a manual: files by name, other pieces of its language, and commands.
struct Manual {
    files: BTreeMap<String, String>,
    pieces: Vec<String>,
    commands: Vec<String>,
}

impl Manual {
    /// A block whose first line is a comment with a file's name is that file; JSON has no comments, and is the
    /// package's manifest.
    fn read(path: &Path, language: &str, comment: &str) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut manual = Self { files: BTreeMap::new(), pieces: Vec::new(), commands: Vec::new() };
        for block in text.split("\n```").skip(1).step_by(2) {
            let (tag, code) = block.split_once('\n').unwrap();
            let first = code.lines().next().unwrap_or_default();
            let name = ["# ", comment]
                .iter()
                .find_map(|start| first.strip_prefix(start))
                .filter(|name| name.contains('.') && !name.contains(' '));
            match (tag, name) {
                ("json", _) => drop(manual.files.insert("package.json".into(), code.into())),
                ("console", _) => {
                    let lines = code.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned);
                    manual.commands.extend(lines);
                }
                (_, Some(name)) => drop(manual.files.insert(name.into(), code.into())),
                (tag, None) if tag == language => manual.pieces.push(code.into()),
                (tag, None) => panic!("{}: nobody runs this block of {tag}: {code}", path.display()),
            }
        }
        manual
    }

    fn write(&self, dir: &Path) {
        for (name, text) in &self.files {
            fs::write(dir.join(name), text).unwrap();
        }
    }

    /// Types the commands as they stand, but for the database.
    fn carry_out(&self, dir: &Path) {
        assert!(self.commands.len() >= 4);
        let db = tempfile::tempdir().unwrap();
        for line in &self.commands {
            let (line, right) = match line.split_once("# exit status ") {
                Some((line, rest)) => (line, rest[..1].parse().unwrap()),
                None => (line.as_str(), 0),
            };
            let line = line.replacen("holdpoint", &binary().display().to_string(), 1);
            let output = Command::new("sh")
                .args(["-c", &line])
                .current_dir(dir)
                .env("HOLDPOINT_CACHE", artifacts())
                .env("HOLDPOINT_DB", db.path().join("h.db"))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = [output.stdout, output.stderr].concat();
            assert_eq!(output.status.code(), Some(right), "{line}: {}", String::from_utf8_lossy(&said));
        }
    }
}

#[test]
fn the_manual_for_python_is_right() {
    let sdk = repository().join("guest-sdk/python");
    let manual = Manual::read(&sdk.join("README.md"), "python", "# ");
    let dir = kept("manual-python");
    manual.write(&dir);
    manual.carry_out(&dir);
    let python = |args: &[&str]| {
        runs(
            Command::new("python3")
                .args(args)
                .current_dir(&dir)
                .env("PYTHONPATH", &sdk)
                .env("PYTHONDONTWRITEBYTECODE", "1"),
        );
    };
    python(&["-m", "unittest"]);
    let check = r#"
from holdpoint_guest.testing import Script
ran = Script(answers=[[{"type": "edit", "args": {"action": "send", "args": {"draft": "Hi"}}}]]).run(send, "Hello")
assert ran.returned == {"sent": "Hi"}, ran
try:
    Script(effects={"refund": EffectError("failed", "no", 503)}).run(pay, 17)
    raise SystemExit("not retried")
except Retry as error:
    assert str(error) == "the bank said 503", error
"#;
    python(&["-c", &format!("from holdpoint_guest import *\n{}\n{check}", manual.pieces.join("\n"))]);
}

#[test]
fn the_manual_for_javascript_is_right() {
    let sdk = repository().join("guest-sdk/javascript");
    let manual = Manual::read(&sdk.join("README.md"), "js", "// ");
    let dir = kept("manual-javascript");
    manual.write(&dir);
    manual.carry_out(&dir);
    // Where the package is found once it is published.
    fs::create_dir_all(dir.join("node_modules")).unwrap();
    let _ = std::os::unix::fs::symlink(&sdk, dir.join("node_modules/holdpoint-guest"));
    runs(Command::new("node").args(["--test", "refund.test.js"]).current_dir(&dir));
    let check = r#"
import { Script } from "holdpoint-guest/testing";
const answer = [{ type: "edit", args: { action: "send", args: { draft: "Hi" } } }];
assert.deepEqual(new Script({ answers: [answer] }).run(send, "Hello").returned, { sent: "Hi" });
const failing = new Script({ effects: { refund: new EffectError("failed", "no", 503) } });
assert.throws(() => failing.run(pay, 17), (error) => error instanceof Retry && error.message === "the bank said 503");
"#;
    let imports = "import assert from 'node:assert/strict';\nimport { Approval, EffectError, Retry, approve, effect } from 'holdpoint-guest';\n";
    fs::write(dir.join("pieces.mjs"), format!("{imports}{}{check}", manual.pieces.concat())).unwrap();
    runs(Command::new("node").arg("pieces.mjs").current_dir(&dir));
}

#[test]
fn a_desk_with_nodes_in_three_languages_comes_to_the_same_end() {
    let dir = tempfile::tempdir().unwrap();
    let guests = repository().join("guests");
    let issue: Value =
        serde_json::from_slice(&fs::read(guests.join("fixtures/issues.opened.json")).unwrap()).unwrap();
    let input = json!({ "issue": issue }).to_string();
    let desk = |graph: &str| {
        let graph = guests.join(graph).display().to_string();
        let egress = ["--egress", "127.0.0.1:8700"];
        let (paused, code) = document(
            dir.path(),
            &[&["run", &graph, "--thread", &graph, "--input", &input], &egress[..]].concat(),
        );
        assert_eq!(code, 3, "{paused}");
        let answer = r#"{"approved": false, "reason": "no"}"#;
        let (done, code) =
            document(dir.path(), &[&["resume", "--thread", &graph, answer], &egress[..]].concat());
        assert_eq!(code, 0, "{done}");
        (paused["interrupts"][0]["payload"].clone(), done["state"].clone())
    };
    assert_eq!(desk("issue-desk-mixed.toml"), desk("issue-desk.toml"));
}

/// What a command says to an author who did something wrong.
#[track_caller]
fn refuses(files: &[(&str, &str)], parts: &[&str], code: i32) -> String {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let output = holdpoint(dir.path(), &["build", "."]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    // Of the tool's own running, nothing.
    assert!(!said.contains("node:child_process") && !said.contains("node:internal"), "{said}");
    said
}

#[test]
fn what_cannot_be_built_says_what_to_do() {
    let manifest = ("package.json", r#"{ "name": "x", "main": "x.js" }"#);
    refuses(&[], &["Cargo.toml, pyproject.toml or package.json", "holdpoint new"], 2);
    refuses(&[manifest, ("pyproject.toml", "")], &["pyproject.toml and package.json"], 2);
    refuses(
        &[manifest, ("x.js", "export const handle = 1;")],
        &["the file has no node", "export const handler = node("],
        1,
    );
    refuses(
        &[manifest, ("x.js", "export const handler = ;")],
        &["esbuild could not build x", "Unexpected \";\"", "x.js:1:23", "build.log"],
        1,
    );
    refuses(
        &[manifest, ("x.js", "import fs from \"node:fs\"; export const handler = fs;")],
        &["there are no files"],
        1,
    );
    let throws =
        "import { node } from \"holdpoint-guest\"; export const handler = node({ read: [] }, () => {});";
    refuses(&[manifest, ("x.js", throws)], &["a node declares name, version, reads", "x.js:1:"], 1);
    let throws = "import { node } from \"holdpoint-guest\";\n\nfunction prepare() {\n  return nothing.here;\n}\nprepare();\nexport const handler = node({}, () => {});";
    let said = refuses(
        &[manifest, ("x.js", throws)],
        &["nothing is not defined", "at prepare (x.js:4:", "build.log"],
        1,
    );
    assert!(!said.contains("bundle.js") && !said.contains("WIT:") && said.lines().count() < 8, "{said}");
    let manifest = ("pyproject.toml", "[project]\nname = \"x\"");
    refuses(
        &[manifest, ("x.py", "import holdpoint_guest, nothing_of_the_name")],
        &["No module named 'nothing_of_the_name'", "--target vendor"],
        1,
    );
}

#[test]
fn a_tool_that_is_not_there_is_named_with_the_command_that_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache").display().to_string();
    for (lang, tool) in [("python", "python3"), ("javascript", "node")] {
        let name = format!("x-{lang}");
        assert_eq!(document(dir.path(), &["new", &name, "--lang", lang]).1, 0);
        let output = Command::new(binary())
            .args(["build", &name, "--cache", &cache])
            .current_dir(dir.path())
            .env("PATH", dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(tool) && said.contains("to get it:") && said.contains("install"), "{said}");
    }
}
