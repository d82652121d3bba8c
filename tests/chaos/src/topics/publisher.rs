//! The publishers of a run. Each publisher publishes to one topic through one node. Each record contains its number.
//!
//! The publisher of a durable topic sends a record again and again until the node acknowledges it. All these attempts
//! have the same producer number, so the topic appends the record once. The publisher of a volatile topic does not
//! repeat a record whose response was lost: if the topic has a new owner, this owner could not recognize the repeated
//! record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin_client::topic::{Draft, DurableOptions, Position, Publish, PublishError, Receipt, TopicConfig};
use dunlin_client::{Client, ClientOptions, ProducerIdentity, Publisher, PublisherOptions};
use dunlin_replica::seed::SeededRandom;

use crate::history::RunClock;
use crate::nemesis::PATIENCE;

/// The pause before a refused record is published again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// One call that published a batch of records, and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishCall {
    /// The number of the first record.
    pub first: u64,
    /// The number of the last record.
    pub last: u64,
    /// The time of the call, in ns.
    pub call: u64,
    /// The time of the response in ns, and the position of the batch's last record; `None` if the result is unknown.
    pub response: Option<(u64, Position)>,
}

/// The ledger of one publisher: all batches that the publisher has published.
#[derive(Debug, Clone, Default)]
pub struct PublishedBatches {
    /// The batches, in order.
    pub published: Vec<PublishCall>,
    /// The number of calls that failed. The batches of these calls were published again.
    pub refused: u64,
}

/// A client that publishes batches to one topic, and records the outcome of each batch.
pub struct Writer {
    topic: &'static str,
    is_durable: bool,
    publisher: Publisher,
    clock: RunClock,
    seed: SeededRandom,
    next: u64,
    ledger: PublishedBatches,
    acknowledged: Arc<AtomicU64>,
}

/// Returns a payload that contains the topic, the record's number, and padding of up to 299 bytes.
pub fn record_payload(topic: &str, number: u64) -> Vec<u8> {
    let padding = SeededRandom::new(number).draw() % 300;
    format!("{topic} {number} {}", "-".repeat(padding as usize)).into_bytes()
}

/// Returns the number in a record's payload; `None` if the payload does not belong to a record of this topic.
pub fn record_number(topic: &str, payload: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(payload).ok()?.strip_prefix(topic)?.strip_prefix(' ')?;
    let number = text.split(' ').next()?.parse().ok()?;
    (record_payload(topic, number) == payload).then_some(number)
}

impl Writer {
    /// Connects to a node and creates the topic `topic`.
    pub fn open(
        topic: &'static str,
        is_durable: bool,
        url: &str,
        clock: RunClock,
        seed: u64,
        acknowledged: Arc<AtomicU64>,
    ) -> Result<Writer> {
        let client = Client::connect(
            url,
            ClientOptions { name: format!("writes {topic}"), ..ClientOptions::default() },
        )?;
        let mut config =
            TopicConfig { durable: is_durable.then(DurableOptions::default), ..TopicConfig::default() };
        // The topic keeps so many bytes that no subscriber misses a record.
        config.retention.bytes = 64 << 20;
        client.create_topic(topic, &config, true).with_context(|| format!("cannot create topic {topic}"))?;
        let identity = is_durable.then_some(ProducerIdentity { producer: seed | 1, epoch: 1 });
        let publisher =
            client.publisher_with(topic, PublisherOptions { identity, ..PublisherOptions::default() })?;
        let seed = SeededRandom::new(seed);
        Ok(Writer {
            topic,
            is_durable,
            publisher,
            clock,
            seed,
            next: 1,
            ledger: PublishedBatches::default(),
            acknowledged,
        })
    }

    /// Publishes batches until `stop` is set and one more batch is acknowledged. Returns the ledger.
    pub fn run(mut self, stop: &AtomicBool) -> Result<PublishedBatches> {
        let mut deadline = None;
        loop {
            let is_last = stop.load(Ordering::Relaxed);
            let is_known = self.publish()?;
            if is_last && is_known {
                return Ok(self.ledger);
            }
            if is_last && Instant::now() > *deadline.get_or_insert(Instant::now() + PATIENCE) {
                anyhow::bail!("the nodes acknowledge no more records for {}", self.topic);
            }
            std::thread::sleep(Duration::from_micros(self.seed.between(0, 6_000)));
        }
    }

    /// Publishes the next batch of records. Returns whether the batch was acknowledged.
    fn publish(&mut self) -> Result<bool> {
        let (first, last) = (self.next, self.next + self.seed.between(0, 7));
        let payloads: Vec<Vec<u8>> =
            (first..=last).map(|number| record_payload(self.topic, number)).collect();
        let drafts: Vec<Draft<'_>> = payloads.iter().map(|payload| payload.as_slice().into()).collect();
        let (call, start) = (self.clock.now(), Instant::now());
        let mut outcome = self.publisher.publish_batch(&drafts).map(Some);
        let receipt = loop {
            match outcome {
                Ok(receipt) => break receipt,
                Err(PublishError::Unknown(_)) if !self.is_durable => break self.wait_for_outcome(),
                Err(error) if start.elapsed() > PATIENCE => {
                    return Err(error).with_context(|| format!("cannot publish to {}", self.topic));
                }
                Err(error) => {
                    self.ledger.refused += 1;
                    std::thread::sleep(RETRY_PAUSE);
                    outcome = self.retry(&error, &drafts);
                }
            }
        };
        self.next = last + 1;
        let response = receipt.map(|receipt| (self.clock.now(), receipt.position));
        self.acknowledged.fetch_add(u64::from(response.is_some()), Ordering::Relaxed);
        self.ledger.published.push(PublishCall { first, last, call, response });
        Ok(response.is_some())
    }

    /// Publishes a failed batch again. If the first attempt may have appended the batch, the second attempt uses the
    /// same producer numbers, so that the topic recognizes repeated records.
    fn retry(&mut self, error: &PublishError, drafts: &[Draft<'_>]) -> Result<Option<Receipt>, PublishError> {
        if !matches!(error, PublishError::Unknown(_)) {
            return self.publisher.publish_batch(drafts).map(Some);
        }
        self.publisher.send_refused_again()?;
        match self.publisher.flush()? {
            Some(receipt) => Ok(Some(receipt)),
            None => Err(PublishError::Unknown("the node did not answer".to_owned())),
        }
    }

    /// Waits until all sent records are acknowledged or refused, so that records that are sent later cannot overtake
    /// them. Returns `None` if records were refused, or if the outcome of a record is still unknown after [`PATIENCE`].
    fn wait_for_outcome(&mut self) -> Option<Receipt> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.publisher.flush() {
                Ok(receipt) => return receipt,
                Err(PublishError::Unknown(_)) => std::thread::sleep(RETRY_PAUSE),
                Err(_refused) => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_written_for_another_topic_is_not_recognized() {
        assert_eq!(record_number("t", &record_payload("t", 7)), Some(7));
        assert_eq!(record_number("t", &record_payload("other", 7)), None);
        assert_eq!(record_number("t", b"t 7"), None);
    }
}
