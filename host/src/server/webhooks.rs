//! Telling a person's system that a question waits, and whoever started a run how it ended: written down
//! with the thing itself, signed, in order within a thread, and tried again until it is taken.
//!
//! The signature is `t=SECONDS,v1=HEX`: HMAC-SHA-256, under the tenant's secret, of the seconds, a dot and
//! the body.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
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

/// So many are sent at once, each of another thread.
const AT_ONCE: usize = 16;
/// No wait between two attempts is longer.
const BACKOFF_MS_MAX: u64 = 3_600_000;

impl Service {
    /// Sends what is to be told, until the service ends.
    pub async fn keep_telling(self: Arc<Self>) {
        loop {
            let wait = match self.tell_due().await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(%error, "what is to be told was not looked for");
                    Duration::from_secs(1)
                }
            };
            tokio::select! {
                () = self.stopped() => return,
                () = self.news.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn tell_due(self: &Arc<Self>) -> Result<Duration, StoreError> {
        let now = self.host.clock().now();
        let due = self.store().due_deliveries(now).await?;
        let sent = stream::iter(due).map(|(tenant, row)| async move { self.tell_one(&tenant, row).await });
        let sent: Vec<Result<(), StoreError>> = sent.buffer_unordered(AT_ONCE).collect().await;
        sent.into_iter().collect::<Result<Vec<()>, StoreError>>()?;
        let next = self.store().next_delivery().await?;
        let now = self.host.clock().now();
        let wait = next.map_or(60_000, |at| u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0));
        // What cannot be done now is not tried without a pause.
        Ok(Duration::from_millis(wait.clamp(if next.is_some() { 0 } else { 60_000 }, 60_000)))
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
