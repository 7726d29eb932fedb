//! What this program carries for authors: the contract, and the SDK of each language. So a node can be made
//! and built with the program alone.

use std::fs;
use std::io;
use std::path::Path;

use crate::model::Digest;

/// A file's name in its folder, and its text.
type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../", $folder, "/", $name)))),*]
    };
}

const WIT: &[File] = files!("wit":
    "effects.wit" "events.wit" "handler.wit" "interrupts.wit" "log.wit" "steering.wit" "types.wit" "world.wit");

const PYTHON: &[File] = files!("guest-sdk/python/holdpoint_guest":
    "__init__.py" "answer_schema.py" "approval.py" "context.py" "effects.py" "errors.py" "events.py" "host.py" "interrupts.py"
    "json_text.py" "log.py" "node.py" "outcome.py" "py.typed" "steering.py" "testing.py" "typed.py");

const JAVASCRIPT: &[File] = files!("guest-sdk/javascript/src":
    "answer-schema.js" "approval.js" "component.js" "effects.js" "errors.js" "events.js" "host.js" "index.d.ts" "index.js"
    "interrupts.js" "json.js" "log.js" "node.js" "outcome.js" "random.js" "steering.js" "testing.d.ts" "testing.js");
const MANIFEST: File = ("package.json", include_str!("../../../guest-sdk/javascript/package.json"));

const RUST: &[File] = files!("guest-sdk/src":
    "answer_schema.rs" "approval.rs" "bindings.rs" "context.rs" "effects.rs" "errors.rs" "events.rs" "host.rs" "interrupts.rs"
    "json.rs" "lib.rs" "log.rs" "node.rs" "outcome.rs" "random.rs" "steering.rs" "testing.rs" "time.rs");
const RUST_MACROS: &[File] = files!("guest-sdk/macros/src": "lib.rs" "parse.rs" "print.rs");
const WORKSPACE_MANIFEST: &str = include_str!("../../../Cargo.toml");
const RUST_MANIFEST: &str = include_str!("../../../guest-sdk/Cargo.toml");
const RUST_MACROS_MANIFEST: &str = include_str!("../../../guest-sdk/macros/Cargo.toml");

/// Of all that is unpacked: another text in any file is another version.
pub fn version() -> String {
    format!("{}-{}", env!("CARGO_PKG_VERSION"), &digest(&[WIT, PYTHON, JAVASCRIPT, &[MANIFEST]])[..12])
}

/// Of what goes into a component in Python.
pub fn python_version() -> String {
    digest(&[WIT, PYTHON])
}

/// Of what goes into a component in JavaScript.
pub fn javascript_version() -> String {
    digest(&[WIT, JAVASCRIPT])
}

fn digest(files: &[&[File]]) -> String {
    let parts = files.iter().copied().flatten().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
    Digest::of_parts(parts).hex()
}

/// The contract and the SDKs that components are built with, where a project has none of its own.
pub fn unpack_all(dir: &Path) -> io::Result<()> {
    contract(dir)?;
    python(&dir.join("python"))?;
    javascript(&dir.join("javascript"))
}

/// Into `dir/wit`.
pub fn contract(dir: &Path) -> io::Result<()> {
    write(WIT, &dir.join("wit"))
}

/// Into `dir/holdpoint_guest`.
pub fn python(dir: &Path) -> io::Result<()> {
    write(PYTHON, &dir.join("holdpoint_guest"))
}

/// The package, into `dir`.
pub fn javascript(dir: &Path) -> io::Result<()> {
    write(JAVASCRIPT, &dir.join("src"))?;
    write(&[MANIFEST], dir)
}

/// Both crates, into `dir`, with the contract as it is published with them.
pub fn rust(dir: &Path) -> io::Result<()> {
    contract(dir)?;
    write(RUST, &dir.join("src"))?;
    write(RUST_MACROS, &dir.join("macros/src"))?;
    fs::write(dir.join("Cargo.toml"), on_its_own(RUST_MANIFEST)?)?;
    fs::write(dir.join("macros/Cargo.toml"), on_its_own(RUST_MACROS_MANIFEST)?)
}

fn write(files: &[File], dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    files.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}

/// A manifest without its workspace: what it has from there is written out, and what only tests of the SDK
/// itself need is left away.
fn on_its_own(manifest: &str) -> io::Result<String> {
    let parse = |text: &str| text.parse::<toml::Table>().map_err(io::Error::other);
    let workspace = parse(WORKSPACE_MANIFEST)?;
    let workspace = &workspace["workspace"];
    let mut manifest = parse(manifest)?;
    for part in ["dev-dependencies", "test", "lints"] {
        manifest.remove(part);
    }
    let from_workspace = |value: &toml::Value| value.get("workspace").is_some();
    if let Some(toml::Value::Table(package)) = manifest.get_mut("package") {
        for (key, value) in package.iter_mut().filter(|(_, value)| from_workspace(value)) {
            *value = workspace["package"][key.as_str()].clone();
        }
        package.insert("publish".into(), false.into());
    }
    if let Some(toml::Value::Table(dependencies)) = manifest.get_mut("dependencies") {
        for (key, value) in dependencies.iter_mut().filter(|(_, value)| from_workspace(value)) {
            *value = workspace["dependencies"][key.as_str()].clone();
            if let Some(path) = value.get_mut("path") {
                // The one crate of the workspace that another depends on.
                *path = "macros".into();
            }
        }
    }
    toml::to_string(&manifest).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_file_of_an_sdk_is_left_behind() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (folder, files) in [
            ("wit", WIT),
            ("guest-sdk/python/holdpoint_guest", PYTHON),
            ("guest-sdk/javascript/src", JAVASCRIPT),
            ("guest-sdk/src", RUST),
            ("guest-sdk/macros/src", RUST_MACROS),
        ] {
            let there: BTreeSet<String> = fs::read_dir(root.join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != "__pycache__")
                .collect();
            let carried: BTreeSet<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(carried, there, "{folder}");
        }
    }

    #[test]
    fn a_crate_that_is_taken_along_needs_no_workspace() {
        for manifest in [RUST_MANIFEST, RUST_MACROS_MANIFEST] {
            let alone = on_its_own(manifest).unwrap();
            assert!(!alone.contains("workspace"), "{alone}");
            assert!(alone.contains("version = \"0.1.0\"") && !alone.contains("trybuild"), "{alone}");
        }
        assert!(on_its_own(RUST_MANIFEST).unwrap().contains("path = \"macros\""));
    }

    #[test]
    fn the_packages_versions_are_the_contracts() {
        let contract = WIT.iter().find(|(name, _)| *name == "world.wit").unwrap().1;
        let version = contract.split("package holdpoint:node@").nth(1).unwrap().split(';').next().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk");
        // A link, which is followed when the crate is packed.
        assert_eq!(root.join("wit").canonicalize().unwrap(), root.join("../wit").canonicalize().unwrap());
        let python = fs::read_to_string(root.join("python/pyproject.toml")).unwrap();
        assert!(python.contains(&format!("version = \"{version}\"")), "{python}");
        assert!(MANIFEST.1.contains(&format!("\"version\": \"{version}\"")));
        assert!(WORKSPACE_MANIFEST.contains(&format!("version = \"{version}\"")));
        let init = PYTHON.iter().find(|(name, _)| *name == "__init__.py").unwrap().1;
        assert!(init.contains(&format!("__version__ = \"{version}\"")));
    }
}
