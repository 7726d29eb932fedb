//! `holdpoint new`: a node to start from, which builds and asks at once.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Shell;
use super::build::Language;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::{kit, quoted};

pub const ABOUT: &str = "\
Make a node to start from: one that asks a question, with its test, a graph and a README of a page.

The folder holds all that it needs: the contract and the SDK are copied into vendor/. It builds, and asks, at
once. With --with effect it also has something done outside, once, by the host, and the graph says where.

    holdpoint new refund --lang python
    holdpoint new refund --lang rust --with effect
    holdpoint build refund
    holdpoint try refund --input '{\"amount\": 250}'";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node's name, and its folder; or a path whose last part is the name
    #[arg(value_name = "NAME")]
    path: PathBuf,

    /// The language to write it in
    #[arg(long, value_name = "LANGUAGE", value_enum)]
    lang: Language,

    /// What the node shows beside a question
    #[arg(long, value_name = "WHAT", value_enum)]
    with: Option<With>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum With {
    Effect,
}

/// What is made.
#[derive(Clone, Copy)]
struct Node<'a> {
    name: &'a str,
    lang: Language,
    with: Option<With>,
}

/// A file of a template; its name may hold the node's.
type Template = (&'static str, &'static str);

macro_rules! templates {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../templates/", $folder, "/", $name)))),*]
    };
}

const RUST: &[Template] = templates!("rust": "Cargo.toml" "src/lib.rs" ".gitignore");
const PYTHON: &[Template] =
    templates!("python": "pyproject.toml" "{{snake}}.py" "test_{{snake}}.py" ".gitignore");
const JAVASCRIPT: &[Template] =
    templates!("javascript": "package.json" "index.js" "index.test.js" ".gitignore");
const EVERY: &[Template] = &[
    ("graph.toml", include_str!("../../templates/graph.toml")),
    ("README.md", include_str!("../../templates/README.md")),
];

/// What stands in place of those of the same name.
const RUST_EFFECT: &[Template] = &[("src/lib.rs", include_str!("../../templates/rust/with-effect.rs"))];
const PYTHON_EFFECT: &[Template] = &[
    ("{{snake}}.py", include_str!("../../templates/python/with-effect.py")),
    ("test_{{snake}}.py", include_str!("../../templates/python/test-with-effect.py")),
];
const JAVASCRIPT_EFFECT: &[Template] = &[
    ("index.js", include_str!("../../templates/javascript/with-effect.js")),
    ("index.test.js", include_str!("../../templates/javascript/with-effect.test.js")),
];
const EVERY_EFFECT: &[Template] = &[("graph.toml", include_str!("../../templates/graph-with-effect.toml"))];

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let Args { path: dir, lang, with } = args;
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    check(&name, lang)?;
    if fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::argument(format!(
            "{} is there already, and not empty; choose another name, or remove it",
            dir.display()
        )));
    }
    let node = Node { name: &name, lang, with };
    write(&dir, node)
        .map_err(|error| Failure::argument(format!("{} cannot be written: {error}", dir.display())))?;
    let shown = dir.display().to_string();
    let steps = [
        shell.command(["build", &shown]),
        shell.command(["try", &shown, "--input", input(with)]),
        format!("(cd {} && {})", quoted(&shown), test_command(lang)),
    ];
    let text = format!(
        "{shown}: a node in {}; what to change is {}\n\nbuild it, try it, test it with\n    {}\n",
        language(lang),
        source(&name, lang),
        steps.join("\n    ")
    );
    let document = json!({ "name": name, "dir": dir, "language": lang, "next": steps });
    Ok(Said::new(Exit::Completed, &document, text))
}

/// A name is a file's, a crate's and a function's.
fn check(name: &str, lang: Language) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let starts = name.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    if !starts || !name.chars().all(fits) || name.ends_with('-') || name.len() > 60 {
        return Err(Failure::argument(format!(
            "{name:?} is no name for a node: it begins with a letter and has small letters, digits, '-' and '_', \
             as in approve-refund"
        )));
    }
    let taken: &[&str] = match lang {
        Language::Rust => {
            &["fn", "mod", "use", "match", "move", "test", "holdpoint-guest", "serde", "core", "std", "input"]
        }
        Language::Python => &[
            "node",
            "wit_world",
            "holdpoint_guest",
            "random",
            "json",
            "typing",
            "sys",
            "traceback",
            "inspect",
            "dataclasses",
            "def",
            "class",
            "import",
            "test",
            "unittest",
            "input",
            "log",
            "interrupt",
        ],
        Language::JavaScript => &[
            "function",
            "class",
            "import",
            "export",
            "new",
            "default",
            "holdpoint-guest",
            "node",
            "log",
            "interrupt",
        ],
    };
    if taken.contains(&name) {
        return Err(Failure::argument(format!(
            "{name} means something in {} already; choose another name",
            language(lang)
        )));
    }
    Ok(())
}

fn write(dir: &Path, node: Node<'_>) -> std::io::Result<()> {
    let vendor = dir.join("vendor");
    let (own, effect) = match node.lang {
        Language::Rust => (RUST, RUST_EFFECT),
        Language::Python => (PYTHON, PYTHON_EFFECT),
        Language::JavaScript => (JAVASCRIPT, JAVASCRIPT_EFFECT),
    };
    let instead: Vec<&Template> = match node.with {
        Some(With::Effect) => effect.iter().chain(EVERY_EFFECT).collect(),
        None => Vec::new(),
    };
    for template in own.iter().chain(EVERY) {
        let (file, text) = instead.iter().find(|other| other.0 == template.0).copied().unwrap_or(template);
        let path = dir.join(filled(file, node));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, filled(text, node))?;
    }
    kit::contract(&vendor)?;
    match node.lang {
        Language::Rust => kit::rust(&vendor.join("holdpoint-guest")),
        Language::Python => kit::python(&vendor),
        Language::JavaScript => kit::javascript(&vendor.join("holdpoint-guest")),
    }
}

/// What the node reads, for a first try.
fn input(with: Option<With>) -> &'static str {
    match with {
        Some(With::Effect) => r#"{"order": 17, "amount": 250}"#,
        None => r#"{"amount": 250}"#,
    }
}

fn filled(text: &str, Node { name, lang, with }: Node<'_>) -> String {
    text.replace("{{name}}", name)
        .replace("{{snake}}", &name.replace('-', "_"))
        .replace("{{camel}}", &camel(name))
        .replace("{{language}}", language(lang))
        .replace("{{test}}", test_command(lang))
        .replace("{{input}}", input(with))
        .replace("{{source}}", &source(name, lang))
}

fn camel(name: &str) -> String {
    let mut words = name.split(['-', '_']);
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut chars = word.chars();
        camel.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        camel.extend(chars);
    }
    camel
}

fn language(lang: Language) -> &'static str {
    match lang {
        Language::Rust => "Rust",
        Language::Python => "Python",
        Language::JavaScript => "JavaScript",
    }
}

fn source(name: &str, lang: Language) -> String {
    match lang {
        Language::Rust => "src/lib.rs".into(),
        Language::Python => format!("{}.py", name.replace('-', "_")),
        Language::JavaScript => "index.js".into(),
    }
}

fn test_command(lang: Language) -> &'static str {
    match lang {
        Language::Rust => "cargo test",
        Language::Python => "python3 -m unittest",
        Language::JavaScript => "npm install && npm test",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_in_every_place_that_it_goes_to() {
        for lang in Language::ALL {
            assert!(check("approve-refund", lang).is_ok());
            for name in ["", "Approve", "a b", "../x", "1st", "-x", "x-"] {
                assert!(check(name, lang).is_err(), "{name}");
            }
        }
        assert!(check("node", Language::Python).is_err());
        assert_eq!(camel("approve-large_refund"), "approveLargeRefund");
    }

    #[test]
    fn nothing_of_a_template_is_left_unfilled() {
        for (lang, with) in
            Language::ALL.into_iter().flat_map(|lang| [(lang, None), (lang, Some(With::Effect))])
        {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), Node { name: "ask-first", lang, with }).unwrap();
            let graph = fs::read_to_string(dir.path().join("graph.toml")).unwrap();
            assert_eq!(graph.contains("[effects.refund]"), with.is_some());
            let mut folders = vec![dir.path().to_owned()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    if entry.path().is_dir() {
                        folders.push(entry.path());
                        continue;
                    }
                    let text = fs::read_to_string(entry.path()).unwrap();
                    let name = entry.path().display().to_string();
                    assert!(!name.contains("{{"), "{name}");
                    assert!(name.contains("/vendor/") || !text.contains("{{"), "{name}: {text}");
                }
            }
            assert!(Language::of(dir.path()).unwrap() == lang);
            assert!(dir.path().join("vendor/wit/world.wit").is_file());
        }
    }
}
