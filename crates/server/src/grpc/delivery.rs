//! The response to a subscriber: a body that is filled when the connection has room for more.
//!
//! Invariant: what waits in a connection for a client that does not read is one batch that was handed over, and one that is
//! about to be.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tonic::Status;

use super::outgoing::Outgoing;
use super::reader::Reader;
use super::writer::Writer;

/// Room beside a batch: the record that fills it, and heads.
const SLACK_BYTES: usize = 1 << 10;
/// The room that the first batch gets.
const FIRST_BYTES: usize = 1 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Delivery<W> {
    reader: Option<Reader>,
    writer: W,
    /// How large the last batch was: the next is given that room.
    last_bytes: usize,
    ended: Option<Status>,
}

impl<W: Writer> Delivery<W> {
    pub(super) fn new(reader: Reader, writer: W) -> Delivery<W> {
        Delivery { reader: Some(reader), writer, last_bytes: FIRST_BYTES, ended: None }
    }
}

impl<W: Writer> Body for Delivery<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(status) = this.ended.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))));
        }
        let Some(reader) = &mut this.reader else { return Poll::Ready(None) };
        let mut out = Outgoing::with_room(this.last_bytes + SLACK_BYTES);
        match reader.poll_fill(cx, &mut out, &mut this.writer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(status)) => {
                reader.ended(&status);
                this.reader = None;
                if out.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))));
                }
                this.ended = Some(status);
            }
        }
        this.last_bytes = out.len();
        Poll::Ready(Some(Ok(Frame::data(out.finish()))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_none() && self.ended.is_none()
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // A text that no header can hold.
        let bare = Status::new(status.code(), "");
        let _ = bare.add_header(&mut trailers);
    }
    trailers
}
