//! What was built: how large it is, what it imports, what it declares, where it lies. It is asked in a
//! sandbox, so that a component that cannot be installed is known before anybody uses it.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::json;

use super::super::document::{Exit, Said};
use super::super::failure::Failure;
use super::super::screen::harmless;
use super::super::{Shell, inspect, install};
use super::Built;

pub async fn report(mut all: Vec<Built>, shell: &Shell) -> Result<Said, Failure> {
    // Without a database: nothing is left behind but the compiled form, which the first run will need.
    shell.screen.busy("opening");
    let host = shell.builder()?.open().await?;
    for built in &mut all {
        let bytes = install::read(&built.path).await?;
        (built.imports, _) = inspect::names(&bytes);
        shell.screen.busy(format!("compiling {}", built.name));
        built.declares = Some(host.install(&built.path.display().to_string(), bytes).await?.info);
    }
    let text: Vec<String> = all.iter().map(text).collect();
    Ok(Said::new(Exit::Completed, &json!({ "components": all }), text.concat()))
}

fn text(built: &Built) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let path = built.path.strip_prefix(here).unwrap_or(&built.path);
    let unchanged = if built.fresh { "" } else { ", unchanged" };
    let mut text = format!("{}  {}{unchanged}\n", path.display(), size(built.bytes));
    let _ = writeln!(text, "    {:<8} {}", "imports", imports(&built.imports));
    if let Some(info) = &built.declares {
        for (what, names) in [
            ("reads", &info.reads),
            ("writes", &info.writes),
            ("routes", &info.routes),
            ("effects", &info.effects),
        ] {
            if !names.is_empty() {
                let _ = writeln!(text, "    {what:<8} {}", harmless(&joined(names)));
            }
        }
    }
    text
}

/// `interrupts, log; 24 interfaces of WASI, all virtual`
fn imports(names: &[String]) -> String {
    let ours = names.iter().filter_map(|name| name.strip_prefix("holdpoint:node/"));
    let ours: BTreeSet<&str> =
        ours.map(|name| name.split('@').next().unwrap_or(name)).filter(|name| *name != "types").collect();
    let wasi = names.iter().filter(|name| name.starts_with("wasi:")).count();
    let mut parts = Vec::new();
    if !ours.is_empty() {
        parts.push(ours.into_iter().collect::<Vec<_>>().join(", "));
    }
    if wasi > 0 {
        parts.push(format!("{wasi} interfaces of WASI, all virtual"));
    }
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn size(bytes: u64) -> String {
    if bytes < 10_000_000 {
        format!("{} kB", bytes.div_ceil(1000))
    } else {
        format!("{} MB", bytes.div_ceil(1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_told_by_what_they_are_for() {
        let names = |names: &[&str]| imports(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&[]), "nothing");
        assert_eq!(names(&["holdpoint:node/types@0.1.0", "holdpoint:node/log@0.1.0"]), "log");
        assert_eq!(
            names(&["holdpoint:node/log@0.1.0", "wasi:io/poll@0.2.9", "wasi:io/error@0.2.9"]),
            "log; 2 interfaces of WASI, all virtual"
        );
    }
}
