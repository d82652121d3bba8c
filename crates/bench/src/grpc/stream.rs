//! Measures a stream of records from the server's process to this process. The order and the content of every record
//! are checked.

use anyhow::{Context, Result, bail, ensure};
use dunlin_server::grpc::proto::dunlin as v1;
use tokio::runtime::Builder;
use v1::dunlin_client::DunlinClient;
use v1::start::At;
use v1::subscribe_response::Event;

use super::callee::{Callee, channel};
use super::node::{LOSSLESS, ServedProcess};
use super::proto::StreamRequest;
use super::proto::echo_client::EchoClient;
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::ReadExtent;
use crate::point::BenchContext;
use crate::timed::TimedTransfer;

/// Receives `records` records of `bytes` bytes each, and measures the throughput.
pub fn measure(bench: &BenchContext, callee: Callee, bytes: usize, records: u64) -> Result<TimedTransfer> {
    let (start_ns, end_ns) = match callee {
        Callee::Node => from_node(bench, bytes, records)?,
        Callee::Echo => from_echo(bench, bytes, records)?,
    };
    Ok(TimedTransfer { start_ns, end_ns, messages: records, bytes, touched: bytes })
}

fn from_node(bench: &BenchContext, bytes: usize, records: u64) -> Result<(u64, u64)> {
    let mut server = ServedProcess::node(bench, CorePinning::Free, (records, bytes))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let end_ns = runtime.block_on(async {
        let mut client = DunlinClient::new(channel(server.address).await?);
        let request = v1::SubscribeRequest {
            subjects: vec![LOSSLESS.to_owned()],
            start: Some(v1::Start { at: Some(At::Earliest(true)) }),
            registered: true,
            ..v1::SubscribeRequest::default()
        };
        let mut stream = client.subscribe(request).await?.into_inner();
        let mut seq = 0;
        while seq < records {
            let response = stream.message().await?.context("the gRPC stream ended early")?;
            match response.event {
                Some(Event::Records(batch)) => {
                    for record in batch.records {
                        ensure!(
                            ReadExtent::All.check(&record.payload, seq),
                            "record {seq} has a wrong payload"
                        );
                        seq += 1;
                        ensure!(record.seq == seq, "received record {}, expected record {seq}", record.seq);
                    }
                }
                Some(Event::Subscribed(_)) => {}
                other => bail!("expected a record, received {other:?} after {seq} records"),
            }
        }
        Ok(monotonic_ns())
    })?;
    Ok((server.wait_until_sent()?, end_ns))
}

fn from_echo(bench: &BenchContext, bytes: usize, messages: u64) -> Result<(u64, u64)> {
    let server = ServedProcess::echo(bench, CorePinning::Free)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = EchoClient::new(channel(server.address).await?);
        let start_ns = monotonic_ns();
        let request = StreamRequest { messages, bytes: bytes as u32 };
        let mut stream = client.stream(request).await?.into_inner();
        for seq in 0..messages {
            let message = stream.message().await?.context("the gRPC stream ended early")?;
            let payload = message.payloads.first().context("received a message without a payload")?;
            ensure!(ReadExtent::All.check(payload, seq), "message {seq} has a wrong payload");
        }
        Ok((start_ns, monotonic_ns()))
    })
}
