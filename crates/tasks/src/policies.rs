//! Retry policies by number, as tasks name them.
//!
//! A tenant uses a policy as long as one of its tasks may be tried again by it: until the task is completed, cancelled or
//! let go. A policy that nobody uses makes room for another. The default one stays, and is not counted.
//!
//! Limits: [`Limits::policies_max`](crate::Limits) for each tenant, 65,535 in all.

use std::collections::BTreeSet;

use imbl::{OrdMap, OrdSet};

use crate::error::{DecodeError, Limit, Refusal};
use crate::pages::Pages;
use crate::retry::Retry;

#[derive(Debug, Clone, Default)]
pub(crate) struct Policies {
    /// One that nobody uses stays what it was until another takes its place.
    all: Pages<Retry>,
    /// Those in use.
    numbers: OrdMap<Retry, u16>,
    /// How many tasks of which tenant use which.
    uses: OrdMap<(u32, u16), u32>,
    /// How many tenants use which.
    tenants: OrdMap<u16, u32>,
    free: OrdSet<u16>,
}

impl Policies {
    pub(crate) fn get(&self, policy: u16) -> Retry {
        self.all[usize::from(policy)]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Retry> {
        self.all.iter()
    }

    /// Refuses what would be more than a tenant may use, or than have numbers.
    pub(crate) fn check(&self, tenant: u32, wanted: &BTreeSet<Retry>, max: u32) -> Result<(), Refusal> {
        let uses = |policy: &u16| self.uses.contains_key(&(tenant, *policy));
        let is_new =
            |wanted: &&Retry| **wanted != Retry::default() && !self.numbers.get(*wanted).is_some_and(uses);
        let new = wanted.iter().filter(is_new).count();
        if new == 0 {
            return Ok(());
        }
        let used = self.uses.range((tenant, 0)..=(tenant, u16::MAX)).count();
        Limit::Policies.check((used + new) as u64, max.into())?;
        let unknown = wanted.iter().filter(|wanted| !self.numbers.contains_key(*wanted)).count();
        // The default one has a place, too.
        Limit::Policies.check((self.numbers.len() + unknown + 1) as u64, u16::MAX.into())
    }

    /// One more task of the tenant's uses it; its number.
    pub(crate) fn take(&mut self, tenant: u32, retry: Retry) -> u16 {
        let policy = match self.numbers.get(&retry) {
            Some(policy) => *policy,
            None => self.add(retry),
        };
        self.count(tenant, policy);
        policy
    }

    fn add(&mut self, retry: Retry) -> u16 {
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
        if self.get(policy) == Retry::default() {
            return;
        }
        let uses = self.uses.entry((tenant, policy)).or_insert(0);
        *uses += 1;
        if *uses == 1 {
            *self.tenants.entry(policy).or_insert(0) += 1;
        }
    }

    /// A task of the tenant's does not use it any more.
    pub(crate) fn give_back(&mut self, tenant: u32, policy: u16) {
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

    /// One of a snapshot, behind those before it.
    pub(crate) fn push(&mut self, retry: Retry) {
        self.all.push_back(retry);
    }

    /// These are all that use any, as tenant and policy: the others are free.
    pub(crate) fn restore(&mut self, uses: impl Iterator<Item = (u32, u16)>) -> Result<(), DecodeError> {
        uses.for_each(|(tenant, policy)| self.count(tenant, policy));
        for policy in 0..self.all.len().min(usize::from(u16::MAX)) as u16 {
            let retry = self.get(policy);
            if !self.tenants.contains_key(&policy) && retry != Retry::default() {
                self.free.insert(policy);
            } else if self.numbers.insert(retry, policy).is_some() {
                return Err(DecodeError::Inconsistent("policies"));
            }
        }
        Ok(())
    }
}
