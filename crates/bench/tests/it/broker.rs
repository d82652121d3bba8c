//! The points of suite `broker`, small: what comes, through every door; never how fast.

use dunlin_bench::Row;

use crate::runs::rows_of;

fn rows(case: &str) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    rows_of(folder.path(), &["broker", &format!("--case={case}"), "--time=20ms"])
}

fn count(rows: &[Row], transport: &str, metric: &str) -> usize {
    let of = |row: &&Row| row.metric == metric && row.params.contain(&[("transport", transport)]);
    rows.iter().filter(of).count()
}

#[test]
fn the_stress_test_delivers_all_to_every_subscriber() {
    let rows = rows("stress");
    let delivered: Vec<_> = rows.iter().filter(|row| row.metric == "success_percent").collect();
    assert_eq!(delivered.len(), 7);
    assert!(delivered.iter().all(|row| row.median == 100.0), "{delivered:?}");
}

#[test]
fn every_door_is_measured_in_both_ways() {
    let rows = rows("doors");
    for transport in ["inproc", "tcp", "nats", "http"] {
        assert_eq!(count(&rows, transport, "msgs_per_s"), 2, "{transport}");
    }
}

#[test]
fn every_use_case_goes_through_every_door() {
    let rows = rows("use_cases");
    for (transport, cases) in [("inproc", 6), ("tcp", 7), ("nats", 7), ("http", 7)] {
        assert_eq!(count(&rows, transport, "p99_ns"), cases, "{transport}");
    }
}

#[test]
fn raw_clients_stream_fan_out_and_ask_through_the_nats_door() {
    // Four sizes and three ways to ask; two fan-outs.
    let rows = rows("nats_door");
    assert_eq!((count(&rows, "nats", "msgs_per_s"), count(&rows, "nats", "deliveries_per_s")), (7, 2));
}

#[test]
fn every_connection_of_a_crowd_delivers() {
    assert_eq!(count(&rows("connections"), "nats", "connection_bytes"), 1);
}

#[test]
fn others_are_served_beside_every_offender() {
    assert_eq!(count(&rows("isolation"), "nats", "p50_times_alone"), 4);
}
