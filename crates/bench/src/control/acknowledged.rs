//! The values that a key-value store has acknowledged to the benchmark's clients. A lane is a task that has one request
//! in flight. Each key is written by only one lane. The key's value must therefore come from its last acknowledged
//! write, or from a later write whose request failed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use dunlin::state::{ControlCommand, ControlQuery, ControlQueryResult, ControlReply, KeyOperation};

use super::clients::StoreConnection;
use super::work::ControlWorkload;
use crate::payload::{NumberedPayload, ReadExtent};

/// The number of puts in one transaction while the keys are loaded.
const LOAD_BATCH: usize = 100;
/// The number of transactions in flight while the keys are loaded.
const LOAD_LANES: usize = 32;
/// The number of reads in flight while all keys are read back.
const VERIFY_LANES: usize = 64;

/// The values that a key-value store has acknowledged. Later reads are compared with them.
#[derive(Clone)]
pub struct ExpectedValues(Rc<Inner>);

struct Inner {
    work: ControlWorkload,
    connections: Vec<StoreConnection>,
    /// The writes of each key.
    writes: RefCell<Vec<KeyWrites>>,
    /// The revision of each key's last write. Only case `cas` sets these revisions.
    revisions: RefCell<Vec<u64>>,
    /// The number of the next key to load or to read back.
    next: Cell<usize>,
}

/// The progress of the writes to one key. Writes are numbered from 1, and the value of a key contains the number of its
/// write.
#[derive(Debug, Clone, Copy, Default)]
struct KeyWrites {
    /// The number of the last write.
    sent: u64,
    /// The number of the last acknowledged write; 0 if there is none.
    last_acknowledged: u64,
    /// How many writes were acknowledged.
    acknowledged: u64,
}

impl KeyWrites {
    fn acknowledge(&mut self) {
        self.last_acknowledged = self.sent;
        self.acknowledged += 1;
    }

    /// Whether a store may return `found`, a value and a version, for a key with these writes. `None` means that the
    /// key is missing. A write whose request failed may or may not have changed the key.
    fn allow(self, found: Option<(&[u8], u64)>) -> bool {
        let Some((value, version)) = found else { return self.acknowledged == 0 };
        let mut values = self.last_acknowledged.max(1)..=self.sent;
        let versions = self.acknowledged.max(1)..=self.sent;
        values.any(|seq| ReadExtent::All.check(value, seq)) && versions.contains(&version)
    }
}

/// Returns the name of the key with number `nth`.
pub fn key_name(nth: usize) -> String {
    format!("key-{nth:012}")
}

impl ExpectedValues {
    /// Creates the expected values for a store in which nothing has been written.
    pub fn new(work: ControlWorkload, connections: Vec<StoreConnection>) -> Self {
        let writes = RefCell::new(vec![KeyWrites::default(); work.keys]);
        let revisions = RefCell::new(vec![0; work.keys]);
        Self(Rc::new(Inner { work, connections, writes, revisions, next: Cell::new(0) }))
    }

    /// Returns the workload that the clients carry out.
    pub fn work(&self) -> &ControlWorkload {
        &self.0.work
    }

    /// Returns the connection that a lane uses.
    pub fn connection(&self, lane: usize) -> &StoreConnection {
        &self.0.connections[lane % self.0.connections.len()]
    }

    /// Returns how many writes were made, over all keys.
    pub fn writes(&self) -> u64 {
        self.0.writes.borrow().iter().map(|writes| writes.sent).sum()
    }

    /// Writes the next value of the key with number `nth`.
    pub async fn put(&self, lane: usize, nth: usize, payload: &mut NumberedPayload) -> Result<()> {
        let seq = self.increment(nth);
        let (key, value) = (key_name(nth), payload.with_seq(seq));
        let command = ControlCommand::Put { key: key.as_bytes(), value, lease: 0 };
        self.connection(lane).command(&command).await?;
        self.acknowledge(nth);
        Ok(())
    }

    /// Writes the next value of a key. The store must refuse the write if another client has written the key since this
    /// client's last write.
    pub async fn put_if(&self, lane: usize, nth: usize, payload: &mut NumberedPayload) -> Result<()> {
        let (seq, expect) = (self.increment(nth), self.0.revisions.borrow()[nth]);
        let (key, value) = (key_name(nth), payload.with_seq(seq));
        let command = ControlCommand::PutIf { key: key.as_bytes(), value, lease: 0, expect };
        match self.connection(lane).command(&command).await? {
            ControlReply::Changed { revision, keys: 1 } => {
                self.acknowledge(nth);
                self.0.revisions.borrow_mut()[nth] = revision;
                Ok(())
            }
            other => bail!("unexpected response {other:?} to a compare-and-swap"),
        }
    }

    /// Writes the next value of each given key, all in one transaction.
    pub async fn put_all(&self, lane: usize, keys: impl Iterator<Item = usize>) -> Result<()> {
        let mut payload = NumberedPayload::new(self.0.work.bytes);
        let pairs: Vec<(usize, String, Vec<u8>)> =
            keys.map(|nth| (nth, key_name(nth), payload.with_seq(self.increment(nth)).to_vec())).collect();
        let then: Vec<KeyOperation<'_>> = pairs
            .iter()
            .map(|(_, key, value)| KeyOperation::Put { key: key.as_bytes(), value, lease: 0 })
            .collect();
        let command = ControlCommand::Transaction { compare: Vec::new(), then, otherwise: Vec::new() };
        match self.connection(lane).command(&command).await? {
            ControlReply::Transaction { succeeded: true, results, .. } if results.len() == pairs.len() => {
                pairs.iter().for_each(|(nth, ..)| self.acknowledge(*nth));
                Ok(())
            }
            other => bail!("unexpected response {other:?} to a transaction of {} writes", pairs.len()),
        }
    }

    /// Reads a key. Returns an error if the key does not have an expected value.
    pub async fn get(&self, lane: usize, nth: usize) -> Result<()> {
        let key = key_name(nth);
        let ControlQueryResult::Found { found, .. } =
            self.connection(lane).query(&ControlQuery::Get { key: key.as_bytes() }).await?
        else {
            bail!("unexpected response to a read")
        };
        let writes = self.0.writes.borrow()[nth];
        let found = found.items.first().map(|pair| (&pair.item.value[..], pair.item.version));
        ensure!(
            writes.allow(found),
            "key {key} has a value or version that contradicts its writes: {writes:?}"
        );
        Ok(())
    }

    /// Reads `count` consecutive keys, from number `from`. Returns an error unless every key still has the value of its
    /// first write.
    pub async fn range(&self, lane: usize, from: usize, count: usize) -> Result<()> {
        let key = key_name(from);
        let query = ControlQuery::Range { start: key.as_bytes(), end: &[], limit: count as u32 };
        let ControlQueryResult::Found { found, .. } = self.connection(lane).query(&query).await? else {
            bail!("unexpected response to a read")
        };
        ensure!(
            found.items.len() == count,
            "a range read returned {} keys, expected {count}",
            found.items.len()
        );
        let is_expected = found.items.iter().all(|pair| ReadExtent::All.check(&pair.item.value, 1));
        ensure!(is_expected, "a range read returned a value that was not written");
        Ok(())
    }

    /// Writes each key once.
    pub async fn load(&self) -> Result<()> {
        self.for_each_key(LOAD_LANES, LOAD_BATCH, async |values, lane, from, to| {
            values.put_all(lane, from..to).await
        })
        .await
    }

    /// Reads every key, and returns an error if a value is not the expected one.
    pub async fn verify(&self) -> Result<()> {
        self.for_each_key(VERIFY_LANES, 1, async |values, lane, nth, _| values.get(lane, nth).await).await
    }

    /// Reads every thousandth key. Returns an error if one of these keys does not have the expected value. Assumes that
    /// each key was written exactly once.
    pub async fn verify_sample(&self) -> Result<()> {
        self.0.writes.borrow_mut().fill(KeyWrites { sent: 1, last_acknowledged: 1, acknowledged: 1 });
        for nth in (0..self.0.work.keys).step_by(1_000) {
            self.get(0, nth).await?;
        }
        Ok(())
    }

    async fn for_each_key(
        &self,
        lanes: usize,
        step: usize,
        work: impl AsyncFn(&Self, usize, usize, usize) -> Result<()> + Copy + 'static,
    ) -> Result<()> {
        self.0.next.set(0);
        let lane = |lane: usize| {
            let values = self.clone();
            tokio::task::spawn_local(async move {
                loop {
                    let from = values.0.next.replace(values.0.next.get() + step);
                    if from >= values.0.work.keys {
                        return anyhow::Ok(());
                    }
                    work(&values, lane, from, (from + step).min(values.0.work.keys)).await?;
                }
            })
        };
        let lanes: Vec<_> = (0..lanes).map(lane).collect();
        for lane in lanes {
            lane.await??;
        }
        Ok(())
    }

    /// Increases the number of writes of a key by one, and returns the new number.
    fn increment(&self, nth: usize) -> u64 {
        let writes = &mut self.0.writes.borrow_mut()[nth];
        writes.sent += 1;
        writes.sent
    }

    /// Records that the store has acknowledged the last write of a key.
    fn acknowledge(&self, nth: usize) {
        self.0.writes.borrow_mut()[nth].acknowledge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_failed_write_may_be_stored_or_missing() {
        let mut payload = NumberedPayload::new(64);
        let mut value = |seq| payload.with_seq(seq).to_vec();
        let writes = KeyWrites { sent: 2, last_acknowledged: 1, acknowledged: 1 };
        assert!(writes.allow(Some((&value(1)[..], 1))) && writes.allow(Some((&value(2)[..], 2))));
        assert!(!writes.allow(Some((&value(3)[..], 2))) && !writes.allow(Some((&value(2)[..], 3))));
        assert!(!writes.allow(None), "an acknowledged write is lost");
        assert!(KeyWrites { sent: 1, ..KeyWrites::default() }.allow(None));
    }
}
