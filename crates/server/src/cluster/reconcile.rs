//! Does the periodic work of a cluster's member. Each member keeps its own entry in the cluster's table of nodes
//! current. The leader of each Raft group changes the group's members until they match the table.
//!
//! Invariants: only the leader changes voters, and adds only one at a time. A new node becomes a voter after it has
//! caught up with the group's log.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use dunlin::raft::{RaftMember, Status};
use dunlin::state::{ControlCommand, ControlState, KeyOperation};
use dunlin::{Consistency, ControlError, ControlGroup, TaskShard, Tasks, TasksError};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::admin;
use super::error::ClusterError;
use super::files::KnownMember;
use super::member::ClusterMember;
use super::records::{self, NodeRecord};
use super::registration::{self, StartOutcome};

/// Pause between two runs of the periodic work.
const INTERVAL: Duration = Duration::from_millis(300);
/// Maximum number of keys that one transaction deletes after a restore.
const DELETES_MAX: usize = 32;
/// How long a group's leader waits for one node to catch up before it turns to other nodes. The slow node continues to
/// catch up meanwhile.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a group's leader waits for a change of the group's members. The next run repeats the change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two checks whether a task shard's Raft group has a majority. It is longer than [`INTERVAL`], because
/// there may be many shards.
const TASKS_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two attempts of a leader with a full disk to transfer the lead.
const TRANSFER_INTERVAL: Duration = Duration::from_secs(2);

/// Repeats the member's periodic work until the future is dropped. Three parts of this work run separately:
/// [`reconcile_groups`], [`track_current_state`] and [`track_task_groups`].
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

/// Changes the members of the Raft groups until they match the table, and repeats this until the future is dropped. The
/// groups are changed concurrently, because each group may have to wait for a node that does not respond.
pub(super) async fn reconcile_groups(member: Arc<ClusterMember>) {
    loop {
        sleep(INTERVAL).await;
        let Some(control) = member.control() else { continue };
        let (Ok(status), Ok(table)) = (control.status(), control.with(records::nodes)) else { return };
        let keys = async {
            if status.leader == Some(status.id)
                && let Err(error) = reconcile_members(&**control, "keys", control, &status, &table).await
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

/// Tries to transfer the lead of each Raft group that this node leads. The new leader is the first other voter that is
/// ready; if no other voter is ready, nothing happens. Call this when this node's disk is full: a leader with a full
/// disk refuses changes that enlarge the state.
async fn transfer_leads(member: &ClusterMember, control: &ControlGroup, status: &Status) {
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

/// Checks periodically whether this node has the complete agreed state, and records each success.
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

/// Checks periodically whether the Raft group of each task shard has a leader with a majority, and records each success.
/// A group can have other voters than the keys' group while its voters change.
pub(super) async fn track_task_groups(member: Arc<ClusterMember>) {
    let groups: Vec<_> = (0..member.shards).map(|number| track_task_group(&member, number)).collect();
    join_all(groups).await;
}

async fn track_task_group(member: &ClusterMember, number: u8) {
    loop {
        if let Some(tasks) = member.tasks()
            && let Some(shard) = tasks.shards().get(usize::from(number))
            && shard.catch_up().await.is_ok()
        {
            member.set_task_majority(number);
        }
        sleep(TASKS_INTERVAL).await;
    }
}

/// Completes the restore of a backup, before the node serves clients. At this time, the node is the only voter.
///
/// The function removes the nodes and join tokens of the backup's cluster from the state. It begins new epochs, so that
/// subscribers of `$kv` and `$tasks` notice the restore. It skips revisions and numbers that clients of the old cluster
/// may have seen.
///
/// If the restore is interrupted, the next start completes it.
pub(super) async fn finish_restore(
    member: &ClusterMember,
    control: &ControlGroup,
) -> Result<(), ClusterError> {
    control.elect().await?;
    control.catch_up().await?;
    let read = |state: &ControlState| (records::next(state).0, records::keys(state));
    let (next, keys) = control.read(Consistency::Linearizable, read).await?;
    // The new epoch also depends on the clock. Otherwise, two restores of the same backup would begin the same epoch.
    control.begin_restored().await?;
    for shard in member.tasks().into_iter().flat_map(|tasks| tasks.shards()) {
        let failed = |error: TasksError| ClusterError::Refused(error.to_string());
        // A shard has begun only if the backup has tasks for it.
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

/// Updates this node's entry in the cluster's table, if its address or start is missing there.
async fn announce(member: &Arc<ClusterMember>, control: &ControlGroup) -> Result<(), ControlError> {
    let identity = &member.identity;
    let (known, revision) = control.with(|state| records::node(state, identity.node))?;
    let removed = known.as_ref().and_then(|record| record.removed.clone());
    if let Some(why) = removed {
        if member.is_in_a_group(identity.node) {
            // This node was removed, but the Raft groups still need its vote to complete the removal. As soon as they
            // no longer need the vote, other nodes refuse the request below permanently, and this node ends.
            registration::request_registration(member).await;
            return Ok(());
        }
        member.set_expelled(format!(
            "this node was removed from its cluster ({why}): empty its data directory, and let it join anew with a token"
        ));
        return Ok(());
    }
    if known.as_ref().is_none_or(|record| record.incarnation.as_ref() != Some(&identity.now)) {
        // The table does not have this start yet, or it has a later start that was made from a copy of this node's
        // directory.
        match registration::request_registration(member).await {
            StartOutcome::Refused(why) => member.set_expelled(why),
            StartOutcome::Silent(why) | StartOutcome::Unknown(why) => {
                tracing::debug!("the cluster has not registered this start of the node yet: {why}")
            }
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
    // If the entry has changed since it was read, nothing is written, and the next run tries again.
    control.execute(&ControlCommand::System { compare, then, otherwise: Vec::new() }).await.map(drop)
}

/// A Raft group whose members can be changed.
trait RaftGroup {
    async fn set_voters(&self, voters: &[u64]) -> Result<(), String>;
    async fn add_learner(&self, member: &RaftMember) -> Result<(), String>;
    async fn remove_learner(&self, node: u64) -> Result<(), String>;
    async fn set_address(&self, member: &RaftMember) -> Result<(), String>;
}

/// Waits for a change of a group's members, but no longer than [`CHANGE_TIMEOUT`]. Without a majority, the change would
/// not end, and the changes of all other groups would wait for it.
async fn in_time<E: Display>(change: impl Future<Output = Result<(), E>>) -> Result<(), String> {
    match timeout(CHANGE_TIMEOUT, change).await {
        Ok(changed) => changed.map_err(|error| error.to_string()),
        Err(_late) => Err("too few of the group's voters respond".to_owned()),
    }
}

macro_rules! impl_raft_group {
    ($($group:ty)*) => {$(
        impl RaftGroup for $group {
            async fn set_voters(&self, voters: &[u64]) -> Result<(), String> {
                in_time(<$group>::set_voters(self, voters)).await
            }

            async fn add_learner(&self, member: &RaftMember) -> Result<(), String> {
                <$group>::add_learner(self, member).await.map_err(|error| error.to_string())
            }

            async fn remove_learner(&self, node: u64) -> Result<(), String> {
                in_time(<$group>::remove_learner(self, node)).await
            }

            async fn set_address(&self, member: &RaftMember) -> Result<(), String> {
                in_time(<$group>::set_address(self, member)).await
            }
        }
    )*};
}
impl_raft_group!(ControlGroup TaskShard);

/// Changes the members of the task shards' Raft groups until they match the table. One node begins these groups, once
/// in the cluster's life. From then on, each group's leader changes its members.
async fn reconcile_tasks(
    tasks: &Tasks,
    control: &ControlGroup,
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
            // If one shard fails, the others are still handled.
            join_all(shards).await.into_iter().collect()
        }
        None => Ok(()),
    }
}

async fn reconcile_shard(
    shard: &TaskShard,
    control: &ControlGroup,
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
        true => {
            let name = format!("tasks' shard {}", shard.number());
            reconcile_members(shard, &name, control, &status, table).await
        }
        false => Ok(()),
    }
}

/// Waits until the table marks the node as removed. The leader then stops waiting for the node to catch up, because a
/// removed node may be down for ever.
async fn wait_until_removed(control: &ControlGroup, node: u64) {
    let is_removed = |record: NodeRecord| record.removed.is_some();
    while !control.with(|state| records::node(state, node).0).is_ok_and(|found| found.is_some_and(is_removed))
    {
        sleep(INTERVAL).await;
    }
}

/// Makes at most one change to the group's members. Each change brings them closer to the members in the table. Log
/// lines show the group's `name`.
async fn reconcile_members(
    group: &impl RaftGroup,
    name: &str,
    control: &ControlGroup,
    status: &Status,
    table: &[NodeRecord],
) -> Result<(), String> {
    let expected: BTreeMap<u64, &NodeRecord> =
        table.iter().filter(|record| record.removed.is_none()).map(|record| (record.node, record)).collect();
    // Before this node has written its own entry, the table is incomplete.
    if !expected.contains_key(&status.id) && !table.iter().any(|record| record.node == status.id) {
        return Ok(());
    }
    let keeps_vote = |member: &&RaftMember| expected.contains_key(&member.id);
    let remaining_voters: Vec<u64> =
        status.voters.iter().filter(keeps_vote).map(|member| member.id).collect();
    // This call also completes an earlier change of the voters that was interrupted. Until that change is complete, the
    // group would also need a majority of the previous voters.
    if (remaining_voters.len() < status.voters.len() || status.is_changing) && !remaining_voters.is_empty() {
        tracing::info!(group = name, ?remaining_voters, "setting the voters");
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
                    // This branch is polled first, so that no node is added after its removal.
                    () = wait_until_removed(control, *node) => continue,
                    caught_up = timeout(CATCH_UP_TIMEOUT, group.add_learner(&learner)) => caught_up,
                };
                let Ok(caught_up) = caught_up else { continue };
                caught_up?;
                tracing::info!(node, group = name, "the node has caught up and becomes a voter");
                let voters: Vec<u64> = remaining_voters.iter().copied().chain([*node]).collect();
                return group.set_voters(&voters).await;
            }
        }
    }
    Ok(())
}

/// Writes the members to `members.json`, where commands find them while this node is down.
fn write_members(member: &ClusterMember, status: &Status, written_members: &mut Vec<KnownMember>) {
    let known = KnownMember::all(status);
    if !known.is_empty() && known != *written_members && member.files.write_members(&known).is_ok() {
        *written_members = known;
    }
}
