//! Tests of suite `broker`, which make small runs of all its measurements. The tests check that the results exist. They
//! do not check speeds.

use dunlin_bench::FigureRow;

use crate::runs::rows_of;

fn rows(case: &str) -> Vec<FigureRow> {
    let folder = tempfile::tempdir().unwrap();
    rows_of(folder.path(), &["broker", &format!("--case={case}"), "--time=20ms"])
}

fn count(rows: &[FigureRow], transport: &str, metric: &str) -> usize {
    let of = |row: &&FigureRow| row.metric == metric && row.params.contains_all(&[("transport", transport)]);
    rows.iter().filter(of).count()
}

#[test]
fn stress_test_delivers_every_record_to_every_subscriber() {
    let rows = rows("stress");
    let delivered: Vec<_> = rows.iter().filter(|row| row.metric == "success_percent").collect();
    assert_eq!(delivered.len(), 7);
    assert!(delivered.iter().all(|row| row.median == 100.0), "{delivered:?}");
}

#[test]
fn protocol_benchmark_measures_two_rates_for_each_transport() {
    let rows = rows("protocols");
    for transport in ["inproc", "tcp", "nats", "http"] {
        assert_eq!(count(&rows, transport, "msgs_per_s"), 2, "{transport}");
    }
}

#[test]
fn every_use_case_is_measured_through_every_listener() {
    let rows = rows("use_cases");
    for (transport, cases) in [("inproc", 6), ("tcp", 7), ("nats", 7), ("http", 7)] {
        assert_eq!(count(&rows, transport, "p99_ns"), cases, "{transport}");
    }
}

#[test]
fn nats_listener_benchmark_measures_message_and_delivery_rates() {
    // The case has message rates for each size and mode, and delivery rates for two numbers of subscribers.
    let rows = rows("nats_listener");
    assert_eq!((count(&rows, "nats", "msgs_per_s"), count(&rows, "nats", "deliveries_per_s")), (7, 2));
}

#[test]
fn connection_benchmark_measures_bytes_per_connection() {
    assert_eq!(count(&rows("connections"), "nats", "connection_bytes"), 1);
}

#[test]
fn isolation_benchmark_measures_latency_with_harmful_clients() {
    assert_eq!(count(&rows("isolation"), "nats", "p50_times_alone"), 4);
}
