//! Defines the state of a tenant while the node runs: the resources that its users share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dunlin::topic::{MemoryBudget, Topic};
use dunlin::{Node, Refused, TopicError, now_ns};

use super::quota::AccessQuota;
use super::users::{AccessTenant, TenantLimits};

/// For this time after a request to create a topic, ns, the topic counts towards the tenant's limit even if it does not
/// exist yet. Later, it counts only if it exists.
const CREATING_NS_MAX: u64 = 60_000_000_000;

/// If a tenant has no memory limit of its own, its topics leave the tenant's memory divided by this number to its
/// connections.
const CONNECTIONS_SHARE: u64 = 4;

/// The shared resources and limits of a tenant's users.
#[derive(Debug)]
pub(crate) struct Tenancy {
    name: String,
    node: Node,
    /// The memory budget of the topics that the tenant's users create.
    budget: Arc<MemoryBudget>,
    /// The memory budget of the tenant's connections. In normal operation, the records of topics use up the topics'
    /// budget. Because the connections have a budget of their own, clients can still subscribe and publish.
    connection_budget: Arc<MemoryBudget>,
    pub(super) quota: AccessQuota,
    limits: Mutex<TenantLimits>,
    /// Topics that the tenant's users created.
    topics: Mutex<HashMap<String, CreatedTopic>>,
    /// Number of topics that were deleted because they were unused.
    expired: AtomicU64,
}

#[derive(Debug)]
struct CreatedTopic {
    is_automatic: bool,
    created_ns: u64,
    /// Number of requests to create this topic that are in progress.
    requests: u32,
    /// The time of the topic's last known use at other nodes, ns.
    used_ns: u64,
    /// The topic that counts towards the limit; `None` until the topic is created. With the reference, a later topic
    /// with the same name is recognized as another topic.
    topic: Option<Weak<Topic>>,
}

impl CreatedTopic {
    fn new(is_automatic: bool) -> CreatedTopic {
        CreatedTopic { is_automatic, created_ns: now_ns(), requests: 0, used_ns: 0, topic: None }
    }

    fn is_creating(&self, now_ns: u64) -> bool {
        self.topic.is_none() && now_ns.saturating_sub(self.created_ns) < CREATING_NS_MAX
    }

    /// Returns the topic that is counted here, if it still exists.
    fn existing(&self, node: &Node, name: &str) -> Option<Arc<Topic>> {
        let counted = self.topic.as_ref()?;
        node.topic(name).filter(|topic| counted.ptr_eq(&Arc::downgrade(topic)))
    }

    /// Whether the topic was created automatically, and has been unused for `idle_max` as far as this node knows.
    fn is_idle(&self, topic: &Topic, now_ns: u64, idle_max: Duration) -> bool {
        let appended_ns = topic.logs().iter().map(|log| log.info().last_append_ns).max().unwrap_or(0);
        let used_ns = appended_ns.max(self.created_ns).max(self.used_ns);
        self.is_automatic
            && u128::from(now_ns.saturating_sub(used_ns)) >= idle_max.as_nanos()
            && topic.publishers() == 0
            && !topic.logs().iter().any(|log| log.has_subscriber(""))
    }
}

impl Tenancy {
    /// Creates the state of a tenant. Topics that already exist count towards the tenant's limit. `is_only` says that all
    /// users belong to this tenant.
    pub(super) fn new(name: &str, tenant: &AccessTenant, is_only: bool, node: &Node) -> Tenancy {
        let limits = tenant.limits;
        let (budget, connection_budget) = match limits.memory_bytes {
            Some(bytes) => (node.budget().child(bytes), node.budget().child(bytes)),
            None if is_only => (Arc::clone(node.budget()), Arc::clone(node.budget())),
            None => {
                let bytes = node.config().limits.tenant_bytes_max;
                let together = node.budget().child(bytes);
                (together.child(bytes - bytes / CONNECTIONS_SHARE), together)
            }
        };
        let tenancy = Tenancy {
            name: name.to_owned(),
            node: node.clone(),
            budget,
            connection_budget,
            quota: AccessQuota::new(format!("tenants.{name}"), limits.together),
            limits: Mutex::new(limits),
            topics: Mutex::default(),
            expired: AtomicU64::new(0),
        };
        if limits.topics.is_some() {
            tenancy.count_topics(tenant);
        }
        tenancy
    }

    /// Counts the existing topics whose subjects are within the tenant's `subjects`.
    fn count_topics(&self, tenant: &AccessTenant) {
        for bounds in &tenant.bounds.allow {
            let mut after = String::new();
            loop {
                let page = self.node.topics(Some(bounds), &after, usize::MAX);
                let mut topics = self.topics();
                for topic in &page.topics {
                    topics.entry(topic.name().to_owned()).or_insert_with(|| CreatedTopic {
                        topic: Some(Arc::downgrade(topic)),
                        ..CreatedTopic::new(false)
                    });
                }
                drop(topics);
                match page.topics.last() {
                    Some(last) if page.more => after = last.name().to_owned(),
                    _ => break,
                }
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    pub(super) fn connection_budget(&self) -> &Arc<MemoryBudget> {
        &self.connection_budget
    }

    /// Applies the limits of a new users file. A change of the memory limit takes effect only at the next start.
    pub(super) fn set(&self, tenant: &AccessTenant) {
        let limits = tenant.limits;
        self.quota.set(limits.together);
        let before = std::mem::replace(&mut *self.limits(), limits);
        if before.topics.is_none() && limits.topics.is_some() {
            self.count_topics(tenant);
        }
    }

    pub(super) fn reserve_topic(&self, name: &str, is_automatic: bool) -> Result<(), TopicError> {
        let topics_max = self.limits().topics;
        let mut topics = self.topics();
        if let Some(topics_max) = topics_max
            && topics.len() as u64 >= topics_max
            && !topics.contains_key(name)
        {
            let now_ns = now_ns();
            topics.retain(|name, created| created.is_creating(now_ns) || self.node.topic(name).is_some());
            if topics.len() as u64 >= topics_max {
                return Err(TopicError::Limit { limit: "tenants.limits.topics", value: topics_max });
            }
        }
        let created = topics.entry(name.to_owned()).or_insert_with(|| CreatedTopic::new(is_automatic));
        if created.topic.is_some() && self.node.topic(name).is_none() {
            // The counted topic was deleted, and this request creates a new topic with its name.
            *created = CreatedTopic { requests: created.requests, ..CreatedTopic::new(is_automatic) };
        }
        if created.topic.is_none() {
            created.created_ns = now_ns();
        }
        created.requests += 1;
        // After a single explicit request to create the topic, the topic no longer counts as created automatically.
        created.is_automatic &= is_automatic;
        Ok(())
    }

    pub(super) fn confirm_topic(&self, topic: &Arc<Topic>) {
        let mut topics = self.topics();
        // The entry is missing if the request took longer than `CREATING_NS_MAX`.
        let created = topics.entry(topic.name().to_owned()).or_insert_with(|| CreatedTopic::new(false));
        created.requests = created.requests.saturating_sub(1);
        created.topic = Some(Arc::downgrade(topic));
    }

    pub(super) fn release_topic(&self, name: &str) {
        let mut topics = self.topics();
        let Entry::Occupied(mut entry) = topics.entry(name.to_owned()) else { return };
        let created = entry.get_mut();
        created.requests = created.requests.saturating_sub(1);
        // The entry remains if another request is creating the topic, or if a topic of this name exists.
        if created.requests == 0 && self.node.topic(name).is_none() {
            entry.remove();
        }
    }

    /// Returns at most `max` topics that were created automatically and that are unused as far as this node knows.
    pub(super) fn idle_topics(&self, now_ns: u64, max: usize) -> Vec<Arc<Topic>> {
        let Some(idle_max) = self.limits().topic_idle else { return Vec::new() };
        let topics = self.topics();
        let idle = topics.iter().filter_map(|(name, created)| {
            let topic = created.existing(&self.node, name)?;
            created.is_idle(&topic, now_ns, idle_max).then_some(topic)
        });
        idle.take(max).collect()
    }

    /// Deletes unused topics that were created automatically. `uses` has, for each topic, the time of its last use at
    /// other nodes. Topics that are not in `uses` are kept.
    pub(super) fn expire(&self, now_ns: u64, uses: &HashMap<String, u64>) {
        let idle_max = self.limits().topic_idle;
        let mut expired = Vec::new();
        self.topics().retain(|name, created| {
            if created.topic.is_none() {
                return created.is_creating(now_ns);
            }
            // If the counted topic no longer exists, the entry is removed, even if another topic has its name now.
            let Some(topic) = created.existing(&self.node, name) else { return false };
            if let Some((used_ns, max)) = uses.get(name).zip(idle_max) {
                created.used_ns = created.used_ns.max(*used_ns);
                expired.extend(created.is_idle(&topic, now_ns, max).then_some(topic));
            }
            true
        });
        // The lock is released before the deletions, because a deletion may wait for the cluster.
        expired.iter().for_each(|topic| self.delete_if_idle(topic, now_ns));
    }

    /// Deletes an unused topic. Does nothing if the topic was used, deleted or created again while other topics were
    /// deleted.
    fn delete_if_idle(&self, topic: &Arc<Topic>, now_ns: u64) {
        let name = topic.name();
        let Some(idle_max) = self.limits().topic_idle else { return };
        let is_idle = self.topics().get(name).is_some_and(|created| {
            created.existing(&self.node, name).is_some_and(|existing| Arc::ptr_eq(&existing, topic))
                && created.is_idle(topic, now_ns, idle_max)
        });
        if !is_idle || self.node.delete_topic(name).is_err() {
            return;
        }
        if let Entry::Occupied(entry) = self.topics().entry(name.to_owned())
            && entry.get().topic.as_ref().is_some_and(|counted| counted.ptr_eq(&Arc::downgrade(topic)))
        {
            entry.remove();
        }
        self.expired.fetch_add(1, Ordering::Relaxed);
        tracing::info!(topic = name, tenant = self.name, "this topic was deleted, because nobody used it");
    }

    /// Returns the number of existing topics, and the number of topics that were deleted because they were unused.
    pub(super) fn topic_counts(&self) -> (u64, u64) {
        (self.topics().len() as u64, self.expired.load(Ordering::Relaxed))
    }

    pub(super) fn add_connection(&self) -> Result<(), Refused> {
        self.quota.add_connection()
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<String, CreatedTopic>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> MutexGuard<'_, TenantLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
