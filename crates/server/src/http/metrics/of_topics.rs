//! Figures of the busiest topics.

use dunlin::topic::Topic;
use dunlin::{StoredSurvey, TopicSurvey};

use super::exposition::MetricKind::{self, Counter, Gauge};
use super::exposition::{Exposition, seconds};

/// Writes the metrics of topics. Counters that only a topic's owner knows are left out at other nodes, where they would
/// be 0.
pub(super) fn write(topics: &[TopicSurvey], is_owned: impl Fn(&Topic) -> bool, out: &mut Exposition) {
    let owned: Vec<_> = topics.iter().filter(|seen| is_owned(&seen.topic)).collect();
    let mut of_owner = |kind: MetricKind, name: &str, help: &str, pick: fn(&TopicSurvey) -> u64| {
        out.family(kind, name, help, owned.iter().map(|seen| (labels(seen), pick(seen))));
    };
    of_owner(Counter, "dunlin_topic_records_total", "Records appended.", |seen| seen.totals.records);
    of_owner(Counter, "dunlin_topic_bytes_total", "Bytes of records appended by this process.", |seen| {
        seen.totals.bytes
    });
    of_owner(Gauge, "dunlin_topic_retained_records", "Records retained.", |seen| seen.retained_records);
    let mut numbers = |kind: MetricKind, name: &str, help: &str, pick: fn(&TopicSurvey) -> u64| {
        out.family(kind, name, help, topics.iter().map(|seen| (labels(seen), pick(seen))));
    };
    numbers(
        Counter,
        "dunlin_topic_lagging_total",
        "Warnings to subscribers that were behind by half of the log.",
        |seen| seen.totals.losses.warnings,
    );
    numbers(Counter, "dunlin_topic_gaps_total", "Gaps delivered to subscribers.", |seen| {
        seen.totals.losses.gaps
    });
    numbers(Counter, "dunlin_topic_gap_records_total", "Records that subscribers lost in gaps.", |seen| {
        seen.totals.losses.records
    });
    numbers(Gauge, "dunlin_topic_memory_bytes", "Memory of the retained records.", |seen| {
        seen.retained_bytes
    });
    numbers(Gauge, "dunlin_topic_waiting_subscribers", "Subscribers that have read everything.", |seen| {
        seen.waiting
    });
    numbers(Gauge, "dunlin_topic_publishers", "Open publishers.", |seen| seen.topic.publishers().into());
    let appended = owned.iter().filter(|seen| seen.last_append_ns > 0);
    let appended = appended.map(|seen| (labels(seen), seconds(seen.last_append_ns)));
    let name = "dunlin_topic_last_append_timestamp_seconds";
    out.family(Gauge, name, "Time of the last append, in seconds since 1970.", appended);
    write_stored(topics, out);
}

fn write_stored(topics: &[TopicSurvey], out: &mut Exposition) {
    let durable: Vec<_> = topics.iter().filter_map(|seen| Some((seen, seen.stored?))).collect();
    let mut numbers = |name: &str, help: &str, pick: fn(&StoredSurvey) -> u64| {
        out.family(Gauge, name, help, durable.iter().map(|(seen, stored)| (labels(seen), pick(stored))));
    };
    numbers("dunlin_topic_disk_bytes", "Bytes on disk.", |stored| stored.bytes);
    numbers("dunlin_topic_unstored_records", "Records appended and not synced yet.", |stored| {
        stored.unstored_records
    });
    numbers("dunlin_topic_unstored_bytes", "Bytes appended and not synced yet.", |stored| {
        stored.unstored_bytes
    });
    numbers("dunlin_topic_disk_full", "1 while the disk is full.", |stored| stored.full.into());
    numbers("dunlin_topic_disk_failed", "1 after the disk failed.", |stored| stored.failed.into());
}

fn labels(seen: &TopicSurvey) -> [(&'static str, String); 1] {
    [("topic", seen.topic.name().to_owned())]
}
