//! Checks the events that a subscriber received against the publisher's ledger:
//!
//! - Positions have no holes: each record, gap or epoch change begins directly after the previous event.
//! - Within an epoch, each record arrives once and in order. All received records are in the ledger. A record that was
//!   acknowledged has the acknowledged position.
//! - Every missing record was reported. The gaps between two received records contain at least the acknowledged records
//!   between the two, and at most the records that the publisher attempted to publish between the two. More records may
//!   be missing only at an epoch change.

use crate::ledger::Ledger;
use crate::trace::TraceLine;

/// How many events of each kind the audited traces contain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// Number of records received.
    pub records: u64,
    /// Number of reported gaps.
    pub gaps: u64,
    /// Number of records in the gaps.
    pub missed: u64,
    /// Number of epoch changes.
    pub epochs: u64,
    /// Number of calls that failed because there was no connection.
    pub disconnects: u64,
    /// Number of notices that warn a subscriber of its lag (`Lagging`).
    pub lag_warnings: u64,
}

impl AuditCounts {
    /// Adds the counts of another audit.
    pub fn add(&mut self, other: AuditCounts) {
        self.records += other.records;
        self.gaps += other.gaps;
        self.missed += other.missed;
        self.epochs += other.epochs;
        self.disconnects += other.disconnects;
        self.lag_warnings += other.lag_warnings;
    }
}

/// Whether a subscriber started to read before or after the first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderStart {
    /// Before the first record. Such a subscriber must receive every record.
    First,
    /// After the first record. The audit ignores all records before the subscriber's first event.
    Late,
}

struct Audit<'a> {
    ledger: &'a Ledger,
    writer: u32,
    /// The position (epoch and sequence number) of the last event; `None` before the first event.
    at: Option<(u32, u64)>,
    /// The number that the last received record has in the publisher's ledger.
    n: Option<u64>,
    /// The number of records in gaps since the last received record.
    missed: u64,
    /// Whether the epoch has changed since the last received record.
    epoch_changed: bool,
    counts: AuditCounts,
}

/// Checks the trace of one subscriber against the ledger of a publisher. Stops at the first error, and returns it.
pub fn audit(
    lines: &[TraceLine],
    start: ReaderStart,
    ledger: &Ledger,
    writer: u32,
) -> Result<AuditCounts, String> {
    let n = (start == ReaderStart::First).then_some(0);
    let counts = AuditCounts::default();
    let mut audit = Audit { ledger, writer, at: None, n, missed: 0, epoch_changed: false, counts };
    for (number, line) in lines.iter().enumerate() {
        audit.check_line(line).map_err(|error| format!("line {number} ({line}): {error}"))?;
    }
    if !lines.contains(&TraceLine::Done) {
        return Err("the last record did not arrive".to_owned());
    }
    Ok(audit.counts)
}

impl Audit<'_> {
    fn check_line(&mut self, line: &TraceLine) -> Result<(), String> {
        match line {
            TraceLine::Up | TraceLine::Done => {}
            TraceLine::Lagging => self.counts.lag_warnings += 1,
            TraceLine::Away(_) => self.counts.disconnects += 1,
            TraceLine::Wrong(what) => return Err(what.clone()),
            &TraceLine::Gap(epoch, first, last) => self.check_gap(epoch, first, last)?,
            &TraceLine::Epoch { old, last_seen, new_first } => self.check_epoch(old, last_seen, new_first)?,
            &TraceLine::Records { writer, epoch, seqs, ns } => {
                if writer != self.writer {
                    return Err(format!("received a record of writer {writer}, which does not publish here"));
                }
                self.check_position(epoch, seqs.0)?;
                self.check_missing(ns.0)?;
                self.check_acknowledged_positions(epoch, seqs, ns)?;
                self.at = Some((epoch, seqs.1));
                (self.n, self.missed, self.epoch_changed) = (Some(ns.1), 0, false);
                self.counts.records += ns.1 - ns.0 + 1;
            }
        }
        Ok(())
    }

    fn check_gap(&mut self, epoch: u32, first: u64, last: u64) -> Result<(), String> {
        self.check_position(epoch, first)?;
        if last < first {
            return Err("it is empty".to_owned());
        }
        let records = last - first + 1;
        if records > self.ledger.attempted {
            return Err(format!("the gap has {records} records, more than were published"));
        }
        self.at = Some((epoch, last));
        self.missed += records;
        self.counts.gaps += 1;
        self.counts.missed += records;
        Ok(())
    }

    fn check_epoch(&mut self, old: u32, last_seen: u64, new_first: (u32, u64)) -> Result<(), String> {
        if let Some((epoch, seq)) = self.at.filter(|at| *at != (old, last_seen)) {
            return Err(format!(
                "the epoch ended at {old}-{last_seen}, but the subscriber's position is {epoch}-{seq}"
            ));
        }
        if new_first.0 <= old || new_first.1 == 0 {
            return Err("the new epoch is not higher than the previous one".to_owned());
        }
        self.at = Some((new_first.0, new_first.1 - 1));
        self.epoch_changed = true;
        self.counts.epochs += 1;
        Ok(())
    }

    /// Checks that an event at this position directly follows the previous event.
    fn check_position(&self, epoch: u32, seq: u64) -> Result<(), String> {
        let expected = match (self.at, self.n) {
            (Some((epoch, seq)), _) => (epoch, seq + 1),
            (None, Some(_)) => (epoch, 1),
            (None, None) => return Ok(()),
        };
        if expected == (epoch, seq) {
            Ok(())
        } else {
            Err(format!("expected position {}-{}", expected.0, expected.1))
        }
    }

    /// Checks that all records between the last received record and record `n` were reported as missing.
    fn check_missing(&self, n: u64) -> Result<(), String> {
        let Some(previous) = self.n else { return Ok(()) };
        if self.epoch_changed {
            return Ok(());
        }
        if n <= previous {
            return Err(format!("a record arrived twice or out of order after record {previous}"));
        }
        let (acked, attempted) = (self.ledger.acked_in(previous + 1..n), n - previous - 1);
        if self.missed < acked {
            return Err(format!(
                "{acked} records were acknowledged since record {previous}, but only {} were reported missing",
                self.missed
            ));
        }
        if self.missed > attempted {
            return Err(format!(
                "{} records were reported missing since record {previous}, but only {attempted} were published",
                self.missed
            ));
        }
        Ok(())
    }

    fn check_acknowledged_positions(
        &self,
        epoch: u32,
        seqs: (u64, u64),
        ns: (u64, u64),
    ) -> Result<(), String> {
        if ns.1 > self.ledger.attempted {
            return Err(format!("only {} records were published", self.ledger.attempted));
        }
        for (&n, position) in self.ledger.acked.range(ns.0..=ns.1) {
            let received = (epoch, seqs.0 + (n - ns.0));
            if let Some(acked) = position
                && acked.0 == epoch
                && *acked != received
            {
                return Err(format!("record {n} was acknowledged at {acked:?} but received at {received:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
