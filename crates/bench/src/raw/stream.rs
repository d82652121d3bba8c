//! Measures the throughput of a socket: one process writes, and another reads and counts the bytes.

use std::io::Read;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line};
use crate::sockets::{SocketAddress, SocketKind, SocketListener};
use crate::timed::TimedTransfer;

const READ_BYTES: usize = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct SinkReport {
    end_ns: u64,
    bytes: u64,
}

/// Makes `count` writes of `bytes` bytes each, which another process reads.
pub fn measure(
    bench: &BenchContext,
    transport: SocketKind,
    bytes: usize,
    count: u64,
) -> Result<TimedTransfer> {
    let listener = SocketListener::bind(transport)?;
    let expected = bytes as u64 * count;
    let args = [("endpoint", listener.endpoint()?.to_string()), ("bytes", expected.to_string())];
    let mut child = bench.child.start("raw-sink", &args)?;
    let mut stream = listener.accept_from(&mut child)?;
    let message = vec![0x5a; bytes];
    let start_ns = monotonic_ns();
    for _ in 0..count {
        stream.write_full(&message)?;
    }
    let report: SinkReport = child.read_line(TIMEOUT)?;
    ensure!(report.bytes == expected, "{} of {expected} bytes arrived", report.bytes);
    Ok(TimedTransfer { start_ns, end_ns: report.end_ns, messages: count, bytes, touched: 0 })
}

pub(crate) fn sink(args: &RoleArgs) -> Result<()> {
    let expected: u64 = args.get("bytes")?;
    let mut stream = args.get::<SocketAddress>("endpoint")?.connect()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    while bytes < expected {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the sender closed the connection after {bytes} of {expected} bytes");
        bytes += read as u64;
    }
    print_line(&SinkReport { end_ns: monotonic_ns(), bytes })
}
