//! What the host does outside for nodes: who does it, under which key, and once.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::host::locked;
use super::http::{Egress, HttpSender, Unsendable};
use super::secrets::Secrets;
use crate::model::checkpoint::{EffectRow, EffectScope, EffectState};
use crate::model::compile::CompiledEffect;
use crate::model::graph::HttpSpec;
use crate::model::ids::{Digest, TenantId};
use crate::model::way_out::WayOut;

/// What a handler is asked to do.
#[derive(Clone, Debug)]
pub struct EffectRequest {
    /// The effect's name in the graph.
    pub effect: String,
    pub input: Value,
    /// The same for every sending of one effect, and for nothing else: it hashes tenant, thread, node,
    /// effect and the node's own key.
    pub idempotency_key: String,
}

/// How an effect failed, with what the node is told of it.
#[derive(Clone, Debug, PartialEq)]
pub enum EffectFailure {
    /// It would fail again; this is its outcome from now on.
    Final(Value),
    /// It was not done; another attempt may send it again, unless the effect is at-most-once.
    Retryable(Value),
    /// It may have been done.
    Unknown(Value),
}

/// The embedder's code for one effect.
pub type Handler =
    Arc<dyn Fn(EffectRequest) -> BoxFuture<'static, Result<Value, EffectFailure>> + Send + Sync>;

pub fn handler<F, Fut>(handler: F) -> Handler
where
    F: Fn(EffectRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, EffectFailure>> + Send + 'static,
{
    Arc::new(move |request| handler(request).boxed())
}

/// All handlers of a host.
pub struct Handlers {
    registered: BTreeMap<String, Handler>,
    http: HttpSender,
}

/// What kept a handler from being asked or from answering.
#[derive(Debug, thiserror::Error)]
pub enum Unsent {
    #[error("the graph gives it no http, and this host registered no handler of that name")]
    NoHandler,
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
    #[error("its handler panicked")]
    Panicked,
}

impl Unsent {
    pub fn way_out(&self) -> Option<WayOut> {
        match self {
            Self::Unsendable(Unsendable::Closed { authority }) => {
                Some(WayOut::Open { authority: authority.clone() })
            }
            Self::Unsendable(Unsendable::NoSecret { name, .. }) => {
                Some(WayOut::GiveSecret { name: name.clone() })
            }
            _ => None,
        }
    }
}

impl Handlers {
    pub fn new(registered: BTreeMap<String, Handler>, egress: Egress, secrets: Secrets) -> Self {
        Self { registered, http: HttpSender::new(egress, secrets) }
    }

    /// Whether anything would be sent at all; asked before the intent is written.
    pub fn can_send(&self, tenant: &TenantId, name: &str, effect: &CompiledEffect) -> Result<(), Unsent> {
        match &effect.http {
            Some(http) => Ok(self.http.permitted(tenant, http)?),
            None if self.registered.contains_key(name) => Ok(()),
            None => Err(Unsent::NoHandler),
        }
    }

    pub fn permits(&self, tenant: &TenantId, http: &HttpSpec) -> Result<(), Unsent> {
        Ok(self.http.permitted(tenant, http)?)
    }

    /// A request of the host's own.
    pub async fn post(
        &self,
        tenant: &TenantId,
        http: &HttpSpec,
        request: &EffectRequest,
    ) -> Result<Result<Value, EffectFailure>, Unsent> {
        Ok(self.http.send(tenant, http, request).await?)
    }

    pub async fn send(
        &self,
        tenant: &TenantId,
        effect: &CompiledEffect,
        request: EffectRequest,
    ) -> Result<Result<Value, EffectFailure>, Unsent> {
        if let Some(http) = &effect.http {
            return Ok(self.http.send(tenant, http, &request).await?);
        }
        let Some(handler) = self.registered.get(&request.effect) else {
            return Err(Unsent::NoHandler);
        };
        // A handler is the embedder's code: its bug ends this run, not the host.
        let answer = match std::panic::catch_unwind(AssertUnwindSafe(|| handler(request))) {
            Ok(future) => AssertUnwindSafe(future).catch_unwind().await,
            Err(panic) => Err(panic),
        };
        answer.map_err(|_| Unsent::Panicked)
    }
}

/// The key that goes over the wire.
pub fn wire_key(tenant: &TenantId, thread: &str, scope: &EffectScope) -> String {
    let parts = [tenant.as_str(), thread, scope.node.as_str(), scope.effect.as_str(), &scope.key];
    Digest::of_parts(parts.map(str::as_bytes)).hex()
}

/// The effects of one invocation: what is known of each scope, and a lock on each, so that two tasks that
/// ask for the same at once do it once.
#[derive(Default)]
pub struct EffectDesk {
    scopes: Mutex<HashMap<EffectScope, Arc<tokio::sync::Mutex<Option<EffectRow>>>>>,
}

impl EffectDesk {
    /// The scope's place; `None` in it: the store has not been asked yet, or knows nothing.
    pub fn scope(&self, scope: &EffectScope) -> Arc<tokio::sync::Mutex<Option<EffectRow>>> {
        let mut scopes = locked(&self.scopes);
        scopes.entry(scope.clone()).or_default().clone()
    }

    /// Whether its outcome has become known while this invocation was at it.
    pub fn is_known(&self, scope: &EffectScope) -> bool {
        let place = locked(&self.scopes).get(scope).cloned();
        let known = |row: &EffectRow| matches!(row.state, EffectState::Known(_));
        place.is_some_and(|place| place.try_lock().is_ok_and(|row| row.as_ref().is_some_and(known)))
    }
}
