//! A node's folder: which language it is in, what the node is called, where its component goes.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde::Serialize;

use super::{BuildError, Job};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Rust,
    Python,
    #[value(name = "javascript", alias = "js", alias = "typescript")]
    JavaScript,
}

impl Language {
    pub const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::JavaScript];

    /// By the manifest that the folder has.
    pub fn of(dir: &Path) -> Result<Self, BuildError> {
        let found: Vec<Self> =
            Self::ALL.into_iter().filter(|language| dir.join(language.manifest()).is_file()).collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(BuildError::NoProject { dir: dir.to_owned() }),
            _ => {
                let manifests = found.into_iter().map(Self::manifest).collect();
                Err(BuildError::Several { dir: dir.to_owned(), manifests })
            }
        }
    }

    pub fn manifest(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Python => "pyproject.toml",
            Self::JavaScript => "package.json",
        }
    }

    pub fn tool(self) -> &'static str {
        match self {
            Self::Rust => "cargo",
            Self::Python => "componentize-py",
            Self::JavaScript => "componentize-qjs",
        }
    }
}

/// A node in Python or JavaScript.
#[derive(Debug, PartialEq, Eq)]
pub struct Project {
    pub dir: PathBuf,
    pub name: String,
    pub version: Option<String>,
    /// The module or file that the node is in.
    pub entry: String,
    /// Where everything that is built goes; as cargo's folder of that name.
    pub target: PathBuf,
}

impl Project {
    pub fn new(
        dir: &Path,
        manifest: &'static str,
        (name, version): (Option<String>, Option<String>),
        entry: impl FnOnce(&str) -> String,
        target: Option<&str>,
    ) -> Result<Self, BuildError> {
        let wrong = |what: String| BuildError::Manifest { file: dir.join(manifest), what };
        let name = name.ok_or_else(|| wrong("it gives no name".into()))?;
        // It becomes a file's name.
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
            return Err(wrong(format!("the name {name:?} should have letters, digits, '-' and '_' alone")));
        }
        let entry = entry(&name);
        Ok(Self {
            dir: dir.to_owned(),
            version,
            entry,
            target: straight(&dir.join(target.unwrap_or("target"))),
            name,
        })
    }

    pub fn job(&self) -> Job {
        Job {
            name: self.name.clone(),
            place: self.target.join("components").join(format!("{}.wasm", self.name)),
        }
    }

    /// A folder for what is between the source and the component.
    pub fn work_dir(&self) -> Result<PathBuf, BuildError> {
        let dir = self.target.join("guests").join(&self.name);
        fs::create_dir_all(&dir).map_err(super::file("create", &dir))?;
        Ok(dir)
    }

    /// The contract: the project's own copy, or else this program's.
    pub fn contract(&self, ours: &Path) -> PathBuf {
        let own = ["vendor/wit", "wit"].map(|place| self.dir.join(place));
        own.into_iter().find(|place| place.join("world.wit").is_file()).unwrap_or_else(|| ours.join("wit"))
    }
}

/// Without `..`, for a folder that need not be there yet.
pub fn straight(path: &Path) -> PathBuf {
    let mut straight = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                straight.pop();
            }
            Component::CurDir => {}
            part => straight.push(part),
        }
    }
    straight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_tells_its_language_by_one_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let told = || Language::of(dir.path());
        assert!(matches!(told(), Err(BuildError::NoProject { .. })));
        fs::write(dir.path().join("package.json"), "{}").unwrap();
        assert_eq!(told().unwrap(), Language::JavaScript);
        fs::write(dir.path().join("Cargo.toml"), "").unwrap();
        let said = told().unwrap_err().to_string();
        assert!(said.contains("Cargo.toml and package.json"), "{said}");
    }

    #[test]
    fn a_target_is_told_from_the_manifest() {
        let project = |target| {
            Project::new(
                Path::new("/w/guests/p"),
                "package.json",
                (Some("p".into()), None),
                str::to_owned,
                target,
            )
        };
        let place = |target| project(target).unwrap().job().place;
        assert_eq!(place(None), Path::new("/w/guests/p/target/components/p.wasm"));
        assert_eq!(place(Some("../../target")), Path::new("/w/target/components/p.wasm"));
    }

    #[test]
    fn a_name_is_a_files_name() {
        let named = |name: &str| {
            Project::new(Path::new("/p"), "package.json", (Some(name.to_owned()), None), str::to_owned, None)
                .map(|project| project.job().place)
        };
        assert_eq!(named("draft").unwrap(), Path::new("/p/target/components/draft.wasm"));
        for name in ["", "../x", "@scope/x", ".x", "a b"] {
            assert!(named(name).is_err(), "{name}");
        }
    }
}
