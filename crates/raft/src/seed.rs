//! Creates a group of one node from a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::Disk;
use openraft::BasicNode;
use openraft::impls::leader_id_adv::LeaderId;

use crate::network::RaftMember;
use crate::snapshots::Snapshots;
use crate::type_config::{Blocks, LogId, Membership, SnapshotMeta, StoredMembership};

/// Writes the directory of a node that is the only member of its group. The node's state is in `blocks`; a
/// [`FrozenMachine`](crate::FrozenMachine) wrote these blocks. Fails if the directory already contains a state.
pub fn seed(
    disk: Arc<dyn Disk>,
    dir: &Path,
    member: &RaftMember,
    blocks: impl Iterator<Item = io::Result<Bytes>>,
) -> io::Result<()> {
    let mut snapshots = Snapshots::open(disk, &dir.join("snapshots"), 0)?;
    if snapshots.load()?.is_some() {
        let what = format!("{} already contains a cluster's state", dir.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    let voters = vec![BTreeSet::from([member.id])];
    let nodes = BTreeMap::from([(member.id, BasicNode::new(&member.address))]);
    let membership = Membership::new(voters, nodes).map_err(io::Error::other)?;
    let log_id = LogId { leader_id: LeaderId { term: 1, node_id: member.id }, index: 1 };
    let last_membership = StoredMembership::new(Some(log_id), membership);
    let meta = SnapshotMeta { last_log_id: Some(log_id), last_membership };
    if !snapshots.save(&meta, &Blocks(blocks.collect::<io::Result<_>>()?))? {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{} has no room for it", dir.display()),
        ));
    }
    Ok(())
}
