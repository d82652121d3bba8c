//! Reading, in this process or in another: events go into accounts until somebody says that it is enough.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dunlin_topic::{Event, Position, Subscribe, SubscribeError};

use super::account::{Accounts, book};

/// What the subscriptions of one reader share.
#[derive(Debug, Default)]
pub struct Reader {
    accounts: Mutex<Accounts>,
    stop: AtomicBool,
    /// After each record, as a slow reader would.
    pub sleep: Option<Duration>,
}

/// How often a reader with nothing to read looks whether it is to stop.
const IDLE: Duration = Duration::from_millis(50);
/// Events between two looks at the accounts by others.
const EVENTS_MAX: usize = 512;

impl Reader {
    pub fn slowed(sleep: Option<Duration>) -> Reader {
        Reader { sleep, ..Reader::default() }
    }

    pub fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Booking does not panic half-way; the accounts are whole whoever held them.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Everything was read through the last record of each of these topics.
    pub fn is_through(&self, ends: &BTreeMap<String, Position>) -> bool {
        let accounts = self.accounts();
        ends.iter()
            .filter(|(_, last)| last.seq > 0)
            .all(|(topic, last)| accounts.get(topic).is_some_and(|account| account.through >= *last))
    }

    /// Reads until told to stop. What ends it before is a fault of `topics`.
    pub fn read(&self, mut subscriber: impl Subscribe, topics: &[String]) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.step(&mut subscriber) {
                Ok(()) => {}
                Err(SubscribeError::Connection(_)) => thread::sleep(IDLE),
                Err(error) => {
                    // Being closed is how the end looks from here when the node goes first.
                    if !self.stop.load(Ordering::Relaxed) {
                        self.fault(topics, &format!("the subscription ended: {error}"));
                    }
                    return;
                }
            }
        }
    }

    pub fn fault(&self, topics: &[String], text: &str) {
        let mut accounts = self.accounts();
        for topic in topics {
            accounts.entry(topic.clone()).or_default().faults.push(text.to_owned());
        }
    }

    fn step(&self, subscriber: &mut impl Subscribe) -> Result<(), SubscribeError> {
        let count = match self.sleep {
            None => {
                // Held while there is something to book, not while waiting for it.
                let mut accounts = self.accounts();
                subscriber.drain(EVENTS_MAX, |event| book(&mut accounts, &event))?
            }
            Some(pause) => self.step_slowly(subscriber, pause)?,
        };
        if count == 0 {
            subscriber.wait(Some(IDLE))?;
        }
        Ok(())
    }

    fn step_slowly(&self, subscriber: &mut impl Subscribe, pause: Duration) -> Result<usize, SubscribeError> {
        let Some(event) = subscriber.try_next()? else { return Ok(0) };
        book(&mut self.accounts(), &event);
        if matches!(event, Event::Record(_)) {
            thread::sleep(pause);
        }
        Ok(1)
    }
}
