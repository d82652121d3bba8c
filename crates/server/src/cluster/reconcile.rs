//! Periodic work of a member, which keeps the member's entry in the cluster's table current. The leader of a Raft group
//! also makes the group's voters follow the table.
//!
//! Invariants: only the leader changes voters, one at a time; a node becomes a voter when it has caught up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dunlin::raft::{RaftMember, Status};
use dunlin::state::{ControlCommand, ControlState, KeyOperation};
use dunlin::{Consistency, Control, ControlError, TaskShard, Tasks, TasksError};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::admin;
use super::error::ClusterError;
use super::files::KnownMember;
use super::member::ClusterMember;
use super::records::{self, NodeRecord};
use super::registration::{self, StartOutcome};

/// Interval of the periodic work.
const INTERVAL: Duration = Duration::from_millis(300);
/// Maximum number of records of a restored state that are deleted in one transaction.
const DELETES_MAX: usize = 32;
/// How long a group's leader waits for a node to catch up before it handles other nodes. The node continues to
/// catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a leader with a full disk tries to transfer the lead.
const TRANSFER_INTERVAL: Duration = Duration::from_secs(2);

/// Does all periodic work other than changing the members of Raft groups, until the future is dropped.
pub(super) async fn run(member: Arc<ClusterMember>) {
    let mut written_members = Vec::new();
    let mut leader = None;
    let mut next_transfer_at = Instant::now();
    loop {
        sleep(INTERVAL).await;
        let Some(control) = member.control() else { continue };
        let (Ok(status), Ok(table)) = (control.status(), control.with(records::nodes)) else { return };
        if leader != status.leader {
            leader = status.leader;
            tracing::info!(leader, term = status.term, "the leader has changed");
        }
        member.store_table(&table);
        if let Err(error) = announce(&member, control).await {
            tracing::debug!("cannot register this node's address yet: {error}");
        }
        write_members(&member, &status, &mut written_members);
        if member.lacks_room().is_some() && Instant::now() >= next_transfer_at {
            transfer_leads(&member, control, &status).await;
            next_transfer_at = Instant::now() + TRANSFER_INTERVAL;
        }
    }
}

/// Makes the members of the Raft groups equal to the table, until the future is dropped. All groups are handled at the
/// same time, because each may wait for a node that does not respond.
pub(super) async fn reconcile_groups(member: Arc<ClusterMember>) {
    loop {
        sleep(INTERVAL).await;
        let Some(control) = member.control() else { continue };
        let (Ok(status), Ok(table)) = (control.status(), control.with(records::nodes)) else { return };
        let keys = async {
            if status.leader == Some(status.id)
                && let Err(error) = reconcile_members(&**control, control, &status, &table).await
            {
                tracing::info!("the voters do not match the table of nodes yet: {error}");
            }
        };
        let tasks = async {
            if let Some(tasks) = member.tasks()
                && let Err(error) = reconcile_tasks(tasks, control, &status, &table).await
            {
                tracing::info!("the tasks' Raft group does not match the table of nodes yet: {error}");
            }
        };
        tokio::join!(keys, tasks);
    }
}

/// Transfers the lead to a node that is ready. To be called when this leader's disk is full, because such a leader
/// refuses changes that enlarge the state.
async fn transfer_leads(member: &ClusterMember, control: &Control, status: &Status) {
    let is_leader = |status: &Status| status.leader == Some(status.id);
    let shards = || member.tasks().into_iter().flat_map(|tasks| tasks.shards());
    let leads_keys = is_leader(status);
    if !leads_keys && !shards().any(|shard| shard.status().is_ok_and(|status| is_leader(&status))) {
        return;
    }
    for other in status.voters.iter().filter(|voter| voter.id != status.id) {
        if !admin::is_ready(member, other).await {
            continue;
        }
        if leads_keys {
            match admin::transfer_lead(control, Some(other.id), admin::TRANSFER_TIMEOUT).await {
                Ok(Some(leader)) => {
                    tracing::warn!(leader, "this node gave up the leadership, because its disk is full")
                }
                Ok(None) => tracing::warn!(
                    node = other.id,
                    "the disk of this node is full, but no other node becomes the leader"
                ),
                Err(error) => {
                    tracing::warn!("the disk of this node is full, and the leadership cannot move: {error}")
                }
            }
        }
        for shard in shards() {
            admin::transfer_task_lead(shard, Some(other.id)).await;
        }
        return;
    }
}

/// Checks repeatedly whether this node has the complete agreed state, and records the result.
pub(super) async fn track_current_state(member: Arc<ClusterMember>) {
    loop {
        if let Some(control) = member.control()
            && control.read(Consistency::Linearizable, |_| ()).await.is_ok()
        {
            member.set_current();
        }
        sleep(INTERVAL).await;
    }
}

/// Finishes a restore, before the node serves clients. Removes the nodes and join tokens of the backup's cluster.
/// Begins new epochs, by which subscribers of `$kv` and `$tasks` notice the restore. Skips the revisions and numbers
/// that clients of the old cluster may know. The node is the only voter at this time. The next start finishes an
/// interrupted restore.
pub(super) async fn finish_restore(member: &ClusterMember, control: &Control) -> Result<(), ClusterError> {
    control.elect().await?;
    control.catch_up().await?;
    let read = |state: &ControlState| (records::next(state).0, records::keys(state));
    let (next, keys) = control.read(Consistency::Linearizable, read).await?;
    // The new epoch also depends on the clock: another restore of the same backup may have begun an epoch with the next
    // number.
    control.begin_restored().await?;
    for shard in member.tasks().into_iter().flat_map(|tasks| tasks.shards()) {
        let failed = |error: TasksError| ClusterError::Refused(error.to_string());
        // If the backup has no tasks, no task shard has begun.
        if shard.is_begun().await.map_err(failed)? {
            shard.elect().await.map_err(failed)?;
            shard.begin_restored().await.map_err(failed)?;
        }
    }
    let next = records::value(&next);
    let first = KeyOperation::Put { key: records::NEXT, value: &next, lease: 0 };
    let deletes = keys.iter().filter(|key| **key != records::NEXT).map(|key| KeyOperation::Delete { key });
    let all: Vec<KeyOperation<'_>> = [first].into_iter().chain(deletes).collect();
    for then in all.chunks(DELETES_MAX) {
        let (compare, then) = (Vec::new(), then.to_vec());
        control.execute(&ControlCommand::System { compare, then, otherwise: Vec::new() }).await?;
    }
    member.files.write_identity(&member.identity.clone().settled())
}

/// Writes this node's address and start into the table.
async fn announce(member: &Arc<ClusterMember>, control: &Control) -> Result<(), ControlError> {
    let identity = &member.identity;
    let (known, revision) = control.with(|state| records::node(state, identity.node))?;
    let removed = known.as_ref().and_then(|record| record.removed.clone());
    if let Some(why) = removed {
        if member.is_in_a_group(identity.node) {
            // The Raft groups still need this node's vote to remove it. Once they do not, other nodes refuse this node
            // permanently.
            registration::request_registration(member).await;
            return Ok(());
        }
        member.set_expelled(format!(
            "this node was removed from its cluster ({why}): empty its data directory, and let it join anew with a token"
        ));
        return Ok(());
    }
    if known.as_ref().is_none_or(|record| record.incarnation.as_ref() != Some(&identity.now)) {
        // The table does not have this start yet, or has a later start of this node.
        match registration::request_registration(member).await {
            StartOutcome::Refused(why) => member.set_expelled(why),
            StartOutcome::Silent(why) | StartOutcome::Unknown(why) => tracing::debug!(
                "this start is not registered \
                 yet: {why}"
            ),
            StartOutcome::Registered => {}
        }
        return Ok(());
    }
    let record = member.own_record();
    if known.as_ref() == Some(&record) {
        member.set_announced();
        return Ok(());
    }
    let (key, value) = (records::node_key(identity.node), records::value(&record));
    let compare = vec![records::unchanged(&key, revision)];
    let then = vec![KeyOperation::Put { key: &key, value: &value, lease: 0 }];
    // If the record has changed in the meantime, the next run reads it.
    control.execute(&ControlCommand::System { compare, then, otherwise: Vec::new() }).await.map(drop)
}

/// A Raft group whose members are changed until they equal the table.
trait RaftGroup {
    async fn set_voters(&self, voters: &[u64]) -> Result<(), String>;
    async fn add_learner(&self, member: &RaftMember) -> Result<(), String>;
    async fn remove_learner(&self, node: u64) -> Result<(), String>;
    async fn set_address(&self, member: &RaftMember) -> Result<(), String>;
}

macro_rules! impl_raft_group {
    ($($group:ty)*) => {$(
        impl RaftGroup for $group {
            async fn set_voters(&self, voters: &[u64]) -> Result<(), String> {
                <$group>::set_voters(self, voters).await.map_err(|error| error.to_string())
            }

            async fn add_learner(&self, member: &RaftMember) -> Result<(), String> {
                <$group>::add_learner(self, member).await.map_err(|error| error.to_string())
            }

            async fn remove_learner(&self, node: u64) -> Result<(), String> {
                <$group>::remove_learner(self, node).await.map_err(|error| error.to_string())
            }

            async fn set_address(&self, member: &RaftMember) -> Result<(), String> {
                <$group>::set_address(self, member).await.map_err(|error| error.to_string())
            }
        }
    )*};
}
impl_raft_group!(Control TaskShard);

/// Makes the members of the task shards' Raft groups equal to the table. One node begins the groups, once in the
/// cluster's life. Afterwards, each group's leader changes its members.
async fn reconcile_tasks(
    tasks: &Tasks,
    control: &Control,
    status: &Status,
    table: &[NodeRecord],
) -> Result<(), String> {
    let failed = |error: ControlError| error.to_string();
    match control.with(records::tasks_founder).map_err(failed)? {
        None if status.leader == Some(status.id) => {
            let value = records::value(&status.id);
            let compare = vec![records::unchanged(records::TASKS, 0)];
            let then = vec![KeyOperation::Put { key: records::TASKS, value: &value, lease: 0 }];
            let command = ControlCommand::System { compare, then, otherwise: Vec::new() };
            return control.execute(&command).await.map(drop).map_err(failed);
        }
        Some(node) => {
            let begins = node == status.id;
            let shards: Vec<_> =
                tasks.shards().iter().map(|shard| reconcile_shard(shard, control, begins, table)).collect();
            // A failure of one shard does not stop the others.
            join_all(shards).await.into_iter().collect()
        }
        None => Ok(()),
    }
}

async fn reconcile_shard(
    shard: &TaskShard,
    control: &Control,
    begins: bool,
    table: &[NodeRecord],
) -> Result<(), String> {
    let status = shard.status().map_err(|error| error.to_string())?;
    if begins && !shard.is_begun().await.map_err(|error| error.to_string())? {
        let own = table.iter().find(|record| record.node == status.id);
        let Some(address) = own.map(|record| record.address.clone()) else { return Ok(()) };
        let begun = shard.begin(&[RaftMember { id: status.id, address }]).await;
        return begun.map_err(|error| error.to_string());
    }
    match status.leader == Some(status.id) {
        true => reconcile_members(shard, control, &status, table).await,
        false => Ok(()),
    }
}

/// Waits until the table says that a node was removed. Such a node may be down, and never catch up.
async fn wait_until_removed(control: &Control, node: u64) {
    let is_removed = |record: NodeRecord| record.removed.is_some();
    while !control.with(|state| records::node(state, node).0).is_ok_and(|found| found.is_some_and(is_removed))
    {
        sleep(INTERVAL).await;
    }
}

/// Changes the group's members by one step towards the table.
async fn reconcile_members(
    group: &impl RaftGroup,
    control: &Control,
    status: &Status,
    table: &[NodeRecord],
) -> Result<(), String> {
    let expected: BTreeMap<u64, &NodeRecord> =
        table.iter().filter(|record| record.removed.is_none()).map(|record| (record.node, record)).collect();
    // The table is incomplete before this node has written its own entry.
    if !expected.contains_key(&status.id) && !table.iter().any(|record| record.node == status.id) {
        return Ok(());
    }
    let keeps_vote = |member: &&RaftMember| expected.contains_key(&member.id);
    let remaining_voters: Vec<u64> =
        status.voters.iter().filter(keeps_vote).map(|member| member.id).collect();
    if remaining_voters.len() < status.voters.len() && !remaining_voters.is_empty() {
        tracing::info!(?remaining_voters, "removing the votes of removed nodes");
        return group.set_voters(&remaining_voters).await;
    }
    if let Some(removed) = status.learners.iter().find(|member| !expected.contains_key(&member.id)) {
        return group.remove_learner(removed.id).await;
    }
    let group_members = || status.voters.iter().chain(&status.learners);
    for (node, record) in &expected {
        let address = record.address.clone();
        match group_members().find(|member| member.id == *node) {
            Some(member) if member.address != address => {
                return group.set_address(&RaftMember { id: *node, address }).await;
            }
            Some(_) if status.voters.iter().any(|member| member.id == *node) => {}
            _ => {
                let learner = RaftMember { id: *node, address };
                let caught_up = tokio::select! {
                    biased;
                    // This branch comes first, so that a node which was removed already is not added.
                    () = wait_until_removed(control, *node) => continue,
                    caught_up = timeout(CATCH_UP_TIMEOUT, group.add_learner(&learner)) => caught_up,
                };
                let Ok(caught_up) = caught_up else { continue };
                caught_up?;
                tracing::info!(node, "the node has caught up and becomes a voter");
                let voters: Vec<u64> = remaining_voters.iter().copied().chain([*node]).collect();
                return group.set_voters(&voters).await;
            }
        }
    }
    Ok(())
}

/// Writes the members to a file, for commands that run while this node is down.
fn write_members(member: &ClusterMember, status: &Status, written_members: &mut Vec<KnownMember>) {
    let known = KnownMember::all(status);
    if !known.is_empty() && known != *written_members && member.files.write_members(&known).is_ok() {
        *written_members = known;
    }
}
