//! `holdpoint inspect`: what a component is, and what a graph gives it, before anybody runs it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use wasmparser::{Parser, Payload};

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{inspect_graph, install, store, tenant};
use crate::engine::{EngineError, Host};
use crate::model::{Digest, ErrorRecord, GraphSpec, NodeInfo};
use crate::sandbox::Weight;

pub const ABOUT: &str = "\
Tell what a component imports, declares and weighs, and whether it can be installed, and if not, why.

It is checked as `install` would check it, in a sandbox, and nothing is kept. What a component declares is
what it asks for; what it gets is for the graph to say. Of a graph's file (.toml) it tells for each node what
that is: what it gets, what it declares and does not get, and what the graph grants it that is refused, and
why. Exit status 2: it cannot be installed, or run.

    holdpoint inspect target/components/classify.wasm
    holdpoint inspect sha256:…                        # one that is installed
    holdpoint inspect guests/issue-desk.toml";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A component's file, the digest of an installed component, or a graph's file (.toml)
    #[arg(value_name = "FILE|DIGEST|GRAPH")]
    target: String,
}

/// What there is to say of a component.
#[derive(Debug, Serialize)]
pub struct Inspection {
    pub component: String,
    pub digest: Digest,
    bytes: usize,
    /// `None`: it cannot be read to its end.
    weight: Option<Weight>,
    imports: Vec<String>,
    /// Of the imports, those that no node may have.
    refused_imports: Vec<String>,
    exports: Vec<String>,
    /// `None`: it cannot be asked.
    pub declares: Option<NodeInfo>,
    pub installable: bool,
    pub error: Option<ErrorRecord>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    // Without a database: whatever it is, it leaves nothing behind but its compiled form.
    let host = shell.builder()?.open().await?;
    if is_graph(&args.target) {
        return inspect_graph::run(&args.target, &host, shell).await;
    }
    let bytes = bytes_of(shell, &args.target).await?;
    let inspection = inspect(&host, args.target, bytes).await?;
    let exit = if inspection.installable { Exit::Completed } else { Exit::Usage };
    Ok(Said::new(exit, &inspection, text(&inspection)))
}

/// By its name: a component may be anything, and is told what it is not.
pub fn is_graph(target: &str) -> bool {
    Path::new(target).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// A component's, by its digest or its file.
pub async fn bytes_of(shell: &Shell, component: &str) -> Result<Vec<u8>, Failure> {
    if !component.starts_with("sha256:") {
        return Ok(install::read(Path::new(component)).await?);
    }
    let digest: Digest = component.parse().map_err(|error| Failure::argument(format!("{error}")))?;
    let host = shell.known_host().await?;
    let bytes = store(&host)?.component(&tenant(), digest).await?;
    host.close().await;
    bytes.ok_or_else(|| {
        Failure::NotThere(format!("{digest} is not installed in {}", shell.options.db.display()))
    })
}

/// Hands a host without a database the components that a graph names by their digests.
pub async fn fetch(shell: &Shell, host: &Host, graph: &GraphSpec) -> Result<(), Failure> {
    for component in graph.nodes.values().filter_map(|node| node.component.as_ref()) {
        if component.starts_with("sha256:") {
            host.install(component, bytes_of(shell, component).await?).await?;
        }
    }
    Ok(())
}

pub async fn inspect(host: &Host, component: String, bytes: Vec<u8>) -> Result<Inspection, Failure> {
    let (digest, size) = (Digest::of(&bytes), bytes.len());
    let (imports, exports) = names(&bytes);
    let is_refused = |name: &&String| !host.sandbox().takes_import(name);
    let refused_imports = imports.iter().filter(is_refused).cloned().collect();
    let weight = match size as u64 <= host.limits().component_bytes {
        true => weigh(host, bytes.clone()).await,
        false => None,
    };
    let (declares, error) = match host.install(&component, bytes).await {
        Ok(installed) => (Some(installed.info), None),
        Err(error) => (None, Some(refusal(error)?)),
    };
    let installable = error.is_none();
    Ok(Inspection {
        component,
        digest,
        bytes: size,
        weight,
        imports,
        refused_imports,
        exports,
        declares,
        installable,
        error,
    })
}

/// Reads all code, which takes a while for a language's runtime.
async fn weigh(host: &Host, bytes: Vec<u8>) -> Option<Weight> {
    let sandbox = host.sandbox().clone();
    tokio::task::spawn_blocking(move || sandbox.weigh(&bytes).ok()).await.ok()?
}

/// Why it cannot be installed; other errors are the host's own.
pub fn refusal(error: EngineError) -> Result<ErrorRecord, Failure> {
    let failure = Failure::from(error);
    match failure.exit() {
        Exit::Usage => Ok(failure.record()),
        _ => Err(failure),
    }
}

/// What it imports and exports, as far as it can be read.
pub fn names(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let (mut imports, mut exports) = (BTreeSet::new(), BTreeSet::new());
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::Version { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth -= 1,
            Ok(Payload::ComponentImportSection(section)) if depth == 1 => {
                imports.extend(section.into_iter().flatten().map(|import| import.name.name.to_owned()));
            }
            Ok(Payload::ComponentExportSection(section)) if depth == 1 => {
                exports.extend(section.into_iter().flatten().map(|export| export.name.name.to_owned()));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    (imports.into_iter().collect(), exports.into_iter().collect())
}

/// In one line.
pub fn weighs(inspection: &Inspection) -> String {
    let size = format!("{} kB", inspection.bytes.div_ceil(1000));
    match &inspection.weight {
        None => size,
        Some(weight) => {
            // In tenths, since most take less than one in a hundred.
            let share = weight.work.saturating_mul(1_000) / weight.work_max.max(1);
            let (functions, whole, tenth) = (weight.functions, share / 10, share % 10);
            format!("{size}, {functions} functions, {whole}.{tenth} % of the work that compiling may take")
        }
    }
}

fn text(inspection: &Inspection) -> String {
    let digest = inspection.digest.to_string();
    let mut text = String::new();
    if inspection.component != digest {
        let _ = writeln!(text, "{}", harmless(&inspection.component));
    }
    let _ = writeln!(text, "{digest}  {}", weighs(inspection));
    if let Some(info) = &inspection.declares {
        let _ = writeln!(text, "\n{} {}", harmless(&info.name), harmless(&info.version));
        for (what, names) in [
            ("reads", &info.reads),
            ("writes", &info.writes),
            ("routes", &info.routes),
            ("effects", &info.effects),
        ] {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            let _ = writeln!(text, "    {what:<8} {}", harmless(&names));
        }
    }
    for (what, names) in [("imports", &inspection.imports), ("exports", &inspection.exports)] {
        if !names.is_empty() {
            let _ = writeln!(text, "\n{what}");
        }
        for name in names {
            let refused = if what == "imports" && inspection.refused_imports.contains(name) {
                "   refused: no node may import it"
            } else {
                ""
            };
            let _ = writeln!(text, "    {}{refused}", harmless(name));
        }
    }
    let _ = match &inspection.error {
        None => writeln!(text, "\ncan be installed"),
        Some(error) => writeln!(text, "\ncannot be installed: {}", harmless(&error.message)),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_component_itself_are_read() {
        let bytes = wat::parse_str(
            r#"(component
                (import "a:b/c@1.0.0" (instance))
                (component (import "inner" (func)))
                (instance $i)
                (export "d:e/f@1.0.0" (instance $i)))"#,
        )
        .unwrap();
        assert_eq!(names(&bytes), (vec!["a:b/c@1.0.0".to_owned()], vec!["d:e/f@1.0.0".to_owned()]));
        assert_eq!(names(b"no component"), (vec![], vec![]));
    }
}
