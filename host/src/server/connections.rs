//! The connections that clients make. Each has its time to say what it wants: one that says nothing, or a byte now
//! and then, would otherwise be kept for ever, and there can be only so many.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::service::Service;

/// What cannot be taken now, most likely because too many files are open, is tried again after this.
const NEXT_TRY: Duration = Duration::from_millis(200);

impl Service {
    /// Takes connections until the service is told to end; then lets those that are being answered come to their
    /// end.
    pub(super) async fn connections(self: Arc<Self>, listener: TcpListener, app: Router) {
        let mut stopped = pin!(self.stopped());
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut stopped => break,
                Some(_) = open.join_next() => {}
                taken = listener.accept() => match taken {
                    Ok((stream, _)) => {
                        open.spawn(self.clone().connection(stream, app.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(NEXT_TRY).await;
                    }
                },
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, app: Router) {
        // What is written is written whole: nothing is gained by waiting for more.
        stream.set_nodelay(true).ok();
        let most = Duration::from_millis(self.settings.request_ms);
        if !matches!(tokio::time::timeout(most, first_bytes(&stream)).await, Ok(Ok(()))) {
            return;
        }
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(most);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(most).keep_alive_timeout(most);
        let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
        let (mut serving, mut stopped) = (pin!(serving), pin!(self.stopped()));
        // That a client went away, or said what is no HTTP, is no news.
        tokio::select! {
            _ = serving.as_mut() => {}
            () = &mut stopped => {
                serving.as_mut().graceful_shutdown();
                serving.await.ok();
            }
        }
    }
}

/// What a client of HTTP/2 says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Until it can be told which version is spoken: whoever takes it from here waits for that without end.
async fn first_bytes(stream: &TcpStream) -> io::Result<()> {
    let mut seen = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut seen).await?;
        if count == 0 || count == PREFACE.len() || seen[..count] != PREFACE[..count] {
            return Ok(());
        }
        // What was seen stays to be read, so that nothing says when more comes.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
