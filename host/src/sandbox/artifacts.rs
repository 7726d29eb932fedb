//! Compiled components on disk. What is read from there runs as machine code in this process, so only
//! what this host wrote itself is taken: in a directory that is only its owner's, each file under a
//! keyed hash, checked in the very bytes that are then loaded. Anything else counts as not there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use wasmtime::Engine;
use wasmtime::component::Component;

use super::errors::SandboxError;
use super::seal::Seal;
use crate::model::ids::Digest;

/// Larger than what the largest component compiles to; a larger file is not read.
const FILE_BYTES_MAX: u64 = 2 << 30;

pub(super) struct Artifacts {
    dir: PathBuf,
    /// Other engines' artifacts lie in the same directory under other names.
    seal: Seal,
}

impl Artifacts {
    pub fn open(dir: PathBuf, compatibility: [u8; 32]) -> Result<Self, SandboxError> {
        let failed = |what: String| SandboxError::CacheDir { path: dir.clone(), what };
        own_directory(&dir).map_err(failed)?;
        sweep(&dir);
        let key = own_key(&dir).map_err(|error| failed(error.to_string()))?;
        Ok(Self { dir, seal: Seal::new(key, compatibility) })
    }

    pub fn load(&self, engine: &Engine, digest: Digest) -> Option<Component> {
        let path = self.path(digest);
        let mut file = File::open(&path).ok()?;
        if file.metadata().ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        let Some(component) = load(engine, &self.seal, digest, &content) else {
            tracing::warn!(path = %path.display(), "a compiled component is not as this host wrote it, and is compiled again");
            return None;
        };
        component
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "a compiled component cannot be loaded, and is compiled again"))
            .ok()
    }

    /// The next process does without if this fails, so it is told but not an error.
    pub fn store(&self, digest: Digest, component: &Component) {
        let stored = component.serialize().map_err(|error| error.to_string()).and_then(|code| {
            let tag = self.seal.tag(digest, &code);
            write_new(&self.dir, &self.path(digest), &[&tag, &code]).map_err(|error| error.to_string())
        });
        if let Err(error) = stored {
            tracing::warn!(%digest, error, "a compiled component could not be kept");
        }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(format!("{}.{}.bin", digest.hex(), hex::encode(&self.seal.compatibility()[..8])))
    }
}

/// Compiled code under a seal, as a component; `None` if the seal does not hold.
#[allow(unsafe_code, reason = "wasmtime cannot tell a forged artifact from its own; the seal can")]
pub(super) fn load(
    engine: &Engine,
    seal: &Seal,
    digest: Digest,
    sealed: &[u8],
) -> Option<wasmtime::Result<Component>> {
    let code = seal.open(digest, sealed)?;
    // SAFETY: `code` is what the engine's own compiler returned on an engine that is compatible with this
    // one: the seal that was just checked, in these very bytes, covers them and the engine, and is made with
    // a key that only this host's own directory holds, or the compile process that it was made up for.
    Some(unsafe { Component::deserialize(engine, code) })
}

/// Makes it, or finds it as this host would have made it.
fn own_directory(dir: &Path) -> Result<(), String> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(|error| error.to_string())?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.to_string()),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(dir).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("it is a link or a file; name a directory, or one that does not exist yet".into());
    }
    // A file that this process makes is owned by whom this process runs as.
    let probe = temporary(dir);
    let own = create(&probe)
        .and_then(|file| file.metadata())
        .map_err(|error| format!("it cannot be written to: {error}"))?
        .uid();
    fs::remove_file(&probe).map_err(|error| error.to_string())?;
    if found.uid() != own {
        return Err("it belongs to another user; name a directory of your own".into());
    }
    if found.mode() & 0o022 != 0 {
        return Err("others may write to it; empty it and make it yours alone (chmod 700)".into());
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What a process left behind that ended while it wrote. A young one may still be at it.
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let old =
            entry.metadata().and_then(|found| found.modified()).ok().and_then(|then| then.elapsed().ok());
        if entry.path().extension() == Some("tmp".as_ref()) && old > Some(Duration::from_secs(3_600)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn own_key(dir: &Path) -> io::Result<[u8; 32]> {
    let path = dir.join("key");
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh).map_err(|error| io::Error::other(error.to_string()))?;
    let new = temporary(dir);
    create(&new)?.write_all(&fresh)?;
    // Of several processes that start at once, one puts its key there, whole; the others take that.
    let linked = fs::hard_link(&new, &path);
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    read_key(&path)?.ok_or_else(|| io::Error::other("its file `key` was removed meanwhile; try again"))
}

fn read_key(path: &Path) -> io::Result<Option<[u8; 32]>> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if !found.is_file() || found.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "its file `key` is not the owner's alone; remove it, and a new one is made",
        ));
    }
    let key = fs::read(path)?;
    let key = key
        .try_into()
        .map_err(|_| io::Error::other("its file `key` is damaged; remove it, and a new one is made"))?;
    Ok(Some(key))
}

/// All or nothing, also for whoever reads it at the same time.
fn write_new(dir: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let new = temporary(dir);
    let written = create(&new).and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part)));
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn temporary(dir: &Path) -> PathBuf {
    dir.join(format!(".{}.tmp", uuid::Uuid::now_v7()))
}

#[cfg(test)]
mod tests {
    use super::super::seal::TAG_BYTES;
    use super::*;

    struct Bench {
        engine: Engine,
        artifacts: Artifacts,
        component: Component,
        _dir: tempfile::TempDir,
    }

    const DIGEST: Digest = Digest([7; 32]);

    fn bench() -> Bench {
        let engine = super::super::engine::engine().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let artifacts =
            Artifacts::open(dir.path().join("cache"), super::super::engine::compatibility(&engine)).unwrap();
        let component = Component::new(&engine, wat::parse_str("(component)").unwrap()).unwrap();
        Bench { engine, artifacts, component, _dir: dir }
    }

    #[test]
    fn an_artifact_is_found_again_also_by_the_next_process() {
        let bench = bench();
        assert!(bench.artifacts.load(&bench.engine, DIGEST).is_none());
        bench.artifacts.store(DIGEST, &bench.component);
        assert!(bench.artifacts.load(&bench.engine, DIGEST).is_some());
        let again =
            Artifacts::open(bench.artifacts.dir.clone(), *bench.artifacts.seal.compatibility()).unwrap();
        assert!(again.load(&bench.engine, DIGEST).is_some());
        assert_eq!(fs::metadata(again.path(DIGEST)).unwrap().mode() & 0o777, 0o600);
        let left: Vec<_> = fs::read_dir(&again.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the key and the artifact: {left:?}");
    }

    #[test]
    fn a_replaced_truncated_or_foreign_artifact_is_ignored() {
        let Bench { engine, artifacts, component, _dir } = bench();
        artifacts.store(DIGEST, &component);
        let path = artifacts.path(DIGEST);
        let good = fs::read(&path).unwrap();
        let other = Digest([8; 32]);

        fs::copy(&path, artifacts.path(other)).unwrap();
        assert!(artifacts.load(&engine, other).is_none(), "another component's artifact");

        for at in [0, TAG_BYTES, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(artifacts.load(&engine, DIGEST).is_none(), "byte {at}");
        }
        for length in [0, 10, TAG_BYTES, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            assert!(artifacts.load(&engine, DIGEST).is_none(), "{length} bytes");
        }
        fs::write(&path, component.serialize().unwrap()).unwrap();
        assert!(artifacts.load(&engine, DIGEST).is_none(), "without a tag");

        artifacts.store(DIGEST, &component);
        assert!(artifacts.load(&engine, DIGEST).is_some(), "overwritten");
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path, word: &str| {
            let error = Artifacts::open(path.to_owned(), [0; 32]).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        };
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
        refused(&open, "others may write");

        let readable = dir.path().join("readable");
        fs::create_dir(&readable).unwrap();
        fs::set_permissions(&readable, fs::Permissions::from_mode(0o755)).unwrap();
        Artifacts::open(readable.clone(), [0; 32]).unwrap();
        assert_eq!(fs::metadata(&readable).unwrap().mode() & 0o777, 0o700);

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&readable, &link).unwrap();
        refused(&link, "link");

        fs::write(readable.join("key"), b"short").unwrap();
        refused(&readable, "damaged");
    }
}
