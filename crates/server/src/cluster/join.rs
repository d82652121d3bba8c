//! Joining a cluster.
//!
//! ```text
//!  new node                         any node             leader
//!     | Join{secret, address} --------> |                   |
//!     | <------- Elsewhere{address} --- |                   |
//!     | Join{secret, address} ----------------------------> |  uses up the token, assigns the number (a transaction)
//!     | <--------------------- Let in{number, authority} -- |  the node is in the table
//!     |  makes its certificate, listens, waits              |
//!     | <=================== the log, as a learner ======== |  (reconcile)
//!     | <=================== a vote, once it has caught up = |
//! ```
//!
//! A node that joins at the address of an unresponsive node replaces the old node, whose directory counts as lost. The
//! same transaction removes the old node, whose number must never vote again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::state::{ControlCommand, ControlReply, KeyOperation};
use dunlin::{Consistency, ControlError};
use serde::{Deserialize, Serialize};
use tokio::io::split;
use tokio::time::{Instant, sleep, timeout};

use super::authority::CertificateAuthority;
use super::error::ClusterError;
use super::files::{ClusterDirectory, KnownMember, NodeIdentity};
use super::frame::{ClusterFrameKind, ClusterFrames};
use super::hello::{self, ClusterHello, ClusterWelcome, Purpose};
use super::member::ClusterMember;
use super::records::{self, NodeRecord, TokenRecord};
use super::secure::connect_by_token;
use super::serving::say;
use super::token::Token;
use super::{ClusterConfig, hex};

/// Pause between two attempts.
const AGAIN: Duration = Duration::from_millis(300);
/// Time limit for the TLS handshake.
const SHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Interval at which the log repeats a problem that has not changed.
const SAY_AGAIN: Duration = Duration::from_secs(5);
/// Pause between two checks for cancellation.
const LOOK: Duration = Duration::from_millis(20);

/// The request of a joining node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JoinRequest {
    secret: String,
    /// The node's future address.
    address: String,
}

/// The reply to a joining node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JoinReply {
    LetIn {
        cluster: String,
        node: u64,
        ca_pem: String,
        ca_key_pem: String,
        /// The members of the Raft group, so that the new node can contact them if they do not contact it.
        #[serde(default)]
        members: Vec<KnownMember>,
    },
    /// This node is not the leader; the joining node must ask the leader.
    Elsewhere {
        address: String,
    },
    /// The node cannot join at present and must try again later.
    Later {
        why: String,
    },
    Refused {
        why: String,
    },
}

/// Logs why a node cannot join yet: whenever the reason changes, and at an interval while it stays the same.
#[derive(Default)]
struct Complaint {
    said: Option<(String, Instant)>,
}

impl Complaint {
    fn say(&mut self, at: &str, why: &str) {
        let is_new =
            !matches!(&self.said, Some((before, when)) if before == why && when.elapsed() < SAY_AGAIN);
        if is_new {
            tracing::warn!("this node still tries to join the cluster through {at}: {why}");
            self.said = Some((why.to_owned(), Instant::now()));
        }
    }
}

/// Waits until joining is cancelled.
pub(super) async fn given_up(give_up: &AtomicBool) {
    while !give_up.load(Ordering::Relaxed) {
        sleep(LOOK).await;
    }
}

/// Whether the text is a host and a port.
pub(super) fn is_reachable(address: &str) -> bool {
    let parts = address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
    matches!(parts, Some((host, Ok(1..))) if !host.is_empty() && !host.contains(['/', '@', ' ']))
}

/// Joins a cluster, and writes the identity into the directory.
pub(super) async fn join(
    files: &ClusterDirectory,
    through: &str,
    token: &Token,
    address: &str,
    config: &ClusterConfig,
) -> Result<(NodeIdentity, CertificateAuthority), ClusterError> {
    let limits = &config.limits;
    if !is_reachable(through) {
        return Err(ClusterError::Refused(format!(
            "--join {through:?} is not an address of a node: expected a host and a port, such as \
                 node-1.example:6222"
        )));
    }
    let mut complaint = Complaint::default();
    let deadline = Instant::now() + Duration::from_millis(limits.join_ms_max);
    let mut at = through.to_owned();
    loop {
        let asked = timeout(Duration::from_millis(limits.join_ms_max), ask(&at, token, address, config));
        let why = match asked.await.unwrap_or_else(|late| Err(late.into())) {
            Ok(Ok(JoinReply::LetIn { cluster, node, ca_pem, ca_key_pem, members })) => {
                let authority = CertificateAuthority::of(&cluster, ca_pem, ca_key_pem);
                let identity = NodeIdentity::new(&cluster, node, address)?;
                files.write_authority(&authority)?;
                files.write_members(&members)?;
                files.write_identity(&identity)?;
                tracing::info!(cluster, node, "this node joined the cluster");
                return Ok((identity, authority));
            }
            Ok(Ok(JoinReply::Refused { why }) | Err(why)) => {
                return Err(ClusterError::Refused(format!("cannot join through {at}: {why}")));
            }
            Ok(Ok(JoinReply::Elsewhere { address })) => {
                at = address;
                "another node named this one as the leader".to_owned()
            }
            Ok(Ok(JoinReply::Later { why })) => {
                complaint.say(&at, &why);
                why
            }
            Err(error) => {
                let why = error.to_string();
                complaint.say(&at, &why);
                if Instant::now() >= deadline {
                    return Err(ClusterError::Unreachable { address: at, why });
                }
                at = through.to_owned();
                why
            }
        };
        if Instant::now() >= deadline {
            return Err(ClusterError::Unreachable { address: at, why });
        }
        sleep(AGAIN).await;
    }
}

async fn ask(
    at: &str,
    token: &Token,
    address: &str,
    config: &ClusterConfig,
) -> io::Result<Result<JoinReply, String>> {
    let stream = match timeout(SHAKE_WITHIN, connect_by_token(token, at)).await?? {
        Ok(stream) => stream,
        Err(why) => return Ok(Err(why.to_owned())),
    };
    let (read, mut write) = split(stream);
    let mut frames = ClusterFrames::new(read, config.limits.hello_bytes_max);
    let hello = ClusterHello {
        version: hello::VERSION,
        release: super::RELEASE.to_owned(),
        purpose: Purpose::Join,
        now: None,
        before: None,
        shards: config.tasks.shards,
        is_bulk: false,
    };
    say(&mut write, 0, ClusterFrameKind::Hello, &super::text(&hello)).await?;
    let welcome: ClusterWelcome = super::parse(frames.next().await?, ClusterFrameKind::Hello)?;
    if let Some(refused) = welcome.refused {
        return Ok(Err(refused.why));
    }
    let join = JoinRequest { secret: hex::write(&token.secret), address: address.to_owned() };
    say(&mut write, 1, ClusterFrameKind::Request, &super::text(&join)).await?;
    super::parse(frames.next().await?, ClusterFrameKind::Answer).map(Ok)
}

/// Handles the request of a joining node and returns the reply.
pub(super) async fn answer(seat: &Arc<ClusterMember>, join: JoinRequest) -> JoinReply {
    let Some(control) = seat.control() else {
        return JoinReply::Later { why: "that node is starting".to_owned() };
    };
    let members = match control.status() {
        Ok(status) if status.leader == Some(status.id) => KnownMember::all(&status),
        Ok(status) => {
            let leader = status.voters.iter().find(|member| Some(member.id) == status.leader);
            return match leader {
                Some(leader) => JoinReply::Elsewhere { address: leader.address.clone() },
                None => JoinReply::Later { why: "the cluster has no leader right now".to_owned() },
            };
        }
        Err(error) => return JoinReply::Later { why: error.to_string() },
    };
    match let_in(seat, &join).await {
        Ok(node) => JoinReply::LetIn {
            cluster: seat.identity.cluster.clone(),
            node,
            ca_pem: seat.authority.cert_pem.clone(),
            ca_key_pem: seat.authority.key_pem.clone(),
            members,
        },
        Err(answer) => answer,
    }
}

const NOT_GOOD: &str = "the cluster refused the token: the token was used, has expired, or belongs to another cluster. Make another with `dunlin cluster token` on a node of the cluster";

/// Assigns a number to a joining node.
async fn let_in(seat: &Arc<ClusterMember>, join: &JoinRequest) -> Result<u64, JoinReply> {
    let refused = |why: String| JoinReply::Refused { why };
    let later = |error: ControlError| JoinReply::Later { why: error.to_string() };
    let control = seat.control().ok_or_else(|| refused("the node is stopping".to_owned()))?;
    let secret = hex::read(&join.secret).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let digest = Token::digest(&secret.ok_or_else(|| refused(NOT_GOOD.to_owned()))?);
    let look = |state: &_| (records::token(state, &digest), records::next(state), records::nodes(state));
    let (token, (node, next_revision), nodes) =
        control.read(Consistency::Linearizable, look).await.map_err(later)?;
    let Some((TokenRecord { reusable }, token_revision)) = token else {
        return Err(refused(NOT_GOOD.to_owned()));
    };
    let mut lost = None;
    for other in nodes.iter().filter(|other| other.removed.is_none() && other.address == join.address) {
        if other.node == seat.identity.node || seat.answers(other.node, &other.address).await {
            return Err(refused(format!(
                "node {} already uses {} and is running: give the new node another address (--cluster-listen, --cluster-advertise)",
                other.node, other.address
            )));
        }
        lost = Some(NodeRecord {
            removed: Some(format!("its directory was lost; node {node} replaced it")),
            ..other.clone()
        });
    }
    let record = NodeRecord {
        node,
        address: join.address.clone(),
        release: String::new(),
        listeners: Default::default(),
        incarnation: None,
        removed: None,
    };
    let (token_key, node_key) = (records::token_key(&digest), records::node_key(node));
    let (record, next) = (records::value(&record), records::value(&(node + 1)));
    let lost = lost.map(|lost| (records::node_key(lost.node), records::value(&lost)));
    let compare = vec![
        records::unchanged(&token_key, token_revision),
        records::unchanged(records::NEXT, next_revision),
    ];
    let mut then = vec![
        KeyOperation::Put { key: records::NEXT, value: &next, lease: 0 },
        KeyOperation::Put { key: &node_key, value: &record, lease: 0 },
    ];
    if !reusable {
        then.push(KeyOperation::Delete { key: &token_key });
    }
    if let Some((key, value)) = &lost {
        then.push(KeyOperation::Put { key, value, lease: 0 });
    }
    match control.ask(&ControlCommand::System { compare, then, otherwise: Vec::new() }).await {
        Ok(ControlReply::Transaction { succeeded: true, .. }) => Ok(node),
        Ok(_) => Err(JoinReply::Later { why: "another node joined at the same time".to_owned() }),
        // The token may already be used by this attempt. The next attempt reports that.
        Err(error) => Err(later(error)),
    }
}
