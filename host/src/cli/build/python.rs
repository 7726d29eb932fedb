//! Nodes in Python: componentize-py, which takes the interpreter along.

use std::{fs, path::Path};

use serde::Deserialize;

use super::progress::Progress;
use super::project::{Language, Project};
use super::stamp::Stamp;
use super::tools::{self, ToolError, Tools};
use super::{BuildError, Made, file};
use crate::cli::{kit, secrets};

const LANGUAGE: Language = Language::Python;
/// Words of the contract: modules of these names are made beside the node's.
const TAKEN: [&str; 4] = ["node", "wit_world", "componentize_py_types", "holdpoint_guest"];

#[derive(Deserialize)]
struct Manifest {
    project: Option<Named>,
    #[serde(default)]
    tool: Tables,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    version: Option<String>,
}

#[derive(Default, Deserialize)]
struct Tables {
    #[serde(default)]
    holdpoint: Settings,
}

/// `[tool.holdpoint]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The module that the node is in; the project's name if left out.
    module: Option<String>,
    /// As cargo's folder `target`; from the manifest.
    target: Option<String>,
}

pub fn project(dir: &Path) -> Result<Project, BuildError> {
    let path = dir.join(LANGUAGE.manifest());
    let text = fs::read_to_string(&path).map_err(file("read", &path))?;
    let wrong = |what: String| BuildError::Manifest { file: path.clone(), what };
    let manifest: Manifest = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Settings { module, target } = manifest.tool.holdpoint;
    let named = manifest.project.map_or((None, None), |project| (project.name, project.version));
    let entry = |name: &str| module.unwrap_or_else(|| name.replace(['-', '.'], "_"));
    let project = Project::new(dir, LANGUAGE.manifest(), named, entry, target.as_deref())?;
    let module = &project.entry;
    if TAKEN.contains(&module.as_str()) {
        return Err(wrong(format!(
            "a node cannot be in a module named {module}, which the contract needs; rename the file, or say\n\n    \
             [tool.holdpoint]\n    module = \"another\"\n"
        )));
    }
    let path_of = module.replace('.', "/");
    if !dir.join(format!("{path_of}.py")).is_file() && !dir.join(path_of).join("__init__.py").is_file() {
        return Err(wrong(format!(
            "there is no {module}.py beside it; if the node is in another file, say\n\n    [tool.holdpoint]\n    \
             module = \"that_file\"\n"
        )));
    }
    Ok(project)
}

pub fn build(project: &Project, tools: &Tools, progress: &Progress) -> Result<Made, BuildError> {
    let kit = tools.kit()?;
    let work = project.work_dir()?;
    let component = work.join(format!("{}.wasm", project.name));
    let contract = project.contract(&kit);
    let venv = project.dir.join(".venv");
    let with =
        format!("componentize-py {} {} {}", tools::COMPONENTIZE_PY, kit::python_version(), project.entry);
    let stamp = Stamp::of(&work, &[&project.dir, &contract], &with)?;
    // What is installed in a venv is not looked through.
    if !venv.exists() && stamp.holds_for(&component) {
        return Ok(Made { file: component, fresh: false });
    }
    let tool = tools.python(progress)?;
    progress.step(format!("building {} with componentize-py {}", project.name, tools::COMPONENTIZE_PY));
    let about = work.join("about");
    let text =
        |text: Option<&str>| text.map_or("None".to_owned(), |text| serde_json::Value::from(text).to_string());
    let lines =
        format!("NAME = {}\nVERSION = {}\n", text(Some(&project.name)), text(project.version.as_deref()));
    fs::create_dir_all(&about).map_err(file("create", &about))?;
    let module = about.join("holdpoint_project.py");
    fs::write(&module, lines).map_err(file("write", &module))?;
    let mut command = secrets::without(tool.join("bin/componentize-py"));
    command.current_dir(&project.dir).arg("-q").arg("-d").arg(&contract).args(["-w", "node", "componentize"]);
    // In this order: what the project brings along comes before what this program carries.
    for place in [project.dir.clone(), project.dir.join("vendor"), kit.join("python"), about] {
        if place.is_dir() {
            command.arg("-p").arg(place);
        }
    }
    command
        .arg(&project.entry)
        .arg("-o")
        .arg(&component)
        // The packages of the project's own environment, and never those of the system.
        .env("VIRTUAL_ENV", if venv.is_dir() { &venv } else { &tool })
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if !tool.join("bin/componentize-py").exists() {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(ToolError::Broken { what: "componentize-py", dir: tool, source }.into());
    }
    tools::quietly(&mut command).map_err(|output| BuildError::Componentize {
        tool: LANGUAGE.tool(),
        name: project.name.clone(),
        output: explained(output),
    })?;
    stamp.press(&component)?;
    Ok(Made { file: component, fresh: true })
}

/// What the tool's words mean for a node's author.
fn explained(output: String) -> String {
    let hint = if output.contains("has no attribute 'Handler'") {
        "\nthe module has no node: put `@node(reads=[…], writes=[…])` above a function of it"
    } else if output.contains("ModuleNotFoundError") {
        "\nthe module is not in the project's folder, its vendor/ or its .venv; \
         `python3 -m pip install --target vendor PACKAGE` puts one there, if it is pure Python"
    } else {
        ""
    };
    output + hint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_the_node_and_its_module() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join("pyproject.toml"), text).unwrap();
            project(dir.path())
                .map(|project| (project.name, project.entry))
                .map_err(|error| error.to_string())
        };
        fs::write(dir.path().join("my_node.py"), "").unwrap();
        fs::write(dir.path().join("app.py"), "").unwrap();
        let told = |name: &str, module: &str| Ok((name.to_owned(), module.to_owned()));
        assert_eq!(read("[project]\nname = \"my-node\""), told("my-node", "my_node"));
        assert_eq!(read("[project]\nname = \"x\"\n[tool.holdpoint]\nmodule = \"app\""), told("x", "app"));
        for (text, part) in [
            ("[project]\nname = \"other\"", "there is no other.py"),
            ("[project]\nname = \"node\"", "cannot be in a module named node"),
            ("[project]\n", "gives no name"),
            ("[project", "TOML"),
            ("[project]\nname = \"my-node\"\n[tool.holdpoint]\nmodul = \"x\"", "unknown field `modul`"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
