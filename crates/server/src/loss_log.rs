//! Writes lost records to the operator's log, and limits how often the log names the same topic.
//!
//! Limit: [`REPORTS_MAX`] reports for each topic and cause wait. The records and ranges of further ones are added to the
//! last of them.

use std::collections::BTreeMap;

use dunlin::topic::{LossCause, LossReport};

/// Shortest time between two writes about one topic, ns.
const REPORT_INTERVAL_NS: u64 = 10_000_000_000;
/// The maximum number of reports about one topic and cause that are written at the same time.
const REPORTS_MAX: usize = 4;

/// The losses that were not written to the log yet, by topic.
#[derive(Debug, Default)]
pub(crate) struct LossLog {
    topics: BTreeMap<String, TopicLosses>,
}

#[derive(Debug, Default)]
struct TopicLosses {
    /// Time at which losses of the topic were last written, ns.
    written_ns: Option<u64>,
    waiting: Vec<LossReport>,
}

impl LossLog {
    /// Adds losses, which wait until they may be written.
    pub(crate) fn add(&mut self, reports: Vec<LossReport>) {
        for report in reports {
            let TopicLosses { waiting, .. } = self.topics.entry(report.log.topic.clone()).or_default();
            let is_same = |other: &LossReport| {
                (other.log.partition, other.cause, other.first.epoch)
                    == (report.log.partition, report.cause, report.first.epoch)
            };
            let has_same_cause = |other: &LossReport| other.cause == report.cause;
            let with_same_cause = waiting.iter().filter(|&other| has_same_cause(other)).count();
            match waiting.iter().position(is_same) {
                Some(at) => waiting[at].add(&report),
                None if with_same_cause < REPORTS_MAX => waiting.push(report),
                None => {
                    if let Some(at) = waiting.iter().rposition(has_same_cause) {
                        waiting[at].records += report.records;
                        waiting[at].ranges += report.ranges;
                    }
                }
            }
        }
    }

    /// Takes the losses of all topics about which the log has said nothing for [`REPORT_INTERVAL_NS`].
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<LossReport> {
        let mut due = Vec::new();
        self.topics.retain(|_, topic| {
            let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < REPORT_INTERVAL_NS;
            if topic.written_ns.is_some_and(is_recent) {
                return true;
            }
            let has_losses = !topic.waiting.is_empty();
            due.append(&mut topic.waiting);
            topic.written_ns = Some(now_ns);
            has_losses
        });
        due
    }
}

/// Writes one report to the operator's log.
pub(crate) fn write(report: &LossReport) {
    let LossReport { log, cause, first, last, records, ranges } = report;
    let (topic, partition, cause) = (log.topic.as_str(), log.partition, cause.name());
    let last_seq = last.map_or_else(|| "unknown".to_owned(), |last| last.to_string());
    tracing::warn!(
        topic,
        partition,
        epoch = first.epoch,
        first = first.seq,
        last = last_seq.as_str(),
        records,
        ranges,
        cause,
        "{}",
        describe(report.cause)
    );
}

/// Says how the records were lost, and how an operator can get them back or prevent the loss.
fn describe(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Damaged => {
            "records are lost, because files of the topic are damaged, missing or unreadable: stop the node, and \
             restore the files from a backup or repair their permissions, or accept the loss"
        }
        LossCause::Restart => {
            "records at the end of an epoch may be lost, because a node that held them in memory restarted or failed: \
             publish them again, or make the topic durable"
        }
        LossCause::Mirror => {
            "this node has no copy of these records: the topic's owner dropped them before this node received them"
        }
        LossCause::Overwritten => {
            "records were dropped before a subscriber read them: raise the topic's retention, or speed up the subscriber"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin::topic::{LogName, Position};

    use super::*;

    const S: u64 = 1_000_000_000;

    fn report(topic: &str, first: u64, last: u64) -> LossReport {
        let (topic, subject_prefix) = (topic.to_owned(), topic.to_owned());
        LossReport {
            log: Arc::new(LogName { topic, subject_prefix, partition: 0 }),
            cause: LossCause::Overwritten,
            first: Position { epoch: 7, seq: first },
            last: Some(last),
            records: last - first + 1,
            ranges: 1,
        }
    }

    #[test]
    fn losses_of_a_topic_are_logged_once_per_interval() {
        let mut log = LossLog::default();
        log.add(vec![report("a", 1, 10)]);
        assert_eq!(log.take_due(S), [report("a", 1, 10)]);
        for n in 2..=10 {
            log.add(vec![report("a", 10 * n, 10 * n + 4), report("b", n, n)]);
            let due: Vec<String> =
                log.take_due(n * S).into_iter().map(|report| report.log.topic.clone()).collect();
            assert_eq!(due, if n == 2 { vec!["b"] } else { vec![] }, "second {n}");
        }
        let due = log.take_due(11 * S);
        assert_eq!(due, [LossReport { records: 45, ranges: 9, ..report("a", 20, 104) }]);
        assert!(log.take_due(60 * S).iter().all(|report| report.log.topic == "b"));
        assert!(log.take_due(90 * S).is_empty() && log.topics.is_empty());
    }

    #[test]
    fn losses_with_different_causes_are_logged_separately() {
        let mut log = LossLog::default();
        let in_epoch = |epoch: u32| LossReport { first: Position { epoch, seq: 1 }, ..report("a", 1, 5) };
        log.add((1..=6).map(in_epoch).collect());
        let damaged = LossReport { cause: LossCause::Damaged, ..report("a", 1, 2) };
        log.add(vec![damaged.clone()]);
        let due = log.take_due(S);
        let records: Vec<u64> = due.iter().map(|report| report.records).collect();
        assert_eq!((records, due.last()), (vec![5, 5, 5, 15, 2], Some(&damaged)));
    }
}
