//! Administration of a running cluster from the command line, with the certificate in a node's data directory.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::admin::{AdminReply, AdminRequest, NodeStatus};
use super::error::ClusterError;
use super::files::{ClusterDirectory, KnownMember};
use super::frame::ClusterFrameKind;
use super::hello::{self, Purpose};
use super::member::{ClusterMember, MemberConnection};
use super::secure::ClusterTls;
use super::serving::say;
use super::{ClusterLimits, Token};

/// Time limit for a connection or a status.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for any other request.
const PATIENCE_WORK: Duration = Duration::from_secs(60);

/// A client that administers a cluster.
pub struct ClusterClient {
    runtime: Runtime,
    seat: std::sync::Arc<ClusterMember>,
}

/// The response of one node to a status request: the status, or the error.
#[derive(Debug, Clone)]
pub struct NodeSurvey {
    /// The node's number.
    pub node: u64,
    /// The node's address.
    pub address: String,
    /// The node's view of the cluster, or the error.
    pub status: Result<NodeStatus, String>,
}

impl ClusterClient {
    /// Opens a client with the data directory of one of the cluster's nodes.
    pub fn open(data_dir: &Path) -> Result<ClusterClient, ClusterError> {
        let files = ClusterDirectory::of(data_dir);
        let Some(identity) = files.identity()? else {
            super::marks::refuse_member(&files, data_dir)?;
            return Err(ClusterError::Refused(format!(
                "{} is not the data directory of a cluster's node: give a node's data directory, or begin a new cluster with `dunlin cluster init`",
                data_dir.display()
            )));
        };
        let authority = files.authority(&identity.cluster)?;
        let host = super::host_of(&identity.address).to_owned();
        let own = authority.issue(identity.node, &host)?;
        let secrets = ClusterTls::new(&identity.cluster, &authority, &own)?;
        let seat =
            ClusterMember::new(ClusterLimits::default(), hello::one(), files, identity, authority, secrets);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(ClusterClient { runtime: runtime.map_err(ClusterError::io("cannot start"))?, seat })
    }

    /// The number of the node whose data directory is used.
    pub fn node(&self) -> u64 {
        self.seat.identity.node
    }

    /// The cluster's id.
    pub fn cluster(&self) -> &str {
        &self.seat.identity.cluster
    }

    /// The address of the node whose data directory is used.
    pub fn address(&self) -> &str {
        &self.seat.identity.address
    }

    /// Requests the status of each node of the cluster.
    pub fn survey(&self) -> Vec<NodeSurvey> {
        self.runtime.block_on(async {
            let mut left: VecDeque<KnownMember> = self.known().into();
            let mut all: Vec<NodeSurvey> = Vec::new();
            while let Some(KnownMember { node, address }) = left.pop_front() {
                if all.iter().any(|known| known.node == node) {
                    continue;
                }
                let asked = self.ask_at(node, &address, AdminRequest::Status, PATIENCE).await;
                let status = match asked {
                    Ok(AdminReply::Status(status)) => Ok(*status),
                    Ok(other) => Err(format!("{other:?}")),
                    Err(error) => Err(error.to_string()),
                };
                if let Ok(status) = &status {
                    let nodes = status.nodes.iter().filter(|record| record.removed.is_none());
                    left.extend(
                        nodes
                            .map(|record| KnownMember { node: record.node, address: record.address.clone() }),
                    );
                }
                all.push(NodeSurvey { node, address, status });
            }
            all.sort_by_key(|surveyed| surveyed.node);
            all
        })
    }

    /// Creates a join token, for one node or (`reusable`) for many, valid for `ttl`.
    pub fn token(&self, ttl: Option<Duration>, reusable: bool) -> Result<Token, ClusterError> {
        let ttl_ms = ttl.map(|ttl| ttl.as_millis() as u64);
        match self.ask(AdminRequest::Token { ttl_ms, reusable })? {
            AdminReply::Token { token } => token.parse(),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes a node from the cluster.
    pub fn remove(&self, node: u64) -> Result<(), ClusterError> {
        self.ask(AdminRequest::Remove { node }).map(drop)
    }

    /// Transfers the lead; returns the new leader.
    pub fn transfer(&self, to: Option<u64>) -> Result<u64, ClusterError> {
        match self.ask(AdminRequest::Transfer { to })? {
            AdminReply::Leads { node } => Ok(node),
            other => Err(unexpected(&other)),
        }
    }

    /// Passes all keys to `take` in parts; returns their revision.
    pub fn back_up(&self, take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<u64, ClusterError> {
        self.hand_out(&AdminRequest::Backup, take)
    }

    /// Number of shards of the tasks.
    pub fn shards_of_tasks(&self) -> Result<u8, ClusterError> {
        match self.ask(AdminRequest::Status)? {
            AdminReply::Status(status) => Ok(status.shards),
            other => Err(unexpected(&other)),
        }
    }

    /// Passes all tasks of a shard to `take` in parts.
    pub fn back_up_tasks(
        &self,
        shard: u8,
        take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ClusterError> {
        self.hand_out(&AdminRequest::BackupShard { shard }, take).map(drop)
    }

    fn hand_out(
        &self,
        question: &AdminRequest,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ClusterError> {
        let (said, revision) = self.runtime.block_on(async {
            let (mut parts, mut failed) = (0, None);
            let mut take_part = |part: Bytes| {
                parts += 1;
                if failed.is_none() {
                    failed = take(&part).err();
                }
            };
            let said = self.ask_anyone(question, &mut take_part).await?;
            if let Some(error) = failed {
                return Err(ClusterError::io("cannot write the backup")(error));
            }
            let revision = match said {
                AdminReply::Backup { parts: given, revision } if given == parts => Some(revision),
                _ => None,
            };
            Ok((said, revision))
        })?;
        revision.ok_or_else(|| unexpected(&said))
    }

    fn ask(&self, question: AdminRequest) -> Result<AdminReply, ClusterError> {
        self.runtime.block_on(self.ask_anyone(&question, &mut |_| ()))
    }

    /// The members to which a request may be sent, beginning with the node whose data directory is used.
    fn known(&self) -> Vec<KnownMember> {
        let identity = &self.seat.identity;
        let mut known = vec![KnownMember { node: identity.node, address: identity.address.clone() }];
        known.extend(self.seat.files.members().into_iter().filter(|other| other.node != identity.node));
        known
    }

    /// Sends a request to one node after another until one serves it, and follows redirections to the leader.
    async fn ask_anyone(
        &self,
        question: &AdminRequest,
        take_part: &mut impl FnMut(Bytes),
    ) -> Result<AdminReply, ClusterError> {
        let mut left: VecDeque<KnownMember> = self.known().into();
        let (mut failed, mut sent_on) = (None, 0);
        while let Some(KnownMember { node, address }) = left.pop_front() {
            let opened = within(PATIENCE, self.seat.open(node, &address, Purpose::Admin)).await;
            let mut connection = match opened {
                Ok(connection) => connection,
                Err(error) => {
                    failed = failed.or(Some(ClusterError::Unreachable { address, why: error.to_string() }));
                    continue;
                }
            };
            let asked = within(PATIENCE_WORK, exchange(&mut connection, question, take_part)).await;
            return match asked
                .map_err(|error| ClusterError::Unreachable { address, why: error.to_string() })?
            {
                AdminReply::Elsewhere { node, address } if sent_on < 3 => {
                    sent_on += 1;
                    left.push_front(KnownMember { node, address });
                    continue;
                }
                AdminReply::Elsewhere { .. } => {
                    Err(ClusterError::Files("the leader changed at each attempt: retry".to_owned()))
                }
                AdminReply::Refused { why } => Err(ClusterError::Refused(why)),
                AdminReply::Failed { why } => Err(ClusterError::Files(why)),
                said => Ok(said),
            };
        }
        Err(failed.unwrap_or(ClusterError::Files("no node of the cluster is known".to_owned())))
    }

    async fn ask_at(
        &self,
        node: u64,
        address: &str,
        question: AdminRequest,
        patience: Duration,
    ) -> io::Result<AdminReply> {
        within(patience, async {
            let mut connection = self.seat.open(node, address, Purpose::Admin).await?;
            exchange(&mut connection, &question, &mut |_| ()).await
        })
        .await
    }
}

async fn within<T>(patience: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(patience, work).await.unwrap_or_else(|late| Err(late.into()))
}

async fn exchange(
    (frames, write): &mut MemberConnection,
    question: &AdminRequest,
    take_part: &mut impl FnMut(Bytes),
) -> io::Result<AdminReply> {
    say(write, 1, ClusterFrameKind::Request, &super::text(question)).await?;
    loop {
        let frame = frames.next().await?;
        match frame.kind {
            ClusterFrameKind::Part => take_part(frame.payload),
            _ => return super::parse(frame, ClusterFrameKind::Answer),
        }
    }
}

fn unexpected(said: &AdminReply) -> ClusterError {
    ClusterError::Files(format!("the node sent an unexpected reply: {said:?}"))
}
