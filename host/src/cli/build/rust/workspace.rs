//! Which crates of a workspace are nodes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::Deserialize;

use super::super::BuildError;
use super::call::clean;

/// What of `cargo metadata` is read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

/// Nodes that one cargo call builds.
#[derive(Debug, PartialEq, Eq)]
pub struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub name: String,
}

pub fn metadata(dir: &Path) -> Result<Metadata, BuildError> {
    let no_crate = |output: String| BuildError::NoCrate { dir: dir.to_owned(), output };
    let dir = dir.canonicalize().map_err(|why| no_crate(why.to_string()))?;
    let output = clean("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(dir.join("Cargo.toml"))
        .current_dir(&dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::NoCargo { program: "cargo".to_owned(), source })?;
    if !output.status.success() {
        return Err(no_crate(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|why| no_crate(why.to_string()))
}

impl Metadata {
    pub fn nodes(self, dir: &Path) -> Result<Workspace, BuildError> {
        let folder = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let here = self.packages.iter().find(|package| package.manifest_path.parent() == Some(&folder));
        let nodes = match here {
            Some(package) if package.is_cdylib() => vec![package.node()],
            Some(package) => {
                return Err(BuildError::NotANode {
                    name: package.name.clone(),
                    manifest: package.manifest_path.clone(),
                });
            }
            None => self.packages.iter().filter(|package| package.is_node()).map(Package::node).collect(),
        };
        if nodes.is_empty() {
            return Err(BuildError::NoNodes { dir: dir.to_owned() });
        }
        Ok(Workspace { root: self.workspace_root, target: self.target_directory, nodes })
    }
}

impl Package {
    fn is_cdylib(&self) -> bool {
        self.targets.iter().any(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    }

    /// Not every cdylib of a workspace is one.
    fn is_node(&self) -> bool {
        const MARKS: [&str; 2] = ["holdpoint-guest", "wit-bindgen"];
        self.is_cdylib() && self.dependencies.iter().any(|dependency| MARKS.contains(&&*dependency.name))
    }

    fn node(&self) -> Node {
        Node { id: self.id.clone(), name: self.name.clone() }
    }
}

impl Workspace {
    pub fn without_nodes(&self) -> Self {
        Self { root: self.root.clone(), target: self.target.clone(), nodes: Vec::new() }
    }

    pub fn add(&mut self, nodes: Vec<Node>) {
        let new: Vec<_> = nodes.into_iter().filter(|node| !self.nodes.contains(node)).collect();
        self.nodes.extend(new);
    }

    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }
}

/// The profile for small components that keep their function names, if the workspace has it.
pub fn profile(workspace: &Path) -> &'static str {
    let manifest = fs::read_to_string(workspace.join("Cargo.toml")).unwrap_or_default();
    let has_guest = toml::from_str::<toml::Table>(&manifest).is_ok_and(|manifest| {
        manifest.get("profile").is_some_and(|profiles| profiles.get("guest").is_some())
    });
    if has_guest { "guest" } else { "release" }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn workspace() -> Workspace {
        let node = |name: &str| Node { id: format!("id#{name}"), name: name.to_owned() };
        Workspace { root: "/ws".into(), target: "/ws/target".into(), nodes: vec![node("a"), node("b")] }
    }

    fn read(packages: &str) -> Metadata {
        let text = format!(
            r#"{{ "packages": [{packages}], "workspace_root": "/ws", "target_directory": "/ws/target" }}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn package(name: &str, kind: &str, dependency: &str) -> String {
        format!(
            r#"{{ "id": "id#{name}", "name": "{name}", "manifest_path": "/ws/{name}/Cargo.toml",
                  "targets": [{{ "crate_types": ["{kind}"] }}], "dependencies": [{{ "name": "{dependency}" }}] }}"#
        )
    }

    #[test]
    fn a_folder_is_a_node_or_a_workspace_of_nodes() {
        let packages = [
            package("a", "cdylib", "holdpoint-guest"),
            package("lib", "lib", "holdpoint-guest"),
            package("python", "cdylib", "pyo3"),
            package("b", "cdylib", "wit-bindgen"),
        ]
        .join(",");
        let nodes = |dir: &str| read(&packages).nodes(Path::new(dir));
        assert_eq!(nodes("/ws").unwrap(), workspace());
        assert_eq!(nodes("/ws/python").unwrap().names(), ["python"]);
        assert!(matches!(nodes("/ws/lib"), Err(BuildError::NotANode { name, .. }) if name == "lib"));
        assert!(matches!(read("").nodes(Path::new("/ws")), Err(BuildError::NoNodes { .. })));
    }
}
