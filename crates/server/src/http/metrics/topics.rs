//! Metrics of the busiest topics.

use dunlin::topic::Topic;
use dunlin::{TopicDiskUse, TopicSurvey};

use super::exposition::MetricKind::{self, Counter, Gauge};
use super::exposition::{Exposition, seconds};

/// Writes the metrics of topics. Only the owner of a topic counts the topic's appended and retained records, so other
/// nodes leave out the metrics of these records.
pub(super) fn write(topics: &[TopicSurvey], is_owned: impl Fn(&Topic) -> bool, out: &mut Exposition) {
    let owned: Vec<_> = topics.iter().filter(|survey| is_owned(&survey.topic)).collect();
    let mut owner_metric = |kind: MetricKind, name: &str, help: &str, pick: fn(&TopicSurvey) -> u64| {
        out.family(kind, name, help, owned.iter().map(|survey| (labels(survey), pick(survey))));
    };
    owner_metric(Counter, "dunlin_topic_records_total", "Records appended.", |survey| survey.totals.records);
    owner_metric(
        Counter,
        "dunlin_topic_bytes_total",
        "Bytes of records appended by this process.",
        |survey| survey.totals.bytes,
    );
    owner_metric(Gauge, "dunlin_topic_retained_records", "Records retained.", |survey| {
        survey.retained_records
    });
    let mut metric = |kind: MetricKind, name: &str, help: &str, pick: fn(&TopicSurvey) -> u64| {
        out.family(kind, name, help, topics.iter().map(|survey| (labels(survey), pick(survey))));
    };
    metric(
        Counter,
        "dunlin_topic_lagging_total",
        "Warnings to subscribers that were behind by half of the log.",
        |survey| survey.totals.losses.warnings,
    );
    metric(Counter, "dunlin_topic_gaps_total", "Gaps delivered to subscribers.", |survey| {
        survey.totals.losses.gaps
    });
    metric(Counter, "dunlin_topic_gap_records_total", "Records that subscribers lost in gaps.", |survey| {
        survey.totals.losses.records
    });
    metric(Gauge, "dunlin_topic_memory_bytes", "Memory of the retained records.", |survey| {
        survey.retained_bytes
    });
    metric(Gauge, "dunlin_topic_waiting_subscribers", "Subscribers that have read everything.", |survey| {
        survey.waiting
    });
    metric(Gauge, "dunlin_topic_publishers", "Open publishers.", |survey| survey.topic.publishers().into());
    let appended = owned.iter().filter(|survey| survey.last_append_ns > 0);
    let appended = appended.map(|survey| (labels(survey), seconds(survey.last_append_ns)));
    let name = "dunlin_topic_last_append_timestamp_seconds";
    out.family(Gauge, name, "Time of the last append, in seconds since 1970.", appended);
    write_stored(topics, out);
}

fn write_stored(topics: &[TopicSurvey], out: &mut Exposition) {
    let durable: Vec<_> = topics.iter().filter_map(|survey| Some((survey, survey.stored?))).collect();
    let mut metric = |name: &str, help: &str, pick: fn(&TopicDiskUse) -> u64| {
        out.family(Gauge, name, help, durable.iter().map(|(survey, stored)| (labels(survey), pick(stored))));
    };
    metric("dunlin_topic_disk_bytes", "Bytes on disk.", |stored| stored.bytes);
    metric("dunlin_topic_unstored_records", "Records appended and not synced yet.", |stored| {
        stored.unstored_records
    });
    metric("dunlin_topic_unstored_bytes", "Bytes appended and not synced yet.", |stored| {
        stored.unstored_bytes
    });
    metric("dunlin_topic_disk_full", "1 while the disk is full.", |stored| stored.full.into());
    metric("dunlin_topic_disk_failed", "1 after the disk failed.", |stored| stored.failed.into());
}

fn labels(survey: &TopicSurvey) -> [(&'static str, String); 1] {
    [("topic", survey.topic.name().to_owned())]
}
