//! `holdpoint build`: from a project to a component, in whichever language it is written. Drives each
//! language's own tool; opens no database.

mod javascript;
mod places;
mod progress;
mod project;
mod python;
mod report;
mod rust;
mod stamp;
mod tools;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::Shell;
use super::document::Said;
use super::failure::Failure;
use crate::model::{Digest, NodeInfo};
use progress::Progress;
pub use project::Language;
use rust::NoRoad;
use tools::{ToolError, Tools};

pub const ABOUT: &str = "\
Build nodes into components: Rust, Python and JavaScript (or TypeScript).

DIR is the folder of a node: one with a Cargo.toml, a pyproject.toml or a package.json. A Cargo workspace
stands for all nodes in it. The components are written to target/components, where a graph can name them.

Rust needs cargo and the target wasm32-wasip2 (`rustup target add wasm32-wasip2`). Python needs python3 with
venv, JavaScript node with npm; the tools that make components of them are fetched once, at versions of this
program's choice, into its own cache folder. Where something is missing, the error says how to get it.

    holdpoint build nodes/classify nodes/draft";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders of nodes to build; a workspace's folder stands for all nodes in it
    #[arg(value_name = "DIR", default_value = ".")]
    pub dirs: Vec<PathBuf>,

    /// Write the component to FILE, not to target/components
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// A component on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Built {
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    pub digest: String,
    pub language: Language,
    /// `false`: nothing had changed since it was last built.
    pub fresh: bool,
    pub imports: Vec<String>,
    pub declares: Option<NodeInfo>,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "there is no node in {}: no Cargo.toml, pyproject.toml or package.json; \
         `holdpoint new NAME --lang rust|python|javascript` makes one",
        .dir.display()
    )]
    NoProject { dir: PathBuf },

    #[error(
        "{} has {}; a node's folder has one of these, so that its language is told by it",
        .dir.display(),
        .manifests.join(" and ")
    )]
    Several { dir: PathBuf, manifests: Vec<&'static str> },

    #[error("{}: {what}", .file.display())]
    Manifest { file: PathBuf, what: String },

    #[error("cannot run {program}: {source}; nodes in Rust are built with cargo, which comes with Rust")]
    NoCargo { program: String, source: io::Error },

    #[error("{} holds no crate that cargo can read\n{output}", .dir.display())]
    NoCrate { dir: PathBuf, output: String },

    #[error(
        "{name} is not built as a component; write into {}:\n\n    [lib]\n    crate-type = [\"cdylib\"]\n",
        .manifest.display()
    )]
    NotANode { name: String, manifest: PathBuf },

    #[error("no crate in the workspace {} is a node: a cdylib that uses holdpoint-guest", .dir.display())]
    NoNodes { dir: PathBuf },

    #[error("-o {} is one file, and there are {} nodes to build: {}", .file.display(), .names.len(), .names.join(", "))]
    OneFile { file: PathBuf, names: Vec<String> },

    #[error("{name} would be built twice, from {} and from {}; give one of them another name", .dirs[0].display(), .dirs[1].display())]
    Twice { name: String, dirs: [PathBuf; 2] },

    #[error(transparent)]
    NoRoad(#[from] NoRoad),

    #[error(transparent)]
    Tool(#[from] ToolError),

    #[error("cargo could not build {}\n{output}", .names.join(", "))]
    Compile { names: Vec<String>, output: String },

    #[error("{tool} could not build {name}\n{output}")]
    Componentize { tool: &'static str, name: String, output: String },

    #[error(
        "{tool} made {} for {name}, which is no component{hint}",
        .path.display()
    )]
    NotAComponent { tool: &'static str, name: String, path: PathBuf, hint: &'static str },

    #[error("cannot {what} {}: {source}", .path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

impl BuildError {
    /// Whether what was asked, or a file that it names, is not what it must be.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::NoProject { .. }
                | Self::Several { .. }
                | Self::Manifest { .. }
                | Self::NoCrate { .. }
                | Self::NotANode { .. }
                | Self::NoNodes { .. }
                | Self::OneFile { .. }
                | Self::Twice { .. }
        )
    }
}

/// One component to be made, and where it is put.
struct Job {
    name: String,
    place: PathBuf,
}

/// What a language's tool made.
struct Made {
    file: PathBuf,
    fresh: bool,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    report::report(made(args, shell).await?, shell).await
}

/// For other commands, which take a node by its folder.
pub async fn nodes(dirs: Vec<PathBuf>, shell: &Shell) -> Result<Vec<Built>, Failure> {
    made(Args { dirs, output: None }, shell).await
}

async fn made(args: Args, shell: &Shell) -> Result<Vec<Built>, Failure> {
    let (progress, tools) = (Progress::new(&shell.screen), Tools::new(shell.cache()));
    let built = tokio::task::spawn_blocking(move || {
        let built = build(&args, &tools, &progress);
        progress.rest();
        built
    })
    .await;
    Ok(built.map_err(|error| Failure::Host(format!("the build broke off: {error}")))??)
}

/// Builds every node in `args.dirs`: one cargo call a workspace, then the others, one by one.
fn build(args: &Args, tools: &Tools, progress: &Progress) -> Result<Vec<Built>, BuildError> {
    let of = |language| -> Result<Vec<PathBuf>, BuildError> {
        let told = args.dirs.iter().map(|dir| Ok((dir, Language::of(dir)?)));
        let told = told.collect::<Result<Vec<_>, BuildError>>()?;
        Ok(told.into_iter().filter(|(_, found)| *found == language).map(|(dir, _)| dir.clone()).collect())
    };
    let rust = rust::plan(&of(Language::Rust)?)?;
    let python = projects(&of(Language::Python)?, python::project)?;
    let javascript = projects(&of(Language::JavaScript)?, javascript::project)?;

    let names: Vec<String> = rust
        .jobs()
        .iter()
        .map(|job| &job.name)
        .chain(python.iter().map(|project| &project.name))
        .chain(javascript.iter().map(|project| &project.name))
        .cloned()
        .collect();
    if let Some(file) = &args.output
        && names.len() != 1
    {
        return Err(BuildError::OneFile { file: file.clone(), names });
    }
    let place = |job: Job| Job { place: args.output.clone().unwrap_or(job.place), ..job };

    let mut built = Vec::new();
    if !rust.jobs().is_empty() {
        for (job, made) in rust.jobs().into_iter().zip(rust.build(progress)?) {
            built.push(deliver(place(job), &made, Language::Rust)?);
        }
    }
    for project in &python {
        let made = python::build(project, tools, progress)?;
        built.push(deliver(place(project.job()), &made, Language::Python)?);
    }
    for project in &javascript {
        let made = javascript::build(project, tools, progress)?;
        built.push(deliver(place(project.job()), &made, Language::JavaScript)?);
    }
    Ok(built)
}

fn projects(
    dirs: &[PathBuf],
    read: impl Fn(&Path) -> Result<project::Project, BuildError>,
) -> Result<Vec<project::Project>, BuildError> {
    let mut projects: Vec<project::Project> = Vec::new();
    for dir in dirs {
        let project = read(&dir.canonicalize().map_err(file("find", dir))?)?;
        match projects.iter().find(|other| other.job().place == project.job().place) {
            Some(same) if same.dir == project.dir => {}
            Some(other) => {
                let dirs = [other.dir.clone(), project.dir];
                return Err(BuildError::Twice { name: project.name, dirs });
            }
            None => projects.push(project),
        }
    }
    Ok(projects)
}

fn deliver(job: Job, made: &Made, language: Language) -> Result<Built, BuildError> {
    // The first eight bytes of a component; a core module has 01 00 00 00 after the name.
    const PREAMBLE: &[u8] = b"\0asm\x0d\x00\x01\x00";
    let Job { name, place } = job;
    let bytes = match fs::read(&made.file) {
        Ok(bytes) if bytes.starts_with(PREAMBLE) => bytes,
        _ => {
            let hint = match language {
                Language::Rust => "; does a config.toml replace the linker of wasm32-wasip2?",
                Language::Python | Language::JavaScript => "",
            };
            let (tool, path) = (language.tool(), made.file.clone());
            return Err(BuildError::NotAComponent { tool, name, path, hint });
        }
    };
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder).map_err(file("create", folder))?;
    }
    // Whole or not at all, for a host that reads the old one meanwhile.
    let part = place.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, &bytes).map_err(file("write", &part))?;
    fs::rename(&part, &place).map_err(file("write", &place))?;
    Ok(Built {
        name,
        path: place,
        bytes: bytes.len() as u64,
        digest: Digest::of(&bytes).to_string(),
        language,
        fresh: made.fresh,
        imports: Vec::new(),
        declares: None,
    })
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    move |source| BuildError::File { what, path: path.to_owned(), source }
}
