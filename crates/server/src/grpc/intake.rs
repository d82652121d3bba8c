//! Reads the request body of a call, and limits the size, the number of elements and the time of each message.
//!
//! While a large message is incomplete, the bytes that have arrived are charged to the memory budget of the caller's
//! tenant. The length that the message's header announces is not charged. A message for keys or tasks stays charged
//! until the call has its response. When a message is complete, its decoded elements are charged until the call has
//! handled the message. An incomplete message that takes too long ends the call.
//!
//! Limits: `grpc.message_bytes_max`, `grpc.message_elements_max`, `grpc.message_ms_max`.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::wire::ErrorCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;
use tonic::Status;

use super::elements::{ElementCounter, MessageShape};
use super::outgoing::HEAD_BYTES;
use super::status::status;
use crate::shared::SharedServer;
use dunlin::topic::{MemoryBudget, MemoryCharge};

/// An incomplete message is charged to the memory budget once this many of its bytes have arrived. Fewer bytes are not
/// charged, so a connection with 1,024 calls may hold about 4 MiB that are not charged.
const CHARGED_BYTES_MIN: usize = 4 << 10;
/// The decoded elements of a message are charged to the memory budget if they take at least this many bytes.
const CHARGED_ELEMENT_BYTES_MIN: usize = 16 << 10;
/// The elements of a message are counted if the message has at least this many bytes. A smaller message contains at
/// most 31 nested messages and texts, or about 60 numbers.
const COUNTED_BYTES_MIN: usize = 64;
/// Maximum size of a message in a call that needs no login, bytes. Such messages contain only the name of a service or
/// of a protobuf type.
const OPEN_MESSAGE_BYTES_MAX: usize = 1 << 10;

/// The charges for a call's message (element 0) and for its decoded elements (element 1). The request body sets them,
/// and the call holds them while it handles the message.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageCharge(Arc<Mutex<[Option<MemoryCharge>; 2]>>);

impl MessageCharge {
    fn set_message(&self, charge: MemoryCharge) {
        self.charges()[0] = Some(charge);
    }

    fn set_elements(&self, charge: Option<MemoryCharge>) {
        self.charges()[1] = charge;
    }

    fn charges(&self) -> MutexGuard<'_, [Option<MemoryCharge>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request body that limits the size, elements and time of its messages.
#[derive(Debug)]
pub(super) struct BoundedRequestBody {
    body: Incoming,
    shared: Arc<SharedServer>,
    /// The memory budget of the caller's tenant.
    budget: Arc<MemoryBudget>,
    /// The header of the current message, of which `head_bytes` bytes have arrived.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Number of bytes of the current message that have not arrived.
    missing_bytes: usize,
    /// Number of bytes of the current message that have arrived. Counted only if the message is charged.
    arrived_bytes: usize,
    /// The charge for the bytes of the current message that have arrived; `None` if they are not charged.
    charge: Option<MemoryCharge>,
    /// The limit on the size of a message: its name in the configuration, and the number of bytes.
    size_limit: (&'static str, usize),
    /// The repeated fields of the call's messages; `None` if the messages have none.
    shape: Option<&'static MessageShape>,
    /// Counts the elements of the current message; `None` if they need not be counted.
    elements: Option<ElementCounter>,
    message_charge: MessageCharge,
    /// Whether the charge for a message is held until the call has its response.
    keeps_charge: bool,
    /// Whether the call has several messages, each of which is handled before the next is read.
    has_many_messages: bool,
    /// Whether the call's first message has begun.
    has_message: bool,
    timeout: Option<Pin<Box<Sleep>>>,
}

impl BoundedRequestBody {
    pub(super) fn new(
        body: Incoming,
        shared: &Arc<SharedServer>,
        budget: &Arc<MemoryBudget>,
        shape: Option<&'static MessageShape>,
        has_many_messages: bool,
        keeps_charge: bool,
        message_charge: &MessageCharge,
    ) -> BoundedRequestBody {
        let (shared, budget) = (Arc::clone(shared), Arc::clone(budget));
        let size_limit = ("grpc.message_bytes_max", shared.limits.grpc.message_bytes_max);
        BoundedRequestBody {
            size_limit,
            shape,
            elements: None,
            message_charge: message_charge.clone(),
            keeps_charge,
            has_many_messages,
            has_message: false,
            body,
            shared,
            budget,
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            missing_bytes: 0,
            arrived_bytes: 0,
            charge: None,
            timeout: None,
        }
    }

    /// Lowers the limit on the size of messages to what calls without a login need.
    pub(super) fn for_open_call(mut self) -> BoundedRequestBody {
        self.size_limit = ("open_message_bytes_max", OPEN_MESSAGE_BYTES_MAX.min(self.size_limit.1));
        self
    }

    /// Updates the state of the current message with bytes that arrived.
    fn track_messages(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        let was_between_messages = self.is_between_messages();
        let mut has_new_head = false;
        // These bytes may complete several messages. The messages are decoded one after another, so only the largest is
        // charged.
        let mut decoded_bytes = 0;
        loop {
            let (part, rest) = bytes.split_at(self.missing_bytes.min(bytes.len()));
            self.missing_bytes -= part.len();
            bytes = rest;
            self.charge_part(part.len())?;
            if let Some(elements) = &mut self.elements {
                elements.read(part)?;
            }
            if self.missing_bytes == 0 {
                if let Some(charge) = self.charge.take()
                    && self.keeps_charge
                {
                    self.message_charge.set_message(charge);
                }
                decoded_bytes = self.elements.take().map_or(0, |all| all.decoded_bytes()).max(decoded_bytes);
            }
            if bytes.is_empty() {
                break;
            }
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            has_new_head = true;
            if self.head_bytes == HEAD_BYTES {
                self.begin_message(bytes.len())?;
            }
        }
        if decoded_bytes >= CHARGED_ELEMENT_BYTES_MIN {
            let charge = MemoryCharge::of(&self.budget, decoded_bytes)?;
            self.message_charge.set_elements(Some(charge));
        }
        if self.is_between_messages() {
            self.timeout = None;
        } else if was_between_messages || has_new_head {
            let ms = self.shared.limits.grpc.message_ms_max;
            self.timeout = Some(Box::pin(tokio::time::sleep(Duration::from_millis(ms.into()))));
        }
        Ok(())
    }

    fn begin_message(&mut self, available_bytes: usize) -> Result<(), Refused> {
        let [_, a, b, c, d] = self.head;
        self.head_bytes = 0;
        self.missing_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        self.arrived_bytes = 0;
        let (limit_name, message_bytes_max) = self.size_limit;
        if self.missing_bytes > message_bytes_max {
            return Err(Refused::limit(limit_name, message_bytes_max as u64));
        }
        // Refuses a second message if the call takes only one. Otherwise tonic would decode further messages while the
        // call handles the first, only to drop them.
        if std::mem::replace(&mut self.has_message, true) && self.shape.is_some() && !self.has_many_messages {
            return Err(Refused::new(ErrorCode::Protocol, "the call takes one message"));
        }
        if self.missing_bytes > available_bytes && self.missing_bytes >= CHARGED_BYTES_MIN {
            self.charge = Some(MemoryCharge::none(&self.budget));
        }
        if self.missing_bytes >= COUNTED_BYTES_MIN {
            let elements_max = self.shared.limits.grpc.message_elements_max;
            let counter = |shape| ElementCounter::new(shape, self.missing_bytes, elements_max);
            self.elements = self.shape.map(counter);
        }
        Ok(())
    }

    /// Charges the next `bytes` bytes, if the current message is charged.
    fn charge_part(&mut self, bytes: usize) -> Result<(), Refused> {
        let Some(charge) = &mut self.charge else { return Ok(()) };
        self.arrived_bytes += bytes;
        if self.arrived_bytes < CHARGED_BYTES_MIN {
            return Ok(());
        }
        Ok(charge.grow_to(self.arrived_bytes)?)
    }

    fn is_between_messages(&self) -> bool {
        self.missing_bytes == 0 && self.head_bytes == 0
    }

    /// Fails if the current message has been incomplete for too long.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let is_over = self.timeout.as_mut().is_some_and(|timeout| timeout.as_mut().poll(cx).is_ready());
        if !is_over {
            return Ok(());
        }
        self.timeout = None;
        let ms = u64::from(self.shared.limits.grpc.message_ms_max);
        Err(status(&Refused::limit("grpc.message_ms_max", ms)))
    }
}

impl Body for BoundedRequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.has_many_messages {
            // The call reads on, so it has handled all earlier messages.
            this.message_charge.set_elements(None);
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => match this.poll_timeout(cx) {
                Ok(()) => Poll::Pending,
                Err(timed_out) => Poll::Ready(Some(Err(timed_out))),
            },
            Poll::Ready(Some(Ok(frame))) => {
                let tracked = frame.data_ref().map_or(Ok(()), |bytes| this.track_messages(bytes));
                Poll::Ready(Some(tracked.map(|()| frame).map_err(|refused| status(&refused))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Status::from_error(Box::new(error))))),
            Poll::Ready(None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
