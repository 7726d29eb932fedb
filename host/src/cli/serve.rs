//! `holdpoint serve`: the service.

use std::net::SocketAddr;

use serde_json::json;

use super::document::{Exit, Said};
use super::failure::Failure;
use super::stop::Signals;
use super::{Shell, store};
use crate::server::{ServeSettings, Service};

pub const ABOUT: &str = "\
Serve graphs, threads and questions over HTTP, to the field's public SDKs and to whoever reads its OpenAPI
document (GET /openapi.json).

On this machine alone (the default) a caller without a key is the tenant `default` and may do everything. On
any other address every caller needs a key; `holdpoint key create` makes one, also while the service runs.

SIGTERM or Ctrl-C ends it: no more requests are taken, what runs may go on for a while, and what still runs
then is kept and goes on with the next start. A second signal ends it at once, which loses nothing either.

    holdpoint serve --listen 127.0.0.1:2024
    holdpoint deploy graph.toml
    holdpoint key create --tenant acme --name ci --scope deploy --scope run
    holdpoint serve --listen 0.0.0.0:2024 --db /var/lib/holdpoint/holdpoint.db";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, env = "HOLDPOINT_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2024")]
    listen: SocketAddr,

    /// Ask for a key on this machine too
    #[arg(long)]
    require_keys: bool,

    /// How long what runs may go on after the first signal
    #[arg(long, value_name = "MS", default_value_t = ServeSettings::default().drain_ms)]
    drain_ms: u64,

    /// Requests that are answered at once
    #[arg(long, value_name = "N", default_value_t = ServeSettings::default().requests_at_once)]
    requests_at_once: usize,

    /// Connections that are open at once; one more is answered 503 and closed
    #[arg(long, value_name = "N", default_value_t = ServeSettings::default().connections_at_once)]
    connections_at_once: usize,

    /// Streams and waits that are open at once
    #[arg(long, value_name = "N", default_value_t = ServeSettings::default().streams_at_once)]
    streams_at_once: usize,

    /// How often a stream says that it is still there
    #[arg(long, hide = true, value_name = "MS", default_value_t = ServeSettings::default().heartbeat_ms)]
    heartbeat_ms: u64,

    /// How soon a webhook is tried again for the first time
    #[arg(long, hide = true, value_name = "MS", default_value_t = ServeSettings::default().webhook_backoff_ms)]
    webhook_backoff_ms: u64,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let mut signals = Signals::listen()?;
    let needs_keys = args.require_keys || !args.listen.ip().is_loopback();
    let settings = ServeSettings {
        needs_keys,
        drain_ms: args.drain_ms,
        requests_at_once: args.requests_at_once,
        connections_at_once: args.connections_at_once,
        streams_at_once: args.streams_at_once,
        heartbeat_ms: args.heartbeat_ms,
        webhook_backoff_ms: args.webhook_backoff_ms,
        ..ServeSettings::default()
    };
    may_open_more();
    let failed = |error: std::io::Error| Failure::Host(format!("{}: {error}", args.listen));
    // Before the database is opened: an address that is taken should change nothing.
    let listener = tokio::net::TcpListener::bind(args.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let service = Service::open(shell.builder()?.database(&shell.options.db), settings).await?;
    let keys = if needs_keys { "every caller needs a key" } else { "callers on this machine need no key" };
    shell.screen.line(&format!("serving on http://{address}; {keys}"));
    if !store(&service.host)?.has_deployments().await? {
        shell.screen.line(&first_steps(address, needs_keys));
    }
    let screen = shell.screen.clone();
    let shutdown = async move {
        signals.next().await;
        screen.line("ending; once more to end at once");
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(Exit::Stopped.code().into());
        });
    };
    service.run(listener, shutdown).await.map_err(failed)?;
    let document = json!({ "listened": address.to_string() });
    Ok(Said::new(Exit::Completed, &document, "ended; what was accepted is kept\n"))
}

/// What there is to do where nothing is deployed.
fn first_steps(address: SocketAddr, needs_keys: bool) -> String {
    let port = address.port();
    let url = match address.ip() {
        ip if !ip.is_unspecified() => format!("http://{address}"),
        ip if ip.is_ipv4() => format!("http://127.0.0.1:{port}"),
        _ => format!("http://[::1]:{port}"),
    };
    let key = if needs_keys { "HOLDPOINT_KEY=hp_… " } else { "" };
    format!("no graph is deployed yet: {key}holdpoint deploy GRAPH.toml --url {url}")
}

/// As many files as the system lets this process have: each connection is one.
fn may_open_more() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    // Where that is not allowed, it has fewer connections.
    setrlimit(Resource::Nofile, files).ok();
}
