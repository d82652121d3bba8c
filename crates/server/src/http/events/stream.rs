//! The body of a stream of events: read from the logs when the connection can take more, and not before.
//!
//! Limits: `http.event_bytes`, after which a chunk ends (one record may go beyond it); chunks over it are charged to
//! the node's budget until they are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{Charge, Event, Notice, PublishError, Subscribe, Subscriber};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{RESUME_LOGS_MAX, write_comment, write_event, write_id, write_retry};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::Reader;
use super::format::{Form, notice, stand_after, write_end, write_gone, write_record};
use super::stands::Stands;
use super::subscribe::{LOGS_MAX, Subscribed};
use crate::access::Standing;
use crate::departures::Fate;
use crate::http::context::Context;
use crate::http::problem::Problem;
use crate::shared::Shared;

/// After how long a reader that was cut off comes back: at least, and so much more at most, so that thousands do not come at
/// once.
const RETRY_MS: u64 = 1_000;
const RETRY_JITTER_MS: u64 = 2_000;

/// See the module.
#[derive(Debug)]
pub(super) struct EventStream {
    shared: Arc<Shared>,
    subscriber: Subscriber,
    stands: Stands,
    form: Form,
    /// What is sent before anything is read.
    beginning: Option<String>,
    heartbeat: Pin<Box<Sleep>>,
    has_ended: bool,
    reader: Reader,
    standing: Option<Standing>,
    /// What it takes of the node's memory.
    _charge: Charge,
}

impl EventStream {
    pub(super) fn new(
        context: &Context,
        subscribed: Subscribed,
        form: Form,
        reader: Reader,
        standing: Option<Standing>,
    ) -> EventStream {
        let Subscribed { subscriber, mut stands, gone, charge } = subscribed;
        let shared = Arc::clone(context.shared());
        let mut beginning = String::new();
        // Any number that differs between those who come will do.
        let jitter = shared.node.next_session().wrapping_mul(0x9e37_79b9_7f4a_7c15) % RETRY_JITTER_MS;
        write_retry(RETRY_MS + jitter, &mut beginning);
        if gone > 0 {
            write_gone(gone, &mut beginning);
        }
        if let Some(id) = stands.take_id() {
            write_id(&id, &mut beginning);
        }
        let heartbeat = Box::pin(tokio::time::sleep(heartbeat_of(&shared)));
        let beginning = Some(beginning);
        EventStream {
            shared,
            subscriber,
            stands,
            form,
            beginning,
            heartbeat,
            has_ended: false,
            reader,
            standing,
            _charge: charge,
        }
    }

    /// Writes what is there to be read, as much as a chunk takes.
    fn fill(&mut self, out: &mut String) {
        let bytes_max = self.shared.limits.http.event_bytes as usize;
        while out.len() < bytes_max && !self.has_ended {
            match self.subscriber.try_next() {
                Ok(Some(Event::Record(record))) => {
                    self.stands.at(record.log, record.position);
                    let id = if self.stands.is_one() { self.stands.take_id() } else { None };
                    write_record(self.form, &record, id.as_deref(), out);
                }
                Ok(Some(Event::Notice(told))) => self.tell(&told, out),
                Ok(None) => break,
                Err(refused) => self.end(&Problem::from(refused), out),
            }
        }
        // Nothing of a log is held while the client takes its time.
        let _ = self.subscriber.drain(0, |_| ());
        if self.stands.logs() > RESUME_LOGS_MAX {
            self.end(&Problem::from(Refused::limit(LOGS_MAX, RESUME_LOGS_MAX as u64)), out);
        }
        if let Some(id) = self.stands.take_id() {
            write_id(&id, out);
        }
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

    fn end(&mut self, why: &Problem, out: &mut String) {
        write_end(why, out);
        self.has_ended = true;
        if !matches!(why.refused().code, ErrorCode::ShuttingDown | ErrorCode::Closed) {
            self.reader.departs(&self.shared, Fate::CutOff, why);
        }
    }

    /// What shows that the node is there; where records were skipped, how far.
    fn beat(&mut self, out: &mut String) {
        self.stands.look(&self.subscriber);
        match self.stands.take_id() {
            Some(id) => write_id(&id, out),
            None => write_comment("still here", out),
        }
    }

    /// What was written goes on its way, charged as long as it takes.
    fn send(&mut self, mut out: String) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.heartbeat.as_mut().reset(Instant::now() + heartbeat_of(&self.shared));
        if out.len() <= 2 * self.shared.limits.http.event_bytes as usize {
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        let bytes = match Charge::of(self.shared.node.budget(), out.len()) {
            Ok(charge) => Bytes::from_owner(Charged { out, _charge: charge }),
            Err(spent) => {
                // The reader comes back to where it was before this.
                out.clear();
                self.end(&Problem::from(PublishError::from(spent)), &mut out);
                out.into()
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        let mut out = this.beginning.take().unwrap_or_default();
        loop {
            // The connection is woken when the users file has changed, too.
            if let Some(Err(refused)) = this.standing.as_mut().map(Standing::check) {
                this.end(&Problem::from(refused), &mut out);
                return this.send(out);
            }
            this.fill(&mut out);
            // The connection is woken when the server stops, and asks for more then.
            if this.shared.is_stopping() && !this.has_ended {
                this.end(&Problem::from(Refused::new(ErrorCode::ShuttingDown, "")), &mut out);
            }
            if !out.is_empty() {
                return this.send(out);
            }
            match this.subscriber.poll_ready(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(refused)) => {
                    this.end(&Problem::from(refused), &mut out);
                    return this.send(out);
                }
                Poll::Pending => {}
            }
            match this.heartbeat.as_mut().poll(cx) {
                Poll::Ready(()) => this.beat(&mut out),
                Poll::Pending => return Poll::Pending,
            }
            return this.send(out);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

fn heartbeat_of(shared: &Shared) -> Duration {
    Duration::from_millis(shared.limits.http.heartbeat_ms.into())
}

/// Text that is charged until it was sent.
struct Charged {
    out: String,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        self.out.as_bytes()
    }
}
