//! A client's way to the nodes: it finds the leader, and says of each command whether it was done, was not, or may have been.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dunlin_control::{Command, Found, Outcome, Refusal, Reply};
use dunlin_replica::protocol::{Answer, GREETING, Question, read_frame, write_frame};
use dunlin_replica::seed::Seed;

/// How long a client waits for one answer; after it the outcome is unknown.
const ANSWER: Duration = Duration::from_millis(900);
/// How long a client looks for somebody who takes a command.
const SEARCH: Duration = Duration::from_millis(1_500);

/// What a client was told of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// It was done.
    Done(Reply),
    /// It was refused.
    Refused(Refusal),
    /// It was not done, and will not be.
    NotDone,
    /// Nobody knows.
    Unknown,
}

/// Asks one node something, on a connection of its own.
pub fn ask_once(address: SocketAddr, question: &Question, patience: Duration) -> io::Result<Answer> {
    let mut stream = connect(address, patience)?;
    converse(&mut stream, question)
}

fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut greeting = [0];
    stream.read_exact(&mut greeting)?;
    if greeting == [GREETING] { Ok(stream) } else { Err(io::Error::other("no node greets so")) }
}

fn converse(stream: &mut TcpStream, question: &Question) -> io::Result<Answer> {
    write_frame(stream, &question.encode())?;
    let bytes = read_frame(stream)?;
    Answer::decode(&bytes).ok_or_else(|| io::Error::other("an answer that is none"))
}

/// See the module.
#[derive(Debug)]
pub struct Door {
    nodes: BTreeMap<u64, SocketAddr>,
    connections: BTreeMap<u64, TcpStream>,
    leader: u64,
    seed: Seed,
}

impl Door {
    /// To these nodes.
    pub fn new(nodes: BTreeMap<u64, SocketAddr>, seed: u64) -> Door {
        Door { nodes, connections: BTreeMap::new(), leader: 0, seed: Seed::new(seed) }
    }

    /// Has a command taken in, if somebody takes it in time.
    pub fn change(&mut self, command: &Command<'_>) -> Told {
        match self.search(&Question::change(command)) {
            Some(Answer::Done(reply)) => Told::Done(reply),
            Some(Answer::Refused(refusal)) => Told::Refused(refusal),
            Some(_) => Told::Unknown,
            None => Told::NotDone,
        }
    }

    /// Reads keys, as they are by now at the latest; nothing when nobody says so in time. Who reads may ask anybody first:
    /// one who does not lead any more has to know that.
    pub fn read(&mut self, start: &[u8], end: &[u8]) -> Option<Found> {
        if self.seed.between(0, 1) == 0 {
            self.leader = self.anybody();
        }
        match self.search(&Question::Read(start.to_vec(), end.to_vec()))? {
            Answer::Done(Reply::Transaction { mut results, .. }) => match results.pop() {
                Some(Outcome::Found { found }) => Some(found),
                _ => None,
            },
            _ => None,
        }
    }

    /// An answer from who does it; [`Answer::Unknown`] once it was sent and not answered.
    fn search(&mut self, question: &Question) -> Option<Answer> {
        let deadline = Instant::now() + SEARCH;
        while Instant::now() < deadline {
            let id = if self.leader == 0 { self.anybody() } else { self.leader };
            match self.ask(id, question) {
                Ok(Answer::NotLeader(leader)) => {
                    self.leader = if leader == id { 0 } else { leader };
                    std::thread::sleep(Duration::from_millis(self.seed.between(1, 10)));
                }
                Ok(Answer::NotDone(_)) | Err(Lost::Unsent) => {
                    self.leader = 0;
                    std::thread::sleep(Duration::from_millis(self.seed.between(5, 30)));
                }
                Err(Lost::Unknown) => {
                    self.leader = 0;
                    return Some(Answer::Unknown);
                }
                Ok(answer) => {
                    self.leader = id;
                    return Some(answer);
                }
            }
        }
        None
    }

    fn anybody(&mut self) -> u64 {
        let at = self.seed.between(0, self.nodes.len() as u64 - 1) as usize;
        *self.nodes.keys().nth(at).expect("as many as there are")
    }

    fn ask(&mut self, id: u64, question: &Question) -> Result<Answer, Lost> {
        let mut stream = match self.connections.remove(&id) {
            Some(stream) => stream,
            None => connect(self.nodes[&id], ANSWER).map_err(|_| Lost::Unsent)?,
        };
        // Whatever goes wrong from here on, the node may have read it.
        let answer = converse(&mut stream, question).map_err(|_| Lost::Unknown)?;
        self.connections.insert(id, stream);
        Ok(answer)
    }
}

enum Lost {
    Unsent,
    Unknown,
}
