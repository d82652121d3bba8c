//! Handles `SUB` and `UNSUB`: creates and ends subscriptions and their channels.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin::topic::{
    ConsumeMode, Cursor, Filter, Log, MemoryCharge, NewLogs, OnGap, Pattern, Position, Start, Subject,
    SubjectError, SubscribeError, SubscribeOptions, WaitStrategy,
};
use dunlin::wire::{ErrorCode, nats};
use dunlin::{LogsToRead, Refused, TopicError};

use super::Session;
use super::access::{LoginState, subscribe_violation, subscription_error};
use super::inboxes::{is_inbox, is_single_inbox};
use super::members::{group_of, partial_group_of};
use super::publish::RetryFrom;
use super::subscription::{
    Channel, FilteredLog, LeavingSubscription, PendingChannel, SEQUENCED, StartingSubscription, Subscription,
};
use crate::charging::charge_subscriptions;
use crate::protocol::Protocol;
use crate::session::turn::{COMMAND_WORK, SEARCHED_TOPICS};

fn queue_name(queue: &[u8]) -> Result<&str, SubscriptionRefusal> {
    let Ok(queue) = std::str::from_utf8(queue) else {
        return Err(SubscriptionRefusal::Refused("the queue's name is not UTF-8".to_owned()));
    };
    match Subject::parse(queue) {
        Ok(_) => Ok(queue),
        Err(error) => Err(SubscriptionRefusal::Refused(format!("invalid queue name: {error}"))),
    }
}

/// The reason why a subscription is refused. The connection stays open.
enum SubscriptionRefusal {
    /// The subject is invalid for nats-server too, which has an error text for it.
    InvalidSubject,
    Forbidden,
    TooMany,
    Refused(String),
}

impl SubscriptionRefusal {
    fn error_text(self, subject: &str, queue: Option<&str>) -> String {
        match self {
            SubscriptionRefusal::InvalidSubject => "Invalid Subject".to_owned(),
            SubscriptionRefusal::Forbidden => subscribe_violation(subject, queue),
            SubscriptionRefusal::TooMany => "maximum subscriptions exceeded".to_owned(),
            SubscriptionRefusal::Refused(why) => subscription_error(subject, queue, &why),
        }
    }
}

impl From<SubjectError> for SubscriptionRefusal {
    fn from(error: SubjectError) -> SubscriptionRefusal {
        match error {
            SubjectError::Empty
            | SubjectError::EmptyToken(_)
            | SubjectError::Character { character: '>', .. } => SubscriptionRefusal::InvalidSubject,
            error => SubscriptionRefusal::Refused(error.to_string()),
        }
    }
}

impl From<SubscribeError> for SubscriptionRefusal {
    fn from(error: SubscribeError) -> SubscriptionRefusal {
        match Refused::from(&error).code {
            ErrorCode::Forbidden => SubscriptionRefusal::Forbidden,
            _ => SubscriptionRefusal::Refused(error.to_string()),
        }
    }
}

impl Session {
    pub(super) fn subscribe(
        &mut self,
        subject: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
        offset: usize,
    ) -> Result<(), RetryFrom> {
        // If the client uses a name twice, the first subscription stays, as in nats-server.
        if self.by_sid.contains_key(sid) {
            self.write_ok();
            return Ok(());
        }
        let shown = String::from_utf8_lossy(subject);
        let subscribed = match std::str::from_utf8(subject) {
            Err(_) => Err(SubscriptionRefusal::Refused("the subject is not UTF-8".to_owned())),
            Ok(subject) if self.is_in_foreign_inbox(subject, offset)? => Err(SubscriptionRefusal::Forbidden),
            Ok(subject) if self.awaits_topics(subject) => return Err(RetryFrom { from: offset }),
            Ok(subject) => self.try_subscribe(subject, queue, sid),
        };
        match subscribed {
            // The client is informed when the subscription reads all its logs.
            Ok(()) if self.starting.is_some() => {}
            Ok(()) => self.write_ok(),
            Err(why) => {
                let queue = queue.map(String::from_utf8_lossy);
                let text = why.error_text(&shown, queue.as_deref());
                self.session_trace.subscription_refused(&text);
                nats::put_error(&mut self.outbound.control, &text);
            }
        }
        Ok(())
    }

    /// Whether the node has just started and does not know the cluster's topics yet. The `SUB` then waits, because the
    /// session would take existing topics for new ones.
    fn awaits_topics(&mut self, subject: &str) -> bool {
        let subject = subject.strip_prefix(SEQUENCED).unwrap_or(subject);
        let Ok(pattern) = Pattern::parse(subject) else { return false };
        self.awaited_topics = self.node.prepare_watch(&pattern).into_pending();
        self.awaited_topics.is_some()
    }

    fn try_subscribe(
        &mut self,
        subject: &str,
        queue: Option<&[u8]>,
        sid: &[u8],
    ) -> Result<(), SubscriptionRefusal> {
        let (is_sequenced, subject) = match subject.strip_prefix(SEQUENCED) {
            Some(rest) => (true, rest),
            None => (false, subject),
        };
        if is_sequenced && !self.connect.headers {
            let why = "sequence numbers need headers; set headers: true in CONNECT".to_owned();
            return Err(SubscriptionRefusal::Refused(why));
        }
        let pattern = Pattern::parse(subject)?;
        if self.subscriptions.len() >= self.shared.limits.subscriptions_max as usize {
            return Err(SubscriptionRefusal::TooMany);
        }
        let queue = queue.map(queue_name).transpose()?;
        if let Some(queue) = queue
            && self.node.may_join_group(queue).is_err()
            && self.node.may_join_group(&partial_group_of(queue, &pattern)).is_err()
        {
            return Err(SubscriptionRefusal::Forbidden);
        }
        if is_inbox(subject) {
            if !is_single_inbox(subject) {
                return Err(SubscriptionRefusal::Forbidden);
            }
            let login = match &self.login_state {
                LoginState::LoggedIn(login) => Some(login),
                _ => None,
            };
            match self.inboxes.open(&self.node, subject, login) {
                Ok(true) => {}
                Ok(false) | Err(TopicError::Forbidden { .. }) => return Err(SubscriptionRefusal::Forbidden),
                Err(error) => return Err(SubscriptionRefusal::Refused(error.to_string())),
            }
        }
        let started = self.start_subscription(pattern, queue, is_sequenced, sid);
        if started.is_err() && is_inbox(subject) {
            self.inboxes.close(subject);
        }
        started?;
        // If this fails, the subscription has ended, and no longer uses its inbox.
        Ok(self.read_starting_logs()?)
    }

    fn start_subscription(
        &mut self,
        pattern: Pattern,
        queue: Option<&str>,
        is_sequenced: bool,
        sid: &[u8],
    ) -> Result<(), SubscribeError> {
        let texts = 2 * sid.len() + pattern.as_str().len() + queue.map_or(0, str::len);
        let charge = charge_subscriptions(&self.node, 1, texts)?;
        let number = self.next_number();
        let newcomers = NewLogs::with_arrivals(Arc::clone(&self.waiter), Arc::clone(&self.new_logs), number);
        let (logs, search) = self.node.watch_in_parts(&pattern, &newcomers)?;
        self.commands.add_search(&logs, search.as_ref());
        let subscription = Subscription {
            sid: sid.into(),
            pattern,
            queue: queue.map(Into::into),
            is_sequenced,
            max: None,
            delivered: 0,
            in_write: Cell::new(0),
            channels: BTreeSet::new(),
            opening: BTreeSet::new(),
            is_ending: false,
            members: BTreeSet::new(),
            reply_inbox: None,
            no_subscriber_since: None,
            newcomers,
            _charge: charge,
        };
        self.subscriptions.insert(number, subscription);
        self.by_sid.insert(sid.into(), number);
        self.starting = Some(StartingSubscription { number, logs: logs.into(), search, is_stale: false });
        Ok(())
    }

    /// Lets the newest subscription read its logs, as many as this turn allows. If a log cannot be read, ends the
    /// subscription and returns the error.
    fn read_starting_logs(&mut self) -> Result<(), SubscribeError> {
        while !self.delivery.is_spent()
            && let Some(starting) = &mut self.starting
        {
            let number = starting.number;
            if let Some(log) = starting.logs.pop_front() {
                self.delivery.add(COMMAND_WORK);
                if let Err(why) = self.read_logs(number, [log], Start::Latest) {
                    self.starting = None;
                    self.end_subscription(number);
                    return Err(why);
                }
            } else if let Some(search) = &mut starting.search {
                self.delivery.add_scan(SEARCHED_TOPICS);
                match self.node.search_logs(search, SEARCHED_TOPICS) {
                    Some(found) => starting.logs.extend(found),
                    None => starting.search = None,
                }
            } else {
                let is_stale = starting.is_stale;
                self.starting = None;
                if is_stale {
                    self.recheck_or_end(number);
                }
            }
        }
        Ok(())
    }

    /// Continues to start the newest subscription, and informs the client when the subscription reads all its logs.
    pub(super) fn continue_starting(&mut self) {
        let Some(starting) = &self.starting else { return };
        let Some(subscription) = self.subscriptions.get(&starting.number) else {
            self.starting = None;
            return;
        };
        let (subject, queue) = (subscription.subject(), subscription.queue.clone());
        match self.read_starting_logs() {
            Ok(()) if self.starting.is_none() => self.write_ok(),
            Ok(()) => {}
            Err(why) => {
                let text = SubscriptionRefusal::from(why).error_text(&subject, queue.as_deref());
                self.session_trace.subscription_refused(&text);
                nats::put_error(&mut self.outbound.control, &text);
            }
        }
    }

    pub(super) fn next_number(&mut self) -> u32 {
        self.number_last += 1;
        self.number_last
    }

    /// Takes the logs of topics that were created after the subscriptions that match them, in the order in which the
    /// topics were created.
    pub(super) fn take_new_logs(&mut self) {
        let mut arrived: Vec<(u32, FilteredLog)> = Vec::new();
        for number in self.new_logs.take() {
            let Some(subscription) = self.subscriptions.get(&number) else { continue };
            arrived.extend(subscription.newcomers.take().into_iter().map(|log| (number, log)));
        }
        arrived.sort_by_key(|(_, (log, _))| log.number());
        self.delivery.add(arrived.len());
        self.arrived_logs.extend(arrived);
    }

    /// Starts to read all topics that were created after the subscriptions that match them.
    pub(super) fn read_new_logs(&mut self) {
        self.take_new_logs();
        while let Some((number, log)) = self.arrived_logs.pop_front() {
            self.read_new_log(number, log);
        }
    }

    /// Like [`read_new_logs`](Session::read_new_logs), but reads only as many of the taken logs as this turn allows.
    pub(super) fn read_arrived_logs(&mut self) {
        while !self.delivery.is_spent()
            && let Some((number, log)) = self.arrived_logs.pop_front()
        {
            self.read_new_log(number, log);
        }
    }

    /// Starts to read a topic that was created after the subscription, from the topic's first record.
    fn read_new_log(&mut self, number: u32, log: FilteredLog) {
        self.delivery.add(COMMAND_WORK);
        if self.subscriptions.contains_key(&number)
            && let Err(why) = self.read_logs(number, [log], Start::Earliest)
        {
            self.end_refused(number, why);
        }
    }

    /// Starts to read those `readable` logs that the user could not read before. From such a log, the subscription
    /// receives only the records that are appended from now on.
    pub(super) fn read_granted_logs(&mut self, number: u32, readable: LogsToRead) {
        let Some(subscription) = self.subscriptions.get(&number).filter(|state| !state.is_ending) else {
            return;
        };
        if !subscription.opening.is_empty() {
            // When the pending channels are open, the subscription is checked again.
            self.opening_is_stale = true;
            return;
        }
        if let Some(starting) = self.starting.as_mut().filter(|starting| starting.number == number) {
            // When the subscription reads all its logs, it is checked again.
            starting.is_stale = true;
            return;
        }
        let channels = subscription.channels.iter().filter_map(|channel| self.channels.get(channel));
        let members = subscription.members.iter().filter_map(|member| self.members.get(member));
        let mut read: HashSet<u64> = channels.map(|channel| channel.cursor.log().number()).collect();
        read.extend(members.flat_map(|member| member.topic().logs()).map(|log| log.number()));
        for (log, filter) in readable {
            if read.contains(&log.number()) {
                continue;
            }
            match self.read_logs(number, [(log, filter)], Start::Latest) {
                // If the client may read the topic, but may not join its group, the topic is left out.
                Ok(()) | Err(SubscribeError::Forbidden(_)) => {}
                Err(why) => return self.end_refused(number, why),
            }
        }
    }

    /// Ends a subscription that cannot or may not read all its subjects, and sends the reason. If the node reaches no
    /// majority, the client is disconnected instead: client libraries subscribe again after they have reconnected, but
    /// not after a refusal.
    fn end_refused(&mut self, subscription: u32, why: SubscribeError) {
        if Refused::from(&why).code == ErrorCode::NoLeader {
            self.disconnect(&why.to_string());
            // A pending `PONG` would confirm the subscription, so it is not sent.
            self.pongs = Default::default();
            return;
        }
        if let Some(state) = self.subscriptions.get(&subscription) {
            let text = SubscriptionRefusal::from(why).error_text(&state.subject(), state.queue.as_deref());
            nats::put_error(&mut self.outbound.control, &text);
        }
        self.end_subscription(subscription);
    }

    fn read_logs(
        &mut self,
        subscription: u32,
        logs: impl IntoIterator<Item = FilteredLog>,
        start: Start,
    ) -> Result<(), SubscribeError> {
        let is_shared = self.subscriptions.get(&subscription).is_some_and(|state| state.queue.is_some());
        logs.into_iter().try_for_each(|(log, filter)| match is_shared {
            true => {
                let is_partial = filter.is_some();
                match self.join(subscription, &log, filter, start) {
                    // The topic is newer than the subscription, and the client may not join its group. The subscription
                    // continues with other topics.
                    Err(SubscribeError::Forbidden(why)) if start == Start::Earliest => {
                        self.refuse_new_topic(subscription, &log, is_partial, &why);
                        Ok(())
                    }
                    joined => joined,
                }
            }
            false => self.read_log(subscription, log, filter, start),
        })
    }

    /// Reports that the client may not read a new topic. The error names the topic instead of the subscription's
    /// subject, so that client libraries do not end the subscription.
    fn refuse_new_topic(&mut self, subscription: u32, log: &Log, is_partial: bool, why: &str) {
        let Some(state) = self.subscriptions.get(&subscription) else { return };
        let group = group_of(state.queue.as_deref().unwrap_or_default(), &state.pattern, is_partial);
        let text = subscription_error(&log.name().topic, Some(&group), why);
        nats::put_error(&mut self.outbound.control, &text);
    }

    fn read_log(
        &mut self,
        number: u32,
        log: Arc<Log>,
        filter: Option<Filter>,
        start: Start,
    ) -> Result<(), SubscribeError> {
        let channels_max = self.shared.limits.channels_max;
        if self.channels.len() >= channels_max {
            return Err(SubscribeError::Limit { limit: "channels_max", value: channels_max as u64 });
        }
        let name = self.name();
        let charge = charge_subscriptions(&self.node, 1, name.len())?;
        let options = SubscribeOptions {
            name,
            protocol: Protocol::Nats.name(),
            start,
            on_gap: OnGap::Oldest,
            wait: WaitStrategy::Parked,
            // A registered cursor makes reliable topics wait for this subscriber.
            registered: true,
            conflate: false,
            test_loss_every: None,
            local_only: false,
            is_literal: false,
            keeps_history: self.subscriptions.get(&number).is_some_and(|state| !state.is_sequenced),
        };
        let channel = self.next_number();
        let (topic, opened_log) = (Arc::clone(log.name()), Arc::clone(&log));
        let mut cursor = self.node.open_cursor(log, &options, start, filter, ConsumeMode::Explicit);
        match cursor.try_take() {
            Some(cursor) => {
                self.open_channel(number, channel, &options, cursor?, charge);
            }
            None => {
                let subjects = match start {
                    Start::Latest => {
                        self.node.topic(&topic.topic).map(|topic| Pattern::parse(topic.pattern()))
                    }
                    _ => None,
                };
                let subjects = subjects.and_then(Result::ok);
                let (subscription, log) = (number, opened_log);
                let opening = PendingChannel { subscription, options, subjects, log, cursor, charge };
                if let Some(state) = self.subscriptions.get_mut(&number) {
                    state.opening.insert(channel);
                    self.opening.insert(channel, opening);
                }
            }
        }
        Ok(())
    }

    /// Opens the channels whose start positions have been found.
    pub(super) fn poll_opening(&mut self, cx: &mut Context<'_>) {
        let (mut found, mut stale) = (Vec::new(), BTreeSet::new());
        self.delivery.add_repeated_scan(self.opening.len());
        for (&channel, opening) in &mut self.opening {
            if let Poll::Ready(cursor) = Pin::new(&mut opening.cursor).poll(cx) {
                found.push((channel, cursor));
            }
        }
        for (channel, cursor) in found {
            // The error of an earlier channel may have ended the subscription, and with it this channel.
            let Some(opening) = self.opening.remove(&channel) else { continue };
            let PendingChannel { subscription, options, charge, .. } = opening;
            if let Some(state) = self.subscriptions.get_mut(&subscription) {
                state.opening.remove(&channel);
            }
            self.opened += 1;
            match cursor {
                Ok(cursor) => self.open_channel(subscription, channel, &options, cursor, charge),
                Err(error) => self.end_refused(subscription, error),
            }
            if self.is_closing() {
                return;
            }
            if self.opening_is_stale {
                stale.insert(subscription);
            }
            self.write_due_pongs();
        }
        // Each check examines all logs of the subscription, so it is made once, and before records are sent.
        stale.into_iter().for_each(|number| self.recheck_or_end(number));
        self.opening_is_stale &= !self.opening.is_empty();
    }

    /// Whether a subscription of this client must receive records of this subject, but the subscription's channel is
    /// not open yet.
    pub(super) fn is_opening(&self, subject: &[u8]) -> bool {
        if self.opening.is_empty() {
            return false;
        }
        let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
        let mut subjects = self.opening.values().filter_map(|opening| opening.subjects.as_ref());
        subject.is_some_and(|subject| subjects.any(|subjects| subjects.matches(subject)))
    }

    /// Whether the subscription has to deliver another log to its end before it reads this log.
    fn must_hold(&self, number: u32, log: &Log) -> bool {
        let Some(subscription) = self.subscriptions.get(&number) else { return false };
        let channels = subscription.channels.iter().filter_map(|channel| self.channels.get(channel));
        let opening = subscription.opening.iter().filter_map(|channel| self.opening.get(channel));
        let others = channels.map(|channel| &**channel.cursor.log());
        log.follows_any(others.chain(opening.map(|opening| &*opening.log)))
    }

    /// Queues those channels of the subscription that need not wait for the end of another log any longer. If `ended`
    /// states the log that has ended, looks only at channels that waited for it.
    fn queue_released_channels(&mut self, subscription: u32, ended: Option<&Log>) {
        self.delivery.add_scan(self.held.len());
        let has_waited = |channel: &Channel| {
            channel.subscription == subscription
                && ended.is_none_or(|ended| channel.cursor.log().follows_any([ended]))
        };
        let is_released = |number: &u32| {
            self.channels.get(number).is_none_or(|channel| {
                has_waited(channel) && !self.must_hold(subscription, channel.cursor.log())
            })
        };
        let released: Vec<u32> = self.held.iter().copied().filter(is_released).collect();
        for number in released {
            self.held.remove(&number);
            self.channel_queue.push_back(number);
        }
    }

    fn open_channel(
        &mut self,
        number: u32,
        channel: u32,
        options: &SubscribeOptions,
        cursor: Cursor,
        charge: MemoryCharge,
    ) {
        if cursor.log().may_follow() {
            self.delivery.add_scan(self.channels.len() + self.opening.len());
        }
        let is_held = self.must_hold(number, cursor.log());
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        subscription.channels.insert(channel);
        let next = cursor.next();
        let before = Position { seq: next.seq - 1, ..next };
        let progress = cursor.log().list_subscriber(options, cursor.is_registered(), before);
        let skips_own = !self.connect.echo;
        if skips_own {
            let forwarded = self.forwarded.separate(cursor.log());
            self.own.add_channel(cursor.log(), channel, forwarded);
        }
        let opened = Channel {
            subscription: number,
            cursor,
            progress,
            skips_own,
            until: None,
            debt: Cell::new(0),
            is_selected: false,
            sent: false,
            _charge: charge,
        };
        self.channels.insert(channel, Box::new(opened));
        if is_held {
            self.held.insert(channel);
        } else {
            self.channel_queue.push_back(channel);
        }
        if skips_own {
            self.handle_owner_responses();
        }
    }

    pub(super) fn unsubscribe(&mut self, sid: &[u8], max: Option<u64>) {
        let Some(&number) = self.by_sid.get(sid) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        subscription.max = max;
        if subscription.is_over() {
            self.end_subscription(number);
        } else if max.is_none() {
            let opening = std::mem::take(&mut subscription.opening);
            opening.iter().for_each(|channel| drop(self.opening.remove(channel)));
            self.queue_released_channels(number, None);
            self.drain_subscription(number);
        }
    }

    pub(super) fn end_subscription(&mut self, number: u32) {
        let Some(subscription) = self.subscriptions.remove(&number) else { return };
        self.ending.remove(&number);
        if self.starting.as_ref().is_some_and(|starting| starting.number == number) {
            self.starting = None;
        }
        subscription.opening.iter().for_each(|channel| drop(self.opening.remove(channel)));
        // The client may already have reused the name for a newer subscription.
        if self.by_sid.get(&subscription.sid) == Some(&number) {
            self.by_sid.remove(&subscription.sid);
        }
        let Subscription { channels, members, reply_inbox, pattern, .. } = subscription;
        self.leaving.push(LeavingSubscription { channels, members });
        self.end_leaving();
        drop(reply_inbox);
        if is_inbox(pattern.as_str()) {
            self.inboxes.close(pattern.as_str());
        }
    }

    /// Ends channels and memberships of the subscriptions that have ended, as many as this turn allows.
    pub(super) fn end_leaving(&mut self) {
        while !self.delivery.is_spent()
            && let Some(leaving) = self.leaving.last_mut()
        {
            if let Some(channel) = leaving.channels.pop_first() {
                self.delivery.add(COMMAND_WORK);
                self.end_channel(channel);
            } else if let Some(member) = leaving.members.pop_first() {
                self.delivery.add(COMMAND_WORK);
                self.leave_group(member);
            } else {
                self.leaving.pop();
            }
        }
    }

    /// Ends a channel that will send no more records. The subscription continues if it has other channels.
    pub(super) fn end_channel(&mut self, number: u32) {
        let Entry::Occupied(entry) = self.channels.entry(number) else { return };
        let mut channel = entry.remove();
        if channel.skips_own {
            self.own.remove_channel(channel.cursor.log(), number);
        }
        channel.cursor.leave(&self.waiter, number);
        self.held.remove(&number);
        if let Some(subscription) = self.subscriptions.get_mut(&channel.subscription) {
            subscription.channels.remove(&number);
            if subscription.has_ended() {
                self.end_subscription(channel.subscription);
            }
        }
        self.queue_released_channels(channel.subscription, Some(channel.cursor.log()));
    }
}
