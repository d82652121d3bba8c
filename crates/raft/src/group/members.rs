//! Changes the members of a group and its leader. Only the leader can change the members.

use std::collections::BTreeSet;

use openraft::{BasicNode, ChangeMembers};

use super::UntypedGroup;
use crate::error::RaftGroupError;
use crate::network::RaftMember;

impl UntypedGroup {
    /// Adds a member without a vote. Returns when the member's log has nearly caught up with the leader's.
    pub async fn add_learner(&self, member: &RaftMember) -> Result<(), RaftGroupError> {
        let node = BasicNode::new(&member.address);
        self.raft.add_learner(member.id, node, true).await?;
        Ok(())
    }

    /// Makes the nodes in `voters` the voters. All of them must already be members. Present voters that are not in
    /// `voters` leave the group.
    pub async fn set_voters(&self, voters: &[u64]) -> Result<(), RaftGroupError> {
        let voters: BTreeSet<u64> = voters.iter().copied().collect();
        self.raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), false).await?;
        Ok(())
    }

    /// Removes a member without a vote.
    pub async fn remove_learner(&self, id: u64) -> Result<(), RaftGroupError> {
        let removed = self.raft.change_membership(ChangeMembers::RemoveNodes(BTreeSet::from([id])), true);
        removed.await?;
        Ok(())
    }

    /// Starts an election immediately, without waiting for the leader's heartbeats to stop.
    pub async fn elect(&self) -> Result<(), RaftGroupError> {
        let result = self.raft.trigger().elect(true).await;
        result.map_err(|fatal| RaftGroupError::Stopped(fatal.to_string()))
    }

    /// Transfers leadership to another voter.
    pub async fn transfer(&self, to: u64) -> Result<(), RaftGroupError> {
        let result = self.raft.trigger().transfer_leader(to).await;
        result.map_err(|fatal| RaftGroupError::Stopped(fatal.to_string()))
    }
}
