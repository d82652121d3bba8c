//! Serves requests to administer the cluster, which arrive at the cluster's port. A program needs a node's certificate
//! to send such requests. Every program that can read a node's data directory has this certificate.

use std::io;
use std::sync::Arc;

use dunlin::raft::{FrozenMachine, RaftMember, Status};
use dunlin::state::{ControlCommand, ControlReply, KeyOperation};
use dunlin::{Consistency, ControlError, ControlGroup, TaskShard, TasksError};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Duration, Instant, sleep, timeout};

use super::frame::{self, ClusterFrameKind, ClusterFrames};
use super::hello::Purpose;
use super::member::ClusterMember;
use super::records::{self, NodeRecord, TokenRecord};
use super::serving::send_frame;
use super::token::JoinToken;
use crate::figures::{FiguresRequest, FiguresResponse};
use crate::stream::Stream;

/// Pause between two checks whether an awaited change has happened.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest time for which a request waits until a change has happened.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a leader waits until another node takes over the lead. A leader gives up the lead when it stops or when its
/// disk is full.
pub(super) const TRANSFER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a node waits for another node's reply to a status request.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// A request to administer the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AdminRequest {
    /// Returns the node's view of the cluster.
    Status,
    /// Creates a join token.
    Token { ttl_ms: Option<u64>, reusable: bool },
    /// Removes the node with this number from the cluster.
    Remove { node: u64 },
    /// Transfers the leadership to node `to`; with `None`, to any other node.
    Transfer { to: Option<u64> },
    /// Sends the agreed state, with all keys, in parts. The reply follows after the last part.
    Backup,
    /// Sends all tasks of a shard in parts. The reply follows after the last part.
    BackupShard { shard: u8 },
    /// Returns the node's counters of topics, for example of their logs, publishers and subscribers.
    Figures(FiguresRequest),
}

/// The reply to an administration request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AdminReply {
    Status(Box<NodeStatus>),
    Token {
        token: String,
    },
    Done,
    Figures(FiguresResponse),
    Leads {
        node: u64,
    },
    /// The node has sent all parts of a backup; `parts` is the number of parts.
    Backup {
        parts: u64,
        revision: u64,
    },
    /// This node is not the leader. The client must send the request to the leader, which this reply names.
    Elsewhere {
        node: u64,
        address: String,
    },
    Refused {
        why: String,
    },
    Failed {
        why: String,
    },
}

/// The status of a cluster as one node sees it: leader, log, members, and whether this node is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The cluster's id.
    pub cluster: String,
    /// The number of the node that reports this status.
    pub node: u64,
    /// The version of Dunlin that the node runs.
    pub release: String,
    /// The number of the leader; `None` if the node knows no leader.
    pub leader: Option<u64>,
    /// The node's present Raft term.
    pub term: u64,
    /// Index of the last entry in the node's Raft log.
    pub last: u64,
    /// Index of the last entry of the Raft log that the node has applied.
    pub applied: u64,
    /// Index of the last entry that the node's snapshot contains.
    pub snapshot: u64,
    /// The revision of the last change to the keys.
    pub revision: u64,
    /// Number of shards into which the cluster divides its tasks.
    #[serde(default = "super::hello::default_shards")]
    pub shards: u8,
    /// Numbers of the nodes that are voters.
    pub voters: Vec<u64>,
    /// Numbers of the nodes that are learners.
    pub learners: Vec<u64>,
    /// All nodes in the cluster's table, including removed ones.
    pub nodes: Vec<NodeRecord>,
    /// Why the node is not ready; `None` if the node is ready.
    pub missing: Option<String>,
    /// Durations of the elections that this node won, µs.
    pub elections_us: Vec<u64>,
}

/// Serves the requests of one connection until the client disconnects.
pub(super) async fn serve(
    member: &Arc<ClusterMember>,
    mut frames: ClusterFrames<ReadHalf<Stream>>,
    mut write: WriteHalf<Stream>,
) -> io::Result<()> {
    loop {
        let frame = frames.next().await?;
        let id = frame.id;
        let reply = match super::parse(frame, ClusterFrameKind::Request)? {
            AdminRequest::Backup => match freeze_keys(member).await {
                Ok((keys, revision)) => send_parts(keys, revision, id, &mut write).await?,
                Err(reply) => reply,
            },
            AdminRequest::BackupShard { shard } => match freeze_tasks(member, shard).await {
                Ok(tasks) => send_parts(tasks, 0, id, &mut write).await?,
                Err(reply) => reply,
            },
            AdminRequest::Figures(request) => figures(member, request).await,
            request => handle_request(member, request).await,
        };
        send_frame(&mut write, id, ClusterFrameKind::Response, &super::to_json(&reply)).await?;
    }
}

async fn handle_request(member: &Arc<ClusterMember>, request: AdminRequest) -> AdminReply {
    let Some(control) = member.control() else {
        return starting();
    };
    let status = match control.status() {
        Ok(status) => status,
        Err(error) => return failed(&error),
    };
    let reply = match request {
        AdminRequest::Status => return AdminReply::Status(Box::new(node_status(member, control, &status))),
        AdminRequest::Token { ttl_ms, reusable } => create_token(member, control, ttl_ms, reusable).await,
        AdminRequest::Remove { node } => remove(member, control, node).await,
        AdminRequest::Transfer { to } => transfer(member, control, &status, to).await,
        AdminRequest::Backup | AdminRequest::BackupShard { .. } | AdminRequest::Figures(_) => {
            Err(AdminReply::Refused { why: "internal error: the request has another handler".to_owned() })
        }
    };
    reply.unwrap_or_else(|reply| reply)
}

/// Collects this node's counters of topics. The collection visits every topic, so it runs on a thread that serves no
/// connections.
async fn figures(member: &ClusterMember, request: FiguresRequest) -> AdminReply {
    let Some(source) = member.figures() else { return starting() };
    match tokio::task::spawn_blocking(move || source(&request)).await {
        Ok(response) => AdminReply::Figures(response),
        Err(error) => AdminReply::Failed { why: error.to_string() },
    }
}

/// Requests the counters of topics from another node.
pub(super) async fn request_figures(
    member: &ClusterMember,
    node: u64,
    address: &str,
    request: &FiguresRequest,
) -> io::Result<FiguresResponse> {
    match send_request(member, node, address, &AdminRequest::Figures(request.clone())).await? {
        AdminReply::Figures(response) => Ok(response),
        other => Err(io::Error::other(format!("the cluster returned an unexpected reply: {other:?}"))),
    }
}

/// Whether another node reports that it is ready. A node that sends no status in time counts as not ready.
pub(super) async fn is_ready(member: &ClusterMember, node: &RaftMember) -> bool {
    let reply =
        timeout(STATUS_TIMEOUT, send_request(member, node.id, &node.address, &AdminRequest::Status)).await;
    matches!(reply, Ok(Ok(AdminReply::Status(status))) if status.missing.is_none())
}

async fn send_request(
    member: &ClusterMember,
    node: u64,
    address: &str,
    request: &AdminRequest,
) -> io::Result<AdminReply> {
    let (mut frames, mut write) = member.open(node, address, Purpose::Admin).await?;
    send_frame(&mut write, 1, ClusterFrameKind::Request, &super::to_json(request)).await?;
    super::parse(frames.next().await?, ClusterFrameKind::Response)
}

fn failed(error: &ControlError) -> AdminReply {
    AdminReply::Failed { why: error.to_string() }
}

pub(super) fn node_status(member: &ClusterMember, control: &ControlGroup, status: &Status) -> NodeStatus {
    let (revision, nodes) =
        control.with(|state| (state.revision(), records::nodes(state))).unwrap_or_default();
    let ids = |members: &[dunlin::raft::RaftMember]| members.iter().map(|member| member.id).collect();
    let elections = control.elections_won().unwrap_or_default();
    NodeStatus {
        cluster: member.identity.cluster.clone(),
        node: status.id,
        release: super::RELEASE.to_owned(),
        leader: member.leader(status),
        term: status.term,
        last: status.last.unwrap_or(0),
        applied: status.applied.unwrap_or(0),
        snapshot: status.snapshot.unwrap_or(0),
        revision,
        shards: member.shards,
        voters: ids(&status.voters),
        learners: ids(&status.learners),
        nodes,
        missing: member.missing(),
        elections_us: elections.iter().map(|duration| duration.as_micros() as u64).collect(),
    }
}

async fn create_token(
    member: &ClusterMember,
    control: &ControlGroup,
    ttl_ms: Option<u64>,
    reusable: bool,
) -> Result<AdminReply, AdminReply> {
    let send =
        async |command: &ControlCommand<'_>| control.execute(command).await.map_err(|error| failed(&error));
    let internal = |error: super::ClusterError| AdminReply::Failed { why: error.to_string() };
    // A node that was restored from a backup deletes all join tokens before it adds itself to the table, because they
    // belong to the cluster of the backup. A token that is created before that would be deleted too. The new token is
    // therefore created only when this node is in the table.
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    while !member.is_announced() {
        if Instant::now() > deadline {
            return Err(AdminReply::Failed {
                why: "the cluster's table does not have this node yet: retry".to_owned(),
            });
        }
        sleep(CHECK_INTERVAL).await;
    }
    let token = JoinToken::new(member.authority.fingerprint().map_err(internal)?).map_err(internal)?;
    let lease = match ttl_ms {
        Some(ttl_ms) => match send(&ControlCommand::Grant { ttl_ms }).await? {
            ControlReply::Granted { lease, .. } => lease,
            other => return Err(AdminReply::Failed { why: format!("{other:?}") }),
        },
        None => 0,
    };
    let key = records::token_key(&JoinToken::digest(&token.secret));
    let value = records::value(&TokenRecord { reusable });
    let then = vec![KeyOperation::Put { key: &key, value: &value, lease }];
    send(&ControlCommand::System { compare: Vec::new(), then, otherwise: Vec::new() }).await?;
    Ok(AdminReply::Token { token: token.to_string() })
}

/// Explains why the node must not be removed: too few of the remaining voters respond to form a majority. `None` if the
/// node may be removed.
async fn removal_obstacle(
    member: &ClusterMember,
    status: &Status,
    node: u64,
    all: &[NodeRecord],
) -> Option<String> {
    let is_removed =
        |id: u64| id == node || all.iter().any(|record| record.node == id && record.removed.is_some());
    let remaining: Vec<&RaftMember> = status.voters.iter().filter(|member| !is_removed(member.id)).collect();
    let check_response = |voter: &&RaftMember| {
        let (id, address) = (voter.id, voter.address.clone());
        async move { id == member.identity.node || member.is_responding(id, &address).await }
    };
    let responses = join_all(remaining.iter().map(check_response)).await;
    let ids_by_response = |is_responding: bool| {
        let members =
            remaining.iter().zip(&responses).filter(move |(_, responses)| **responses == is_responding);
        members.map(|(member, _)| member.id.to_string()).collect::<Vec<_>>()
    };
    let (silent, needed) = (ids_by_response(false), remaining.len() / 2 + 1);
    (ids_by_response(true).len() < needed).then(|| {
        let voters: Vec<String> = remaining.iter().map(|member| member.id.to_string()).collect();
        format!(
            "cannot remove node {node}: {needed} of the remaining voters ({}) must respond, but these do \
             not: {}. Start them first, or remove one of them instead",
            voters.join(", "),
            silent.join(", ")
        )
    })
}

/// Marks a node as removed in the table, and waits until the leader has removed the node's vote.
async fn remove(member: &ClusterMember, control: &ControlGroup, node: u64) -> Result<AdminReply, AdminReply> {
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    while !mark_removed(member, control, node).await? {
        if Instant::now() > deadline {
            let why = format!("other commands changed the entry of node {node} during each attempt: retry");
            return Err(AdminReply::Failed { why });
        }
    }
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    loop {
        if !member.is_in_a_group(node) {
            return Ok(AdminReply::Done);
        }
        if Instant::now() > deadline {
            let why =
                "the node is marked as removed, but too few of the other nodes respond to remove its vote"
                    .to_owned();
            return Err(AdminReply::Failed { why });
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Marks a node as removed in the table. Returns `false` if the node's entry changed at the same time, for example
/// because the node wrote its addresses after its start. The caller must then retry.
async fn mark_removed(member: &ClusterMember, control: &ControlGroup, node: u64) -> Result<bool, AdminReply> {
    let failed = |error| failed(&error);
    let read = |state: &_| (records::node(state, node), records::nodes(state));
    let ((record, revision), all) = control.read(Consistency::Linearizable, read).await.map_err(failed)?;
    let Some(record) = record.filter(|record| record.removed.is_none()) else {
        return Err(AdminReply::Refused {
            why: format!("there is no node {node}: `dunlin cluster status` lists the nodes"),
        });
    };
    if all.iter().filter(|record| record.removed.is_none()).count() == 1 {
        return Err(AdminReply::Refused {
            why: format!("node {node} is the cluster's only node and cannot be removed"),
        });
    }
    let status = control.status().map_err(failed)?;
    if let Some(why) = removal_obstacle(member, &status, node, &all).await {
        return Err(AdminReply::Refused { why });
    }
    let removed = Some("by `dunlin cluster remove`".to_owned());
    let (key, value) = (records::node_key(node), records::value(&NodeRecord { removed, ..record }));
    let compare = vec![records::unchanged(&key, revision)];
    let then = vec![KeyOperation::Put { key: &key, value: &value, lease: 0 }];
    let command = ControlCommand::System { compare, then, otherwise: Vec::new() };
    let reply = control.execute(&command).await.map_err(failed)?;
    Ok(matches!(reply, ControlReply::Transaction { succeeded: true, .. }))
}

async fn transfer(
    member: &ClusterMember,
    control: &ControlGroup,
    status: &Status,
    to: Option<u64>,
) -> Result<AdminReply, AdminReply> {
    if status.leader != Some(status.id) {
        let leader = status.voters.iter().find(|member| Some(member.id) == status.leader);
        return Err(match leader {
            Some(leader) => AdminReply::Elsewhere { node: leader.id, address: leader.address.clone() },
            None => AdminReply::Failed { why: "nobody leads right now".to_owned() },
        });
    }
    if let Some(to) = to {
        let Some(voter) = status.voters.iter().find(|member| member.id == to) else {
            return Err(AdminReply::Refused { why: format!("node {to} has no vote") });
        };
        // If the lead were transferred to a node that does not respond, the other nodes would elect another leader.
        if to != status.id && !member.is_responding(to, &voter.address).await {
            let why =
                format!("node {to} does not respond: start it, or transfer the leadership to another node");
            return Err(AdminReply::Refused { why });
        }
    }
    match transfer_lead(control, to, CHANGE_TIMEOUT).await {
        Ok(Some(node)) if to.is_none_or(|to| to == node) => Ok(AdminReply::Leads { node }),
        // A third node was elected. The client must repeat the request there, because only the leader can transfer the
        // lead.
        Ok(Some(other)) => match status.voters.iter().find(|member| member.id == other) {
            Some(other) => Err(AdminReply::Elsewhere { node: other.id, address: other.address.clone() }),
            None => Err(AdminReply::Failed { why: format!("node {other} became the leader instead") }),
        },
        Ok(None) => Err(AdminReply::Failed { why: "no other node became the leader".to_owned() }),
        Err(error) => Err(failed(&error)),
    }
}

/// Transfers the lead to `to`; with `None`, tries the other voters in turn. Returns the new leader; `None` if no other
/// node took over. Waits at most `time_limit` for each tried node.
pub(super) async fn transfer_lead(
    control: &ControlGroup,
    to: Option<u64>,
    time_limit: Duration,
) -> Result<Option<u64>, ControlError> {
    let status = control.status()?;
    if to == Some(status.id) {
        return Ok(to);
    }
    let others = status.voters.iter().map(|member| member.id).filter(|id| *id != status.id);
    for other in to.into_iter().chain(others.filter(|_| to.is_none())) {
        control.transfer(other).await?;
        let deadline = Instant::now() + time_limit;
        while Instant::now() < deadline {
            let leader = control.status()?.leader;
            if leader.is_some_and(|leader| leader != status.id) {
                return Ok(leader);
            }
            sleep(CHECK_INTERVAL).await;
        }
    }
    Ok(None)
}

/// If this node leads the task shard, transfers the lead to `to`, or with `None` to any other voter.
pub(super) async fn transfer_task_lead(tasks: &TaskShard, to: Option<u64>) {
    let Ok(status) = tasks.status() else { return };
    if status.leader != Some(status.id) {
        return;
    }
    let is_candidate = |member: &&RaftMember| member.id != status.id && to.is_none_or(|to| member.id == to);
    for other in status.voters.iter().filter(is_candidate) {
        if tasks.transfer(other.id).await.is_err() {
            return;
        }
        let deadline = Instant::now() + TRANSFER_TIMEOUT;
        while Instant::now() < deadline {
            if tasks.status().is_ok_and(|now| now.leader.is_some_and(|leader| leader != status.id)) {
                return;
            }
            sleep(CHECK_INTERVAL).await;
        }
    }
}

/// Freezes the state of all keys for a backup. Also returns the revision of the last change.
async fn freeze_keys(member: &ClusterMember) -> Result<(Box<dyn FrozenMachine>, u64), AdminReply> {
    let control = member.control().ok_or_else(starting)?;
    let read = control.read(Consistency::Linearizable, |state| state.revision()).await;
    let revision = read.map_err(|error| failed(&error))?;
    Ok((control.freeze().map_err(|error| failed(&error))?, revision))
}

/// Freezes the state of a shard's tasks for a backup.
async fn freeze_tasks(member: &ClusterMember, shard: u8) -> Result<Box<dyn FrozenMachine>, AdminReply> {
    let tasks = member.tasks().ok_or_else(starting)?;
    let none = || AdminReply::Refused { why: format!("tasks' shard {shard} does not exist") };
    let shard = tasks.shards().get(usize::from(shard)).ok_or_else(none)?;
    let failed = |error: TasksError| AdminReply::Failed { why: error.to_string() };
    shard.catch_up().await.map_err(failed)?;
    shard.freeze().map_err(failed)
}

fn starting() -> AdminReply {
    AdminReply::Failed { why: "the node is starting".to_owned() }
}

/// Sends a frozen state to the client in parts. Returns the reply that follows the last part.
async fn send_parts(
    frozen: Box<dyn FrozenMachine>,
    revision: u64,
    id: u64,
    write: &mut WriteHalf<Stream>,
) -> io::Result<AdminReply> {
    let (blocks, mut receiver) = tokio::sync::mpsc::channel::<Vec<u8>>(4);
    let writer = tokio::task::spawn_blocking(move || {
        frozen.write(&mut |block| {
            blocks.blocking_send(block.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe.into())
        })
    });
    let mut parts = 0;
    let mut out = Vec::new();
    while let Some(block) = receiver.recv().await {
        out.clear();
        frame::encode(&mut out, id, ClusterFrameKind::Part, &block);
        write.write_all(&out).await?;
        parts += 1;
    }
    writer.await.map_err(io::Error::other)??;
    Ok(AdminReply::Backup { parts, revision })
}
