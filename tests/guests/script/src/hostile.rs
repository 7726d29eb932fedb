//! What a node would do that means harm, or is broken.

#![allow(unsafe_code, reason = "a trap that Rust prevents can only be had unsafely")]

use std::{fmt::Display, fs, hint::black_box, net::SocketAddrV4};

use serde_json::{Value, json};
use wasip2::sockets::{
    instance_network::instance_network,
    network::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress},
    tcp_create_socket::create_tcp_socket,
    udp_create_socket::create_udp_socket,
};

use crate::{bindings::holdpoint::node::types::NodeError, nonsense};

pub fn trap(kind: &str) -> Result<(), NodeError> {
    match kind {
        "unreachable" => unreachable(),
        "oob" => {
            let beyond: *const u32 = black_box(usize::MAX - 7) as *const u32;
            // SAFETY: none. On wasm the address is outside of the memory, and the load traps.
            black_box(unsafe { beyond.read_volatile() });
        }
        "div0" => {
            let zero = black_box(0_i32);
            // SAFETY: none. Without Rust's own check, the wasm instruction is reached, and traps.
            unsafe { std::hint::assert_unchecked(zero != 0) };
            black_box(black_box(1_i32) / zero);
        }
        other => return Err(nonsense(format!("unknown trap `{other}`"))),
    }
    Ok(())
}

#[cfg(target_family = "wasm")]
fn unreachable() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_family = "wasm"))]
fn unreachable() -> ! {
    std::process::abort()
}

pub fn spin() -> ! {
    loop {
        black_box(());
    }
}

pub fn recurse() {
    #[expect(unconditional_recursion, reason = "that is the point")]
    fn deeper(depth: u64) -> u64 {
        black_box(deeper(black_box(depth) + 1)) + 1
    }
    black_box(deeper(0));
}

/// True if there was so much memory. It is never given back.
pub fn grow(bytes: usize) -> bool {
    const PAGE_BYTES: usize = 4096;
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(bytes).is_err() {
        return false;
    }
    memory.resize(bytes, 0);
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    black_box(memory.leak());
    true
}

pub fn open(path: &str) -> Value {
    got(fs::read_to_string(path))
}

pub fn write(path: &str) -> Value {
    got(fs::write(path, "was here"))
}

pub fn list(path: &str) -> Value {
    got(fs::read_dir(path).map(|entries| {
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    }))
}

pub fn connect(address: &str) -> Result<Value, NodeError> {
    let address = socket_address(address)?;
    Ok(got(create_tcp_socket(IpAddressFamily::Ipv4).and_then(|socket| {
        socket.start_connect(&instance_network(), address)?;
        socket.subscribe().block();
        socket.finish_connect().map(|_| ())
    })))
}

pub fn udp(address: &str) -> Result<Value, NodeError> {
    let address = socket_address(address)?;
    Ok(got(create_udp_socket(IpAddressFamily::Ipv4).and_then(|socket| {
        socket.start_bind(&instance_network(), address)?;
        socket.subscribe().block();
        socket.finish_bind()
    })))
}

fn socket_address(address: &str) -> Result<IpSocketAddress, NodeError> {
    let address: SocketAddrV4 = address.parse().map_err(|why| nonsense(format!("{address}: {why}")))?;
    let [a, b, c, d] = address.ip().octets();
    Ok(IpSocketAddress::Ipv4(Ipv4SocketAddress { port: address.port(), address: (a, b, c, d) }))
}

pub fn got(result: Result<impl Into<Value>, impl Display>) -> Value {
    match result {
        Ok(value) => json!({ "ok": value.into() }),
        Err(why) => json!({ "err": why.to_string() }),
    }
}
