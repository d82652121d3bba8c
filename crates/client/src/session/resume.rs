//! Continues a session on a new connection. Subscriptions continue at their positions, and publishers resend the
//! batches that have no response.

use std::sync::Arc;
use std::time::Instant;

use dunlin_wire::{
    ChannelPosition, Claim, Credit, ErrorCode, Follow, FromClient, GroupKind, JoinGroup, LogPosition,
    MessageList, NO_CLUSTER, PLACEMENT, Position, Resume, StartAt, Subscribe, Welcome,
};

use crate::inbox::SubscriberInbox;
use crate::refusal::RefusedError;
use crate::session::{
    Channel, ClientSession, Disconnection, FollowRequest, GroupJoinRequest, RequestOutcome, ResponseSlot,
    Subscription, SubscriptionRequest,
};

/// The maximum number of positions in one RESUME message. A position takes about 300 bytes at most, and every node
/// accepts messages of 64 KiB.
const RESUME_LOGS_MAX: usize = 200;

impl ClientSession {
    /// Makes the next connection resend all commands and queries that have no response. May be called only if the node
    /// of the lost connection has responded to all requests that it carried out.
    pub(crate) fn resend_unanswered(&self) {
        self.requests.values().for_each(|slot| slot.mark_unsent());
    }

    /// Handles the loss of the connection. Ends the requests that cannot be sent again, and stores the position in each
    /// log.
    pub(crate) fn handle_disconnect(&mut self, why: &str, since: Instant) {
        self.is_up = false;
        self.disconnection = Some(Disconnection { since, why: why.to_owned() });
        for subscription in self.subscriptions.values_mut() {
            subscription.channels.clear();
            subscription.inbox.forget_unaccepted_starts();
        }
        for (_, channel) in self.channels.drain() {
            // Positions are stored only after SUBSCRIBED. Before that message, the node has delivered nothing, so the
            // subscription begins again as its options say.
            if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription)
                && subscription.is_subscribed
            {
                let key = (channel.log.topic.clone(), channel.log.partition);
                let at = channel.resume_position();
                // After a RESYNC message, `logs` already contains the position from which the log's next channel will
                // read. If a topic was deleted and created again, both topics may have a channel: the subscriber
                // continues in the later topic, whose epoch is higher.
                let is_stored = subscription.logs.get(&key).is_some_and(|(_, stored)| {
                    channel.state.is_replaced || stored.is_none_or(|stored| stored >= at)
                });
                if !is_stored {
                    subscription.logs.insert(key, (channel.log, Some(at)));
                }
            }
        }
        self.requests.retain(|_, slot| {
            if !slot.is_unsent() {
                slot.complete(RequestOutcome::Lost(why.to_owned()));
            }
            slot.is_unsent()
        });
        self.workers.handle_disconnect();
        // The prefix of the inbox for replies is valid only for this connection.
        self.inbox_prefix.clear();
    }

    /// Returns an error if the node belongs to another cluster than the node to which this client was connected before.
    /// If the earlier node had no cluster, every cluster is accepted, because the earlier node may have founded the
    /// cluster since then.
    pub(crate) fn check_cluster(&self, cluster: &str) -> Option<RefusedError> {
        let known = self.cluster.as_deref().filter(|known| *known != NO_CLUSTER)?;
        let named = |cluster: &str| match cluster {
            NO_CLUSTER => "no cluster".to_owned(),
            cluster => format!("cluster {cluster}"),
        };
        (!cluster.is_empty() && cluster != known).then(|| RefusedError {
            code: ErrorCode::OtherCluster,
            numbers: [0; 3],
            text: format!(
                "this client was connected to {}, but the node belongs to {}",
                named(known),
                named(cluster)
            ),
        })
    }

    /// Begins a new connection. Appends to `out` the messages that restore the subscriptions, publishers and requests.
    pub(crate) fn handle_welcome(&mut self, welcome: &Welcome<'_>, version: u8, out: &mut Vec<u8>) {
        self.is_up = true;
        self.disconnection = None;
        self.version = version;
        self.generation += 1;
        self.inbox_prefix = welcome.inbox_prefix.to_owned();
        self.node = welcome.node;
        self.node_name = welcome.node_name.to_owned();
        if !welcome.cluster.0.is_empty() {
            self.cluster = Some(welcome.cluster.0.to_owned());
        }
        for (&number, subscription) in &mut self.subscriptions {
            subscription.received_before = subscription.inbox.received();
            subscription.claims.delivered_before = subscription.claims.delivered;
            subscription.replaced_channels.clear();
            subscription.encode_subscribe(number, out);
        }
        self.create_again(out);
        let mut unsent: Vec<(&u32, &Arc<ResponseSlot>)> = self.requests.iter().collect();
        unsent.sort_unstable_by_key(|(number, _)| **number);
        unsent
            .iter()
            .filter_map(|(_, slot)| slot.take_unsent())
            .for_each(|message| out.extend_from_slice(message));
        for publishing in self.publishers.values() {
            publishing.encode_reopen(version, out);
        }
        for relay in self.relays.values() {
            relay.reopen(out);
        }
    }

    /// Creates again the topics that this client has created and publishes to, because a restarted node has lost its
    /// volatile topics. The publishers are opened after that.
    fn create_again(&mut self, out: &mut Vec<u8>) {
        let mut published_topics: Vec<String> =
            self.publishers.values().filter_map(|publishing| publishing.configured_topic()).collect();
        published_topics.sort_unstable();
        published_topics.dedup();
        for name in published_topics {
            let request = self.next_number();
            if let Some(config) = self.created.get(&name).filter(|config| config.durable.is_none()) {
                // If the node refuses to create the topic, it also refuses the publisher, which reports the error.
                crate::topics::encode_create(&name, config, true, request, out);
            }
        }
    }

    /// Adds a subscription, and appends the message that begins it to `out`. Returns its number.
    pub(crate) fn subscribe(
        &mut self,
        request: SubscriptionRequest,
        inbox: &Arc<SubscriberInbox>,
        out: &mut Vec<u8>,
    ) -> u32 {
        let number = self.next_number();
        let subscription = Subscription {
            request,
            inbox: Arc::clone(inbox),
            logs: Default::default(),
            channels: Default::default(),
            replaced_channels: Default::default(),
            is_subscribed: false,
            received_before: 0,
            claims: Default::default(),
        };
        // Without a connection, the message is dropped, and the next connection begins the subscription.
        subscription.encode_subscribe(number, out);
        self.subscriptions.insert(number, subscription);
        number
    }

    /// Adds a subscription that continues after the positions in `after`.
    pub(crate) fn subscribe_after(
        &mut self,
        request: SubscriptionRequest,
        after: Vec<(Arc<dunlin_topic::LogName>, dunlin_topic::Position)>,
        inbox: &Arc<SubscriberInbox>,
        out: &mut Vec<u8>,
    ) -> u32 {
        let mut unsent = Vec::new();
        let number = self.subscribe(request, inbox, &mut unsent);
        if let Some(subscription) = self.subscriptions.get_mut(&number) {
            subscription.is_subscribed = !after.is_empty();
            let known = |(log, at): (Arc<dunlin_topic::LogName>, _)| {
                ((log.topic.clone(), log.partition), (log, Some(at)))
            };
            subscription.logs = after.into_iter().map(known).collect();
            subscription.encode_subscribe(number, out);
        }
        number
    }

    /// Returns the logs of a subscription that have a channel on the present connection, each with the position up to
    /// which it was received.
    pub(crate) fn received_positions(
        &self,
        number: u32,
    ) -> Vec<(Arc<dunlin_topic::LogName>, dunlin_topic::Position)> {
        let Some(subscription) = self.subscriptions.get(&number) else { return Vec::new() };
        let position = |(log, number): (&Arc<dunlin_topic::LogName>, &u32)| {
            Some((Arc::clone(log), self.channels.get(number)?.at))
        };
        subscription.channels.iter().filter_map(position).collect()
    }

    pub(super) fn handle_subscribed(&mut self, number: u32) {
        if let Some(subscription) = self.subscriptions.get_mut(&number) {
            subscription.is_subscribed = true;
            subscription.inbox.set_subscribed();
        }
    }

    /// Notes that a group member requests `records` more records. Returns the message to send.
    pub(crate) fn claim(&mut self, number: u32, records: u64) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(subscription) = self.subscriptions.get_mut(&number) {
            subscription.claims.requested = subscription.claims.requested.saturating_add(records);
            subscription.claim(number, &mut out);
        }
        out
    }

    /// Returns the message that reports how many bytes a subscription has consumed in total, and the consumed position
    /// of each log in `positions`. Omits positions in earlier memberships of a group: the present channel of such a log
    /// has another `Arc` of its name. A deleted topic and a later one with the same name may both have a channel.
    pub(crate) fn encode_credit(
        &self,
        number: u32,
        consumed: u64,
        positions: &[crate::subscriber::ConsumedPosition],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(subscription) = self.subscriptions.get(&number) else { return out };
        let positions: Vec<ChannelPosition> = positions
            .iter()
            .filter_map(|(log, at)| {
                let current = *subscription.channels.get(&**log)?;
                let is_of_log = |open: &Channel| open.subscription == number && Arc::ptr_eq(&open.log, log);
                let channel = match self.channels.get(&current).is_some_and(is_of_log) {
                    true => current,
                    false => *self.channels.iter().find(|(_, open)| is_of_log(open))?.0,
                };
                let position = Position { epoch: at.epoch, seq: at.seq };
                Some(ChannelPosition { channel, position })
            })
            .collect();
        let granted =
            (consumed + subscription.request.credit_bytes).saturating_sub(subscription.received_before);
        let consumed = MessageList::new(&positions);
        FromClient::Credit(Credit { subscription: number, granted, consumed }).encode(&mut out);
        out
    }
}

impl Subscription {
    fn encode_subscribe(&self, number: u32, out: &mut Vec<u8>) {
        let unread = self.inbox.unread();
        let credit = self.request.credit_bytes.saturating_sub(unread);
        let request = &self.request;
        if let Some(group) = &request.group {
            let join = JoinGroup {
                subscription: number,
                credit,
                kind: group.kind,
                start: self.group_start(group),
                claim_ms: group.claim_ms,
                attempts_max: group.attempts_max,
                dead_letter: &group.dead_letter,
                topic: &request.pattern,
                group: &group.group,
                member: &request.name,
            };
            if self.is_subscribed {
                // The node responds with the end of an epoch that has ended meanwhile.
                self.encode_resume(number, out);
            }
            FromClient::JoinGroup(join).encode(out);
            return self.claim(number, out);
        }
        if let Some(follow) = request.follow {
            follow.encode(number, out);
        }
        if let Some((topic, epoch)) = &request.placement {
            let position = Position { epoch: *epoch, seq: 0 };
            let logs = [LogPosition { topic, partition: PLACEMENT, position }];
            FromClient::Resume(Resume { subscription: number, logs: MessageList::new(&logs) }).encode(out);
        }
        if self.is_subscribed {
            self.encode_resume(number, out);
        }
        let subscribe = Subscribe {
            subscription: number,
            credit,
            start: if self.is_subscribed { StartAt::Resume } else { request.start },
            on_gap: request.on_gap,
            registered: request.registered,
            pattern: &request.pattern,
            name: &request.name,
        };
        FromClient::Subscribe(subscribe).encode(out);
    }

    /// If the group does not exist any more, for example after a restart of its node, this member creates it again.
    /// Returns the position at which the new group starts. A `share` group with one partition starts after the newest
    /// record that the member received. A `work` group starts where it originally started, because not all records
    /// since then may have been acknowledged.
    fn group_start(&self, group: &GroupJoinRequest) -> StartAt {
        let mut positions = self.logs.values().map(|(_, at)| *at);
        match (positions.next(), positions.next()) {
            (Some(Some(at)), None) if group.kind == GroupKind::Share && at.seq > 0 => {
                StartAt::After(Position { epoch: at.epoch, seq: at.seq })
            }
            _ => self.request.start,
        }
    }

    /// Requests again the records that were requested, but not delivered. Does nothing for a `share` group.
    fn claim(&self, number: u32, out: &mut Vec<u8>) {
        let wanted = self.claims.requested.saturating_sub(self.claims.delivered_before);
        if wanted > 0 {
            FromClient::Claim(Claim { subscription: number, wanted }).encode(out);
        }
    }

    fn encode_resume(&self, number: u32, out: &mut Vec<u8>) {
        let position = |(name, at): &(Arc<dunlin_topic::LogName>, Option<dunlin_topic::Position>)| {
            let at = (*at)?;
            Some((Arc::clone(name), Position { epoch: at.epoch, seq: at.seq }))
        };
        let all: Vec<_> = self.logs.values().filter_map(position).collect();
        for part in all.chunks(RESUME_LOGS_MAX) {
            let logs: Vec<LogPosition<'_>> = part
                .iter()
                .map(|(name, position)| LogPosition {
                    topic: &name.topic,
                    partition: name.partition,
                    position: *position,
                })
                .collect();
            FromClient::Resume(Resume { subscription: number, logs: MessageList::new(&logs) }).encode(out);
        }
    }
}

impl FollowRequest {
    fn encode(self, subscription: u32, out: &mut Vec<u8>) {
        let FollowRequest { start, on_gap, conflate, test_loss_every } = self;
        FromClient::Follow(Follow { subscription, start, on_gap, conflate, test_loss_every }).encode(out);
    }
}
