//! `holdpoint install`: components into the database.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use crate::engine::{EngineError, Installed};

pub const ABOUT: &str = "\
Check components and keep them in the database.

A graph can then name them by their digest, and needs no file: component = \"sha256:…\". `run` installs the
components of its graph by itself.

    holdpoint install target/components/*.wasm";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The components
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.host().await?;
    let mut installed = Vec::new();
    for file in &args.files {
        let path = file.display().to_string();
        let bytes = read(file).await?;
        installed.push((path.clone(), host.install(&path, bytes).await?));
    }
    host.close().await;
    let lines: Vec<String> =
        installed.iter().map(|(path, component)| format!("{}  {path}\n", component.digest)).collect();
    let components: Vec<Value> =
        installed.iter().map(|(path, component)| document(path, component)).collect();
    Ok(Said::new(Exit::Completed, &json!({ "components": components }), lines.concat()))
}

fn document(path: &str, installed: &Installed) -> Value {
    json!({
        "file": path,
        "digest": installed.digest,
        "bytes": installed.bytes,
        "declares": installed.info,
    })
}

pub async fn read(file: &std::path::Path) -> Result<Vec<u8>, EngineError> {
    let failed = |source| EngineError::ComponentFile { path: file.display().to_string(), source };
    tokio::fs::read(file).await.map_err(failed)
}
