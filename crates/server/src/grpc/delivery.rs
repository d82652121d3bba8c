//! The body of the response to a subscriber. The body is filled when the connection has room.
//!
//! Invariant: if a client does not read, the connection holds at most two batches for this client: the one that was
//! passed to HTTP/2, and the next one.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tonic::Status;

use super::outgoing::OutgoingMessages;
use super::reader::SubscriptionReader;
use super::writer::EventWriter;

/// Additional capacity of a batch's buffer, bytes. The batch needs it for headers, and for a last record that exceeds
/// the batch's size.
const SLACK_BYTES: usize = 1 << 10;
/// Buffer size of the first batch, bytes.
const FIRST_BATCH_BYTES: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct SubscriptionBody<W> {
    reader: Option<SubscriptionReader>,
    writer: W,
    /// Size of the last batch, which is used as the buffer size of the next batch.
    last_bytes: usize,
    pending_status: Option<Status>,
}

impl<W: EventWriter> SubscriptionBody<W> {
    pub(super) fn new(reader: SubscriptionReader, writer: W) -> SubscriptionBody<W> {
        SubscriptionBody { reader: Some(reader), writer, last_bytes: FIRST_BATCH_BYTES, pending_status: None }
    }
}

impl<W: EventWriter> Body for SubscriptionBody<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(status) = this.pending_status.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))));
        }
        let Some(reader) = &mut this.reader else { return Poll::Ready(None) };
        let mut out = OutgoingMessages::with_capacity(this.last_bytes + SLACK_BYTES);
        match reader.poll_fill(cx, &mut out, &mut this.writer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(status)) => {
                reader.record_end(&status);
                this.reader = None;
                if out.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))));
                }
                this.pending_status = Some(status);
            }
        }
        this.last_bytes = out.len();
        Poll::Ready(Some(Ok(Frame::data(out.finish()))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_none() && self.pending_status.is_none()
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // The status text contains characters that a header cannot have, so the status is sent without the text.
        let without_text = Status::new(status.code(), "");
        let _ = without_text.add_header(&mut trailers);
    }
    trailers
}
