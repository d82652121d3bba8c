//! A subscriber's trace: one line per event; consecutive records share a line.

use std::fmt;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The subscription has begun.
    Up,
    /// Records, consecutive in the log and in the writer's ledger.
    Records {
        /// The writer.
        writer: u32,
        /// The epoch.
        epoch: u32,
        /// The first and last sequence number.
        seqs: (u64, u64),
        /// The first and last number in the ledger.
        ns: (u64, u64),
    },
    /// A gap: epoch, first and last missing sequence number.
    Gap(u32, u64, u64),
    /// A new epoch.
    Epoch {
        /// The old epoch.
        old: u32,
        /// The last record received in the old epoch.
        last_seen: u64,
        /// The first position in the new epoch for this subscriber.
        new_first: (u32, u64),
    },
    /// A warning.
    Lagging,
    /// A call failed for lack of a connection.
    Away(String),
    /// An error that the promise excludes.
    Wrong(String),
    /// The last record was received.
    Done,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Up => write!(f, "up"),
            Told::Records { writer, epoch, seqs, ns } => {
                write!(f, "records {writer} {epoch} {} {} {} {}", seqs.0, seqs.1, ns.0, ns.1)
            }
            Told::Gap(epoch, first, last) => write!(f, "gap {epoch} {first} {last}"),
            Told::Epoch { old, last_seen, new_first } => {
                write!(f, "epoch {old} {last_seen} {} {}", new_first.0, new_first.1)
            }
            Told::Lagging => write!(f, "lagging"),
            Told::Away(why) => write!(f, "away {why}"),
            Told::Wrong(what) => write!(f, "wrong {what}"),
            Told::Done => write!(f, "done"),
        }
    }
}

impl Told {
    /// Parses a line. An invalid line is an error of the trace.
    pub fn parse(line: &str) -> Told {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let numbers: Vec<u64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
        match (word, numbers.as_slice()) {
            ("up", _) => Told::Up,
            ("records", &[writer, epoch, s0, s1, n0, n1]) => {
                Told::Records { writer: writer as u32, epoch: epoch as u32, seqs: (s0, s1), ns: (n0, n1) }
            }
            ("gap", &[epoch, first, last]) => Told::Gap(epoch as u32, first, last),
            ("epoch", &[old, last_seen, epoch, seq]) => {
                Told::Epoch { old: old as u32, last_seen, new_first: (epoch as u32, seq) }
            }
            ("lagging", _) => Told::Lagging,
            ("away", _) => Told::Away(rest.to_owned()),
            ("done", _) => Told::Done,
            _ => Told::Wrong(rest.to_owned()),
        }
    }

    /// Joins consecutive records. Returns whether they were joined.
    pub fn join(&mut self, next: &Told) -> bool {
        let (
            Told::Records { writer: a, epoch: e, seqs: (_, seq), ns: (_, n) },
            Told::Records { writer: b, epoch: f, seqs, ns },
        ) = (self, next)
        else {
            return false;
        };
        let follows = a == b && e == f && *seq + 1 == seqs.0 && *n + 1 == ns.0;
        if follows {
            (*seq, *n) = (seqs.1, ns.1);
        }
        follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_lines_parse_back() {
        let all = [
            Told::Up,
            Told::Records { writer: 1, epoch: 2, seqs: (3, 4), ns: (5, 6) },
            Told::Gap(1, 2, 3),
            Told::Epoch { old: 1, last_seen: 2, new_first: (3, 4) },
            Told::Lagging,
            Told::Away("no node".to_owned()),
            Told::Wrong("a thing".to_owned()),
            Told::Done,
        ];
        for told in all {
            assert_eq!(Told::parse(&told.to_string()), told);
        }
    }
}
