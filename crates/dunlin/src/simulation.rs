//! Publishes simulated order books. Each record is published when it is due.
//!
//! One thread publishes for all instruments. It sleeps until shortly before the next record is due, and then spins. At
//! high rates, the thread sleeps for short times and then publishes all records that have become due. Late records are
//! published without a pause, and none is left out. A record's event time is the time at which it was due, and its
//! append time is the actual time. [`SimulationReport`] says how late the records were.
//!
//! The contents of the records come from [`Simulator`], and their due times from [`FeedSchedule`].

mod punctual;

use std::thread;
use std::time::Duration;

use dunlin_feed::{FeedSchedule, Instruments, ScheduleAction, Simulator};
use dunlin_topic::frame::RecordMeta;
use dunlin_topic::{Draft, Payload, Publish, PublishError};

use crate::clock::now_ns;
use punctual::Punctual;

/// The longest sleep. When the thread should stop, it notices this at the latest after such a sleep.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Publishes simulated order books of several instruments, to this node or another one.
#[derive(Debug)]
pub struct Simulation<P> {
    simulator: Simulator,
    schedule: FeedSchedule,
    instrument_lines: Vec<InstrumentLine<P>>,
    payload: Vec<u8>,
    /// The indices of the instruments whose publishers still have to be flushed.
    unsent: Vec<usize>,
}

#[derive(Debug)]
struct InstrumentLine<P> {
    publisher: P,
    published: u64,
    unsent: bool,
}

/// The number of records that one call of [`Simulation::run_until`] has published, and how late they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimulationReport {
    /// The number of published records.
    pub records: u64,
    /// The longest time by which a record was late, ns.
    pub late_ns_max: u64,
    /// The time by which the last record was late, ns.
    pub late_ns_last: u64,
}

impl<P: Publish> Simulation<P> {
    /// Creates a simulation, and publishes the complete book of each instrument. `publishers` has one publisher for
    /// each instrument, in the same order. The first updates are due at `start_ns`.
    ///
    /// # Panics
    ///
    /// If there are fewer publishers than instruments.
    pub fn open(
        instruments: &Instruments,
        seed: u64,
        start_ns: u64,
        publishers: Vec<P>,
    ) -> Result<Simulation<P>, PublishError> {
        assert!(publishers.len() >= instruments.list().len(), "a publisher for each instrument");
        let simulator = Simulator::new(instruments, seed);
        let rates = instruments.list().iter().map(|instrument| instrument.updates_per_sec);
        let instrument_lines =
            publishers.into_iter().map(|publisher| InstrumentLine { publisher, published: 0, unsent: false });
        let mut simulation = Simulation {
            simulator,
            schedule: FeedSchedule::new(start_ns, rates),
            instrument_lines: instrument_lines.collect(),
            payload: Vec::new(),
            unsent: Vec::new(),
        };
        for instrument in 0..instruments.list().len() {
            simulation.simulator.whole_book(instrument, &mut simulation.payload);
            simulation.publish(instrument, now_ns())?;
        }
        simulation.flush_unsent()?;
        Ok(simulation)
    }

    /// Sets for how many ns the thread spins before a record is due; with 0, it does not spin.
    pub fn spinning(mut self, spin_ns: u64) -> Simulation<P> {
        self.schedule = self.schedule.with_spin_ns(spin_ns);
        self
    }

    /// Publishes all records that are due before `until_ns`. Stops early if `stop` returns `true`; `stop` is called
    /// before each sleep and after every 1024 records.
    pub fn run_until(
        &mut self,
        until_ns: u64,
        mut stop: impl FnMut() -> bool,
    ) -> Result<SimulationReport, PublishError> {
        let _punctual = Punctual::new();
        let mut report = SimulationReport::default();
        let mut now = now_ns();
        while self.schedule.peek().is_some_and(|due| due.at_ns < until_ns) {
            match self.schedule.next_action(now) {
                ScheduleAction::Emit => {
                    self.publish_due(now, &mut report)?;
                    if report.records.is_multiple_of(1024) && stop() {
                        break;
                    }
                }
                ScheduleAction::Spin => {
                    self.flush_unsent()?;
                    std::hint::spin_loop();
                }
                ScheduleAction::Sleep { until_ns } => {
                    self.flush_unsent()?;
                    if stop() {
                        break;
                    }
                    thread::sleep(Duration::from_nanos(until_ns - now).min(SLEEP_MAX));
                }
            }
            now = now_ns();
        }
        self.flush_unsent()?;
        Ok(report)
    }

    /// The number of records that were published for an instrument, including the record with its complete book.
    pub fn published(&self, instrument: usize) -> u64 {
        self.instrument_lines[instrument].published
    }

    fn publish_due(&mut self, now_ns: u64, report: &mut SimulationReport) -> Result<(), PublishError> {
        let Some(due) = self.schedule.take(now_ns) else { return Ok(()) };
        self.simulator.update(due.instrument, &mut self.payload);
        self.publish(due.instrument, due.at_ns)?;
        report.records += 1;
        report.late_ns_last = now_ns - due.at_ns;
        report.late_ns_max = report.late_ns_max.max(report.late_ns_last);
        Ok(())
    }

    fn publish(&mut self, instrument: usize, due_ns: u64) -> Result<(), PublishError> {
        let instrument_line = &mut self.instrument_lines[instrument];
        let meta = RecordMeta { event_time_ns: Some(due_ns), ..RecordMeta::default() };
        instrument_line.publisher.send(Draft { meta, payload: Payload::Copied(&self.payload) })?;
        instrument_line.published += 1;
        self.payload.clear();
        if !std::mem::replace(&mut instrument_line.unsent, true) {
            self.unsent.push(instrument);
        }
        Ok(())
    }

    /// Flushes the publishers that have unsent records.
    fn flush_unsent(&mut self) -> Result<(), PublishError> {
        while let Some(instrument) = self.unsent.pop() {
            let instrument_line = &mut self.instrument_lines[instrument];
            instrument_line.unsent = false;
            instrument_line.publisher.flush()?;
        }
        Ok(())
    }
}
