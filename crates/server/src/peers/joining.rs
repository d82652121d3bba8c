//! One membership of a group that another node keeps for a client of this one, while it goes on.

use std::sync::Arc;

use dunlin::Membership;
use dunlin::topic::SubscribeError;
use dunlin_client::{Claimed, Client, Group, GroupKind, GroupOptions, Member};

/// See the module.
pub(super) struct Joining {
    membership: Arc<Membership>,
    member: Member,
}

impl Joining {
    /// Asks for it at once, before anything that this node sends later.
    pub(super) fn begin(client: &Client, membership: Arc<Membership>) -> Option<Joining> {
        let group = Group { topic: &membership.topic, name: &membership.group };
        let options = GroupOptions {
            member: membership.member.clone(),
            kind: GroupKind::Share,
            start: membership.start(),
            ends_with_last: !membership.lasting,
            ..GroupOptions::default()
        };
        match client.join_at_once(group, options) {
            Ok(member) => Some(Joining { membership, member }),
            Err(why) => {
                membership.ended(&why);
                None
            }
        }
    }

    /// Takes in what has come; `None` when it is over.
    pub(super) fn go_on(mut self) -> Option<Joining> {
        if !self.membership.is_wanted() {
            self.member.leave();
            return None;
        }
        match self.take_some() {
            Ok(()) => Some(self),
            Err(why) => {
                self.membership.ended(&why);
                None
            }
        }
    }

    pub(super) fn end(self, why: &str) {
        self.membership.ended(&SubscribeError::Connection(why.to_owned()));
    }

    fn take_some(&mut self) -> Result<(), SubscribeError> {
        if let Some(epoch) = self.member.began_in()? {
            self.membership.stands(epoch);
        }
        while self.membership.has_room() {
            match self.member.try_next()? {
                None => return Ok(()),
                Some(Claimed::Notice(notice)) => self.membership.take_notice(notice),
                Some(Claimed::Record { position, frame, log, .. }) => {
                    let mut bytes = Vec::new();
                    frame.append_to(&mut bytes);
                    self.membership.take_record(log.partition, position, &bytes);
                }
            }
        }
        Ok(())
    }
}
