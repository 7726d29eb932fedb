//! What the sandbox refuses, and what it could not do. What a node does wrong while it runs is neither:
//! that is [`super::attempt::End`].

use std::path::PathBuf;

use crate::model::error::{ErrorRecord, Kind};
use crate::model::ids::Digest;
use crate::model::way_out::WayOut;

/// Bytes that are no component that may be installed, and why. The way out is in the message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidComponent {
    #[error("the file has {value} bytes; a component may have {limit} (component_bytes)")]
    TooLarge { limit: u64, value: u64 },
    #[error("this is {found}, not a WebAssembly component")]
    NotWasm { found: &'static str },
    #[error("this is a core WebAssembly module, not a component; wrap it with `wasm-tools component new`")]
    CoreModule,
    #[error(
        "this is a precompiled artifact; the host runs only what it compiled itself, so install the \
         component that it was made from"
    )]
    Precompiled,
    #[error("the component is damaged or cut short, or uses what this host does not take: {what}")]
    Malformed { what: String },
    #[error(
        "the component imports {}, which no node may; a node may import holdpoint:node@0.1 and wasi:io, \
         clocks, random, cli, filesystem and sockets @0.2",
        .names.join(", ")
    )]
    ForbiddenImports { names: Vec<String> },
    #[error(
        "the component does not export holdpoint:node/handler@0.1; it exports {exports}; build it for the \
         world holdpoint:node/node"
    )]
    NoHandler { exports: String },
    #[error(
        "compiling the component would take too long: its code amounts to {value} units of work, {share} of them \
         in function {function}, and {limit} are the most; let the compiler optimise it, or split that function"
    )]
    TooCostly { limit: u64, value: u64, function: u32, share: u64 },
    #[error("compiling the component took more than {limit} ({name}); {}", way_out(.name))]
    CompileLimit { name: &'static str, limit: u64 },
    #[error("the component does not fit the contract holdpoint:node@0.1: {what}")]
    Contract { what: String },
    #[error("the component cannot be described: {}", .error.message)]
    Describe { error: ErrorRecord },
    #[error("the component describes itself with a bad {field}: {what}")]
    Description { field: &'static str, what: String },
}

impl InvalidComponent {
    /// For whoever installs it: a limit is named as it is when a run meets it.
    pub fn record(&self) -> ErrorRecord {
        match self {
            Self::TooLarge { limit, .. } => ErrorRecord::limit("component_bytes", *limit, self.to_string()),
            Self::CompileLimit { name, limit } => ErrorRecord::limit(name, *limit, self.to_string()),
            Self::Describe { error } => {
                let kind = if error.kind == Kind::Limit { Kind::Limit } else { Kind::Invalid };
                ErrorRecord { kind, message: self.to_string(), ..error.clone() }
            }
            Self::NotWasm { .. } | Self::CoreModule => {
                ErrorRecord::new(Kind::Invalid, self.to_string()).way_out(WayOut::Build)
            }
            _ => ErrorRecord::new(Kind::Invalid, self.to_string()),
        }
    }
}

fn way_out(limit: &str) -> &'static str {
    match limit {
        "compile_ms" => "build it with optimisations, or split it, or let the operator give it more time",
        _ => "build it with optimisations, or split it, or let the operator give it more memory",
    }
}

/// What the sandbox could not do.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(transparent)]
    Invalid(#[from] InvalidComponent),
    #[error(
        "the component's bytes are {actual}, not {expected}: they were damaged on their way; send them again"
    )]
    WrongDigest { expected: Digest, actual: Digest },
    #[error("no WebAssembly engine can be set up on this machine: {what}")]
    Engine { what: String },
    #[error("the directory for compiled components, {}, cannot be used: {what}", .path.display())]
    CacheDir { path: PathBuf, what: String },
    #[error("the component could not be compiled: {what}")]
    Compile { what: String },
    /// It was cut short for want of time or memory, which says nothing of the component.
    #[error("the component could not be asked what it needs: {}", .error.message)]
    Describe { error: ErrorRecord },
    #[error("the compile process {} cannot be started: {source}", .program.display())]
    Compiler { program: PathBuf, source: std::io::Error },
}

/// With its causes, for whoever installs; no guest sees it.
pub(super) fn chain(error: &wasmtime::Error) -> String {
    let mut text = format!("{error:#}");
    if text.len() > 1_000 {
        text.truncate(text.floor_char_boundary(1_000));
        text.push('…');
    }
    text
}
