//! Seeing to what is due: questions that expired, runs whose process died, input that waits.

use std::time::Duration;

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

impl Host {
    /// Goes on with every thread, of all tenants, on which something is due, and says what came of it. One
    /// that somebody else sees to at the same time is left out.
    pub async fn sweep(&self) -> Result<Vec<Swept>, EngineError> {
        let store = self.durable_store()?;
        let due = store.due(self.shared.clock.now()).await?;
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
        let mut stopped = Box::pin(self.shared.stopped());
        loop {
            let mut until = None;
            match self.sweep().await {
                Ok(swept) => {
                    for Swept { thread, result, .. } in &swept {
                        if let Err(error) = result {
                            tracing::warn!(%thread, %error, "what is due on this thread was not done");
                        }
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
