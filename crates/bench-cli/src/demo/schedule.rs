//! When each line is due: recorded time, scaled.
//!
//! All recordings start together, whenever they were made. By default each is scaled by a factor of its own, so that
//! a market recorded over six days and one recorded over half an hour both take a minute; with a speed given, all keep
//! to it.

use std::time::Duration;

use dunlin_cli::commands::demo::Speed;

use super::recording::Recording;

/// How long a recording takes.
pub fn duration(speed: Speed, recording: &Recording) -> Duration {
    due(speed, recording, recording.len() - 1)
}

/// How many times as fast as recorded.
pub fn factor(speed: Speed, recording: &Recording) -> f64 {
    match speed {
        Speed::Within(within) => recording.span_ms() as f64 / 1e3 / within.as_secs_f64(),
        Speed::Times(times) => times,
        Speed::Max => f64::INFINITY,
    }
}

/// When a line is due, since the recording began.
fn due(speed: Speed, recording: &Recording, line: usize) -> Duration {
    let offset_ms = recording.offset_ms(line) as f64;
    let factor = factor(speed, recording);
    // A recording whose lines all have one time has a factor of 0.
    if factor > 0.0 { Duration::from_secs_f64(offset_ms / 1e3 / factor) } else { Duration::ZERO }
}

/// One line that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Since the start.
    pub at: Duration,
    pub recording: usize,
    pub line: usize,
}

/// All lines of all recordings, in the order in which they are due; a recording's own order is kept.
pub fn schedule(recordings: &[Recording], speed: Speed) -> impl Iterator<Item = Due> {
    let mut next = vec![0; recordings.len()];
    std::iter::from_fn(move || {
        let waiting = (0..recordings.len()).filter(|&at| next[at] < recordings[at].len());
        let due = waiting.map(|at| (due(speed, &recordings[at], next[at]), at)).min()?;
        let line = next[due.1];
        next[due.1] += 1;
        Some(Due { at: due.0, recording: due.1, line })
    })
}

#[cfg(test)]
mod tests {
    use super::super::recording::Layout;
    use super::*;

    fn recordings() -> Vec<Recording> {
        let lines = |times: &[u64]| {
            let text: String =
                times.iter().map(|t| format!("{{\"pt\":{t},\"mc\":[{{\"id\":\"1\"}}]}}\n")).collect();
            Recording::parse("a", text.into_bytes(), Layout::Betfair).unwrap()
        };
        vec![lines(&[1_000, 2_000, 5_000]), lines(&[70_000, 70_000, 170_000])]
    }

    fn order(speed: Speed) -> Vec<(u64, usize, usize)> {
        let recordings = recordings();
        schedule(&recordings, speed).map(|due| (due.at.as_millis() as u64, due.recording, due.line)).collect()
    }

    #[test]
    fn speed_factor_scales_recorded_time_from_a_common_start() {
        let expected = [(0, 0, 0), (0, 1, 0), (0, 1, 1), (100, 0, 1), (400, 0, 2), (10_000, 1, 2)];
        assert_eq!(order(Speed::Times(10.0)), expected);
    }

    #[test]
    fn by_default_short_and_long_recordings_end_together() {
        let within = order(Speed::Within(Duration::from_secs(4)));
        assert_eq!(within, [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1000, 0, 1), (4000, 0, 2), (4000, 1, 2)]);
    }

    #[test]
    fn unpaced_schedule_has_every_line_due_at_once() {
        let max = order(Speed::Max);
        assert_eq!(max.len(), 6);
        assert!(max.iter().all(|due| due.0 == 0));
    }
}
