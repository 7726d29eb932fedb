//! What a tenant uses over time, as this process counts it: fuel by the minute, threads, and bytes of storage.
//!
//! Fuel is spent when an attempt ends, so that one attempt can go over; what comes next waits until that is made
//! up for. Threads and bytes are counted in the database now and then, and what is added is counted along: anew
//! as soon as half of what was free may be used up, so that a full tenant is held to its number exactly, and one
//! that is far from it costs nothing.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::error::EngineError;
use super::host::{Host, Shared, locked};
use crate::model::error::{ErrorRecord, Refused};
use crate::model::ids::{TenantId, Timestamp};
use crate::model::limits::Limits;

/// No bound.
pub const UNBOUNDED: u64 = u64::MAX;
const MINUTE_MS: u64 = 60_000;
/// Other processes add as well: after this it is counted anew.
const COUNT_AGAIN: Duration = Duration::from_secs(60);
/// What a row takes beside what it holds.
const ROW_BYTES: u64 = 64;

/// Of all tenants.
#[derive(Default)]
pub struct Used {
    tenants: Mutex<HashMap<TenantId, Tenant>>,
}

#[derive(Default)]
struct Tenant {
    fuel: Option<Fuel>,
    threads: Counted,
    bytes: Counted,
    /// Since this process began.
    fuel_spent: u64,
}

#[derive(Clone, Copy)]
struct Fuel {
    left: i128,
    at: Timestamp,
}

/// A number from the database, and what was added since.
#[derive(Clone, Copy, Default)]
struct Counted {
    then: Option<(u64, Instant)>,
    added: u64,
}

impl Counted {
    fn now(&self) -> u64 {
        self.then.map_or(0, |(count, _)| count).saturating_add(self.added)
    }

    fn is_known_for(&self, limit: u64) -> bool {
        self.then.is_some_and(|(count, at)| {
            at.elapsed() < COUNT_AGAIN && self.added.saturating_mul(2) < limit.saturating_sub(count)
        })
    }
}

impl Used {
    fn with<T>(&self, tenant: &TenantId, of: impl FnOnce(&mut Tenant) -> T) -> T {
        let mut tenants = locked(&self.tenants);
        match tenants.get_mut(tenant) {
            Some(found) => of(found),
            None => of(tenants.entry(tenant.clone()).or_default()),
        }
    }

    /// An attempt used so much.
    pub fn spend(&self, tenant: &TenantId, limits: &Limits, fuel: u64, now: Timestamp) {
        self.with(tenant, |of| {
            of.fuel_spent = of.fuel_spent.saturating_add(fuel);
            if limits.fuel_per_minute != UNBOUNDED {
                let left = refilled(of.fuel, limits.fuel_per_minute, now) - i128::from(fuel);
                of.fuel = Some(Fuel { left, at: now });
            }
        });
    }

    /// In how many milliseconds the tenant may use fuel again; `None`: now.
    pub fn fuel_in_ms(&self, tenant: &TenantId, limits: &Limits, now: Timestamp) -> Option<u64> {
        let a_minute = limits.fuel_per_minute;
        if a_minute == UNBOUNDED {
            return None;
        }
        let left = self.with(tenant, |of| refilled(of.fuel, a_minute, now));
        if left > 0 {
            return None;
        }
        let wait = (1 - left) * i128::from(MINUTE_MS) / i128::from(a_minute.max(1)) + 1;
        Some(u64::try_from(wait).unwrap_or(UNBOUNDED))
    }

    pub fn fuel_spent(&self, tenant: &TenantId) -> u64 {
        self.with(tenant, |of| of.fuel_spent)
    }

    /// So many bytes of state are written.
    pub fn stored(&self, tenant: &TenantId, limits: &Limits, bytes: u64) {
        if limits.storage_bytes != UNBOUNDED {
            self.with(tenant, |of| of.bytes.added = of.bytes.added.saturating_add(bytes + ROW_BYTES));
        }
    }

    /// Whether there is room for more, as far as is known here.
    pub fn has_room(&self, tenant: &TenantId, limits: &Limits) -> Result<(), ErrorRecord> {
        let limit = limits.storage_bytes;
        if limit == UNBOUNDED {
            return Ok(());
        }
        match self.with(tenant, |of| of.bytes.now()) {
            value if value <= limit => Ok(()),
            value => Err(full(limit, value)),
        }
    }

    /// Something was removed: it is counted anew.
    pub fn count_again(&self, tenant: &TenantId) {
        self.with(tenant, |of| (of.threads, of.bytes) = <_>::default());
    }
}

fn refilled(fuel: Option<Fuel>, a_minute: u64, now: Timestamp) -> i128 {
    let most = i128::from(a_minute);
    let Some(Fuel { left, at }) = fuel else { return most };
    let ms = i128::from(now.0.saturating_sub(at.0).max(0));
    (left + most * ms / i128::from(MINUTE_MS)).min(most)
}

fn full(limit: u64, value: u64) -> ErrorRecord {
    let what = format!(
        "the tenant keeps {value} bytes; at most {limit} are kept (storage_bytes); delete or prune threads"
    );
    ErrorRecord::limit("storage_bytes", limit, what)
}

impl Host {
    /// Whether the tenant may have something run now, or has used up its fuel.
    pub fn may_spend(&self) -> Result<(), EngineError> {
        let now = self.shared.clock.now();
        let Some(ms) = self.shared.used.fuel_in_ms(&self.tenant, &self.limits, now) else {
            return Ok(());
        };
        let limit = self.limits.fuel_per_minute;
        let what = format!(
            "the tenant has used up its fuel: {limit} in any minute (fuel_per_minute); try again in {} s",
            ms.div_ceil(1000)
        );
        let error = ErrorRecord::limit("fuel_per_minute", limit, what).with("retry_after_ms", ms);
        Err(Refused::of(error).into())
    }

    /// Fuel that the tenant's nodes used in this process.
    pub fn fuel_spent(&self) -> u64 {
        self.shared.used.fuel_spent(&self.tenant)
    }

    /// Whether the tenant may have one more thread. It is counted at once.
    pub async fn room_for_thread(&self) -> Result<(), EngineError> {
        let limit = self.limits.threads;
        let Some(store) = self.shared.store.as_ref().filter(|_| limit != UNBOUNDED) else {
            return Ok(());
        };
        let used = &self.shared.used;
        if !used.with(&self.tenant, |of| of.threads.is_known_for(limit)) {
            let count = store.thread_count(&self.tenant).await?;
            let counted = Counted { then: Some((count, Instant::now())), added: 0 };
            used.with(&self.tenant, |of| of.threads = counted);
        }
        let value = used.with(&self.tenant, |of| {
            of.threads.added += 1;
            of.threads.now()
        });
        if value <= limit {
            return Ok(());
        }
        used.count_again(&self.tenant);
        let what = format!("there are {limit} threads already, which are the most (threads); delete some");
        Err(Refused::of(ErrorRecord::limit("threads", limit, what)).into())
    }

    /// Whether the tenant may keep so many bytes more.
    pub async fn room_for_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        self.count_bytes().await?;
        let (limit, value) =
            (self.limits.storage_bytes, self.shared.used.with(&self.tenant, |of| of.bytes.now()));
        match limit == UNBOUNDED || value.saturating_add(bytes) <= limit {
            true => Ok(()),
            false => Err(Refused::of(full(limit, value.saturating_add(bytes))).into()),
        }
    }

    /// Has it at hand what the tenant keeps.
    pub(super) async fn count_bytes(&self) -> Result<(), EngineError> {
        let limit = self.limits.storage_bytes;
        let Some(store) = self.shared.store.as_ref().filter(|_| limit != UNBOUNDED) else {
            return Ok(());
        };
        if !self.shared.used.with(&self.tenant, |of| of.bytes.is_known_for(limit)) {
            let count = store.usage(&self.tenant).await?.bytes();
            let counted = Counted { then: Some((count, Instant::now())), added: 0 };
            self.shared.used.with(&self.tenant, |of| of.bytes = counted);
        }
        Ok(())
    }
}

impl Shared {
    /// Until the tenant may use fuel again.
    pub async fn fuel(&self, tenant: &TenantId, limits: &Limits) {
        while let Some(ms) = self.used.fuel_in_ms(tenant, limits, self.clock.now()) {
            // Not for as long as that: the limit may be raised meanwhile.
            tokio::time::sleep(Duration::from_millis(ms.clamp(1, 250))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(fuel_per_minute: u64) -> Limits {
        Limits { fuel_per_minute, ..Limits::default() }
    }

    #[test]
    fn fuel_comes_back_by_the_minute_and_what_went_over_is_made_up_for_first() {
        let (used, tenant, limits) = (Used::default(), TenantId::default(), limits(600));
        let at = |ms: i64| Timestamp(1_000_000 + ms);
        assert_eq!(used.fuel_in_ms(&tenant, &limits, at(0)), None);
        used.spend(&tenant, &limits, 900, at(0));
        // 300 over, and 10 come back a second.
        let wait = used.fuel_in_ms(&tenant, &limits, at(0)).unwrap();
        assert!((30_000..30_200).contains(&wait), "{wait}");
        assert!(used.fuel_in_ms(&tenant, &limits, at(29_000)).is_some());
        assert_eq!(used.fuel_in_ms(&tenant, &limits, at(31_000)), None);
        // No more than a minute's is saved up.
        used.spend(&tenant, &limits, 601, at(600_000));
        assert!(used.fuel_in_ms(&tenant, &limits, at(600_000)).is_some());
        // A clock that goes back gives nothing.
        assert!(used.fuel_in_ms(&tenant, &limits, at(0)).is_some());
    }

    #[test]
    fn who_has_no_bound_is_not_counted() {
        let (used, tenant, limits) = (Used::default(), TenantId::default(), Limits::default());
        used.spend(&tenant, &limits, UNBOUNDED, Timestamp(0));
        used.stored(&tenant, &limits, UNBOUNDED);
        assert_eq!(used.fuel_in_ms(&tenant, &limits, Timestamp(0)), None);
        assert!(used.has_room(&tenant, &limits).is_ok());
    }

    #[test]
    fn a_count_holds_until_half_of_what_was_free_may_be_used_up() {
        let mut counted = Counted { then: Some((90, Instant::now())), added: 4 };
        assert!(counted.is_known_for(100));
        counted.added = 5;
        assert!(!counted.is_known_for(100));
        assert!(!Counted::default().is_known_for(100));
    }
}
