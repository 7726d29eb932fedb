//! The tools that make components of Python and JavaScript: at versions of this program's choice, in its own
//! cache folder, fetched with the language's own installer. Nothing else on the machine is changed.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::progress::Progress;
use crate::cli::{kit, secrets};

pub const COMPONENTIZE_PY: &str = "0.25.1";
pub const COMPONENTIZE_QJS: &str = "0.4.5";
pub const ESBUILD: &str = "0.28.2";

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Missing(#[from] Missing),

    #[error(
        "{what} could not be installed into {}\n{output}\nis the network there? after that, run the same command again",
        .dir.display()
    )]
    Install { what: String, dir: PathBuf, output: String },

    #[error("{what} in {} cannot be run: {source}; delete that folder, and it is fetched anew", .dir.display())]
    Broken { what: &'static str, dir: PathBuf, source: io::Error },

    #[error("there is no folder for tools: this user has no home; name one with --cache DIR")]
    NoHome,

    #[error("the folder for tools, {}, cannot be used: {source}", .dir.display())]
    Folder { dir: PathBuf, source: io::Error },
}

/// A program that the system must have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; to get it:\n    {get}")]
pub struct Missing {
    pub what: String,
    pub get: String,
}

pub struct Tools {
    cache: Option<PathBuf>,
}

impl Tools {
    pub fn new(cache: Option<PathBuf>) -> Self {
        Self { cache }
    }

    /// The SDKs and the contract that this program carries, as files.
    pub fn kit(&self) -> Result<PathBuf, ToolError> {
        let place = self.folder("sdk")?.join(kit::version());
        self.once(&place, |dir| {
            kit::unpack_all(dir).map_err(|source| ToolError::Folder { dir: dir.to_owned(), source })
        })?;
        Ok(place)
    }

    /// The folder of a venv with componentize-py.
    pub fn python(&self, progress: &Progress) -> Result<PathBuf, ToolError> {
        let place = self.folder("tools")?.join(format!("componentize-py-{COMPONENTIZE_PY}"));
        self.once(&place, |dir| {
            let python = python()?;
            progress.line(&format!(
                "installing componentize-py {COMPONENTIZE_PY} (75 MB) with pip into {}",
                place.display()
            ));
            progress.step("making a virtual environment".into());
            let mut venv = secrets::without(python);
            venv.args(["-m", "venv"]).arg(dir);
            if let Err(output) = quietly(&mut venv) {
                if output.contains("ensurepip") || output.contains("No module named venv") {
                    let what = format!(
                        "python3 lacks its module venv ({})",
                        output.lines().next().unwrap_or_default()
                    );
                    return Err(Missing { what, get: System::here().get("python3-venv") }.into());
                }
                return Err(ToolError::Install {
                    what: "a virtual environment".into(),
                    dir: dir.to_owned(),
                    output,
                });
            }
            progress.step(format!("fetching componentize-py {COMPONENTIZE_PY}"));
            let mut pip = secrets::without(dir.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .arg(format!("componentize-py=={COMPONENTIZE_PY}"));
            self.install(&mut pip, &format!("componentize-py {COMPONENTIZE_PY}"), dir)
        })?;
        Ok(place)
    }

    /// A folder whose node_modules has componentize-qjs and esbuild.
    pub fn javascript(&self, progress: &Progress) -> Result<PathBuf, ToolError> {
        let place =
            self.folder("tools")?.join(format!("componentize-qjs-{COMPONENTIZE_QJS}-esbuild-{ESBUILD}"));
        self.once(&place, |dir| {
            node()?;
            progress.line(&format!(
                "installing componentize-qjs {COMPONENTIZE_QJS} and esbuild {ESBUILD} (50 MB) with npm into {}",
                place.display()
            ));
            progress.step("fetching componentize-qjs and esbuild".into());
            // Or npm takes the nearest folder above that has a manifest.
            fs::write(dir.join("package.json"), "{ \"private\": true }\n")
                .map_err(|source| ToolError::Folder { dir: dir.to_owned(), source })?;
            let mut npm = secrets::without("npm");
            npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"])
                .args(["--save-exact".to_owned(), format!("componentize-qjs@{COMPONENTIZE_QJS}"), format!("esbuild@{ESBUILD}")])
                .current_dir(dir);
            self.install(&mut npm, "componentize-qjs and esbuild", dir)
        })?;
        Ok(place)
    }

    fn install(&self, command: &mut Command, what: &str, dir: &Path) -> Result<(), ToolError> {
        quietly(command).map_err(|output| ToolError::Install {
            what: what.to_owned(),
            dir: dir.to_owned(),
            output,
        })
    }

    fn folder(&self, name: &str) -> Result<PathBuf, ToolError> {
        let dir = self.cache.as_ref().ok_or(ToolError::NoHome)?.join(name);
        fs::create_dir_all(&dir).map_err(|source| ToolError::Folder { dir: dir.clone(), source })?;
        // Tools run in the project's folder, and not in this one.
        dir.canonicalize().map_err(|source| ToolError::Folder { dir, source })
    }

    /// Fills `place` if it was never filled to the end. Two builds at once wait for each other.
    fn once(&self, place: &Path, fill: impl FnOnce(&Path) -> Result<(), ToolError>) -> Result<(), ToolError> {
        let failed = |source| ToolError::Folder { dir: place.to_owned(), source };
        let ready = place.join("ready");
        if ready.exists() {
            return Ok(());
        }
        let lock = File::create(place.with_extension("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if ready.exists() {
            return Ok(());
        }
        if place.exists() {
            fs::remove_dir_all(place).map_err(failed)?;
        }
        fs::create_dir_all(place).map_err(failed)?;
        fill(place)?;
        fs::write(ready, "").map_err(failed)
    }
}

/// A Python that can run the tool.
fn python() -> Result<&'static str, Missing> {
    const LEAST: (u32, u32) = (3, 10);
    let (major, minor) = LEAST;
    let get = || System::here().get("python3");
    let Some(version) = answer(
        Command::new("python3").args(["-c", "import sys; print(sys.version_info[0], sys.version_info[1])"]),
    ) else {
        return Err(Missing {
            what: format!(
                "nodes in Python are built with python3 {major}.{minor} or newer, which is not here"
            ),
            get: get(),
        });
    };
    let mut numbers = version.split_whitespace().filter_map(|word| word.parse().ok());
    let found: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < LEAST {
        let what = format!("python3 is {}.{}; {major}.{minor} or newer is needed", found.0, found.1);
        return Err(Missing { what, get: get() });
    }
    Ok("python3")
}

fn node() -> Result<(), Missing> {
    let has = |program: &str| answer(Command::new(program).arg("--version"));
    let missing = |what: String| Missing { what, get: System::here().get("nodejs") };
    let Some(version) = has("node") else {
        return Err(missing("nodes in JavaScript are built with node, which is not here".into()));
    };
    let major: u32 = version
        .trim()
        .trim_start_matches('v')
        .split('.')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    if major < 18 {
        return Err(missing(format!("node is {}; 18 or newer is needed", version.trim())));
    }
    match has("npm") {
        Some(_) => Ok(()),
        None => Err(missing("node is here, but npm, which fetches the tools, is not".into())),
    }
}

/// How this machine comes by programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Apt,
    Dnf,
    Pacman,
    Apk,
    Brew,
    Unknown,
}

impl System {
    fn here() -> Self {
        let known = [
            (Self::Apt, "/usr/bin/apt-get"),
            (Self::Dnf, "/usr/bin/dnf"),
            (Self::Pacman, "/usr/bin/pacman"),
            (Self::Apk, "/sbin/apk"),
            (Self::Brew, "/opt/homebrew/bin/brew"),
            (Self::Brew, "/usr/local/bin/brew"),
        ];
        known
            .into_iter()
            .find(|(_, program)| Path::new(program).exists())
            .map_or(Self::Unknown, |(system, _)| system)
    }

    /// The command that gets a program, by what Debian calls it.
    fn get(self, program: &str) -> String {
        let is_python = program.starts_with("python3");
        match (self, is_python) {
            (Self::Apt, true) => "sudo apt-get install -y python3 python3-venv".into(),
            (Self::Apt, false) => "sudo apt-get install -y nodejs npm".into(),
            (Self::Dnf, true) => "sudo dnf install -y python3".into(),
            (Self::Dnf, false) => "sudo dnf install -y nodejs npm".into(),
            (Self::Pacman, true) => "sudo pacman -S python".into(),
            (Self::Pacman, false) => "sudo pacman -S nodejs npm".into(),
            (Self::Apk, true) => "sudo apk add python3".into(),
            (Self::Apk, false) => "sudo apk add nodejs npm".into(),
            (Self::Brew, true) => "brew install python".into(),
            (Self::Brew, false) => "brew install node".into(),
            (Self::Unknown, true) => {
                "install Python 3.10 or newer, with its module venv, and put it on the PATH".into()
            }
            (Self::Unknown, false) => {
                "install Node.js 18 or newer, which brings npm, and put it on the PATH".into()
            }
        }
    }
}

fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Runs it; `Err` has what it said.
pub fn quietly(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|why| why.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    // A tool that says a lot says what went wrong at the end.
    let from = said.char_indices().rev().nth(8_000).map_or(0, |(at, _)| at);
    Err(said[from..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_halfway_is_done_again_and_what_is_done_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let tools = Tools::new(Some(dir.path().to_owned()));
        let place = tools.folder("tools").unwrap().join("t-1");
        let failed = tools.once(&place, |dir| {
            fs::write(dir.join("half"), "").unwrap();
            Err(ToolError::NoHome)
        });
        assert!(failed.is_err());
        let whole = |dir: &Path| {
            fs::write(dir.join("whole"), "").unwrap();
            Ok(())
        };
        tools.once(&place, whole).unwrap();
        assert!(!place.join("half").exists() && place.join("whole").exists());
        tools.once(&place, |_| Err(ToolError::NoHome)).unwrap();
        assert!(matches!(Tools::new(None).kit(), Err(ToolError::NoHome)));
    }

    #[test]
    fn a_missing_program_is_named_with_the_command_that_gets_it() {
        let missing = Missing { what: "node is not here".into(), get: System::Apt.get("nodejs") };
        assert_eq!(
            missing.to_string(),
            "node is not here; to get it:\n    sudo apt-get install -y nodejs npm"
        );
        assert!(System::Apt.get("python3-venv").contains("python3-venv"));
        assert!(System::Unknown.get("python3").contains("3.10"));
    }

    #[test]
    fn of_a_tool_that_fails_the_end_is_told() {
        let mut loud = Command::new("sh");
        loud.args(["-c", "yes noise | head -c 20000; echo at last >&2; exit 1"]);
        let said = quietly(&mut loud).unwrap_err();
        assert!(said.ends_with("at last") && said.len() <= 8_100, "{}", said.len());
        assert!(quietly(&mut Command::new("/nowhere/at/all")).is_err());
    }
}
