//! Defines an account: the state of a user while the node runs.

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

/// State that all connections of a user share. An account outlives these connections, and changes with the users file.
#[derive(Debug)]
pub(crate) struct Account {
    name: String,
    tenant: Arc<Tenancy>,
    permissions: RwLock<Arc<Permissions>>,
    /// Whether the account is closed permanently, because its user was removed or moved to another tenant.
    is_closed: AtomicBool,
    /// Notified each time a users file is applied.
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

    /// Returns the producer id that topics store for the id `id`, which the user's client chose. If two users choose
    /// the same id, the results differ, so that topics keep the two producers apart.
    pub(crate) fn producer(&self, id: u64) -> u64 {
        let hash = Sha256::new().chain_update(id.to_le_bytes()).chain_update(&self.name).finalize();
        let number = hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        number.max(NO_PRODUCER + 1)
    }

    /// Applies a new version of the user's entry in the users file.
    pub(super) fn set(&self, user: &AccessUser) {
        self.set_permissions(Arc::clone(&user.permissions));
        self.quota.set(user.limits);
    }

    /// Closes the account. From now on, every action of its connections is refused.
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

    /// Checks whether the user may publish this many records and bytes now. If no limit is set, the check costs two
    /// atomic loads.
    #[inline]
    pub(crate) fn admit_publish(&self, records: u64, bytes: u64) -> Result<(), Refused> {
        if self.is_metered() { self.meter(records, bytes) } else { Ok(()) }
    }

    /// Checks whether the user may now send this command of `bytes` bytes. Commands that publish no records are always
    /// accepted, even above the publish rate.
    pub(crate) fn admit_command(&self, command: &impl MeteredCommand, bytes: u64) -> Result<(), Refused> {
        match command.published_records() {
            0 => Ok(()),
            records => self.admit_publish(records, bytes),
        }
    }

    /// Whether the user or the tenant has a limited publish rate.
    #[inline]
    pub(crate) fn is_metered(&self) -> bool {
        self.quota.is_metered() || self.tenant.quota.is_metered()
    }

    /// The numbers of records and of bytes that a client may publish at once: a tenth of the rates per second. With
    /// such small steps, a client above its rate waits often but briefly.
    pub(crate) fn step(&self) -> (u64, u64) {
        if !self.is_metered() {
            return (u64::MAX, u64::MAX);
        }
        let (tenant_meters, user_meters) = (self.tenant.quota.meters().step(), self.quota.meters().step());
        (tenant_meters.0.min(user_meters.0), tenant_meters.1.min(user_meters.1))
    }

    fn meter(&self, records: u64, bytes: u64) -> Result<(), Refused> {
        let now_ns = steady_ns();
        // The tenant's meters are always locked before the user's meters. The fixed order makes a deadlock impossible.
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
