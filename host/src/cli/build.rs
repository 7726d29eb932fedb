//! `holdpoint build`: from crates to components, by whichever road this machine has. Runs cargo; opens
//! no database and no engine.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use serde::{Deserialize, Serialize};

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
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot run {program}: {source}; nodes are built with cargo, which comes with Rust")]
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

    #[error(transparent)]
    NoRoad(#[from] NoRoad),

    #[error("cargo could not build {}\n{output}", .names.join(", "))]
    Compile { names: Vec<String>, output: String },

    #[error(
        "cargo made {} for {name}, which is no component; does a config.toml replace the linker of {TARGET}?",
        .path.display()
    )]
    NotAComponent { name: String, path: PathBuf },

    #[error("cannot {what} {}: {source}", .path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

/// Builds every node in `args.dirs`, one cargo call a workspace. `digest` is the host's own, so that the
/// report names a component as `install` will.
pub fn build(args: &Args, digest: impl Fn(&[u8]) -> String) -> Result<Vec<Built>, BuildError> {
    let mut workspaces: BTreeMap<PathBuf, Workspace> = BTreeMap::new();
    for dir in &args.dirs {
        let found = metadata(dir)?.nodes(dir)?;
        workspaces.entry(found.root.clone()).or_insert_with(|| found.without_nodes()).add(found.nodes);
    }
    let names: Vec<_> = workspaces.values().flat_map(Workspace::names).collect();
    if let Some(file) = &args.output
        && names.len() != 1
    {
        return Err(BuildError::OneFile { file: file.clone(), names });
    }

    let mut built = Vec::new();
    for workspace in workspaces.values() {
        let road = Found::look(&workspace.root).road()?;
        let made = compile(workspace, &Call::new(workspace, &road, profile(&workspace.root)))?;
        for node in &workspace.nodes {
            let place = match &args.output {
                Some(file) => file.clone(),
                None => workspace.target.join("components").join(format!("{}.wasm", node.name)),
            };
            built.push(deliver(&node.name, made.get(&node.id), place, &digest)?);
        }
    }
    Ok(built)
}

/// One line of the report.
impl fmt::Display for Built {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here = std::env::current_dir().unwrap_or_default();
        let path = self.path.strip_prefix(here).unwrap_or(&self.path);
        write!(out, "{} ({} kB)", path.display(), self.bytes.div_ceil(1000))
    }
}

const TARGET: &str = "wasm32-wasip2";

/// How a machine comes by a std for [`TARGET`].
#[derive(Debug, PartialEq, Eq)]
enum Road {
    /// The toolchain has it: `rustup target add`, or a distribution that ships it.
    Installed,
    /// Debian's rustc has none, but std's source, a linker, and WASI's libc: cargo builds std as well.
    FromSource(DebianRust),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct DebianRust {
    sysroot: PathBuf,
    host: String,
}

impl DebianRust {
    fn linker(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(&self.host).join("bin/wasm-component-ld")
    }

    fn libc(&self) -> PathBuf {
        self.sysroot.join("lib/wasm32-wasi")
    }

    /// What the road needs, and the Debian package that has it.
    fn pieces(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("cargo-web", self.sysroot.join("bin/cargo")),
            ("rust-web-src", self.sysroot.join("lib/rustlib/src/rust/library/Cargo.lock")),
            ("rust-web-llvm", self.linker()),
            ("lld-22", self.sysroot.join("bin/rust-lld")),
            ("wasi-libc", self.libc().join("crt1-reactor.o")),
        ]
    }
}

/// What this machine has.
struct Found {
    installed: bool,
    rustup: bool,
    apt: bool,
    debian: Option<DebianRust>,
    /// Package and file of what Debian's Rust lacks.
    missing: Vec<(&'static str, PathBuf)>,
}

impl Found {
    fn look(workspace: &Path) -> Self {
        let debian = debian_rust();
        let missing = debian.iter().flat_map(DebianRust::pieces).filter(|(_, file)| !file.exists()).collect();
        Self {
            installed: has_std(workspace),
            rustup: answer(Command::new("rustup").arg("--version")).is_some(),
            apt: Path::new("/usr/bin/apt-get").exists(),
            debian,
            missing,
        }
    }

    fn road(self) -> Result<Road, NoRoad> {
        match self.debian {
            _ if self.installed => Ok(Road::Installed),
            Some(debian) if self.missing.is_empty() => Ok(Road::FromSource(debian)),
            _ => Err(NoRoad { rustup: self.rustup, apt: self.apt, missing: self.missing }),
        }
    }
}

/// Nothing here can build for [`TARGET`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct NoRoad {
    rustup: bool,
    apt: bool,
    missing: Vec<(&'static str, PathBuf)>,
}

impl fmt::Display for NoRoad {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "this machine's Rust has no standard library for {TARGET}")?;
        for (package, file) in &self.missing {
            write!(out, "\n  {} is missing (package {package})", file.display())?;
        }
        write!(out, "\nto get it:")?;
        if self.rustup || !self.apt {
            write!(out, "\n    rustup target add {TARGET}")?;
        }
        if self.apt {
            let or = if self.rustup { "\nor, on Debian 12, where rustup cannot download:" } else { "" };
            write!(
                out,
                "{or}\n    apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src \
                 rust-web-llvm lld-22 wasi-libc"
            )?;
        }
        if !self.rustup && !self.apt {
            write!(out, "\n(rustup comes with Rust's own installer)")?;
        }
        Ok(())
    }
}

/// The rustc that cargo uses in this folder knows the target and has its std.
fn has_std(workspace: &Path) -> bool {
    let mut rustc = clean("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(workspace);
    let Some(libdir) = answer(&mut rustc) else { return false };
    fs::read_dir(libdir.trim()).is_ok_and(|files| {
        files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
    })
}

fn debian_rust() -> Option<DebianRust> {
    let rustc = || clean("/usr/bin/rustc");
    let sysroot = answer(rustc().args(["--print", "sysroot"]))?;
    // An older one, which has never heard of the target, is no start.
    answer(rustc().args(["--print", "cfg", "--target", TARGET]))?;
    let version = answer(rustc().arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "))?;
    Some(DebianRust { sysroot: sysroot.trim().into(), host: host.to_owned() })
}

fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// What an outer cargo, make or shell hands down and would change this build.
const HANDED_DOWN: [&str; 20] = [
    "CARGO",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "CARGO_TARGET_DIR",
    "MAKEFLAGS",
    "MFLAGS",
    "RUSTC",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "RUSTUP_TOOLCHAIN_SOURCE",
];

fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in HANDED_DOWN {
        command.env_remove(variable);
    }
    // Build scripts of a stranger's crate run as whoever builds.
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| super::secrets::is_secret(variable)) {
        command.env_remove(variable);
    }
    command
}

/// The cargo call that builds a workspace's nodes.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
}

impl Call {
    fn new(workspace: &Workspace, road: &Road, profile: &str) -> Self {
        let mut args: Vec<OsString> = [
            "build",
            "--message-format",
            "json-render-diagnostics",
            "--target",
            TARGET,
            "--profile",
            profile,
        ]
        .map(OsString::from)
        .to_vec();
        // A folder of its own: the std of one road is no use to the other, nor to builds for the host.
        args.extend(["--target-dir".into(), workspace.target.join("guests").into()]);
        for node in &workspace.nodes {
            args.extend(["--package".into(), OsString::from(&node.id)]);
        }
        match road {
            Road::Installed => Self { program: "cargo".into(), args, env: Vec::new() },
            Road::FromSource(rust) => {
                args.push("-Zbuild-std=std,panic_abort".into());
                Self {
                    program: rust.sysroot.join("bin/cargo"),
                    args,
                    env: vec![
                        ("RUSTC", rust.sysroot.join("bin/rustc").into()),
                        // Or a released cargo refuses `-Zbuild-std`.
                        ("RUSTC_BOOTSTRAP", "1".into()),
                        ("CARGO_ENCODED_RUSTFLAGS", rustflags(rust)),
                    ],
                }
            }
        }
    }
}

fn rustflags(rust: &DebianRust) -> OsString {
    let flag = |name: &str, file: PathBuf| {
        let mut flag = OsString::from(name);
        flag.push(file);
        flag
    };
    // The target's own libc and start file do not come with the source: link Debian's.
    [
        "-Clink-self-contained=no".into(),
        flag("-Clinker=", rust.linker()),
        flag("-Clink-arg=-L", rust.libc()),
        flag("-Clink-arg=", rust.libc().join("crt1-reactor.o")),
    ]
    .join(OsString::from("\x1f").as_os_str())
}

/// Runs the call; gives the component of each package id.
fn compile(workspace: &Workspace, call: &Call) -> Result<BTreeMap<String, PathBuf>, BuildError> {
    let names = workspace.names();
    let watched = io::stderr().is_terminal();
    if !watched {
        eprintln!("building {} for {TARGET}; a first build takes minutes", names.join(", "));
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
            let mut output = Vec::new();
            said.map(|mut said| said.read_to_end(&mut output));
            String::from_utf8_lossy(&output).into_owned()
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

fn deliver(
    name: &str,
    made: Option<&PathBuf>,
    place: PathBuf,
    digest: &impl Fn(&[u8]) -> String,
) -> Result<Built, BuildError> {
    // The first eight bytes of a component; a core module has 01 00 00 00 after the name.
    const PREAMBLE: &[u8] = b"\0asm\x0d\x00\x01\x00";
    let no_component =
        |path: &Path| BuildError::NotAComponent { name: name.to_owned(), path: path.to_owned() };
    let made = made.ok_or_else(|| no_component(Path::new("no .wasm file")))?;
    let bytes = fs::read(made).map_err(file("read", made))?;
    if !bytes.starts_with(PREAMBLE) {
        return Err(no_component(made));
    }
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder).map_err(file("create", folder))?;
    }
    // Whole or not at all, for a host that reads the old one meanwhile.
    let part = place.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, &bytes).map_err(file("write", &part))?;
    fs::rename(&part, &place).map_err(file("write", &place))?;
    Ok(Built { name: name.to_owned(), path: place, bytes: bytes.len() as u64, digest: digest(&bytes) })
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    move |source| BuildError::File { what, path: path.to_owned(), source }
}

/// The profile for small components that keep their function names, if the workspace has it.
fn profile(workspace: &Path) -> &'static str {
    let manifest = fs::read_to_string(workspace.join("Cargo.toml")).unwrap_or_default();
    let has_guest = toml::from_str::<toml::Table>(&manifest).is_ok_and(|manifest| {
        manifest.get("profile").is_some_and(|profiles| profiles.get("guest").is_some())
    });
    if has_guest { "guest" } else { "release" }
}

/// What of `cargo metadata` is read.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

/// Nodes that one cargo call builds.
#[derive(Debug, PartialEq, Eq)]
struct Workspace {
    root: PathBuf,
    target: PathBuf,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    id: String,
    name: String,
}

fn metadata(dir: &Path) -> Result<Metadata, BuildError> {
    let no_crate = |output: String| BuildError::NoCrate { dir: dir.to_owned(), output };
    let dir = dir.canonicalize().map_err(|why| no_crate(why.to_string()))?;
    let output = clean("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(dir.join("Cargo.toml"))
        .current_dir(&dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::NoCargo { program: "cargo".to_owned(), source })?;
    if !output.status.success() {
        return Err(no_crate(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|why| no_crate(why.to_string()))
}

impl Metadata {
    fn nodes(self, dir: &Path) -> Result<Workspace, BuildError> {
        let folder = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let here = self.packages.iter().find(|package| package.manifest_path.parent() == Some(&folder));
        let nodes = match here {
            Some(package) if package.is_cdylib() => vec![package.node()],
            Some(package) => {
                return Err(BuildError::NotANode {
                    name: package.name.clone(),
                    manifest: package.manifest_path.clone(),
                });
            }
            None => self.packages.iter().filter(|package| package.is_node()).map(Package::node).collect(),
        };
        if nodes.is_empty() {
            return Err(BuildError::NoNodes { dir: dir.to_owned() });
        }
        Ok(Workspace { root: self.workspace_root, target: self.target_directory, nodes })
    }
}

impl Package {
    fn is_cdylib(&self) -> bool {
        self.targets.iter().any(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    }

    /// Not every cdylib of a workspace is one.
    fn is_node(&self) -> bool {
        const MARKS: [&str; 2] = ["holdpoint-guest", "wit-bindgen"];
        self.is_cdylib() && self.dependencies.iter().any(|dependency| MARKS.contains(&&*dependency.name))
    }

    fn node(&self) -> Node {
        Node { id: self.id.clone(), name: self.name.clone() }
    }
}

impl Workspace {
    fn without_nodes(&self) -> Self {
        Self { root: self.root.clone(), target: self.target.clone(), nodes: Vec::new() }
    }

    fn add(&mut self, nodes: Vec<Node>) {
        let new: Vec<_> = nodes.into_iter().filter(|node| !self.nodes.contains(node)).collect();
        self.nodes.extend(new);
    }

    fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> DebianRust {
        DebianRust { sysroot: "/usr".into(), host: "h".into() }
    }

    fn found(installed: bool, debian: Option<DebianRust>, missing: &[&'static str]) -> Found {
        let missing = missing.iter().map(|package| (*package, PathBuf::from("/file"))).collect();
        Found { installed, rustup: true, apt: true, debian, missing }
    }

    #[test]
    fn an_installed_std_comes_before_one_from_source() {
        assert_eq!(found(true, Some(debian()), &[]).road(), Ok(Road::Installed));
        assert_eq!(found(true, None, &[]).road(), Ok(Road::Installed));
        assert_eq!(found(false, Some(debian()), &[]).road(), Ok(Road::FromSource(debian())));
    }

    #[test]
    fn without_a_road_the_error_names_what_is_missing_and_the_way_out() {
        let said = found(false, Some(debian()), &["wasi-libc"]).road().unwrap_err().to_string();
        for part in
            ["/file is missing (package wasi-libc)", "rustup target add wasm32-wasip2", "apt-get install"]
        {
            assert!(said.contains(part), "{said}");
        }
        let neither = Found { rustup: false, apt: false, ..found(false, None, &[]) }.road().unwrap_err();
        assert!(!neither.to_string().contains("apt-get"), "{neither}");
        assert!(neither.to_string().contains("rustup target add"), "{neither}");
    }

    fn workspace() -> Workspace {
        let node = |name: &str| Node { id: format!("id#{name}"), name: name.to_owned() };
        Workspace { root: "/ws".into(), target: "/ws/target".into(), nodes: vec![node("a"), node("b")] }
    }

    #[test]
    fn the_nodes_of_a_workspace_are_one_call() {
        let call = Call::new(&workspace(), &Road::Installed, "release");
        let args: Vec<_> = call.args.iter().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(
            args.join(" "),
            "build --message-format json-render-diagnostics --target wasm32-wasip2 --profile release \
             --target-dir /ws/target/guests --package id#a --package id#b"
        );
        assert_eq!((call.program, call.env), ("cargo".into(), vec![]));
    }

    #[test]
    fn std_from_source_is_linked_with_the_systems_own_pieces() {
        let call = Call::new(&workspace(), &Road::FromSource(debian()), "guest");
        assert_eq!(call.program, Path::new("/usr/bin/cargo"));
        assert!(call.args.contains(&"-Zbuild-std=std,panic_abort".into()));
        let flags = call.env.iter().find(|(name, _)| *name == "CARGO_ENCODED_RUSTFLAGS").unwrap();
        assert_eq!(
            flags.1.to_str().unwrap().split('\x1f').collect::<Vec<_>>(),
            [
                "-Clink-self-contained=no",
                "-Clinker=/usr/lib/rustlib/h/bin/wasm-component-ld",
                "-Clink-arg=-L/usr/lib/wasm32-wasi",
                "-Clink-arg=/usr/lib/wasm32-wasi/crt1-reactor.o",
            ]
        );
    }

    fn read(packages: &str) -> Metadata {
        let text = format!(
            r#"{{ "packages": [{packages}], "workspace_root": "/ws", "target_directory": "/ws/target" }}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn package(name: &str, kind: &str, dependency: &str) -> String {
        format!(
            r#"{{ "id": "id#{name}", "name": "{name}", "manifest_path": "/ws/{name}/Cargo.toml",
                  "targets": [{{ "crate_types": ["{kind}"] }}], "dependencies": [{{ "name": "{dependency}" }}] }}"#
        )
    }

    #[test]
    fn a_folder_is_a_node_or_a_workspace_of_nodes() {
        let packages = [
            package("a", "cdylib", "holdpoint-guest"),
            package("lib", "lib", "holdpoint-guest"),
            package("python", "cdylib", "pyo3"),
            package("b", "cdylib", "wit-bindgen"),
        ]
        .join(",");
        let nodes = |dir: &str| read(&packages).nodes(Path::new(dir));
        assert_eq!(nodes("/ws").unwrap(), workspace());
        assert_eq!(nodes("/ws/python").unwrap().names(), ["python"]);
        assert!(matches!(nodes("/ws/lib"), Err(BuildError::NotANode { name, .. }) if name == "lib"));
        assert!(matches!(read("").nodes(Path::new("/ws")), Err(BuildError::NoNodes { .. })));
    }

    #[test]
    fn what_cargo_made_is_found_in_its_messages() {
        let messages = r#"
            {"reason":"compiler-artifact","package_id":"id#dep","filenames":["/t/libdep.rlib"]}
            {"reason":"compiler-artifact","package_id":"id#a","filenames":["/t/a.d","/t/a.wasm"]}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(components(messages), BTreeMap::from([("id#a".to_owned(), "/t/a.wasm".into())]));
    }
}
