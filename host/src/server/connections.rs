//! The connections that clients make. Each has its time to say what it wants: one that says nothing, or a byte now
//! and then, would otherwise be kept for ever, and there can be only so many. One more than that is told so.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use super::problem::Problem;
use super::service::Service;

/// Files that are open beside connections: the database, components, what effects and webhooks reach.
const OTHER_FILES: u64 = 256;
/// So many are told at once that there is no room for them; more than that are closed without a word.
const TOLD_MAX: usize = 64;
/// What is thrown away of what one that is told so has said already, or that is refused while it sends, and how long
/// it may take to hear it.
const UNREAD_BYTES_MAX: usize = 64 << 10;
const REFUSED_BYTES_MAX: usize = 128 << 20;
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// What is read of a head, which is more than [`super::routes`] takes: what it refuses it says why.
const HEAD_BUFFER_BYTES: usize = 64 << 10;

/// What cannot be taken now, most likely because too many files are open, is tried again after this.
const NEXT_TRY: Duration = Duration::from_millis(200);

impl Service {
    /// Takes connections until the service is told to end; then lets those that are being answered come to their
    /// end.
    pub(super) async fn connections(self: Arc<Self>, listener: TcpListener, app: Router) {
        let mut stopped = pin!(self.stopped());
        let (mut open, mut told) = (JoinSet::new(), JoinSet::new());
        let most = self.connections_max();
        loop {
            tokio::select! {
                () = &mut stopped => break,
                Some(_) = open.join_next() => {}
                Some(_) = told.join_next() => {}
                taken = listener.accept() => match taken {
                    Ok((stream, _)) if open.len() < most => {
                        open.spawn(self.clone().connection(stream, app.clone()));
                    }
                    Ok((stream, _)) => {
                        self.metrics.connections_refused.inc();
                        if told.len() < TOLD_MAX {
                            told.spawn(tokio::time::timeout(TOLD_WITHIN, no_room(stream, most)));
                        }
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

    /// As many as are allowed, and as the process may have files for.
    fn connections_max(&self) -> usize {
        let wanted = self.settings.connections_at_once;
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let room = files.map_or(usize::MAX, |files| {
            usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(1)
        });
        if room < wanted {
            tracing::warn!(
                room,
                wanted,
                "this process may not open files for as many connections (connections_at_once) as it is to take"
            );
        }
        wanted.min(room)
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, app: Router) {
        // What is written is written whole: nothing is gained by waiting for more.
        stream.set_nodelay(true).ok();
        let most = Duration::from_millis(self.settings.request_ms);
        if !matches!(tokio::time::timeout(most, first_bytes(&stream)).await, Ok(Ok(()))) {
            return;
        }
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(most).max_buf_size(HEAD_BUFFER_BYTES);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(most).keep_alive_timeout(most);
        let stream = Arc::new(Mutex::new(stream));
        {
            let stream = Patient { stream: stream.clone(), most, until: None };
            let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
            let (mut serving, mut stopped) = (pin!(serving), pin!(self.stopped()));
            // That a client went away, or said what is no HTTP, is no news.
            tokio::select! {
                _ = serving.as_mut() => {}
                () = &mut stopped => {
                    serving.as_mut().graceful_shutdown();
                    serving.await.ok();
                    return;
                }
            }
        }
        if let Some(stream) = Arc::into_inner(stream) {
            let mut stream = stream.into_inner().unwrap_or_else(PoisonError::into_inner);
            tokio::time::timeout(TOLD_WITHIN, hear_out(&mut stream, REFUSED_BYTES_MAX)).await.ok();
        }
    }
}

/// A connection whose other end must take what it is sent, be it slowly: one that takes nothing for as long as a
/// request may last would be kept for ever, with what it was to be sent.
struct Patient {
    /// Outlives what reads and writes it.
    stream: Arc<Mutex<TcpStream>>,
    most: Duration,
    /// By when something of what waits must have been taken.
    until: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn with<T>(&self, act: impl FnOnce(Pin<&mut TcpStream>) -> T) -> T {
        act(Pin::new(&mut *self.stream.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn waits<T>(&mut self, cx: &mut Context<'_>, taken: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if taken.is_ready() {
            self.until = None;
            return taken;
        }
        let most = self.most;
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(most)));
        ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, into))
    }
}

impl AsyncWrite for Patient {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let taken = this.with(|stream| stream.poll_write(cx, from));
        this.waits(cx, taken)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let taken = this.with(|stream| stream.poll_write_vectored(cx, from));
        this.waits(cx, taken)
    }

    fn is_write_vectored(&self) -> bool {
        self.with(|stream| stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}

/// Says that there are so many connections already, whatever was asked.
async fn no_room(mut stream: TcpStream, most: usize) -> io::Result<()> {
    let what = format!("{most} connections are open already");
    let body = Problem::crowded("connections_at_once", most as u64, what).text();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    hear_out(&mut stream, UNREAD_BYTES_MAX).await
}

/// Says that no more comes, and reads until the other end says so too: what is closed while there is something to read
/// loses what was written as well, and so whoever is refused while it sends would not hear why.
async fn hear_out(stream: &mut TcpStream, bytes_max: usize) -> io::Result<()> {
    stream.shutdown().await?;
    // On the heap, or every connection would have room for it from the first.
    let (mut unread, mut left) = (vec![0; 16 << 10], bytes_max);
    while left > 0 {
        match stream.read(&mut unread).await? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
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
