//! Reading a graph from its file.

use std::path::Path;

use crate::model::graph::GraphSpec;

/// The file is no graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphFileError {
    #[error("cannot read the graph {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} is no graph file: {message}")]
    Parse { path: String, message: String },
}

impl GraphSpec {
    /// Reads a graph file; component paths are resolved against its folder.
    pub fn from_file(path: &Path) -> Result<Self, GraphFileError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| GraphFileError::Read { path: shown.clone(), source })?;
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
