//! The state of a user at run time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dunlin::topic::{MemoryBudget, Topic};
use dunlin::wire::NO_PRODUCER;
use dunlin::{Permissions, Refused, TopicError, steady_ns};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::metered::MeteredCommand;
use super::quota::AccessQuota;
use super::tenancy::Tenancy;
use super::users::AccessUser;

/// State that all connections of a user share. The state outlives the connections and follows the users file.
#[derive(Debug)]
pub(crate) struct Account {
    name: String,
    tenant: Arc<Tenancy>,
    permissions: RwLock<Arc<Permissions>>,
    /// Whether the account is closed for good, because its user was removed or moved to another tenant.
    is_closed: AtomicBool,
    /// Notified after the users file was applied.
    changes: watch::Receiver<()>,
    pub(super) quota: AccessQuota,
}

impl Account {
    pub(super) fn new(
        name: &str,
        user: &AccessUser,
        tenant: &Arc<Tenancy>,
        changes: watch::Receiver<()>,
    ) -> Account {
        Account {
            name: name.to_owned(),
            tenant: Arc::clone(tenant),
            permissions: RwLock::new(Arc::clone(&user.permissions)),
            is_closed: AtomicBool::new(false),
            changes,
            quota: AccessQuota::new(format!("users.{name}"), user.limits),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn tenant(&self) -> &Arc<Tenancy> {
        &self.tenant
    }

    /// Converts a producer id that the user's client chose to the id that topics store. Two users may therefore choose
    /// the same id without affecting each other's producers.
    pub(crate) fn producer(&self, id: u64) -> u64 {
        let hash = Sha256::new().chain_update(id.to_le_bytes()).chain_update(&self.name).finalize();
        let number = hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        number.max(NO_PRODUCER + 1)
    }

    /// Applies the user's new entry in the users file.
    pub(super) fn set(&self, user: &AccessUser) {
        self.set_permissions(Arc::clone(&user.permissions));
        self.quota.set(user.limits);
    }

    /// Closes the account: its connections may do nothing from now on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.set_permissions(Arc::default());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn set_permissions(&self, permissions: Arc<Permissions>) {
        *self.permissions.write().unwrap_or_else(PoisonError::into_inner) = permissions;
    }

    /// Whether the user may publish these records and bytes now. Without limits, the check costs two atomic loads.
    #[inline]
    pub(crate) fn admit_publish(&self, records: u64, bytes: u64) -> Result<(), Refused> {
        if self.is_metered() { self.meter(records, bytes) } else { Ok(()) }
    }

    /// Whether the user may send this command of `bytes` bytes now. A command that counts as no record is never
    /// refused, even if the user has exceeded the publish rate.
    pub(crate) fn admit_command(&self, command: &impl MeteredCommand, bytes: u64) -> Result<(), Refused> {
        match command.published_records() {
            0 => Ok(()),
            records => self.admit_publish(records, bytes),
        }
    }

    /// Whether the publish rate is limited.
    #[inline]
    pub(crate) fn is_metered(&self) -> bool {
        self.quota.is_metered() || self.tenant.quota.is_metered()
    }

    /// Number of records and bytes to publish at once: the amount for a tenth of a second, so that a client over its
    /// rate is delayed in small steps.
    pub(crate) fn step(&self) -> (u64, u64) {
        if !self.is_metered() {
            return (u64::MAX, u64::MAX);
        }
        let (tenant_meters, user_meters) = (self.tenant.quota.meters().step(), self.quota.meters().step());
        (tenant_meters.0.min(user_meters.0), tenant_meters.1.min(user_meters.1))
    }

    fn meter(&self, records: u64, bytes: u64) -> Result<(), Refused> {
        let now_ns = steady_ns();
        // Locks the tenant's meters first, so that no deadlock is possible.
        let mut tenant_meters = self.tenant.quota.meters();
        let mut user_meters = self.quota.meters();
        self.tenant.quota.check(&mut tenant_meters, records, bytes, now_ns)?;
        self.quota.check(&mut user_meters, records, bytes, now_ns)?;
        tenant_meters.take(records, bytes);
        user_meters.take(records, bytes);
        Ok(())
    }
}

impl dunlin::User for Account {
    fn name(&self) -> &str {
        &self.name
    }

    fn permissions(&self) -> Arc<Permissions> {
        Arc::clone(&self.permissions.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changes.clone()
    }

    fn budget(&self) -> &Arc<MemoryBudget> {
        self.tenant.budget()
    }

    fn connection_budget(&self) -> &Arc<MemoryBudget> {
        self.tenant.connection_budget()
    }

    fn reserve_topic(&self, name: &str, is_automatic: bool) -> Result<(), TopicError> {
        self.tenant.reserve_topic(name, is_automatic)
    }

    fn confirm_topic(&self, topic: &Arc<Topic>) {
        self.tenant.confirm_topic(topic);
    }

    fn release_topic(&self, name: &str) {
        self.tenant.release_topic(name);
    }
}
