//! A relay between two workers, which forwards bytes in order after a fixed delay.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::node::WorkerPort;
use crate::child::{Child, TIMEOUT};
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line};

/// The most bytes that wait in the relay, in one direction.
const BUFFERED_BYTES_MAX: usize = 256 << 20;
const READ_BYTES: usize = 256 << 10;

/// The process of a relay, which forwards bytes to a port after a fixed delay. Dropping the handle kills the process.
#[derive(Debug)]
pub struct DelayRelay {
    _child: Child,
    port: u16,
}

impl DelayRelay {
    /// Starts a relay to the port `to` of this machine. `one_way` is the delay in each direction.
    pub fn start(bench: &BenchContext, to: u16, one_way: Duration) -> Result<Self> {
        let args = [("to", to.to_string()), ("us", one_way.as_micros().to_string())];
        let mut child = bench.child.start("space-delay", &args)?;
        let WorkerPort { port } = child.read_line(TIMEOUT)?;
        Ok(Self { _child: child, port })
    }

    /// Returns the port at which the relay listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The main function of the relay's process. For each accepted connection, the relay opens a connection to the target
/// port.
pub(crate) fn relay(args: &RoleArgs) -> Result<()> {
    let (to, one_way): (u16, u64) = (args.get("to")?, args.get("us")?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    print_line(&WorkerPort { port: listener.local_addr()?.port() })?;
    for near in listener.incoming() {
        let near = near?;
        let far = TcpStream::connect((Ipv4Addr::LOCALHOST, to))
            .with_context(|| format!("cannot connect to the worker's port {to}"))?;
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
        }
        let one_way = Duration::from_micros(one_way);
        forward(near.try_clone()?, far.try_clone()?, one_way);
        forward(far, near, one_way);
    }
    Ok(())
}

#[derive(Default)]
struct DelayDirection {
    buffers: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    closed: bool,
}

fn forward(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let direction = Arc::new((Mutex::new(DelayDirection::default()), Condvar::new()));
    let filled = Arc::clone(&direction);
    thread::spawn(move || {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            let mut state = filled.0.lock().unwrap_or_else(PoisonError::into_inner);
            while state.bytes > BUFFERED_BYTES_MAX && !state.closed {
                state = filled.1.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.closed |= read == 0;
            state.bytes += read;
            state.buffers.push_back((Instant::now() + one_way, buffer[..read].to_vec()));
            filled.1.notify_all();
            if state.closed {
                return;
            }
        }
    });
    thread::spawn(move || {
        loop {
            let mut state = direction.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (due, bytes) = loop {
                match state.buffers.pop_front() {
                    Some(next) => break next,
                    None => state = direction.1.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let ended = bytes.is_empty() || to.write_all(&bytes).is_err();
            let mut state = direction.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.bytes -= bytes.len();
            state.closed |= ended;
            direction.1.notify_all();
            if ended {
                // This call fails if the other side has already closed the connection; this is no error.
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    });
}
