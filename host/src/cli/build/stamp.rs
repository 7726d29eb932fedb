//! Whether a component is what its sources would give. The tools of Python and JavaScript give other bytes
//! every time, and another digest is another component, for which threads that wait do not wait: so what has
//! not changed is not built again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{BuildError, file};
use crate::model::Digest;

/// Of a project's folder: no source.
const NO_SOURCE: [&str; 6] = ["target", "__pycache__", ".git", ".venv", ".mypy_cache", ".pytest_cache"];

pub struct Stamp {
    place: PathBuf,
    text: String,
}

impl Stamp {
    /// What the component in `work_dir` would be made of: every file under `dirs`, and `with`.
    pub fn of(work_dir: &Path, dirs: &[&Path], with: &str) -> Result<Self, BuildError> {
        let mut parts = vec![with.as_bytes().to_vec()];
        for dir in dirs {
            let mut files = Vec::new();
            sources(dir, &mut files)?;
            for path in &files {
                // A folder that was moved as a whole is the same.
                let name = path.strip_prefix(dir).unwrap_or(path);
                parts.push(name.as_os_str().as_encoded_bytes().to_vec());
                parts.push(fs::read(path).map_err(file("read", path))?);
            }
        }
        let sources = Digest::of_parts(parts.iter().map(Vec::as_slice));
        Ok(Self { place: work_dir.join("built"), text: sources.to_string() })
    }

    /// The same for what its sources were made into first, which more than those can leave as it was.
    pub fn of_bundle(work_dir: &Path, bundle: &Path, with: &str) -> Result<Self, BuildError> {
        let text = fs::read(bundle).map_err(file("read", bundle))?;
        let made_of = Digest::of_parts([with.as_bytes(), &text]);
        Ok(Self { place: work_dir.join("bundled"), text: made_of.to_string() })
    }

    /// The component was made of just this, and is as it was then.
    pub fn holds_for(&self, component: &Path) -> bool {
        let made_of = fs::read_to_string(&self.place).unwrap_or_default();
        fs::read(component).is_ok_and(|bytes| made_of == self.line(&bytes))
    }

    /// What it is made of, in one word.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn press(&self, component: &Path) -> Result<(), BuildError> {
        let bytes = fs::read(component).map_err(file("read", component))?;
        fs::write(&self.place, self.line(&bytes)).map_err(file("write", &self.place))
    }

    fn line(&self, component: &[u8]) -> String {
        format!("{} {}\n", self.text, Digest::of(component))
    }
}

fn sources(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).map_err(file("read", dir))?.flatten().map(|entry| entry.path()).collect();
    // The order of a folder is no one's choice.
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = [".db", ".db-wal", ".db-shm", ".wasm", ".md"].iter().any(|end| name.ends_with(end));
        if NO_SOURCE.contains(&&*name) || is_ours || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            sources(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_built_again_when_a_source_or_itself_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (source, work) = (dir.path().join("source"), dir.path().join("work"));
        for folder in [&source.join("__pycache__"), &work] {
            fs::create_dir_all(folder).unwrap();
        }
        let (code, component) = (source.join("a.py"), work.join("a.wasm"));
        fs::write(&code, "1").unwrap();
        fs::write(&component, "made").unwrap();
        let stamp = || Stamp::of(&work, &[&source], "tool 1").unwrap();
        assert!(!stamp().holds_for(&component));
        stamp().press(&component).unwrap();
        assert!(stamp().holds_for(&component));
        fs::write(source.join("__pycache__/a.pyc"), "noise").unwrap();
        assert!(stamp().holds_for(&component));
        assert!(!Stamp::of(&work, &[&source], "tool 2").unwrap().holds_for(&component));
        fs::write(&code, "2").unwrap();
        assert!(!stamp().holds_for(&component));
        fs::write(&code, "1").unwrap();
        fs::write(&component, "damaged").unwrap();
        assert!(!stamp().holds_for(&component));
    }
}
