//! Telling a person's system that a question waits, and whoever started a run how it ended: written down
//! with the thing itself, signed, in order within a thread, and tried again until it is taken.
//!
//! The signature is `t=SECONDS,v1=HEX`: HMAC-SHA-256, under the tenant's secret, of the seconds, a dot and
//! the body.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::task::{self, JoinSet};
use uuid::Uuid;

use super::service::Service;
use crate::model::{Execution, Json, RunConfig, RunStatus, TenantId, ThreadId, Timestamp};
use crate::store::{DeliveryRow, InvocationEnd, InvocationRow, ServiceWrite, StoreError};

/// What has to be told once a call is over.
pub async fn news(
    service: &Service,
    tenant: &TenantId,
    row: &InvocationRow,
    end: &InvocationEnd,
    execution: Option<&Execution>,
) -> Result<Vec<ServiceWrite>, StoreError> {
    let settings = service.tenant_settings(tenant).await?;
    let mut writes = Vec::new();
    if let Some(execution) = execution
        && let Some(url) = &settings.webhook
    {
        writes.extend(waiting(url, &row.thread, execution, end.at));
    }
    if let Some(url) = &row.webhook {
        let state =
            service.host.for_tenant(tenant.clone()).state(RunConfig::thread(row.thread.as_str())).await;
        let body = json!({
            "type": "run",
            "run_id": row.invocation,
            "thread_id": row.thread,
            "assistant_id": row.assistant,
            "status": end.status.as_str(),
            "metadata": row.metadata.value(),
            "values": state.unwrap_or(Value::Null),
            "error": end.error,
            "interrupts": execution.map(|execution| &execution.interrupts),
        });
        writes.extend(delivery(url, &row.thread, &body, end.at));
    }
    Ok(writes)
}

/// Likewise after a sweep, which nobody asked for.
pub async fn swept(
    service: &Service,
    tenant: &TenantId,
    thread: &ThreadId,
    execution: &Execution,
) -> Result<(), StoreError> {
    let Some(url) = service.tenant_settings(tenant).await?.webhook else {
        return Ok(());
    };
    let now = service.host.clock().now();
    if let Some(write) = waiting(&url, thread, execution, now) {
        let written = service.store().serve(tenant, vec![write]).await?;
        debug_assert!(written.is_ok(), "there is nothing to be in the way");
        service.news.notify_one();
    }
    Ok(())
}

fn waiting(url: &str, thread: &ThreadId, execution: &Execution, now: Timestamp) -> Option<ServiceWrite> {
    if execution.status != RunStatus::Interrupted {
        return None;
    }
    let body = json!({
        "type": "interrupts",
        "thread_id": thread,
        "run_id": execution.run_id,
        "checkpoint_id": execution.checkpoint_id,
        "interrupts": execution.interrupts,
    });
    delivery(url, thread, &body, now)
}

fn delivery(url: &str, thread: &ThreadId, body: &Value, now: Timestamp) -> Option<ServiceWrite> {
    let body = Json::from_value(body).ok()?;
    Some(ServiceWrite::Deliver(DeliveryRow {
        seq: 0,
        thread: thread.clone(),
        delivery: Uuid::now_v7(),
        url: url.to_owned(),
        body,
        attempts: 0,
        next_at: now,
        error: None,
        created_at: now,
    }))
}

/// So many are sent at once, each of another thread: of one tenant, whose receivers may be slow, and of all.
const AT_ONCE: usize = 8;
const ALL_AT_ONCE: usize = 256;
/// So much of one tenant's is looked up together.
const LOOKED_UP: u32 = 32;
/// What could not be done is not tried again before this.
const AFTER_FAULT: Duration = Duration::from_secs(1);
/// No wait between two attempts is longer.
const BACKOFF_MS_MAX: u64 = 3_600_000;

/// What is to be told and was looked up, and what of it is being sent. It stays due until that is over.
#[derive(Default)]
struct Telling {
    waiting: BTreeMap<TenantId, VecDeque<DeliveryRow>>,
    known: HashSet<i64>,
    sending: JoinSet<()>,
    under_way: HashMap<task::Id, (TenantId, i64)>,
}

impl Telling {
    async fn look(&mut self, service: &Service) -> Result<Duration, StoreError> {
        let now = service.host.clock().now();
        for (tenant, row) in service.store().due_deliveries(now, LOOKED_UP).await? {
            if self.known.insert(row.seq) {
                self.waiting.entry(tenant).or_default().push_back(row);
            }
        }
        let next = service.store().next_delivery(now).await?;
        let wait = next.map_or(60_000, |at| u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0));
        Ok(Duration::from_millis(wait.clamp(1, 60_000)))
    }

    fn send(&mut self, service: &Arc<Service>) {
        for (tenant, waiting) in &mut self.waiting {
            let mut at_once = self.under_way.values().filter(|(of, _)| of == tenant).count();
            while at_once < AT_ONCE && self.under_way.len() < ALL_AT_ONCE {
                let Some(row) = waiting.pop_front() else { break };
                let (service, whose, seq) = (service.clone(), tenant.clone(), row.seq);
                let task = self.sending.spawn(async move {
                    if let Err(error) = service.tell_one(&whose, row).await {
                        tracing::warn!(%error, "that something was told could not be written down");
                        // It is told again, but not without a pause.
                        tokio::time::sleep(AFTER_FAULT).await;
                    }
                });
                self.under_way.insert(task.id(), (tenant.clone(), seq));
                at_once += 1;
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// Whether there may be more of the same tenant's.
    fn is_sent(&mut self, task: task::Id) -> bool {
        let Some((tenant, seq)) = self.under_way.remove(&task) else { return false };
        self.known.remove(&seq);
        !self.waiting.contains_key(&tenant)
    }
}

impl Service {
    /// Sends what is to be told, until the service ends. One tenant's receivers that do not answer hold up nobody
    /// else's.
    pub async fn keep_telling(self: Arc<Self>) {
        let mut telling = Telling::default();
        let mut looks = true;
        let mut wait = Duration::ZERO;
        loop {
            if looks {
                wait = telling.look(&self).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "what is to be told was not looked for");
                    AFTER_FAULT
                });
            }
            telling.send(&self);
            looks = tokio::select! {
                () = self.stopped() => return,
                () = self.news.notified() => true,
                Some(sent) = telling.sending.join_next_with_id() => {
                    telling.is_sent(sent.map_or_else(|broken| broken.id(), |(id, ())| id))
                }
                () = tokio::time::sleep(wait) => true,
            };
        }
    }

    async fn tell_one(&self, tenant: &TenantId, row: DeliveryRow) -> Result<(), StoreError> {
        let now = self.host.clock().now();
        let secret = self.tenant_settings(tenant).await?.webhook_secret;
        let body = row.body.value();
        let mut headers = BTreeMap::new();
        headers.insert("Holdpoint-Delivery".to_owned(), row.delivery.to_string());
        if let Some(secret) = secret {
            headers.insert("Holdpoint-Signature".to_owned(), signature(&secret, now, &body.to_string()));
        }
        let host = self.host.for_tenant(tenant.clone());
        let told = host.notify(&row.url, headers, body, row.delivery.to_string()).await;
        self.metrics.webhook(told.is_ok());
        let write = match told {
            Ok(()) => ServiceWrite::Delivered { seq: row.seq },
            Err(error) if row.attempts + 1 >= self.settings.webhook_attempts => {
                tracing::warn!(%tenant, thread = %row.thread, %error, "a webhook was tried for the last time");
                ServiceWrite::Delivered { seq: row.seq }
            }
            Err(error) => {
                let doubled = 1_u64.checked_shl(row.attempts).unwrap_or(u64::MAX);
                let wait = self.settings.webhook_backoff_ms.saturating_mul(doubled).min(BACKOFF_MS_MAX);
                ServiceWrite::NotDelivered { seq: row.seq, next_at: now.plus_ms(wait), error }
            }
        };
        // A conflict: its thread was deleted meanwhile.
        self.store().serve(tenant, vec![write]).await.map(drop)
    }
}

fn signature(secret: &[u8; 32], at: Timestamp, body: &str) -> String {
    let seconds = at.0 / 1000;
    let mac = hmac_sha256(secret, format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex::encode(mac))
}

/// RFC 2104, for keys of up to a block.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_hmac_sha_256() {
        // The second and the first case of RFC 4231.
        let mac = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex::encode(mac), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let mac = hmac_sha256(&[0x0b; 20], b"Hi There");
        assert_eq!(hex::encode(mac), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }
}
