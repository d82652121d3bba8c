//! One of many connections that a thread reads in turn through a buffer that they share.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::RawClient;
use super::dialect::{Dialect, Said};
use super::served::Served;
use crate::child::PATIENCE;
use crate::payload::Touch;

/// A connection with one subscription, and how many messages came over it.
#[derive(Debug)]
pub struct Lane {
    stream: TcpStream,
    dialect: Dialect,
    /// The beginning of a message whose end has not come.
    rest: Vec<u8>,
    seen: u64,
}

/// What all lanes of a thread read into: large enough for a few writes of a broker, small enough for the caches.
pub const SHARED_BYTES: usize = 256 * 1024;
const GREETING_BYTES: usize = 16 * 1024;

impl Lane {
    /// Connects and subscribes.
    pub fn subscribe(served: Served, subject: &str) -> Result<Self> {
        let mut client = RawClient::connect_small(served, GREETING_BYTES)?;
        client.subscribe(subject)?;
        let stream = client.into_stream()?;
        stream.set_nonblocking(true).context("asking not to be blocked")?;
        Ok(Self { stream, dialect: served.dialect, rest: Vec::new(), seen: 0 })
    }

    /// Messages that came.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Reads once, and checks what came: the next messages, whole. False when nothing is there.
    pub fn read(&mut self, shared: &mut [u8]) -> Result<bool> {
        let mut filled = self.rest.len();
        ensure!(filled < shared.len(), "a message does not fit {} bytes", shared.len());
        let read = match self.stream.read(&mut shared[filled..]) {
            Ok(0) => bail!("the broker closed the connection"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("reading from the broker"),
        };
        shared[..filled].copy_from_slice(&self.rest);
        self.rest.clear();
        filled += read;
        let mut parsed = 0;
        while let Some((said, used)) = self.dialect.parse(&shared[parsed..filled], parsed)? {
            match said {
                Said::Message { payload, .. } => {
                    ensure!(
                        Touch::All.check(&shared[payload], self.seen),
                        "message {} was lost or damaged",
                        self.seen
                    );
                    self.seen += 1;
                }
                Said::Ping => bail!("the broker asks whether we are there"),
                Said::Done | Said::Other => {}
            }
            parsed += used;
        }
        self.rest.extend_from_slice(&shared[parsed..filled]);
        Ok(true)
    }
}

/// Sleeps until one of them has something to read.
pub fn wait(lanes: &[Lane]) -> Result<()> {
    let mut waiting: Vec<_> = lanes.iter().map(|lane| PollFd::new(&lane.stream, PollFlags::IN)).collect();
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut waiting, Some(&patience)).context("waiting for the broker")?;
    ensure!(ready > 0, "nothing came within {PATIENCE:?}");
    Ok(())
}
