//! The cargo call that builds a workspace's nodes, free of what an outer build hands down.

use std::{ffi::OsString, path::PathBuf, process::Command};

use super::road::{DebianRust, Road, TARGET};
use super::workspace::Workspace;
use crate::cli::secrets;

#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
}

impl Call {
    pub fn new(workspace: &Workspace, road: &Road, profile: &str) -> Self {
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

pub fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = secrets::without(program);
    for variable in HANDED_DOWN {
        command.env_remove(variable);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{road::tests::debian, workspace::tests::workspace};
    use super::*;

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
}
