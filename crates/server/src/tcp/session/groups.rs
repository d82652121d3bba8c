//! Handles memberships in groups. While a client has credit, records are copied into the output, a limited number at a
//! time. For a work group, the client must also have requested records.

mod member;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::{Log, Position, Start, SubscribeError, Waiter};
use dunlin::wire::{
    self, Claim, Credit, ErrorCode, FromNode, GroupKind, JoinGroup, MessageList, Nack, RequestRefused,
    Settle, Settled, StartAt, Subscribed,
};
use dunlin::{
    DeadLetterTarget, EarlierMembership, Inbox, JoinError, Refused, ShareMember, ShareOptions, TopicError,
    WorkMember, WorkOptions,
};

use super::outbound::protocol;
use super::subscription::ResumePositions;
use super::translate::{position_from_wire, position_to_wire};
use super::{CHANNELS_PER_POLL, CONTROL_BYTES_MAX, Session};
use crate::charging::charge_subscriptions;
use crate::session::turn::COMMAND_WORK;

pub(super) use member::GroupMembership;
use member::{DeliveryOutcome, GroupMember, LeaveProgress};

impl Session {
    pub(super) fn join_group(&mut self, join: &JoinGroup<'_>) {
        let number = join.subscription;
        if self.is_in_use(number) {
            return self.fail(&protocol(format!("subscription {number} is already in use")));
        }
        // FOLLOW does not apply to memberships. If the client has sent it for this number, it must not apply to a later
        // subscription.
        let (resumed, _) = self.take_resume_and_follow(number);
        let joined = match self.prepared.take() {
            Some(Err(refused)) => Err(refused),
            _ => self.begin_membership(join, resumed),
        };
        if let Err(refused) = joined {
            self.subscription_ended(number, &refused, 0);
        }
    }

    /// Joins the group. `resumed` has the positions that the client reached in an earlier membership. They do not
    /// change where the group reads: they only show in which epoch the client was.
    fn begin_membership(
        &mut self,
        join: &JoinGroup<'_>,
        mut resumed: Option<ResumePositions>,
    ) -> Result<(), Refused> {
        self.check_subscriptions()?;
        if !self.from_node && Inbox::is_of_any(join.topic) {
            return Err(Refused::new(ErrorCode::Forbidden, "the inbox belongs to another session"));
        }
        let texts = join.topic.len() + join.group.len() + join.member.len();
        let charge = charge_subscriptions(&self.node, 1, texts).map_err(|error| Refused::from(&error))?;
        let token = self.channel_last + 1;
        self.commands.add_scan(self.members.len());
        let mut group_member = self.open_membership(join, token)?;
        // Another node must know to which epoch the delivered records belong. While the topic moves to another owner,
        // the logs may already be in the next owner's epoch.
        let owner_epoch = match &mut group_member {
            GroupMember::Share(share) if self.from_node => share.owner_epoch(),
            _ => None,
        };
        let (mut channels, mut changes) = (Vec::new(), Vec::new());
        self.commands.add(group_member.topic().logs().len());
        for log in group_member.topic().logs() {
            self.channel_last += 1;
            channels.push(self.channel_last);
            let epoch = owner_epoch.unwrap_or_else(|| log.last().epoch);
            let resumed = resumed.as_mut().filter(|_| !self.from_node);
            let changed = resumed.and_then(|resumed| epoch_change(self.channel_last, log, epoch, resumed));
            // A member has no position of its own in a log. The announced position therefore has the sequence number 0.
            // If the position had a later epoch than the client's, the client would report an unknown loss. If the end
            // of the client's epoch is known, EPOCH_CHANGED announces the later epoch instead.
            let after = Position { epoch: changed.as_ref().map_or(epoch, |changed| changed.old), seq: 0 };
            changes.extend(changed);
            self.outbound.push(FromNode::Log(wire::Log {
                subscription: join.subscription,
                channel: self.channel_last,
                partition: log.name().partition,
                after: position_to_wire(after),
                topic: &log.name().topic,
                subject_prefix: &log.name().subject_prefix,
            }));
        }
        let logs = channels.len() as u32;
        self.outbound.push(FromNode::Subscribed(Subscribed { subscription: join.subscription, logs }));
        let before = self.outbound.control.len();
        changes.into_iter().for_each(|changed| self.outbound.push(FromNode::EpochChanged(changed)));
        let changes_bytes = self.outbound.control.len() - before;
        let returns_unconsumed = self.from_node
            && join.kind == GroupKind::Share
            && join.attempts_max & JoinGroup::RETURNS_UNCONSUMED > 0;
        let mut member =
            GroupMembership::new(group_member, channels, join.credit, returns_unconsumed, charge);
        member.count_sent(changes_bytes);
        self.members.insert(join.subscription, member);
        self.member_tokens.insert(token, join.subscription);
        self.queue_member(join.subscription);
        Ok(())
    }

    fn open_membership(&self, join: &JoinGroup<'_>, token: u32) -> Result<GroupMember, Refused> {
        let (node, wakeup) = (&self.node, (self.waiter.clone(), token));
        let joined = match join.kind {
            GroupKind::Share if self.from_node => {
                self.open_membership_for_node(join, wakeup).map(GroupMember::Share)
            }
            GroupKind::Share => node
                .join_share_with_waiter(join.topic, join.group, &share_options(join), wakeup)
                .map(GroupMember::Share),
            GroupKind::Work => node
                .join_work_with_waiter(join.topic, join.group, &work_options(join), wakeup)
                .map(GroupMember::Work),
        };
        let group_member = joined.map_err(|error| Refused::from(&error))?;
        let channels_max = self.shared.limits.channels_max;
        let channels: usize = self.members.values().map(|member| member.channels.len()).sum();
        if self.channels.len() + channels + group_member.topic().logs().len() > channels_max {
            return Err(Refused::limit("channels_max", channels_max as u64));
        }
        Ok(group_member)
    }

    /// Joins a share group for a client of another node. Does not create the topic, because it must exist already.
    ///
    /// If `join.start` states a position, the member was already in the group, at an earlier owner or in an earlier
    /// epoch. The position describes this [`EarlierMembership`].
    fn open_membership_for_node(
        &self,
        join: &JoinGroup<'_>,
        wakeup: (Arc<Waiter>, u32),
    ) -> Result<ShareMember, JoinError> {
        if self.node.topic(join.topic).is_none() {
            return Err(TopicError::Unknown(join.topic.to_owned()).into());
        }
        let earlier = match join.start {
            StartAt::After(at) => Some(EarlierMembership::from_position(position_from_wire(at), &self.node)),
            _ => None,
        };
        let lasting = join.attempts_max & JoinGroup::ENDS_WITH_LAST == 0;
        let for_user = (!join.dead_letter.is_empty()).then(|| join.dead_letter.to_owned());
        let options = ShareOptions { earlier, lasting, for_user, ..share_options(join) };
        self.node.join_share_with_waiter(join.topic, join.group, &options, wakeup)
    }

    pub(super) fn leave_group(&mut self, number: u32) {
        let ended = Refused::new(ErrorCode::Ended, "");
        let Some(member) = self.members.get_mut(&number) else { return };
        if !member.returns_unconsumed {
            return self.end_membership(number, &ended);
        }
        if member.leave_progress.is_none() {
            member.begin_leaving();
            return self.queue_member(number);
        }
        if let Some(member) = self.members.remove(&number) {
            self.member_tokens.remove(&member.channels[0]);
            if member.leave_progress != Some(LeaveProgress::Complete) {
                self.subscription_ended(number, &ended, 0);
            }
            member.group_member.leave_unconsumed(&self.node);
        }
    }

    /// Ends a membership, and sends the reason to the client.
    pub(super) fn end_membership(&mut self, number: u32, refused: &Refused) {
        if let Some(member) = self.members.remove(&number) {
            self.member_tokens.remove(&member.channels[0]);
            member.group_member.leave(&self.node);
            self.subscription_ended(number, refused, 0);
        }
    }

    /// Leaves all groups. Records that were not consumed go to other members.
    pub(super) fn leave_groups(&mut self) {
        self.member_queue.clear();
        self.member_tokens.clear();
        self.leaving_members.extend(std::mem::take(&mut self.members).into_values());
        self.leave_next_groups();
    }

    /// Lets ended memberships leave their groups, as many as this turn allows.
    pub(super) fn leave_next_groups(&mut self) {
        while !self.delivery.is_spent()
            && let Some(member) = self.leaving_members.pop()
        {
            self.delivery.add(COMMAND_WORK);
            member.group_member.leave(&self.node);
        }
    }

    /// Drops all memberships, because the connection was lost. Records that their members received but did not consume
    /// are lost.
    pub(super) fn drop_members(&mut self) {
        while !self.members.is_empty() {
            self.drop_next_members();
        }
    }

    /// Like [`drop_members`](Session::drop_members), but drops only as many memberships as one turn allows.
    pub(super) fn drop_next_members(&mut self) {
        let numbers: Vec<u32> = self.members.keys().take(CHANNELS_PER_POLL).copied().collect();
        for number in numbers {
            let Some(member) = self.members.remove(&number) else { continue };
            let (topic, group) =
                (member.group_member.topic().name().to_owned(), member.group_member.group().to_owned());
            drop(member);
            self.node.end_group(&topic, &group);
        }
    }

    /// Raises the credit of a membership. In a share group, the same message reports which records the client has
    /// consumed.
    pub(super) fn member_credit(&mut self, credit: &Credit<'_>) {
        let number = credit.subscription;
        let Some(member) = self.members.get_mut(&number) else { return };
        member.granted = member.granted.max(credit.granted);
        for consumed in credit.consumed.iter() {
            let partition = member.channels.iter().position(|channel| *channel == consumed.channel);
            if let (Some(partition), GroupMember::Share(share)) = (partition, &mut member.group_member) {
                share.consume(partition as u16, consumed.position.seq);
            }
        }
        self.queue_member(number);
    }

    pub(super) fn claim(&mut self, claim: Claim) {
        if let Some(member) = self.members.get_mut(&claim.subscription) {
            member.requested = member.requested.max(claim.wanted);
            self.queue_member(claim.subscription);
        }
    }

    pub(super) fn ack(&mut self, ack: &Settle<'_>) {
        self.settle_claims(ack.request, ack.subscription, ack.tokens.iter(), |work, token| {
            (token, work.ack(token).is_ok())
        });
    }

    pub(super) fn nack(&mut self, nack: &Nack<'_>) {
        self.settle_claims(nack.request, nack.subscription, nack.tokens.iter(), |work, nacked| {
            let delay = Duration::from_millis(nacked.delay_ms.into());
            (nacked.token, work.nack(nacked.token, delay).is_ok())
        });
    }

    pub(super) fn renew(&mut self, renew: &Settle<'_>) {
        self.settle_claims(renew.request, renew.subscription, renew.tokens.iter(), |work, token| {
            (token, work.renew(token).is_ok())
        });
    }

    /// Settles claims, that is, acknowledges, returns or renews them. Calls `settle` with each item of `tokens`;
    /// `settle` returns the claim's token and whether it was still valid.
    fn settle_claims<T>(
        &mut self,
        request: u32,
        subscription: u32,
        tokens: impl Iterator<Item = T>,
        settle: impl Fn(&mut WorkMember, T) -> (u64, bool),
    ) {
        let Some(GroupMembership { group_member: GroupMember::Work(work), .. }) =
            self.members.get_mut(&subscription)
        else {
            let numbers = [u64::from(subscription), 0, 0];
            let refused = Refused { numbers, ..Refused::new(ErrorCode::NotOpen, "") };
            let refusal = refused.as_wire();
            return self.outbound.push(FromNode::RequestRefused(RequestRefused { request, refusal }));
        };
        let (mut settled, mut stale) = (0, Vec::new());
        for token in tokens {
            match settle(work, token) {
                (_, true) => settled += 1,
                (token, false) => stale.push(token),
            }
        }
        self.outbound.push(FromNode::Settled(Settled { request, settled, stale: MessageList::new(&stale) }));
        self.queue_member(subscription);
    }

    /// Queues a member that may have something to send, unless it is queued already. The queue thus does not grow with
    /// the messages of a client that sends them faster than the members are served.
    pub(super) fn queue_member(&mut self, number: u32) {
        if let Some(member) = self.members.get_mut(&number)
            && !std::mem::replace(&mut member.is_queued, true)
        {
            self.member_queue.push_back(number);
        }
    }

    /// Delivers records to each member in the queue, as far as this turn allows, and to at least one of them.
    pub(super) fn deliver_to_members(&mut self) {
        for served in 0..self.member_queue.len() {
            if self.outbound.control.len() > CONTROL_BYTES_MAX || served > 0 && self.delivery.is_spent() {
                return;
            }
            let Some(number) = self.member_queue.pop_front() else { return };
            self.delivery.add(COMMAND_WORK);
            let Some(member) = self.members.get_mut(&number) else { continue };
            member.is_queued = false;
            match member.deliver(&mut self.outbound.control) {
                DeliveryOutcome::Waiting => {}
                DeliveryOutcome::More => self.queue_member(number),
                DeliveryOutcome::Skipped => {
                    self.queue_member(number);
                    self.is_skip_budget_spent = true;
                    return;
                }
                DeliveryOutcome::Complete => {
                    self.subscription_ended(number, &Refused::new(ErrorCode::Ended, ""), 0)
                }
                DeliveryOutcome::Ended(why) => self.remove_ended_member(number, &why),
            }
        }
    }

    /// Queues all members, because the time of a claim or of a delay may have ended.
    pub(super) fn queue_all_members(&mut self) {
        let numbers: Vec<u32> = self.members.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.queue_member(number));
    }

    fn remove_ended_member(&mut self, number: u32, why: &SubscribeError) {
        let Some(member) = self.members.remove(&number) else { return };
        self.member_tokens.remove(&member.channels[0]);
        self.subscription_ended(number, &Refused::from(why), 0);
    }
}

/// Returns EPOCH_CHANGED for a member that has reached an earlier epoch of the log than `epoch`, if the end of that
/// earlier epoch is known.
fn epoch_change(
    channel: u32,
    log: &Log,
    epoch: u32,
    resumed: &mut ResumePositions,
) -> Option<wire::EpochChanged> {
    let name = log.name();
    let at = resumed.positions.remove(&(name.topic.clone(), name.partition))?;
    let known_through = Some(log.end_of_epoch(at, epoch)?);
    let new_first = position_to_wire(log.first_after_epoch(at.epoch)?);
    Some(wire::EpochChanged { channel, old: at.epoch, last_seen: at.seq, known_through, new_first })
}

fn share_options(join: &JoinGroup<'_>) -> ShareOptions {
    ShareOptions {
        member: join.member.to_owned(),
        start: start_from_wire(join.start),
        registered: true,
        ..ShareOptions::default()
    }
}

pub(super) fn work_options(join: &JoinGroup<'_>) -> WorkOptions {
    let defaults = WorkOptions::default();
    WorkOptions {
        member: join.member.to_owned(),
        start: start_from_wire(join.start),
        registered: true,
        claim: match join.claim_ms {
            0 => defaults.claim,
            ms => Duration::from_millis(ms.into()),
        },
        attempts_max: join.attempts_max,
        dead_letters: match join.dead_letter {
            "" => DeadLetterTarget::Drop,
            subject => DeadLetterTarget::Subject(subject.to_owned()),
        },
    }
}

fn start_from_wire(start: StartAt) -> Start {
    match start {
        StartAt::Latest => Start::Latest,
        StartAt::After(position) => Start::After(position_from_wire(position)),
        StartAt::Time(ns) => Start::Time(ns),
        // A member that resumes continues at the group's position. A group that does not exist yet starts at the
        // earliest record.
        StartAt::Earliest | StartAt::Resume => Start::Earliest,
    }
}
