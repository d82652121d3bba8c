//! Compares the events that subscribers received with the ledgers in which the publishers recorded their calls.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use dunlin_client::topic::Position;

use super::publisher::PublishedBatches;
use super::reader::{ReaderEvent, SubscriberTrace};

/// How many events the subscribers of a successful run received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Number of records received.
    pub read: u64,
    /// Number of gaps received.
    pub gaps: u64,
    /// Number of epoch changes received.
    pub epochs: u64,
}

/// The ends of epochs that nodes reported to one subscriber. Each key is the number of the epoch that ended.
type EndedEpochs = BTreeMap<u32, EpochEnd>;

/// The end of an epoch, as a node reported it to one subscriber. It consists of the last sequence number that the
/// subscriber received in the epoch, the position at which the next epoch begins, and whether the subscriber received
/// all records between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EpochEnd {
    last: u64,
    next: Position,
    is_complete: bool,
}

/// Compares the events of all subscribers of a topic with the ledger of the topic's publisher.
pub fn check_topic(
    is_durable: bool,
    ledger: &PublishedBatches,
    traces: &[&SubscriberTrace],
) -> Result<ReadCounts> {
    let (mut counts, mut all) = (ReadCounts::default(), BTreeMap::new());
    for trace in traces {
        let context = || format!("{} through node {}", trace.topic, trace.node + 1);
        let (records, ended, gaps) = check_sequence(trace).with_context(context)?;
        for (position, number) in &records {
            let other = *all.entry(*position).or_insert(*number);
            ensure!(
                other == *number,
                "{}: {position} has record {number}, but another subscriber received record {other} there",
                context()
            );
        }
        if is_durable {
            check_durable_order(&records, &gaps, &ended).with_context(context)?;
        }
        check_acknowledged(ledger, &records, &gaps, &ended).with_context(context)?;
        counts.read += records.len() as u64;
        counts.gaps += gaps.len() as u64;
        counts.epochs += ended.len() as u64;
    }
    Ok(counts)
}

fn at_seq(epoch: u32, seq: u64) -> Position {
    Position { epoch, seq }
}

type ReaderHistory = (BTreeMap<Position, u64>, EndedEpochs, Vec<(u32, u64, u64)>);

/// Checks that every event begins directly after the previous event. If this is so, every missing record was reported
/// as missing.
fn check_sequence(trace: &SubscriberTrace) -> Result<ReaderHistory> {
    let (mut records, mut ended, mut gaps) = (BTreeMap::new(), EndedEpochs::new(), vec![]);
    let mut at: Option<Position> = None;
    for event in &trace.events {
        // The first and the last position that the event covers.
        let (start, end) = match event {
            ReaderEvent::Record(position, number) => {
                records.insert(*position, *number);
                (*position, *position)
            }
            ReaderEvent::Gap(epoch, first, last) => {
                gaps.push((*epoch, *first, *last));
                (at_seq(*epoch, *first), at_seq(*epoch, *last))
            }
            &ReaderEvent::Epoch(old, last, known, next) => {
                if let Some(at) = at {
                    ensure!(old == at.epoch && last == at.seq, "a subscriber received {event:?} after {at}");
                }
                ensure!(
                    next.epoch > old && next.seq > 0,
                    "the new epoch is not higher, or has no first record: {event:?}"
                );
                ensure!(
                    known.is_none_or(|known| known >= last),
                    "the old epoch's last record is before one that the subscriber received: {event:?}"
                );
                let is_complete = known == Some(last) && next.seq == last + 1;
                ended.insert(old, EpochEnd { last, next, is_complete });
                at = Some(at_seq(next.epoch, next.seq - 1));
                continue;
            }
            ReaderEvent::Wrong(what) => bail!("{what}"),
        };
        let expected = at.map_or(1, |at| at.seq + 1);
        let follows =
            start.seq == expected && at.is_none_or(|at| at.epoch == start.epoch) && end.seq >= start.seq;
        ensure!(follows, "a subscriber received {event:?} after {at:?}");
        at = Some(end);
    }
    Ok((records, ended, gaps))
}

/// Checks that a subscriber of a durable topic received every record once and in order, over all epochs.
fn check_durable_order(
    records: &BTreeMap<Position, u64>,
    gaps: &[(u32, u64, u64)],
    ended: &EndedEpochs,
) -> Result<()> {
    ensure!(gaps.is_empty(), "a subscriber of a durable topic received gaps: {gaps:?}");
    for (epoch, EpochEnd { last, next, .. }) in ended {
        ensure!(next.seq == last + 1, "epoch {epoch} ended at {last}, but the next epoch begins at {next}");
    }
    for (expected, (position, number)) in (1..).zip(records) {
        ensure!(*number == expected, "position {position} has record {number}, expected record {expected}");
    }
    Ok(())
}

/// Checks each acknowledged record: the subscriber must have received the record at the acknowledged position, or a
/// report that the record is lost.
fn check_acknowledged(
    ledger: &PublishedBatches,
    records: &BTreeMap<Position, u64>,
    gaps: &[(u32, u64, u64)],
    ended: &EndedEpochs,
) -> Result<()> {
    for published in &ledger.published {
        let Some((_, at)) = published.response else { continue };
        for number in published.first..=published.last {
            let position = at_seq(at.epoch, at.seq - (published.last - number));
            let is_reported = || {
                let in_gap = |(epoch, first, last): &(u32, u64, u64)| {
                    *epoch == position.epoch && (*first..=*last).contains(&position.seq)
                };
                let is_after = |end: &EpochEnd| position.seq > end.last && !end.is_complete;
                let after_end = ended.get(&position.epoch).is_some_and(is_after);
                // Whether `position` is in an epoch that the subscriber skipped. The subscriber received the epoch
                // `old` and then the epoch of `end.next`; it skipped the epochs between the two.
                let is_between = |(old, end): (&u32, &EpochEnd)| {
                    (old + 1..end.next.epoch).contains(&position.epoch) && !end.is_complete
                };
                let passed_over = ended.iter().any(is_between);
                gaps.iter().any(in_gap) || after_end || passed_over
            };
            match records.get(&position) {
                Some(read) if *read == number => {}
                Some(read) => bail!(
                    "record {number} was acknowledged at {position}, but a subscriber read record {read} there"
                ),
                None if is_reported() => {}
                None => {
                    bail!("record {number} was acknowledged at {position}, but is missing without a gap")
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
