//! Tests of suite `tasks`, which make small runs. In these runs, node processes with data on a real disk give tasks to
//! workers. The tests check that each case has its rows. They do not check speeds.

use dunlin_bench::FigureRow;

use crate::runs::rows_of;

fn rows(args: &[&str]) -> Vec<FigureRow> {
    let folder = tempfile::tempdir().unwrap();
    let args: Vec<&str> = ["tasks", "--via=node"].iter().chain(args).copied().collect();
    rows_of(folder.path(), &args)
}

fn has(rows: &[FigureRow], case: &str, metric: &str) -> bool {
    rows.iter().filter(|row| row.case == case && row.metric == metric && row.median > 0.0).count() == 1
}

#[test]
fn each_empty_task_runs_exactly_once_in_a_three_node_cluster() {
    let rows = rows(&["--case=noop", "--nodes=3", "--tenants=1"]);
    for metric in ["ops_per_s", "p99_ns", "task_node_cpu_ns"] {
        assert!(has(&rows, "noop", metric), "{metric}: {rows:?}");
    }
}

#[test]
fn task_benchmark_rows_contain_shard_and_tenant_counts() {
    let rows = rows(&["--case=noop", "--case=scaling", "--nodes=1", "--shards=2"]);
    for case in ["noop", "scaling"] {
        assert!(has(&rows, case, "ops_per_s"), "{case}: {rows:?}");
    }
    assert!(
        rows.iter().all(|row| row.params.contains_all(&[("shards", "2"), ("tenants", "16")])),
        "{rows:?}"
    );
}

#[test]
fn scaling_benchmark_measures_workers_with_and_without_a_node() {
    let rows = rows(&["--case=scaling", "--workers=10", "--tenants=1"]);
    for metric in ["ops_per_s", "bare_per_s", "efficiency", "p99_ns"] {
        assert!(has(&rows, "scaling", metric), "{metric}: {rows:?}");
    }
}

#[test]
fn tenants_with_constant_backlogs_share_the_workers() {
    let rows = rows(&["--case=tenants", "--tenants=4"]);
    for metric in ["ops_per_s", "jain", "least_share"] {
        assert!(has(&rows, "tenants", metric), "{metric}: {rows:?}");
    }
}

#[test]
fn tasks_run_once_although_leaders_and_workers_die() {
    assert_tasks_survive_kills(1);
}

mod long {
    #[test]
    fn tasks_survive_killed_leaders_and_workers_in_five_runs() {
        super::assert_tasks_survive_kills(5);
    }
}

/// Makes `runs` runs of case `failover`. Each run kills two leaders and two workers. Checks that the case has results.
fn assert_tasks_survive_kills(runs: u32) {
    let rows = rows(&["--case=failover", &format!("--runs={runs}")]);
    for killed in ["leader", "worker"] {
        let of = |row: &&FigureRow| row.case == "failover" && row.params.to_string().contains(killed);
        let of_killed: Vec<&FigureRow> = rows.iter().filter(of).collect();
        for metric in ["kills", "tasks", "p99_ns"] {
            let found = of_killed.iter().filter(|row| row.metric == metric && row.median > 0.0).count();
            assert_eq!(found, 1, "{killed} {metric}: {rows:?}");
        }
    }
}

#[test]
fn queue_benchmark_measures_the_time_to_add_workers() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows_of(folder.path(), &["tasks", "--via=local", "--phase=queue"]);
    for metric in ["detection_ns", "ready_ns", "total_ns", "workers_more"] {
        assert!(has(&rows, "phases", metric), "{metric}: {rows:?}");
    }
}
