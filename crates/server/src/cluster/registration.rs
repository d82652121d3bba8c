//! Registers each start of a node with the cluster. If a node's directory was copied, the cluster accepts a start of
//! only one of the copies. The lineage of a directory is the list of the starts from this directory.
//!
//! ```text
//!  started node                      any node                leader
//!     | Started{lineage, address} ----> |                      |
//!     |                                 | which start responds at the node's address in the table?
//!     | <---------------- Runs/Silent - |  another start of the node
//!     | <---------- Elsewhere{leader} - |  none                |
//!     | Started{lineage, address} -----------------------------> |  asks the same question; then checks its own table:
//!     | <------------------------------------------------ Stale - |  the registered start is not in the lineage
//!     | <---------------------------------------------- TakenIn - |  start and address are registered (a transaction)
//! ```
//!
//! Invariants:
//! - Only the table stores starts. A refused start leaves no data that could cause another refusal.
//! - No other start is accepted while the registered one responds, or its lease holds, or its process still listens.
//! - A start is accepted if the registered start is in the lineage of its directory, even if later starts from this
//!   directory were never registered.
//!
//! Limits: a start waits `SILENT_TIMEOUT` for an earlier start that does not respond. Without a leader a node
//! continues, and registers once there is a leader.

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

/// How long a starting node waits for the end of the lease of an earlier start that does not respond.
const SILENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to register the start.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// A node's request to the cluster to register its start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartRequest {
    /// The starts of the node's directory, newest first.
    lineage: Vec<Incarnation>,
    /// The node's entry for the table.
    record: NodeRecord,
}

/// The reply to a request to register a start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StartReply {
    /// The start is registered.
    TakenIn,
    /// Another start of the node responds at `address`.
    Runs { address: String },
    /// Another start of the node may be running: it does not respond at `address`, but its lease has not ended or its
    /// process still listens.
    Silent { address: String },
    /// The registered start belongs to another directory.
    Stale { number: u64 },
    /// The node must send the request to the leader.
    Elsewhere { leader: KnownMember },
    /// Try again later.
    Later { why: String },
}

/// The result of asking the other nodes to register this start.
pub(super) enum StartOutcome {
    Registered,
    /// Another start of the node may be running: it does not respond, but its lease has not ended or its process still
    /// listens.
    Silent(String),
    Refused(String),
    /// The result is unknown: there is no leader, or it is unreachable.
    Unknown(String),
}

impl StartRequest {
    fn of(member: &ClusterMember) -> StartRequest {
        let lineage = member.identity.lineage();
        let record = member.own_record();
        StartRequest { lineage, record }
    }
}

/// Registers this start. Waits up to [`SILENT_TIMEOUT`] for an earlier start that does not respond. Fails if the
/// cluster refuses the start. Succeeds if no leader is reachable: the start is then registered later.
pub(super) async fn register(member: &Arc<ClusterMember>) -> Result<(), String> {
    let deadline = Instant::now() + SILENT_TIMEOUT;
    loop {
        match request_registration(member).await {
            StartOutcome::Refused(why) => return Err(why),
            StartOutcome::Silent(why) if Instant::now() >= deadline => return Err(why),
            StartOutcome::Silent(_) => sleep(RETRY_PAUSE).await,
            StartOutcome::Registered => return Ok(()),
            StartOutcome::Unknown(why) => {
                tracing::debug!("the cluster does not know of this start yet: {why}");
                return Ok(());
            }
        }
    }
}

/// Asks one node after another until one gives a final reply. If this node leads, asks only itself.
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
            "node {node} seems to run at {address}: it does not answer there, but keeps its lease. End it first; if this directory is a \
             copy of that node's, give the new node an empty one and let it join"
        )),
        StartReply::Stale { number } => StartOutcome::Refused(format!(
            "the directory of node {node} is stale: the cluster knows of its start number {number}, which was not of this directory \
             (this is its start number {own}). It is an older copy, or a copy of it was started since. Start the node with the directory it had last; \
             if that is lost, `dunlin cluster remove {node}`, empty the directory and let it join anew"
        )),
        StartReply::Elsewhere { leader } => {
            StartOutcome::Unknown(format!("node {} was named as the leader", leader.node))
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

/// Handles a node's request to register its start, and returns the reply.
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

/// Returns the reply, or `None` if the start may be registered: the leader then writes it to the table, and any other
/// node names the leader. Only the leader calls a directory stale, because only its table is current enough.
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

/// Whether a process listens at the address, even if it does not respond. This detects a running node whose lease has
/// ended because its machine is busy.
async fn is_listening(member: &ClusterMember, address: &str) -> bool {
    let connect = Duration::from_millis(member.limits.connect_ms_max);
    matches!(timeout(connect, TcpStream::connect(address)).await, Ok(Ok(_)))
}
