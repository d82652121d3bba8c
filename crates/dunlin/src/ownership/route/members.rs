//! Asks a topic's owner for the memberships in `share` groups that members at this node need.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_control::TopicKind;

use super::Route;
use crate::ownership::membership::RemoteMembership;
use crate::ownership::{Ownership, lock};

impl Route {
    pub(in crate::ownership) fn add_member(
        &self,
        ownership: &Arc<Ownership>,
        membership: &Arc<RemoteMembership>,
    ) {
        {
            let mut members = lock(&self.members);
            members.retain(|other| other.upgrade().is_some_and(|other| other.is_needed()));
            members.push(Arc::downgrade(membership));
        }
        if self.is_deleted() {
            return membership.close();
        }
        self.place_members(ownership);
        if membership.is_unplaced() {
            ownership.housekeeper.check(&self.this);
        }
    }

    /// Asks the topic's owner for those memberships for which no owner was asked yet, if the owner is a member of the
    /// cluster. If this node is the owner and has received all records of the previous owner, the memberships move to
    /// this node.
    pub(super) fn place_members(&self, ownership: &Arc<Ownership>) {
        let unplaced = self.unplaced_members();
        if unplaced.is_empty() {
            return;
        }
        let (owner, epoch, is_draining) = {
            let state = lock(&self.state);
            (state.owner, state.epoch, state.draining.is_some())
        };
        for membership in unplaced {
            if owner != ownership.id && ownership.is_alive(owner) {
                if membership.begin_request(epoch) {
                    ownership.peers.join(owner, membership);
                }
            } else if ownership.owns_since_start(owner) && !is_draining {
                membership.move_here(epoch);
            }
        }
    }

    pub(super) fn has_unplaced_members(&self) -> bool {
        !self.unplaced_members().is_empty()
    }

    /// After a pause, checks again whether an owner has to be asked for memberships.
    pub(in crate::ownership) fn check_again_after(&self, pause: Duration) {
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.housekeeper.check_after(&self.this, pause);
        }
    }

    /// Called when the topic was deleted. Ends the memberships in its groups, except those that an owner still ends
    /// after the topic's last records.
    pub(in crate::ownership) fn end_unserved_members(&self) {
        let last_epoch = {
            let state = lock(&self.state);
            (state.has_ended && self.kind == TopicKind::Volatile).then_some(state.epoch)
        };
        let members: Vec<_> = lock(&self.members).iter().filter_map(Weak::upgrade).collect();
        members.iter().for_each(|membership| membership.topic_deleted(last_epoch));
    }

    /// Whether the previous owner is still handing its records over to this node.
    pub(in crate::ownership) fn is_draining(&self) -> bool {
        lock(&self.state).draining.is_some()
    }

    fn unplaced_members(&self) -> Vec<Arc<RemoteMembership>> {
        let members = lock(&self.members);
        members.iter().filter_map(Weak::upgrade).filter(|membership| membership.is_unplaced()).collect()
    }
}
