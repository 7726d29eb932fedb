//! Telling a system outside that something happened: a request of the host's own, held to the same egress
//! policy as the effects of graphs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::effects::{EffectFailure, EffectRequest};
use super::host::Host;
use crate::model::graph::HttpSpec;

impl Host {
    /// Whether this address may be told anything: known before it is written down.
    pub fn may_notify(&self, url: &str) -> Result<(), String> {
        let permitted = self.shared.handlers.permits(&self.tenant, &request_to(url, BTreeMap::new()));
        permitted.map_err(|unsent| unsent.to_string())
    }

    /// Posts `body` there, once. The error says why it did not arrive, and nothing of what came back.
    pub async fn notify(
        &self,
        url: &str,
        headers: BTreeMap<String, String>,
        body: Value,
        idempotency_key: String,
    ) -> Result<(), String> {
        let request = EffectRequest { effect: "webhook".into(), input: body, idempotency_key };
        let posted = self.shared.handlers.post(&self.tenant, &request_to(url, headers), &request).await;
        match posted.map_err(|unsent| unsent.to_string())? {
            Ok(_) => Ok(()),
            Err(EffectFailure::Final(why) | EffectFailure::Retryable(why) | EffectFailure::Unknown(why)) => {
                Err(match (&why["status"], &why["error"]) {
                    (Value::Null, error) => error.as_str().unwrap_or("no answer").to_owned(),
                    (status, _) => format!("it answered {status}"),
                })
            }
        }
    }
}

fn request_to(url: &str, headers: BTreeMap<String, String>) -> HttpSpec {
    HttpSpec { method: "POST".into(), url: url.to_owned(), headers, timeout_ms: Some(10_000), auth: None }
}
