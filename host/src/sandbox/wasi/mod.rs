//! The virtual world: WASI 0.2 in which nothing differs between two attempts.
//!
//! Clocks, sleep and random come from the attempt; there is no environment, no argument, no input, no
//! file and no network. Streams, and the refusals of files and sockets, are wasmtime's own.

mod cli;
mod clocks;
mod poll;
mod random;

pub(super) use clocks::{Clock, LOOK_NS};
pub(super) use poll::Sleeps;

use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::{
    cli as wasi_cli, clocks as wasi_clocks, filesystem, random as wasi_random, sockets,
};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_io::bindings::wasi::io;

use super::guest::Guest;

/// One by one, and not with the library's one call for all: what is not named here does not exist.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    type Own = HasSelf<Guest>;

    wasi_clocks::wall_clock::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_clocks::monotonic_clock::add_to_linker::<_, Own>(linker, |guest| guest)?;
    io::poll::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_random::random::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_random::insecure::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_random::insecure_seed::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::environment::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::exit::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::stdin::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::stdout::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::stderr::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::terminal_input::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::terminal_output::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::terminal_stdin::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::terminal_stdout::add_to_linker::<_, Own>(linker, |guest| guest)?;
    wasi_cli::terminal_stderr::add_to_linker::<_, Own>(linker, |guest| guest)?;

    io::error::add_to_linker::<_, Streams>(linker, |guest| &mut guest.table)?;
    io::streams::add_to_linker::<_, Streams>(linker, |guest| &mut guest.table)?;

    filesystem::preopens::add_to_linker::<_, WasiFilesystem>(linker, Guest::filesystem)?;
    filesystem::types::add_to_linker::<_, WasiFilesystem>(linker, Guest::filesystem)?;

    let stable = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<_, WasiSockets>(linker, &stable, Guest::sockets)?;
    sockets::instance_network::add_to_linker::<_, WasiSockets>(linker, Guest::sockets)?;
    sockets::ip_name_lookup::add_to_linker::<_, WasiSockets>(linker, Guest::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<_, WasiSockets>(linker, Guest::sockets)?;
    sockets::tcp::add_to_linker::<_, WasiSockets>(linker, Guest::sockets)?;
    sockets::udp_create_socket::add_to_linker::<_, WasiSockets>(linker, Guest::sockets)?;
    sockets::udp::add_to_linker::<_, WasiSockets>(linker, Guest::sockets)
}

type Streams = HasSelf<wasmtime::component::ResourceTable>;

/// For files and sockets: there is no directory, and every socket is refused before it is made.
pub(super) fn context() -> WasiCtx {
    WasiCtxBuilder::new().allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false).build()
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
