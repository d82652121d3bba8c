//! Tests that a world loses no entity if the response to the claim of a region arrives too late.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use dunlin::space::StandbyMode;
use dunlin::space::behaviour::RandomWalk;
use dunlin_client::Client;

use super::{
    WorldMember, WorldTest, assert_continues, has_event, mark_entity_and_read_ticks, start_with_one_process,
    until,
};
use crate::clients::patient_options;

/// Only the transaction that claims a region contains this part of a key.
const CLAIM: &[u8] = b"/epoch/";
/// Time to live of the lease that ends before the response arrives.
const TTL: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseFlow {
    /// No region was claimed yet.
    Forwarding,
    /// A region was claimed. The node's bytes are held back.
    Holding,
    /// The node's bytes are forwarded again.
    Released,
}

/// Forwards the connections of a client to a node. After the first claim of a region, holds the node's responses until
/// they are released.
pub(super) struct LateResponses {
    client: Client,
    flow: Arc<(Mutex<ResponseFlow>, Condvar)>,
}

impl LateResponses {
    pub(super) fn of(test: &WorldTest) -> LateResponses {
        let node = test.keys.1.tcp_addresses()[0];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let flow = Arc::new((Mutex::new(ResponseFlow::Forwarding), Condvar::new()));
        let shared = Arc::clone(&flow);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(node)) = (client, TcpStream::connect(node)) else { return };
                let (to_node, to_client) = (node.try_clone().unwrap(), client.try_clone().unwrap());
                let (requests, responses) = (Arc::clone(&shared), Arc::clone(&shared));
                thread::spawn(move || forward_requests(client, to_node, &requests.0));
                thread::spawn(move || forward_responses(node, to_client, &responses));
            }
        });
        let client = Client::connect(&format!("dunlin://{address}"), patient_options()).unwrap();
        LateResponses { client, flow }
    }

    /// Starts process 2 with the forwarded connection.
    pub(super) fn start_process(&self, test: &WorldTest) -> WorldMember<RandomWalk> {
        WorldMember::start_with_ttl(&test.settings, self.client.kv(), 2, TTL)
    }

    fn is_holding(&self) -> bool {
        *self.flow.0.lock().unwrap() == ResponseFlow::Holding
    }

    pub(super) fn release(&self) {
        *self.flow.0.lock().unwrap() = ResponseFlow::Released;
        self.flow.1.notify_all();
    }
}

/// Forwards bytes until the connection ends. Calls `before` with each piece before the piece is forwarded.
fn forward(mut from: TcpStream, mut to: TcpStream, mut before: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
    {
        before(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn forward_requests(client: TcpStream, node: TcpStream, flow: &Mutex<ResponseFlow>) {
    // The end of the previous piece, because `CLAIM` may be split between two pieces.
    let mut recent = Vec::new();
    forward(client, node, |piece| {
        recent.extend_from_slice(piece);
        let mut flow = flow.lock().unwrap();
        if *flow == ResponseFlow::Forwarding && recent.windows(CLAIM.len()).any(|bytes| bytes == CLAIM) {
            *flow = ResponseFlow::Holding;
        }
        recent.drain(..recent.len().saturating_sub(CLAIM.len() - 1));
    });
}

fn forward_responses(node: TcpStream, client: TcpStream, flow: &(Mutex<ResponseFlow>, Condvar)) {
    forward(node, client, |_| {
        let held = flow.1.wait_while(flow.0.lock().unwrap(), |flow| *flow == ResponseFlow::Holding);
        drop(held.unwrap());
    });
}

/// Here, the only process gives a region to a new process. The new process learns too late that its claim succeeded.
#[test]
fn late_confirmation_of_region_ownership_loses_no_entity() {
    let (test, mut members) = start_with_one_process("late", StandbyMode::Required);
    let before = mark_entity_and_read_ticks(&members);
    let late = LateResponses::of(&test);
    members.push(late.start_process(&test));
    until("the lease ends before the response to the claim", &test.kv, &members, || {
        late.is_holding() && has_event(&members[1], "LeaseLost")
    });
    late.release();
    until("the new process runs a region", &test.kv, &members, || !members[1].ticks().is_empty());
    assert_continues(&test.kv, &members, &before, "after the late response");
    assert!(!members.iter().any(|member| has_event(member, "Lost(")), "{:?}", members[1].events);
}
