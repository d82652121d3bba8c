//! Handles the membership of one of this node's clients in a share group, if another node owns the group's topic.

use std::sync::Arc;

use dunlin::RemoteMembership;
use dunlin::topic::{LogName, SubscribeError};
use dunlin_client::{Client, Group, GroupEvent, GroupKind, GroupOptions, Member};

/// A client's membership in a share group, which this node has requested from the topic's owner.
pub(super) struct RemoteJoin {
    membership: Arc<RemoteMembership>,
    member: Member,
    /// The logs from which records have arrived.
    logs: Vec<Arc<LogName>>,
    /// Whether this node has asked the owner to stop delivering.
    is_ending: bool,
    /// Whether the last record has arrived. After that, the owner still waits to learn up to which positions the client
    /// has consumed the records.
    is_finished: bool,
}

impl RemoteJoin {
    /// Sends the request for the membership at once, before this node sends anything else. If that fails, reports the
    /// error to the membership and returns `None`.
    pub(super) fn start(client: &Client, membership: Arc<RemoteMembership>) -> Option<RemoteJoin> {
        let request = &membership.options;
        let group = Group { topic: &membership.topic, name: &request.group };
        let options = GroupOptions {
            member: request.member.clone(),
            kind: GroupKind::Share,
            start: membership.start(),
            ends_with_last: !request.lasting,
            returns_unconsumed: true,
            for_user: request.user.clone().unwrap_or_default(),
            ..GroupOptions::default()
        };
        match client.join_nowait(group, options) {
            Ok(member) => {
                let logs = Vec::new();
                Some(RemoteJoin { membership, member, logs, is_ending: false, is_finished: false })
            }
            Err(why) => {
                membership.ended(&why);
                None
            }
        }
    }

    /// Handles the records that have arrived. Returns `None` when the membership is over.
    pub(super) fn advance(mut self) -> Option<RemoteJoin> {
        let (is_needed, is_ending) = (self.membership.is_needed(), self.membership.is_ending());
        if !std::mem::replace(&mut self.is_ending, is_ending || !is_needed) && self.is_ending {
            self.member.end();
        }
        self.report_consumed();
        if !is_needed {
            // Dropping the member sends a second UNSUBSCRIBE. The owner then gives the unconsumed records to other
            // members.
            return None;
        }
        if self.is_finished {
            return Some(self);
        }
        match self.receive_records() {
            Ok(()) => Some(self),
            Err(why) => {
                self.membership.ended(&why);
                self.is_finished = true;
                self.is_ending.then_some(self)
            }
        }
    }

    fn report_consumed(&mut self) {
        let consumed = self.membership.take_consumed();
        if consumed.is_empty() {
            return;
        }
        let log = |partition| self.logs.iter().find(|log| log.partition == partition);
        let consumed =
            consumed.into_iter().filter_map(|(partition, at)| Some((Arc::clone(log(partition)?), at)));
        let consumed: Vec<_> = consumed.collect();
        self.member.consume(&consumed);
    }

    pub(super) fn end(self, why: &str) {
        self.membership.ended(&SubscribeError::Connection(why.to_owned()));
    }

    fn receive_records(&mut self) -> Result<(), SubscribeError> {
        if let Some(epoch) = self.member.start_epoch()? {
            self.membership.on_accepted(epoch, self.member.node());
        }
        while self.membership.has_room() {
            match self.member.try_next()? {
                None => return Ok(()),
                Some(GroupEvent::Notice(notice)) => self.membership.receive_notice(notice),
                Some(GroupEvent::Record { position, frame, log, .. }) => {
                    if !self.logs.contains(log) {
                        self.logs.push(Arc::clone(log));
                    }
                    let mut bytes = Vec::new();
                    frame.append_to(&mut bytes);
                    self.membership.receive_record(log.partition, position, &bytes);
                }
            }
        }
        Ok(())
    }
}
