//! Lets a new node join a cluster, with these messages:
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
//! If a new node joins at the address of a member that does not respond, the member's directory counts as lost, and the
//! new node replaces the member. The transaction that assigns the new number also removes the old member, because the
//! old number must never vote again.

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
use super::serving::send_frame;
use super::token::JoinToken;
use super::{ClusterConfig, hex};

/// Pause between two attempts to join.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// Time limit for the TLS handshake with a member.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// While the reason why a node cannot join stays the same, the log repeats it at this interval.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Pause between two checks whether joining was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The request of a joining node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JoinRequest {
    secret: String,
    /// The address at which other nodes will reach the joining node.
    address: String,
}

impl JoinRequest {
    /// The digest of the token's secret; `None` if the secret is malformed.
    fn token_digest(&self) -> Option<String> {
        let secret = hex::read(&self.secret).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        secret.map(|secret| JoinToken::digest(&secret))
    }
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
        /// The members of the cluster. If no member contacts the new node, the new node contacts them.
        #[serde(default)]
        members: Vec<KnownMember>,
    },
    /// The node that replies is not the leader. The joining node must send its request to the leader, at `address`.
    Elsewhere {
        address: String,
    },
    /// The node cannot join yet, and must try again later.
    Later {
        why: String,
    },
    Refused {
        why: String,
    },
}

/// Logs why a node cannot join yet: at once when the reason changes, and otherwise in each [`LOG_INTERVAL`].
#[derive(Default)]
struct ProblemLog {
    last: Option<(String, Instant)>,
}

impl ProblemLog {
    fn log(&mut self, at: &str, why: &str) {
        let is_new =
            !matches!(&self.last, Some((before, when)) if before == why && when.elapsed() < LOG_INTERVAL);
        if is_new {
            tracing::warn!("this node still tries to join the cluster through {at}: {why}");
            self.last = Some((why.to_owned(), Instant::now()));
        }
    }
}

/// Waits until joining is cancelled.
pub(super) async fn wait_until_cancelled(cancel_join: &AtomicBool) {
    while !cancel_join.load(Ordering::Relaxed) {
        sleep(CHECK_INTERVAL).await;
    }
}

/// Whether the text consists of a host and a port to which other nodes can connect.
pub(super) fn is_reachable(address: &str) -> bool {
    let parts = address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
    matches!(parts, Some((host, Ok(1..))) if !host.is_empty() && !host.contains(['/', '@', ' ']))
}

/// Joins a cluster, and writes the new node's identity into its directory.
pub(super) async fn join(
    files: &ClusterDirectory,
    bootstrap_address: &str,
    token: &JoinToken,
    address: &str,
    config: &ClusterConfig,
) -> Result<(NodeIdentity, CertificateAuthority), ClusterError> {
    let limits = &config.limits;
    if !is_reachable(bootstrap_address) {
        return Err(ClusterError::Refused(format!(
            "--join {bootstrap_address:?} is not an address of a node: expected a host and a port, such as \
                 node-1.example:6222"
        )));
    }
    let mut problem_log = ProblemLog::default();
    let deadline = Instant::now() + Duration::from_millis(limits.join_ms_max);
    let mut at = bootstrap_address.to_owned();
    loop {
        let reply =
            timeout(Duration::from_millis(limits.join_ms_max), request_join(&at, token, address, config));
        let why = match reply.await.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            Ok(Ok(JoinReply::LetIn { cluster, node, ca_pem, ca_key_pem, members })) => {
                let authority = CertificateAuthority::from_pem(&cluster, ca_pem, ca_key_pem);
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
                "another node says that this node is the leader".to_owned()
            }
            Ok(Ok(JoinReply::Later { why })) => {
                problem_log.log(&at, &why);
                why
            }
            Err(error) => {
                let why = error.to_string();
                problem_log.log(&at, &why);
                if Instant::now() >= deadline {
                    return Err(ClusterError::Unreachable { address: at, why });
                }
                at = bootstrap_address.to_owned();
                why
            }
        };
        if Instant::now() >= deadline {
            return Err(ClusterError::Unreachable { address: at, why });
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn request_join(
    at: &str,
    token: &JoinToken,
    address: &str,
    config: &ClusterConfig,
) -> io::Result<Result<JoinReply, String>> {
    let stream = match timeout(HANDSHAKE_TIMEOUT, connect_by_token(token, at)).await?? {
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
    send_frame(&mut write, 0, ClusterFrameKind::Hello, &super::to_json(&hello)).await?;
    let welcome: ClusterWelcome = super::parse(frames.next().await?, ClusterFrameKind::Hello)?;
    if let Some(refused) = welcome.refused {
        return Ok(Err(refused.why));
    }
    let join = JoinRequest { secret: hex::write(&token.secret), address: address.to_owned() };
    send_frame(&mut write, 1, ClusterFrameKind::Request, &super::to_json(&join)).await?;
    super::parse(frames.next().await?, ClusterFrameKind::Response).map(Ok)
}

/// Whether the request's token is valid, as far as this node knows.
pub(super) fn is_token_valid(member: &ClusterMember, join: &JoinRequest) -> bool {
    let Some((control, digest)) = member.control().zip(join.token_digest()) else { return false };
    control.with(|state| records::token(state, &digest).is_some()).unwrap_or(false)
}

/// Handles the request of a joining node, and returns the reply.
pub(super) async fn handle_request(member: &Arc<ClusterMember>, join: JoinRequest) -> JoinReply {
    let Some(control) = member.control() else {
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
    match admit(member, &join).await {
        Ok(node) => JoinReply::LetIn {
            cluster: member.identity.cluster.clone(),
            node,
            ca_pem: member.authority.cert_pem.clone(),
            ca_key_pem: member.authority.key_pem.clone(),
            members,
        },
        Err(reply) => reply,
    }
}

const TOKEN_REFUSED: &str = "the cluster refused the token: the token was used, has expired, or belongs to another cluster. Make another with `dunlin cluster token` on a node of the cluster";

/// Assigns a number to a joining node, and writes the node into the cluster's table.
async fn admit(member: &Arc<ClusterMember>, join: &JoinRequest) -> Result<u64, JoinReply> {
    let refused = |why: String| JoinReply::Refused { why };
    let later = |error: ControlError| JoinReply::Later { why: error.to_string() };
    let control = member.control().ok_or_else(|| refused("the node is stopping".to_owned()))?;
    let digest = join.token_digest().ok_or_else(|| refused(TOKEN_REFUSED.to_owned()))?;
    let read = |state: &_| (records::token(state, &digest), records::next(state), records::nodes(state));
    let (token, (node, next_revision), nodes) =
        control.read(Consistency::Linearizable, read).await.map_err(later)?;
    let Some((TokenRecord { reusable }, token_revision)) = token else {
        return Err(refused(TOKEN_REFUSED.to_owned()));
    };
    let mut lost = None;
    for other in nodes.iter().filter(|other| other.removed.is_none() && other.address == join.address) {
        if other.node == member.identity.node || member.is_responding(other.node, &other.address).await {
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
    match control.execute(&ControlCommand::System { compare, then, otherwise: Vec::new() }).await {
        Ok(ControlReply::Transaction { succeeded: true, .. }) => Ok(node),
        Ok(_) => Err(JoinReply::Later { why: "another node joined at the same time".to_owned() }),
        // The transaction may have been executed in spite of the error, so that the token is used up. The next attempt
        // to join then fails.
        Err(error) => Err(later(error)),
    }
}
