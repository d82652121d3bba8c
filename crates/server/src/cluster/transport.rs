//! Carries the messages of Raft groups over the connections to other nodes.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dunlin::raft::{RaftMember, RequestLane, ResponseFuture, Transport};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::link::{self, LinkTarget, QueuedRequest};
use super::member::ClusterMember;

/// Carries the messages of one Raft group. It has one connection to each other node for each lane, that is, each kind
/// of requests.
pub(super) struct RaftTransport {
    member: Arc<ClusterMember>,
    /// The shard of tasks to which the group belongs; `None` for the Raft group of the keys.
    shard: Option<u8>,
    /// Handle of the thread that runs the Raft group and its connections for short messages.
    handle: Handle,
    /// Handle of the thread that runs connections for large messages.
    bulk: Handle,
    links: Mutex<HashMap<(u64, RequestLane), RaftLink>>,
}

struct RaftLink {
    address: String,
    requests: mpsc::Sender<QueuedRequest>,
}

impl RaftTransport {
    pub(super) fn new(
        member: Arc<ClusterMember>,
        shard: Option<u8>,
        handle: Handle,
        bulk: Handle,
    ) -> RaftTransport {
        RaftTransport { member, shard, handle, bulk, links: Mutex::default() }
    }

    fn request_sender(&self, member: &RaftMember, lane: RequestLane) -> mpsc::Sender<QueuedRequest> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        match links.get(&(member.id, lane)) {
            Some(link) if link.address == member.address => link.requests.clone(),
            // If there is a connection to an older address, its queue is dropped here. The connection then ends after
            // its pending responses.
            _ => {
                let (requests, receiver) = mpsc::channel(self.member.limits.ask_queue_max);
                let (node, address, shard) = (member.id, member.address.clone(), self.shard);
                let target = LinkTarget { node, address, lane, shard };
                let handle = if lane.may_be_large() { &self.bulk } else { &self.handle };
                handle.spawn(link::run(Arc::clone(&self.member), target, receiver));
                let link = RaftLink { address: member.address.clone(), requests: requests.clone() };
                links.insert((member.id, lane), link);
                requests
            }
        }
    }
}

impl Transport for RaftTransport {
    fn request(&self, member: &RaftMember, lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        let (response, receiver) = oneshot::channel();
        let sent = self.request_sender(member, lane).try_send(QueuedRequest { request, response });
        Box::pin(async move {
            sent.map_err(|_full| {
                io::Error::new(
                    io::ErrorKind::NotConnected,
                    "too many requests wait for the connection to the node",
                )
            })?;
            receiver.await.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))
        })
    }

    fn runtime(&self) -> Option<Handle> {
        Some(self.handle.clone())
    }
}
