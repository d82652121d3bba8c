//! Measures many watchers that read the changes of all keys over listener `tcp`, while keys are written at a fixed
//! rate. Each watcher has its own connection and subscription.
//!
//! Each watcher reads every event. An event's sequence number is the revision of the change; the value in the event
//! contains the number of the write. A missing, repeated or reordered event fails the run.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use dunlin::KV;
use dunlin::state::{KeyEvent as Changed, KeyEvents};
use dunlin::topic::{Event, Notice, Start, Subscribe, SubscribeOptions};
use dunlin_client::{Client, ClientOptions, Subscriber};

use super::acknowledged::ExpectedValues;
use super::clients::StoreConnection;
use super::lanes;
use super::work::{ControlReport, ControlWorkload};
use crate::child::TIMEOUT;
use crate::payload::{NumberedPayload, ReadExtent};

/// Starts the watchers, writes the keys, and waits until the watchers have read all events.
pub async fn run(
    work: &ControlWorkload,
    leader: &StoreConnection,
    values: &ExpectedValues,
) -> Result<ControlReport> {
    let listener = leader.usage().await?.listener;
    let connect = |_| -> Result<(Client, Subscriber)> {
        let client = Client::connect(&format!("dunlin://{listener}"), ClientOptions::default())?;
        let options = SubscribeOptions { start: Start::Latest, ..SubscribeOptions::default() };
        let watcher = client.subscribe(KV, options)?;
        Ok((client, watcher))
    };
    let watchers = (0..work.watchers).map(connect).collect::<Result<Vec<_>>>()?;
    let (events, total) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(None)));
    let mut reading = Vec::new();
    for (client, watcher) in watchers {
        let (events, total) = (Rc::clone(&events), Rc::clone(&total));
        reading.push(tokio::task::spawn_local(async move {
            let _client = client;
            read(watcher, &events, &total).await
        }));
    }
    let report = lanes::run(values, work.rate).await?;
    // Some watchers may be waiting for an event. One more write wakes them. They then see that `total` is set.
    total.set(Some(values.writes() + 1));
    values.put(0, 0, &mut NumberedPayload::new(work.bytes)).await?;
    for watcher in reading {
        tokio::time::timeout(TIMEOUT, watcher).await.context("a watcher did not receive all events")???;
    }
    let expected = values.writes() * work.watchers as u64;
    ensure!(events.get() == expected, "the watchers received {} of {expected} events", events.get());
    Ok(ControlReport { events: events.get(), ..report })
}

/// Reads until this watcher has read `total` events, and adds the number of events to `events`. `total` is set when the
/// measured writes are over.
async fn read(mut watcher: Subscriber, events: &Cell<u64>, total: &Cell<Option<u64>>) -> Result<()> {
    let (mut last, mut mine) = (None, 0_u64);
    while total.get() != Some(mine) {
        match watcher.next_async().await? {
            Event::Record(record) => {
                ensure!(
                    last.is_none_or(|last: u64| record.seq() == last + 1),
                    "received revision {} after {last:?}",
                    record.seq()
                );
                last = Some(record.seq());
                if is_client_write(record.payload())? {
                    mine += 1;
                    events.set(events.get() + 1);
                }
            }
            Event::Notice(Notice::Lagging(_)) => {}
            Event::Notice(notice) => bail!("a watcher received an unexpected notice: {notice:?}"),
        }
    }
    Ok(())
}

/// Whether the event is a write of one key by the benchmark. Returns `false` for writes of the nodes' own keys, which
/// begin with `$`. Returns an error for a damaged value, a deletion, or an event with several changes.
fn is_client_write(payload: &[u8]) -> Result<bool> {
    let mut changes = 0;
    for change in KeyEvents::new(payload)? {
        let (key, item) = match change? {
            Changed::Put { key, .. } | Changed::Deleted { key } if key.starts_with(b"$") => return Ok(false),
            Changed::Put { key, item } => (key, item),
            Changed::Deleted { .. } => bail!("a watcher received a deletion, but keys were only put"),
        };
        let seq = item.value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or(0);
        let is_intact = ReadExtent::Ends.check(&item.value, seq);
        ensure!(is_intact, "the value of {} is damaged", String::from_utf8_lossy(key));
        changes += 1;
    }
    ensure!(changes == 1, "a revision has {changes} changes, expected one");
    Ok(true)
}
