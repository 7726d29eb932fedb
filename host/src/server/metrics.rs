//! Figures for whoever runs the service, as Prometheus reads them. Labels are from closed sets: routes,
//! kinds, outcomes; of tenants the first so many, and the rest together.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::caller::Caller;
use super::problem::Problem;
use super::service::Shared;
use crate::engine::EngineError;
use crate::model::{Execution, Kind, RunStatus, TenantId};
use crate::store::{Counters, InvocationRow};

/// So many tenants have figures of their own.
const TENANTS_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    method: String,
    route: String,
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    tenant: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TakenLabels {
    taken: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TenantLabels {
    tenant: String,
}

/// How large the groups were that the store committed together.
#[derive(Debug)]
struct GroupSizes(Counters);

impl EncodeMetric for GroupSizes {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Counters { groups, batches, .. } = self.0;
        let mut buckets: Vec<(f64, u64)> =
            groups.iter().enumerate().map(|(i, count)| (f64::from(1_u32 << i), *count)).collect();
        if let Some(last) = buckets.last_mut() {
            last.0 = f64::MAX;
        }
        let count = groups.iter().sum();
        encoder.encode_histogram::<Vec<(String, String)>>(batches as f64, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// What is counted in the database is counted so often at most.
const USAGE_AFTER: Duration = Duration::from_secs(60);

pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    invocations: Family<OutcomeLabels, Counter>,
    invocation_seconds: Histogram,
    refusals: Family<KindLabels, Counter>,
    failures: Family<KindLabels, Counter>,
    webhooks: Family<TakenLabels, Counter>,
    pub streams: Gauge<i64, AtomicI64>,
    pub connections_refused: Counter,
    pauses: Family<TenantLabels, Counter>,
    resumes: Family<TenantLabels, Counter>,
    divergences: Family<TenantLabels, Counter>,
    threads: Family<TenantLabels, Gauge>,
    storage: Family<TenantLabels, Gauge>,
    fuel: Family<TenantLabels, Gauge>,
    counted: tokio::sync::Mutex<Option<Instant>>,
    tenants: Mutex<BTreeSet<TenantId>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        Self {
            requests: Family::default(),
            request_seconds: seconds(),
            invocations: Family::default(),
            invocation_seconds: seconds(),
            refusals: Family::default(),
            failures: Family::default(),
            webhooks: Family::default(),
            streams: Gauge::default(),
            connections_refused: Counter::default(),
            pauses: Family::default(),
            resumes: Family::default(),
            divergences: Family::default(),
            threads: Family::default(),
            storage: Family::default(),
            fuel: Family::default(),
            counted: tokio::sync::Mutex::default(),
            tenants: Mutex::default(),
        }
    }
}

impl Metrics {
    /// `route`: as it is declared, not as it was called.
    pub fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels =
            RequestLabels { method: method.to_owned(), route: route.to_owned(), status: status.into() };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.observe(took.as_secs_f64());
    }

    pub fn invocation(
        &self,
        tenant: &TenantId,
        row: &InvocationRow,
        result: &Result<Execution, EngineError>,
        took: Duration,
    ) {
        self.came_to(tenant, result);
        if result.is_ok() && row.ask.as_str().starts_with("{\"answer\"") {
            self.resumes.get_or_create(&TenantLabels { tenant: self.label(tenant) }).inc();
        }
        let outcome = match result {
            Ok(execution) => match execution.status {
                RunStatus::Interrupted => "interrupted",
                status => status.as_str(),
            },
            Err(EngineError::Refused(refused)) => {
                self.refused(refused.error.kind);
                "refused"
            }
            Err(EngineError::Stopped) => "stopped",
            Err(_) => "host-failed",
        };
        if let Ok(Execution { error: Some(error), .. }) = result {
            self.failures.get_or_create(&KindLabels { kind: error.kind.as_str() }).inc();
        }
        self.invocations.get_or_create(&OutcomeLabels { tenant: self.label(tenant), outcome }).inc();
        self.invocation_seconds.observe(took.as_secs_f64());
    }

    /// What a sweep did, which nobody called for.
    pub fn swept(&self, tenant: &TenantId, result: &Result<Execution, EngineError>) {
        self.came_to(tenant, result);
    }

    fn came_to(&self, tenant: &TenantId, result: &Result<Execution, EngineError>) {
        let of = || TenantLabels { tenant: self.label(tenant) };
        match result.as_ref().map(|execution| execution.status) {
            Ok(RunStatus::Interrupted) => drop(self.pauses.get_or_create(&of()).inc()),
            Ok(RunStatus::Diverged) => drop(self.divergences.get_or_create(&of()).inc()),
            _ => {}
        }
    }

    /// What tenants have now.
    async fn count(&self, service: &Shared) -> Result<(), Problem> {
        let mut counted = self.counted.lock().await;
        if counted.is_some_and(|at| at.elapsed() < USAGE_AFTER) {
            return Ok(());
        }
        let tenants: Vec<TenantId> = {
            let tenants = self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            tenants.iter().cloned().collect()
        };
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for tenant in tenants {
            let labels = TenantLabels { tenant: tenant.to_string() };
            let usage = service.store().usage(&tenant).await?;
            self.threads.get_or_create(&labels).set(gauge(usage.threads));
            self.storage.get_or_create(&labels).set(gauge(usage.bytes()));
            let fuel = service.host.for_tenant(tenant).fuel_spent();
            self.fuel.get_or_create(&labels).set(gauge(fuel));
        }
        *counted = Some(Instant::now());
        Ok(())
    }

    pub fn refused(&self, kind: Kind) {
        self.refusals.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    pub fn webhook(&self, taken: bool) {
        let taken = if taken { "yes" } else { "no" };
        self.webhooks.get_or_create(&TakenLabels { taken }).inc();
    }

    fn label(&self, tenant: &TenantId) -> String {
        let mut tenants = self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if tenants.len() < TENANTS_MAX {
            tenants.insert(tenant.clone());
        }
        if tenants.contains(tenant) { tenant.to_string() } else { "others".to_owned() }
    }

    async fn text(&self, service: &Shared) -> Result<String, Problem> {
        let mut registry = Registry::with_prefix("holdpoint");
        registry.register("http_requests", "Requests answered", self.requests.clone());
        registry.register("http_request_seconds", "Until a response began", self.request_seconds.clone());
        registry.register("invocations", "Calls on threads, by how they ended", self.invocations.clone());
        registry.register("invocation_seconds", "What a call took", self.invocation_seconds.clone());
        registry.register("refusals", "Calls that did not fit their thread", self.refusals.clone());
        registry.register("failures", "Runs that failed or diverged", self.failures.clone());
        registry.register("webhooks", "Attempts to tell somebody", self.webhooks.clone());
        registry.register("streams", "Streams that are open", self.streams.clone());
        let refused = self.connections_refused.clone();
        registry.register("connections_refused", "Connections that there was no room for", refused);
        registry.register("pauses", "Calls that stopped at a question", self.pauses.clone());
        registry.register("resumes", "Answers that were taken", self.resumes.clone());
        registry.register("divergences", "Replays that differed", self.divergences.clone());
        self.count(service).await?;
        registry.register("tenant_threads", "Threads there are", self.threads.clone());
        registry.register("tenant_storage_bytes", "What is kept", self.storage.clone());
        registry.register("tenant_fuel", "What nodes computed since the start", self.fuel.clone());
        let store = service.store();
        let gauge = |n: u64| ConstGauge::new(i64::try_from(n).unwrap_or(i64::MAX));
        let open = store.open_invocation_count().await?;
        registry.register("invocations_open", "Calls that wait or run", gauge(open));
        let queued = store.queued_invocation_count().await?;
        registry.register("invocations_queued", "Calls that wait for their thread", gauge(queued));
        let waiting = store.delivery_count().await?;
        registry.register("webhooks_waiting", "What is still to be told", gauge(waiting));
        let counters = store.counters();
        let counter = |n: u64| ConstCounter::new(n);
        registry.register("store_commit_batches", "Batches of a transaction", GroupSizes(counters));
        registry.register("store_commits", "Transactions", counter(counters.commits));
        registry.register("store_batches", "Batches taken up", counter(counters.batches));
        registry.register("store_statements", "Statements", counter(counters.statements));
        let mut text = String::new();
        // Writing into a string does not fail.
        encode(&mut text, &registry).map_err(|_| Problem::unavailable("the figures could not be written"))?;
        Ok(text)
    }
}

/// The service's figures.
///
/// For the operator: a key with the scope `admin`.
#[utoipa::path(get, path = "/metrics", tag = "operation", responses(
    (status = 200, description = "In the text format of Prometheus", body = String,
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")))]
pub async fn get(State(service): State<Shared>, caller: Caller) -> Result<Response, Problem> {
    caller.may_admin()?;
    let text = service.metrics.text(&service).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
