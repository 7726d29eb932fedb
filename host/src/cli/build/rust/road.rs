//! Where a machine's std for wasm32-wasip2 comes from, and what it lacks.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::call::clean;

pub const TARGET: &str = "wasm32-wasip2";

/// How a machine comes by a std for [`TARGET`].
#[derive(Debug, PartialEq, Eq)]
pub enum Road {
    /// The toolchain has it: `rustup target add`, or a distribution that ships it.
    Installed,
    /// Debian's rustc has none, but std's source, a linker, and WASI's libc: cargo builds std as well.
    FromSource(DebianRust),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebianRust {
    pub sysroot: PathBuf,
    pub host: String,
}

impl DebianRust {
    pub fn linker(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(&self.host).join("bin/wasm-component-ld")
    }

    pub fn libc(&self) -> PathBuf {
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
pub struct Found {
    installed: bool,
    rustup: bool,
    apt: bool,
    debian: Option<DebianRust>,
    /// Package and file of what Debian's Rust lacks.
    missing: Vec<(&'static str, PathBuf)>,
}

impl Found {
    pub fn look(workspace: &Path) -> Self {
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

    pub fn road(self) -> Result<Road, NoRoad> {
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

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn debian() -> DebianRust {
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
}
