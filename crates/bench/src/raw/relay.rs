//! Measures round trips between two clients through a relay, a program that only copies bytes. Each round trip takes
//! four transfers. All threads sleep while they wait.
//!
//! The relay has one blocking thread for each direction. Each of these threads reads as soon as it wakes, so the relay
//! does the least possible work. Both clients are threads of the measuring process, as in the measurements of Dunlin
//! and NATS.

use std::io::Read;
use std::thread;

use anyhow::Result;

use crate::cores::CorePinning;
use crate::point::BenchContext;
use crate::raw::ping_pong::{echo_until_closed, round_trips};
use crate::role::RoleArgs;
use crate::sockets::{SocketAddress, SocketKind, SocketListener, SocketStream};
use crate::stats::Latencies;

const READ_BYTES: usize = 64 * 1024;

/// Measures round trips from one client through the relay to the other client and back.
pub fn measure(
    bench: &BenchContext,
    transport: SocketKind,
    pin: CorePinning,
    bytes: usize,
    iterations: u64,
) -> Result<Latencies> {
    let listener = SocketListener::bind(transport)?;
    let args = [("endpoint", listener.endpoint()?.to_string()), ("pin", pin.name().to_owned())];
    let mut child = bench.child.start("raw-relay", &args)?;
    let mut requester = listener.accept_from(&mut child)?;
    let mut responder = listener.accept_from(&mut child)?;
    let _pinned = pin.side(0)?;
    thread::scope(|scope| {
        scope.spawn(move || echo_until_closed(&mut responder, bytes));
        let measured = round_trips(&mut requester, bytes, iterations);
        // Dropping the relay closes the responder's connection, so that the responder's thread ends.
        drop((requester, child));
        measured
    })
}

/// The main function of the relay's process. The process ends when one of the clients closes its connection.
pub(crate) fn relay(args: &RoleArgs) -> Result<()> {
    let _pinned = CorePinning::parse(args.text("pin")?)?.side(1)?;
    let endpoint: SocketAddress = args.get("endpoint")?;
    let (mut one, mut other) = (endpoint.connect()?, endpoint.connect()?);
    let (mut from_one, mut from_other) = (one.try_clone()?, other.try_clone()?);
    thread::spawn(move || copy_until_closed(&mut from_other, &mut one));
    copy_until_closed(&mut from_one, &mut other);
    Ok(())
}

fn copy_until_closed(from: &mut SocketStream, to: &mut SocketStream) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_full(&buffer[..read]).is_err() {
            return;
        }
    }
}
