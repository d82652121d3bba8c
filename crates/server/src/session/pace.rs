//! Writing to many a little less often: a thread that is busy with small writes gives its sessions their turns on a
//! beat, all at once.
//!
//! Without it each of a thousand sessions is woken for every few records, and the more the processors have to do, the
//! less they get done: what the server spends on writes of few records the clients lack for reading them.
//!
//! A session that has just written, on a thread that is busy, does not go to sleep on its log: it *rests*, and the next
//! beat wakes it. The pause between two beats is as long as the processor worked for those that rested at the last, so
//! half of the thread's time goes into writing. It is the thread's own time: while other programs run the thread is no
//! busier, and a longer pause would only be late.
//!
//! Turned down, each measured with 1,000 subscribers at 1,000 records a second beside other programs (p99 now 17 ms):
//! twice the time by the clock (20 ms); pauses of a fixed 3 to 5 ms, as good for 1,000 and too short for more; shorter
//! pauses than the time spent, and clients that acknowledge late (`TCP_QUICKACK` off), which change nothing.
//!
//! Invariants:
//! - Who rests is woken by a beat, however long it has been since.
//! - Who rested in vain (nothing came) sleeps on its log again: a record that comes seldom is sent at once.
//!
//! Limits: the pauses below; as many rest as there are sessions.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::scratch;

/// So many sessions that write records within [`BUSY_FOR`] make a thread busy; so many that rest keep it so.
const BUSY_SESSIONS: usize = 100;
const BUSY_FOR: Duration = Duration::from_millis(2);
/// The shortest and the longest pause between two beats.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// What a thread knows of its writes.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Sessions that have written since `since`, and the number of times that such a count began.
    wrote: usize,
    since: Instant,
    counts: u64,
    busy: bool,
    beats: u64,
    resting: Vec<Waker>,
    /// Whoever beats, waiting for somebody to rest.
    idle: Option<Waker>,
}

/// The channels of a session that rest.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    channels: Vec<u32>,
    /// The count this session was counted in last.
    counted: u64,
    /// The beats there had been when the session asked for the next.
    since: Option<u64>,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            wrote: 0,
            since: Instant::now(),
            counts: 1,
            busy: false,
            beats: 0,
            resting: Vec::new(),
            idle: None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    fn poll_resting(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.resting.is_empty() {
            return Poll::Ready(());
        }
        self.idle = Some(cx.waker().clone());
        Poll::Pending
    }

    fn beat(&mut self) -> Vec<Waker> {
        self.beats += 1;
        self.busy = self.resting.len() >= BUSY_SESSIONS;
        std::mem::take(&mut self.resting)
    }
}

impl Resting {
    /// The session wrote records. One that alone writes often makes no thread busy: it is counted once.
    pub(crate) fn wrote(&mut self, pace: &mut Pace) {
        if self.counted == pace.counts {
            return;
        }
        self.counted = pace.counts;
        pace.wrote += 1;
        if pace.wrote == BUSY_SESSIONS {
            let now = Instant::now();
            pace.busy |= now - pace.since < BUSY_FOR;
            (pace.since, pace.wrote) = (now, 0);
            pace.counts += 1;
        }
    }

    /// The channel, which has just sent all it had, is not looked at before the next beat.
    pub(crate) fn add(&mut self, channel: u32) {
        self.channels.push(channel);
    }

    /// The session is about to sleep: the next beat wakes it, if something rests.
    pub(crate) fn ask(&mut self, pace: &mut Pace, waker: &Waker) {
        if self.since.is_none() && !self.channels.is_empty() {
            self.since = Some(pace.beats);
            pace.resting.push(waker.clone());
            pace.idle.take().into_iter().for_each(Waker::wake);
        }
    }

    /// The channels whose rest is over.
    pub(crate) fn over(&mut self, pace: &Pace) -> impl Iterator<Item = u32> {
        let over = self.since.is_some_and(|since| since != pace.beats);
        if over {
            self.since = None;
        }
        let channels = if over { std::mem::take(&mut self.channels) } else { Vec::new() };
        channels.into_iter()
    }
}

/// Wakes the sessions of this thread that rest, for ever.
pub(crate) async fn beat() {
    let mut pause = PAUSE_MIN;
    loop {
        poll_fn(|cx| scratch::with(|scratch| scratch.pace.poll_resting(cx))).await;
        tokio::time::sleep(pause).await;
        let before = worked();
        scratch::with(|scratch| scratch.pace.beat()).into_iter().for_each(Waker::wake);
        // Behind them all.
        tokio::task::yield_now().await;
        pause = worked().saturating_sub(before).clamp(PAUSE_MIN, PAUSE_MAX);
    }
}

/// How long the processor has worked for this thread.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_write(sessions: &mut [Resting], pace: &mut Pace) {
        sessions.iter_mut().for_each(|session| session.wrote(pace));
    }

    #[test]
    fn only_many_writing_sessions_make_a_thread_busy() {
        let mut pace = Pace::new();
        let mut one = Resting::default();
        (0..10_000).for_each(|_| one.wrote(&mut pace));
        assert!(!pace.is_busy());
        // However long they take.
        pace.since = Instant::now() + Duration::from_secs(3_600);
        let mut sessions: Vec<Resting> = (0..BUSY_SESSIONS).map(|_| Resting::default()).collect();
        all_write(&mut sessions, &mut pace);
        assert!(pace.is_busy());
    }

    #[test]
    fn resting_sessions_wake_once_and_few_end_the_busy_state() {
        let mut pace = Pace::new();
        pace.busy = true;
        let mut session = Resting::default();
        session.add(7);
        session.ask(&mut pace, Waker::noop());
        session.ask(&mut pace, Waker::noop());
        assert_eq!(session.over(&pace).count(), 0);
        assert_eq!(pace.beat().len(), 1, "a session is woken once");
        assert_eq!(session.over(&pace).collect::<Vec<_>>(), [7]);
        assert_eq!(session.over(&pace).count(), 0);
        assert!(!pace.is_busy());
    }
}
