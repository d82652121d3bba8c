//! Paces the writes of a thread: if many of its sessions write small amounts, they are woken together at intervals.
//!
//! Without pacing, each of a thousand sessions would wake for every few records. The many small writes would take the
//! processor time that clients need to read.
//!
//! On a busy thread, a session that has just written does not wait for its log's next record. The session *pauses*
//! until the present interval ends. Then all paused sessions are woken and write, which is called a round. The next
//! interval is as long as the processor time of the last round, so that writes take half of the thread's time. The
//! thread's processor time is measured, because other programs must not make the interval longer.
//!
//! Rejected alternatives were measured with 1,000 subscribers at 1,000 records a second, while other programs ran. The
//! chosen design has a p99 latency of 17 ms. Intervals of twice the last round's wall-clock time give 20 ms. Fixed
//! intervals of 3 to 5 ms are as good for 1,000 subscribers, but too short for more. Shorter intervals change nothing,
//! and neither do late TCP acknowledgements (`TCP_QUICKACK` off).
//!
//! Invariants:
//! - A paused session is woken at the end of the interval.
//! - If a session finds no record after a pause, it waits for its log's next record again. In a log with few records, a
//!   record is therefore sent at once.
//!
//! Limits: [`PAUSE_MIN`] and [`PAUSE_MAX`]; all sessions of the thread may be paused at the same time.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::scratch;

/// A thread counts as busy if this many of its sessions have written within [`BUSY_FOR`], or if this many are paused.
const BUSY_SESSIONS: usize = 100;
const BUSY_FOR: Duration = Duration::from_millis(2);
/// Shortest interval after which the paused sessions are woken.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest interval after which the paused sessions are woken.
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// The pacing state of a thread: how many of its sessions write, and which are paused.
#[derive(Debug)]
pub(crate) struct WritePacer {
    /// Number of sessions that have written in the present counting period. This period began at `since`, and its
    /// number is `period`.
    writers: usize,
    since: Instant,
    period: u64,
    busy: bool,
    intervals: u64,
    paused: Vec<Waker>,
    /// The waker of the task that wakes paused sessions. The task itself is woken when the first session pauses.
    idle: Option<Waker>,
}

/// Those channels of one session that are paused. A channel sends the records of one log.
#[derive(Debug, Default)]
pub(crate) struct PausedChannels {
    channels: Vec<u32>,
    /// Number of the last counting period in which this session was counted as a writer.
    counted_in: u64,
    /// The number of intervals that had ended when the session asked to be woken; `None` if the session has not asked.
    since: Option<u64>,
}

impl WritePacer {
    pub(crate) fn new() -> WritePacer {
        WritePacer {
            writers: 0,
            since: Instant::now(),
            period: 1,
            busy: false,
            intervals: 0,
            paused: Vec::new(),
            idle: None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    fn poll_paused(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.paused.is_empty() {
            return Poll::Ready(());
        }
        self.idle = Some(cx.waker().clone());
        Poll::Pending
    }

    fn wake_paused(&mut self) -> Vec<Waker> {
        self.intervals += 1;
        self.busy = self.paused.len() >= BUSY_SESSIONS;
        std::mem::take(&mut self.paused)
    }
}

impl PausedChannels {
    /// Counts this session as a writer, once in a counting period: a single session that writes often does not make the
    /// thread busy.
    pub(crate) fn count_write(&mut self, pace: &mut WritePacer) {
        if self.counted_in == pace.period {
            return;
        }
        self.counted_in = pace.period;
        pace.writers += 1;
        if pace.writers == BUSY_SESSIONS {
            let now = Instant::now();
            pace.busy |= now - pace.since < BUSY_FOR;
            (pace.since, pace.writers) = (now, 0);
            pace.period += 1;
        }
    }

    /// Pauses a channel that has sent all records of its log.
    pub(crate) fn add(&mut self, channel: u32) {
        self.channels.push(channel);
    }

    /// The paused channels. While a channel is paused, its log does not notify the session of new records.
    pub(crate) fn channels(&self) -> &[u32] {
        &self.channels
    }

    /// If any channel is paused, registers the session to be woken at the end of the present interval.
    pub(crate) fn request_wakeup(&mut self, pace: &mut WritePacer, waker: &Waker) {
        if self.since.is_none() && !self.channels.is_empty() {
            self.since = Some(pace.intervals);
            pace.paused.push(waker.clone());
            pace.idle.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Removes and returns the channels whose pause has ended.
    pub(crate) fn take_ended(&mut self, pace: &WritePacer) -> impl Iterator<Item = u32> {
        let has_ended = self.since.is_some_and(|since| since != pace.intervals);
        if has_ended {
            self.since = None;
        }
        let channels = if has_ended { std::mem::take(&mut self.channels) } else { Vec::new() };
        channels.into_iter()
    }
}

/// Wakes the paused sessions of this thread at the end of each interval. Never returns.
pub(crate) async fn wake_paused() {
    let mut pause = PAUSE_MIN;
    loop {
        poll_fn(|cx| scratch::with(|scratch| scratch.pace.poll_paused(cx))).await;
        tokio::time::sleep(pause).await;
        let before = thread_cpu_time();
        scratch::with(|scratch| scratch.pace.wake_paused()).into_iter().for_each(Waker::wake);
        // Lets all woken sessions run first, so that the measured time contains their processor time.
        tokio::task::yield_now().await;
        pause = thread_cpu_time().saturating_sub(before).clamp(PAUSE_MIN, PAUSE_MAX);
    }
}

/// The processor time that the current thread has used.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither value is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_writes(sessions: &mut [PausedChannels], pace: &mut WritePacer) {
        sessions.iter_mut().for_each(|session| session.count_write(pace));
    }

    #[test]
    fn listener_thread_counts_as_busy_only_if_many_sessions_write() {
        let mut pace = WritePacer::new();
        let mut session = PausedChannels::default();
        (0..10_000).for_each(|_| session.count_write(&mut pace));
        assert!(!pace.is_busy());
        // With a future `since`, all writes count as recent, however slowly the test runs.
        pace.since = Instant::now() + Duration::from_secs(3_600);
        let mut sessions: Vec<PausedChannels> =
            (0..BUSY_SESSIONS).map(|_| PausedChannels::default()).collect();
        count_writes(&mut sessions, &mut pace);
        assert!(pace.is_busy());
    }

    #[test]
    fn paused_session_is_woken_once_after_two_wakeup_requests() {
        let mut pace = WritePacer::new();
        pace.busy = true;
        let mut session = PausedChannels::default();
        session.add(7);
        assert_eq!(session.channels(), [7]);
        session.request_wakeup(&mut pace, Waker::noop());
        session.request_wakeup(&mut pace, Waker::noop());
        assert_eq!(session.take_ended(&pace).count(), 0);
        assert_eq!(pace.wake_paused().len(), 1, "a session is woken once");
        assert_eq!(session.take_ended(&pace).collect::<Vec<_>>(), [7]);
        assert_eq!(session.take_ended(&pace).count(), 0);
        assert!(session.channels().is_empty() && !pace.is_busy());
    }
}
