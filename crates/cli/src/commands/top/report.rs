//! Keeps the last status that a node has published, and the time since which the node has been unreachable.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// The parts of a node's status, in the order in which the node publishes them.
pub const ALL: [&str; 5] = ["stats", "topics", "cluster", "work", "spaces"];
/// The maximum number of rates in the history. The node reports one rate each second.
const HISTORY_MAX: usize = 600;

/// The last status that a node reported, for `dunlin top`.
#[derive(Debug)]
pub struct NodeReport {
    url: String,
    parts: BTreeMap<String, Value>,
    /// The rates that the node reported each second, in records per second, oldest first.
    history: VecDeque<u64>,
    outage: Option<NodeOutage>,
}

/// Since when a node has been unreachable, and why.
#[derive(Debug, Clone)]
pub struct NodeOutage {
    pub since: Instant,
    pub why: String,
}

impl NodeReport {
    pub fn new(url: &str) -> NodeReport {
        NodeReport { url: url.to_owned(), parts: BTreeMap::new(), history: VecDeque::new(), outage: None }
    }

    pub fn update(&mut self, part: String, value: Value) {
        self.outage = None;
        if part == "stats"
            && let Some(rate) = value["rates"]["records_per_s"].as_f64()
        {
            if self.history.len() == HISTORY_MAX {
                self.history.pop_front();
            }
            self.history.push_back(rate as u64);
        }
        self.parts.insert(part, value);
    }

    pub fn mark_unreachable(&mut self, why: String) {
        let since = self.outage.as_ref().map_or_else(Instant::now, |outage| outage.since);
        self.outage = Some(NodeOutage { since, why });
    }

    pub fn outage(&self) -> Option<&NodeOutage> {
        self.outage.as_ref()
    }

    pub fn silent_for(&self) -> Option<Duration> {
        self.outage.as_ref().map(|outage| outage.since.elapsed())
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the last value of `part`, a named part of the node's status; null if this part has not arrived.
    pub fn of(&self, part: &str) -> &Value {
        self.parts.get(part).unwrap_or(&Value::Null)
    }

    /// The time at which the node published the last part in [`ALL`], in Unix ms; `None` if this part has not arrived.
    pub fn published_at(&self) -> Option<u64> {
        self.of(ALL[ALL.len() - 1])["at_ms"].as_u64()
    }

    /// Whether all parts of the status have arrived, including the rates. The node needs two measurements to calculate
    /// rates.
    pub fn is_complete(&self) -> bool {
        ALL.iter().all(|part| self.parts.contains_key(*part)) && !self.of("stats")["rates"].is_null()
    }

    /// Returns the newest rates, at most `count`, oldest first.
    pub fn history(&self, count: usize) -> Vec<u64> {
        self.history.iter().skip(self.history.len().saturating_sub(count)).copied().collect()
    }

    /// The complete status as one JSON object.
    pub fn object(&self) -> Value {
        let mut object: Map<String, Value> =
            self.parts.iter().map(|(part, value)| (part.clone(), value.clone())).collect();
        object.insert("url".to_owned(), self.url.clone().into());
        let outage = self
            .outage
            .as_ref()
            .map(|outage| json!({"why": outage.why, "s": outage.since.elapsed().as_secs_f64()}));
        object.insert("unreachable".to_owned(), outage.into());
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_report_is_complete_only_after_its_rates_arrived() {
        let mut report = NodeReport::new("dunlin://a");
        ALL.iter().for_each(|part| report.update((*part).to_owned(), json!({"at_ms": 7, "rates": null})));
        assert!(!report.is_complete());
        report.update("stats".to_owned(), json!({"rates": {"records_per_s": 12.0}}));
        assert!(report.is_complete());
        assert_eq!((report.published_at(), report.history(5)), (Some(7), vec![12]));
    }

    #[test]
    fn outage_of_a_node_lasts_from_first_failure_to_next_message() {
        let mut report = NodeReport::new("dunlin://a");
        report.mark_unreachable("refused".to_owned());
        let since = report.outage().unwrap().since;
        report.mark_unreachable("refused again".to_owned());
        assert_eq!(
            (report.outage().unwrap().since, report.outage().unwrap().why.as_str()),
            (since, "refused again")
        );
        assert_eq!(report.object()["unreachable"]["why"], "refused again");
        report.update("stats".to_owned(), json!({}));
        assert!(report.outage().is_none() && report.object()["unreachable"].is_null());
    }
}
