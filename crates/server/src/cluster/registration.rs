//! Registers each start of a node with the cluster. If a node's directory was copied, only one of the copies can
//! register a start. The lineage of a directory is the list of all starts from this directory. The messages:
//!
//! ```text
//!  started node                      any node                leader
//!     | Started{lineage, address} ----> |                      |
//!     |                                 | which start responds at the node's address in the table?
//!     | <---------------- Runs/Silent - |  another process of the node
//!     | <---------- Elsewhere{leader} - |  none                |
//!     | Started{lineage, address} -----------------------------> |  asks the same question; then checks its own table:
//!     | <------------------------------------------------ Stale - |  the registered start is not in the lineage
//!     | <---------------------------------------------- TakenIn - |  start and address are registered (a transaction)
//! ```
//!
//! Invariants:
//! - The cluster stores starts only in its table. If a start is refused, nothing is stored that could later cause
//!   another refusal.
//! - No other start is accepted while the registered start responds, has an unexpired lease, or still listens at its
//!   address.
//! - If the registered start meets none of these conditions, another start is accepted if its directory's lineage
//!   contains the registered start. Later starts in the lineage need not have been registered.
//!
//! Limits: if an earlier start does not respond, a new start waits at most `SILENT_TIMEOUT` for the end of the earlier
//! one. Without a leader, a node starts unregistered, and registers when there is a leader.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dunlin::Consistency;
use dunlin::state::{ControlCommand, ControlReply, KeyOperation};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::files::{Incarnation, KnownMember};
use super::frame::ClusterFrameKind;
use super::hello::Purpose;
use super::member::ClusterMember;
use super::records::{self, NodeRecord};
use super::serving::send_frame;

/// How long a new start waits for the end of an earlier start that does not respond.
const SILENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to register a start.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// The request of a node that wants to register its last start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartRequest {
    /// The starts from the node's directory, newest first.
    lineage: Vec<Incarnation>,
    /// The entry that the cluster's table should have for the node.
    record: NodeRecord,
}

/// The reply to a request to register a start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StartReply {
    /// The cluster has registered this start of the node.
    TakenIn,
    /// Another process of this node responds at `address`.
    Runs { address: String },
    /// Another process of this node may still run at `address`. The process does not respond, but its lease has not
    /// ended, or something listens at `address`.
    Silent { address: String },
    /// The directory's lineage does not contain the registered start, whose number is `number`.
    Stale { number: u64 },
    /// The node that replies is not the leader. The request must be sent to the leader.
    Elsewhere { leader: KnownMember },
    /// The start cannot be registered now. The node must try again later.
    Later { why: String },
}

/// The result of an attempt to register this node's start.
pub(super) enum StartOutcome {
    Registered,
    /// Another process of this node may still run. The process does not respond, but its lease has not ended, or
    /// something listens at its address.
    Silent(String),
    Refused(String),
    /// It is unknown whether the start is registered, because there is no reachable leader.
    Unknown(String),
}

impl StartRequest {
    fn of(member: &ClusterMember) -> StartRequest {
        let lineage = member.identity.lineage();
        let record = member.own_record();
        StartRequest { lineage, record }
    }
}

/// Registers this node's start. If an earlier start does not respond, tries again for [`SILENT_TIMEOUT`]. Fails if the
/// cluster refuses the start. Succeeds without a registration if no leader is reachable; the periodic work then
/// registers the start.
pub(super) async fn register(member: &Arc<ClusterMember>) -> Result<(), String> {
    let deadline = Instant::now() + SILENT_TIMEOUT;
    loop {
        match request_registration(member).await {
            StartOutcome::Refused(why) => return Err(why),
            StartOutcome::Silent(why) if Instant::now() >= deadline => return Err(why),
            StartOutcome::Silent(_) => sleep(RETRY_PAUSE).await,
            StartOutcome::Registered => return Ok(()),
            StartOutcome::Unknown(why) => {
                tracing::debug!("the cluster does not know of this start of the node yet: {why}");
                return Ok(());
            }
        }
    }
}

/// Sends the request to one node after another until a reply is final. If this node is the leader, it handles the
/// request itself.
pub(super) async fn request_registration(member: &Arc<ClusterMember>) -> StartOutcome {
    let status = member.status();
    if status.as_ref().is_some_and(|status| status.leader == Some(status.id)) {
        return to_outcome(
            member,
            handle_request(member, member.identity.node, StartRequest::of(member)).await,
        );
    }
    let mut others = member.files.members();
    others.extend(status.iter().flat_map(KnownMember::all));
    others.retain(|other| other.node != member.identity.node);
    others.dedup();
    let mut last = StartOutcome::Unknown("no other node is reachable".to_owned());
    for other in others {
        let reply = match send_request(member, &other).await {
            Ok(StartReply::Elsewhere { leader }) if leader.node != member.identity.node => {
                send_request(member, &leader).await
            }
            reply => reply,
        };
        if let Some(why) = member.ended() {
            return StartOutcome::Refused(why);
        }
        match reply.map(|reply| to_outcome(member, reply)) {
            Ok(StartOutcome::Unknown(why)) => last = StartOutcome::Unknown(why),
            Ok(outcome) => return outcome,
            Err(error) => tracing::debug!(node = other.node, "a node is unreachable: {error}"),
        }
    }
    last
}

fn to_outcome(member: &ClusterMember, reply: StartReply) -> StartOutcome {
    let (node, own) = (member.identity.node, member.identity.now.number);
    match reply {
        StartReply::TakenIn => StartOutcome::Registered,
        StartReply::Runs { address } => StartOutcome::Refused(format!(
            "node {node} runs already, at {address}: this directory is a copy of that node's, or the node has not ended yet. Give a new node an \
             empty directory and let it join; to move node {node}, end it first"
        )),
        StartReply::Silent { address } => StartOutcome::Silent(format!(
            "node {node} seems to run at {address}: it does not respond there, but keeps its lease. End that \
             node first; if this directory is a copy of that node's, give the new node an empty directory \
             and let it join"
        )),
        StartReply::Stale { number } => StartOutcome::Refused(format!(
            "the directory of node {node} is stale: the cluster recorded start number {number} of the node, \
             but that start is not in this directory's history (this start is number {own}). The directory \
             is an older copy, or the node was later started from a copy of the directory. Start the node \
             with its latest directory; if that directory is lost, run `dunlin cluster remove {node}`, empty \
             this directory, and let the node join anew"
        )),
        StartReply::Elsewhere { leader } => {
            StartOutcome::Unknown(format!("the other node says that node {} is the leader", leader.node))
        }
        StartReply::Later { why } => StartOutcome::Unknown(why),
    }
}

async fn send_request(member: &ClusterMember, other: &KnownMember) -> io::Result<StartReply> {
    let connect = Duration::from_millis(member.limits.connect_ms_max);
    let opened = member.open(other.node, &other.address, Purpose::Start);
    let (mut frames, mut write) = timeout(connect, opened).await??;
    send_frame(&mut write, 1, ClusterFrameKind::Request, &super::to_json(&StartRequest::of(member))).await?;
    let response = timeout(Duration::from_millis(member.limits.handshake_ms_max), frames.next()).await??;
    super::parse(response, ClusterFrameKind::Response)
}

/// Handles another node's request to register its start, and returns the reply.
pub(super) async fn handle_request(
    member: &Arc<ClusterMember>,
    node: u64,
    request: StartRequest,
) -> StartReply {
    let later = |why: String| StartReply::Later { why };
    let Some(control) = member.control() else { return later("that node is starting".to_owned()) };
    let status = match control.status() {
        Ok(status) => status,
        Err(error) => return later(error.to_string()),
    };
    let leads = status.leader == Some(status.id);
    let entry = match leads {
        true => control.read(Consistency::Linearizable, |state| records::node(state, node)).await,
        false => control.with(|state| records::node(state, node)),
    };
    let (known, revision) = match entry {
        Ok(entry) => entry,
        Err(error) => return later(error.to_string()),
    };
    if let Some(reply) = check(member, node, known.as_ref(), &request, leads).await {
        return reply;
    }
    if !leads {
        let leader = status.voters.iter().find(|member| Some(member.id) == status.leader);
        let leader = leader.map(|member| KnownMember { node: member.id, address: member.address.clone() });
        let none = || later("the cluster has no leader right now".to_owned());
        return leader.map_or_else(none, |leader| StartReply::Elsewhere { leader });
    }
    let (key, value) = (records::node_key(node), records::value(&NodeRecord { node, ..request.record }));
    let compare = vec![records::unchanged(&key, revision)];
    let then = vec![KeyOperation::Put { key: &key, value: &value, lease: 0 }];
    match control.execute(&ControlCommand::System { compare, then, otherwise: Vec::new() }).await {
        Ok(ControlReply::Transaction { succeeded: true, .. }) => StartReply::TakenIn,
        Ok(_) => later("the node's entry was changed at the same time".to_owned()),
        Err(error) => later(error.to_string()),
    }
}

/// Checks whether the start may be registered. Returns `None` if it may, otherwise the reply.
///
/// After `None`, the leader writes the start to the table, and any other node refers the starting node to the leader.
/// Only the leader replies `Stale`, because another node's copy of the table may be old.
async fn check(
    member: &ClusterMember,
    node: u64,
    known: Option<&NodeRecord>,
    request: &StartRequest,
    leads: bool,
) -> Option<StartReply> {
    let Some(now) = request.lineage.first() else {
        return Some(StartReply::Later { why: "the request has no start".to_owned() });
    };
    let known = known?;
    if let Some(why) = &known.removed {
        return Some(StartReply::Later { why: format!("node {node} was removed ({why})") });
    }
    let last = known.incarnation.as_ref()?;
    if last == now {
        return leads.then_some(StartReply::TakenIn);
    }
    if leads && !request.lineage.contains(last) {
        return Some(StartReply::Stale { number: last.number });
    }
    let address = known.address.clone();
    match member.incarnation_at(node, &address).await {
        Ok(Some(incarnation)) if incarnation == *now => None,
        Ok(_) => Some(StartReply::Runs { address }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
        Err(error) => {
            let has_lease = member.ownership().is_some_and(|ownership| ownership.is_alive(node));
            let is_running =
                has_lease || error.kind() == io::ErrorKind::TimedOut && is_listening(member, &address).await;
            is_running.then_some(StartReply::Silent { address })
        }
    }
}

/// Whether a process listens at the address, even if it does not respond. A busy machine may let the lease of a running
/// node end; this check still detects the node.
async fn is_listening(member: &ClusterMember, address: &str) -> bool {
    let connect = Duration::from_millis(member.limits.connect_ms_max);
    matches!(timeout(connect, TcpStream::connect(address)).await, Ok(Ok(_)))
}
