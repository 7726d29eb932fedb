//! Where components are compiled. A compilation can be neither interrupted nor held to an amount of memory
//! from within its own process, so there is a choice of another.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::compile_process::{COMPILE_ARGUMENT, COMPILED, Job, MALFORMED};
use super::errors::{InvalidComponent, SandboxError};
use super::seal::Seal;
use super::stop::clip;
use crate::model::limits::Limits;

/// Where components are compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// In this process. What compiling may cost is estimated before; `compile_ms` and
    /// `compile_memory_bytes` cannot be held.
    #[default]
    InProcess,
    /// Each in a process of its own, which is this program with the argument
    /// [`COMPILE_ARGUMENT`]: the `holdpoint` binary of this very version, or one whose `main` calls
    /// [`super::compile_process`] when it gets that argument.
    Process { program: PathBuf },
}

/// Of what a compile process says on standard error.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// Compiles `component` in a process of its own. The process ends with this future, however that ends.
/// What comes back is under a seal that only it could make, and not checked yet.
pub(super) async fn compile(
    program: &Path,
    component: &[u8],
    compatibility: [u8; 32],
    limits: &Limits,
) -> Result<(Seal, Vec<u8>), SandboxError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| SandboxError::Compile { what: error.to_string() })?;
    let unstarted = |source| SandboxError::Compiler { program: program.to_owned(), source };
    let mut child = start(program).map_err(unstarted)?;
    let job = Job { key, memory_bytes: limits.compile_memory_bytes, component_bytes: component.len() as u64 };
    let ended = tokio::time::timeout(
        Duration::from_millis(limits.compile_ms),
        carry_out(&mut child, &job, component),
    );
    let Ok(ended) = ended.await else {
        let limit = limits.compile_ms;
        return Err(InvalidComponent::CompileLimit { name: "compile_ms", limit }.into());
    };
    let Ended { status, mut answer, said } =
        ended.map_err(|error| SandboxError::Compile { what: error.to_string() })?;
    match answer.first() {
        Some(&COMPILED) if status.success() => {
            answer.drain(..1);
            Ok((Seal::new(key, compatibility), answer))
        }
        Some(&MALFORMED) if status.success() => {
            let what = String::from_utf8_lossy(&answer[1..]).into_owned();
            Err(InvalidComponent::Malformed { what }.into())
        }
        _ => Err(broken_off(status, &said, limits)),
    }
}

fn start(program: &Path) -> std::io::Result<Child> {
    Command::new(program)
        .arg0("holdpoint")
        .arg(COMPILE_ARGUMENT)
        // The host's may hold what is nobody's business.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

struct Ended {
    status: ExitStatus,
    answer: Vec<u8>,
    said: String,
}

async fn carry_out(child: &mut Child, job: &Job, component: &[u8]) -> std::io::Result<Ended> {
    let piped = || std::io::Error::other("the compile process has no pipes");
    let mut input = child.stdin.take().ok_or_else(piped)?;
    let (output, errors) = child.stdout.take().zip(child.stderr.take()).ok_or_else(piped)?;
    let send = async {
        // Where it fails, the process is gone already, and its status says more.
        let _ = input.write_all(&job.header()).await;
        let _ = input.write_all(component).await;
    };
    // It had all of it in its memory.
    let answer = first(output, job.memory_bytes);
    let ((), answer, said) = tokio::join!(send, answer, first(errors, SAID_BYTES_MAX));
    let status = child.wait().await?;
    // Held open until now: its end tells the process that nobody waits any more.
    drop(input);
    Ok(Ended { status, answer: answer?, said: String::from_utf8_lossy(&said?).trim().to_owned() })
}

/// The beginning of what is written, to whose end it is read.
async fn first(mut from: impl AsyncRead + Unpin, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut first = Vec::new();
    (&mut from).take(bytes_max).read_to_end(&mut first).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(first)
}

/// The process ended without an answer.
fn broken_off(status: ExitStatus, said: &str, limits: &Limits) -> SandboxError {
    // What Rust's allocator and the system say when there is no more to be had.
    if said.contains("memory allocation of") || said.contains("Cannot allocate memory") {
        let limit = limits.compile_memory_bytes;
        return InvalidComponent::CompileLimit { name: "compile_memory_bytes", limit }.into();
    }
    let said = if said.is_empty() { String::new() } else { format!("; it said: {}", clip(said, 500)) };
    SandboxError::Compile {
        what: format!(
            "its compile process was stopped ({status}){said}; others are not touched by it, and it can be tried again"
        ),
    }
}
