//! Seeing to what is due: questions that expired, runs whose process died, input that waits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};

use super::error::EngineError;
use super::host::Host;
use crate::model::command::RunConfig;
use crate::model::error::Kind;
use crate::model::execution::Execution;
use crate::model::ids::{TenantId, ThreadId};

/// So many threads are seen to at once.
const AT_ONCE: usize = 16;

/// What became of a thread on which something was due.
#[derive(Debug)]
pub struct Swept {
    pub tenant: TenantId,
    pub thread: ThreadId,
    pub result: Result<Execution, EngineError>,
}

/// Threads on which what is due could not be done: each is left alone for twice as long as before. What a host
/// cannot do, such as on a thread whose rows are damaged, may have sent an effect each time that it is tried.
#[derive(Default)]
struct Failing(HashMap<(TenantId, ThreadId), (u32, Instant)>);

const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(600);

impl Failing {
    fn waits(&self, tenant: &TenantId, thread: &ThreadId) -> bool {
        let failed = self.0.get(&(tenant.clone(), thread.clone()));
        failed.is_some_and(|(_, until)| *until > Instant::now())
    }

    /// It failed once more.
    fn again_in(&mut self, tenant: &TenantId, thread: &ThreadId) -> Duration {
        let failed = self.0.entry((tenant.clone(), thread.clone())).or_insert((0, Instant::now()));
        let wait = AGAIN.saturating_mul(1 << failed.0.min(20)).min(AGAIN_MAX);
        *failed = (failed.0 + 1, Instant::now() + wait);
        wait
    }
}

impl Host {
    /// Goes on with every thread, of all tenants, on which something is due, and says what came of it. One
    /// that somebody else sees to at the same time is left out.
    pub async fn sweep(&self) -> Result<Vec<Swept>, EngineError> {
        self.sweep_but(&Failing::default()).await
    }

    async fn sweep_but(&self, failing: &Failing) -> Result<Vec<Swept>, EngineError> {
        let store = self.durable_store()?;
        let mut due = store.due(self.shared.clock.now()).await?;
        due.retain(|(tenant, thread)| !failing.waits(tenant, thread));
        let seen = stream::iter(due).map(|(tenant, thread)| async move {
            let host = self.for_tenant(tenant.clone());
            let result = host.see_to(RunConfig::thread(thread.to_string())).await.transpose()?;
            let is_others = |error: &EngineError| error.kind() == Kind::Busy;
            (!result.as_ref().is_err_and(is_others)).then_some(Swept { tenant, thread, result })
        });
        Ok(seen.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await)
    }

    async fn see_to(&self, config: RunConfig) -> Result<Option<Execution>, EngineError> {
        if let Some(execution) = self.start_queued(config.clone()).await? {
            return Ok(Some(execution));
        }
        match self.continue_run(config).await {
            // Somebody was faster.
            Err(error) if error.kind() == Kind::NotPending => Ok(None),
            continued => continued.map(Some),
        }
    }

    /// Sweeps when the next question expires, and at least this often, until the host is stopped. For hosts
    /// that live long; what it misses while nothing runs, the next sweep finds.
    pub async fn keep_sweeping(&self, at_least_every: Duration) -> Result<(), EngineError> {
        self.keep_sweeping_with(at_least_every, |_| std::future::ready(())).await
    }

    /// Likewise; what came of each sweep is handed out, also if nothing was due. A sweep that the store does
    /// not allow now is tried again.
    pub async fn keep_sweeping_with<F>(
        &self,
        at_least_every: Duration,
        mut told: impl FnMut(Vec<Swept>) -> F,
    ) -> Result<(), EngineError>
    where
        F: Future<Output = ()> + Send,
    {
        let store = self.durable_store()?;
        let mut failing = Failing::default();
        let mut stopped = Box::pin(self.shared.stopped());
        loop {
            let mut until = None;
            match self.sweep_but(&failing).await {
                Ok(swept) => {
                    for Swept { tenant, thread, result } in &swept {
                        let Err(error) = result else {
                            failing.0.remove(&(tenant.clone(), thread.clone()));
                            continue;
                        };
                        let again = failing.again_in(tenant, thread);
                        tracing::warn!(%thread, %error, ?again, "what is due on this thread was not done");
                    }
                    told(swept).await;
                    let next = store.next_expiry().await.ok().flatten();
                    until = next.map(|at| at.0.saturating_sub(self.shared.clock.now().0));
                }
                Err(EngineError::Stopped) => return Ok(()),
                Err(error) => tracing::warn!(%error, "it was not looked for what is due"),
            }
            let until =
                until.map_or(at_least_every, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
            // Not at once: what cannot be done now would be tried without a pause.
            let wait = until.clamp(Duration::from_millis(50).min(at_least_every), at_least_every);
            tokio::select! {
                () = &mut stopped => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_left_alone_for_longer_and_longer() {
        let (tenant, thread) = (TenantId::default(), "t".parse().unwrap());
        let mut failing = Failing::default();
        assert!(!failing.waits(&tenant, &thread));
        let waits: Vec<u64> = (0..12).map(|_| failing.again_in(&tenant, &thread).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        assert!(failing.waits(&tenant, &thread));
        assert!(!failing.waits(&tenant, &"u".parse().unwrap()));
    }
}
