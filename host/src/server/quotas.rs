//! What one tenant may use, and who counts it. Each refusal names the quota and its value.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::ToSchema;

use super::problem::Problem;
use super::service::{ServeSettings, Service};
use crate::model::{ErrorRecord, Json, Limits, Refused, TenantId};
use crate::store::{SettingsRow, StoreError};

/// What one tenant may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Requests in any minute; a tenth of it at once.
    pub requests_per_minute: u32,
    /// Calls that run at once; more of them wait.
    pub runs_at_once: u32,
    /// Tasks of those that run at once; more of them wait.
    pub tasks_at_once: u32,
    /// What nodes may compute in any minute; after that, what is new is refused, and what was taken waits.
    pub fuel_per_minute: u64,
    pub threads: u64,
    pub components: u64,
    /// Components, the state of threads, and what their tasks asked and were told, together.
    pub storage_bytes: u64,
    /// One request's body, where the service takes more.
    pub body_bytes: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            requests_per_minute: 60_000,
            runs_at_once: 64,
            tasks_at_once: Limits::default().tasks_at_once,
            fuel_per_minute: 1_000_000_000_000,
            threads: 1_000_000,
            components: 1_000,
            storage_bytes: 16 << 30,
            body_bytes: 64 << 20,
        }
    }
}

impl Quotas {
    /// What the engine holds the tenant to.
    fn limits(&self, of: &Limits) -> Limits {
        Limits {
            tasks_at_once: self.tasks_at_once.clamp(1, Limits::default().tasks_at_once),
            fuel_per_minute: self.fuel_per_minute,
            threads: self.threads,
            storage_bytes: self.storage_bytes,
            ..of.clone()
        }
    }
}

/// What is set for a tenant, as it was a moment ago.
#[derive(Clone, Debug)]
pub struct TenantSettings {
    pub quotas: Quotas,
    pub webhook: Option<String>,
    pub webhook_secret: Option<[u8; 32]>,
}

impl TenantSettings {
    fn of(row: Option<SettingsRow>) -> Self {
        let Some(row) = row else {
            return Self { quotas: Quotas::default(), webhook: None, webhook_secret: None };
        };
        let quotas = serde_json::from_str(row.quotas.as_str()).unwrap_or_else(|error| {
            tracing::error!(%error, "the quotas on record are damaged; the defaults count");
            Quotas::default()
        });
        Self { quotas, webhook: row.webhook, webhook_secret: Some(row.webhook_secret) }
    }

    pub fn row(&self, secret: [u8; 32]) -> SettingsRow {
        let quotas = serde_json::to_value(&self.quotas).ok().and_then(|value| Json::from_value(&value).ok());
        SettingsRow {
            quotas: quotas.unwrap_or_else(|| Json::from_canonical("{}")),
            webhook: self.webhook.clone(),
            webhook_secret: secret,
        }
    }
}

/// Another process may change what is set: then this one knows it so much later.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// A tenant's bucket is forgotten after it was full for long; so many are kept.
const TENANTS_MAX: usize = 10_000;

/// Counts what tenants use at this moment, in this process.
pub struct Meter {
    tenants: Mutex<HashMap<TenantId, Metered>>,
    shares: [usize; 2],
}

/// What all tenants have together, and none may have all of where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Requests,
    Streams,
}

impl Room {
    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests_at_once",
            Self::Streams => "streams_at_once",
        }
    }
}

struct Metered {
    settings: Option<(Instant, TenantSettings)>,
    /// Requests that may still come, as of then.
    bucket: Option<(f64, Instant)>,
    runs: Option<(u32, Arc<Semaphore>)>,
    room: [Arc<Semaphore>; 2],
}

impl Meter {
    /// Half of what there is for one tenant, if there may be others.
    pub fn new(settings: &ServeSettings) -> Self {
        let share = |all: usize| if settings.needs_keys { all.div_ceil(2) } else { all };
        let shares = [settings.requests_at_once, settings.streams_at_once].map(share);
        Self { tenants: Mutex::default(), shares }
    }

    /// A place in the tenant's share of a room, for as long as what is returned is kept.
    pub fn place(&self, tenant: &TenantId, room: Room) -> Result<OwnedSemaphorePermit, Problem> {
        let places = {
            let (mut tenants, tenant) = self.of(tenant);
            tenants.get_mut(&tenant).map(|of| of.room[room as usize].clone())
        };
        let most = self.shares[room as usize];
        let full = || {
            let what = format!("{most} of this tenant's are there already ({})", room.name());
            let error = ErrorRecord::limit(room.name(), most as u64, what).with("retry_after_ms", 1000);
            Problem::busy(error)
        };
        places.and_then(|places| places.try_acquire_owned().ok()).ok_or_else(full)
    }

    fn of(&self, tenant: &TenantId) -> (MutexGuard<'_, HashMap<TenantId, Metered>>, TenantId) {
        let mut tenants = self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant) {
            // Those that run something keep their place.
            let is_at = |semaphore: &Arc<Semaphore>| Arc::strong_count(semaphore) > 1;
            tenants.retain(|_, of| {
                of.runs.as_ref().is_some_and(|(_, runs)| is_at(runs)) || of.room.iter().any(is_at)
            });
        }
        let room = || self.shares.map(|share| Arc::new(Semaphore::new(share)));
        let fresh = || Metered { settings: None, bucket: None, runs: None, room: room() };
        tenants.entry(tenant.clone()).or_insert_with(fresh);
        (tenants, tenant.clone())
    }

    /// Takes a request off the tenant's rate.
    pub fn request(&self, tenant: &TenantId, settings: &TenantSettings) -> Result<(), Problem> {
        let per_minute = settings.quotas.requests_per_minute;
        let (rate, burst) = (f64::from(per_minute) / 60.0, (f64::from(per_minute) / 10.0).max(1.0));
        let (mut tenants, tenant) = self.of(tenant);
        let Some(of) = tenants.get_mut(&tenant) else { return Ok(()) };
        let now = Instant::now();
        let (left, since) = of.bucket.unwrap_or((burst, now));
        let left = (left + now.duration_since(since).as_secs_f64() * rate).min(burst);
        if left < 1.0 {
            of.bucket = Some((left, now));
            let wait = if rate > 0.0 { ((1.0 - left) / rate).ceil() } else { 60.0 };
            let what = format!("more than {per_minute} requests a minute (requests_per_minute); slow down");
            let error = ErrorRecord::limit("requests_per_minute", per_minute.into(), what)
                .with("retry_after_ms", wait.clamp(1.0, 60.0) as u64 * 1000);
            return Err(Refused::of(error).into());
        }
        of.bucket = Some((left - 1.0, now));
        Ok(())
    }

    /// Waits until the tenant may run one more.
    pub async fn run(&self, tenant: &TenantId, quotas: &Quotas) -> Option<OwnedSemaphorePermit> {
        let runs = {
            let (mut tenants, tenant) = self.of(tenant);
            let of = tenants.get_mut(&tenant)?;
            let wanted = quotas.runs_at_once.max(1);
            match &of.runs {
                Some((most, runs)) if *most == wanted => runs.clone(),
                // Those that run under the old one end under it.
                _ => of.runs.insert((wanted, Arc::new(Semaphore::new(wanted as usize)))).1.clone(),
            }
        };
        runs.acquire_owned().await.ok()
    }

    pub fn forget(&self, tenant: &TenantId) {
        let (mut tenants, tenant) = self.of(tenant);
        if let Some(of) = tenants.get_mut(&tenant) {
            of.settings = None;
        }
    }
}

impl Service {
    pub async fn tenant_settings(&self, tenant: &TenantId) -> Result<TenantSettings, StoreError> {
        {
            let (tenants, tenant) = self.meter.of(tenant);
            if let Some((at, settings)) = tenants.get(&tenant).and_then(|of| of.settings.as_ref())
                && at.elapsed() < KNOWN_FOR
            {
                return Ok(settings.clone());
            }
        }
        let settings = TenantSettings::of(self.store().settings(tenant).await?);
        let host = self.host.for_tenant(tenant.clone());
        let limits = settings.quotas.limits(host.limits());
        if limits != *host.limits() {
            self.host.set_limits(tenant.clone(), limits);
        }
        let (mut tenants, tenant) = self.meter.of(tenant);
        if let Some(of) = tenants.get_mut(&tenant) {
            of.settings = Some((Instant::now(), settings.clone()));
        }
        Ok(settings)
    }

    /// Whether the tenant may have one more thread.
    pub async fn room_for_thread(&self, tenant: &TenantId) -> Result<(), Problem> {
        let threads = self.tenant_settings(tenant).await?.quotas.threads;
        if self.store().named_thread_count(tenant).await? >= threads {
            let what =
                format!("there are {threads} threads already, which are the most (threads); delete some");
            return Err(Refused::of(ErrorRecord::limit("threads", threads, what)).into());
        }
        Ok(())
    }

    /// Whether the tenant may keep one component more.
    pub async fn room_for_component(&self, tenant: &TenantId) -> Result<(), Problem> {
        let components = self.tenant_settings(tenant).await?.quotas.components;
        if self.store().usage(tenant).await?.components >= components {
            let what = format!("there are {components} components already, which are the most (components)");
            return Err(Refused::of(ErrorRecord::limit("components", components, what)).into());
        }
        Ok(())
    }

    /// Reads what is set for the tenants there are (the first page of them), before anything of theirs goes on; of
    /// any other it is read with the first thing that it asks.
    pub async fn know_tenants(&self) -> Result<(), StoreError> {
        for tenant in self.store().tenants().await? {
            self.tenant_settings(&tenant).await?;
        }
        Ok(())
    }
}
