//! What a process would have: nothing comes in, and what goes out goes to the log.

use std::sync::Arc;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr,
    terminal_stdin, terminal_stdout,
};
use wasmtime_wasi::p2::pipe::ClosedInputStream;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, OutputStream, Pollable, StreamResult};
use wasmtime_wasi_io::bytes::Bytes;

use super::super::console::{Console, Stream};
use super::super::guest::Guest;
use super::super::stop::Stop;
use crate::model::error::{ErrorRecord, Kind};

/// What a stream takes at once; also the most that the host holds for it.
const WRITE_BYTES_MAX: usize = 64 * 1024;

struct Printer {
    console: Arc<Console>,
    stream: Stream,
}

impl Guest {
    fn printer(&mut self, stream: Stream) -> wasmtime::Result<Resource<DynOutputStream>> {
        let printer: DynOutputStream = Box::new(Printer { console: Arc::clone(&self.console), stream });
        Ok(self.table.push(printer)?)
    }
}

impl OutputStream for Printer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.console.print(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for Printer {
    async fn ready(&mut self) {}
}

impl environment::Host for Guest {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}

impl exit::Host for Guest {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        self.exit_with_code(u8::from(status.is_err()))
    }

    fn exit_with_code(&mut self, code: u8) -> wasmtime::Result<()> {
        let message = format!("the node called exit({code}); a node ends by returning from run");
        Err(Stop::failed(ErrorRecord::new(Kind::Trap, message).with("trap", "exit")).into())
    }
}

impl stdin::Host for Guest {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        let closed: DynInputStream = Box::new(ClosedInputStream);
        Ok(self.table.push(closed)?)
    }
}

impl stdout::Host for Guest {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.printer(Stream::Stdout)
    }
}

impl stderr::Host for Guest {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.printer(Stream::Stderr)
    }
}

impl terminal_input::Host for Guest {}
impl terminal_input::HostTerminalInput for Guest {
    fn drop(&mut self, terminal: Resource<terminal_input::TerminalInput>) -> wasmtime::Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_output::Host for Guest {}
impl terminal_output::HostTerminalOutput for Guest {
    fn drop(&mut self, terminal: Resource<terminal_output::TerminalOutput>) -> wasmtime::Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_stdin::Host for Guest {
    fn get_terminal_stdin(&mut self) -> wasmtime::Result<Option<Resource<terminal_input::TerminalInput>>> {
        Ok(None)
    }
}

impl terminal_stdout::Host for Guest {
    fn get_terminal_stdout(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_stderr::Host for Guest {
    fn get_terminal_stderr(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}
