//! The request body of a call, with limits on the size and time of each message.
//!
//! A large message is charged to the node's memory budget while it is incomplete. An incomplete message that takes too
//! long ends the call.
//!
//! Limits: `grpc.message_bytes_max`, `grpc.message_ms_max`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::wire::ErrorCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;
use tonic::Status;

use super::outgoing::HEAD_BYTES;
use super::status::status;
use crate::shared::SharedServer;
use dunlin::topic::Charge;

/// Size from which an incomplete message is charged to the memory budget. Every connection may have this many bytes in
/// flight without a charge.
const CHARGED_BYTES_MIN: usize = 64 << 10;

/// A request body whose messages are limited in size and time.
#[derive(Debug)]
pub(super) struct BoundedRequestBody {
    body: Incoming,
    shared: Arc<SharedServer>,
    /// The header of an incomplete message.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Number of bytes that the current message still lacks.
    missing_bytes: usize,
    charge: Option<Charge>,
    timeout: Option<Pin<Box<Sleep>>>,
}

impl BoundedRequestBody {
    pub(super) fn new(body: Incoming, shared: &Arc<SharedServer>) -> BoundedRequestBody {
        let shared = Arc::clone(shared);
        BoundedRequestBody {
            body,
            shared,
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            missing_bytes: 0,
            charge: None,
            timeout: None,
        }
    }

    /// Updates the state of the current message with bytes that arrived.
    fn track_messages(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        let was_between_messages = self.is_between_messages();
        let mut has_new_head = false;
        loop {
            let taken = self.missing_bytes.min(bytes.len());
            self.missing_bytes -= taken;
            bytes = &bytes[taken..];
            if self.missing_bytes == 0 {
                self.charge = None;
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
        let message_bytes_max = self.shared.limits.grpc.message_bytes_max;
        if self.missing_bytes > message_bytes_max {
            return Err(Refused::limit("grpc.message_bytes_max", message_bytes_max as u64));
        }
        if self.missing_bytes > available_bytes && self.missing_bytes >= CHARGED_BYTES_MIN {
            let budget = self.shared.node.budget();
            let charge = Charge::of(budget, self.missing_bytes).map_err(|spent| {
                let numbers = [spent.requested, spent.used, spent.limit];
                Refused { numbers, ..Refused::new(ErrorCode::BudgetSpent, "") }
            });
            self.charge = Some(charge?);
        }
        Ok(())
    }

    fn is_between_messages(&self) -> bool {
        self.missing_bytes == 0 && self.head_bytes == 0
    }

    /// Fails when the current message stays incomplete for too long.
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
