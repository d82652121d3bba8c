//! Metrics of the slowest subscriptions.

use dunlin::SubscriptionInfo;

use super::exposition::MetricKind::{Counter, Gauge};
use super::exposition::{Exposition, printable};

pub(super) fn write(slowest: &[SubscriptionInfo], out: &mut Exposition) {
    let slowest = distinct(slowest);
    let lag = slowest.iter().map(|(labels, subscription)| (labels.clone(), subscription.subscriber.lag));
    out.family(Gauge, "dunlin_subscription_lag_records", "Lag of one of the slowest subscriptions.", lag);
    let missed =
        slowest.iter().map(|(labels, subscription)| (labels.clone(), subscription.subscriber.missed));
    out.family(
        Counter,
        "dunlin_subscription_missed_records_total",
        "Records missed by one of the slowest subscriptions.",
        missed,
    );
}

type Labels = [(&'static str, String); 4];

/// Of the subscriptions that have the same labels, keeps only the slowest.
fn distinct(slowest: &[SubscriptionInfo]) -> Vec<(Labels, &SubscriptionInfo)> {
    let mut distinct: Vec<(Labels, &SubscriptionInfo)> = Vec::new();
    for subscription in slowest {
        let labels = labels(subscription);
        if distinct.iter().all(|(others, _)| *others != labels) {
            distinct.push((labels, subscription));
        }
    }
    distinct
}

fn labels(subscription: &SubscriptionInfo) -> Labels {
    let subscriber = &subscription.subscriber;
    let protocol = if subscriber.protocol.is_empty() { "in_process" } else { subscriber.protocol };
    [
        ("protocol", protocol.to_owned()),
        ("name", printable(&subscriber.name)),
        ("topic", subscription.topic.name().to_owned()),
        ("partition", subscriber.partition.to_string()),
    ]
}
