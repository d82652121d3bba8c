//! Derives three properties of a metric from its name: the unit, whether a higher value is better, and how values are
//! formatted.
//!
//! The name of a metric ends with its unit, such as in `msgs_per_s`, `p99_ns` and `rss_bytes`, so no list of metrics is
//! needed.

/// The text for a figure that was not measured.
pub const ABSENT: &str = "–";

/// Returns the unit of a metric, in the form that is stored in a row.
pub fn unit(metric: &str) -> &'static str {
    if metric.ends_with("bytes_per_s") {
        "B/s"
    } else if metric.ends_with("_per_s") {
        "1/s"
    } else if metric.ends_with("_ns") {
        "ns"
    } else if metric.ends_with("bytes") {
        "B"
    } else {
        "1"
    }
}

/// Whether lower values of a metric are better, as for times, sizes and shares of a processor.
pub fn less_is_better(metric: &str) -> bool {
    matches!(unit(metric), "ns" | "B")
        || metric.ends_with("times_alone")
        || metric.ends_with("cpu_share")
        || metric.ends_with("cpu_s")
        || metric.ends_with("_minutes")
        || metric.ends_with("_hours")
        || metric.ends_with("hours_times")
        || metric.ends_with("error_share")
        || metric.ends_with("failed_share")
}

/// Formats a value of a metric, with a suitable unit. MB is 10⁶ bytes.
pub fn format_metric(metric: &str, value: f64) -> String {
    match unit(metric) {
        "B/s" => format!("{} MB/s", format_number(value / 1e6)),
        "1/s" => format!("{}/s", format_scaled(value)),
        "ns" => format_time(value),
        "B" if value < 1e5 => format!("{value:.0} B"),
        "B" => format!("{} MB", format_number(value / 1e6)),
        _ => format_number(value),
    }
}

/// Formats a time in a suitable unit.
pub fn format_time(ns: f64) -> String {
    if ns < 1e3 {
        format!("{} ns", format_number(ns))
    } else if ns < 1e6 {
        format!("{} µs", format_number(ns / 1e3))
    } else if ns < 1e9 {
        format!("{} ms", format_number(ns / 1e6))
    } else {
        format!("{} s", format_number(ns / 1e9))
    }
}

/// Formats a number; large numbers get the suffix `k` or `M`.
pub fn format_scaled(value: f64) -> String {
    if value >= 1e6 {
        format!("{} M", format_number(value / 1e6))
    } else if value >= 1e4 {
        format!("{} k", format_number(value / 1e3))
    } else {
        format_number(value)
    }
}

/// Formats a number with three significant digits, or as a whole number.
pub fn format_number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_name_determines_the_unit_and_whether_less_is_better() {
        assert_eq!(unit("bytes_per_s"), "B/s");
        assert_eq!(unit("deliveries_per_s"), "1/s");
        assert_eq!(unit("p99_ns"), "ns");
        assert_eq!(unit("rss_bytes"), "B");
        assert_eq!(unit("efficiency"), "1");
        assert!(less_is_better("p50_ns") && less_is_better("rss_bytes"));
        assert!(!less_is_better("bytes_per_s"));
    }

    #[test]
    fn values_are_printed_with_readable_units() {
        assert_eq!(format_metric("msgs_per_s", 13_600_000.0), "13.6 M/s");
        assert_eq!(format_metric("bytes_per_s", 2.4e9), "2400 MB/s");
        assert_eq!(format_metric("p50_ns", 160.0), "160 ns");
        assert_eq!(format_metric("p50_ns", 50_120.0), "50.1 µs");
        assert_eq!(format_metric("rss_bytes", 256.0), "256 B");
    }
}
