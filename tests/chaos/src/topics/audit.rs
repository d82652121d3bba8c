//! What readers were told beside what publishers were answered.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use dunlin_client::topic::Position;

use super::publisher::Ledger;
use super::reader::{Told, Trace};

/// What a run that broke nothing showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that readers read.
    pub read: u64,
    /// Gaps they were told of.
    pub gaps: u64,
    /// Epochs that ended for them.
    pub epochs: u64,
}

/// What a reader was told of epochs that ended.
type Ended = BTreeMap<u32, End>;

/// How one ended: the last record of it that the reader has, where the next begins, and whether nothing lies between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    last: u64,
    next: Position,
    is_whole: bool,
}

/// Holds all readers of a topic against its publisher.
pub fn topic(is_durable: bool, ledger: &Ledger, traces: &[&Trace]) -> Result<Counts> {
    let (mut counts, mut all) = (Counts::default(), BTreeMap::new());
    for trace in traces {
        let of = || format!("{} through node {}", trace.topic, trace.node + 1);
        let (records, ended, gaps) = follow(trace).with_context(of)?;
        for (position, number) in &records {
            let other = *all.entry(*position).or_insert(*number);
            ensure!(
                other == *number,
                "{}: {position} is {number}, and another reader was told {other}",
                of()
            );
        }
        if is_durable {
            in_order(&records, &gaps, &ended).with_context(of)?;
        }
        acknowledged(ledger, &records, &gaps, &ended).with_context(of)?;
        counts.read += records.len() as u64;
        counts.gaps += gaps.len() as u64;
        counts.epochs += ended.len() as u64;
    }
    Ok(counts)
}

fn at_seq(epoch: u32, seq: u64) -> Position {
    Position { epoch, seq }
}

type Followed = (BTreeMap<Position, u64>, Ended, Vec<(u32, u64, u64)>);

/// Every record follows the last, or what stands between was told.
fn follow(trace: &Trace) -> Result<Followed> {
    let (mut records, mut ended, mut gaps) = (BTreeMap::new(), Ended::new(), vec![]);
    let mut at: Option<Position> = None;
    for told in &trace.told {
        // Where it is after this, and where this may begin.
        let (begins, ends) = match told {
            Told::Record(position, number) => {
                records.insert(*position, *number);
                (*position, *position)
            }
            Told::Gap(epoch, first, last) => {
                gaps.push((*epoch, *first, *last));
                (at_seq(*epoch, *first), at_seq(*epoch, *last))
            }
            &Told::Epoch(old, last, known, next) => {
                if let Some(at) = at {
                    ensure!(old == at.epoch && last == at.seq, "{told:?} after {at}");
                }
                ensure!(next.epoch > old && next.seq > 0, "{told:?}");
                ensure!(known.is_none_or(|known| known >= last), "{told:?}");
                let is_whole = known == Some(last) && next.seq == last + 1;
                ended.insert(old, End { last, next, is_whole });
                at = Some(at_seq(next.epoch, next.seq - 1));
                continue;
            }
            Told::Wrong(what) => bail!("{what}"),
        };
        let due = at.map_or(1, |at| at.seq + 1);
        let follows =
            begins.seq == due && at.is_none_or(|at| at.epoch == begins.epoch) && ends.seq >= begins.seq;
        ensure!(follows, "{told:?} after {at:?}");
        at = Some(ends);
    }
    Ok((records, ended, gaps))
}

/// A durable topic has every record, once and in order, over all epochs.
fn in_order(records: &BTreeMap<Position, u64>, gaps: &[(u32, u64, u64)], ended: &Ended) -> Result<()> {
    ensure!(gaps.is_empty(), "a reader of a durable topic was told of gaps: {gaps:?}");
    for (epoch, End { last, next, .. }) in ended {
        ensure!(next.seq == last + 1, "epoch {epoch} ended at {last}, and the next begins at {next}");
    }
    for (due, (position, number)) in (1..).zip(records) {
        ensure!(*number == due, "{position} is record {number}, where {due} was due");
    }
    Ok(())
}

/// What was acknowledged was read where it was said to be, or its loss was told.
fn acknowledged(
    ledger: &Ledger,
    records: &BTreeMap<Position, u64>,
    gaps: &[(u32, u64, u64)],
    ended: &Ended,
) -> Result<()> {
    for published in &ledger.published {
        let Some((_, at)) = published.answered else { continue };
        for number in published.first..=published.last {
            let position = at_seq(at.epoch, at.seq - (published.last - number));
            let is_told = || {
                let in_gap = |(epoch, first, last): &(u32, u64, u64)| {
                    *epoch == position.epoch && (*first..=*last).contains(&position.seq)
                };
                let is_after = |end: &End| position.seq > end.last && !end.is_whole;
                let after_end = ended.get(&position.epoch).is_some_and(is_after);
                // An epoch of which the reader never saw anything ended between two that it did.
                let is_between = |(old, end): (&u32, &End)| {
                    (old + 1..end.next.epoch).contains(&position.epoch) && !end.is_whole
                };
                let passed_over = ended.iter().any(is_between);
                gaps.iter().any(in_gap) || after_end || passed_over
            };
            match records.get(&position) {
                Some(read) if *read == number => {}
                Some(read) => bail!("record {number} was acknowledged at {position}, where {read} was read"),
                None if is_told() => {}
                None => {
                    bail!("record {number} was acknowledged at {position}, and is missing without a word")
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
