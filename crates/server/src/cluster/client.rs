//! A client that administers a running cluster for commands such as `dunlin cluster`. It uses the certificate in a
//! node's data directory.

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
use super::serving::send_frame;
use super::{ClusterLimits, JoinToken};

/// Time limit for connecting to a node, and for its reply to a status request.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the reply to any other request, and for each part of a backup. The limit is long because a part may
/// be large.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that administers a cluster.
pub struct ClusterClient {
    runtime: Runtime,
    member: std::sync::Arc<ClusterMember>,
}

/// A node's reply to a status request, or the reason why there is none.
#[derive(Debug, Clone)]
pub struct NodeSurvey {
    /// The node's number.
    pub node: u64,
    /// The node's address.
    pub address: String,
    /// The cluster's status as the node `node` sees it, or an error text.
    pub status: Result<NodeStatus, String>,
}

impl ClusterClient {
    /// Opens a client that uses the certificate in `data_dir`, the data directory of one of the cluster's nodes.
    pub fn open(data_dir: &Path) -> Result<ClusterClient, ClusterError> {
        let files = ClusterDirectory::of(data_dir);
        let Some(identity) = files.identity()? else {
            super::marks::refuse_member(&files, data_dir)?;
            return Err(ClusterError::NoCluster(data_dir.to_owned()));
        };
        let authority = files.authority(&identity.cluster)?;
        let host = super::address_host(&identity.address).to_owned();
        let own = authority.issue(identity.node, &host)?;
        let secrets = ClusterTls::new(&identity.cluster, &authority, &own)?;
        let member = ClusterMember::new(
            ClusterLimits::default(),
            hello::default_shards(),
            files,
            identity,
            authority,
            secrets,
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(ClusterClient { runtime: runtime.map_err(ClusterError::io("cannot start"))?, member })
    }

    /// The number of the node whose data directory is used.
    pub fn node(&self) -> u64 {
        self.member.identity.node
    }

    /// The cluster's id.
    pub fn cluster(&self) -> &str {
        &self.member.identity.cluster
    }

    /// The address of the node whose data directory is used. Each call reads the address from the directory, because
    /// each start of the node may change the address.
    pub fn address(&self) -> String {
        let current = self.member.files.identity().ok().flatten();
        current.map_or_else(|| self.member.identity.address.clone(), |identity| identity.address)
    }

    /// Requests the status from each node of the cluster.
    pub fn survey(&self) -> Vec<NodeSurvey> {
        self.runtime.block_on(async {
            let mut queue: VecDeque<KnownMember> = self.known_members().into();
            let mut all: Vec<NodeSurvey> = Vec::new();
            while let Some(KnownMember { node, address }) = queue.pop_front() {
                if all.iter().any(|survey| survey.node == node) {
                    continue;
                }
                let reply = self.request_from(node, &address, AdminRequest::Status, STATUS_TIMEOUT).await;
                let status = match reply {
                    Ok(AdminReply::Status(status)) => Ok(*status),
                    Ok(other) => Err(format!("{other:?}")),
                    Err(error) => Err(error.to_string()),
                };
                if let Ok(status) = &status {
                    let nodes = status.nodes.iter().filter(|record| record.removed.is_none());
                    queue.extend(
                        nodes
                            .map(|record| KnownMember { node: record.node, address: record.address.clone() }),
                    );
                }
                all.push(NodeSurvey { node, address, status });
            }
            all.sort_by_key(|survey| survey.node);
            all
        })
    }

    /// Creates a join token that is valid for `ttl`; with `None`, the token does not expire. One node may join with the
    /// token, or many if `reusable`.
    pub fn token(&self, ttl: Option<Duration>, reusable: bool) -> Result<JoinToken, ClusterError> {
        let ttl_ms = ttl.map(|ttl| ttl.as_millis() as u64);
        match self.request(AdminRequest::Token { ttl_ms, reusable })? {
            AdminReply::Token { token } => token.parse(),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes the node with this number from the cluster.
    pub fn remove(&self, node: u64) -> Result<(), ClusterError> {
        self.request(AdminRequest::Remove { node }).map(drop)
    }

    /// Transfers the lead to node `to`; with `None`, to any other node. Returns the number of the new leader.
    pub fn transfer(&self, to: Option<u64>) -> Result<u64, ClusterError> {
        match self.request(AdminRequest::Transfer { to })? {
            AdminReply::Leads { node } => Ok(node),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads all keys and passes them to `write` in parts. Returns the revision of the last change to the keys.
    pub fn back_up(&self, write: impl FnMut(&[u8]) -> io::Result<()>) -> Result<u64, ClusterError> {
        self.download_parts(&AdminRequest::Backup, write)
    }

    /// Returns the number of shards into which the cluster divides its tasks.
    pub fn shards_of_tasks(&self) -> Result<u8, ClusterError> {
        match self.request(AdminRequest::Status)? {
            AdminReply::Status(status) => Ok(status.shards),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads all tasks of one shard and passes them to `write` in parts.
    pub fn back_up_tasks(
        &self,
        shard: u8,
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ClusterError> {
        self.download_parts(&AdminRequest::BackupShard { shard }, write).map(drop)
    }

    fn download_parts(
        &self,
        request: &AdminRequest,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ClusterError> {
        let (reply, revision) = self.runtime.block_on(async {
            let (mut parts, mut failed) = (0, None);
            let mut on_part = |part: Bytes| {
                parts += 1;
                if failed.is_none() {
                    failed = write(&part).err();
                }
            };
            let reply = self.request_any(request, &mut on_part).await?;
            if let Some(error) = failed {
                return Err(ClusterError::io("cannot write the backup")(error));
            }
            let revision = match reply {
                AdminReply::Backup { parts: sent, revision } if sent == parts => Some(revision),
                _ => None,
            };
            Ok((reply, revision))
        })?;
        revision.ok_or_else(|| unexpected(&reply))
    }

    fn request(&self, request: AdminRequest) -> Result<AdminReply, ClusterError> {
        self.runtime.block_on(self.request_any(&request, &mut |_| ()))
    }

    /// The members to which requests can be sent. The node whose data directory is used comes first.
    fn known_members(&self) -> Vec<KnownMember> {
        let node = self.node();
        let mut members = vec![KnownMember { node, address: self.address() }];
        members.extend(self.member.files.members().into_iter().filter(|other| other.node != node));
        members
    }

    /// Sends the request to one member after another until a member serves it. If a reply names the leader, sends the
    /// request there. Passes the parts of a backup to `on_part`.
    async fn request_any(
        &self,
        request: &AdminRequest,
        on_part: &mut impl FnMut(Bytes),
    ) -> Result<AdminReply, ClusterError> {
        let mut queue: VecDeque<KnownMember> = self.known_members().into();
        let (mut failed, mut redirects) = (None, 0);
        while let Some(KnownMember { node, address }) = queue.pop_front() {
            let opened = with_timeout(STATUS_TIMEOUT, self.member.open(node, &address, Purpose::Admin)).await;
            let mut connection = match opened {
                Ok(connection) => connection,
                Err(error) => {
                    failed = failed.or(Some(ClusterError::Unreachable { address, why: error.to_string() }));
                    continue;
                }
            };
            let reply = exchange(&mut connection, request, on_part, REQUEST_TIMEOUT).await;
            return match reply
                .map_err(|error| ClusterError::Unreachable { address, why: error.to_string() })?
            {
                AdminReply::Elsewhere { node, address } if redirects < 3 => {
                    redirects += 1;
                    queue.push_front(KnownMember { node, address });
                    continue;
                }
                AdminReply::Elsewhere { .. } => {
                    Err(ClusterError::Files("the leader changed at each attempt: retry".to_owned()))
                }
                AdminReply::Refused { why } => Err(ClusterError::Refused(why)),
                AdminReply::Failed { why } => Err(ClusterError::Files(why)),
                reply => Ok(reply),
            };
        }
        Err(failed.unwrap_or(ClusterError::Files("no node of the cluster is known".to_owned())))
    }

    async fn request_from(
        &self,
        node: u64,
        address: &str,
        request: AdminRequest,
        time_limit: Duration,
    ) -> io::Result<AdminReply> {
        with_timeout(time_limit, async {
            let mut connection = self.member.open(node, address, Purpose::Admin).await?;
            exchange(&mut connection, &request, &mut |_| (), time_limit).await
        })
        .await
    }
}

async fn with_timeout<T>(time_limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(time_limit, work).await.unwrap_or_else(|elapsed| Err(elapsed.into()))
}

/// Sends a request and returns the reply. Passes parts that arrive before the reply to `on_part`. The time limit
/// applies to each received frame, not to the whole exchange.
async fn exchange(
    (frames, write): &mut MemberConnection,
    request: &AdminRequest,
    on_part: &mut impl FnMut(Bytes),
    time_limit: Duration,
) -> io::Result<AdminReply> {
    let request = super::to_json(request);
    with_timeout(time_limit, send_frame(write, 1, ClusterFrameKind::Request, &request)).await?;
    loop {
        let frame = with_timeout(time_limit, frames.next()).await?;
        match frame.kind {
            ClusterFrameKind::Part => on_part(frame.payload),
            _ => return super::parse(frame, ClusterFrameKind::Response),
        }
    }
}

fn unexpected(reply: &AdminReply) -> ClusterError {
    ClusterError::Files(format!("the node sent an unexpected reply: {reply:?}"))
}
