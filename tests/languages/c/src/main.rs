//! `script-c WIT SOURCES WORK ZIG…`: makes WORK/script-c.wasm of the C files in SOURCES, with the contract in WIT.
//! What it does is what `wit-bindgen c`, a C compiler and `wasm-tools component new` do by hand.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_bindgen_core::{Files, wit_parser::Resolve};

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut next = || args.next().map(PathBuf::from).context("script-c WIT SOURCES WORK ZIG…");
    let (wit, sources, work) = (next()?, next()?, next()?);
    let zig: Vec<_> = args.collect();
    fs::create_dir_all(&work)?;
    bindings(&wit, &work).with_context(|| format!("the contract in {}", wit.display()))?;
    let core = work.join("core.wasm");
    compile(&sources, &work, &zig, &core)?;
    let component = wit_component::ComponentEncoder::default()
        .module(&fs::read(&core)?)?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
        .validate(true)
        .encode()?;
    fs::write(work.join("script-c.wasm"), component)?;
    Ok(())
}

/// `node.h`, `node.c`, and the object that tells the linker which world this is.
fn bindings(wit: &Path, work: &Path) -> Result<()> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit)?;
    let world = resolve.select_world(&[package], Some("node"))?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    for (name, bytes) in files.iter() {
        fs::write(work.join(name), bytes)?;
    }
    Ok(())
}

fn compile(sources: &Path, work: &Path, zig: &[std::ffi::OsString], core: &Path) -> Result<()> {
    let [program, more @ ..] = zig else { bail!("no C compiler is named") };
    let status = Command::new(program)
        .args(more)
        .args(["cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-std=gnu11", "-Wall", "-Wextra"])
        // A trap's frames show the names of functions; zig leaves them out of what is made small, or stripped.
        .args(["-O2", "-Wl,-z,stack-size=1048576"])
        .arg("-I")
        .arg(work)
        .args(["script.c", "json.c"].map(|name| sources.join(name)))
        .arg(work.join("node.c"))
        .arg(work.join("node_component_type.o"))
        .arg("-o")
        .arg(core)
        // Zig keeps what it makes of its C library.
        .env("ZIG_GLOBAL_CACHE_DIR", work.join("zig-cache"))
        .env("ZIG_LOCAL_CACHE_DIR", work.join("zig-cache"))
        .status()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    if !status.success() {
        bail!("{} could not compile the node", program.display());
    }
    Ok(())
}
