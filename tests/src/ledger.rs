//! A ledger: a publisher's list of the records that it published. Audits compare the events that subscribers received
//! with this list.

use std::collections::BTreeMap;
use std::ops::Range;

/// The records of one writer, numbered from 1: the number of records that the writer attempted to publish, the
/// acknowledged records, and the errors that the writer's calls returned.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The highest number of a record that the writer may have sent.
    pub attempted: u64,
    /// The acknowledged records. Each key is a record's number. The value is the record's epoch and sequence number, or
    /// `None` if the response did not contain these two numbers.
    pub acked: BTreeMap<u64, Option<(u32, u64)>>,
    /// The errors that publish calls returned.
    pub failures: Vec<String>,
    /// The number of the writer's last record; `None` until that record is acknowledged.
    pub last: Option<u64>,
}

impl Ledger {
    /// Adds a line of the writer's output: `try N`, `ack FIRST LAST EPOCH SEQ`, `acks FIRST LAST`, `err WHY`, or `last
    /// N`. Other lines are ignored.
    ///
    /// In `ack`, SEQ is the sequence number of record LAST. The records from FIRST on have the consecutive sequence
    /// numbers that end with SEQ. In `acks`, the positions of the acknowledged records are unknown.
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

    /// The number of acknowledged records in a range of record numbers.
    pub fn acked_in(&self, ns: Range<u64>) -> u64 {
        if ns.is_empty() { 0 } else { self.acked.range(ns).count() as u64 }
    }
}
