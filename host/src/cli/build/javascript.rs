//! Nodes in JavaScript and TypeScript: esbuild makes one file of all that is imported, componentize-qjs takes
//! the engine along.

use std::{fs, path::Path, process::Command};

use serde::Deserialize;

use super::places::Places;
use super::progress::Progress;
use super::project::{Language, Project};
use super::stamp::Stamp;
use super::tools::{self, ToolError, Tools};
use super::{BuildError, Made, file};
use crate::cli::{kit, secrets};

const LANGUAGE: Language = Language::JavaScript;

#[derive(Deserialize)]
struct Manifest {
    name: Option<String>,
    version: Option<String>,
    main: Option<String>,
    #[serde(default)]
    holdpoint: Settings,
}

/// `"holdpoint": { … }`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// As cargo's folder `target`; from the manifest.
    target: Option<String>,
}

pub fn project(dir: &Path) -> Result<Project, BuildError> {
    let path = dir.join(LANGUAGE.manifest());
    let text = fs::read_to_string(&path).map_err(file("read", &path))?;
    let wrong = |what: String| BuildError::Manifest { file: path.clone(), what };
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let main = manifest.main.or_else(|| {
        ["index.js", "index.ts"].into_iter().find(|name| dir.join(name).is_file()).map(str::to_owned)
    });
    let entry = main.clone().unwrap_or_default();
    let target = manifest.holdpoint.target.as_deref();
    let project =
        Project::new(dir, LANGUAGE.manifest(), (manifest.name, manifest.version), |_| entry, target)?;
    if !dir.join(&project.entry).is_file() {
        let what = match main {
            Some(main) => format!("there is no {main}, which its \"main\" names"),
            None => "there is no index.js or index.ts beside it; \"main\" names another file".into(),
        };
        return Err(wrong(what));
    }
    Ok(project)
}

pub fn build(project: &Project, tools: &Tools, progress: &Progress) -> Result<Made, BuildError> {
    let kit = tools.kit()?;
    let work = project.work_dir()?;
    let component = work.join(format!("{}.wasm", project.name));
    let contract = project.contract(&kit);
    let with = format!("{} {} {}", tools::COMPONENTIZE_QJS, tools::ESBUILD, kit::javascript_version());
    let stamp = Stamp::of(&work, &[&project.dir, &contract], &with)?;
    if stamp.holds_for(&component) {
        return Ok(Made { file: component, fresh: false });
    }
    let tool = tools.javascript(progress)?;
    progress.step(format!("building {} with componentize-qjs {}", project.name, tools::COMPONENTIZE_QJS));
    let modules = tool.join("node_modules");
    let script = |path: &str| -> Result<Command, BuildError> {
        let script = modules.join(path);
        if !script.is_file() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(ToolError::Broken { what: "componentize-qjs", dir: tool.clone(), source }.into());
        }
        let mut command = secrets::without("node");
        command.arg(script).current_dir(&project.dir).env_remove("NODE_OPTIONS").env_remove("NODE_PATH");
        Ok(command)
    };
    let failed = |tool: &'static str, whole: &str, output: String| {
        // What is left away here stands there.
        let log = work.join("build.log");
        fs::write(&log, whole).map_err(file("write", &log))?;
        let output = format!("{output}\n(all that {tool} said: {})", log.display());
        Err(BuildError::Componentize { tool, name: project.name.clone(), output })
    };

    let sdk = ["node_modules/holdpoint-guest", "vendor/holdpoint-guest"]
        .map(|place| project.dir.join(place))
        .into_iter()
        .find(|place| place.join("src/component.js").is_file())
        .unwrap_or_else(|| kit.join("javascript"));
    // One and the same copy of the SDK, or a node's question would not be the host's.
    let sdk = sdk.canonicalize().map_err(file("find", &sdk))?.join("src");
    let (entry, bundle) = (work.join("entry.js"), work.join("bundle.js"));
    let import = |path: &Path| serde_json::Value::from(path.display().to_string()).to_string();
    let text = format!(
        "import {};\nexport {{ handler }} from {};\n",
        import(&sdk.join("component.js")),
        import(&project.dir.join(&project.entry))
    );
    fs::write(&entry, text).map_err(file("write", &entry))?;
    let package = serde_json::json!({ "name": project.name, "version": project.version });
    let mut esbuild = script("esbuild/bin/esbuild")?;
    esbuild
        .arg(&entry)
        .args([
            "--bundle",
            "--format=esm",
            "--target=es2023",
            "--main-fields=module,main",
            "--conditions=import",
        ])
        .args(["--external:holdpoint:*", "--external:wasi:*", "--log-level=warning", "--color=false"])
        .args(["--sourcemap=external", "--sources-content=false"])
        .arg(format!("--alias:holdpoint-guest={}", sdk.join("index.js").display()))
        .arg(format!("--define:globalThis.HOLDPOINT_PACKAGE={package}"))
        .arg(format!("--outfile={}", bundle.display()));
    if let Err(said) = tools::quietly(&mut esbuild) {
        return failed("esbuild", &said, explained(own_words(&said)));
    }

    let places = Places::read(&work.join("bundle.js.map"), &project.dir);
    if let Some(places) = &places {
        // At its end, where it moves no line.
        let mut text = fs::read_to_string(&bundle).map_err(file("read", &bundle))?;
        text += &format!("globalThis.HOLDPOINT_PLACES = {};\n", places.table(&sdk));
        fs::write(&bundle, text).map_err(file("write", &bundle))?;
    }
    // As after an `npm install` of what the node does not import.
    let contract_stamp = Stamp::of(&work, &[&contract], &with)?;
    let bundled = Stamp::of_bundle(&work, &bundle, contract_stamp.text())?;
    if bundled.holds_for(&component) {
        stamp.press(&component)?;
        return Ok(Made { file: component, fresh: false });
    }
    let mut qjs = script("componentize-qjs/bin/componentize-qjs")?;
    qjs.arg("-w")
        .arg(&contract)
        .args(["-n", "node", "--sync", "-j"])
        .arg(&bundle)
        // The engine reads imports while the component is made, and has none left to read.
        .arg("--module-root")
        .arg(&work)
        .arg("-o")
        .arg(&component);
    if let Err(said) = tools::quietly(&mut qjs) {
        let thrown = thrown(&said);
        let output = places.map_or_else(|| thrown.clone(), |places| places.told(&thrown));
        return failed(LANGUAGE.tool(), &said, output);
    }
    bundled.press(&component)?;
    stamp.press(&component)?;
    Ok(Made { file: component, fresh: true })
}

/// What esbuild said, without what Node.js says of the script that started it.
fn own_words(said: &str) -> String {
    let lines = said.lines().take_while(|line| !line.starts_with("node:"));
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// The error that the node's file threw while it was loaded, without what the tool was doing.
fn thrown(said: &str) -> String {
    const BEFORE: &str = "Failed to finish JavaScript module evaluation: ";
    match said.split_once(BEFORE) {
        Some((_, error)) => format!("the file throws while it is loaded\n{}", error.trim_end()),
        None => said.to_owned(),
    }
}

/// What the tool's words mean for a node's author.
fn explained(output: String) -> String {
    let hint = if output.contains("No matching export") && output.contains("\"handler\"") {
        "\nthe file has no node: write `export const handler = node({ reads: […], writes: […] }, function …)`"
    } else if output.contains("Could not resolve \"node:") {
        "\na node has no Node.js: there are no files, no network, no processes; ask the host by an effect"
    } else {
        ""
    };
    output + hint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_tool_the_error_alone_is_told() {
        let said = "✘ [ERROR] Unexpected \";\"\n\n    x.js:7:23:\n\nnode:child_process:930\n    throw err;\n";
        assert_eq!(own_words(said), "✘ [ERROR] Unexpected \";\"\n\n    x.js:7:23:");
        let said =
            "tool\n  WIT: /x\nError: : Failed to finish JavaScript module evaluation: Error: no\n    at f";
        assert_eq!(thrown(said), "the file throws while it is loaded\nError: no\n    at f");
        assert_eq!(thrown("another"), "another");
    }

    #[test]
    fn a_manifest_names_the_node_and_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join("package.json"), text).unwrap();
            project(dir.path())
                .map(|project| (project.name, project.entry))
                .map_err(|error| error.to_string())
        };
        assert!(read(r#"{ "name": "x" }"#).unwrap_err().contains("no index.js or index.ts"));
        fs::write(dir.path().join("index.ts"), "").unwrap();
        assert_eq!(read(r#"{ "name": "x" }"#), Ok(("x".into(), "index.ts".into())));
        for (text, part) in [
            (r#"{ "name": "x", "main": "a.js" }"#, "there is no a.js"),
            ("{}", "gives no name"),
            (r#"{ "name": "@me/x" }"#, "letters, digits"),
            ("{", "EOF"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
