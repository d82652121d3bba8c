//! A stream that limits how many bytes HTTP/2 reads from a connection in each poll of the connection's task.
//!
//! The HTTP/2 library handles all frames that it can read before it returns. tokio's limit for one poll is 128 reads,
//! enough for 60,000 PING frames. Bytes that TLS has already decrypted do not count towards tokio's limit. Neither
//! hyper nor h2 limits the number of PING, SETTINGS and PRIORITY frames. A client that sends many of these frames would
//! therefore delay the other connections of its thread.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

/// After reading this many bytes, about 2,000 PING frames, a connection reads no more until its task is polled again.
/// The last read may go beyond this number.
const READ_BYTES_PER_POLL: usize = 32 << 10;

/// The number of bytes that a connection may still read during this poll of its task.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadAllowance(Arc<AtomicUsize>);

impl ReadAllowance {
    /// Allows the full number of bytes again. Called at the beginning of each poll of the connection's task.
    pub(super) fn refill(&self) {
        self.0.store(READ_BYTES_PER_POLL, Ordering::Relaxed);
    }

    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn spend(&self, bytes: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// A stream whose reads return `Pending` when the allowance is spent, so that the thread's other tasks run.
#[derive(Debug)]
pub(super) struct LimitedReads<S> {
    stream: S,
    allowance: ReadAllowance,
}

impl<S> LimitedReads<S> {
    pub(super) fn new(stream: S, allowance: ReadAllowance) -> LimitedReads<S> {
        LimitedReads { stream, allowance }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedReads<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.allowance.is_spent() {
            // Wakes this task only after the thread has polled all its sockets. If the task were woken at once, it
            // would run again before the other tasks of the thread.
            let _ = pin!(yield_now()).poll(cx);
            return Poll::Pending;
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        this.allowance.spend(into.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedReads<S> {
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
    use std::future::poll_fn;

    use super::*;

    /// Each poll reads until there is nothing more to read, as HTTP/2 does. If a read did not wake the task when it
    /// returns `Pending`, the test would hang.
    #[tokio::test]
    async fn connection_reads_a_limited_number_of_bytes_in_each_poll() {
        const SENT_BYTES: usize = 10 * READ_BYTES_PER_POLL;
        let sent = vec![7_u8; SENT_BYTES];
        let allowance = ReadAllowance::default();
        let mut stream = LimitedReads::new(&sent[..], allowance.clone());
        let mut polls = Vec::new();
        poll_fn(|cx| {
            allowance.refill();
            let mut space = [0; 1 << 10];
            let mut read_bytes = 0;
            loop {
                let mut into = ReadBuf::new(&mut space);
                match Pin::new(&mut stream).poll_read(cx, &mut into) {
                    Poll::Ready(read) => read.unwrap(),
                    Poll::Pending => {
                        polls.push(read_bytes);
                        return Poll::Pending;
                    }
                }
                if into.filled().is_empty() {
                    return Poll::Ready(());
                }
                read_bytes += into.filled().len();
            }
        })
        .await;
        assert_eq!(polls, [READ_BYTES_PER_POLL; 10]);
    }
}
