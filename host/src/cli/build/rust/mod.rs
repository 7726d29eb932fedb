//! Nodes in Rust: one cargo call a workspace, by whichever road this machine has.

mod call;
mod road;
mod workspace;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::Stdio,
    thread,
};

use serde::Deserialize;

use super::{BuildError, Job, Made, progress::Progress};
use call::{Call, clean};
pub use road::NoRoad;
use road::{Found, TARGET};
use workspace::{Workspace, metadata, profile};

/// What is to be built of `dirs`: folders of crates, or of workspaces.
pub struct Plan(BTreeMap<PathBuf, Workspace>);

pub fn plan<'a>(dirs: impl IntoIterator<Item = &'a PathBuf>) -> Result<Plan, BuildError> {
    let mut workspaces: BTreeMap<PathBuf, Workspace> = BTreeMap::new();
    for dir in dirs {
        let found = metadata(dir)?.nodes(dir)?;
        workspaces.entry(found.root.clone()).or_insert_with(|| found.without_nodes()).add(found.nodes);
    }
    Ok(Plan(workspaces))
}

impl Plan {
    pub fn jobs(&self) -> Vec<Job> {
        let job = |workspace: &Workspace, name: String| Job {
            place: workspace.target.join("components").join(format!("{name}.wasm")),
            name,
        };
        self.0
            .values()
            .flat_map(|workspace| workspace.names().into_iter().map(|name| job(workspace, name)))
            .collect()
    }

    /// In the order of [`Self::jobs`].
    pub fn build(&self, progress: &Progress) -> Result<Vec<Made>, BuildError> {
        let mut all = Vec::new();
        for workspace in self.0.values() {
            let road = Found::look(&workspace.root).road()?;
            let made = compile(workspace, &Call::new(workspace, &road, profile(&workspace.root)), progress)?;
            for node in &workspace.nodes {
                let file = made.get(&node.id).cloned().unwrap_or_else(|| "no .wasm file".into());
                all.push(Made { file, fresh: true });
            }
        }
        Ok(all)
    }
}

/// Runs the call; gives the component of each package id.
fn compile(
    workspace: &Workspace,
    call: &Call,
    progress: &Progress,
) -> Result<BTreeMap<String, PathBuf>, BuildError> {
    let names = workspace.names();
    // At a terminal cargo shows best itself how far it is.
    let watched = progress.is_watched();
    let is_first = !workspace.target.join("guests").join(TARGET).exists();
    let wait = if is_first { "; the first build takes minutes" } else { "" };
    progress.step(format!("building {} for {TARGET}{wait}", names.join(", ")));
    if watched {
        progress.rest();
    }
    let mut child = clean(&call.program)
        .args(&call.args)
        .envs(call.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(if watched { Stdio::inherit() } else { Stdio::piped() })
        .spawn()
        .map_err(|source| BuildError::NoCargo { program: call.program.display().to_string(), source })?;

    let said = child.stderr.take();
    let mut messages = Vec::new();
    let output = thread::scope(|threads| {
        // Both at once, or cargo waits for the one that nobody reads.
        let said = threads.spawn(move || {
            let mut output = String::new();
            for line in
                said.into_iter().flat_map(|said| BufReader::new(said).split(b'\n')).map_while(Result::ok)
            {
                let line = String::from_utf8_lossy(&line);
                if is_status(&line) {
                    progress.line(&line);
                }
                output.push_str(&line);
                output.push('\n');
            }
            output
        });
        if let Some(stdout) = &mut child.stdout {
            let _ = stdout.read_to_end(&mut messages);
        }
        said.join().unwrap_or_default()
    });
    match child.wait() {
        Ok(status) if status.success() => Ok(components(&String::from_utf8_lossy(&messages))),
        _ => Err(BuildError::Compile { names, output }),
    }
}

/// What says how far cargo is; all the rest is for a failure's report.
fn is_status(line: &str) -> bool {
    ["Compiling ", "Downloading ", "Downloaded ", "Finished ", "Blocking "]
        .iter()
        .any(|word| line.trim_start().starts_with(word))
}

fn components(messages: &str) -> BTreeMap<String, PathBuf> {
    #[derive(Deserialize)]
    struct Artifact {
        package_id: String,
        filenames: Vec<PathBuf>,
    }
    messages
        .lines()
        .filter(|line| line.contains("\"compiler-artifact\""))
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter_map(|artifact| {
            let wasm = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "wasm");
            artifact.filenames.into_iter().find(wasm).map(|file| (artifact.package_id, file))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_made_is_found_in_its_messages() {
        let messages = r#"
            {"reason":"compiler-artifact","package_id":"id#dep","filenames":["/t/libdep.rlib"]}
            {"reason":"compiler-artifact","package_id":"id#a","filenames":["/t/a.d","/t/a.wasm"]}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(components(messages), BTreeMap::from([("id#a".to_owned(), "/t/a.wasm".into())]));
    }
}
