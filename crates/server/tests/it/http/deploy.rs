//! Checks that the dashboard and the alerts in `deploy/` use only metrics and labels that `/metrics` has.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::topic::{Start, SubscribeOptions};
use dunlin::{Config, Node};
use serde_json::Value;

use super::HttpServer;

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names of all metrics in a text, such as a query expression.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| word.starts_with("dunlin_") || word.starts_with("process_");
    words.filter(ours).map(str::to_owned).collect()
}

/// Returns the labels in a text: those in `by (…)` clauses, and those that a legend or message inserts as
/// `{{label}}`.
fn labels(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in text.split("by (").skip(1) {
        found.extend(part.split(')').next().unwrap().split(',').map(|label| label.trim().to_owned()));
    }
    for part in text.split("{{").skip(1) {
        let name = part.split("}}").next().unwrap().trim();
        found.extend((!name.starts_with('$')).then(|| name.to_owned()));
    }
    found
}

/// Returns the text of `/metrics` at a node that is prepared so that each metric has a value.
fn scrape() -> String {
    let dir = tempfile::tempdir().unwrap();
    let (node, _) = Node::open(Config::default(), Arc::new(RealDisk), dir.path()).unwrap();
    let fixture = HttpServer::of(node, |_| ());
    assert_eq!(fixture.peer().request("PUT", "/v1/topics/kept", &[], br#"{"durable": {}}"#).status, 201);
    assert_eq!(fixture.post("/v1/topics/kept", &[], b"x").status, 200);
    let options = SubscribeOptions { name: "a".to_owned(), start: Start::Earliest, ..Default::default() };
    let _subscriber = fixture.node.subscribe("kept", &options).unwrap();
    fixture.get("/metrics").text().to_owned()
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let scraped = scrape();
    let present: BTreeSet<String> =
        scraped.lines().filter(|line| !line.starts_with('#')).flat_map(metrics).collect();
    let families: BTreeSet<&str> =
        scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(families.iter().all(|family| present.contains(*family)), "each has a series here: {scraped}");
    let known_labels: BTreeSet<&str> =
        ["instance", "protocol", "name", "topic", "partition", "method", "status"].into();
    for name in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
        let text = file(name);
        let used = metrics(&text);
        assert!(used.len() > 8, "{name} asks for {used:?}");
        let missing: Vec<_> = used.difference(&present).collect();
        assert!(missing.is_empty(), "{name} asks for what /metrics does not say: {missing:?}");
        for label in labels(&text) {
            assert!(known_labels.contains(label.as_str()), "{name} asks for the label {label}");
            let is_present = label == "instance" || scraped.contains(&format!("{label}=\""));
            assert!(is_present, "{label} is on no series");
        }
    }
}

#[test]
fn every_dashboard_panel_has_a_query_and_its_own_position() {
    let board: Value = serde_json::from_str(&file("grafana-dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(x < 24 && places.insert((x, y)), "{} lies over another", panel["title"]);
        }
        if panel["type"] != "row" {
            let targets = panel["targets"].as_array().unwrap();
            assert!(
                !targets.is_empty()
                    && targets.iter().all(|t| !metrics(t["expr"].as_str().unwrap()).is_empty())
            );
        }
    }
}

/// If one text is not valid YAML, Prometheus refuses the whole file.
#[test]
fn quoted_alert_texts_are_valid_yaml() {
    let alerts = file("prometheus-alerts.yml");
    let values = alerts.lines().filter_map(|line| line.split_once(": ").map(|(_, value)| value.trim()));
    let mut quoted = 0;
    for value in values {
        for quote in ['"', '\''] {
            let Some(text) = value.strip_prefix(quote) else { continue };
            let inside = text.strip_suffix(quote).unwrap_or_else(|| panic!("{value} has one quote"));
            assert!(!inside.contains(quote), "{value}: use the other kind of quote inside");
            quoted += 1;
        }
    }
    assert!(quoted > 8, "{quoted} quoted texts");
}
