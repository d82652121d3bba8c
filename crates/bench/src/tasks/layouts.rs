//! How the cases of suite `tasks` are shown.

use crate::layout::{Cell, Layout};

use Cell::{Metric, Param, Range};

/// The layouts.
pub const LAYOUTS: &[Layout] = &[
    Layout {
        case: "noop",
        title: "Tasks that do nothing: submitted, given to a worker, completed",
        columns: &[
            ("Nodes", Param("nodes")),
            ("Workers", Param("workers")),
            ("Tasks", Metric("ops_per_s")),
            ("Least … most", Range("ops_per_s")),
            ("Start p50", Metric("p50_ns")),
            ("Start p99", Metric("p99_ns")),
            ("Nodes' processor, a task", Metric("task_node_cpu_ns")),
            ("Clients' processor, a task", Metric("task_clients_cpu_ns")),
            ("Memory", Metric("memory_bytes")),
        ],
    },
    Layout {
        case: "scaling",
        title: "Throughput by workers, 11.76 ms a task",
        columns: &[
            ("By", Param("via")),
            ("Workers", Param("workers")),
            ("In a process", Metric("workers_in_a_process")),
            ("Tasks", Metric("ops_per_s")),
            ("Alone", Metric("bare_per_s")),
            ("Wait p50, at 90 %", Metric("p50_ns")),
            ("Wait p99, at 90 %", Metric("p99_ns")),
            ("Efficiency", Metric("efficiency")),
            ("Of 85/s each", Metric("efficiency_nominal")),
            ("Workers busy", Metric("workers_share")),
            ("Node's processor", Metric("node_cpu_share")),
            ("Log", Metric("log_share")),
            ("Network", Metric("network_share")),
            ("Memory", Metric("memory_share")),
            ("Node's processor, a task", Metric("task_node_cpu_ns")),
            ("Workers' processor, a task", Metric("task_clients_cpu_ns")),
            ("Node's memory", Metric("memory_bytes")),
        ],
    },
    Layout {
        case: "phases",
        title: "Scaling out and in, warm pool: simulated, by the document's delays; local, worker processes of a real node",
        columns: &[
            ("Via", Param("via")),
            ("Phase", Param("phase")),
            ("Detection, cool-down", Metric("detection_ns")),
            ("Decision", Metric("decision_ns")),
            ("Ready", Metric("ready_ns")),
            ("Drain", Metric("drain_ns")),
            ("Termination", Metric("termination_ns")),
            ("Total", Metric("total_ns")),
            ("Ahead of the need, s", Metric("ahead_s")),
            ("Failed starts", Metric("failed_share")),
            ("Warm hours an hour", Metric("warm_hours_per_hour")),
        ],
    },
    Layout {
        case: "tenants",
        title: "Tenants at saturation",
        columns: &[
            ("By", Param("via")),
            ("Tenants", Param("tenants")),
            ("Tasks", Metric("ops_per_s")),
            ("Jain's index", Metric("jain")),
            ("Within their quotas", Metric("compliant_share")),
            ("Least of its share", Metric("least_share")),
            ("Most", Metric("most_share")),
            ("Least used of its cores", Metric("cpu_quota_share")),
            ("Of its memory", Metric("memory_quota_share")),
        ],
    },
    Layout {
        case: "noisy",
        title: "Tenant-a submits ten times as much",
        columns: &[
            ("By", Param("via")),
            ("Load", Param("load")),
            ("Usual load", Metric("usual_load_share")),
            ("tenant-a, times", Metric("noisy_times")),
            ("tenant-b keeps", Metric("b_kept_share")),
            ("tenant-c keeps", Metric("c_kept_share")),
            ("tenant-d keeps", Metric("d_kept_share")),
        ],
    },
    Layout {
        case: "failover",
        title: "Killed under load: until tasks begin again",
        columns: &[
            ("Killed", Param("killed")),
            ("Kills", Metric("kills")),
            ("p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
            ("Most", Metric("max_ns")),
            ("Tasks, each done once", Metric("tasks")),
            ("Begun again", Metric("begun_again")),
        ],
    },
    Layout {
        case: "cost",
        title: "A month's cost, in the price table's currency; the strategies overlap",
        columns: &[
            ("Strategy", Param("strategy")),
            ("Before", Metric("before_per_month")),
            ("After", Metric("after_per_month")),
            ("Saves", Metric("saves_per_month")),
        ],
    },
    Layout {
        case: "forecast",
        title: "A day in an hour: minutes with a P99 of submission to start over 2 s, and hours of workers",
        columns: &[
            ("Arrivals", Param("arrivals")),
            ("Target, %", Param("cpu_target")),
            ("Reactive, min", Metric("reactive_violated_minutes")),
            ("Predictive, min", Metric("predictive_violated_minutes")),
            ("Oracle, min", Metric("oracle_violated_minutes")),
            ("Spared", Metric("spared_share")),
            ("Reactive, h", Metric("reactive_worker_hours")),
            ("Predictive, h", Metric("predictive_worker_hours")),
            ("Oracle, h", Metric("oracle_worker_hours")),
            ("Predictive ÷ reactive", Metric("hours_times")),
            ("Forecast error", Metric("forecast_error_share")),
            ("Thrash, predictive", Metric("predictive_thrash")),
        ],
    },
    Layout { case: "dispatch", title: "Cost of a dispatch by tenants", columns: STATE },
    Layout { case: "backlog", title: "Cost of a dispatch by tasks that wait", columns: STATE },
    Layout {
        case: "simulator",
        title: "The simulator itself",
        columns: &[
            ("Workers", Param("workers")),
            ("Tasks", Metric("tasks")),
            ("Time", Metric("elapsed_ns")),
            ("Processor time", Metric("cpu_ns")),
            ("A task", Metric("task_cpu_ns")),
        ],
    },
];

const STATE: &[(&str, Cell)] = &[
    ("Tenants", Param("tenants")),
    ("Tasks that wait", Param("queued")),
    ("Dispatch", Metric("dispatch_ns")),
    ("Submit", Metric("submit_ns")),
    ("A task takes", Metric("task_bytes")),
];
