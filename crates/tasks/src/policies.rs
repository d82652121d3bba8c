//! Retry policies by number. Tasks refer to their policies by these numbers.
//!
//! A tenant uses a policy as long as one of the tenant's tasks may be retried under it: until this task is completed,
//! cancelled or discarded. A new policy may replace a policy that no task uses. The default policy always stays, and
//! does not count towards a tenant's limit.
//!
//! Bounds: [`SchedulerLimits::policies_max`](crate::SchedulerLimits) for each tenant, 65,535 in all.

use std::collections::BTreeSet;

use imbl::{OrdMap, OrdSet};

use crate::error::{Limit, TaskDecodeError, TaskRefusal};
use crate::pages::Pages;
use crate::retry::RetryPolicy;

/// The retry policies of all tasks, each stored once, and their uses by tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policies {
    /// All policies by number. An unused policy stays until a new policy replaces it.
    all: Pages<RetryPolicy>,
    /// The number of each policy in use.
    numbers: OrdMap<RetryPolicy, u16>,
    /// Number of tasks that use a policy, by tenant and policy.
    uses: OrdMap<(u32, u16), u32>,
    /// Number of tenants that use each policy.
    tenants: OrdMap<u16, u32>,
    free: OrdSet<u16>,
}

impl Policies {
    pub(crate) fn get(&self, policy: u16) -> RetryPolicy {
        self.all[usize::from(policy)]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RetryPolicy> {
        self.all.iter()
    }

    /// Refuses the policies in `wanted` if the tenant would exceed its limit, or if too few numbers are left for new
    /// policies.
    pub(crate) fn check(
        &self,
        tenant: u32,
        wanted: &BTreeSet<RetryPolicy>,
        max: u32,
    ) -> Result<(), TaskRefusal> {
        let uses = |policy: &u16| self.uses.contains_key(&(tenant, *policy));
        let is_new = |wanted: &&RetryPolicy| {
            **wanted != RetryPolicy::default() && !self.numbers.get(*wanted).is_some_and(uses)
        };
        let new = wanted.iter().filter(is_new).count();
        if new == 0 {
            return Ok(());
        }
        let used = self.uses.range((tenant, 0)..=(tenant, u16::MAX)).count();
        Limit::Policies.check((used + new) as u64, max.into())?;
        let unknown = wanted.iter().filter(|wanted| !self.numbers.contains_key(*wanted)).count();
        // Includes the number of the default policy.
        Limit::Policies.check((self.numbers.len() + unknown + 1) as u64, u16::MAX.into())
    }

    /// Counts one more task of a tenant with this policy; returns the policy's number.
    pub(crate) fn add_use(&mut self, tenant: u32, retry: RetryPolicy) -> u16 {
        let policy = match self.numbers.get(&retry) {
            Some(policy) => *policy,
            None => self.add(retry),
        };
        self.count(tenant, policy);
        policy
    }

    fn add(&mut self, retry: RetryPolicy) -> u16 {
        let policy = match self.free.get_min().copied() {
            Some(policy) => {
                self.free.remove(&policy);
                self.all[usize::from(policy)] = retry;
                policy
            }
            None => {
                self.all.push_back(retry);
                self.all.len() as u16 - 1
            }
        };
        self.numbers.insert(retry, policy);
        policy
    }

    fn count(&mut self, tenant: u32, policy: u16) {
        if self.get(policy) == RetryPolicy::default() {
            return;
        }
        let uses = self.uses.entry((tenant, policy)).or_insert(0);
        *uses += 1;
        if *uses == 1 {
            *self.tenants.entry(policy).or_insert(0) += 1;
        }
    }

    /// Subtracts one task of a tenant with this policy.
    pub(crate) fn remove_use(&mut self, tenant: u32, policy: u16) {
        let Some(uses) = self.uses.get_mut(&(tenant, policy)) else { return };
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        self.uses.remove(&(tenant, policy));
        let Some(tenants) = self.tenants.get_mut(&policy) else { return };
        *tenants -= 1;
        if *tenants == 0 {
            self.tenants.remove(&policy);
            let retry = self.get(policy);
            self.numbers.remove(&retry);
            self.free.insert(policy);
        }
    }

    /// Appends a policy from a snapshot.
    pub(crate) fn push(&mut self, retry: RetryPolicy) {
        self.all.push_back(retry);
    }

    /// Restores the uses from pairs of tenant and policy. The numbers of policies without a use become free.
    pub(crate) fn restore(&mut self, uses: impl Iterator<Item = (u32, u16)>) -> Result<(), TaskDecodeError> {
        uses.for_each(|(tenant, policy)| self.count(tenant, policy));
        for policy in 0..self.all.len().min(usize::from(u16::MAX)) as u16 {
            let retry = self.get(policy);
            if !self.tenants.contains_key(&policy) && retry != RetryPolicy::default() {
                self.free.insert(policy);
            } else if self.numbers.insert(retry, policy).is_some() {
                return Err(TaskDecodeError::Inconsistent("policies"));
            }
        }
        Ok(())
    }
}
