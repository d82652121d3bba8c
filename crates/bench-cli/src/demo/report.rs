//! The messages between the demo and its subscribers' processes. Each message is a line of text in a pipe.
//!
//! A report on a log contains the totals of the reader's account, and the gaps since the previous report. If a process
//! is killed while it writes a report, the demo ignores the incomplete line. The process that replaces the killed one
//! continues from the last complete report, so no record is counted twice.

use std::fmt;
use std::str::FromStr;

use dunlin_topic::Position;

use super::account::{ContentDigest, MissedRecords, ReadReportsByTopic, TopicReadReport};

/// A message from the demo to one of its reader processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildCommand {
    /// Subscribe to this pattern, and read from the oldest record.
    Read { pattern: String },
    /// Subscribe to this topic, beginning after the position in `account_line`. Continue the account in `account_line`,
    /// which an earlier process began for this topic.
    Resume { topic: String, account_line: ReadReportLine },
    /// Start to read. The parent sends this command after all `Read` and `Resume` commands.
    Start,
    /// Sent when all lines are published: the topic's last record has the position `last`.
    End { topic: String, last: Position },
}

/// A message from a reader process to the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildReport {
    /// The process has created all subscriptions.
    Ready,
    At {
        topic: String,
        account_line: ReadReportLine,
    },
    Fault {
        topic: String,
        text: String,
    },
    /// The process has read all topics up to their last records.
    Finished,
}

/// A line of text in which a reader process reports on one log: the totals, and the gaps since the previous report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadReportLine {
    pub through: Position,
    pub received: u64,
    pub content: ContentDigest,
    pub warnings: u64,
    pub missed: Vec<MissedRecords>,
}

impl ReadReportLine {
    /// Returns a report with the totals of `account` and with its gaps, without the first `gaps_reported` gaps, which
    /// earlier reports contain.
    pub fn of(account: &TopicReadReport, gaps_reported: usize) -> ReadReportLine {
        ReadReportLine {
            through: account.through,
            received: account.received,
            content: account.content,
            warnings: account.warnings,
            missed: account.missed[gaps_reported..].to_vec(),
        }
    }

    /// Replaces the totals of an account by the totals of this report, and adds this report's gaps to the account.
    pub fn apply(&self, account: &mut TopicReadReport) {
        account.through = self.through;
        account.received = self.received;
        account.content = self.content;
        account.warnings = self.warnings;
        account.missed.extend(&self.missed);
    }
}

/// Reports to the demo's main process what a reader has received since the last report.
#[derive(Debug, Default)]
pub struct Reporter {
    reported: ReadReportsByTopic,
}

impl Reporter {
    pub fn changes(&mut self, accounts: &ReadReportsByTopic) -> Vec<ChildReport> {
        let mut reports = Vec::new();
        for (topic, account) in accounts {
            let reported = self.reported.entry(topic.clone()).or_default();
            for text in &account.faults[reported.faults.len()..] {
                reports.push(ChildReport::Fault { topic: topic.clone(), text: text.clone() });
            }
            if reported.through != account.through
                || reported.warnings != account.warnings
                || reported.received != account.received
            {
                let account_line = ReadReportLine::of(account, reported.missed.len());
                reports.push(ChildReport::At { topic: topic.clone(), account_line });
            }
            reported.clone_from(account);
        }
        reports
    }
}

impl fmt::Display for ReadReportLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadReportLine { through, received, content, warnings, missed } = self;
        write!(f, "{through} {received} {:016x} {warnings}", content.0)?;
        missed.iter().try_for_each(|gap| write!(f, " {}-{}", gap.first, gap.last))
    }
}

impl FromStr for ReadReportLine {
    type Err = MalformedLine;

    fn from_str(text: &str) -> Result<ReadReportLine, MalformedLine> {
        let parse = || {
            let mut words = text.split(' ');
            let through = words.next()?.parse().ok()?;
            let received = words.next()?.parse().ok()?;
            let content = ContentDigest(u64::from_str_radix(words.next()?, 16).ok()?);
            let warnings = words.next()?.parse().ok()?;
            let gap = |word: &str| {
                let (first, last) = word.split_once('-')?;
                Some(MissedRecords { first: first.parse().ok()?, last: last.parse().ok()? })
            };
            let missed = words.map(gap).collect::<Option<_>>()?;
            Some(ReadReportLine { through, received, content, warnings, missed })
        };
        parse().ok_or_else(|| MalformedLine(text.to_owned()))
    }
}

/// The error for a line that is not a valid message between the demo's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedLine(String);

impl fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed line {:?}", self.0)
    }
}

impl std::error::Error for MalformedLine {}

impl fmt::Display for ChildCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildCommand::Read { pattern } => write!(f, "read {pattern}"),
            ChildCommand::Resume { topic, account_line } => write!(f, "resume {topic} {account_line}"),
            ChildCommand::Start => f.write_str("go"),
            ChildCommand::End { topic, last } => write!(f, "end {topic} {last}"),
        }
    }
}

impl FromStr for ChildCommand {
    type Err = MalformedLine;

    fn from_str(line: &str) -> Result<ChildCommand, MalformedLine> {
        let parse = || match line.split_once(' ').unwrap_or((line, "")) {
            ("read", pattern) => Some(ChildCommand::Read { pattern: pattern.to_owned() }),
            ("go", "") => Some(ChildCommand::Start),
            (verb, rest) => {
                let (topic, rest) = rest.split_once(' ')?;
                match verb {
                    "resume" => Some(ChildCommand::Resume {
                        topic: topic.to_owned(),
                        account_line: rest.parse().ok()?,
                    }),
                    "end" => Some(ChildCommand::End { topic: topic.to_owned(), last: rest.parse().ok()? }),
                    _ => None,
                }
            }
        };
        parse().ok_or_else(|| MalformedLine(line.to_owned()))
    }
}

impl fmt::Display for ChildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildReport::Ready => f.write_str("ready"),
            ChildReport::At { topic, account_line } => write!(f, "at {topic} {account_line}"),
            // The message must be one line, so line breaks in the text are replaced.
            ChildReport::Fault { topic, text } => {
                write!(f, "fault {topic} {}", text.replace(['\n', '\r'], " "))
            }
            ChildReport::Finished => f.write_str("finished"),
        }
    }
}

impl FromStr for ChildReport {
    type Err = MalformedLine;

    fn from_str(line: &str) -> Result<ChildReport, MalformedLine> {
        let parse = || match line {
            "ready" => Some(ChildReport::Ready),
            "finished" => Some(ChildReport::Finished),
            _ => {
                let (verb, rest) = line.split_once(' ')?;
                let (topic, rest) = rest.split_once(' ')?;
                match verb {
                    "at" => {
                        Some(ChildReport::At { topic: topic.to_owned(), account_line: rest.parse().ok()? })
                    }
                    "fault" => Some(ChildReport::Fault { topic: topic.to_owned(), text: rest.to_owned() }),
                    _ => None,
                }
            }
        };
        parse().ok_or_else(|| MalformedLine(line.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(seq: u64) -> Position {
        Position { epoch: 1, seq }
    }

    fn account_line() -> ReadReportLine {
        let missed = vec![MissedRecords { first: 2, last: 4 }, MissedRecords { first: 9, last: 9 }];
        ReadReportLine {
            through: position(10),
            received: 6,
            content: ContentDigest(0xab),
            warnings: 1,
            missed,
        }
    }

    #[test]
    fn messages_of_demo_processes_are_read_back_as_written() {
        let topic = || "market.betfair.1.5".to_owned();
        let reports = [
            ChildReport::Ready,
            ChildReport::At { topic: topic(), account_line: account_line() },
            ChildReport::Fault { topic: topic(), text: "received record 5, but expected record 4".into() },
            ChildReport::Finished,
        ];
        for report in reports {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        let commands = [
            ChildCommand::Read { pattern: "market.>".into() },
            ChildCommand::Resume { topic: topic(), account_line: ReadReportLine::default() },
            ChildCommand::Start,
            ChildCommand::End { topic: topic(), last: position(7) },
        ];
        for command in commands {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        assert!("at market 1-".parse::<ChildReport>().is_err() && "".parse::<ChildCommand>().is_err());
    }

    #[test]
    fn demo_reports_contain_each_gap_only_once() {
        let (mut reporter, mut accounts, mut copy) =
            (Reporter::default(), ReadReportsByTopic::new(), TopicReadReport::default());
        let mut report_and_merge = |accounts: &ReadReportsByTopic| {
            for report in reporter.changes(accounts) {
                match report {
                    ChildReport::At { account_line, .. } => account_line.apply(&mut copy),
                    other => panic!("{other}"),
                }
            }
            copy.clone()
        };
        accounts.insert("t".into(), TopicReadReport::default());
        let account = |accounts: &mut ReadReportsByTopic, missed, seq| {
            let account = accounts.get_mut("t").unwrap();
            account.missed.push(MissedRecords { first: missed, last: missed });
            account.record(position(seq), b"x");
            account.faults.clear();
            account.clone()
        };
        let first = account(&mut accounts, 1, 2);
        assert_eq!(report_and_merge(&accounts), first);
        assert_eq!(report_and_merge(&accounts), first, "nothing new is reported");
        let second = account(&mut accounts, 3, 4);
        assert_eq!(report_and_merge(&accounts), second);
    }
}
