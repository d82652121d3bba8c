//! A subscription as a source of events.

use std::sync::Arc;

use dunlin::Refused;
use dunlin::topic::{Charge, Event, Notice, Subscribe, Subscriber};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{RESUME_LOGS_MAX, write_comment, write_event, write_id, write_retry};

use super::Reader;
use super::format::{Form, notice, stand_after, write_gone, write_record};
use super::stands::Stands;
use super::subscribe::{LOGS_MAX, Subscribed};
use crate::departures::Fate;
use crate::http::event_stream::Source;
use crate::http::problem::Problem;
use crate::shared::Shared;

/// How long a client waits before it reconnects, and the random addition that spreads thousands of clients.
const RETRY_MS: u64 = 1_000;
const RETRY_JITTER_MS: u64 = 2_000;

/// A subscription's events.
#[derive(Debug)]
pub(super) struct TopicEvents {
    shared: Arc<Shared>,
    subscriber: Subscriber,
    stands: Stands,
    form: Form,
    reader: Reader,
    /// The memory charge.
    _charge: Charge,
}

impl TopicEvents {
    /// The source, and the text before the first event.
    pub(super) fn of(
        shared: &Arc<Shared>,
        subscribed: Subscribed,
        form: Form,
        reader: Reader,
    ) -> (TopicEvents, String) {
        let Subscribed { subscriber, mut stands, gone, charge } = subscribed;
        let mut beginning = String::new();
        // Any number that differs between clients will do.
        let jitter = shared.node.next_session().wrapping_mul(0x9e37_79b9_7f4a_7c15) % RETRY_JITTER_MS;
        write_retry(RETRY_MS + jitter, &mut beginning);
        if gone > 0 {
            write_gone(gone, &mut beginning);
        }
        if let Some(id) = stands.take_id() {
            write_id(&id, &mut beginning);
        }
        let shared = Arc::clone(shared);
        (TopicEvents { shared, subscriber, stands, form, reader, _charge: charge }, beginning)
    }

    fn read(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem> {
        while out.len() < bytes_max {
            match self.subscriber.try_next()? {
                Some(Event::Record(record)) => {
                    self.stands.at(record.log, record.position);
                    let id = if self.stands.is_one() { self.stands.take_id() } else { None };
                    write_record(self.form, &record, id.as_deref(), out);
                }
                Some(Event::Notice(told)) => self.tell(&told, out),
                None => break,
            }
        }
        if self.stands.logs() > RESUME_LOGS_MAX {
            return Err(Problem::from(Refused::limit(LOGS_MAX, RESUME_LOGS_MAX as u64)));
        }
        Ok(())
    }

    fn tell(&mut self, told: &Notice, out: &mut String) {
        if let Some((log, position)) = stand_after(told) {
            self.stands.at(log, position);
        }
        let Some((name, data)) = notice(told) else { return };
        let id = if self.stands.is_one() { self.stands.take_id() } else { None };
        write_event(id.as_deref(), Some(name), &data.to_string(), out);
        if let Notice::Deleted { log, .. } = told
            && !self.stands.is_one()
        {
            self.stands.left(log);
        }
    }
}

impl Source for TopicEvents {
    fn subscriber(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    fn fill(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem> {
        let read = self.read(bytes_max, out);
        if let Some(id) = self.stands.take_id() {
            write_id(&id, out);
        }
        read
    }

    /// Writes the position if records were skipped, else a comment.
    fn beat(&mut self, out: &mut String) {
        self.stands.look(&mut self.subscriber);
        match self.stands.take_id() {
            Some(id) => write_id(&id, out),
            None => write_comment("still here", out),
        }
    }

    fn ends(&mut self, why: &Problem) {
        if !matches!(why.refused().code, ErrorCode::ShuttingDown | ErrorCode::Closed) {
            self.reader.departs(&self.shared, Fate::CutOff, why);
        }
    }
}
