//! Publishers and subscribers of a node. The node is in this process, or in another process that is reached over
//! Dunlin's own protocol.

use anyhow::{Context, Result, bail, ensure};
use dunlin::topic::{Event, Publish, PublishError, Subscribe};

use super::route::{Sink, Source};
use crate::child::TIMEOUT;
use crate::workload::describe;

/// Publishes records in the node's process, or over Dunlin's own protocol.
pub struct NativePublisher<P> {
    publisher: P,
    hand_over: fn(&mut P) -> Result<(), PublishError>,
}

impl NativePublisher<dunlin::topic::Publisher> {
    /// Creates a publisher for a node in this process. The publisher passes every record to the node immediately, so
    /// that `push` has nothing to do.
    pub fn inproc(publisher: dunlin::topic::Publisher) -> Self {
        Self { publisher, hand_over: |_| Ok(()) }
    }
}

impl NativePublisher<dunlin_client::Publisher> {
    /// Creates a publisher that uses a connection to a node.
    pub fn remote(publisher: dunlin_client::Publisher) -> Self {
        Self { publisher, hand_over: dunlin_client::Publisher::send_batches }
    }
}

impl<P: Publish + Send> Source for NativePublisher<P> {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        self.publisher.publish(payload).map(drop).context("cannot publish")
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.publisher.send(payload).context("cannot publish")
    }

    fn push(&mut self) -> Result<()> {
        (self.hand_over)(&mut self.publisher).context("cannot publish")
    }

    fn finish(&mut self) -> Result<()> {
        self.publisher.flush().map(drop).context("the last acknowledgement did not arrive")
    }
}

/// Receives records in the node's process, or over Dunlin's own protocol.
pub struct NativeReader<S>(pub S);

impl<S: Subscribe> Sink for NativeReader<S> {
    fn read(&mut self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut fault = Ok(());
        loop {
            let count = self.0.drain(usize::MAX, |event| match event {
                Event::Record(record) if fault.is_ok() => fault = each(record.payload()),
                Event::Record(_) => {}
                notice => fault = Err(anyhow::anyhow!("expected a record, received: {}", describe(&notice))),
            })?;
            if let Err(fault) = fault {
                bail!(fault);
            }
            if count > 0 {
                return Ok(());
            }
            ensure!(self.0.wait(Some(TIMEOUT))?, "no record arrived within {TIMEOUT:?}");
        }
    }
}
