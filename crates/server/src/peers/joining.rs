//! A membership that a client of this node has in a group at the topic's owner.

use std::sync::Arc;

use dunlin::RemoteMembership;
use dunlin::topic::{LogName, SubscribeError};
use dunlin_client::{Client, Group, GroupEvent, GroupKind, GroupOptions, Member};

/// A running membership at the topic's owner.
pub(super) struct RemoteJoin {
    membership: Arc<RemoteMembership>,
    member: Member,
    /// The logs of which records were received.
    logs: Vec<Arc<LogName>>,
    /// Whether the owner was asked to stop delivering.
    is_ending: bool,
    /// Whether the last record was delivered. The owner then waits for the positions up to which records were consumed.
    is_over: bool,
}

impl RemoteJoin {
    /// Requests the membership at once, before this node sends anything else.
    pub(super) fn begin(client: &Client, membership: Arc<RemoteMembership>) -> Option<RemoteJoin> {
        let wanted = &membership.options;
        let group = Group { topic: &membership.topic, name: &wanted.group };
        let options = GroupOptions {
            member: wanted.member.clone(),
            kind: GroupKind::Share,
            start: membership.start(),
            ends_with_last: !wanted.lasting,
            gives_back: true,
            for_user: wanted.user.clone().unwrap_or_default(),
            ..GroupOptions::default()
        };
        match client.join_at_once(group, options) {
            Ok(member) => {
                let logs = Vec::new();
                Some(RemoteJoin { membership, member, logs, is_ending: false, is_over: false })
            }
            Err(why) => {
                membership.ended(&why);
                None
            }
        }
    }

    /// Handles the received records; `None` when the membership is over.
    pub(super) fn go_on(mut self) -> Option<RemoteJoin> {
        let (is_wanted, is_ending) = (self.membership.is_wanted(), self.membership.is_ending());
        if !std::mem::replace(&mut self.is_ending, is_ending || !is_wanted) && self.is_ending {
            self.member.end();
        }
        self.say_consumed();
        if !is_wanted {
            // Sends UNSUBSCRIBE a second time, which returns the unconsumed records to the owner.
            return None;
        }
        if self.is_over {
            return Some(self);
        }
        match self.take_some() {
            Ok(()) => Some(self),
            Err(why) => {
                self.membership.ended(&why);
                self.is_over = true;
                self.is_ending.then_some(self)
            }
        }
    }

    fn say_consumed(&mut self) {
        let consumed = self.membership.take_consumed();
        if consumed.is_empty() {
            return;
        }
        let log = |partition| self.logs.iter().find(|log| log.partition == partition);
        let consumed = consumed.into_iter().filter_map(|(of, at)| Some((Arc::clone(log(of)?), at)));
        let consumed: Vec<_> = consumed.collect();
        self.member.consume(&consumed);
    }

    pub(super) fn end(self, why: &str) {
        self.membership.ended(&SubscribeError::Connection(why.to_owned()));
    }

    fn take_some(&mut self) -> Result<(), SubscribeError> {
        if let Some(epoch) = self.member.start_epoch()? {
            self.membership.stands(epoch);
        }
        while self.membership.has_room() {
            match self.member.try_next()? {
                None => return Ok(()),
                Some(GroupEvent::Notice(notice)) => self.membership.take_notice(notice),
                Some(GroupEvent::Record { position, frame, log, .. }) => {
                    if !self.logs.contains(log) {
                        self.logs.push(Arc::clone(log));
                    }
                    let mut bytes = Vec::new();
                    frame.append_to(&mut bytes);
                    self.membership.take_record(log.partition, position, &bytes);
                }
            }
        }
        Ok(())
    }
}
