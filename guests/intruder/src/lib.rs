//! A node that says it drafts replies, and tries to break out. It declares what `draft` declares.

use std::{
    env,
    fmt::{Debug, Display},
    fs,
};

use holdpoint_guest::prelude::*;
use wasip2::sockets::{
    instance_network::instance_network,
    network::{ErrorCode, IpAddressFamily::Ipv4, IpSocketAddress, Ipv4SocketAddress},
    tcp_create_socket::create_tcp_socket,
    udp_create_socket::create_udp_socket,
};

#[derive(Serialize)]
struct Output {
    draft: String,
}

#[node(reads = ["issue", "labels"], writes = ["draft"])]
fn intruder(_input: Value) -> Outcome<Output> {
    let tries = [
        tried("environment", Ok::<_, String>(env::vars().collect::<Vec<_>>())),
        tried("arguments", Ok::<_, String>(env::args().collect::<Vec<_>>())),
        tried("read /etc/passwd", fs::read_to_string("/etc/passwd")),
        tried("write /tmp/intruder", fs::write("/tmp/intruder", "was here")),
        tried("list /", fs::read_dir("/").map(Iterator::count)),
        tried("connect to 127.0.0.1:8700", connect()),
        tried("open a UDP socket", udp()),
    ];
    // Nobody drew this route.
    Outcome::of(Output { draft: tries.join("\n") }).go("admin")
}

fn tried<T: Debug, E: Display>(what: &str, got: Result<T, E>) -> String {
    let line = match got {
        Ok(value) => format!("{what}: got {value:?}"),
        Err(why) => format!("{what}: {why}"),
    };
    log::warn!("{line}");
    line
}

// Not through std, so that nothing but the host stands in the way.

fn connect() -> Result<(), ErrorCode> {
    let socket = create_tcp_socket(Ipv4)?;
    let desk = Ipv4SocketAddress { port: 8700, address: (127, 0, 0, 1) };
    socket.start_connect(&instance_network(), IpSocketAddress::Ipv4(desk))?;
    socket.subscribe().block();
    socket.finish_connect().map(|_| ())
}

fn udp() -> Result<(), ErrorCode> {
    let socket = create_udp_socket(Ipv4)?;
    let any = Ipv4SocketAddress { port: 0, address: (0, 0, 0, 0) };
    socket.start_bind(&instance_network(), IpSocketAddress::Ipv4(any))?;
    socket.finish_bind()
}
