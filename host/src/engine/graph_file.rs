//! Reading a graph, or a component, from its file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::error::EngineError;
use crate::model::graph::GraphSpec;
use crate::sandbox::InvalidComponent;

/// The file is no graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphFileError {
    #[error("cannot read the graph {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} is no graph file: {message}")]
    Parse { path: String, message: String },
    #[error("{path} has {value} bytes; a graph file has at most {limit} (graph_bytes)")]
    TooLarge { path: String, limit: u64, value: u64 },
}

impl GraphSpec {
    /// Reads a graph file; component paths are resolved against its folder.
    pub fn from_file(path: &Path) -> Result<Self, GraphFileError> {
        let shown = path.display().to_string();
        let failed = |source| GraphFileError::Read { path: shown.clone(), source };
        let bytes = read(path, GRAPH_BYTES_MAX).map_err(|unread| match unread {
            Unread::Failed(source) => failed(source),
            Unread::TooLarge { limit, value } => {
                GraphFileError::TooLarge { path: shown.clone(), limit, value }
            }
        })?;
        let no_text = |_| failed(io::Error::other("it is no UTF-8 text; a graph is a TOML file"));
        let text = String::from_utf8(bytes).map_err(no_text)?;
        let mut spec =
            Self::from_toml(&text).map_err(|message| GraphFileError::Parse { path: shown, message })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for node in spec.nodes.values_mut() {
            for file in [&mut node.component, &mut node.graph].into_iter().flatten() {
                if !file.starts_with("sha256:") {
                    *file = folder.join(&*file).display().to_string();
                }
            }
        }
        Ok(spec)
    }
}

const GRAPH_BYTES_MAX: u64 = 4 << 20;

/// A component's bytes.
pub fn read_component(path: &Path, bytes_max: u64) -> Result<Vec<u8>, EngineError> {
    let shown = path.display().to_string();
    read(path, bytes_max).map_err(|unread| match unread {
        Unread::Failed(source) => EngineError::ComponentFile { path: shown, source },
        Unread::TooLarge { limit, value } => {
            EngineError::Component { name: shown, source: InvalidComponent::TooLarge { limit, value } }
        }
    })
}

enum Unread {
    Failed(io::Error),
    TooLarge { limit: u64, value: u64 },
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A file that is one, and all of it.
fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unread> {
    let not_a_file = || io::Error::other("it is no regular file");
    // Looked at before it is opened, since to open a pipe waits for whoever writes it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_a_file().into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    (&file).take(bytes_max + 1).read_to_end(&mut bytes)?;
    let value = bytes.len() as u64;
    if value > bytes_max {
        return Err(Unread::TooLarge { limit: bytes_max, value: value.max(file.metadata()?.len()) });
    }
    Ok(bytes)
}
