//! What an attempt is charged with: its fuel, or the processor time that it took where that is more. Fuel pays for a
//! guest's own instructions and is the same on every replay; what the host does in its calls, such as printing, costs
//! a guest next to none of it, and is paid for by the time it takes. Charged also to who is called off half way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cpu_time::ThreadTime;

use super::attempt::Outside;

/// A guest that only computes is faster than this, so it pays for its fuel.
const NS_PER_FUEL: u128 = 2;

pub(super) struct Bill {
    outside: Arc<dyn Outside>,
    busy: Duration,
    pub fuel: u64,
}

impl Bill {
    pub fn new(outside: Arc<dyn Outside>) -> Self {
        Self { outside, busy: Duration::ZERO, fuel: 0 }
    }

    /// Goes on with `work`, and takes down how long each of its turns kept a processor.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let from = processor_time();
            let polled = work.as_mut().poll(cx);
            self.busy += processor_time().saturating_sub(from);
            polled
        })
        .await
    }

    fn amount(&self) -> u64 {
        self.fuel.max(u64::try_from(self.busy.as_nanos() / NS_PER_FUEL).unwrap_or(u64::MAX))
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        self.outside.charge(self.amount());
    }
}

/// Of this thread, since it began. By the C library, and so under valgrind as well.
fn processor_time() -> Duration {
    ThreadTime::try_now().map(|time| time.as_duration()).unwrap_or_default()
}
