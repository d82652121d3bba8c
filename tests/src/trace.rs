//! A subscriber's trace. Each line is an event, or stands for several consecutive records.

use std::fmt;

/// One line of a trace: an event, or several consecutive records that share the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceLine {
    /// The subscription has begun.
    Up,
    /// Records that are consecutive both in the log and in the writer's ledger.
    Records {
        /// The writer's number.
        writer: u32,
        /// The epoch of the records.
        epoch: u32,
        /// The sequence numbers of the first and the last record.
        seqs: (u64, u64),
        /// The numbers that the first and the last record have in the writer's ledger.
        ns: (u64, u64),
    },
    /// A gap: its epoch, and the first and last missing sequence number.
    Gap(u32, u64, u64),
    /// The log began a new epoch.
    Epoch {
        /// The epoch that ended.
        old: u32,
        /// The sequence number of the last record that the subscriber received in the old epoch.
        last_seen: u64,
        /// The epoch and the sequence number at which the new epoch begins for this subscriber.
        new_first: (u32, u64),
    },
    /// The node warned the subscriber that it may soon miss records.
    Lagging,
    /// A call failed because there was no connection.
    Away(String),
    /// An error that must never happen.
    Wrong(String),
    /// The subscriber received the writer's last record.
    Done,
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceLine::Up => write!(f, "up"),
            TraceLine::Records { writer, epoch, seqs, ns } => {
                write!(f, "records {writer} {epoch} {} {} {} {}", seqs.0, seqs.1, ns.0, ns.1)
            }
            TraceLine::Gap(epoch, first, last) => write!(f, "gap {epoch} {first} {last}"),
            TraceLine::Epoch { old, last_seen, new_first } => {
                write!(f, "epoch {old} {last_seen} {} {}", new_first.0, new_first.1)
            }
            TraceLine::Lagging => write!(f, "lagging"),
            TraceLine::Away(why) => write!(f, "away {why}"),
            TraceLine::Wrong(what) => write!(f, "wrong {what}"),
            TraceLine::Done => write!(f, "done"),
        }
    }
}

impl TraceLine {
    /// Parses a line. An invalid line becomes [`TraceLine::Wrong`].
    pub fn parse(line: &str) -> TraceLine {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let numbers: Vec<u64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
        match (word, numbers.as_slice()) {
            ("up", _) => TraceLine::Up,
            ("records", &[writer, epoch, s0, s1, n0, n1]) => TraceLine::Records {
                writer: writer as u32,
                epoch: epoch as u32,
                seqs: (s0, s1),
                ns: (n0, n1),
            },
            ("gap", &[epoch, first, last]) => TraceLine::Gap(epoch as u32, first, last),
            ("epoch", &[old, last_seen, epoch, seq]) => {
                TraceLine::Epoch { old: old as u32, last_seen, new_first: (epoch as u32, seq) }
            }
            ("lagging", _) => TraceLine::Lagging,
            ("away", _) => TraceLine::Away(rest.to_owned()),
            ("done", _) => TraceLine::Done,
            _ => TraceLine::Wrong(rest.to_owned()),
        }
    }

    /// Adds the records of the line `next` to this line, and returns `true`. Does nothing and returns `false` if the
    /// records of `next` do not directly follow this line's records.
    pub fn join(&mut self, next: &TraceLine) -> bool {
        let (
            TraceLine::Records { writer: a, epoch: e, seqs: (_, seq), ns: (_, n) },
            TraceLine::Records { writer: b, epoch: f, seqs, ns },
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
    fn trace_lines_are_read_back_as_written() {
        let all = [
            TraceLine::Up,
            TraceLine::Records { writer: 1, epoch: 2, seqs: (3, 4), ns: (5, 6) },
            TraceLine::Gap(1, 2, 3),
            TraceLine::Epoch { old: 1, last_seen: 2, new_first: (3, 4) },
            TraceLine::Lagging,
            TraceLine::Away("no node".to_owned()),
            TraceLine::Wrong("a thing".to_owned()),
            TraceLine::Done,
        ];
        for line in all {
            assert_eq!(TraceLine::parse(&line.to_string()), line);
        }
    }
}
