use std::collections::BTreeMap;

use dunlin::topic::{Start, Subscribe, SubscribeOptions};

use super::{HttpServer, short};

/// Parses the text of `/metrics` and checks its format. Returns the value of each series.
pub(super) fn read(text: &str) -> BTreeMap<String, f64> {
    let mut series = BTreeMap::new();
    let mut family = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family = Some(name.to_owned());
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let bare = name.split('{').next().unwrap();
            assert_eq!(Some(bare), family.as_deref(), "{line}");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(series.insert(name.to_owned(), value), None, "{line} stands there twice");
        }
    }
    series
}

/// Reads `/metrics` until `condition` holds. One attempt is not enough, because the node reuses its collected counters
/// for a short time.
fn scrape_until(
    fixture: &HttpServer,
    condition: impl Fn(&BTreeMap<String, f64>) -> bool,
) -> BTreeMap<String, f64> {
    let deadline = dunlin_wait::Deadline::new();
    loop {
        let response = fixture.get("/metrics");
        assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let series = read(response.text());
        if condition(&series) {
            return series;
        }
        deadline.check(response.text());
    }
}

#[test]
fn metrics_count_published_lost_and_lagging_records() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("a.\"b", short(), false).unwrap();
    let options = SubscribeOptions { name: "slow".to_owned(), start: Start::Earliest, ..Default::default() };
    let mut slow = fixture.node.subscribe("a.\"b", &options).unwrap();
    let _asleep = fixture
        .node
        .subscribe("a.\"b", &SubscribeOptions { name: "asleep".to_owned(), ..options.clone() })
        .unwrap();
    for _ in 0..5_000 {
        fixture.publish("a.\"b", &[b'x'; 100]);
    }
    while slow.try_next().unwrap().is_some() {}
    let series = scrape_until(&fixture, |series| series["dunlin_gaps_total"] == 1.0);
    let topic = r#"{topic="a.\"b"}"#;
    assert_eq!(series[&format!("dunlin_topic_records_total{topic}")], 5_000.0);
    assert_eq!(series["dunlin_records_total"], 5_000.0);
    assert!(series["dunlin_bytes_total"] > 500_000.0);
    assert!(series["dunlin_gap_records_total"] > 4_000.0);
    assert!(series["dunlin_lagging_total"] >= 1.0);
    assert_eq!(series["dunlin_dead_letters_dropped_total"], 0.0);
    assert_eq!((series["dunlin_topics"], series["dunlin_subscriptions"]), (1.0, 2.0));
    let labels = r#"{protocol="in_process",name="asleep",topic="a.\"b",partition="0"}"#;
    assert_eq!(series[&format!("dunlin_subscription_lag_records{labels}")], 5_000.0);
    assert!(series["dunlin_memory_used_bytes"] > 0.0 && series["process_resident_memory_bytes"] > 1e6);
    assert!(series["process_start_time_seconds"] > 1.6e9 && series["process_open_fds"] > 3.0);
    // Totals must not decrease when a topic is deleted.
    fixture.node.delete_topic("a.\"b").unwrap();
    let series = scrape_until(&fixture, |series| series["dunlin_topics"] == 0.0);
    assert_eq!(series["dunlin_records_total"], 5_000.0);
}

#[test]
fn metric_counts_lost_records_of_two_subscribers_once() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("a", short(), false).unwrap();
    let options = SubscribeOptions { start: Start::Earliest, ..Default::default() };
    let mut slow = [0, 1].map(|_| fixture.node.subscribe("a", &options).unwrap());
    for _ in 0..5_000 {
        fixture.publish("a", &[b'x'; 100]);
    }
    for subscriber in &mut slow {
        while subscriber.try_next().unwrap().is_some() {}
    }
    let series = scrape_until(&fixture, |series| series["dunlin_gaps_total"] == 2.0);
    let lost = |name: &str, cause: &str| series[&format!("dunlin_lost_{name}_total{{cause=\"{cause}\"}}")];
    assert_eq!(series["dunlin_gap_records_total"], 2.0 * lost("records", "overwritten"));
    assert_eq!(lost("ranges", "overwritten"), 1.0);
    for cause in ["damaged", "restart", "mirror"] {
        assert_eq!((lost("records", cause), lost("ranges", cause)), (0.0, 0.0), "{cause}");
    }
}

#[test]
fn metrics_of_topics_and_subscriptions_are_limited_in_number() {
    let fixture = HttpServer::with(|config| {
        config.limits.http.topics_shown = 3;
        config.limits.http.metrics_subscriptions_max = 2;
    });
    let mut kept = Vec::new();
    for n in 0..6 {
        (0..=n).for_each(|_| drop(fixture.publish(&format!("t{n}"), b"x").position.to_string()));
        let options =
            SubscribeOptions { name: format!("s{n}"), start: Start::Earliest, ..Default::default() };
        kept.push(fixture.node.subscribe(&format!("t{n}"), &options).unwrap());
    }
    let series = scrape_until(&fixture, |series| {
        series["dunlin_topics"] == 6.0 && series["dunlin_subscriptions"] == 6.0
    });
    let of = |name: &str| series.keys().filter(|key| key.starts_with(name)).cloned().collect::<Vec<_>>();
    assert_eq!(of("dunlin_topic_records_total").len(), 3);
    assert!(series.contains_key(r#"dunlin_topic_records_total{topic="t5"}"#), "the busiest");
    assert_eq!(of("dunlin_subscription_lag_records").len(), 2);
    assert_eq!(series["dunlin_records_total"], 21.0);
}

#[test]
fn metrics_count_connections_and_responses() {
    let fixture = HttpServer::new();
    let mut kept = fixture.peer();
    assert_eq!(kept.request("GET", "/nothing", &[], b"").status, 404);
    assert_eq!(kept.request("BREW", "/nothing", &[], b"").status, 404);
    let series = scrape_until(&fixture, |series| {
        series.get(r#"dunlin_http_requests_total{method="other",status="404"}"#) == Some(&1.0)
    });
    assert_eq!(series[r#"dunlin_http_requests_total{method="GET",status="404"}"#], 1.0);
    assert!(series[r#"dunlin_connections{protocol="http"}"#] >= 2.0);
    assert!(series[r#"dunlin_connections_accepted_total{protocol="http"}"#] >= 2.0);
    assert_eq!(series[r#"dunlin_connections{protocol="tcp"}"#], 0.0);
}
