//! A client of the replicas. It finds the leader, and reports for each command whether the command was done, was not
//! done, or may have been done.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dunlin_control::{ControlCommand, ControlRefusal, ControlReply, FoundKeys, OperationOutcome};
use dunlin_replica::protocol::{GREETING, ReplicaRequest, ReplicaResponse, read_frame, write_frame};
use dunlin_replica::seed::SeededRandom;

/// How long the client waits for a response. When this time has passed, it is unknown whether the request was carried
/// out.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(900);
/// How long the client searches for a node that accepts its request.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The outcome of a command, as far as the client knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicaCommandOutcome {
    /// The command was done.
    Done(ControlReply),
    /// The replicas refused the command.
    Refused(ControlRefusal),
    /// The command was not done, and will not be done later.
    NotDone,
    /// The command may have been done.
    Unknown,
}

/// Sends one request to one node, on a new connection.
pub fn request_once(
    address: SocketAddr,
    request: &ReplicaRequest,
    patience: Duration,
) -> io::Result<ReplicaResponse> {
    let mut stream = connect(address, patience)?;
    exchange(&mut stream, request)
}

fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut greeting = [0];
    stream.read_exact(&mut greeting)?;
    if greeting == [GREETING] { Ok(stream) } else { Err(io::Error::other("unexpected greeting of a node")) }
}

fn exchange(stream: &mut TcpStream, request: &ReplicaRequest) -> io::Result<ReplicaResponse> {
    write_frame(stream, &request.encode())?;
    let bytes = read_frame(stream)?;
    ReplicaResponse::decode(&bytes).ok_or_else(|| io::Error::other("malformed response of a node"))
}

/// A client of the replicas. It keeps its connections to the nodes open.
#[derive(Debug)]
pub struct ReplicaClient {
    nodes: BTreeMap<u64, SocketAddr>,
    connections: BTreeMap<u64, TcpStream>,
    leader: u64,
    seed: SeededRandom,
}

impl ReplicaClient {
    /// Creates a client of these nodes.
    pub fn new(nodes: BTreeMap<u64, SocketAddr>, seed: u64) -> ReplicaClient {
        ReplicaClient { nodes, connections: BTreeMap::new(), leader: 0, seed: SeededRandom::new(seed) }
    }

    /// Sends a command to one node after another until a node accepts the command. Gives up after `SEARCH_TIMEOUT`.
    pub fn change(&mut self, command: &ControlCommand<'_>) -> ReplicaCommandOutcome {
        match self.search(&ReplicaRequest::change(command)) {
            Some(ReplicaResponse::Done(reply)) => ReplicaCommandOutcome::Done(reply),
            Some(ReplicaResponse::Refused(refusal)) => ReplicaCommandOutcome::Refused(refusal),
            Some(_) => ReplicaCommandOutcome::Unknown,
            None => ReplicaCommandOutcome::NotDone,
        }
    }

    /// Reads the keys from `start` to `end`, without `end` itself, linearizably. Returns `None` if no node responds in
    /// time. Half of the reads begin at a random node. Some of these nodes are former leaders, which must refuse to
    /// read.
    pub fn read(&mut self, start: &[u8], end: &[u8]) -> Option<FoundKeys> {
        if self.seed.between(0, 1) == 0 {
            self.leader = self.random_node();
        }
        match self.search(&ReplicaRequest::Read(start.to_vec(), end.to_vec()))? {
            ReplicaResponse::Done(ControlReply::Transaction { mut results, .. }) => match results.pop() {
                Some(OperationOutcome::Found { found }) => Some(found),
                _ => None,
            },
            _ => None,
        }
    }

    /// Sends a request to one node after another, until a node executes or refuses it. Returns
    /// [`ReplicaResponse::Unknown`] if a node may have received the request but did not respond. Returns `None` if no
    /// node executes or refuses the request within [`SEARCH_TIMEOUT`].
    fn search(&mut self, request: &ReplicaRequest) -> Option<ReplicaResponse> {
        let deadline = Instant::now() + SEARCH_TIMEOUT;
        while Instant::now() < deadline {
            let id = if self.leader == 0 { self.random_node() } else { self.leader };
            match self.send_to(id, request) {
                Ok(ReplicaResponse::NotLeader(leader)) => {
                    self.leader = if leader == id { 0 } else { leader };
                    std::thread::sleep(Duration::from_millis(self.seed.between(1, 10)));
                }
                Ok(ReplicaResponse::NotDone(_)) | Err(SendError::Unsent) => {
                    self.leader = 0;
                    std::thread::sleep(Duration::from_millis(self.seed.between(5, 30)));
                }
                Err(SendError::Unknown) => {
                    self.leader = 0;
                    return Some(ReplicaResponse::Unknown);
                }
                Ok(response) => {
                    self.leader = id;
                    return Some(response);
                }
            }
        }
        None
    }

    fn random_node(&mut self) -> u64 {
        let at = self.seed.between(0, self.nodes.len() as u64 - 1) as usize;
        *self.nodes.keys().nth(at).expect("the number of replies is known")
    }

    fn send_to(&mut self, id: u64, request: &ReplicaRequest) -> Result<ReplicaResponse, SendError> {
        let mut stream = match self.connections.remove(&id) {
            Some(stream) => stream,
            None => connect(self.nodes[&id], RESPONSE_TIMEOUT).map_err(|_| SendError::Unsent)?,
        };
        // If the exchange fails, the node may have read the request before the failure.
        let response = exchange(&mut stream, request).map_err(|_| SendError::Unknown)?;
        self.connections.insert(id, stream);
        Ok(response)
    }
}

enum SendError {
    Unsent,
    Unknown,
}
