//! Measures requests and replies through a broker. The requester and the responder are both clients of the broker, so a
//! request and its reply together take four transfers.

use std::thread;

use anyhow::{Result, anyhow, ensure};

use super::broker::Broker;
use super::client::RawClient;
use super::dialect::write_request;
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::stats::Latencies;

/// The subject of the requests.
pub const SERVICE: &str = "service";
const INBOX: &str = "_INBOX.bench.1";

/// The number of requests through a broker, and their latencies.
#[derive(Debug)]
pub struct RequestTimes {
    /// The latencies of the requests after the warm-up.
    pub latencies: Latencies,
    /// The time from the end of the warm-up to the last reply, in ns.
    pub elapsed_ns: u64,
    /// The number of requests that were answered in `elapsed_ns`.
    pub requests: u64,
}

/// First sends `requests` ÷ 10 requests to warm up. Then sends `requests` requests, of which at most `in_flight` wait
/// for a reply at the same time.
pub fn measure(
    broker: Broker,
    pin: CorePinning,
    bytes: usize,
    requests: u64,
    in_flight: u64,
) -> Result<RequestTimes> {
    let _pinned = pin.side(0)?;
    let endpoint = broker.endpoint();
    let mut broker = Some(broker);
    let mut requester = RawClient::connect(endpoint)?;
    requester.subscribe(INBOX)?;
    let mut responder = RawClient::connect(endpoint)?;
    responder.subscribe(SERVICE)?;
    let unmeasured = requests / 10;
    let responding = thread::spawn(move || send_replies(&mut responder, requests + unmeasured));
    let times = send_requests(&mut requester, bytes, requests, unmeasured, in_flight);
    if times.is_err() {
        // Dropping the broker closes the responder's connection, so that the responder's thread ends.
        broker.take();
    }
    let responded = responding.join().map_err(|_| anyhow!("the responder thread panicked"))?;
    let times = times?;
    responded?;
    Ok(times)
}

fn send_requests(
    client: &mut RawClient,
    bytes: usize,
    requests: u64,
    unmeasured: u64,
    in_flight: u64,
) -> Result<RequestTimes> {
    let mut requester = Requester::new(bytes, in_flight);
    let (all, mut from_ns) = (requests + unmeasured, 0);
    while requester.received < all {
        requester.fill_window(client, all)?;
        // Waits for one reply. Then handles all further replies that have already arrived.
        let (_, reply) = client.next_message()?;
        requester.record_reply(reply, unmeasured)?;
        while let Some((_, reply)) = client.buffered_message()? {
            requester.record_reply(reply, unmeasured)?;
        }
        if from_ns == 0 && requester.received >= unmeasured {
            from_ns = monotonic_ns();
            requester.counted_from = requester.received;
        }
    }
    let elapsed_ns = monotonic_ns() - from_ns;
    Ok(RequestTimes { latencies: requester.latencies, elapsed_ns, requests: all - requester.counted_from })
}

struct Requester {
    payload: NumberedPayload,
    write: Vec<u8>,
    /// When each of the requests in flight was sent, in ns. The time of request `seq` is at the index `seq` modulo the
    /// length of the list.
    sent_ns: Vec<u64>,
    sent: u64,
    received: u64,
    counted_from: u64,
    latencies: Latencies,
}

impl Requester {
    fn new(bytes: usize, in_flight: u64) -> Self {
        let sent_ns = vec![0; in_flight as usize];
        let (payload, latencies) = (NumberedPayload::new(bytes), Latencies::default());
        Self { payload, write: Vec::new(), sent_ns, sent: 0, received: 0, counted_from: 0, latencies }
    }

    /// Sends as many new requests as are allowed to be in flight, but not more than are left of `all` requests. Sends
    /// them in one write.
    fn fill_window(&mut self, client: &mut RawClient, all: u64) -> Result<()> {
        let in_flight = self.sent_ns.len() as u64;
        let until = all.min(self.received + in_flight);
        let now_ns = monotonic_ns();
        self.write.clear();
        for seq in self.sent..until {
            self.sent_ns[(seq % in_flight) as usize] = now_ns;
            write_request(&mut self.write, SERVICE.as_bytes(), INBOX.as_bytes(), self.payload.with_seq(seq));
        }
        self.sent = until;
        client.send(&self.write)
    }

    fn record_reply(&mut self, reply: &[u8], unmeasured: u64) -> Result<()> {
        let seq = self.received;
        ensure!(ReadExtent::All.check(reply, seq), "the reply to request {seq} has a wrong payload");
        if seq >= unmeasured {
            let sent_ns = self.sent_ns[(seq % self.sent_ns.len() as u64) as usize];
            self.latencies.record(monotonic_ns() - sent_ns);
        }
        self.received += 1;
        Ok(())
    }
}

/// Answers `requests` requests. If several requests have arrived, they are answered with one write.
fn send_replies(client: &mut RawClient, requests: u64) -> Result<()> {
    let (mut write, mut sent) = (Vec::new(), 0);
    while sent < requests {
        write.clear();
        let (reply, payload) = client.next_message()?;
        write_request(&mut write, reply, b"", payload);
        sent += 1;
        while let Some((reply, payload)) = client.buffered_message()? {
            write_request(&mut write, reply, b"", payload);
            sent += 1;
        }
        client.send(&write)?;
    }
    Ok(())
}
