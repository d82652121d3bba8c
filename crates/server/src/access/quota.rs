//! Enforces the limits of a user or tenant: the number of connections, and the publish rates.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin::wire::ErrorCode;
use dunlin::{Refused, steady_ns};

use super::meter::{OverRate, RateMeter};
use super::users::UserLimits;

/// The longest time for which the node stops reading from a client that exceeds its publish rate, ms. This pause
/// protects other clients from a client that ignores refusals. A client that waits as long as the refusal states does
/// not notice the pause.
const PAUSE_MS_MAX: u64 = 250;

/// How long the node stops reading from a refused client; `None` if the refusal has a reason other than the publish
/// rate.
pub(crate) fn pause(refused: &Refused) -> Option<Duration> {
    let retry_after_ms = refused.numbers[0];
    (refused.code == ErrorCode::RateLimit).then(|| Duration::from_millis(retry_after_ms.min(PAUSE_MS_MAX)))
}

/// If `outcome` is a refusal for exceeding the publish rate, first waits for the time that [`pause`] returns. Returns
/// `outcome`.
pub(crate) async fn slow_down<T>(outcome: Result<T, Refused>) -> Result<T, Refused> {
    if let Some(pause) = outcome.as_ref().err().and_then(pause) {
        tokio::time::sleep(pause).await;
    }
    outcome
}

/// The limits of one user or tenant, and how much of them is in use.
#[derive(Debug)]
pub(crate) struct AccessQuota {
    /// First part of the limits' names in refusals, such as `users.ana`.
    prefix: String,
    connections: AtomicU64,
    connections_max: AtomicU64,
    /// Whether any of the publish rates is limited. If none of them is limited, a publish reads only this flag.
    metered: AtomicBool,
    meters: Mutex<Meters>,
}

/// The rate limits for published records and bytes.
#[derive(Debug, Default)]
pub(super) struct Meters {
    records: Option<RateMeter>,
    bytes: Option<RateMeter>,
}

impl AccessQuota {
    pub(super) fn new(prefix: String, limits: UserLimits) -> AccessQuota {
        let quota = AccessQuota {
            prefix,
            connections: AtomicU64::new(0),
            connections_max: AtomicU64::new(u64::MAX),
            metered: AtomicBool::new(false),
            meters: Mutex::default(),
        };
        quota.set(limits);
        quota
    }

    pub(super) fn set(&self, limits: UserLimits) {
        let now_ns = steady_ns();
        self.connections_max.store(limits.connections.unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut meters = self.meters();
        let Meters { records, bytes } = &mut *meters;
        for (meter, per_s) in [(records, limits.publish_records_per_s), (bytes, limits.publish_bytes_per_s)] {
            match (meter.as_mut(), per_s) {
                // Keeps the existing meter with its debt, which a change of the users file must not cancel.
                (Some(meter), Some(per_s)) => meter.set(per_s),
                _ => *meter = per_s.map(|per_s| RateMeter::new(per_s, now_ns)),
            }
        }
        self.metered.store(meters.records.is_some() || meters.bytes.is_some(), Ordering::Relaxed);
    }

    /// Counts one more connection, until [`remove_connection`](AccessQuota::remove_connection) is called. Refuses the
    /// connection if it exceeds the limit.
    pub(super) fn add_connection(&self) -> Result<(), Refused> {
        let max = self.connections_max.load(Ordering::Relaxed);
        let one_more = |count: u64| (count < max).then_some(count + 1);
        match self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::limit(&format!("{}.limits.connections", self.prefix), max)),
        }
    }

    pub(super) fn remove_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn is_metered(&self) -> bool {
        self.metered.load(Ordering::Relaxed)
    }

    pub(super) fn meters(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check(
        &self,
        meters: &mut Meters,
        records: u64,
        bytes: u64,
        now_ns: u64,
    ) -> Result<(), Refused> {
        for (meter, amount, name) in [
            (&mut meters.records, records, "publish_records_per_s"),
            (&mut meters.bytes, bytes, "publish_bytes_per_s"),
        ] {
            if let Some(meter) = meter {
                meter.check(amount, now_ns).map_err(|excess| self.refuse(name, excess))?;
            }
        }
        Ok(())
    }

    fn refuse(&self, name: &str, excess: OverRate) -> Refused {
        let retry_after_ms = excess.retry_after.as_millis() as u64 + 1;
        let text = format!("{}.limits.{name}", self.prefix);
        Refused { numbers: [retry_after_ms, excess.per_s, 0], ..Refused::new(ErrorCode::RateLimit, text) }
    }
}

impl Meters {
    /// The numbers of records and of bytes that may pass in a tenth of a second, each at least 1. Without a limit on
    /// records or on bytes, the respective number is [`u64::MAX`].
    pub(super) fn step(&self) -> (u64, u64) {
        let tenth =
            |meter: &Option<RateMeter>| meter.as_ref().map_or(u64::MAX, |meter| meter.per_s() / 10).max(1);
        (tenth(&self.records), tenth(&self.bytes))
    }

    pub(super) fn take(&mut self, records: u64, bytes: u64) {
        self.records.iter_mut().for_each(|meter| meter.take(records));
        self.bytes.iter_mut().for_each(|meter| meter.take(bytes));
    }
}
