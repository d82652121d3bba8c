//! Keeps the subscriptions that wait for new topics. The entry of such a subscription is called a watcher.
//!
//! A watcher ends when its [`NewLogs`] is dropped everywhere. A sweep removes ended watchers. A sweep is made when the
//! number of watchers has doubled since the last sweep, or after several refusals. The cost of sweeping is therefore
//! constant for each added watcher.
//!
//! Limits: the node has at most `watchers_max` watchers and refuses further ones. The users of one tenant together may
//! have up to [`TENANT_SHARE`] times as many watchers as the node can still accept.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dunlin_topic::{NewLogs, Pattern, PatternIndex};

use crate::access::{TENANT_SHARE, User};
use crate::error::TopicError;

#[derive(Debug)]
pub(super) struct Watchers {
    by_pattern: PatternIndex<Vec<Watcher>>,
    watchers: usize,
    /// The number of watchers of each tenant, by the tenant's name.
    of_tenant: HashMap<Arc<str>, usize>,
    /// If the number of watchers has reached this number, a sweep is made before another watcher is added.
    sweep_at: usize,
    watchers_max: usize,
    /// The number of watchers that were refused since the last sweep.
    refused: usize,
}

#[derive(Debug)]
struct Watcher {
    pattern: Pattern,
    newcomers: Weak<NewLogs>,
    /// The user whose permissions decide which new topics the subscription reads; `None` on a node without users.
    user: Option<Arc<dyn User>>,
    /// The user's tenant; `None` if the user belongs to no tenant.
    tenant: Option<Arc<str>>,
}

const SWEEP_AT_LEAST: usize = 64;
/// The number of watchers that a sweep can check at about the cost of one refusal. A sweep is made when the refusals
/// since the last sweep outnumber the watchers divided by this number.
const REFUSED_PER_SWEEP: usize = 64;

impl Watchers {
    pub(super) fn new(watchers_max: usize) -> Watchers {
        Watchers {
            by_pattern: PatternIndex::new(),
            watchers: 0,
            of_tenant: HashMap::new(),
            sweep_at: SWEEP_AT_LEAST,
            watchers_max,
            refused: 0,
        }
    }

    /// Adds a watcher. From then on, [`for_each`](Watchers::for_each) visits it until `newcomers` is dropped.
    pub(super) fn add(
        &mut self,
        pattern: &Pattern,
        newcomers: &Arc<NewLogs>,
        user: Option<Arc<dyn User>>,
    ) -> Result<(), TopicError> {
        let permissions = user.as_ref().map(|user| user.permissions());
        let tenant = permissions.as_ref().map_or("", |permissions| &permissions.tasks.tenant);
        self.refused += usize::from(self.check_room(tenant).is_err());
        if self.watchers >= self.sweep_at || self.refused > self.watchers / REFUSED_PER_SWEEP {
            self.sweep();
        }
        self.check_room(tenant)?;
        let tenant = (!tenant.is_empty()).then(|| {
            self.of_tenant
                .get_key_value(tenant)
                .map_or_else(|| Arc::from(tenant), |(known, _)| Arc::clone(known))
        });
        if let Some(tenant) = &tenant {
            *self.of_tenant.entry(Arc::clone(tenant)).or_default() += 1;
        }
        let watcher =
            Watcher { pattern: pattern.clone(), newcomers: Arc::downgrade(newcomers), user, tenant };
        match self.by_pattern.get_mut(pattern) {
            Some(others) => others.push(watcher),
            None => {
                self.by_pattern.insert(pattern, vec![watcher]);
            }
        }
        self.watchers += 1;
        Ok(())
    }

    /// Calls `each` for every watcher whose pattern overlaps `pattern`, with the watcher's pattern, new logs and user.
    pub(super) fn for_each(
        &self,
        pattern: &Pattern,
        mut each: impl FnMut(&Pattern, &NewLogs, Option<&Arc<dyn User>>),
    ) {
        self.by_pattern.for_each_overlapping(pattern, |watchers| {
            for watcher in watchers {
                if let Some(newcomers) = watcher.newcomers.upgrade() {
                    each(&watcher.pattern, &newcomers, watcher.user.as_ref());
                }
            }
        });
    }

    /// Returns an error if the node or the tenant has reached its limit of watchers.
    fn check_room(&self, tenant: &str) -> Result<(), TopicError> {
        let refused = |limit, value: usize| Err(TopicError::Limit { limit, value: value as u64 });
        let free = self.watchers_max.saturating_sub(self.watchers);
        match self.of_tenant.get(tenant) {
            _ if free == 0 => refused("watchers_max", self.watchers_max),
            Some(&count) if count >= free.saturating_mul(TENANT_SHARE) => {
                refused("watchers_of_tenant_max", count)
            }
            _ => Ok(()),
        }
    }

    fn sweep(&mut self) {
        let mut remaining = 0;
        let mut of_tenant = HashMap::<Arc<str>, usize>::new();
        self.by_pattern.retain(|watchers| {
            watchers.retain(|watcher| watcher.newcomers.strong_count() > 0);
            remaining += watchers.len();
            for tenant in watchers.iter().filter_map(|watcher| watcher.tenant.as_ref()) {
                *of_tenant.entry(Arc::clone(tenant)).or_default() += 1;
            }
            !watchers.is_empty()
        });
        (self.watchers, self.of_tenant) = (remaining, of_tenant);
        self.refused = 0;
        self.sweep_at = (2 * remaining).max(SWEEP_AT_LEAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    fn notified(watchers: &Watchers, topic: &str) -> Vec<String> {
        let mut notified = Vec::new();
        watchers.for_each(&pattern(topic), |pattern, _, _| notified.push(pattern.to_string()));
        notified.sort();
        notified
    }

    #[test]
    fn only_watchers_with_a_matching_pattern_are_notified() {
        let mut watchers = Watchers::new(9);
        let newcomers = NewLogs::new();
        ["a.*", "a.>", "b", "a.*"]
            .iter()
            .for_each(|text| watchers.add(&pattern(text), &newcomers, None).unwrap());
        assert_eq!(notified(&watchers, "a.b"), ["a.*", "a.*", "a.>"]);
        assert_eq!(notified(&watchers, ">"), ["a.*", "a.*", "a.>", "b"]);
        drop(newcomers);
        assert_eq!(notified(&watchers, ">"), [""; 0]);
    }

    #[test]
    fn dropped_watchers_are_removed_while_others_are_added() {
        let mut watchers = Watchers::new(100_000);
        let stays = NewLogs::new();
        watchers.add(&pattern("stays.*"), &stays, None).unwrap();
        for n in 0..10_000 {
            watchers.add(&pattern(&format!("gone.{n}.*")), &NewLogs::new(), None).unwrap();
        }
        assert!(watchers.watchers <= SWEEP_AT_LEAST && watchers.by_pattern.len() <= SWEEP_AT_LEAST);
        assert_eq!(notified(&watchers, ">"), ["stays.*"]);
    }

    #[test]
    fn watcher_over_the_limit_is_refused_until_another_is_dropped() {
        let mut watchers = Watchers::new(2);
        let stays = NewLogs::new();
        watchers.add(&pattern("a.*"), &stays, None).unwrap();
        let dropped = NewLogs::new();
        watchers.add(&pattern("b.*"), &dropped, None).unwrap();
        let refused = Err(TopicError::Limit { limit: "watchers_max", value: 2 });
        assert_eq!(watchers.add(&pattern("c.*"), &stays, None), refused);
        drop(dropped);
        assert_eq!(watchers.add(&pattern("c.*"), &stays, None), Ok(()));
    }
}
