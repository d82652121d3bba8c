//! A stream that counts the bytes of HTTP request heads, and charges large heads to the login share of the memory
//! budget.
//!
//! The HTTP library hyper keeps the bytes of an incomplete head in its buffer. This module therefore counts the bytes
//! that hyper reads while no request is handled. If hyper reads again, the head is incomplete, and the bytes of the
//! earlier reads are charged. The read that completes the head is not charged, because it may also contain a part of
//! the body.
//!
//! Limits: a head of up to [`UNCHARGED_UNREAD_BYTES_MAX`] bytes is not charged. A larger head is charged until its
//! request has a response. If the login share has no room for the head, reading fails and the connection ends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use dunlin::topic::{MemoryBudget, MemoryCharge};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::charging::UNCHARGED_UNREAD_BYTES_MAX;

/// The memory charge for the request head that a connection is reading or handling.
#[derive(Debug, Clone)]
pub(super) struct HeadCharge(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The number of bytes of the head that were read; at most `bytes_max`.
    bytes: usize,
    /// The size of hyper's buffer for a head, bytes.
    bytes_max: usize,
    /// Whether a request is handled. While it is handled, the bytes that are read are not counted, because they belong
    /// to the request's body.
    is_handling: bool,
    charge: MemoryCharge,
}

impl HeadCharge {
    pub(super) fn new(budget: &Arc<MemoryBudget>, bytes_max: usize) -> HeadCharge {
        let charge = MemoryCharge::none(budget);
        HeadCharge(Arc::new(Mutex::new(State { bytes: 0, bytes_max, is_handling: false, charge })))
    }

    /// Called when a head is complete. The head stays charged until the returned value is dropped.
    pub(super) fn begin_request(&self) -> HandledHead {
        let mut state = self.lock();
        (state.bytes, state.is_handling) = (0, true);
        drop(state);
        HandledHead(self.clone())
    }

    /// Called before each read. Charges the bytes of earlier reads, which are an incomplete head.
    fn charge(&self) -> io::Result<()> {
        let mut state = self.lock();
        let bytes = state.bytes;
        if bytes <= UNCHARGED_UNREAD_BYTES_MAX {
            return Ok(());
        }
        let charged = state.charge.grow_share_to(bytes);
        charged.map_err(|spent| io::Error::new(io::ErrorKind::OutOfMemory, spent))
    }

    /// Called after each read with the number of bytes that were read.
    fn add(&self, bytes: usize) {
        let mut state = self.lock();
        if !state.is_handling {
            state.bytes = (state.bytes + bytes).min(state.bytes_max);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A complete head whose request is being handled. Dropping this ends the charge.
#[derive(Debug)]
pub(super) struct HandledHead(HeadCharge);

impl Drop for HandledHead {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_handling = false;
        state.charge.release();
    }
}

/// A stream that counts the bytes that are read, for its [`HeadCharge`].
#[derive(Debug)]
pub(super) struct HeadReads<S> {
    stream: S,
    head_charge: HeadCharge,
}

impl<S> HeadReads<S> {
    pub(super) fn new(stream: S, head_charge: HeadCharge) -> HeadReads<S> {
        HeadReads { stream, head_charge }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadReads<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.head_charge.charge()?;
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        this.head_charge.add(into.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadReads<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    const KIB: usize = 1 << 10;

    #[tokio::test]
    async fn large_request_head_counts_towards_memory_until_the_response() {
        let node = MemoryBudget::node(1 << 20, 0);
        let share = node.child(20 * KIB as u64);
        let head_charge = HeadCharge::new(&share, 64 * KIB);
        let sent = vec![b'x'; 56 * KIB];
        let mut stream = HeadReads::new(&sent[..], head_charge.clone());
        let mut space = [0; 8 * KIB];
        stream.read_exact(&mut space).await.unwrap();
        stream.read_exact(&mut space).await.unwrap();
        assert_eq!(share.used(), 0, "the last read may contain a part of the body");
        stream.read_exact(&mut space).await.unwrap();
        assert_eq!((share.used(), node.used()), (16 << 10, 16 << 10));
        let handled = head_charge.begin_request();
        stream.read_exact(&mut space).await.unwrap();
        assert_eq!(share.used(), 16 << 10, "the body is not charged here");
        drop(handled);
        assert_eq!((share.used(), node.used()), (0, 0));
        node.charge(node.room()).unwrap();
        for _ in 0..3 {
            stream.read_exact(&mut space).await.unwrap();
        }
        assert_eq!(share.used(), 16 << 10, "only the share limits heads");
    }

    #[tokio::test]
    async fn http_head_larger_than_the_login_share_is_refused() {
        let share = MemoryBudget::node(1 << 20, 0).child(20 * KIB as u64);
        let sent = vec![b'x'; 40 * KIB];
        let mut stream = HeadReads::new(&sent[..], HeadCharge::new(&share, 64 * KIB));
        let mut space = [0; 24 * KIB];
        stream.read_exact(&mut space).await.unwrap();
        let refused = stream.read_exact(&mut space[..KIB]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    }
}
