//! Formats the overview of a node that `dunlin top` shows. The terminal screen and the plain output use the same texts.

use std::time::Duration;

use dunlin_topic::format_duration;
use serde_json::Value;

use super::report::NodeReport;
use crate::console::{format_bytes, grouped};

/// One table on the screen of `dunlin top`, with its title.
#[derive(Debug)]
pub struct StatusTable {
    pub title: String,
    pub heading: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
}

/// Returns the names and values of the overview, in the order in which they are shown.
pub fn figures(report: &NodeReport) -> Vec<(&'static str, String)> {
    let stats = report.of("stats");
    let (rates, totals, process) = (&stats["rates"], &stats["totals"], &stats["process"]);
    let (memory, connections) = (&stats["memory"], &stats["connections"]);
    vec![
        ("records", format!("{}, {} total", rate(&rates["records_per_s"]), integer_text(&totals["records"]))),
        ("bytes", format!("{}/s, {} total", bytes(&rates["bytes_per_s"]), bytes(&totals["bytes"]))),
        (
            "gaps",
            format!(
                "{}, {} total: {} missed records",
                rate(&rates["gaps_per_s"]),
                integer_text(&totals["gaps"]),
                integer_text(&totals["gap_records"])
            ),
        ),
        (
            "topics",
            format!(
                "{}, {} subscribers",
                integer_text(&stats["topics"]),
                integer_text(&stats["subscriptions"])
            ),
        ),
        ("listeners", listeners(stats)),
        (
            "clients",
            format!(
                "{} of {}, {} refused",
                integer_text(&connections["open"]),
                integer_text(&connections["limit"]),
                integer_text(&connections["refused"])
            ),
        ),
        (
            "memory",
            format!(
                "{} for topics{}{}",
                used(memory),
                if memory["keys"].is_null() {
                    String::new()
                } else {
                    format!(", {} for keys", used(&memory["keys"]))
                },
                if memory["tasks"].is_null() {
                    String::new()
                } else {
                    format!(", {} for tasks", used(&memory["tasks"]))
                },
            ),
        ),
        (
            "process",
            format!(
                "{}, {} of a core, {} threads, {} files",
                bytes(&process["rss_bytes"]),
                process["cpu_percent"].as_f64().map_or_else(none, |percent| format!("{percent:.0} %")),
                integer_text(&process["threads"]),
                integer_text(&process["open_files"])
            ),
        ),
    ]
}

/// The node's number, name, version and uptime.
pub fn node_title(report: &NodeReport) -> String {
    let stats = report.of("stats");
    let up = stats["uptime_s"].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let up = up.map_or_else(none, format_duration);
    format!(
        "node {} {}, {}, up {up}",
        integer_text(&stats["id"]),
        text(&stats["name"]),
        text(&stats["version"])
    )
}

/// Returns the URL of the node. If the node is unreachable, returns the duration of the outage and the reason instead.
pub fn node_address_or_outage(report: &NodeReport) -> String {
    match (report.outage(), report.silent_for()) {
        (Some(outage), Some(silent)) => {
            format!("unreachable for {}: {}", format_duration(silent), plain(&outage.why))
        }
        _ => report.url().to_owned(),
    }
}

pub fn subscribers(report: &NodeReport) -> StatusTable {
    let row = |subscriber: &Value| {
        vec![
            text(&subscriber["name"]),
            text(&subscriber["topic"]),
            text(&subscriber["protocol"]),
            integer_text(&subscriber["lag"]),
            integer_text(&subscriber["missed"]),
            text(&subscriber["why"]),
        ]
    };
    StatusTable {
        title: "slowest subscribers".to_owned(),
        heading: &["SUBSCRIBER", "TOPIC", "PROTOCOL", "LAG", "MISSED", "WHY"],
        rows: list(&report.of("stats")["slowest"]).map(row).collect(),
    }
}

pub fn topics(report: &NodeReport) -> StatusTable {
    let topics = report.of("topics");
    let row = |topic: &Value| {
        vec![
            text(&topic["name"]),
            rate(&topic["records_per_s"]),
            format!("{}/s", bytes(&topic["bytes_per_s"])),
            integer_text(&topic["records"]),
            integer_text(&topic["subscribers"]),
            integer_text(&topic["gaps"]),
            integer_text(&topic["owner"]["node"]),
        ]
    };
    StatusTable {
        title: format!("busiest topics of {}", integer_text(&topics["total"])),
        heading: &["TOPIC", "RECORDS", "BYTES", "TOTAL", "SUBSCRIBERS", "GAPS", "OWNER"],
        rows: list(&topics["topics"]).map(row).collect(),
    }
}

pub fn nodes(report: &NodeReport) -> StatusTable {
    let cluster = report.of("cluster");
    let row = |node: &Value| {
        let is_leader = !cluster["leader"].is_null() && node["node"] == cluster["leader"];
        let state = match (node["removed"].is_null(), node["alive"].as_bool() == Some(true)) {
            (false, _) => "removed",
            (true, true) => "up",
            (true, false) => "DOWN",
        };
        vec![
            integer_text(&node["node"]),
            if is_leader { format!("{state}, leader") } else { state.to_owned() },
            integer_text(&node["topics_owned"]),
            text(&node["listeners"]["tcp"]),
            text(&node["listeners"]["http"]),
        ]
    };
    let missing =
        cluster["missing"].as_str().map_or_else(String::new, |missing| format!(": {}", plain(missing)));
    let title = match cluster["cluster"].is_null() {
        true => "single node, without a cluster".to_owned(),
        false => {
            format!("cluster, term {}{}{missing}", integer_text(&cluster["term"]), shard_leaders(cluster))
        }
    };
    StatusTable {
        title,
        heading: &["NODE", "STATE", "TOPICS OWNED", "DUNLIN", "HTTP"],
        rows: list(&cluster["nodes"]).map(row).collect(),
    }
}

/// The leader and the term of each group of members that agrees on a part of the tasks.
fn shard_leaders(cluster: &Value) -> String {
    let shards: Vec<String> = list(&cluster["tasks_shards"])
        .map(|shard| match shard["leader"].is_null() {
            true => "no node".to_owned(),
            false => {
                format!("node {} (term {})", integer_text(&shard["leader"]), integer_text(&shard["term"]))
            }
        })
        .collect();
    if shards.is_empty() { String::new() } else { format!(", tasks led by {}", shards.join(", ")) }
}

pub fn work(report: &NodeReport) -> StatusTable {
    let work = report.of("work");
    let row = |tenant: &Value| {
        vec![
            text(&tenant["name"]),
            tenant["share"].as_f64().map_or_else(none, |share| format!("{:.0} %", share * 100.0)),
            integer_text(&tenant["queued"]),
            integer_text(&tenant["running"]),
            rate(&tenant["completed_per_s"]),
            integer_text(&tenant["completed"]),
            integer_text(&tenant["failed"]),
        ]
    };
    let jain = work["jain"].as_f64().map_or_else(String::new, |jain| format!(", Jain's index {jain:.3}"));
    StatusTable {
        title: format!(
            "tasks: {} stored, {} running, {} workers{jain}",
            integer_text(&work["known"]),
            integer_text(&work["held"]),
            integer_text(&work["workers_up"])
        ),
        heading: &["TENANT", "SHARE", "QUEUED", "RUNNING", "DONE", "TOTAL", "FAILED"],
        rows: list(&work["tenants"]).map(row).collect(),
    }
}

pub fn spaces(report: &NodeReport) -> StatusTable {
    let rows = list(&report.of("spaces")["worlds"]).flat_map(|world| {
        list(&world["regions"]).map(|region| {
            vec![
                text(&world["world"]),
                integer_text(&region["region"]),
                integer_text(&region["process"]),
                integer_text(&region["epoch"]),
                integer_text(&region["standby"]),
            ]
        })
    });
    StatusTable {
        title: "worlds".to_owned(),
        heading: &["WORLD", "REGION", "PROCESS", "EPOCH", "STANDBY"],
        rows: rows.collect(),
    }
}

fn listeners(stats: &Value) -> String {
    let listener = |listener: &Value| {
        let address =
            listener["address"].as_str().map_or_else(String::new, |address| format!(" {}", plain(address)));
        format!("{}{address} {}", text(&listener["protocol"]), integer_text(&listener["open"]))
    };
    // Leave out listeners that have no address and no connections.
    let is_open = |listener: &&Value| !listener["address"].is_null() || listener["open"].as_u64() > Some(0);
    list(&stats["listeners"]).filter(is_open).map(listener).collect::<Vec<_>>().join(", ")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn none() -> String {
    "–".to_owned()
}

fn integer_text(number: &Value) -> String {
    number.as_u64().or_else(|| number.as_f64().map(|number| number as u64)).map_or_else(none, grouped)
}

fn used(memory: &Value) -> String {
    format!("{} of {}", bytes(&memory["used_bytes"]), bytes(&memory["limit_bytes"]))
}

fn bytes(number: &Value) -> String {
    number.as_f64().map_or_else(none, |bytes| format_bytes(bytes as u64))
}

/// Formats a rate per second with three significant digits.
fn rate(number: &Value) -> String {
    let Some(number) = number.as_f64() else { return none() };
    match number {
        million if million >= 999_500.0 => format!("{:.2} M/s", million / 1e6),
        thousand if thousand >= 9_999.5 => format!("{:.1} k/s", thousand / 1e3),
        some if some >= 10.0 || some.fract() < 0.05 => format!("{}/s", grouped(some.round() as u64)),
        few => format!("{few:.1}/s"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(none, plain)
}

/// Escapes the control characters in a name.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_have_three_significant_digits() {
        let rates = [0.0, 0.4, 7.0, 12.4, 9_876.0, 12_345.0, 999_999.0, 1_204_331.0]
            .map(|number| rate(&json!(number)));
        assert_eq!(rates, ["0/s", "0.4/s", "7/s", "12/s", "9,876/s", "12.3 k/s", "1.00 M/s", "1.20 M/s"]);
        assert_eq!((rate(&Value::Null), integer_text(&Value::Null)), (none(), none()));
    }

    #[test]
    fn control_characters_in_a_name_are_replaced() {
        let mut report = NodeReport::new("dunlin://a");
        report.update(
            "stats".to_owned(),
            json!({"slowest": [{"name": "\u{1b}[2Jx", "topic": "t\r\n", "lag": 5}]}),
        );
        let row = &subscribers(&report).rows[0];
        assert_eq!(
            (row[0].as_str(), row[1].as_str(), row[3].as_str()),
            ("\u{fffd}[2Jx", "t\u{fffd}\u{fffd}", "5")
        );
    }

    #[test]
    fn dunlin_top_shows_the_leader_and_the_nodes_that_are_down() {
        let mut report = NodeReport::new("dunlin://a");
        let node = |node: u64, alive: bool| json!({"node": node, "alive": alive, "removed": null, "topics_owned": 3, "listeners": {}});
        report.update(
            "cluster".to_owned(),
            json!({"cluster": "c", "leader": 2, "term": 4, "nodes": [node(1, false), node(2, true)]}),
        );
        let nodes = nodes(&report);
        assert_eq!(nodes.rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["DOWN", "up, leader"]);
        assert_eq!(nodes.title, "cluster, term 4");
    }

    #[test]
    fn title_names_the_leader_of_each_task_shard() {
        let mut report = NodeReport::new("dunlin://a");
        let shard =
            |at: u64, leader: Option<u64>, term: u64| json!({"shard": at, "leader": leader, "term": term});
        let shards = [shard(0, Some(2), 4), shard(1, None, 5), shard(2, Some(1), 6)];
        report.update(
            "cluster".to_owned(),
            json!({"cluster": "c", "term": 3, "nodes": [], "tasks_shards": shards}),
        );
        assert_eq!(
            nodes(&report).title,
            "cluster, term 3, tasks led by node 2 (term 4), no node, node 1 (term 6)"
        );
    }
}
