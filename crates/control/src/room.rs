//! Counts and limits the bytes that keys take, in total and for each tenant.
//!
//! Clients' keys and locks may take [`state_bytes_max`](crate::ControlStateLimits::state_bytes_max), and the cluster's
//! keys may take as many bytes in addition. A key counts for the tenant that last wrote it. A tenant's keys may take up
//! to three times as many bytes as remain free, so some bytes always remain for other tenants. If only one tenant has
//! keys, these keys can therefore take three quarters of the bytes. The bytes of leases that wait for locks count for
//! no tenant.

use std::ops::AddAssign;

use crate::command::ControlCommand;
use crate::effects::ControlEffects;
use crate::error::ControlRefusal;
use crate::item::{KeyItem, Value, item_bytes};
use crate::lock;
use crate::reply::ControlReply;
use crate::state::{CommandSource, ControlState, is_reserved};

/// A tenant's keys may take up to this many times the bytes that remain free. A tenant's users may have up to this many
/// times the leases that remain free.
pub(crate) const SHARE: u64 = 3;

/// The number of bytes by which a write enlarges the state, in total and for the writer's tenant; 0 if the write
/// shrinks the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Growth {
    total: u64,
    of_writer: u64,
}

impl Growth {
    /// Returns the growth of the state when a new key is written.
    pub(crate) fn with_key(key: &[u8], value: &[u8]) -> Growth {
        let total = item_bytes(key, value);
        Growth { total, of_writer: total }
    }

    /// Returns a growth by `total` bytes. The growth counts for no tenant.
    pub(crate) fn shared(total: u64) -> Growth {
        Growth { total, of_writer: 0 }
    }
}

impl AddAssign for Growth {
    fn add_assign(&mut self, other: Growth) {
        (self.total, self.of_writer) = (self.total + other.total, self.of_writer + other.of_writer);
    }
}

impl ControlState {
    /// The number of bytes that a tenant's keys take.
    pub fn bytes_of_tenant(&self, tenant: &[u8]) -> u64 {
        self.tenant_bytes.get(tenant).copied().unwrap_or(0)
    }

    pub(crate) fn apply_for_tenant(
        &mut self,
        tenant: &[u8],
        command: &ControlCommand<'_>,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        let known = self.tenant_bytes.get_key_value(tenant).map(|(tenant, _)| tenant.clone());
        self.writer = Some(known.unwrap_or_else(|| tenant.into()));
        let reply = self.apply(command, effects);
        self.writer = None;
        reply
    }

    pub(crate) fn growth(&self, key: &[u8], value: &[u8]) -> Growth {
        let before = self.get(key);
        let of_writer = before.filter(|item| item.tenant == self.writer);
        let growth = |before: Option<&KeyItem>| {
            item_bytes(key, value).saturating_sub(before.map_or(0, |item| item.bytes(key)))
        };
        Growth { total: growth(before), of_writer: growth(of_writer) }
    }

    pub(crate) fn check_room(&self, source: CommandSource, growth: Growth) -> Result<(), ControlRefusal> {
        let before = if source == CommandSource::System { self.cluster_bytes } else { self.bytes };
        let (bytes, bytes_max) = (before + growth.total, self.limits.state_bytes_max);
        if growth.total > 0 && bytes > bytes_max {
            return Err(ControlRefusal::NoRoom { bytes, bytes_max });
        }
        let Some(tenant) = self.writer.as_ref().filter(|_| growth.of_writer > 0) else { return Ok(()) };
        let bytes_max = bytes_max.saturating_sub(bytes).saturating_mul(SHARE);
        let bytes = self.bytes_of_tenant(tenant) + growth.of_writer;
        if bytes > bytes_max { Err(ControlRefusal::NoShare { bytes, bytes_max }) } else { Ok(()) }
    }

    pub(crate) fn add_key_bytes(&mut self, key: &[u8], item: &KeyItem) {
        *self.total_bytes_mut(key) += item.bytes(key);
        if let Some(tenant) = &item.tenant {
            *self.tenant_bytes.entry(tenant.clone()).or_default() += item.bytes(key);
        }
    }

    pub(crate) fn subtract_key_bytes(&mut self, key: &[u8], item: &KeyItem) {
        *self.total_bytes_mut(key) -= item.bytes(key);
        let Some(tenant) = &item.tenant else { return };
        let Some(bytes) = self.tenant_bytes.get_mut(tenant) else { return };
        *bytes -= item.bytes(key);
        if *bytes == 0 {
            self.tenant_bytes.remove(tenant);
        }
    }

    /// Sets the tenant of a key, as read from a snapshot. Returns `false` and changes nothing if the key does not exist
    /// or already has a tenant.
    pub(crate) fn set_key_tenant(&mut self, key: &[u8], tenant: &Value) -> bool {
        let Some(item) = self.keys.get_mut(key).filter(|item| item.tenant.is_none()) else { return false };
        item.tenant = Some(tenant.clone());
        let bytes = item.bytes(key);
        *self.tenant_bytes.entry(tenant.clone()).or_default() += bytes;
        true
    }

    /// The total to which the bytes of `key` belong: that of the cluster's keys, or that of the clients' keys.
    fn total_bytes_mut(&mut self, key: &[u8]) -> &mut u64 {
        let is_cluster_key = is_reserved(key) && lock::lock_name(key).is_none();
        if is_cluster_key { &mut self.cluster_bytes } else { &mut self.bytes }
    }
}
