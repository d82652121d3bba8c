//! Starts subscriptions, and creates a channel for each log that a subscription reads.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::topic::{
    self, ConsumeMode, Cursor, Filter, Log, MemoryCharge, NewLogs, OnGap, Pattern, Position, Start,
    SubscribeError, SubscribeOptions, WaitStrategy,
};
use dunlin::wire::{
    self, Credit, ErrorCode, Follow, FromNode, Resume, Resync, StartAt, Subscribed, SubscriptionEnded,
};
use dunlin::{Inbox, MissingTopicPolicy, Refused};

use super::outbound::protocol;
use super::subscription::{
    Channel, EndingSubscription, HeldChannel, PendingChannel, ResumePositions, Subscription,
};
use super::translate::{on_gap_from_wire, position_from_wire, position_to_wire};
use super::{CONTROL_BYTES_MAX, Session};
use crate::charging::charge_subscriptions;
use crate::protocol::Protocol;
use crate::session::turn::{COMMAND_WORK, SEARCHED_TOPICS};

impl Session {
    pub(super) fn resume(&mut self, resume: &Resume<'_>) {
        let channels_max = self.shared.limits.channels_max;
        if self.resuming_positions + resume.logs.len() > channels_max {
            return self.fail(&Refused::limit("channels_max", channels_max as u64));
        }
        let subscriptions_max = self.shared.limits.subscriptions_max;
        let is_new = !self.resuming.contains_key(&resume.subscription);
        if is_new && self.resuming.len() >= subscriptions_max as usize {
            return self.fail(&Refused::limit("subscriptions_max", subscriptions_max.into()));
        }
        let budget = self.node.connection_budget();
        let resumed =
            self.resuming.entry(resume.subscription).or_insert_with(|| ResumePositions::new(budget));
        let before = resumed.positions.len();
        let added = resume
            .logs
            .iter()
            .try_for_each(|log| resumed.add(log.topic, log.partition, position_from_wire(log.position)));
        self.resuming_positions += resumed.positions.len() - before;
        if let Err(spent) = added {
            self.fail(&Refused::limit(self.node.memory_limit_name(&spent), spent.limit));
        }
    }

    /// Removes and returns what RESUME and FOLLOW stated for this subscription number. Call this when a subscription
    /// starts or ends, so that a later subscription with the same number does not use these values.
    pub(super) fn take_resume_and_follow(
        &mut self,
        number: u32,
    ) -> (Option<ResumePositions>, Option<Follow>) {
        let resumed = self.resuming.remove(&number);
        self.resuming_positions -= resumed.as_ref().map_or(0, |resumed| resumed.positions.len());
        (resumed, self.following.remove(&number))
    }

    pub(super) fn subscribe(&mut self, subscribe: &wire::Subscribe<'_>) {
        let number = subscribe.subscription;
        if self.is_in_use(number) {
            return self.fail(&protocol(format!("subscription {number} is already in use")));
        }
        let (resumed, follow) = self.take_resume_and_follow(number);
        let started = match self.prepared.take() {
            Some(Err(refused)) => Err(refused),
            _ => self.begin_subscription(subscribe, resumed, follow),
        };
        match started {
            Ok(subscription) => {
                self.subscriptions.insert(number, subscription);
                self.announcing.push_back(number);
            }
            Err(refused) => self.subscription_ended(number, &refused, 0),
        }
    }

    fn begin_subscription(
        &mut self,
        subscribe: &wire::Subscribe<'_>,
        resumed: Option<ResumePositions>,
        follow: Option<Follow>,
    ) -> Result<Subscription, Refused> {
        self.check_subscriptions()?;
        let texts = subscribe.pattern.len() + subscribe.name.len();
        let charge = charge_subscriptions(&self.node, 1, texts).map_err(|error| Refused::from(&error))?;
        let pattern = Pattern::parse(subscribe.pattern)
            .map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
        if self.inbox.contains(subscribe.pattern) {
            self.inbox.open().map_err(|error| Refused::from(&error))?;
        } else if Inbox::is_of_any(subscribe.pattern) {
            return Err(Refused::new(ErrorCode::Forbidden, "the inbox belongs to another session"));
        }
        let resumes = matches!(subscribe.start, StartAt::Resume);
        let mut options = options(subscribe, follow, self.stream.protocol());
        options.local_only = self.from_node;
        options.is_literal = pattern.is_literal();
        if self.from_node {
            options.protocol = dunlin::NODE_PROTOCOL;
        }
        let (waiter, arrivals) = (&self.waiter, &self.new_logs);
        let listed = if self.from_node { NewLogs::with_arrivals_for_node } else { NewLogs::with_arrivals };
        let newcomers = || listed(waiter.clone(), arrivals.clone(), subscribe.subscription);
        let missing = self.unknown_topic_policy(options.start, resumes);
        let placement = resumed.as_ref().filter(|_| self.from_node).and_then(ResumePositions::placement);
        if matches!(options.start, Start::After(_)) && !pattern.is_literal() {
            self.commands.add_scan(self.node.topic_count());
        }
        let selected = match placement {
            Some((topic, epoch)) => self.node.select_to_feed(topic, epoch),
            None => self.node.select_in_parts(&pattern, options.start, missing, newcomers),
        };
        let selected = selected.map_err(|error| Refused::from(&error))?;
        self.commands.add_search(&selected.logs, selected.search.as_ref());
        Ok(Subscription {
            pattern,
            options,
            channels: Vec::new(),
            granted: subscribe.credit,
            sent: 0,
            starved: Vec::new(),
            newcomers: selected.newcomers,
            unannounced: VecDeque::from(selected.logs),
            search: selected.search,
            newly_readable: HashSet::new(),
            resumed: resumes
                .then(|| resumed.unwrap_or_else(|| ResumePositions::new(self.node.connection_budget()))),
            announced_logs: Some(0),
            _charge: charge,
        })
    }

    /// The policy if no topic matches the subscription: whether a topic is created, or the subscription is refused.
    pub(super) fn unknown_topic_policy(&self, start: Start, resumes: bool) -> MissingTopicPolicy {
        if self.from_node { MissingTopicPolicy::Refuse } else { MissingTopicPolicy::of(start, resumes) }
    }

    /// Whether this number is already used by a subscription or a membership.
    pub(super) fn is_in_use(&self, number: u32) -> bool {
        self.subscriptions.contains_key(&number) || self.members.contains_key(&number)
    }

    /// Checks that the session has not reached its maximum number of subscriptions and memberships.
    pub(super) fn check_subscriptions(&self) -> Result<(), Refused> {
        let subscriptions_max = self.shared.limits.subscriptions_max;
        match self.subscriptions.len() + self.members.len() {
            count if count < subscriptions_max as usize => Ok(()),
            _ => Err(Refused::limit("subscriptions_max", subscriptions_max.into())),
        }
    }

    /// Queues each subscription that started before a topic that matches it was created, so that the new logs are
    /// announced. Continues in the next turn if there are many such subscriptions.
    pub(super) fn queue_new_logs(&mut self) {
        while !self.delivery.is_spent()
            && let Some(number) = self.with_new_logs.pop_front()
        {
            self.delivery.add(1);
            self.take_new_logs(number);
        }
    }

    /// Adds the logs of new topics to the logs that the subscription still has to announce.
    pub(super) fn take_new_logs(&mut self, number: u32) {
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        let Some(newcomers) = &subscription.newcomers else { return };
        let arrived = newcomers.take();
        if !arrived.is_empty() {
            subscription.unannounced.extend(arrived);
            self.announcing.push_back(number);
        }
    }

    /// Completes the search for the subscription's logs at once.
    pub(super) fn finish_search(&mut self, number: u32) {
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        while let Some(search) = &mut subscription.search {
            match self.node.search_logs(search, SEARCHED_TOPICS) {
                Some(found) => subscription.unannounced.extend(found),
                None => subscription.search = None,
            }
        }
    }

    /// Announces logs to the client and opens their channels, while the output has room and the turn is not over.
    pub(super) fn announce(&mut self, cx: &mut Context<'_>) {
        self.poll_opening(cx);
        while self.outbound.control.len() < CONTROL_BYTES_MAX && !self.delivery.is_spent() {
            let Some(&number) = self.announcing.front() else { return };
            let Some(subscription) = self.subscriptions.get_mut(&number) else {
                self.announcing.pop_front();
                continue;
            };
            if subscription.unannounced.is_empty()
                && let Some(search) = &mut subscription.search
            {
                self.delivery.add_scan(SEARCHED_TOPICS);
                match self.node.search_logs(search, SEARCHED_TOPICS) {
                    Some(found) => subscription.unannounced.extend(found),
                    None => subscription.search = None,
                }
                continue;
            }
            match subscription.unannounced.pop_front() {
                Some((log, filter)) => {
                    self.delivery.add(COMMAND_WORK);
                    let before = self.opening.len();
                    self.announce_log(number, log, filter);
                    self.poll_opening_from(before, cx);
                }
                // This subscription still waits for a channel. It is queued again when its last pending channel is
                // open.
                None if self.opening.iter().any(|opening| opening.subscription == number) => {
                    self.announcing.pop_front();
                }
                None => {
                    if let Some(logs) = subscription.announced_logs.take() {
                        self.channel_queue.extend(subscription.starved.drain(..));
                        let subscribed = Subscribed { subscription: number, logs };
                        self.outbound.push(FromNode::Subscribed(subscribed));
                    }
                    self.announcing.pop_front();
                }
            }
        }
    }

    fn announce_log(&mut self, number: u32, log: Arc<Log>, filter: Option<Filter>) {
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        let start = subscription.start_of(&log);
        // A resumed subscription may have no position for a log. Such a log was created in the meantime, and counts as
        // new.
        let is_late = subscription.announced_logs.is_none() || subscription.resumed.is_some();
        let late = is_late.then(|| subscription.options.for_new_log(&log).0);
        let options = late.as_ref().unwrap_or(&subscription.options);
        let opened_log = Arc::clone(&log);
        let mut cursor = self.node.open_cursor(log, options, start, filter, ConsumeMode::Explicit);
        let channels_max = self.shared.limits.channels_max;
        let charge = charge_subscriptions(&self.node, 1, subscription.options.name.len());
        let refused = match (cursor.try_take(), charge) {
            (Some(Err(error)), _) | (_, Err(error)) => Refused::from(&error),
            _ if self.channels.len() + self.opening.len() + self.held.len() >= channels_max => {
                Refused::limit("channels_max", channels_max as u64)
            }
            (Some(Ok(cursor)), Ok(charge)) => return self.open_channel(number, cursor, charge),
            (None, Ok(charge)) => {
                let (subscription, log) = (number, opened_log);
                return self.opening.push(PendingChannel { subscription, log, cursor, charge });
            }
        };
        self.end_subscription(number, &refused);
    }

    /// Opens those pending channels whose start position is known now.
    fn poll_opening(&mut self, cx: &mut Context<'_>) {
        self.delivery.add_repeated_scan(self.opening.len());
        self.poll_opening_from(0, cx);
    }

    /// Like [`poll_opening`](Session::poll_opening), but skips the first `at` pending channels.
    fn poll_opening_from(&mut self, mut at: usize, cx: &mut Context<'_>) {
        let mut stale = BTreeSet::new();
        while let Some(opening) = self.opening.get_mut(at) {
            let Poll::Ready(cursor) = Pin::new(&mut opening.cursor).poll(cx) else {
                at += 1;
                continue;
            };
            let PendingChannel { subscription, charge, .. } = self.opening.swap_remove(at);
            match cursor {
                Ok(cursor) => self.open_channel(subscription, cursor, charge),
                Err(error) => self.end_subscription(subscription, &Refused::from(&error)),
            }
            self.announcing.push_back(subscription);
            if self.opening_is_stale {
                stale.insert(subscription);
            }
        }
        // Each check examines all logs of the subscription, so it is made once, and before records are sent.
        for subscription in stale {
            if let Err(refused) = self.recheck_subscription(subscription) {
                self.end_subscription(subscription, &refused);
            }
        }
        self.opening_is_stale &= !self.opening.is_empty();
    }

    /// Whether the subscription has to deliver another log to its end before it reads this log.
    fn must_hold(&self, number: u32, log: &Log) -> bool {
        let Some(subscription) = self.subscriptions.get(&number) else { return false };
        let channels = subscription.channels.iter().filter_map(|channel| self.channels.get(channel));
        let opening = self.opening.iter().filter(|opening| opening.subscription == number);
        let held = self.held.iter().filter(|held| held.subscription == number);
        let others = channels.map(|channel| &**channel.cursor.log());
        let others = others.chain(opening.map(|opening| &*opening.log));
        log.follows_any(others.chain(held.map(|held| &**held.cursor.log())))
    }

    /// Opens the subscription's held channels that waited for the end of this log, except for those that must wait
    /// longer.
    fn open_held_channels(&mut self, number: u32, ended: &Log) {
        self.delivery.add_scan(self.held.len());
        let (mut held, mut at) = (Vec::new(), 0);
        while let Some(waiting) = self.held.get(at) {
            if waiting.subscription == number && waiting.cursor.log().follows_any([ended]) {
                held.push(self.held.swap_remove(at));
            } else {
                at += 1;
            }
        }
        held.sort_by_key(|held| held.cursor.log().number());
        held.into_iter().for_each(|held| self.open_channel(number, held.cursor, held.charge));
    }

    fn open_channel(&mut self, number: u32, cursor: Cursor, charge: MemoryCharge) {
        if cursor.log().may_follow() {
            self.delivery.add_scan(self.channels.len() + self.opening.len() + self.held.len());
        }
        if self.must_hold(number, cursor.log()) {
            return self.held.push(HeldChannel { subscription: number, cursor, charge });
        }
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        let name = cursor.log().name().clone();
        self.channel_last += 1;
        let channel = self.channel_last;
        let next = cursor.next();
        let reported = Position { seq: next.seq - 1, ..next };
        self.outbound.push(FromNode::Log(wire::Log {
            subscription: number,
            channel,
            partition: name.partition,
            after: position_to_wire(reported),
            topic: &name.topic,
            subject_prefix: &name.subject_prefix,
        }));
        if let Some(logs) = &mut subscription.announced_logs {
            *logs += 1;
            // The channel may send records after all logs of the subscription were announced.
            subscription.starved.push(channel);
        } else {
            self.channel_queue.push_back(channel);
        }
        subscription.channels.push(channel);
        let options = &subscription.options;
        let progress = cursor.log().list_subscriber(options, cursor.is_registered(), reported);
        let debt = Default::default();
        let opened = Channel {
            subscription: number,
            cursor,
            reported,
            progress,
            debt,
            stopped: false,
            is_selected: false,
            sent: false,
            touched: false,
            sending: None,
            in_flight: None,
            _charge: charge,
        };
        self.channels.insert(channel, Box::new(opened));
    }

    pub(super) fn credit(&mut self, credit: &Credit<'_>) {
        let Some(subscription) = self.subscriptions.get_mut(&credit.subscription) else {
            return self.member_credit(credit);
        };
        subscription.granted = subscription.granted.max(credit.granted);
        if subscription.may_send() {
            self.channel_queue.extend(subscription.starved.drain(..));
        }
        for consumed in credit.consumed.iter() {
            let number = consumed.channel;
            let Some(channel) = self.channels.get_mut(&consumed.channel) else { continue };
            if channel.subscription == credit.subscription
                && channel.reported.epoch == consumed.position.epoch
            {
                channel.cursor.consume(consumed.position.seq.min(channel.reported.seq));
                let consumed = position_from_wire(consumed.position);
                if channel.in_flight.take_if(|sent| *sent <= consumed).is_some() {
                    self.channel_queue.push_back(number);
                }
            }
        }
    }

    /// Keeps the options for following a state, for the next SUBSCRIBE with this number.
    pub(super) fn follow(&mut self, follow: Follow) {
        let subscriptions_max = self.shared.limits.subscriptions_max;
        let is_new = !self.following.contains_key(&follow.subscription);
        if is_new && self.following.len() >= subscriptions_max as usize {
            return self.fail(&Refused::limit("subscriptions_max", subscriptions_max.into()));
        }
        self.following.insert(follow.subscription, follow);
    }

    /// Lets the client read a log from another position. The log gets a new channel number, so that the client can
    /// distinguish the new messages from old ones that are still in transit.
    pub(super) fn resync(&mut self, resync: Resync) {
        // The channel or its subscription may have ended while the client's message was in transit.
        let Some(channel) = self.channels.get(&resync.channel) else { return };
        let Some(subscription) = self.subscriptions.get(&channel.subscription) else { return };
        self.commands.add_scan(subscription.channels.len() + subscription.starved.len());
        let Some(mut channel) = self.channels.remove(&resync.channel) else { return };
        let after = position_from_wire(resync.after);
        let target = if resync.state { topic::Resync::State } else { topic::Resync::After(after) };
        channel.cursor.disarm(&self.waiter, resync.channel);
        channel.cursor.resync(target);
        channel.reported = if resync.state { channel.cursor.read_through() } else { after };
        (channel.in_flight, channel.touched, channel.stopped) = (None, false, false);
        self.channel_last += 1;
        let number = self.channel_last;
        let unsent = channel.sending.take().map_or(0, |sending| sending.message_bytes());
        if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
            subscription.sent -= unsent;
            subscription.channels.retain(|&other| other != resync.channel);
            subscription.channels.push(number);
            subscription.starved.retain(|&other| other != resync.channel);
        }
        let name = channel.cursor.name();
        self.outbound.push(FromNode::Log(wire::Log {
            subscription: channel.subscription,
            channel: number,
            partition: name.partition,
            after: position_to_wire(channel.reported),
            topic: &name.topic,
            subject_prefix: &name.subject_prefix,
        }));
        self.channels.insert(number, channel);
        self.channel_queue.push_back(number);
    }

    pub(super) fn unsubscribe(&mut self, number: u32) {
        self.take_resume_and_follow(number);
        self.leave_group(number);
        if self.subscriptions.contains_key(&number) {
            self.end_subscription(number, &Refused::new(ErrorCode::Ended, ""));
        }
    }

    /// Ends a subscription. If it has many channels, the client is informed in a later turn, when they have ended.
    pub(super) fn end_subscription(&mut self, number: u32, refused: &Refused) {
        let Some(mut subscription) = self.subscriptions.remove(&number) else { return };
        self.delivery.add_scan(self.opening.len() + self.held.len());
        self.opening.retain(|opening| opening.subscription != number);
        self.held.retain(|held| held.subscription != number);
        (subscription.newcomers, subscription.search) = (None, None);
        let refused = refused.clone();
        self.ending.push_back(EndingSubscription { number, subscription, refused, behind: 0 });
        self.end_next_channels();
    }

    /// Ends channels of the subscriptions that have ended, as many as this turn allows.
    pub(super) fn end_next_channels(&mut self) {
        while !self.delivery.is_spent() {
            let Some(ending) = self.ending.front_mut() else { return };
            if let Some(number) = ending.subscription.channels.pop() {
                self.delivery.add(COMMAND_WORK);
                let Some(mut channel) = self.channels.remove(&number) else { continue };
                ending.behind = ending.behind.max(channel.cursor.lag());
                channel.cursor.leave(&self.waiter, number);
            } else if ending.subscription.unannounced.pop_front().is_some() {
                self.delivery.add(1);
            } else if let Some(ended) = self.ending.pop_front() {
                self.subscription_ended(ended.number, &ended.refused, ended.behind);
            }
        }
    }

    pub(super) fn subscription_ended(&mut self, subscription: u32, refused: &Refused, behind: u64) {
        self.session_trace.subscription_ended(refused, behind);
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::SubscriptionEnded(SubscriptionEnded { subscription, refusal }));
    }

    /// Ends a channel, because its log will have no more records. The subscription ends with its last channel, unless
    /// topics that match it may still be created.
    pub(super) fn end_channel(&mut self, number: u32) {
        let Some(mut channel) = self.channels.remove(&number) else { return };
        channel.cursor.leave(&self.waiter, number);
        let lost = channel.cursor.has_ended_at_gap();
        let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) else { return };
        self.delivery.add_scan(subscription.channels.len() + self.held.len());
        subscription.channels.retain(|&other| other != number);
        let more = subscription.newcomers.is_some()
            || !subscription.channels.is_empty()
            || self.opening.iter().any(|opening| opening.subscription == channel.subscription)
            || self.held.iter().any(|held| held.subscription == channel.subscription);
        if lost {
            self.end_subscription(channel.subscription, &Refused::from(&SubscribeError::Lost));
        } else if !more && subscription.unannounced.is_empty() {
            self.end_subscription(channel.subscription, &Refused::from(&SubscribeError::Closed));
        } else {
            self.open_held_channels(channel.subscription, channel.cursor.log());
        }
    }
}

impl Subscription {
    /// The position from which the subscription starts to read this log.
    fn start_of(&mut self, log: &Log) -> Start {
        let name = log.name();
        let newcomer = self.options.for_new_log(log).1;
        if self.newly_readable.remove(&log.number()) {
            return if newcomer == Start::Snapshot { newcomer } else { Start::Latest };
        }
        match &mut self.resumed {
            Some(resumed) => match resumed.positions.remove(&(name.topic.clone(), name.partition)) {
                Some(position) => Start::After(position),
                // The resumed subscription follows a state, but has no position in this log, so it must receive the
                // whole state.
                None if self.options.follows_state() && log.is_stateful() => Start::Snapshot,
                None => Start::Earliest,
            },
            None if self.announced_logs.is_none() => newcomer,
            None => self.options.start,
        }
    }
}

fn options(subscribe: &wire::Subscribe<'_>, follow: Option<Follow>, protocol: Protocol) -> SubscribeOptions {
    let mut options = plain_options(subscribe, protocol);
    if let Some(follow) = follow {
        if follow.start {
            options.start = Start::Snapshot;
        }
        if follow.on_gap {
            options.on_gap = OnGap::Snapshot;
        }
        options.conflate = follow.conflate;
        options.test_loss_every = NonZeroU32::new(follow.test_loss_every);
    }
    options
}

fn plain_options(subscribe: &wire::Subscribe<'_>, protocol: Protocol) -> SubscribeOptions {
    SubscribeOptions {
        name: subscribe.name.to_owned(),
        protocol: protocol.name(),
        start: match subscribe.start {
            StartAt::Earliest | StartAt::Resume => Start::Earliest,
            StartAt::Latest => Start::Latest,
            StartAt::After(position) => Start::After(position_from_wire(position)),
            StartAt::Time(ns) => Start::Time(ns),
        },
        on_gap: on_gap_from_wire(subscribe.on_gap),
        wait: WaitStrategy::Parked,
        registered: subscribe.registered,
        conflate: false,
        test_loss_every: None,
        local_only: false,
        is_literal: false,
        keeps_history: false,
    }
}
