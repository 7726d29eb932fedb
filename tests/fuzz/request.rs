//! What somebody sends to the service: a method, a path, headers and a body, over a real socket.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use holdpoint::Host;
use holdpoint::server::{ServeSettings, Service};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{cache, component_file, runtime};

/// Long requests wait for runs, which nobody ends here.
const PATIENCE: Duration = Duration::from_secs(5);

/// `METHOD PATH`, then perhaps headers, an empty line, a body; `DIGEST` stands for an installed component.
pub fn request(data: &[u8]) -> bool {
    let desk = DESK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let text = String::from_utf8_lossy(data).replace("DIGEST", &desk.digest);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
    let mut sent = format!("{first} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for header in headers.lines() {
        sent += header;
        sent += "\r\n";
    }
    if !headers.contains("content-type") {
        sent += "content-type: application/json\r\n";
    }
    sent += &format!("content-length: {}\r\n\r\n{body}", body.len());
    let answer = desk.runtime.block_on(async {
        let mut stream = TcpStream::connect(desk.address).await.unwrap();
        // It may refuse before it has read all.
        stream.write_all(sent.as_bytes()).await.ok();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        read.ok().map(|_| answer)
    });
    // A stream that goes on, for a run that waits.
    let Some(answer) = answer else { return false };
    let answer = String::from_utf8_lossy(&answer);
    let status: u16 = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    assert!(status != 500, "{sent}\n\n{answer}");
    assert!(desk.runtime.block_on(async { TcpStream::connect(desk.address).await.is_ok() }), "it is gone");
    (200..300).contains(&status)
}

struct Desk {
    runtime: tokio::runtime::Runtime,
    address: std::net::SocketAddr,
    digest: String,
    _dir: tempfile::TempDir,
}

static DESK: LazyLock<Mutex<Desk>> = LazyLock::new(|| {
    let runtime = runtime();
    let dir = tempfile::tempdir().unwrap();
    let (address, digest) = runtime.block_on(async {
        let builder = Host::builder().database(dir.path().join("s.db")).cache(cache());
        let settings = ServeSettings { needs_keys: false, ..ServeSettings::default() };
        let service = Service::open(builder, settings).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(service.clone().run(listener, std::future::pending()));
        let bytes = std::fs::read(component_file("script")).unwrap();
        let digest = holdpoint::model::Digest::of(&bytes).to_string();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "PUT /components HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/wasm\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        (address, digest)
    });
    Mutex::new(Desk { runtime, address, digest, _dir: dir })
});
