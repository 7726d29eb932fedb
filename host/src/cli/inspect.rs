//! `holdpoint inspect`: what a component is, before anybody runs it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use wasmparser::{Parser, Payload};

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::screen::harmless;
use super::{install, store, tenant};
use crate::engine::EngineError;
use crate::model::{Digest, ErrorRecord, NodeInfo};

pub const ABOUT: &str = "\
Tell what a component imports, declares and weighs, and whether it can be installed, and if not, why.

It is checked as `install` would check it, in a sandbox, and nothing is kept. What a component declares is
what it asks for; what it gets is for the graph to say. Exit status 2: it cannot be installed.

    holdpoint inspect target/components/classify.wasm
    holdpoint inspect sha256:…                        # one that is installed";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file, or the digest of an installed component
    #[arg(value_name = "FILE|DIGEST")]
    component: String,
}

/// What there is to say of one.
#[derive(Debug, Serialize)]
struct Inspection {
    component: String,
    digest: Digest,
    bytes: usize,
    imports: Vec<String>,
    exports: Vec<String>,
    /// `None`: it cannot be asked.
    declares: Option<NodeInfo>,
    installable: bool,
    error: Option<ErrorRecord>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let bytes = if args.component.starts_with("sha256:") {
        installed(shell, &args.component).await?
    } else {
        install::read(Path::new(&args.component)).await?
    };
    let inspection = inspect(shell, args.component, bytes).await?;
    let exit = if inspection.installable { Exit::Completed } else { Exit::Usage };
    Ok(Said::new(exit, &inspection, text(&inspection)))
}

async fn installed(shell: &Shell, digest: &str) -> Result<Vec<u8>, Failure> {
    let digest: Digest = digest.parse().map_err(|error| Failure::argument(format!("{error}")))?;
    let host = shell.known_host().await?;
    let bytes = store(&host)?.component(&tenant(), digest).await?;
    host.close().await;
    bytes.ok_or_else(|| {
        Failure::NotThere(format!("{digest} is not installed in {}", shell.options.db.display()))
    })
}

async fn inspect(shell: &Shell, component: String, bytes: Vec<u8>) -> Result<Inspection, Failure> {
    let (digest, size) = (Digest::of(&bytes), bytes.len());
    let (imports, exports) = names(&bytes);
    // Without a database: whatever it is, it leaves nothing behind but its compiled form.
    let host = shell.builder().open().await?;
    let (declares, error) = match host.install(&component, bytes).await {
        Ok(installed) => (Some(installed.info), None),
        Err(error) => (None, Some(refusal(error)?)),
    };
    let installable = error.is_none();
    Ok(Inspection { component, digest, bytes: size, imports, exports, declares, installable, error })
}

/// Why it cannot be installed; other errors are the host's own.
fn refusal(error: EngineError) -> Result<ErrorRecord, Failure> {
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

fn text(inspection: &Inspection) -> String {
    let digest = inspection.digest.to_string();
    let mut text = String::new();
    if inspection.component != digest {
        let _ = writeln!(text, "{}", harmless(&inspection.component));
    }
    let _ = writeln!(text, "{digest}  {} kB", inspection.bytes.div_ceil(1000));
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
            let _ = writeln!(text, "    {}", harmless(name));
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
