//! Applies the topic placements on which the cluster has agreed to this node's topics, and proposes new placements. A
//! placement says which node owns a topic, and in which epoch.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dunlin_control::{
    ControlCommand, ControlRefusal, ControlReply, ControlState, KeyEvent, KeyEvents, KeyItem, OwnerRequest,
    Placement, TOPICS, TopicKind, node_of, prefix_end, topic_key,
};
use dunlin_topic::{MemoryCharge, Pattern, Topic, TopicConfig, Upstream};

use super::feed_sources::DurablePlacement;
use super::housekeeper::PAUSE;
use super::route::Route;
use super::{ClusterCommandError, Ownership, lock};
use crate::clock::{CLOCK, now_ns, steady_ns};
use crate::error::TopicError;
use crate::node::{Node, is_same_config, make_reducer};
use crate::registry::cost_of;
use crate::storage::{decode_config, encode_config};
use crate::waiting::{self, ARRIVAL_MAX, poll_until_found};

impl Ownership {
    /// Adapts this node's list of members, and its topics, to the complete state on which the cluster has agreed.
    pub fn apply_state(self: &Arc<Ownership>, state: &ControlState) {
        let page = |prefix: &[u8]| {
            let (mut start, end) = (prefix.to_vec(), prefix_end(prefix));
            let mut items = Vec::new();
            loop {
                let found = state.range(&start, &end, 0);
                items.extend(found.items);
                match items.last() {
                    Some(last) if found.more => start = [&last.key[..], &[0]].concat(),
                    _ => return items,
                }
            }
        };
        let nodes = page(dunlin_control::NODES);
        let existing: HashSet<u64> = nodes.iter().filter_map(|pair| node_of(&pair.key)).collect();
        self.nodes()
            .into_iter()
            .filter(|node| !existing.contains(node))
            .for_each(|node| self.remove_node(node));
        for pair in &nodes {
            node_of(&pair.key).into_iter().for_each(|node| self.add_node(node, &pair.item.value));
        }
        let enlisted = state.get(&dunlin_control::node_key(self.id)).map_or(0, |item| item.lease);
        let topics = page(TOPICS);
        for pair in &topics {
            self.apply_item(&pair.key, &pair.item);
        }
        let existing: HashSet<&[u8]> =
            topics.iter().filter_map(|pair| pair.key.strip_prefix(TOPICS)).collect();
        let is_deleted = |route: &Arc<Route>| !existing.contains(route.name.as_bytes());
        let deleted: Vec<Arc<Route>> = self.routes().into_iter().filter(is_deleted).collect();
        deleted.iter().for_each(|route| self.remove_topic(&route.name));
        // Set this after all changes: it means that the node has applied the whole state.
        self.enlisted.store(enlisted, Ordering::Release);
        self.early_subscriptions.admit();
    }

    /// Adapts this node's list of members, and its topics, to the changes of one revision.
    pub fn apply_events(self: &Arc<Ownership>, events: KeyEvents<'_>) {
        for event in events.filter_map(Result::ok) {
            match event {
                KeyEvent::Put { key, item } => self.apply_item(key, &item),
                KeyEvent::Deleted { key } => match (node_of(key), key.strip_prefix(TOPICS)) {
                    (Some(node), _) => self.remove_node(node),
                    (None, Some(name)) => {
                        if let Ok(name) = std::str::from_utf8(name) {
                            self.remove_topic(name);
                        }
                    }
                    (None, None) => {}
                },
            }
        }
    }

    /// The names of the topics that were deleted by one revision; `events` are the revision's changes.
    pub fn deleted_topics(events: KeyEvents<'_>) -> impl Iterator<Item = String> {
        let name = |event: Result<KeyEvent<'_>, _>| match event {
            Ok(KeyEvent::Deleted { key }) => String::from_utf8(key.strip_prefix(TOPICS)?.to_vec()).ok(),
            _ => None,
        };
        events.filter_map(name)
    }

    /// Deletes this node's copies of the topics `names`, which the cluster has deleted. A topic that `state` contains
    /// was created again with the same name, and is kept.
    pub fn remove_deleted_topics(
        self: &Arc<Ownership>,
        state: &ControlState,
        names: impl IntoIterator<Item = String>,
    ) {
        let is_deleted = |name: &String| state.get(&topic_key(name.as_bytes())).is_none();
        for name in names.into_iter().filter(is_deleted) {
            let _one_at_a_time = lock(&self.registry_update);
            if self.route(&name).is_none()
                && let Some(node) = self.node_handle()
            {
                self.keep_for_feeds(&name);
                // Ignore the error: this node may never have had the topic.
                let _ = node.delete(&name);
            }
        }
    }

    fn apply_item(self: &Arc<Ownership>, key: &[u8], item: &KeyItem) {
        if let Some(node) = node_of(key) {
            if node == self.id {
                self.enlisted.store(item.lease, Ordering::Release);
            }
            return self.add_node(node, &item.value);
        }
        let name = key.strip_prefix(TOPICS).and_then(|name| std::str::from_utf8(name).ok());
        if let (Some(name), Ok(placement)) = (name, Placement::decode(&item.value)) {
            // Ignore the error. The topic then stays unknown to this node, and publishers and subscribers receive the
            // error for an unknown topic.
            let _ = self.apply_placement(name, &placement);
        }
    }

    /// Gives a topic the owner and the epoch of `placement`. Adds the topic if this node does not have it.
    pub fn apply_placement(
        self: &Arc<Ownership>,
        name: &str,
        placement: &Placement<'_>,
    ) -> Result<(), TopicError> {
        let _one_at_a_time = lock(&self.registry_update);
        match self.route(name) {
            // The previous owner has reported that the topic was deleted, but this node has not received the deletion
            // from the cluster. The placement is that of a later topic with the same name.
            Some(route) if route.is_deleted() && placement.epoch > route.owner().1 => {
                self.remove_unlocked(name);
                self.add_topic(name, placement)
            }
            Some(route) => {
                route.apply_placement(self, placement);
                Ok(())
            }
            None => self.add_topic(name, placement),
        }
    }

    fn add_topic(self: &Arc<Ownership>, name: &str, placement: &Placement<'_>) -> Result<(), TopicError> {
        let Some(node) = self.node_handle() else { return Ok(()) };
        if let Some(existing) = node.registry().get(name) {
            if placement.owner == self.id {
                // This node has the durable topic on its disk already.
                self.record_own_durable_topic(&existing, placement.epoch);
                return Ok(());
            }
            // While this node was unreachable, the topic was deleted, and created again at another node. The files at
            // this node belong to the deleted topic.
            let owner = placement.owner;
            let why = format!(
                "the topic was deleted and created again while this node was away; node {owner} owns the new \
                 topic, and this node does not serve the old topic on its disk"
            );
            lock(&self.own_durable_topics).remove(name);
            node.set_aside(&existing, why.clone());
            lock(&self.set_aside_topics).push((name.to_owned(), why));
        }
        let config = decode_config(placement.config)?;
        let config = TopicConfig { limits: node.config().topic_limits(&config), ..config };
        let config = Arc::new(config);
        let pattern = Pattern::parse(config.pattern.as_deref().unwrap_or(name))?;
        let is_own = placement.owner == self.id;
        if is_own && placement.kind == TopicKind::Durable {
            // If files of a topic with this name cannot be read, a new topic must not overwrite them.
            node.check_refused(name, &pattern)?;
            let epoch = || node.epoch_of_agreed(name, placement.epoch);
            let topic = node.create_local(name, pattern, config, epoch)?;
            self.record_own_durable_topic(&topic, placement.epoch);
            return Ok(());
        }
        let route = Route::new(self, name, &config, placement);
        let upstream: Arc<dyn Upstream> = Arc::clone(&route) as _;
        let create = || {
            // Charge the memory even beyond the budget, because the cluster has already agreed on the topic.
            let charge = MemoryCharge::forced(node.budget(), cost_of(name, config.partitions));
            let (config, budget) = (Arc::clone(&config), node.budget());
            let topic =
                Topic::mirrored(name, config, budget, CLOCK, placement.epoch, make_reducer, &upstream)?;
            // Until a restarted node has begun new epochs, this placement may be from before the restart. The topic
            // then begins a new epoch when the node becomes a member.
            if self.owns_since_start(placement.owner) {
                topic.logs().iter().for_each(|log| log.take_over(placement.epoch, true));
            }
            let topic = Arc::new(topic);
            // Set the route first: the registry notifies waiting subscriptions, which read the topic at once.
            route.set_topic(&topic);
            lock(&self.routes).insert(Arc::clone(&route.name), Arc::clone(&route));
            Ok((topic, charge))
        };
        node.registry().add(name, pattern, create).map(drop)
    }

    /// Records a placement of a durable topic of this node. Does nothing if a later placement is already recorded: the
    /// thread that has created a topic may learn last that the topic was deleted and created again.
    fn record_own_durable_topic(&self, topic: &Arc<Topic>, epoch: u32) {
        let mut placements = lock(&self.own_durable_topics);
        if placements.get(topic.name()).is_none_or(|known| known.epoch <= epoch) {
            let placed = DurablePlacement { topic: Arc::downgrade(topic), epoch };
            placements.insert(topic.name().to_owned(), placed);
        }
    }

    /// The durable topics that this node has set aside since the last call, each with the reason.
    pub fn take_set_aside(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *lock(&self.set_aside_topics))
    }

    fn remove_topic(self: &Arc<Ownership>, name: &str) {
        let _one_at_a_time = lock(&self.registry_update);
        self.remove_unlocked(name);
    }

    fn remove_unlocked(self: &Arc<Ownership>, name: &str) {
        self.keep_for_feeds(name);
        let route = lock(&self.routes).remove(name);
        let is_fed = route.as_ref().is_some_and(|route| {
            // Until the topic is marked as deleted, the feed of its mirrors can begin.
            route.start_feed_if_read();
            route.mark_deleted()
        });
        if let Some(node) = self.node_handle() {
            let _ = match &route {
                // If the mirror still receives records, do not close it yet: the mirror's subscribers must
                // first receive the owner's remaining records, and then the notice that the topic was deleted.
                Some(_) if is_fed => node.remove(name).map(drop),
                Some(route) => node.remove(name).map(|topic| {
                    topic.logs().iter().for_each(|log| log.close_unfed(route.owner().1));
                }),
                None => node.delete(name),
            };
        }
        route.into_iter().for_each(|route| route.end());
    }

    /// The routes of all topics. A durable topic of this node has no route.
    pub(super) fn routes(&self) -> Vec<Arc<Route>> {
        lock(&self.routes).values().cloned().collect()
    }

    pub(super) fn route(&self, name: &str) -> Option<Arc<Route>> {
        lock(&self.routes).get(name).cloned()
    }

    /// The node that owns the topic with this name.
    pub(crate) fn route_owner(&self, name: &str) -> u64 {
        self.route(name).map_or(self.id, |route| route.owner().0)
    }

    /// Whether the topic's previous owner is still handing its records over to this node.
    pub(super) fn is_draining(&self, topic: &Topic) -> bool {
        self.route(topic.name()).is_some_and(|route| route.is_draining())
    }

    /// The topic's owner and epoch, as far as this node knows. The epoch of a durable topic may be higher than the one
    /// on which the cluster has agreed, because the topic's owner begins epochs without the cluster.
    pub fn owner_of(&self, topic: &Topic) -> (u64, u32) {
        let log_epoch = topic.logs().iter().map(|log| log.last().epoch).max().unwrap_or(0);
        let (owner, epoch) = self.route(topic.name()).map_or((self.id, 0), |route| route.owner());
        (owner, epoch.max(log_epoch))
    }

    /// Creates a topic at a node that the cluster chooses, and waits for the cluster's response.
    pub(crate) fn create(
        self: &Arc<Ownership>,
        node: &Node,
        name: &str,
        pattern: &Pattern,
        config: &TopicConfig,
        or_same: bool,
    ) -> Result<Arc<Topic>, TopicError> {
        let check_same =
            |existing: Arc<Topic>| match or_same && is_same_config(name, existing.config(), config) {
                true => Ok(existing),
                false => Err(TopicError::Exists(name.to_owned())),
            };
        if let Some(existing) = node.registry().get(name) {
            if self.may_exist(name) {
                return check_same(existing);
            }
            // The cluster has deleted the topic. Wait until this node has removed it, too.
            self.await_end(node, &existing);
        }
        let config_text = encode_config(name, config);
        let wanted = OwnerRequest {
            topic: name.as_bytes(),
            pattern: pattern.as_str().as_bytes(),
            kind: if config.durable.is_some() { TopicKind::Durable } else { TopicKind::Volatile },
            config: config_text.as_bytes(),
            epoch: node.next_epoch(name, now_ns()),
            node: self.id,
            holds: false,
        };
        let ControlReply::Placed { owner, epoch, created: made } =
            self.propose_until_placed(&ControlCommand::Place { request: wanted })?
        else {
            return Err(TopicError::Cluster("the cluster sent an unexpected response".to_owned()));
        };
        if made {
            let OwnerRequest { kind, pattern, config, .. } = wanted;
            self.apply_placement(name, &Placement { owner, epoch, kind, pattern, config, from: 0 })?;
        }
        let topic = self.await_topic(node, name)?;
        if made { Ok(topic) } else { check_same(topic) }
    }

    /// Creates several topics, in this order and with one request. Each topic owns only the subject that equals its
    /// name. Waits for the cluster's response.
    pub(crate) fn create_together(
        self: &Arc<Ownership>,
        node: &Node,
        names: &[String],
        config: &TopicConfig,
    ) -> Vec<Result<Arc<Topic>, TopicError>> {
        waiting::check();
        let config_texts: Vec<String> = names.iter().map(|name| encode_config(name, config)).collect();
        let kind = if config.durable.is_some() { TopicKind::Durable } else { TopicKind::Volatile };
        let mut commands = Vec::with_capacity(names.len());
        for (name, config_text) in names.iter().zip(&config_texts) {
            let (topic, config) = (name.as_bytes(), config_text.as_bytes());
            let epoch = node.next_epoch(name, now_ns());
            let wanted =
                OwnerRequest { topic, pattern: topic, kind, config, epoch, node: self.id, holds: false };
            commands.push(ControlCommand::Place { request: wanted });
        }
        let replies = self.peers.propose_all(&commands);
        let settled = names.iter().zip(&config_texts).zip(commands.iter().zip(replies));
        let settled = settled.map(|((name, config_text), (command, reply))| {
            if let ControlReply::Placed { owner, epoch, created: true } = self.map_reply(command, reply)? {
                let (pattern, config) = (name.as_bytes(), config_text.as_bytes());
                self.apply_placement(name, &Placement { owner, epoch, kind, pattern, config, from: 0 })?;
            }
            Ok(())
        });
        let settled: Vec<Result<(), TopicError>> = settled.collect();
        let await_topic = |(name, settled): (&String, Result<(), TopicError>)| {
            settled.and_then(|()| self.await_topic(node, name))
        };
        names.iter().zip(settled).map(await_topic).collect()
    }

    /// Returns the topic with this name if the cluster knows it. Waits until this node knows it, too.
    pub(crate) fn find_agreed(&self, node: &Node, name: &str) -> Result<Arc<Topic>, TopicError> {
        self.propose(&self.lookup_command(name))?;
        self.await_topic(node, name)
    }

    /// Whether the topic may exist. The result is `false` only if the cluster has responded that no such topic exists.
    fn may_exist(&self, name: &str) -> bool {
        waiting::check();
        !matches!(
            self.peers.propose(&self.lookup_command(name)),
            Err(ClusterCommandError::Refused(ControlRefusal::NoTopic))
        )
    }

    /// A command that asks for the topic's owner. Because the command has no configuration, it creates no topic.
    fn lookup_command<'a>(&self, name: &'a str) -> ControlCommand<'a> {
        let topic = name.as_bytes();
        let (kind, config) = (TopicKind::Volatile, &b""[..]);
        let wanted =
            OwnerRequest { topic, pattern: topic, kind, config, epoch: 0, node: self.id, holds: false };
        ControlCommand::Place { request: wanted }
    }

    /// Waits until this node has removed the topic. Returns `false` if it has not done so in time.
    fn await_end(&self, node: &Node, topic: &Arc<Topic>) -> bool {
        let exists =
            || node.registry().get(topic.name()).is_some_and(|existing| Arc::ptr_eq(&existing, topic));
        poll_until_found(|| (!exists()).then_some(())).is_some()
    }

    fn await_topic(&self, node: &Node, name: &str) -> Result<Arc<Topic>, TopicError> {
        poll_until_found(|| node.registry().get(name)).ok_or_else(|| {
            TopicError::Cluster(format!(
                "topic {name:?} was created, but this node does not know it yet: retry"
            ))
        })
    }

    /// Deletes a topic in the cluster. Waits until this node has removed it, too. Otherwise this node could apply the
    /// deletion later, to a new topic with the same name.
    pub(crate) fn delete(self: &Arc<Ownership>, node: &Node, name: &str) -> Result<(), TopicError> {
        let existing = node.registry().get(name);
        self.propose(&ControlCommand::Remove { topic: name.as_bytes() })?;
        if let Some(topic) = existing
            && !self.await_end(node, &topic)
        {
            self.remove_topic(name);
        }
        Ok(())
    }

    /// Proposes that the topic moves to the node `to`. Waits for the cluster's response, but not for that node.
    pub fn move_topic(self: &Arc<Ownership>, name: &str, to: u64) -> Result<(), TopicError> {
        let epoch = self.epoch_to_move(name, to);
        self.propose(&ControlCommand::Move { topic: name.as_bytes(), node: to, epoch }).map(drop)
    }

    /// The lowest epoch with which the topic may begin at the node `to`; 0 if that node already owns the topic, because
    /// the topic's epoch then does not change.
    pub(crate) fn epoch_to_move(&self, name: &str, to: u64) -> u32 {
        let is_owned = match self.route(name) {
            Some(route) => route.owner().0 == to,
            None => to == self.id,
        };
        match self.node_handle() {
            Some(node) if !is_owned => node.next_epoch(name, now_ns()),
            _ => 0,
        }
    }

    /// The lowest epoch that may follow the topic's present epoch. This epoch is not below the clock's epoch: a cluster
    /// that was restored from a backup does not know the epochs that began after the backup.
    pub(super) fn epoch_after(&self, route: &Route) -> u32 {
        let by_clock = self.node_handle().map_or(0, |node| node.next_epoch(&route.name, now_ns()));
        by_clock.max(route.owner().1.saturating_add(1))
    }

    /// Makes the durable topics on this node's disk known to the cluster.
    pub fn register_durable_topics(self: &Arc<Ownership>) -> Result<(), TopicError> {
        let Some(node) = self.node_handle() else { return Ok(()) };
        let mut after = String::new();
        loop {
            let page = node.topics(None, &after, usize::MAX);
            for topic in page.topics.iter().filter(|topic| topic.config().durable.is_some()) {
                if self.route(topic.name()).is_none() {
                    self.register_topic(topic)?;
                }
            }
            match page.topics.last() {
                Some(last) if page.more => after = last.name().to_owned(),
                _ => return Ok(()),
            }
        }
    }

    fn register_topic(&self, topic: &Topic) -> Result<(), TopicError> {
        let config_text = encode_config(topic.name(), topic.config());
        let wanted = OwnerRequest {
            topic: topic.name().as_bytes(),
            pattern: topic.pattern().as_bytes(),
            kind: TopicKind::Durable,
            config: config_text.as_bytes(),
            epoch: topic.logs().iter().map(|log| log.last().epoch).max().unwrap_or(0),
            node: self.id,
            holds: true,
        };
        match self.propose(&ControlCommand::Place { request: wanted })? {
            ControlReply::Placed { owner, .. } if owner != self.id => {
                Err(TopicError::Exists(format!("{} (owned by node {owner})", topic.name())))
            }
            _ => Ok(()),
        }
    }

    /// Proposes a command that gives a topic an owner. Tries again for a limited time if the cluster has no member that
    /// could own the topic. Also tries again if this node does not know the topic with an overlapping pattern, because
    /// that topic was created or deleted just now.
    fn propose_until_placed(&self, command: &ControlCommand<'_>) -> Result<ControlReply, TopicError> {
        waiting::check();
        let began_ns = steady_ns();
        let is_within = |wait_max: Duration| steady_ns() - began_ns < wait_max.as_nanos() as u64;
        let mut overlap_pause = PAUSE;
        loop {
            match self.peers.propose(command) {
                Err(ClusterCommandError::Refused(ControlRefusal::NoNodes))
                    if is_within(self.limits.owner_wait_max) =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(ClusterCommandError::Refused(ControlRefusal::PatternOverlaps))
                    if is_within(ARRIVAL_MAX) && self.overlapping_topic(command).is_none() =>
                {
                    // Double the pause, because each attempt sends a request to the cluster. A node that has
                    // reached its limit on topics never learns of this one.
                    std::thread::sleep(overlap_pause);
                    overlap_pause *= 2;
                }
                reply => return self.map_reply(command, reply),
            }
        }
    }

    /// The name of a topic at this node whose pattern overlaps that of the topic that the command requests.
    fn overlapping_topic(&self, command: &ControlCommand<'_>) -> Option<String> {
        let ControlCommand::Place { request } = command else { return None };
        let [name, pattern] = [request.topic, request.pattern].map(std::str::from_utf8);
        let pattern = Pattern::parse(pattern.ok()?).ok()?;
        self.node_handle()?.registry().find_overlapping(name.ok()?, &pattern)
    }

    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, TopicError> {
        waiting::check();
        self.map_reply(command, self.peers.propose(command))
    }

    fn map_reply(
        &self,
        command: &ControlCommand<'_>,
        reply: Result<ControlReply, ClusterCommandError>,
    ) -> Result<ControlReply, TopicError> {
        let topic = |command: &ControlCommand<'_>| match *command {
            ControlCommand::Place { request: wanted } => String::from_utf8_lossy(wanted.topic).into_owned(),
            ControlCommand::Move { topic, .. } | ControlCommand::Remove { topic } => {
                String::from_utf8_lossy(topic).into_owned()
            }
            _ => String::new(),
        };
        reply.map_err(|error| match error {
            ClusterCommandError::Refused(ControlRefusal::NoTopic) => TopicError::Unknown(topic(command)),
            ClusterCommandError::Refused(ControlRefusal::PatternOverlaps) => {
                self.overlapping_topic(command).map_or_else(
                    || {
                        let why = "a topic that this node does not know yet owns some of the subjects: retry";
                        TopicError::Cluster(why.to_owned())
                    },
                    TopicError::Overlaps,
                )
            }
            other => TopicError::Cluster(other.to_string()),
        })
    }
}
