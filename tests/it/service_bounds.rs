//! What the service takes at most: bytes, time, connections, parameters. What is beyond is refused, and named.

use std::time::Duration;

use holdpoint::server::ServeSettings;
use holdpoint::store::Scope;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service::*;
use crate::world::scripted;

/// What comes back on a socket to its end, for what is written to it.
async fn spoken(served: &Served, said: &[u8]) -> String {
    let mut socket = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).await.unwrap();
    socket.write_all(said).await.unwrap();
    heard(&mut socket).await
}

async fn heard(socket: &mut TcpStream) -> String {
    let mut came = Vec::new();
    let ends = socket.read_to_end(&mut came);
    // An end or a reset: what was still being sent is thrown away.
    tokio::time::timeout(Duration::from_secs(20), ends).await.expect("it ends").ok();
    String::from_utf8(came).unwrap()
}

/// The status and the body of the one answer that came.
#[track_caller]
fn answer(came: &str) -> (u16, Value) {
    let (head, body) = came.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{came:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{came:?}")))
}

#[track_caller]
fn names(body: &Value, limit: &str, value: u64) {
    let error = &body["error"];
    assert_eq!(
        (&error["kind"], &error["limit"], &error["value"]),
        (&json!("limit"), &json!(limit), &json!(value))
    );
    assert!(body["detail"].as_str().unwrap().contains(limit), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_a_byte_now_and_then_is_not_waited_for() {
    let bounds = ServeSettings { body_ms: 1_000, upload_ms: 2_000, ..settings() };
    let served = Served::start(bounds).await;
    served.caller().scripted(&["n"]).await;
    for (method, path, kind, limit, ms) in [
        ("POST", "/threads", "application/json", "body_ms", 1_000),
        ("POST", "/threads/t/runs/wait", "application/json", "body_ms", 1_000),
        ("POST", "/runs/stream", "application/json", "body_ms", 1_000),
        ("PUT", "/components", "application/wasm", "upload_ms", 2_000),
    ] {
        for how in ["content-length: 100000", "transfer-encoding: chunked"] {
            let address = served.url.strip_prefix("http://").unwrap();
            let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\n{how}\r\n\r\n"
            );
            write.write_all(head.as_bytes()).await.unwrap();
            let piece = if how.starts_with('c') { "{" } else { "1\r\n{\r\n" };
            let drips = tokio::spawn(async move {
                while write.write_all(piece.as_bytes()).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            let mut came = Vec::new();
            let ends = read.read_to_end(&mut came);
            tokio::time::timeout(Duration::from_secs(20), ends).await.expect(path).ok();
            drips.abort();
            let (status, body) = answer(&String::from_utf8(came).unwrap());
            assert_eq!(status, 408, "{path}, {how}: {body}");
            names(&body, limit, ms);
        }
    }
    served.caller().get("/ok").await.is(200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_is_taken_is_refused_and_the_limit_is_named() {
    let bounds = ServeSettings { needs_keys: true, body_bytes: 2_000, ..settings() };
    let served = Served::start(bounds).await;
    let admin = served.key("operator", &[Scope::Admin]).await;
    let caller = served.key("acme", &[Scope::Deploy, Scope::Run]).await;
    let component_bytes = served.service.host.limits().component_bytes;
    let json = |request: reqwest::RequestBuilder| request.header("content-type", "application/json");
    let threads = || json(caller.request(Method::POST, "/threads"));
    let put = || caller.request(Method::PUT, "/components");
    let rows = [
        ("/threads", "POST", "body_bytes", 2_000),
        ("/components", "PUT", "component_bytes", component_bytes),
    ];
    for (path, method, limit, most) in rows {
        let key = caller.key.as_ref().unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n");
        let head = format!("{head}content-type: application/json\r\n");
        let told = format!("{head}content-length: {}\r\n\r\n", most + 1);
        let (status, body) = answer(&spoken(&served, told.as_bytes()).await);
        assert_eq!(status, 413, "{path}, told: {body}");
        names(&body, limit, most);
        // A body in chunks has no length that is told before.
        let address = served.url.strip_prefix("http://").unwrap();
        let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
        let pours = tokio::spawn(async move {
            let piece = format!("10000\r\n{}\r\n", " ".repeat(1 << 16));
            write.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
            let mut sent = 0;
            while sent < 2 * component_bytes && write.write_all(piece.as_bytes()).await.is_ok() {
                sent += 1 << 16;
            }
        });
        let mut came = Vec::new();
        read.read_to_end(&mut came).await.ok();
        pours.abort();
        let (status, body) = answer(&String::from_utf8(came).unwrap());
        assert_eq!(status, 413, "{path}, not told: {body}");
        names(&body, limit, most);
    }
    admin.put("/tenants/acme", json!({ "quotas": { "body_bytes": 1_000 } })).await.is(200);
    let rows = [
        ("a tenant's document", threads().body(" ".repeat(1_001))),
        ("a tenant's component", put().body(vec![0; 1_001])),
    ];
    for (what, request) in rows {
        let came = caller.send(request).await;
        assert_eq!(came.status, 413, "{what}: {came:?}");
        names(&came.body, "body_bytes", 1_000);
    }
    served.end().await;

    let served = Served::start(settings()).await;
    let note = json!({ "metadata": { "much": "x".repeat(70_000) } });
    names(&served.caller().post("/threads", note).await.is(413), "metadata_bytes", 65_536);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_more_than_there_may_be_is_told_so_and_closed() {
    let served = Served::start(ServeSettings { connections_at_once: 3, ..settings() }).await;
    let address = served.url.strip_prefix("http://").unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"GET /ok HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
        let mut first = [0; 15];
        socket.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        held.push(socket);
    }
    let came = spoken(&served, b"GET /ok HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await;
    assert!(came.contains("retry-after: 1\r\n") && came.contains("connection: close\r\n"), "{came}");
    let (status, body) = answer(&came);
    assert_eq!(status, 503);
    names(&body, "connections_at_once", 3);
    // One that goes makes room.
    held.pop();
    loop {
        let came = spoken(&served, b"GET /ok HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
        match answer(&came).0 {
            200 => break,
            status => assert_eq!(status, 503),
        }
    }
    drop(held);
    let metrics = served.caller().get("/metrics").await.is(200);
    assert!(metrics.as_str().unwrap().contains("holdpoint_connections_refused_total"), "{metrics}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_large_is_refused_with_a_body() {
    let served = Served::start(settings()).await;
    let get = |head: String| format!("GET /ok{head}\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    let many: String = (0..90).map(|n| format!("\r\nx-{n}: y")).collect();
    for (head, limit, value) in [
        (format!(" HTTP/1.1\r\nx-long: {}", "y".repeat(33_000)), "head_bytes", 32_768),
        (format!("?{} HTTP/1.1", "y".repeat(33_000)), "head_bytes", 32_768),
        (format!(" HTTP/1.1{many}"), "headers", 80),
    ] {
        let (status, body) = answer(&spoken(&served, get(head).as_bytes()).await);
        assert_eq!(status, 431, "{body}");
        names(&body, limit, value);
    }
    // Beyond that the connection is ended by what reads it, which says no more than the status.
    for head in [
        format!(" HTTP/1.1\r\nx-long: {}", "y".repeat(100_000)),
        format!(" HTTP/1.1{}", (0..200).map(|n| format!("\r\nx-{n}: y")).collect::<String>()),
    ] {
        let came = spoken(&served, get(head).as_bytes()).await;
        assert!(came.is_empty() || came.starts_with("HTTP/1.1 431"), "{came}");
    }
    served.caller().get("/ok").await.is(200);
    served.end().await;
}

/// Whoever has a key can keep what is its own share, and not what others need.
#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_cannot_take_all_the_room_there_is_for_requests_and_streams() {
    let bounds = ServeSettings { needs_keys: true, requests_at_once: 6, streams_at_once: 6, ..settings() };
    let served = Served::start(bounds).await;
    let acme = served.key("acme", &[Scope::Deploy, Scope::Run]).await;
    let other = served.key("other", &[Scope::Deploy, Scope::Run]).await;
    for caller in [&acme, &other] {
        caller.scripted(&["n"]).await;
    }
    let is_full = |came: Came, limit: &str| {
        assert!(came.headers.contains_key("retry-after"), "{came:?}");
        names(&came.is(429), limit, 3);
    };
    // Bodies that do not come to their end. Which of them are taken is up to what is being answered as they
    // come, so there is one more until there is no room.
    let mut held = Vec::new();
    let refused = loop {
        let mut socket = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).await.unwrap();
        let key = acme.key.as_ref().unwrap();
        let head =
            format!("PUT /components HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 9\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        held.push(socket);
        let came = acme.get("/graphs").await;
        if came.status != 200 {
            break came;
        }
    };
    is_full(refused, "requests_at_once");
    other.get("/graphs").await.is(200);
    drop(held);
    while acme.get("/graphs").await.status != 200 {}

    acme.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let behind = json!({ "assistant_id": "scripted", "input": {}, "multitask_strategy": "enqueue" });
    let run = acme.post("/threads/t/runs", behind).await.is(200);
    let stream = format!("/threads/t/runs/{}/stream", run["run_id"].as_str().unwrap());
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(Stream::open(acme.request(Method::GET, &stream)).await);
    }
    is_full(acme.get(&stream).await, "streams_at_once");
    // Streams that are open are no requests that are being answered.
    acme.get("/graphs").await.is(200);
    other.wait("t", json!([])).await.is(200);
    drop(open);
    served.end().await;
}

/// A connection whose other end takes nothing is not kept, whatever it was to be sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_not_kept() {
    let served = Served::start(ServeSettings { request_ms: 1_500, ..settings() }).await;
    let caller = served.caller();
    let mut socket = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).await.unwrap();
    // More answers than there is room for on the way.
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(1000);
    let ends = async {
        loop {
            if socket.write_all(ask.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ends).await.expect("it is closed");
    caller.get("/ok").await.is(200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_one_host() {
    let served = Served::start(settings()).await;
    for (version, hosts, status) in [
        ("1.1", "host: localhost\r\n", 200),
        ("1.1", "", 400),
        ("1.1", "host: localhost\r\nhost: evil.example\r\n", 400),
        ("1.0", "", 200),
        ("1.0", "host: localhost\r\nhost: localhost\r\n", 400),
    ] {
        let said = format!("GET /ok HTTP/{version}\r\n{hosts}connection: close\r\n\r\n");
        assert_eq!(answer(&spoken(&served, said.as_bytes()).await).0, status, "{said:?}");
    }
    served.end().await;
}

/// What is behind a body of two lengths is never taken for a request.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_two_lengths_is_the_last_of_its_connection() {
    let served = Served::start(settings()).await;
    served.caller().thread("t").await;
    let smuggled = "DELETE /threads/t HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let body = "{\"thread_id\":\"u\"}";
    let (length, chunked) = ("content-length: 17\r\n", "transfer-encoding: chunked\r\n");
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (what, lengths, body) in [
        ("length first", format!("{length}{chunked}"), &*chunk),
        ("chunked first", format!("{chunked}{length}"), &*chunk),
        ("two lengths", format!("{length}content-length: 5\r\n"), body),
        ("not chunked", "transfer-encoding: gzip\r\n".to_owned(), body),
        ("chunked is not the last", "transfer-encoding: chunked, gzip\r\n".to_owned(), &*chunk),
    ] {
        let head = "POST /threads HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n";
        let came = spoken(&served, format!("{head}{lengths}\r\n{body}{smuggled}").as_bytes()).await;
        assert_eq!(came.matches("HTTP/1.1 ").count(), 1, "{what}: {came}");
        served.caller().get("/threads/t").await.is(200);
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_is_not_known_or_out_of_its_range_is_named() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let run = caller.get("/threads/t/runs").await.is(200)[0]["run_id"].as_str().unwrap().to_owned();
    let run = format!("/threads/t/runs/{run}");
    let page = "limit is a whole number from 1 to 1000, not ";
    for (path, says) in [
        ("/threads/t/runs?limit=-1".to_owned(), format!("{page}-1")),
        ("/threads/t/runs?limit=0".to_owned(), format!("{page}0")),
        ("/threads/t/runs?limit=1001".to_owned(), format!("{page}1001")),
        ("/threads/t/runs?limit=ten".to_owned(), format!("{page}\"ten\"")),
        ("/threads/t/runs?limit=99999999999999999999".to_owned(), format!("{page}\"99999999999999999999\"")),
        ("/threads/t/runs?limit=1&limit=2".to_owned(), format!("{page}\"1,2\"")),
        (
            "/threads/t/runs?offset=-1".to_owned(),
            "offset is a whole number from 0 to 4294967295, not -1".into(),
        ),
        ("/threads/t/runs?status=odd".to_owned(), "status: unknown variant `odd`, expected one of".into()),
        (
            "/threads/t/runs?limits=1".to_owned(),
            "no parameter \"limits\" here; the query of this route takes limit".into(),
        ),
        ("/interrupts?limit=-5".to_owned(), format!("{page}-5")),
        (
            "/interrupts?older_than_ms=-5".to_owned(),
            "older_than_ms is a whole number, 0 or more, not \"-5\"".into(),
        ),
        ("/interrupts?thread=t".to_owned(), "no parameter \"thread\" here".into()),
        (
            "/threads/t/state?subgraphs=perhaps".to_owned(),
            "subgraphs: \"perhaps\" is neither true nor false".into(),
        ),
        ("/threads/t?values=1".to_owned(), "takes include".into()),
        ("/graphs?name=scripted".to_owned(), "takes none".into()),
        (format!("{run}/join?wait=1"), "takes cancel_on_disconnect".into()),
    ] {
        let came = caller.get(&path).await;
        assert_eq!(came.status, 422, "{path}: {came:?}");
        let detail = came.body["detail"].as_str().unwrap();
        assert!(detail.contains(&says), "{path}: {detail} has no {says}");
    }
    for (path, body, says) in [
        ("/threads/search", json!({ "limit": -1 }), format!("{page}-1")),
        ("/threads/search", json!({ "limit": "a" }), "limit: invalid type".into()),
        ("/threads/t/history", json!({ "limit": 5000 }), format!("{page}5000")),
        ("/assistants/search", json!({ "offset": -3 }), "offset is a whole number".into()),
        ("/threads/t/resume", json!({ "target": { "run_id": 7 } }), "target.run_id: ".into()),
        (
            &*format!("{run}/cancel?action=stop"),
            json!({}),
            "action is interrupt or rollback, not \"stop\"".into(),
        ),
        ("/threads/t/runs?wait=1", json!({ "assistant_id": "scripted" }), "takes none".into()),
    ] {
        let came = caller.post(path, body).await;
        assert_eq!(came.status, 422, "{path}: {came:?}");
        let detail = came.body["detail"].as_str().unwrap();
        assert!(detail.contains(&says), "{path}: {detail} has no {says}");
    }
    // What the field's clients send beside it is taken.
    for path in [
        "/threads/t/state?subgraphs=false&select=values",
        "/threads/t/runs?limit=10&offset=0&status=success&select=run_id&select=status",
        "/threads/t?include=ttl",
        "/assistants/scripted/graph?xray=false",
        "/assistants/scripted/subgraphs?recurse=false",
        &format!("{run}/join?cancel_on_disconnect=0"),
    ] {
        caller.get(path).await.is(200);
    }
    let stream =
        format!("{run}/stream?cancel_on_disconnect=0&stream_mode=values&namespace=a&checkpoint_id=b");
    Stream::open(caller.request(Method::GET, &stream)).await.all().await;
    let graph = json!({ "graph_id": "scripted", "name": "other" });
    let made = caller.post("/assistants", graph).await.is(200);
    let assistant = format!("/assistants/{}?delete_threads", made["assistant_id"].as_str().unwrap());
    caller.delete(&format!("{assistant}=true")).await.is(422);
    caller.delete(&format!("{assistant}=false")).await.is(204);
    let reason = caller.post(&format!("{run}/cancel?wait=0&action=interrupt&reason=taken"), json!({})).await;
    reason.is(202);
    served.end().await;
}

/// Each named by its digest, a graph of few nodes can have very many below it.
#[tokio::test(flavor = "multi_thread")]
async fn the_subgraphs_of_subgraphs_are_shown_up_to_a_bound() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    let mut below = scripted(&["y"]);
    below.name = "l0".into();
    caller.deploy(&below).await;
    for level in 1..=8 {
        let node = || {
            holdpoint::NodeSpec::subgraph(format!("l{}", level - 1)).reads(&["script", "a"]).writes(&["a"])
        };
        let mut spec = scripted(&["y"]);
        spec.nodes.clear();
        spec.name = format!("l{level}");
        for name in ["p", "q", "r"] {
            spec = spec.node(name, node());
        }
        spec.entry = holdpoint::model::OneOrMany::Many(["p", "q", "r"].map(String::from).to_vec());
        caller.deploy(&spec).await;
    }
    let shown = caller.get("/assistants/l2/subgraphs?recurse=true").await.is(200);
    assert_eq!(shown.as_object().unwrap().len(), 3 + 9, "{shown}");
    assert_eq!(shown["p|q"]["graph_id"], "l0");
    assert_eq!(caller.get("/assistants/l8/subgraphs").await.is(200).as_object().unwrap().len(), 3);
    let came = caller.get("/assistants/l8/subgraphs?recurse=true").await;
    assert_eq!(came.status, StatusCode::PAYLOAD_TOO_LARGE);
    names(&came.body, "subgraphs", 1_000);
    served.end().await;
}
