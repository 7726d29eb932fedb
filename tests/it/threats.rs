//! What the README says that tests show, there are tests for.

use std::path::{Path, PathBuf};

/// A source file, by the last part of its path without `.rs`.
struct Source {
    name: String,
    text: String,
}

impl Source {
    fn has_tests(&self) -> bool {
        self.text.contains("#[test]") || self.text.contains("#[tokio::test")
    }
}

fn sources(folder: &Path, into: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            into.push(Source { name, text: std::fs::read_to_string(&path).unwrap() });
        }
    }
}

#[test]
fn each_line_of_the_threat_model_names_tests_that_there_are() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    sources(&root.join("tests/it"), &mut all);
    sources(&root.join("host/src"), &mut all);
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, model) = readme.split_once("## Threat model").unwrap();
    let (model, _) = model.split_once("**Not defended.**").unwrap();
    let rows: Vec<_> = model.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 10, "{rows:#?}");
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let named: Vec<_> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "nothing shows it: {row}");
        for name in named {
            let (module, test) = name.rsplit_once("::").unwrap_or(("", name));
            let module = module.rsplit("::").next().unwrap();
            let is_there = match test.strip_suffix('…') {
                // A file of tests.
                None => all.iter().any(|source| source.name == test && source.has_tests()),
                Some(begins) => all.iter().any(|source| {
                    (module.is_empty() || source.name == module)
                        && source.text.contains(&format!("fn {begins}"))
                        && source.has_tests()
                }),
            };
            assert!(is_there, "no test is named {name}: {row}");
        }
    }
}
