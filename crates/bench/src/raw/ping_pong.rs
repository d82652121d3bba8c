//! Measures round trips over a socket between two processes, with one message in flight.

use anyhow::{Result, ensure};

use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::BenchContext;
use crate::role::RoleArgs;
use crate::sockets::{SocketAddress, SocketKind, SocketListener, SocketStream};
use crate::stats::Latencies;

/// The method by which one side of a round trip waits for the other side: polling or sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMethod {
    /// The side polls without a pause.
    Spin,
    /// The side sleeps in the kernel without polling first.
    Parked,
}

impl WaitMethod {
    /// Returns the value for the parameter `wait` of a measurement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Parked => "parked",
        }
    }
}

/// The settings of a measurement of round trips over a socket.
#[derive(Clone, Copy, Debug)]
pub struct PingPong {
    /// The kind of socket.
    pub transport: SocketKind,
    /// How each side waits for messages.
    pub wait: WaitMethod,
    /// Whether both sides run on fixed cores, or on any core.
    pub pin: CorePinning,
    /// The size of a message in bytes.
    pub bytes: usize,
}

/// Measures round trips to a process that sends each message back.
pub fn measure(bench: &BenchContext, setup: PingPong, iterations: u64) -> Result<Latencies> {
    let listener = SocketListener::bind(setup.transport)?;
    let args = [
        ("endpoint", listener.endpoint()?.to_string()),
        ("bytes", setup.bytes.to_string()),
        ("spin", (setup.wait == WaitMethod::Spin).to_string()),
        ("pin", setup.pin.name().to_owned()),
    ];
    let mut child = bench.child.start("raw-echo", &args)?;
    let mut stream = listener.accept_from(&mut child)?;
    let _pinned = setup.pin.side(0)?;
    stream.set_nonblocking(setup.wait == WaitMethod::Spin)?;
    round_trips(&mut stream, setup.bytes, iterations)
}

/// First sends `iterations` ÷ 10 messages to warm up. Then sends `iterations` messages of `bytes` bytes, one after
/// another, and checks each response.
pub(crate) fn round_trips(stream: &mut SocketStream, bytes: usize, iterations: u64) -> Result<Latencies> {
    let mut payload = NumberedPayload::new(bytes);
    let mut response = vec![0; bytes];
    let mut latencies = Latencies::default();
    let unmeasured = iterations / 10;
    for seq in 0..unmeasured + iterations {
        let start_ns = monotonic_ns();
        stream.write_full(payload.with_seq(seq))?;
        stream.read_full(&mut response)?;
        let elapsed_ns = monotonic_ns() - start_ns;
        ensure!(ReadExtent::All.check(&response, seq), "the response to message {seq} has a wrong payload");
        if seq >= unmeasured {
            latencies.record(elapsed_ns);
        }
    }
    Ok(latencies)
}

/// The main function of the process that sends messages back. The process ends when the other side closes the
/// connection.
pub(crate) fn echo(args: &RoleArgs) -> Result<()> {
    let _pinned = CorePinning::parse(args.text("pin")?)?.side(1)?;
    let mut stream = args.get::<SocketAddress>("endpoint")?.connect()?;
    stream.set_nonblocking(args.get("spin")?)?;
    echo_until_closed(&mut stream, args.get("bytes")?);
    Ok(())
}

/// Sends all received data back, until the other side closes the connection.
pub(crate) fn echo_until_closed(stream: &mut SocketStream, bytes: usize) {
    let mut message = vec![0; bytes];
    while stream.read_full(&mut message).is_ok() && stream.write_full(&message).is_ok() {}
}
