//! Formats durations for people, so that they look the same in all texts.

use std::time::Duration;

/// Formats a duration for people, in its largest one or two units: `250 ms`, `1.5 s`, `2 min`, `29 min 59 s`, `2 d 1 h`.
/// The rest of the duration is cut off.
pub fn format_duration(duration: Duration) -> String {
    let (ms, seconds) = (duration.as_millis(), duration.as_secs());
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (ms, days, hours, minutes) {
        (0, ..) if !duration.is_zero() => "less than 1 ms".to_owned(),
        (0..1_000, ..) => format!("{ms} ms"),
        (1_000..60_000, ..) => format!("{} s", (ms / 100) as f64 / 10.0),
        (_, 0, 0, _) => two_units(minutes, "min", seconds % 60, "s"),
        (_, 0, ..) => two_units(hours, "h", minutes, "min"),
        _ => two_units(days, "d", hours, "h"),
    }
}

fn two_units(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_their_largest_two_units() {
        let of_ms =
            [0, 999, 1_000, 1_590, 59_999, 60_000, 1_799_000, 3_600_000, 3_725_000, 176_943_000, 86_400_000];
        let expected = [
            "0 ms",
            "999 ms",
            "1 s",
            "1.5 s",
            "59.9 s",
            "1 min",
            "29 min 59 s",
            "1 h",
            "1 h 2 min",
            "2 d 1 h",
            "1 d",
        ];
        assert_eq!(of_ms.map(|ms| format_duration(Duration::from_millis(ms))), expected);
        assert_eq!(format_duration(Duration::from_nanos(1)), "less than 1 ms");
        assert_eq!(format_duration(Duration::MAX), "213503982334601 d 7 h");
    }
}
