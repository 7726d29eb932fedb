//! Who is woken when a thread changes, and what nodes say meanwhile. Nothing here is durable: what wakes is
//! a hint to look into the database, and what nodes say is provisional and bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::engine::{Clock, Watched, Watcher};
use crate::model::{Json, TenantId, ThreadId};

pub type Key = (TenantId, ThreadId);

/// What is kept of what the nodes of one thread said.
const SAID_MAX: usize = 256;
const SAID_BYTES_MAX: usize = 256 * 1024;
/// So many threads have a line here at once, before those that nobody listens to lose theirs.
const LINES_MAX: usize = 512;

/// Something a node emitted.
#[derive(Clone, Debug)]
pub struct Said {
    /// When, in microseconds, and later than what was said before it: its place in the order.
    pub at: i64,
    pub text: Arc<str>,
}

#[derive(Default)]
pub struct Hub {
    clock: Clock,
    lines: Mutex<HashMap<Key, Line>>,
}

struct Line {
    news: watch::Sender<u64>,
    said: VecDeque<Said>,
    bytes: usize,
    /// Of what was said last.
    last: i64,
    /// Of the last that was dropped.
    dropped: i64,
}

impl Hub {
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, lines: Mutex::default() })
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Key, Line>> {
        self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Learns of every change from now on. Listen before looking, or a change between the two is missed.
    pub fn listen(&self, key: &Key) -> watch::Receiver<u64> {
        let mut lines = self.lines();
        line(&mut lines, key).news.subscribe()
    }

    /// Something became of a thread.
    pub fn tell(&self, key: &Key) {
        if let Some(line) = self.lines().get(key) {
            line.news.send_modify(|count| *count += 1);
        }
    }

    fn tell_all(&self) {
        for line in self.lines().values() {
            line.news.send_modify(|count| *count += 1);
        }
    }

    /// What was said on a thread after this, and whether some of it was dropped.
    pub fn said(&self, key: &Key, after: i64) -> (Vec<Said>, bool) {
        let lines = self.lines();
        let Some(line) = lines.get(key) else { return (Vec::new(), false) };
        let said = line.said.iter().filter(|said| said.at > after).cloned().collect();
        (said, line.dropped > after)
    }

    pub fn now_us(&self) -> i64 {
        self.clock.now().0.saturating_mul(1000)
    }

    fn say(&self, key: &Key, text: String) {
        let now = self.now_us();
        let mut lines = self.lines();
        let line = line(&mut lines, key);
        line.last = now.max(line.last + 1);
        line.bytes += text.len();
        line.said.push_back(Said { at: line.last, text: text.into() });
        while line.said.len() > SAID_MAX || line.bytes > SAID_BYTES_MAX {
            let Some(dropped) = line.said.pop_front() else { break };
            line.bytes -= dropped.text.len();
            line.dropped = dropped.at;
        }
        line.news.send_modify(|count| *count += 1);
    }

    /// What a host shows to this hub while its runs go on.
    pub fn watcher(self: &Arc<Self>) -> Watcher {
        let hub = self.clone();
        Arc::new(move |watched: &Watched<'_>| hub.watched(watched))
    }

    fn watched(&self, watched: &Watched<'_>) {
        match watched {
            Watched::Emitted { tenant, thread: Some(thread), node, task, attempt, event } => {
                let value = event.value();
                let said = json!({ "node": node, "task_id": task, "attempt": attempt, "provisional": true, "event": value });
                self.say(&((*tenant).clone(), (*thread).clone()), said.to_string());
            }
            // What nodes log may be anybody's data: it is for whoever asks for this target by name.
            Watched::Log { node, message, .. } => tracing::debug!(target: "node", node, message),
            Watched::TaskStarted { node, task, attempt } => {
                tracing::debug!(node, %task, attempt, "task started");
            }
            Watched::TaskEnded { node, task, how } => tracing::debug!(node, %task, how, "task ended"),
            Watched::Compiling { name, bytes } => tracing::info!(name, bytes, "compiling a component"),
            Watched::Step { .. } | Watched::Emitted { .. } => {}
        }
    }

    /// Passes on what the store says changed, for as long as it is there.
    pub async fn follow(self: Arc<Self>, mut changes: broadcast::Receiver<Key>) {
        loop {
            match changes.recv().await {
                Ok(key) => self.tell(&key),
                // Some were missed: whoever listens looks for itself.
                Err(broadcast::error::RecvError::Lagged(_)) => self.tell_all(),
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }
}

fn line<'a>(lines: &'a mut HashMap<Key, Line>, key: &Key) -> &'a mut Line {
    if lines.len() >= LINES_MAX && !lines.contains_key(key) {
        lines.retain(|_, line| line.news.receiver_count() > 0);
    }
    lines.entry(key.clone()).or_insert_with(|| Line {
        news: watch::Sender::new(0),
        said: VecDeque::new(),
        bytes: 0,
        last: 0,
        dropped: 0,
    })
}

/// An event's text as JSON, as it was taken down.
pub fn value_of(said: &Said) -> Value {
    serde_json::from_str(&said.text).unwrap_or_else(|_| Json::null().value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_nodes_say_is_kept_in_order_and_within_bounds() {
        let hub = Hub::new(Clock::default());
        let key = (TenantId::default(), ThreadId::parse("t").unwrap());
        let mut news = hub.listen(&key);
        for n in 0..SAID_MAX + 10 {
            hub.say(&key, n.to_string());
        }
        assert!(news.has_changed().unwrap());
        news.mark_unchanged();
        let (said, dropped) = hub.said(&key, 0);
        assert_eq!((said.len(), dropped), (SAID_MAX, true));
        assert!(said.windows(2).all(|two| two[0].at < two[1].at));
        let (rest, dropped) = hub.said(&key, said[SAID_MAX - 3].at);
        assert_eq!(rest.iter().map(|said| &*said.text).collect::<Vec<_>>(), ["264", "265"]);
        assert!(!dropped);
        hub.say(&key, "x".repeat(SAID_BYTES_MAX + 1));
        assert_eq!(hub.said(&key, 0).0.len(), 0);
    }
}
