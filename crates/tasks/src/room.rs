//! Counts and limits the memory that tasks take, in total and for each tenant.
//!
//! When room is needed, completed and cancelled tasks are forgotten, the oldest first. All other tasks of a tenant may
//! together take at most three times as many bytes as are still free. A tenant that is alone therefore gets three
//! quarters of the memory, and some room always remains for other tenants.
//!
//! Bounds: [`SchedulerLimits::state_bytes_max`](crate::SchedulerLimits).

use crate::command::NewTask;
use crate::error::TaskRefusal;
use crate::state::SchedulerState;

/// The tasks of a tenant may take up to this many times the bytes that are still free. A tenant that is alone can
/// therefore take three quarters of the memory.
const SHARE: u64 = 3;
/// Maximum size of a task's error or note while memory is full, bytes. Longer texts are cut.
const TEXT_BYTES_FULL: usize = 256;
/// Counted size of a new task in addition to its own data, bytes.
const NEW_BYTES: u64 = 512;

impl SchedulerState {
    /// Memory of a tenant's tasks, not counting completed and cancelled tasks, bytes.
    pub fn bytes_of_tenant(&self, tenant: u32) -> u64 {
        self.bytes_of.get(tenant as usize).copied().unwrap_or(0)
    }

    /// Replaces `before` bytes by `after` bytes in two counts: in the total, and in the count of finished tasks if
    /// `is_finished` is set, otherwise in the tenant's count.
    pub(crate) fn count_bytes(&mut self, tenant: u32, after: u64, before: u64, is_finished: bool) {
        self.bytes = self.bytes + after - before;
        while self.bytes_of.len() <= tenant as usize {
            self.bytes_of.push_back(0);
        }
        let part = if is_finished { &mut self.finished_bytes } else { &mut self.bytes_of[tenant as usize] };
        *part = *part + after - before;
    }

    /// Moves a task's size from its tenant's count to the count of finished tasks.
    pub(crate) fn count_finished_bytes(&mut self, at: u32) {
        let (tenant, bytes) = (self.tasks[at].tenant, self.tasks[at].bytes());
        self.count_bytes(tenant, 0, bytes, false);
        self.count_bytes(tenant, bytes, 0, true);
    }

    /// Refuses growth beyond the limit for all tenants together, or beyond the part of memory that the tenant may use.
    pub(crate) fn check_growth(&self, tenant: u32, growth: u64) -> Result<(), TaskRefusal> {
        if growth == 0 {
            return Ok(());
        }
        let bytes_max = self.limits.state_bytes_max;
        let bytes = self.bytes - self.finished_bytes + growth;
        let Some(free) = bytes_max.checked_sub(bytes) else {
            return Err(TaskRefusal::NoRoom { bytes, bytes_max });
        };
        let (own, own_max) = (self.bytes_of_tenant(tenant) + growth, free.saturating_mul(SHARE));
        if own > own_max { Err(TaskRefusal::NoShare { bytes: own, bytes_max: own_max }) } else { Ok(()) }
    }

    /// The part of an error or a note that is stored: its first bytes. At most as many bytes are stored as the present
    /// limit allows.
    pub(crate) fn truncate_text<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let is_full = self.bytes >= self.limits.state_bytes_max;
        let max = if is_full { TEXT_BYTES_FULL } else { self.limits.result_bytes_max as usize };
        &text[..text.len().min(max)]
    }
}

/// The largest size of a new task before it has a result.
pub(crate) fn bytes_of_new(task: &NewTask<'_>) -> u64 {
    let labels = task.labels.iter().map(|label| label.key.len() + label.value.len() + 64).sum::<usize>();
    let bytes =
        task.payload.len() + task.idempotency_key.len() + task.subject.len() + labels + task.after.len() * 16;
    NEW_BYTES + bytes as u64
}
