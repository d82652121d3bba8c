//! Builds the report `topics`: the busiest topics of all nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use dunlin::topic::Topic;
use serde_json::{Value, json};

use super::past::per_s;
use super::{TOPICS_SHOWN, lock};
use crate::figures::{ClusterFigures, FiguresRequest, OwnerFigures, TopicFigures};
use crate::http::Surveys;
use crate::shared::SharedServer;

/// The rates of a topic: records per second, and bytes per second.
type Rates = [u64; 2];

pub(super) async fn build(shared: &Arc<SharedServer>) -> Value {
    let topics_max = shared.limits.http.topics_shown as usize;
    let pending = shared.request_figures(|| FiguresRequest { topics_max, ..FiguresRequest::default() });
    let survey = Surveys::latest(shared).await;
    let figures_of_nodes = match pending {
        Some(pending) => pending.await,
        None => ClusterFigures::default(),
    };
    let mut topics: BTreeMap<&str, Arc<Topic>> =
        survey.busiest.iter().map(|busy| (busy.topic.name(), Arc::clone(&busy.topic))).collect();
    for name in figures_of_nodes.topics() {
        if let Some(topic) = shared.node.topic(name) {
            topics.entry(name).or_insert(topic);
        }
    }
    let entries: Vec<(Arc<Topic>, TopicFigures)> = topics
        .into_values()
        .map(|topic| {
            let figures = figures_of_nodes.of(shared, &topic);
            (topic, figures)
        })
        .collect();
    let mut rated = with_rates(shared, &entries);
    rated.sort_by_key(|(rates, topic, figures)| {
        let appended = figures.owner.as_ref().map_or(0, OwnerFigures::appended);
        (Reverse(rates.unwrap_or_default()), Reverse(appended), topic.name().to_owned())
    });
    let shown = rated.into_iter().take(TOPICS_SHOWN);
    let topics: Vec<Value> =
        shown.map(|(rates, topic, figures)| topic_json(shared, rates, topic, figures)).collect();
    json!({"total": survey.topics, "topics": topics})
}

/// Computes each topic's publish rates since an earlier sample. The rates are `None` if there is no earlier sample, or
/// if the topic's owner did not respond.
fn with_rates<'s>(
    shared: &SharedServer,
    entries: &'s [(Arc<Topic>, TopicFigures)],
) -> Vec<(Option<Rates>, &'s Topic, &'s TopicFigures)> {
    let now = Instant::now();
    let counts =
        |figures: &TopicFigures| figures.owner.as_ref().map(|held| [held.appended(), held.appended_bytes()]);
    let mut past = lock(&shared.node_report.past);
    let rated = entries.iter().map(|(topic, figures)| {
        let rates = counts(figures).and_then(|now_counts| {
            let (seconds, before) = past.topics.recent(now)?;
            // A topic that is missing in the earlier sample gets rate 0.
            let before = before.get(topic.name()).copied().unwrap_or(now_counts);
            Some([per_s(now_counts[0], before[0], seconds), per_s(now_counts[1], before[1], seconds)])
        });
        (rates, &**topic, figures)
    });
    let rated: Vec<_> = rated.collect();
    let counts_by_name =
        entries.iter().filter_map(|(topic, figures)| Some((topic.name().to_owned(), counts(figures)?)));
    let sample: HashMap<String, Rates> = counts_by_name.collect();
    past.topics.add(now, sample);
    rated
}

/// Builds one topic's entry in the report. A value is null if a node that has the value did not respond.
fn topic_json(
    shared: &SharedServer,
    rates: Option<Rates>,
    topic: &Topic,
    TopicFigures { owner: held, clients: users }: &TopicFigures,
) -> Value {
    let (config, held, users) = (topic.config(), held.as_ref(), users.as_ref());
    let last_append_ns = held.map(OwnerFigures::last_append_ns).filter(|ns| *ns > 0);
    json!({
        "name": topic.name(), "pattern": topic.pattern(), "partitions": config.partitions,
        "state": config.reducer.as_ref().map(|reducer| reducer.kind.as_str()),
        "records_per_s": rates.map(|rates| rates[0]), "bytes_per_s": rates.map(|rates| rates[1]),
        "records": held.map(OwnerFigures::appended), "retained_records": held.map(OwnerFigures::records),
        "retained_bytes": held.map(OwnerFigures::memory_bytes),
        "subscribers": users.map(|users| users.subscribers_total), "waiting": users.map(|users| users.waiting),
        "gaps": users.map(|users| users.losses.gaps), "gap_records": users.map(|users| users.losses.records),
        "durable": config.durable.is_some(), "reliable": config.reliable.is_some(),
        "owner": shared.owner_of(topic),
        "last_append_ms": last_append_ns.map(|ns| ns / 1_000_000),
    })
}
