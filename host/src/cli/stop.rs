//! Ctrl-C and its like. The first lets what runs become durable; the second ends the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::document::Exit;
use super::failure::Failure;
use super::screen::Screen;
use crate::engine::Host;

/// Whether somebody asked to stop.
pub struct Stop {
    asked: watch::Receiver<bool>,
}

impl Stop {
    /// From here on a signal stops the host instead of the process.
    pub fn listen(host: &Host, screen: &Screen) -> Result<Self, Failure> {
        let mut signals = Signals::listen()?;
        let (ask, asked) = watch::channel(false);
        let (host, screen) = (host.clone(), screen.clone());
        tokio::spawn(async move {
            signals.next().await;
            screen.line("stopping, and keeping what was done; once more to stop at once");
            ask.send_replace(true);
            host.stop();
            signals.next().await;
            std::process::exit(Exit::Stopped.code().into());
        });
        Ok(Self { asked })
    }

    pub async fn asked(&mut self) {
        if self.asked.wait_for(|asked| *asked).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Waits for a signal, or for standard input to end: whoever holds the other end is gone then.
pub async fn linger() {
    let input = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    match Signals::listen() {
        Ok(mut signals) => tokio::select! {
            () = signals.next() => {}
            _ = input => {}
        },
        Err(_) => drop(input.await),
    }
}

/// Those that ask to stop; from here on they do nothing else.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn listen() -> Result<Self, Failure> {
        let signal = |kind| {
            signal(kind)
                .map_err(|error| Failure::Host(format!("this process cannot listen for signals: {error}")))
        };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
