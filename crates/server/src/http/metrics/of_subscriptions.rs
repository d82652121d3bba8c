//! Figures of the slowest subscriptions.

use dunlin::SubscriptionInfo;

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};

pub(super) fn write(slowest: &[SubscriptionInfo], out: &mut Exposition) {
    let slowest = unlike(slowest);
    let lag = slowest.iter().map(|(labels, seen)| (labels.clone(), seen.reader.behind));
    out.family(Gauge, "dunlin_subscription_lag_records", "Lag of one of the slowest subscriptions.", lag);
    let lost = slowest.iter().map(|(labels, seen)| (labels.clone(), seen.reader.lost));
    out.family(
        Counter,
        "dunlin_subscription_lost_records_total",
        "Records lost by one of the slowest subscriptions.",
        lost,
    );
}

type Labels = [(&'static str, String); 4];

/// One subscription for each set of labels; of two, the slower one.
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
    let reader = &seen.reader;
    let protocol = if reader.protocol.is_empty() { "in_process" } else { reader.protocol };
    [
        ("door", protocol.to_owned()),
        ("name", reader.name.clone()),
        ("topic", seen.topic.name().to_owned()),
        ("partition", reader.partition.to_string()),
    ]
}
