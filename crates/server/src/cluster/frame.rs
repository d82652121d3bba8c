//! Encodes and decodes the frames that nodes exchange over a TLS connection:
//!
//! ```text
//!  0         4         12     13
//!  +---------+---------+------+---------
//!  | length  | id      | kind | payload …      length: bytes after this field; integers are little-endian
//!  | u32     | u64     | u8   |
//!  +---------+---------+------+---------
//! ```
//! A response has the id of its request. Responses may arrive in another order than their requests.
//!
//! Limits: if a frame is longer than the receiver accepts, the receiver ends the connection before it buffers the
//! payload.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;

const HEAD_BYTES: usize = 13;
/// Number of bytes that `length` counts in addition to the payload: the id and the kind.
const COUNTED: usize = 9;
/// Maximum number of bytes that one read takes from the connection.
const READ_BYTES: usize = 64 << 10;
/// A large frame is read or written in chunks of this many bytes. Other tasks of the thread run between two chunks,
/// because it takes long to encrypt or decrypt a large frame.
const CHUNK_BYTES: usize = 128 << 10;

/// The meaning of a frame between two nodes, such as a request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ClusterFrameKind {
    /// The first frame that each side sends.
    Hello = 1,
    Request = 2,
    /// The result of the request with the same id.
    Response = 3,
    /// The error of the request with the same id.
    Failed = 4,
    Ping = 5,
    Pong = 6,
    /// A part of the response to the request with the same id.
    Part = 7,
}

impl ClusterFrameKind {
    fn from_byte(byte: u8) -> Option<ClusterFrameKind> {
        use ClusterFrameKind::{Failed, Hello, Part, Ping, Pong, Request, Response};
        [Hello, Request, Response, Failed, Ping, Pong, Part].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame that was received from another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterFrame {
    pub(super) id: u64,
    pub(super) kind: ClusterFrameKind,
    pub(super) payload: Bytes,
}

/// Appends a frame to `out`.
pub(super) fn encode(out: &mut Vec<u8>, id: u64, kind: ClusterFrameKind, payload: &[u8]) {
    encode_pieces(out, id, kind, &[payload]);
}

/// Appends a frame to `out`. The pieces, one after another, are the frame's payload.
pub(super) fn encode_pieces(out: &mut Vec<u8>, id: u64, kind: ClusterFrameKind, pieces: &[impl AsRef<[u8]>]) {
    let payload: usize = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    out.reserve(HEAD_BYTES + payload);
    out.extend_from_slice(&((COUNTED + payload) as u32).to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out.push(kind as u8);
    pieces.iter().for_each(|piece| out.extend_from_slice(piece.as_ref()));
}

/// Writes bytes in chunks and lets other tasks of the thread run between them, so that heartbeats do not wait behind a
/// large log entry. Calls `progressed` after each chunk.
pub(super) async fn write_in_chunks(
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    progressed: impl Fn(),
) -> io::Result<()> {
    let mut pieces = bytes.chunks(CHUNK_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        to.write_all(piece).await?;
        progressed();
        if pieces.peek().is_some() {
            yield_now().await;
        }
    }
    to.flush().await
}

/// Reads the frames of a cluster connection.
#[derive(Debug)]
pub(super) struct ClusterFrames<R> {
    reader: R,
    /// The buffer for reads. A frame is copied out of this buffer: a log entry is kept for a long time, and must not
    /// keep the whole buffer in memory.
    chunk: Box<[u8]>,
    /// The bytes of a frame that is not complete yet.
    buffer: BytesMut,
    /// Number of bytes read since the reader last let other tasks of the thread run.
    unyielded_bytes: usize,
    /// Largest accepted payload, bytes.
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> ClusterFrames<R> {
    pub(super) fn new(reader: R, bytes_max: usize) -> ClusterFrames<R> {
        ClusterFrames {
            reader,
            chunk: vec![0; READ_BYTES].into(),
            buffer: BytesMut::new(),
            unyielded_bytes: 0,
            bytes_max,
        }
    }

    /// Returns the underlying reader. Fails if bytes after the last whole frame were already read, because these bytes
    /// would be lost.
    pub(super) fn into_inner(self) -> io::Result<R> {
        if self.buffer.is_empty() { Ok(self.reader) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Sets the largest accepted payload, bytes.
    pub(super) fn set_limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Reads the next frame. If this future is dropped, no bytes are lost.
    pub(super) async fn next(&mut self) -> io::Result<ClusterFrame> {
        loop {
            if let Some(frame) = self.decode()? {
                return Ok(frame);
            }
            match self.reader.read(&mut self.chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => {
                    self.buffer.extend_from_slice(&self.chunk[..count]);
                    self.unyielded_bytes += count;
                }
            }
            if self.unyielded_bytes > CHUNK_BYTES {
                self.unyielded_bytes = 0;
                yield_now().await;
            }
        }
    }

    fn decode(&mut self) -> io::Result<Option<ClusterFrame>> {
        let Some((head, _)) = self.buffer.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let payload = length.checked_sub(COUNTED).ok_or_else(|| invalid("a frame has no length"))?;
        if payload > self.bytes_max {
            return Err(invalid(&format!(
                "a frame of {payload} bytes exceeds the limit of {}",
                self.bytes_max
            )));
        }
        let kind = ClusterFrameKind::from_byte(head[12]).ok_or_else(|| invalid("a frame has no kind"))?;
        if self.buffer.len() < HEAD_BYTES + payload {
            self.buffer.reserve(HEAD_BYTES + payload - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(4);
        let id = self.buffer.get_u64_le();
        self.buffer.advance(1);
        Ok(Some(ClusterFrame { id, kind, payload: self.buffer.split_to(payload).freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], bytes_max: usize) -> io::Result<Vec<ClusterFrame>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut frames = ClusterFrames::new(bytes, bytes_max);
            let mut all = Vec::new();
            loop {
                match frames.next().await {
                    Ok(frame) => all.push(frame),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(all),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    #[test]
    fn incomplete_cluster_frame_is_not_decoded() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 7, ClusterFrameKind::Request, b"what");
        encode(&mut bytes, 8, ClusterFrameKind::Ping, b"");
        let all = read(&bytes, 10).unwrap();
        let expected = [(7, ClusterFrameKind::Request, &b"what"[..]), (8, ClusterFrameKind::Ping, b"")];
        assert_eq!(all.iter().map(|f| (f.id, f.kind, &f.payload[..])).collect::<Vec<_>>(), expected);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut], 10).unwrap().len() < 2);
        }
    }

    /// Polls `work` to its end, and returns how often it let other tasks run.
    fn polls_during(work: impl Future<Output = io::Result<()>>) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut polls = 0;
        runtime.block_on(async {
            tokio::pin!(work);
            let others = std::future::poll_fn(|cx| {
                polls += 1;
                work.as_mut().poll(cx)
            });
            others.await.unwrap();
        });
        polls
    }

    /// If heartbeats waited behind the encryption of a large frame, a leader would lose its lead.
    #[test]
    fn reading_or_writing_a_large_frame_blocks_no_other_task() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, ClusterFrameKind::Request, &vec![7; 8 << 20]);
        let polls = (8 << 20) / CHUNK_BYTES / 2;
        assert!(polls_during(async { write_in_chunks(&mut tokio::io::sink(), &bytes, || ()).await }) > polls);
        let mut frames = ClusterFrames::new(&bytes[..], 8 << 20);
        assert!(polls_during(async { frames.next().await.map(drop) }) > polls);
    }

    #[test]
    fn overlong_or_invalid_cluster_frame_is_refused() {
        let mut long = Vec::new();
        encode(&mut long, 1, ClusterFrameKind::Response, &[0; 11]);
        assert!(read(&long, 10).is_err());
        assert!(read(&[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], 10).is_err(), "shorter than its head");
        assert!(read(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99], 10).is_err(), "of no kind");
        assert!(read(&[255; 13], 10).is_err());
    }
}
