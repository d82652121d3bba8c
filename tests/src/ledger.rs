//! A publisher's own list of its records, with which audits compare the subscribers' traces.

use std::collections::BTreeMap;
use std::ops::Range;

/// The attempted, acknowledged and failed records of one writer, numbered from 1.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The highest number among the records that the writer may have sent.
    pub attempted: u64,
    /// The acknowledged records by number, each with epoch and sequence number if the response contained them.
    pub acked: BTreeMap<u64, Option<(u32, u64)>>,
    /// Errors of publish calls.
    pub failures: Vec<String>,
    /// The number of the last record; `None` until this record is acknowledged.
    pub last: Option<u64>,
}

impl Ledger {
    /// Parses a line of the writer: `try N`, `ack FIRST LAST EPOCH SEQ` (consecutive sequence numbers up to
    /// SEQ), `acks FIRST LAST` (unknown positions), `err WHY`, `last N`.
    pub fn add_line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let numbers: Vec<u64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
        match (word, numbers.as_slice()) {
            ("try", &[n]) => self.attempted = self.attempted.max(n),
            ("ack", &[first, last, epoch, seq]) => {
                for n in first..=last {
                    self.acked.insert(n, Some((epoch as u32, seq - (last - n))));
                }
            }
            ("acks", &[first, last]) => self.acked.extend((first..=last).map(|n| (n, None))),
            ("err", _) => self.failures.push(rest.to_owned()),
            ("last", &[n]) => self.last = Some(n),
            _ => {}
        }
    }

    /// The number of acknowledged records in a range.
    pub fn acked_in(&self, ns: Range<u64>) -> u64 {
        if ns.is_empty() { 0 } else { self.acked.range(ns).count() as u64 }
    }
}
