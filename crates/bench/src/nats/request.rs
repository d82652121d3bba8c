//! Request and reply through nats-server, one in flight: four hops, asker and answerer two clients.

use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::clock::monotonic_ns;
use crate::cores::Pin;
use crate::nats::client::NatsClient;
use crate::nats::server::NatsServer;
use crate::payload::{Payload, Touch};
use crate::point::Bench;
use crate::stats::Latencies;

const SERVICE: &str = "service";
const INBOX: &str = "_INBOX.bench.1";

/// Round trips; a tenth more at first, which is not counted.
pub fn measure(bench: &Bench, pin: Pin, bytes: usize, iterations: u64) -> Result<Latencies> {
    // The server inherits the pinning of the thread that starts it.
    let pinned = pin.side(1)?;
    let server = NatsServer::start(bench)?;
    drop(pinned);
    let _pinned = pin.side(0)?;
    let address = server.address();
    let mut server = Some(server);
    let mut asker = NatsClient::connect(address)?;
    asker.subscribe(INBOX)?;
    let mut answerer = NatsClient::connect(address)?;
    answerer.subscribe(SERVICE)?;
    let rounds = iterations + iterations / 10;
    let answering = thread::spawn(move || answer(&mut answerer, rounds));
    let latencies = ask(&mut asker, bytes, iterations, iterations / 10);
    if latencies.is_err() {
        // The server goes, and with it the answerer's connection.
        server.take();
    }
    let answered = answering.join().map_err(|_| anyhow!("the answering thread panicked"))?;
    let latencies = latencies?;
    answered?;
    Ok(latencies)
}

fn ask(asker: &mut NatsClient, bytes: usize, iterations: u64, unmeasured: u64) -> Result<Latencies> {
    let mut payload = Payload::new(bytes);
    let mut latencies = Latencies::default();
    let mut request = Vec::new();
    for seq in 0..iterations + unmeasured {
        let start_ns = monotonic_ns();
        write_pub(&mut request, SERVICE.as_bytes(), INBOX.as_bytes(), payload.of(seq));
        asker.send(&request)?;
        let (_, reply) = asker.message()?;
        let took = monotonic_ns() - start_ns;
        ensure!(Touch::All.check(reply, seq), "the answer to {seq} was another");
        if seq >= unmeasured {
            latencies.record(took);
        }
    }
    Ok(latencies)
}

fn answer(answerer: &mut NatsClient, rounds: u64) -> Result<()> {
    let mut answer = Vec::new();
    for _ in 0..rounds {
        let (reply, payload) = answerer.message()?;
        write_pub(&mut answer, reply, b"", payload);
        answerer.send(&answer)?;
    }
    Ok(())
}

fn write_pub(out: &mut Vec<u8>, subject: &[u8], reply: &[u8], payload: &[u8]) {
    out.clear();
    out.extend_from_slice(b"PUB ");
    out.extend_from_slice(subject);
    out.push(b' ');
    if !reply.is_empty() {
        out.extend_from_slice(reply);
        out.push(b' ');
    }
    out.extend_from_slice(payload.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}
