//! A node of ours in a process of its own: `dunlin::Control` over a log on a real disk, and the connections of this suite.
//!
//! Its limits are the defaults. What clients have asked for by the time a connection is read is handed on together, as the doors do it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use dunlin::journal::RealDisk;
use dunlin::raft::{Asking, Lane, Member, Transport};
use dunlin::{Control, ControlLimits};
use dunlin_server::{Server, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::frame;
use super::line::Line;
use super::session;
use crate::local::stand::Stand;
use crate::role::{RoleArgs, say};
use crate::stats::Latencies;

/// Says that it serves.
#[derive(Serialize, Deserialize)]
pub struct Ready {
    /// Its number.
    pub id: u64,
}

/// What a node says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Who leads, by number.
    pub leader: Option<u64>,
    /// The last entry of its log.
    pub last: u64,
    /// The last entry its machine has taken in.
    pub applied: u64,
    /// The last entry in a snapshot.
    pub snapshot: u64,
    /// How long the elections took that it won, ns.
    pub elections_ns: Vec<u64>,
    /// From proposing to the answer, ns: average and 99th percentile.
    pub commit_ns: (f64, f64),
    /// Its door `tcp`.
    pub door: Option<SocketAddr>,
}

/// What the connections of this suite are served by.
pub struct Serving {
    /// The node's part in its cluster.
    pub control: Arc<Control>,
    commits: Mutex<Latencies>,
    door: Option<SocketAddr>,
}

/// No request between nodes waits longer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Ways to the other nodes, one for each lane.
struct Ways {
    runtime: Handle,
    lines: Mutex<HashMap<(u64, Lane), Line>>,
}

impl Transport for Ways {
    fn ask(&self, member: &Member, lane: Lane, request: Bytes) -> Asking {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line =
            lines.entry((member.id, lane)).or_insert_with(|| Line::to(member.address.clone(), &self.runtime));
        let answer = line.ask(frame::RAFT, request);
        Box::pin(async move {
            let late = |_| std::io::ErrorKind::TimedOut.into();
            tokio::time::timeout(ANSWER_MAX, answer).await.map_err(late).flatten()
        })
    }

    fn runtime(&self) -> Option<Handle> {
        Some(self.runtime.clone())
    }
}

/// The node's process: serves until it is killed.
pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let id: u64 = args.get("id")?;
    let ports: Vec<u16> = serde_json::from_str(args.text("peers")?).context("reading the ports")?;
    let (port, dir): (u16, PathBuf) = (args.get("port")?, args.get("dir")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stand = Stand::start()?;
    let handle = runtime.handle().clone();
    // Raft and all connections share a thread, as those between nodes do in `dunlin serve`.
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let ways = Ways { runtime: handle.clone(), lines: Mutex::default() };
    let limits = ControlLimits::default();
    let control = Control::take_part(stand.node(), id, Arc::new(RealDisk), &dir, ways, limits)?;
    stand.node().set_control(Arc::clone(&control));
    let doors = ServerConfig { tcp: vec![(Ipv4Addr::LOCALHOST, 0).into()], ..ServerConfig::default() };
    let server = Server::start(stand.node().clone(), doors).context("opening the door")?;
    let door = server.tcp_addresses().first().copied();
    let node = Arc::new(Serving { control: Arc::clone(&control), commits: Mutex::default(), door });
    handle.block_on(async {
        let local = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let peers = local(ports[id as usize - 1]).await?;
        tokio::spawn(accept(peers, Arc::clone(&node)));
        if id == 1 && !control.is_begun().await? {
            control.begin(&members(&ports)).await?;
        }
        let clients = local(port).await?;
        say(&Ready { id })?;
        drop(tokio::spawn(accept(clients, node)).await);
        Ok(())
    })
}

fn members(ports: &[u16]) -> Vec<Member> {
    let member =
        |(nth, port): (usize, &u16)| Member { id: nth as u64 + 1, address: format!("127.0.0.1:{port}") };
    ports.iter().enumerate().map(member).collect()
}

async fn accept(listener: TcpListener, node: Arc<Serving>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(session::serve(stream, Arc::clone(&node)));
    }
}

impl Serving {
    /// So many commands were committed together, after so long.
    pub fn committed(&self, count: u64, took_ns: u64) {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).record_all(took_ns, count);
    }

    /// How it sees its cluster; and whether its commits are counted anew from here on.
    pub fn seen(&self, anew: bool) -> Result<Seen> {
        let (status, elections) = (self.control.status()?, self.control.elections_won()?);
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = commits.sample();
        if anew {
            *commits = Latencies::default();
        }
        let figure = |name| sample.get(name).unwrap_or(0.0);
        Ok(Seen {
            leader: status.leader,
            last: status.last.unwrap_or(0),
            applied: status.applied.unwrap_or(0),
            snapshot: status.snapshot.unwrap_or(0),
            elections_ns: elections.iter().map(|took| took.as_nanos() as u64).collect(),
            commit_ns: (figure("avg_ns"), figure("p99_ns")),
            door: self.door,
        })
    }
}
