//! Reads frames that [`Frame::check`] has accepted. A frame is one encoded record. Its head is the first 8 bytes; its
//! meta is the append time and the fields after it. Integers are little-endian. Each frame starts at a multiple of 8.
//!
//! ```text
//!  0        4      5       6          8                16
//!  +--------+------+-------+----------+----------------+--------------------+---------+---------+
//!  | len    | kind | flags | meta_len | append_time_ns | fields by flag     | payload | 0…0     |
//!  | u32    | u8   | u8    | u16      | u64            |                    |         | padding |
//!  +--------+------+-------+----------+----------------+--------------------+---------+---------+
//!  |<------------------------------ len --------------------------------------------->|
//!                                     |<------------ meta_len ------------->|
//! fields, each only when its flag is set, in this order:
//!   event time  u64 ns          expires  u64 ns
//!   subject     u16 len, tail   key      u16 len, bytes     reply  u16 len, subject
//!   headers     u16 count, then each: u16 name_len, u16 value_len, name, value
//! ```

use crate::encode::RecordMeta;

/// Frames start at multiples of this many bytes.
pub const FRAME_ALIGN: usize = 8;
/// Size of a frame's head, the part before the meta, bytes.
pub const HEAD_BYTES: usize = 8;
/// Size of the smallest meta, bytes: the append time alone.
pub const META_BYTES_MIN: usize = 8;
/// Position of the append time in a frame, bytes from the frame's start.
pub const APPEND_TIME_AT: usize = 8;
/// The kind byte of a record, the only kind of frame.
pub const KIND_RECORD: u8 = 1;
/// Flag: the meta holds the event time, as the publisher states it.
pub const FLAG_EVENT_TIME: u8 = 1 << 0;
/// Flag: the meta holds the record's expiry time.
pub const FLAG_EXPIRES: u8 = 1 << 1;
/// Flag: the meta holds the tail of the subject.
pub const FLAG_SUBJECT: u8 = 1 << 2;
/// Flag: the meta holds a key.
pub const FLAG_KEY: u8 = 1 << 3;
/// Flag: the meta holds the reply subject.
pub const FLAG_REPLY: u8 = 1 << 4;
/// Flag: the meta holds headers.
pub const FLAG_HEADERS: u8 = 1 << 5;
/// Flag: the payload is stored elsewhere. Valid only in a node's memory, never in transmitted bytes.
pub const FLAG_BY_REF: u8 = 1 << 7;

/// Size of a frame of `len` bytes with its padding.
#[inline(always)]
pub const fn padded(len: usize) -> usize {
    (len + FRAME_ALIGN - 1) & !(FRAME_ALIGN - 1)
}

/// A view of one encoded record: its payload, its meta, and a flag for each field in the meta.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    meta: &'a [u8],
    payload: &'a [u8],
    flags: u8,
}

impl<'a> Frame<'a> {
    /// Splits the first frame off `bytes`, which [`Frame::check`] has accepted before. Returns the frame and the number
    /// of bytes it takes, padding included; `None` if no complete frame is left.
    #[inline(always)]
    pub fn split(bytes: &'a [u8]) -> Option<(Frame<'a>, usize)> {
        let (len, flags, meta_len) = head(bytes)?;
        let body = bytes.get(HEAD_BYTES..len)?;
        let (meta, payload) = body.split_at_checked(meta_len)?;
        Some((Frame { meta, payload, flags }, padded(len)))
    }

    /// Makes a frame from a meta and a payload that are not stored together.
    #[inline(always)]
    pub fn from_parts(meta: &'a [u8], payload: &'a [u8], flags: u8) -> Frame<'a> {
        Frame { meta, payload, flags }
    }

    /// The record's payload, without the padding of the frame.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The raw meta; its first 8 bytes are the append time.
    #[inline(always)]
    pub fn meta_bytes(&self) -> &'a [u8] {
        self.meta
    }

    /// The flags of the frame, one for each field that the meta holds.
    #[inline(always)]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Time at which the owner appended the record, ns since the Unix epoch.
    #[inline(always)]
    pub fn append_time_ns(&self) -> u64 {
        read_u64(self.meta, 0)
    }

    /// Time at which the event happened according to the publisher, ns since the Unix epoch.
    #[inline]
    pub fn event_time_ns(&self) -> Option<u64> {
        (self.flags & FLAG_EVENT_TIME != 0).then(|| read_u64(self.meta, META_BYTES_MIN))
    }

    /// Time from which subscribers no longer receive the record, ns since the Unix epoch.
    #[inline]
    pub fn expires_ns(&self) -> Option<u64> {
        let at = META_BYTES_MIN + 8 * usize::from(self.flags & FLAG_EVENT_TIME != 0);
        (self.flags & FLAG_EXPIRES != 0).then(|| read_u64(self.meta, at))
    }

    /// The part of the subject after the topic's literal prefix; empty for a topic that owns only its own name.
    pub fn subject_tail(&self) -> &'a str {
        text(self.field(FLAG_SUBJECT))
    }

    /// The key. The key selects the partition, and groups keep the order of records with the same key.
    pub fn key(&self) -> Option<&'a [u8]> {
        (self.flags & FLAG_KEY != 0).then(|| self.field(FLAG_KEY))
    }

    /// The subject to which replies go.
    pub fn reply(&self) -> Option<&'a str> {
        (self.flags & FLAG_REPLY != 0).then(|| text(self.field(FLAG_REPLY)))
    }

    /// Name and value of each header, in the publisher's order.
    pub fn headers(&self) -> Headers<'a> {
        if self.flags & FLAG_HEADERS == 0 {
            return Headers { rest: &[], left: 0 };
        }
        let at = self.headers_at();
        Headers { rest: self.meta.get(at + 2..).unwrap_or(&[]), left: read_u16(self.meta, at) }
    }

    /// The record's fields in the form that a publisher needs to publish the record again. `headers` are the record's
    /// headers.
    pub fn to_meta<'h>(&self, headers: &'h [(&'h str, &'h [u8])]) -> RecordMeta<'h>
    where
        'a: 'h,
    {
        RecordMeta {
            event_time_ns: self.event_time_ns(),
            expires_ns: self.expires_ns(),
            subject_tail: self.subject_tail(),
            key: self.key(),
            reply: self.reply(),
            headers,
        }
    }

    /// Appends the complete frame to `out` as a batch contains it: in one piece and padded.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let len = HEAD_BYTES + self.meta.len() + self.payload.len();
        let start = out.len();
        out.reserve(padded(len));
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(&[KIND_RECORD, self.flags]);
        out.extend_from_slice(&(self.meta.len() as u16).to_le_bytes());
        out.extend_from_slice(self.meta);
        out.extend_from_slice(self.payload);
        out.resize(start + padded(len), 0);
    }

    fn fixed_bytes(&self) -> usize {
        META_BYTES_MIN
            + 8 * usize::from(self.flags & FLAG_EVENT_TIME != 0)
            + 8 * usize::from(self.flags & FLAG_EXPIRES != 0)
    }

    /// The content of the field with the flag `wanted`; empty if the frame does not have the field.
    fn field(&self, wanted: u8) -> &'a [u8] {
        let mut at = self.fixed_bytes();
        for flag in [FLAG_SUBJECT, FLAG_KEY, FLAG_REPLY] {
            if self.flags & flag == 0 {
                continue;
            }
            let len = read_u16(self.meta, at) as usize;
            if flag == wanted {
                return self.meta.get(at + 2..at + 2 + len).unwrap_or(&[]);
            }
            at += 2 + len;
        }
        &[]
    }

    fn headers_at(&self) -> usize {
        let mut at = self.fixed_bytes();
        for flag in [FLAG_SUBJECT, FLAG_KEY, FLAG_REPLY] {
            if self.flags & flag != 0 {
                at += 2 + read_u16(self.meta, at) as usize;
            }
        }
        at
    }
}

impl std::fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("append_time_ns", &self.append_time_ns())
            .field("flags", &format_args!("{:#010b}", self.flags))
            .field("subject_tail", &self.subject_tail())
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

/// An iterator over the headers of one record.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name_len = read_u16(self.rest, 0) as usize;
        let value_len = read_u16(self.rest, 2) as usize;
        let (name, rest) = self.rest.get(4..)?.split_at_checked(name_len)?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        self.rest = rest;
        Some((text(name), value))
    }
}

/// Reads `(len, flags, meta_len)` of the frame at the start of `bytes`; `None` if `bytes` is shorter than a frame's
/// head.
#[inline(always)]
pub(crate) fn head(bytes: &[u8]) -> Option<(usize, u8, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk::<HEAD_BYTES>()?);
    Some((word as u32 as usize, (word >> 40) as u8, (word >> 48) as usize))
}

#[inline(always)]
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

#[inline(always)]
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}
