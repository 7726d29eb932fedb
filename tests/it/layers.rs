//! The host's layers hold: read from its sources, who names whom.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Each layer, and the others that it may name.
const LAYERS: [(&str, &[&str]); 6] = [
    ("model", &[]),
    ("store", &["model"]),
    ("sandbox", &["model"]),
    ("engine", &["model", "store", "sandbox"]),
    ("server", &["model", "store", "sandbox", "engine"]),
    ("cli", &["model", "store", "sandbox", "engine", "server"]),
];

/// Words, and where alone they may stand: the beginnings of paths.
const AT_HOME: [(&str, &[&str]); 15] = [
    ("sqlx", &["store/"]),
    ("rusqlite", &["store/"]),
    ("wasmtime", &["sandbox/"]),
    ("wasmtime_wasi", &["sandbox/"]),
    ("wasmtime_wasi_io", &["sandbox/"]),
    ("axum", &["server/"]),
    ("StatusCode", &["server/"]),
    ("clap", &["cli/"]),
    // Spans go out on a way of their own, also while the engine ends; to deploy is to call another process's service.
    ("reqwest", &["engine/", "cli/spans.rs", "cli/service.rs"]),
    ("opentelemetry", &["cli/spans.rs"]),
    // One place, where the host loads what it compiled itself.
    ("unsafe", &["sandbox/artifacts.rs"]),
    ("anyhow", &["main.rs"]),
    // The vocabulary has no IO.
    ("fs", &["store/", "sandbox/", "engine/", "server/", "cli/"]),
    ("tokio", &["store/", "sandbox/", "engine/", "server/", "cli/"]),
    ("SystemTime", &["engine/clock.rs"]),
];

const NO_NAMES: [&str; 10] =
    ["util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "shared", "lib2"];

/// What in this source is out of place. `path`: from `host/src`.
fn faults(path: &str, text: &str) -> Vec<String> {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut words = Vec::new();
    let depth = Path::new(path).with_extension("").iter().filter(|part| *part != "mod").count();
    flatten(tokens, depth, &mut words);
    let layer = path.split('/').next().filter(|_| path.contains('/'));
    let mut faults = Vec::new();
    for (name, depth) in named(&words) {
        match (name.as_str(), layer) {
            // So many steps up lead to the root, around the one way from layer to layer.
            ("super", _) => faults.push(format!("{path}: super climbs {depth} modules up, out of the layer")),
            (name, Some(layer)) => {
                let may = LAYERS.iter().find(|(of, _)| *of == layer).map_or(&[][..], |(_, may)| may);
                if name != layer && !may.contains(&name) {
                    faults.push(format!("{path}: {layer} names {name}; it may name {may:?}"));
                }
            }
            (_, None) => {}
        }
    }
    let is_test = path.contains("/tests/");
    for (word, homes) in AT_HOME {
        let is_home = homes.iter().any(|home| path.starts_with(home)) || is_test && word == "anyhow";
        if !is_home && words.iter().any(|(found, _)| found == word) {
            faults.push(format!("{path}: {word} belongs into {homes:?}"));
        }
    }
    let reads_environment =
        words.windows(3).any(|next| next[0].0 == "env" && next[1].0 == ":" && next[2].0 == ":");
    if reads_environment && layer != Some("cli") && !is_test {
        faults.push(format!("{path}: the environment is read in cli only"));
    }
    faults
}

/// Each word, and how deep below the crate's root the module is that it stands in.
fn flatten(tokens: TokenStream, depth: usize, words: &mut Vec<(String, usize)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let is_module = words.len() >= 2 && words[words.len() - 2].0 == "mod";
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                words.push((open.into(), depth));
                flatten(group.stream(), depth + usize::from(is_module && open == "{"), words);
                words.push((close.into(), depth));
            }
            TokenTree::Literal(_) => words.push(("literal".into(), depth)),
            other => words.push((other.to_string(), depth)),
        }
    }
}

/// What stands behind `crate::`; and `super`, with how often, where it leads to the crate's root.
fn named(words: &[(String, usize)]) -> Vec<(String, usize)> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|(found, _)| found == word);
    let mut named = Vec::new();
    for at in 0..words.len() {
        if is(at, "crate") && is(at + 1, ":") && is(at + 2, ":") {
            if !is(at + 3, "{") {
                named.extend(words.get(at + 3).cloned());
                continue;
            }
            let mut braces = 0;
            for (i, (word, _)) in words.iter().enumerate().skip(at + 3) {
                let first = braces == 1 && (is(i - 1, "{") || is(i - 1, ","));
                match word.as_str() {
                    "{" => braces += 1,
                    "}" if braces == 1 => break,
                    "}" => braces -= 1,
                    _ if first => named.push(words[i].clone()),
                    _ => {}
                }
            }
        }
        let is_chain = is(at, "super") && !(at >= 3 && is(at - 1, ":") && is(at - 3, "super"));
        let ups = (0..).take_while(|i| is(at + 3 * i, "super")).count();
        if is_chain && ups >= words[at].1 {
            named.push(("super".into(), ups));
        }
    }
    named
}

/// What this source may say: its texts, without what documents it.
fn texts(tokens: TokenStream, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let is_attribute = at > 0 && tokens[at - 1].to_string() == "#";
                let first = group.stream().into_iter().next().map(|first| first.to_string());
                if !(is_attribute && first.as_deref() == Some("doc")) {
                    texts(group.stream(), found);
                }
            }
            TokenTree::Literal(literal) => found.push(literal.to_string()),
            _ => {}
        }
    }
}

/// Texts below the command line that name its commands or options: over HTTP, nobody can type them.
fn typed(path: &str, text: &str, commands: &[String]) -> Vec<String> {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut found = Vec::new();
    texts(tokens, &mut found);
    let is_command = |text: &str| {
        let behind = text.split("holdpoint ").skip(1);
        let mut words =
            behind.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default());
        words.any(|word| commands.iter().any(|command| command == word))
    };
    let is_option = |text: &str| {
        text.match_indices("--").any(|(at, _)| text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase()))
    };
    found.retain(|text| is_command(text) || is_option(text));
    found.into_iter().map(|text| format!("{path}: {text} says what to type; see model/way_out.rs")).collect()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn each_layer_names_only_those_above_it_and_keeps_its_libraries_to_itself() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let paths: Vec<String> =
        files.iter().map(|file| file.strip_prefix(&root).unwrap().display().to_string()).collect();
    for (layer, _) in LAYERS {
        assert!(paths.iter().any(|path| path.starts_with(&format!("{layer}/"))), "{layer} is not there");
    }
    let mut found: Vec<String> = Vec::new();
    for (file, path) in files.iter().zip(&paths) {
        found.extend(faults(path, &fs::read_to_string(file).unwrap()));
        let top = path.split('/').next().unwrap();
        if !["lib.rs", "main.rs"].contains(&top) && !LAYERS.iter().any(|(layer, _)| *layer == top) {
            found.push(format!("{path}: no layer of that name"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_there_is_to_type_is_said_by_the_command_line_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src");
    let mut commands = Vec::new();
    for entry in fs::read_dir(root.join("cli")).unwrap() {
        commands.push(entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    }
    assert!(["run", "history", "build"].iter().all(|name| commands.iter().any(|command| command == name)));
    let mut found = Vec::new();
    for (layer, _) in LAYERS.iter().filter(|(layer, _)| *layer != "cli") {
        let mut files = Vec::new();
        sources(&root.join(layer), &mut files);
        for file in files {
            let path = file.strip_prefix(&root).unwrap().display().to_string();
            found.extend(typed(&path, &fs::read_to_string(&file).unwrap(), &commands));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let check = |text: &str, is_found: bool| {
        assert_eq!(typed("engine/a.rs", text, &commands).len(), usize::from(is_found), "{text}");
    };
    check("f(\"there is none (holdpoint run)\")", true);
    check("f(\"there is none; `holdpoint history --thread t` lists them\")", true);
    check("f(\"closed (--egress x)\")", true);
    check("#[error(\"use `holdpoint build`\")] struct X;", true);
    check("/// See `holdpoint run --json`.\nfn f() { g(\"a -- b, holdpoint of old\") }", false);
}

#[test]
fn no_file_is_named_for_want_of_a_home() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for part in ["host/src", "guest-sdk", "guests", "tests/it"] {
        sources(&root.join(part), &mut files);
    }
    for file in files {
        let nameless = file
            .strip_prefix(&root)
            .unwrap()
            .with_extension("")
            .iter()
            .any(|part| part.to_string_lossy().split(['_', '-']).any(|word| NO_NAMES.contains(&word)));
        assert!(!nameless, "{}", file.display());
    }
}

#[test]
fn a_breach_of_the_layers_is_found_however_it_is_written() {
    fn check(path: &str, text: &str, expected: &[&str]) {
        let found = faults(path, text);
        assert_eq!(found.len(), expected.len(), "{path}: {text}: {found:?}");
        for (found, word) in found.iter().zip(expected) {
            assert!(found.contains(word), "{path}: {text}: {found}");
        }
    }
    check("store/a.rs", "use crate::model::ids::RunId; use super::codec;", &[]);
    check("store/a.rs", "use crate::sandbox::Sandbox;", &["store names sandbox"]);
    check("store/a.rs", "use crate::{model::x, engine::{Host, y}};", &["store names engine"]);
    check("model/a.rs", "fn f() -> crate::store::Store {}", &["model names store"]);
    check("engine/a.rs", "pub(in crate::cli) mod x;", &["engine names cli"]);
    check("server/a.rs", "use crate::cli::x; use crate::engine::Host;", &["server names cli"]);
    check("cli/a.rs", "use crate::server::x;", &[]);
    check("store/a.rs", "use super::super::sandbox::x;", &["super climbs 2"]);
    check("store/a.rs", "mod tests { use super::super::codec; }", &[]);
    check("store/mod.rs", "use super::sandbox::x;", &["super climbs 1"]);
    check("sandbox/wasi/a.rs", "use super::super::guest::Guest;", &[]);
    check("sandbox/wasi/a.rs", "mod t { use super::super::super::super::store::x; }", &["super climbs 4"]);
    check("engine/a.rs", "// crate::cli\n/* sqlx::x */ fn f() { g(\"use sqlx::x; unsafe\", 'a') }", &[]);
    check("engine/a.rs", "use sqlx::Row;", &["sqlx belongs"]);
    check("store/a.rs", "use wasmtime::Store;", &["wasmtime belongs"]);
    check("cli/a.rs", "fn f() -> axum::http::StatusCode {}", &["axum belongs", "StatusCode belongs"]);
    check("sandbox/guest.rs", "fn f() { unsafe { g() } }", &["unsafe belongs"]);
    check("sandbox/artifacts.rs", "fn f() { unsafe { g() } }", &[]);
    check("cli/a.rs", "fn f() -> anyhow::Result<()> {}", &["anyhow belongs"]);
    check("main.rs", "fn main() -> anyhow::Result<()> {}", &[]);
    check("model/a.rs", "fn f() { std::fs::read(p) }", &["fs belongs"]);
    check("engine/a.rs", "fn f() { std::env::var(\"X\") }", &["environment"]);
}
