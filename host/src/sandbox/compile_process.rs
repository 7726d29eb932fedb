//! The compile process: the program again, for one component, with memory of its own that is bounded. It
//! reads a job from standard input and writes the sealed artifact to standard output.
//!
//! What it has no need of it does not have: no database, no key but the job's, no environment.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::thread;

use super::engine;
use super::errors::chain;
use super::seal::Seal;
use crate::model::ids::Digest;

/// The one argument that makes a program a compile process.
pub const COMPILE_ARGUMENT: &str = "__compile";

/// How it ends a job that it could not do, beside the answer that it wrote.
const ABANDONED: i32 = 3;

/// The first byte of its answer: a sealed artifact follows, or what is wrong with the component.
pub(super) const COMPILED: u8 = b'c';
pub(super) const MALFORMED: u8 = b'm';

/// What the host sends: these, little-endian, then the component. The end of the input comes later: with the
/// end of the host.
pub(super) struct Job {
    /// Made up for this job; who has it can vouch for its outcome.
    pub key: [u8; 32],
    /// The most that the process may take.
    pub memory_bytes: u64,
    pub component_bytes: u64,
}

impl Job {
    pub fn header(&self) -> Vec<u8> {
        [&self.key[..], &self.memory_bytes.to_le_bytes(), &self.component_bytes.to_le_bytes()].concat()
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut key = [0; 32];
        from.read_exact(&mut key)?;
        let mut number = [0; 8];
        from.read_exact(&mut number)?;
        let memory_bytes = u64::from_le_bytes(number);
        from.read_exact(&mut number)?;
        Ok(Self { key, memory_bytes, component_bytes: u64::from_le_bytes(number) })
    }
}

/// Does one job and ends. A program that names itself in [`super::Compiler::Process`] calls this first of
/// all when its only argument is [`COMPILE_ARGUMENT`].
pub fn compile_process() -> ExitCode {
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // For the host's log; it may be gone.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> io::Result<()> {
    let mut input = io::stdin();
    let job = Job::read(&mut input)?;
    limit_memory(job.memory_bytes)?;
    let mut component = Vec::new();
    (&mut input).take(job.component_bytes).read_to_end(&mut component)?;
    if component.len() as u64 != job.component_bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // Nothing more comes but the end, when whoever waits for the artifact is gone: then nobody needs it.
    thread::Builder::new().spawn(move || {
        let _ = input.read(&mut [0]);
        std::process::exit(ABANDONED);
    })?;
    let engine = engine::compiling().map_err(io::Error::other)?;
    let mut output = io::stdout().lock();
    match engine.precompile_component(&component) {
        Ok(code) => {
            let seal = Seal::new(job.key, engine::compatibility(&engine));
            output.write_all(&[COMPILED])?;
            output.write_all(&seal.tag(Digest::of(&component), &code))?;
            output.write_all(&code)?;
        }
        Err(error) => {
            output.write_all(&[MALFORMED])?;
            output.write_all(chain(&error).as_bytes())?;
        }
    }
    output.flush()
}

/// What it may take; and that it leaves no dump behind if it is stopped by that, and yields to whoever
/// serves.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn limit_memory(bytes: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let exactly = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, exactly(0))?;
    // What is written to: address space that is only set aside, as allocators do for each thread, is free.
    setrlimit(Resource::Data, exactly(bytes))?;
    nice(5)?;
    Ok(())
}

/// Elsewhere there is only the time limit.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn limit_memory(_: u64) -> io::Result<()> {
    Ok(())
}
