//! Creates tenants, and changes their settings while their tasks run.

use std::sync::Arc;

use crate::command::{self, KeyLimit};
use crate::effects::TaskEffects;
use crate::error::{Limit, TaskRefusal};
use crate::group::{GroupKey, group_bytes};
use crate::rate::Bucket;
use crate::reply::CommandReply;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::TaskStage;
use crate::tenant::{StoredKeyLimit, Tenant, WEIGHT_MAX};

impl SchedulerState {
    pub(crate) fn set_tenant(
        &mut self,
        new: &command::TenantSettings<'_>,
        _effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        self.check_tenant(new)?;
        let at = match self.tenant_at.get(new.name) {
            Some(&at) => at,
            None => {
                let name: Arc<[u8]> = new.name.into();
                self.tenants.push_back(Tenant::new(name.clone()));
                self.tenant_at.insert(name, self.tenants.len() as u32 - 1);
                self.tenants.len() as u32 - 1
            }
        };
        let now_ms = self.now_ms;
        let tenant = self.tenant(at);
        let before = tenant.unused_reserve();
        for (used, quota) in tenant.used.iter_mut().zip(&tenant.quotas) {
            used.settle(quota, now_ms);
        }
        tenant.quotas = [new.concurrency, new.cpu_milli, new.memory_bytes];
        (tenant.weight, tenant.queued_max) = (new.weight, new.queued_max);
        tenant.retry_percent = new.retry_percent;
        let after = tenant.unused_reserve();
        for part in 0..3 {
            self.unused_reserve[part] = self.unused_reserve[part] + after[part] - before[part];
        }
        let limits = new.limits.iter();
        let limits: Vec<_> = limits
            .map(|&KeyLimit { key, running_max, rate }| StoredKeyLimit { key: key.into(), running_max, rate })
            .collect();
        if limits != *self.tenants[at as usize].limits {
            self.regroup(at, limits);
        }
        self.rank_lanes(at);
        self.dirty.extend(
            (0..self.classes.len() as u32)
                .filter(|&class| !self.classes[class as usize].ranked_lanes.is_empty()),
        );
        Ok(CommandReply::Done)
    }

    pub(crate) fn ensure_tenant(
        &mut self,
        name: &[u8],
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        match self.tenant_at.contains_key(name) {
            true => Ok(CommandReply::Done),
            false => self.set_tenant(&command::TenantSettings::new(name), effects),
        }
    }

    fn check_tenant(&self, new: &command::TenantSettings<'_>) -> Result<(), TaskRefusal> {
        self.check_name(new.name)?;
        if !(1..=WEIGHT_MAX).contains(&new.weight) {
            return Err(TaskRefusal::Weight);
        }
        if ![new.concurrency, new.cpu_milli, new.memory_bytes].iter().all(|quota| quota.is_ordered()) {
            return Err(TaskRefusal::Quota);
        }
        Limit::Labels.check(new.limits.len() as u64, u64::from(self.limits.labels_max))?;
        new.limits.iter().try_for_each(|limit| self.check_name(limit.key))?;
        if !new.limits.iter().filter_map(|limit| limit.rate).all(|rate| rate.is_valid()) {
            return Err(TaskRefusal::Rate);
        }
        let tenants = self.tenants.len() as u64 + u64::from(!self.tenant_at.contains_key(new.name));
        Limit::Tenants.check(tenants, u64::from(self.limits.tenants_max))
    }

    /// Replaces a tenant's limits by key. Counts the places of the new groups, and checks again whether waiting tasks
    /// may start. Takes time proportional to the number of all tasks.
    fn regroup(&mut self, tenant_at: u32, limits: Vec<StoredKeyLimit>) {
        let of_tenant: Vec<_> =
            self.tasks.iter_from(0).filter(|(_, task)| task.tenant == tenant_at).map(|(at, _)| at).collect();
        let mut waiting = Vec::new();
        for &at in &of_tenant {
            match self.tasks[at].stage {
                TaskStage::Ready => self.remove_from_lane(at),
                TaskStage::Limited => {}
                _ => continue,
            }
            waiting.push((self.tasks[at].rank(self.limits.ageing_ms), at));
        }
        self.reset_groups(tenant_at, limits);
        for at in of_tenant {
            if self.tasks[at].stage.is_held() && self.tasks[at].worker != NONE {
                for key in self.groups_of(at) {
                    self.group(&key).places += 1;
                }
            }
        }
        waiting.sort_unstable();
        waiting.into_iter().for_each(|(_, at)| self.admit(at, false));
        self.groups_from(tenant_at).iter().for_each(|key| self.update_group(key));
    }

    /// Removes all groups of the tenant and sets its new limits. If an old and a new limit with rates have the same
    /// key, recent starts still count.
    fn reset_groups(&mut self, tenant_at: u32, limits: Vec<StoredKeyLimit>) {
        let before = self.tenants[tenant_at as usize].limits.clone();
        let now_ms = self.now_ms;
        let mut buckets: Vec<(usize, Arc<[u8]>, Bucket)> = Vec::new();
        for key in self.groups_from(tenant_at) {
            self.count_bytes(key.0, 0, group_bytes(&key), false);
            if let Some(group) = self.groups.remove(&key) {
                self.refills.remove(&(group.due_ms, key.clone()));
                buckets.push((key.1 as usize, key.2, group.bucket));
            }
        }
        for (at, limit) in limits.iter().enumerate() {
            let Some(rate) = limit.rate else { continue };
            let is_same = |old: &&StoredKeyLimit| old.key == limit.key && old.rate == limit.rate;
            let by_key = |old: &&StoredKeyLimit| old.key == limit.key && old.rate.is_some();
            let found = before.iter().find(is_same).or_else(|| before.iter().find(by_key));
            let Some((old, old_rate)) = found.and_then(|old| Some((old, old.rate?))) else { continue };
            for (_, value, bucket) in buckets.iter().filter(|(old_at, ..)| before[*old_at] == *old) {
                let bucket = bucket.at_rate(&old_rate, &rate, now_ms);
                if bucket.missing > 0 {
                    self.group(&(tenant_at, at as u32, value.clone())).bucket = bucket;
                }
            }
        }
        self.tenant(tenant_at).limits = Arc::new(limits);
    }

    fn groups_from(&self, tenant_at: u32) -> Vec<GroupKey> {
        let first = (tenant_at, 0, Arc::<[u8]>::default());
        let groups = self.groups.range(first..).map(|(key, _)| key.clone());
        groups.take_while(|key| key.0 == tenant_at).collect()
    }
}
