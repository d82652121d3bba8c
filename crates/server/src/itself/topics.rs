//! The topics that are busiest now.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use dunlin::TopicSurvey;
use serde_json::{Value, json};

use super::past::per_s;
use super::{TOPICS_SHOWN, lock};
use crate::http::Surveys;
use crate::shared::Shared;

pub(super) async fn say(shared: &Arc<Shared>) -> Value {
    let survey = Surveys::take(shared).await;
    let now = Instant::now();
    let counts = |seen: &TopicSurvey| [seen.totals.records, seen.totals.bytes];
    let mut past = lock(&shared.itself.past);
    let mut rated: Vec<(Option<[u64; 2]>, &TopicSurvey)> = survey
        .busiest
        .iter()
        .map(|seen| {
            let rates = past.topics.last(now).map(|(seconds, before)| {
                // What was not shown then had nothing to show.
                let before = before.get(seen.topic.name()).copied().unwrap_or(counts(seen));
                let now = counts(seen);
                [per_s(now[0], before[0], seconds), per_s(now[1], before[1], seconds)]
            });
            (rates, seen)
        })
        .collect();
    rated.sort_by_key(|(rates, seen)| {
        (Reverse(rates.unwrap_or_default()), Reverse(seen.totals.records), seen.topic.name().to_owned())
    });
    let sample: HashMap<String, [u64; 2]> =
        survey.busiest.iter().map(|seen| (seen.topic.name().to_owned(), counts(seen))).collect();
    past.topics.take(now, sample);
    drop(past);
    let topics: Vec<Value> =
        rated.iter().take(TOPICS_SHOWN).map(|(rates, seen)| line(shared, *rates, seen)).collect();
    json!({"total": survey.topics, "topics": topics})
}

fn line(shared: &Shared, rates: Option<[u64; 2]>, seen: &TopicSurvey) -> Value {
    let (topic, config) = (&seen.topic, seen.topic.config());
    let losses = &seen.totals.losses;
    json!({
        "name": topic.name(), "pattern": topic.pattern(), "partitions": config.partitions,
        "state": config.fold.as_ref().map(|fold| fold.kind.as_str()),
        "records_per_s": rates.map(|rates| rates[0]), "bytes_per_s": rates.map(|rates| rates[1]),
        "records": seen.totals.records, "retained_records": seen.retained_records, "retained_bytes": seen.retained_bytes,
        "readers": topic.readers().len(), "waiting": seen.waiting,
        "gaps": losses.gaps, "gap_records": losses.records,
        "durable": config.durable.is_some(), "reliable": config.reliable.is_some(),
        "owner": shared.owner_of(topic),
        "last_append_ms": (seen.last_append_ns > 0).then_some(seen.last_append_ns / 1_000_000),
    })
}
