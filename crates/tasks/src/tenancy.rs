//! Tenants are made, and changed while their tasks run.

use std::sync::Arc;

use crate::command;
use crate::effects::Effects;
use crate::error::{Limit, Refusal};
use crate::reply::Reply;
use crate::slab::NONE;
use crate::state::State;
use crate::task::Stage;
use crate::tenant::{Limited, Tenant, WEIGHT_MAX};

impl State {
    pub(crate) fn set_tenant(
        &mut self,
        new: &command::Tenant<'_>,
        _effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
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
        let before = tenant.kept_free();
        for (used, quota) in tenant.used.iter_mut().zip(&tenant.quotas) {
            used.settle(quota, now_ms);
        }
        tenant.quotas = [new.concurrency, new.cpu_milli, new.memory_bytes];
        (tenant.weight, tenant.queued_max) = (new.weight, new.queued_max);
        tenant.retry_percent = new.retry_percent;
        let after = tenant.kept_free();
        for part in 0..3 {
            self.kept[part] = self.kept[part] + after[part] - before[part];
        }
        let limits = new.limits.iter();
        let limits: Vec<_> =
            limits.map(|limit| Limited { key: limit.key.into(), running_max: limit.running_max }).collect();
        if limits != *self.tenants[at as usize].limits {
            self.regroup(at, limits);
        }
        self.stand(at);
        self.dirty.extend(
            (0..self.classes.len() as u32).filter(|&class| !self.classes[class as usize].standing.is_empty()),
        );
        Ok(Reply::Done)
    }

    fn check_tenant(&self, new: &command::Tenant<'_>) -> Result<(), Refusal> {
        self.check_name(new.name)?;
        if !(1..=WEIGHT_MAX).contains(&new.weight) {
            return Err(Refusal::Weight);
        }
        if ![new.concurrency, new.cpu_milli, new.memory_bytes].iter().all(|quota| quota.is_ordered()) {
            return Err(Refusal::Quota);
        }
        Limit::Labels.check(new.limits.len() as u64, u64::from(self.limits.labels_max))?;
        new.limits.iter().try_for_each(|limit| self.check_name(limit.key))?;
        let tenants = self.tenants.len() as u64 + u64::from(!self.tenant_at.contains_key(new.name));
        Limit::Tenants.check(tenants, u64::from(self.limits.tenants_max))
    }

    /// Other limits by key: who has places is counted again, and who waits for its turn asks for them again. Takes as long as
    /// there are tasks.
    fn regroup(&mut self, tenant_at: u32, limits: Vec<Limited>) {
        let of_tenant: Vec<_> =
            self.tasks.iter_from(0).filter(|(_, task)| task.tenant == tenant_at).map(|(at, _)| at).collect();
        let mut waiting = Vec::new();
        for &at in &of_tenant {
            match self.tasks[at].stage {
                Stage::Ready => self.unready(at),
                Stage::Limited => {}
                _ => continue,
            }
            waiting.push((self.tasks[at].rank(self.limits.ageing_ms), at));
        }
        let first = (tenant_at, 0, Arc::<[u8]>::default());
        let groups = self.groups.range(first..).map(|(key, _)| key.clone());
        let groups: Vec<_> = groups.take_while(|key| key.0 == tenant_at).collect();
        groups.iter().for_each(|key| {
            self.groups.remove(key);
        });
        self.tenant(tenant_at).limits = Arc::new(limits);
        for &at in
            of_tenant.iter().filter(|&&at| self.tasks[at].stage.is_held() && self.tasks[at].worker != NONE)
        {
            for key in self.groups_of(at) {
                self.groups.entry(key).or_default().places += 1;
            }
        }
        waiting.sort_unstable();
        waiting.into_iter().for_each(|(_, at)| self.admit(at, false));
    }
}
