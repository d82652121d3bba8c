//! Measures unary calls: one call in flight, calls with several records, many calls in flight, and calls that each open
//! a new connection.

use anyhow::{Result, anyhow};
use bytes::Bytes;
use tokio::runtime::Builder;

use super::callee::{Callee, Caller};
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::NumberedPayload;
use crate::point::{BenchContext, RunSample};
use crate::stats::Latencies;

/// The load of a measurement with gRPC calls: connections, calls in flight, and sizes.
#[derive(Clone, Copy, Debug)]
pub struct CallLoad {
    /// The number of connections.
    pub clients: usize,
    /// The number of calls in flight on each connection.
    pub in_flight: usize,
    /// The number of records in one call.
    pub batch: usize,
    /// The size of a record in bytes.
    pub bytes: usize,
    /// The number of measured calls. Before them, `calls` ÷ 10 calls are made to warm up.
    pub calls: u64,
    /// Whether this process and the server's process run on fixed cores.
    pub pin: CorePinning,
}

/// Measures the latency of calls, and the number of records per second.
pub fn measure(bench: &BenchContext, callee: Callee, load: CallLoad) -> Result<RunSample> {
    let server = callee.start(bench, load.pin)?;
    let _pinned = load.pin.side(0)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let lanes = (load.clients * load.in_flight) as u64;
        let mut callers = Vec::new();
        for _ in 0..load.clients {
            let caller = callee.connect(server.address).await?;
            callers.extend(std::iter::repeat_n(caller, load.in_flight));
        }
        let calls_each = (load.calls / lanes).max(1);
        run_calls(&callers, load, calls_each / 10).await?;
        let start_ns = monotonic_ns();
        let latencies = run_calls(&callers, load, calls_each).await?;
        let elapsed_ns = monotonic_ns() - start_ns;
        let records = (calls_each * lanes) as f64 * load.batch as f64;
        Ok(latencies.sample().with("msgs_per_s", records * 1e9 / elapsed_ns as f64))
    })
}

async fn run_calls(callers: &[Caller], load: CallLoad, calls: u64) -> Result<Latencies> {
    let lane = |caller: &Caller| tokio::spawn(call_repeatedly(caller.clone(), load, calls));
    let lanes: Vec<_> = callers.iter().map(lane).collect();
    let mut latencies = Latencies::default();
    for lane in lanes {
        latencies.add(&lane.await.map_err(|error| anyhow!("a client task failed: {error}"))??);
    }
    Ok(latencies)
}

async fn call_repeatedly(mut caller: Caller, load: CallLoad, calls: u64) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut payload = NumberedPayload::new(load.bytes);
    for seq in 0..calls {
        let payload = Bytes::copy_from_slice(payload.with_seq(seq));
        let start_ns = monotonic_ns();
        caller.call(vec![payload; load.batch]).await?;
        latencies.record(monotonic_ns() - start_ns);
    }
    Ok(latencies)
}

/// Opens `connections` connections, one after another. Measures, for each connection, the time from the start of
/// connecting to the first response.
pub fn measure_connect(bench: &BenchContext, callee: Callee, connections: u64) -> Result<RunSample> {
    let server = callee.start(bench, CorePinning::Apart)?;
    let _pinned = CorePinning::Apart.side(0)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut payload = NumberedPayload::new(64);
        let mut latencies = Latencies::default();
        for seq in 0..connections + connections / 10 {
            let payload = Bytes::copy_from_slice(payload.with_seq(seq));
            let start_ns = monotonic_ns();
            callee.connect(server.address).await?.call(vec![payload]).await?;
            if seq >= connections / 10 {
                latencies.record(monotonic_ns() - start_ns);
            }
        }
        Ok(latencies.sample())
    })
}
