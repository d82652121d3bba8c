//! Computes when each line must be published. A line's time since the recording's first line is divided by a factor,
//! which is the replay speed. All recordings start together. By default, each recording has its own factor: a recording
//! of six days and a recording of half an hour both take a minute. A speed on the command line replaces the factors of
//! all recordings.

use std::time::Duration;

use dunlin_cli::commands::demo::Speed;

use super::recording::MarketRecording;

/// Returns how long the replay of a recording takes.
pub fn duration(speed: Speed, recording: &MarketRecording) -> Duration {
    due(speed, recording, recording.len() - 1)
}

/// Returns the factor by which a recording is replayed faster than it was recorded.
pub fn factor(speed: Speed, recording: &MarketRecording) -> f64 {
    match speed {
        Speed::Within(within) => recording.span_ms() as f64 / 1e3 / within.as_secs_f64(),
        Speed::Times(times) => times,
        Speed::Max => f64::INFINITY,
    }
}

/// Returns the time from the start of the replay until a line is due.
fn due(speed: Speed, recording: &MarketRecording, line: usize) -> Duration {
    let offset_ms = recording.offset_ms(line) as f64;
    let factor = factor(speed, recording);
    // The factor is 0 if all lines have the same time; then all lines are due at once.
    if factor > 0.0 { Duration::from_secs_f64(offset_ms / 1e3 / factor) } else { Duration::ZERO }
}

/// A line of a recording, and when to publish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledLine {
    /// The time from the start of the replay until the line is due.
    pub at: Duration,
    pub recording: usize,
    pub line: usize,
}

/// Returns the lines of all recordings, in the order in which they are due. The lines of one recording keep their
/// order.
pub fn schedule(recordings: &[MarketRecording], speed: Speed) -> impl Iterator<Item = ScheduledLine> {
    let mut next = vec![0; recordings.len()];
    std::iter::from_fn(move || {
        let pending = (0..recordings.len()).filter(|&at| next[at] < recordings[at].len());
        let due = pending.map(|at| (due(speed, &recordings[at], next[at]), at)).min()?;
        let line = next[due.1];
        next[due.1] += 1;
        Some(ScheduledLine { at: due.0, recording: due.1, line })
    })
}

#[cfg(test)]
mod tests {
    use super::super::recording::MarketRecordingFormat;
    use super::*;

    fn recordings() -> Vec<MarketRecording> {
        let lines = |times: &[u64]| {
            let text: String =
                times.iter().map(|t| format!("{{\"pt\":{t},\"mc\":[{{\"id\":\"1\"}}]}}\n")).collect();
            MarketRecording::parse("a", text.into_bytes(), MarketRecordingFormat::Betfair).unwrap()
        };
        vec![lines(&[1_000, 2_000, 5_000]), lines(&[70_000, 70_000, 170_000])]
    }

    fn order(speed: Speed) -> Vec<(u64, usize, usize)> {
        let recordings = recordings();
        schedule(&recordings, speed).map(|due| (due.at.as_millis() as u64, due.recording, due.line)).collect()
    }

    #[test]
    fn all_recordings_start_together_and_play_at_the_speed_factor() {
        let expected = [(0, 0, 0), (0, 1, 0), (0, 1, 1), (100, 0, 1), (400, 0, 2), (10_000, 1, 2)];
        assert_eq!(order(Speed::Times(10.0)), expected);
    }

    #[test]
    fn all_recordings_end_together_after_the_given_play_time() {
        let within = order(Speed::Within(Duration::from_secs(4)));
        assert_eq!(within, [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1000, 0, 1), (4000, 0, 2), (4000, 1, 2)]);
    }

    #[test]
    fn every_line_of_a_recording_is_due_at_once_at_maximum_speed() {
        let max = order(Speed::Max);
        assert_eq!(max.len(), 6);
        assert!(max.iter().all(|due| due.0 == 0));
    }
}
