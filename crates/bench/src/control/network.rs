//! Measures some rows of the network table in the Grey document, which is another system's documentation. These rows
//! need no cluster under load. They are the requests over one gRPC connection, and the cost of encoding and decoding a
//! put.

use std::hint::black_box;

use anyhow::{Result, ensure};
use dunlin::state::{ControlCommand, ControlOutcome, ControlReply};

use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::grpc::{CallLoad, Callee, unary};
use crate::options::BenchOptions;
use crate::params::Params;
use crate::payload::NumberedPayload;
use crate::point::{Measurement, RunSample, target};
use crate::stats::Latencies;

const IN_FLIGHT: usize = 256;
/// The number of puts that are timed together. A single put cannot be timed, because it takes about as little time as
/// reading the clock.
const PUTS_PER_SAMPLE: u64 = 100;

/// Returns the measurement of publishing through listener `grpc`, over one connection.
pub fn grpc(options: &BenchOptions) -> Measurement {
    let calls = options.count(100_000, 640);
    let load =
        CallLoad { clients: 1, in_flight: IN_FLIGHT, batch: 1, bytes: 64, calls, pin: CorePinning::Apart };
    let params = Params::new()
        .with("transport", "grpc")
        .with("bytes", 64_usize)
        .with("clients", 1_usize)
        .with("in_flight", IN_FLIGHT);
    Measurement::new("network", target::DUNLIN, params, move |bench| {
        let sample = unary::measure(bench, Callee::Node, load)?;
        let per_s = sample.get("msgs_per_s");
        Ok(sample.with_optional("ops_per_s", per_s))
    })
}

/// Returns the measurement of encoding and decoding a put and its reply.
pub fn serialisation(options: &BenchOptions) -> Measurement {
    let rounds = options.count(20_000, 100);
    let params = Params::new().with("bytes", 256_usize).with("of", "serialisation");
    Measurement::new("network", target::DUNLIN, params, move |_| {
        let (mut payload, mut latencies, mut bytes) =
            (NumberedPayload::new(256), Latencies::default(), Vec::new());
        for round in 0..rounds {
            let start_ns = monotonic_ns();
            for nth in 0..PUTS_PER_SAMPLE {
                encode_and_decode(payload.with_seq(round * PUTS_PER_SAMPLE + nth), &mut bytes)?;
            }
            latencies.record((monotonic_ns() - start_ns) / PUTS_PER_SAMPLE);
        }
        Ok(RunSample::new().and(latencies.sample()))
    })
}

fn encode_and_decode(value: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
    bytes.clear();
    black_box(ControlCommand::Put { key: b"key-000000000001", value, lease: 0 }).encode(bytes);
    let decoded = ControlCommand::decode(black_box(bytes))?;
    ensure!(
        matches!(decoded, ControlCommand::Put { value: read, .. } if read == value),
        "the decoded command differs from the encoded one"
    );
    bytes.clear();
    black_box(ControlOutcome::Done { reply: ControlReply::Changed { revision: 7, keys: 1 } }).encode(bytes);
    let outcome = ControlOutcome::decode(black_box(bytes))?;
    ensure!(
        matches!(outcome, ControlOutcome::Done { reply: ControlReply::Changed { revision: 7, .. } }),
        "the decoded reply differs from the encoded one"
    );
    Ok(())
}
