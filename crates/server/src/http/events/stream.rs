//! A topic subscription as the source of an event stream.

use std::sync::Arc;

use dunlin::Refused;
use dunlin::topic::{Event, MemoryCharge, Notice, Subscribe, Subscriber};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{RESUME_LOGS_MAX, write_comment, write_event, write_id, write_retry};

use super::SubscriberIdentity;
use super::format::{RecordFormat, notice_event, position_after, write_deleted_logs, write_record};
use super::stream_positions::StreamPositions;
use super::subscribe::{EventSubscription, LOGS_MAX};
use crate::departures::DepartureKind;
use crate::http::event_stream::EventSource;
use crate::http::problem::Problem;
use crate::shared::SharedServer;

/// Minimum time that a client waits before it reconnects, ms.
const RETRY_MS: u64 = 1_000;
/// A random time below this value is added to `RETRY_MS`, ms, so that thousands of clients do not reconnect at the
/// same time.
const RETRY_JITTER_MS: u64 = 2_000;

#[derive(Debug)]
pub(super) struct TopicEvents {
    shared: Arc<SharedServer>,
    subscriber: Subscriber,
    stream_positions: StreamPositions,
    format: RecordFormat,
    identity: SubscriberIdentity,
    /// Memory that is charged for the subscription until this field is dropped.
    _charge: MemoryCharge,
}

impl TopicEvents {
    /// Creates the source of the events, and the text that is sent before the first event.
    pub(super) fn of(
        shared: &Arc<SharedServer>,
        subscribed: EventSubscription,
        format: RecordFormat,
        identity: SubscriberIdentity,
    ) -> (TopicEvents, String) {
        let EventSubscription { subscriber, mut stream_positions, deleted_logs, charge } = subscribed;
        let mut preamble = String::new();
        // The number need not be random, but must differ between clients.
        let jitter = shared.node.next_session().wrapping_mul(0x9e37_79b9_7f4a_7c15) % RETRY_JITTER_MS;
        write_retry(RETRY_MS + jitter, &mut preamble);
        if deleted_logs > 0 {
            write_deleted_logs(deleted_logs, &mut preamble);
        }
        if let Some(id) = stream_positions.take_id() {
            write_id(&id, &mut preamble);
        }
        let shared = Arc::clone(shared);
        (TopicEvents { shared, subscriber, stream_positions, format, identity, _charge: charge }, preamble)
    }

    fn read(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem> {
        while out.len() < bytes_max {
            match self.subscriber.try_next()? {
                Some(Event::Record(record)) => {
                    self.stream_positions.advance(record.log, record.position);
                    let id = if self.stream_positions.is_single_log() {
                        self.stream_positions.take_id()
                    } else {
                        None
                    };
                    write_record(self.format, &record, id.as_deref(), out);
                }
                Some(Event::Notice(notice)) => self.write_notice(&notice, out),
                None => break,
            }
        }
        if self.stream_positions.log_count() > RESUME_LOGS_MAX {
            return Err(Problem::from(Refused::limit(LOGS_MAX, RESUME_LOGS_MAX as u64)));
        }
        Ok(())
    }

    fn write_notice(&mut self, notice: &Notice, out: &mut String) {
        if let Some((log, position)) = position_after(notice) {
            self.stream_positions.advance(log, position);
        }
        let Some((name, data)) = notice_event(notice) else { return };
        let id = if self.stream_positions.is_single_log() { self.stream_positions.take_id() } else { None };
        write_event(id.as_deref(), Some(name), &data.to_string(), out);
        if let Notice::Deleted { log, .. } = notice
            && !self.stream_positions.is_single_log()
        {
            self.stream_positions.remove(log);
        }
    }
}

impl EventSource for TopicEvents {
    fn subscriber(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    fn fill(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem> {
        let read = self.read(bytes_max, out);
        if let Some(id) = self.stream_positions.take_id() {
            write_id(&id, out);
        }
        read
    }

    /// Writes the position as an id if records were skipped; otherwise writes a comment, which clients ignore.
    fn write_heartbeat(&mut self, out: &mut String) {
        self.stream_positions.copy_from(&mut self.subscriber);
        match self.stream_positions.take_id() {
            Some(id) => write_id(&id, out),
            None => write_comment("still here", out),
        }
    }

    fn on_end(&mut self, why: &Problem) {
        if !matches!(why.refused().code, ErrorCode::ShuttingDown | ErrorCode::Closed) {
            self.identity.record_departure(&self.shared, DepartureKind::CutOff, why);
        }
    }
}
