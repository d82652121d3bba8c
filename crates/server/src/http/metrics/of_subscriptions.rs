//! Figures of the slowest subscriptions.

use dunlin::SubscriptionInfo;

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};

pub(super) fn write(slowest: &[SubscriptionInfo], out: &mut Exposition) {
    let slowest = unlike(slowest);
    let lag = slowest.iter().map(|(labels, seen)| (labels.clone(), seen.subscriber.lag));
    out.family(Gauge, "dunlin_subscription_lag_records", "Lag of one of the slowest subscriptions.", lag);
    let missed = slowest.iter().map(|(labels, seen)| (labels.clone(), seen.subscriber.missed));
    out.family(
        Counter,
        "dunlin_subscription_missed_records_total",
        "Records missed by one of the slowest subscriptions.",
        missed,
    );
}

type Labels = [(&'static str, String); 4];

/// Keeps one subscription for each set of labels: the slowest.
fn unlike(slowest: &[SubscriptionInfo]) -> Vec<(Labels, &SubscriptionInfo)> {
    let mut unlike: Vec<(Labels, &SubscriptionInfo)> = Vec::new();
    for seen in slowest {
        let labels = labels(seen);
        if unlike.iter().all(|(others, _)| *others != labels) {
            unlike.push((labels, seen));
        }
    }
    unlike
}

fn labels(seen: &SubscriptionInfo) -> Labels {
    let subscriber = &seen.subscriber;
    let protocol = if subscriber.protocol.is_empty() { "in_process" } else { subscriber.protocol };
    [
        ("protocol", protocol.to_owned()),
        ("name", subscriber.name.clone()),
        ("topic", seen.topic.name().to_owned()),
        ("partition", subscriber.partition.to_string()),
    ]
}
