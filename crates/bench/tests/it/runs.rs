//! Tests of whole quick runs: what they print, what they store, and which options they refuse.

use std::path::Path;

use dunlin_bench::{FigureRow, StoredRun, report};

use crate::program::run;

pub fn rows_of(folder: &Path, args: &[&str]) -> Vec<FigureRow> {
    let output = run(folder, &[args, &["--quick", "--json", "--warmup=0"]].concat());
    let (out, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn raw_stream_loses_no_message_over_tcp_and_unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    for transport in ["tcp", "uds"] {
        let transport_flag = format!("--transport={transport}");
        let args = ["peers", "spot", "--case=throughput", &transport_flag, "--bytes=8192"];
        let rows = rows_of(folder.path(), &args);
        let raw = |metric: &str| rows.iter().find(|row| row.target == "raw" && row.metric == metric).unwrap();
        assert_eq!(raw("messages").median, 100.0);
        assert!(raw("msgs_per_s").median > 0.0 && raw("msgs_per_s").checked);
    }
}

#[test]
fn raw_latency_is_measured_with_parked_and_spinning_threads() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows_of(folder.path(), &["peers", "spot", "--case=latency", "--bytes=64"]);
    let of = |transport: &str, wait: &str| {
        rows.iter().any(|row| {
            row.target == "raw"
                && row.metric == "p50_ns"
                && row.params.contains_all(&[("transport", transport), ("wait", wait)])
        })
    };
    assert!(of("tcp", "parked") && of("uds", "parked"));
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert!(of("tcp", "spin") && of("uds", "spin"));
    }
}

#[test]
fn quick_run_is_kept_in_folder_scratch_and_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    rows_of(folder.path(), &["peers", "spot", "--case=topics", "--topics=100"]);
    assert!(StoredRun::read_all(folder.path()).unwrap().runs.is_empty());
    let scratch = folder.path().join("scratch");
    let runs = StoredRun::read_all(&scratch).unwrap().runs;
    assert!(runs[0].quick && runs[0].command.contains("peers spot"));
    let error = report::write(&scratch, &folder.path().join("page.md")).err().unwrap().to_string();
    assert!(error.contains("a quick run"), "{error}");
}

#[test]
fn benchmark_report_names_its_run_and_unmeasured_figures() {
    let folder = tempfile::tempdir().unwrap();
    rows_of(folder.path(), &["peers", "spot", "--case=topics", "--topics=100"]);
    let mut run = StoredRun::read_all(&folder.path().join("scratch")).unwrap().runs.remove(0);
    (run.quick, run.debug_build) = (false, false);
    run.save(folder.path()).unwrap();
    let page = folder.path().join("docs/benchmarks.md");
    report::write(folder.path(), &page).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("not measured") && page.contains(&run.commit) && page.contains(&run.date),
        "{page}"
    );
    assert!(page.contains("Topic scalability"), "{page}");
    std::fs::write(folder.path().join("older.json"), "{\"name\": \"spot\"}").unwrap();
    let page = folder.path().join("report.html");
    let written = report::write(folder.path(), &page).unwrap();
    assert!(written.refused[0].contains("older.json is not a stored run"), "{:?}", written.refused);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Topic scalability") && page.contains(&run.commit), "{page}");
    assert!(!page.contains("<script") && !page.contains("src="), "the page must not need a network");
}

#[test]
fn unknown_benchmark_case_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["peers", "spot", "--case=nonsense", "--quick"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no measurement of suite spot matches"));
}

#[test]
fn grpc_suite_measures_dunlin_and_a_plain_tonic_server() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows_of(folder.path(), &["peers", "grpc"]);
    let figure = |target: &str, case: &str, metric: &str| {
        let row = |row: &&FigureRow| row.target == target && row.case == case && row.metric == metric;
        rows.iter().find(row).unwrap_or_else(|| panic!("no {metric} of {target}, {case}")).median
    };
    for target in ["dunlin", "tonic"] {
        assert!(figure(target, "grpc_unary", "p50_ns") > 0.0);
        assert!(figure(target, "grpc_concurrent", "msgs_per_s") > 0.0);
        assert!(figure(target, "grpc_connect", "p50_ns") > 0.0);
        assert_eq!(figure(target, "grpc_stream", "messages"), 10_000.0);
    }
}
