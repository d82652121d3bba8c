//! Defines [`AnyGroup`], a group of either kind: `share` or `work`. It serves code that handles both kinds.

use std::sync::Arc;

use dunlin_topic::{ShareGroup, SubscribeError, Topic, WorkGroup};

use super::delivered::DeliveredRanges;
use super::group::Group;
use super::{GroupInfo, GroupKind};
use crate::node::Node;

/// A group of kind `share` or `work`.
#[derive(Debug, Clone)]
pub(super) enum AnyGroup {
    Share(Arc<Group<ShareGroup>>),
    Work(Arc<Group<WorkGroup>>),
}

/// Converts between a group with a known state machine and a group of either kind.
pub(super) trait OfKind<M>: Sized {
    fn downcast(&self) -> Option<Arc<Group<M>>>;
    fn wrap(group: Arc<Group<M>>) -> Self;
}

impl OfKind<ShareGroup> for AnyGroup {
    fn downcast(&self) -> Option<Arc<Group<ShareGroup>>> {
        match self {
            AnyGroup::Share(group) => Some(Arc::clone(group)),
            AnyGroup::Work(_) => None,
        }
    }

    fn wrap(group: Arc<Group<ShareGroup>>) -> AnyGroup {
        AnyGroup::Share(group)
    }
}

impl OfKind<WorkGroup> for AnyGroup {
    fn downcast(&self) -> Option<Arc<Group<WorkGroup>>> {
        match self {
            AnyGroup::Work(group) => Some(Arc::clone(group)),
            AnyGroup::Share(_) => None,
        }
    }

    fn wrap(group: Arc<Group<WorkGroup>>) -> AnyGroup {
        AnyGroup::Work(group)
    }
}

impl AnyGroup {
    pub(super) fn kind(&self) -> GroupKind {
        match self {
            AnyGroup::Share(_) => GroupKind::Share,
            AnyGroup::Work(_) => GroupKind::Work,
        }
    }

    pub(super) fn topic(&self) -> &Arc<Topic> {
        match self {
            AnyGroup::Share(group) => &group.topic,
            AnyGroup::Work(group) => &group.topic,
        }
    }

    pub(super) fn is_lasting(&self) -> bool {
        match self {
            AnyGroup::Share(group) => group.is_lasting,
            AnyGroup::Work(group) => group.is_lasting,
        }
    }

    /// The records that a `share` group has delivered to members, one entry for each log. Empty for a `work` group.
    pub(super) fn delivered_ranges(&self, node: &Node) -> Vec<DeliveredRanges> {
        match self {
            AnyGroup::Share(group) => group.delivered_ranges(node),
            AnyGroup::Work(_) => Vec::new(),
        }
    }

    pub(super) fn tick(&self, node: &Node) {
        match self {
            AnyGroup::Share(group) => group.tick(node),
            AnyGroup::Work(group) => group.tick(node),
        }
    }

    /// Ends the group because another node now owns the topic. `last_epoch` is this node's last epoch if the new owner
    /// begins a later epoch, and otherwise `None`. If `last_epoch` is given, a `share` group first delivers its
    /// remaining records of the epochs through `last_epoch`.
    pub(super) fn end(&self, node: &Node, last_epoch: Option<u32>, why: &SubscribeError) {
        match (self, last_epoch) {
            (AnyGroup::Share(group), Some(last_epoch)) => group.end_after(node, last_epoch, why),
            (AnyGroup::Share(group), None) => group.end(why),
            (AnyGroup::Work(group), _) => {
                group.end(why);
                // From now on, publishers wait for the group at the topic's next owner instead of this group.
                group.unregister();
            }
        }
    }

    /// Whether members still have to receive records from before the topic's move to another owner. Called only after
    /// the move.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, AnyGroup::Share(group) if group.ended().is_none())
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        match self {
            AnyGroup::Share(group) => group.is_due(now_ns),
            AnyGroup::Work(group) => group.is_due(now_ns),
        }
    }

    pub(super) fn due_ns(&self) -> u64 {
        match self {
            AnyGroup::Share(group) => group.due_ns(),
            AnyGroup::Work(group) => group.due_ns(),
        }
    }

    pub(super) fn idle_since_ns(&self, node: &Node) -> Option<u64> {
        match self {
            AnyGroup::Share(group) => group.idle_since_ns(node),
            AnyGroup::Work(group) => group.idle_since_ns(node),
        }
    }

    /// Whether the group may still send dead letters, although no member can join it any more.
    pub(super) fn may_send_dead_letters(&self) -> bool {
        match self {
            AnyGroup::Share(_) => false,
            AnyGroup::Work(group) => group.may_send_dead_letters(),
        }
    }

    /// Drops all dead letters whose storage is not confirmed, and reports their number.
    pub(super) fn drop_dead_letters(&self, node: &Node) {
        if let AnyGroup::Work(group) = self {
            group.drop_dead_letters(node);
        }
    }

    pub(super) fn info(&self, node: &Node) -> GroupInfo {
        match self {
            AnyGroup::Share(group) => group.info(node, GroupKind::Share),
            AnyGroup::Work(group) => group.info(node, GroupKind::Work),
        }
    }
}
