//! Writes metrics in the text format of Prometheus.

use std::fmt::{Display, Write};

use dunlin::topic::needs_escape;

/// The type of a metric in the Prometheus format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// A value that never decreases while the node runs.
    Counter,
    /// A value that rises and falls.
    Gauge,
}

#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Writes a metric that has one value and no labels.
    pub(super) fn metric(&mut self, kind: MetricKind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help, [([], value)]);
    }

    /// Writes a metric with a value for each set of labels.
    pub(super) fn family<const N: usize, V: Display>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = ([(&'static str, String); N], V)>,
    ) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in series {
            self.0.push_str(name);
            for (at, (label, text)) in labels.iter().enumerate() {
                let before = if at == 0 { '{' } else { ',' };
                let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
            }
            let end = if N > 0 { "}" } else { "" };
            let _ = writeln!(self.0, "{end} {value}");
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

fn escaped(text: &str) -> String {
    printable(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Replaces characters that an operator's terminal would interpret, and the zero byte, at which Prometheus stops
/// reading.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if needs_escape(c) && c != '\n' => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_labels_escape_quotes_backslashes_and_newlines() {
        let mut out = Exposition::default();
        out.family(MetricKind::Counter, "a_total", "Help.", [([("topic", "a\"b\\c\nd".to_owned())], 3)]);
        out.metric(MetricKind::Gauge, "b", "Help.", 0.5);
        let expected = "# HELP a_total Help.\n# TYPE a_total counter\na_total{topic=\"a\\\"b\\\\c\\nd\"} 3\n\
                      # HELP b Help.\n# TYPE b gauge\nb 0.5\n";
        assert_eq!(out.into_text(), expected);
    }

    #[test]
    fn metric_labels_escape_control_characters() {
        let mut out = Exposition::default();
        let name = "a\0\u{1b}]0;x\u{7}\r\u{7f}\u{9b}31m\u{2028}\u{202e}\u{200b}ö";
        out.family(MetricKind::Gauge, "lag", "Help.", [([("name", name.to_owned())], 3)]);
        let text = out.into_text();
        let series = text.lines().last().unwrap();
        let expected = "lag{name=\"a\\\\u{0}\\\\u{1b}]0;x\\\\u{7}\\\\u{d}\\\\u{7f}\\\\u{9b}31m\\\\u{2028}\\\\u{202e}\\\\u{200b}ö\"} 3";
        assert_eq!(series, expected);
    }
}
