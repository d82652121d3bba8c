//! Encodes records as protobuf directly from their segments.
//!
//! Messages of the protobuf library prost own their contents, so each payload would be copied once more before it is
//! encoded.
//!
//! Invariant: the bytes equal what prost encodes for the same [`SubscribeResponse`](v1::SubscribeResponse).

use dunlin::topic::frame::{FLAG_BY_REF, HEAD_BYTES};
use dunlin::topic::{Frame, LogName, Position, RecordSpanContent};

use super::outgoing::{OutgoingMessages, put_varint, varint_bytes};
#[cfg(doc)]
use super::proto::dunlin as v1;

/// Tag of the field `SubscribeResponse.records`.
const RECORDS_TAG: u8 = 2 << 3 | LEN;
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LEN: u8 = 2;
/// Maximum number of bytes before a record's payload if the record has neither subject, key nor headers. These bytes
/// are the record's tag and length, and its other fields.
const PLAIN_HEAD_BYTES_MAX: usize = 1 + 5 + 1 + 10 + 1 + 10 + 1 + 5;

/// Consecutive records of one log that are sent together.
pub(super) struct RecordBatch<'a> {
    pub(super) log: &'a LogName,
    pub(super) first: Position,
    /// Number of records that were skipped just before the first record.
    pub(super) skipped: u64,
    pub(super) content: RecordSpanContent<'a>,
}

impl<'a> RecordBatch<'a> {
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        let (mut rest, mut single) = match self.content {
            RecordSpanContent::Frames(bytes) => (bytes, None),
            RecordSpanContent::ByRef { head, payload } => {
                let flags = head.get(5).map_or(0, |flags| flags & !FLAG_BY_REF);
                (&[][..], Some(Frame::from_parts(&head[HEAD_BYTES..], payload, flags)))
            }
            RecordSpanContent::Skipped | RecordSpanContent::Lost => (&[][..], None),
        };
        std::iter::from_fn(move || {
            single.take().or_else(|| {
                let (frame, stride) = Frame::split(rest)?;
                rest = &rest[stride..];
                Some(frame)
            })
        })
    }
}

/// Appends a `SubscribeResponse` with these records.
pub(super) fn encode_records(out: &mut OutgoingMessages, batch: &RecordBatch<'_>) {
    let mut frames = batch.frames().peekable();
    let Some(first) = frames.peek() else { return };
    let has_one_subject = first.subject_tail().is_empty();
    let open = out.open();
    let bytes = out.bytes();
    put_text(bytes, 1, batch.log.topic.as_bytes());
    put_number(bytes, 2, batch.log.partition.into());
    put_number(bytes, 3, batch.first.epoch.into());
    if has_one_subject {
        put_text(bytes, 4, batch.log.subject_prefix.as_bytes());
    }
    let (mut seq, mut skipped) = (batch.first.seq, batch.skipped);
    for frame in frames {
        put_record(bytes, &batch.log.subject_prefix, seq, skipped, &frame);
        (seq, skipped) = (seq + 1, 0);
    }
    out.close(open, RECORDS_TAG);
}

/// Appends the record as an element of the field `Records.records`.
#[inline(always)]
fn put_record(out: &mut Vec<u8>, prefix: &str, seq: u64, skipped: u64, frame: &Frame<'_>) {
    if frame.flags() == 0 && frame.append_time_ns() != 0 && !frame.payload().is_empty() {
        put_plain(out, seq, skipped, frame);
    } else {
        put_with_fields(out, prefix, seq, skipped, frame);
    }
}

/// Appends a record that has only a payload and an append time. All fields before the payload are written in one step.
#[inline(always)]
fn put_plain(out: &mut Vec<u8>, seq: u64, skipped: u64, frame: &Frame<'_>) {
    let payload = frame.payload();
    let skipped_bytes = if skipped == 0 { 0 } else { 1 + varint_bytes(skipped) };
    let payload_bytes = 1 + varint_bytes(payload.len() as u64) + payload.len();
    let mut head = RecordHead { bytes: [0; PLAIN_HEAD_BYTES_MAX], len: 0 };
    head.tag(5, LEN, (1 + varint_bytes(seq) + skipped_bytes + payload_bytes + 9) as u64);
    head.tag(1, VARINT, seq);
    if skipped != 0 {
        head.tag(2, VARINT, skipped);
    }
    head.tag(4, LEN, payload.len() as u64);
    out.extend_from_slice(&head.bytes[..head.len]);
    out.extend_from_slice(payload);
    put_time(out, 5, frame.append_time_ns());
}

/// The encoded bytes before a record's payload, built on the stack.
struct RecordHead {
    bytes: [u8; PLAIN_HEAD_BYTES_MAX],
    len: usize,
}

impl RecordHead {
    #[inline(always)]
    fn tag(&mut self, field: u8, kind: u8, mut number: u64) {
        self.bytes[self.len] = field << 3 | kind;
        self.len += 1;
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }
}

#[inline(never)]
fn put_with_fields(out: &mut Vec<u8>, prefix: &str, seq: u64, skipped: u64, frame: &Frame<'_>) {
    let tail = frame.subject_tail();
    let subject_bytes = if tail.is_empty() { 0 } else { prefix.len() + tail.len() };
    put_len(out, 5, fields_bytes(seq, skipped, subject_bytes, frame));
    put_number(out, 1, seq);
    put_number(out, 2, skipped);
    if !tail.is_empty() {
        put_len(out, 3, subject_bytes);
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(tail.as_bytes());
    }
    put_text(out, 4, frame.payload());
    if frame.append_time_ns() != 0 {
        put_time(out, 5, frame.append_time_ns());
    }
    for (field, time) in [(6, frame.event_time_ns()), (7, frame.expires_ns())] {
        time.into_iter().for_each(|time| put_time(out, field, time));
    }
    if let Some(key) = frame.key() {
        put_len(out, 8, key.len());
        out.extend_from_slice(key);
    }
    put_text(out, 9, frame.reply().unwrap_or("").as_bytes());
    for (name, value) in frame.headers() {
        put_len(out, 10, text_bytes(name.len()) + text_bytes(value.len()));
        put_text(out, 1, name.as_bytes());
        put_text(out, 2, value);
    }
}

/// Number of bytes that [`put_with_fields`] writes after the encoded length of the record.
fn fields_bytes(seq: u64, skipped: u64, subject_bytes: usize, frame: &Frame<'_>) -> usize {
    let times = [frame.append_time_ns() != 0, frame.event_time_ns().is_some(), frame.expires_ns().is_some()];
    let header_bytes =
        |(name, value): (&str, &[u8])| len_bytes(text_bytes(name.len()) + text_bytes(value.len()));
    number_bytes(seq)
        + number_bytes(skipped)
        + text_bytes(subject_bytes)
        + text_bytes(frame.payload().len())
        + 9 * times.into_iter().filter(|is_set| *is_set).count()
        + frame.key().map_or(0, |key| len_bytes(key.len()))
        + text_bytes(frame.reply().map_or(0, str::len))
        + frame.headers().map(header_bytes).sum::<usize>()
}

fn number_bytes(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_bytes(number) }
}

/// Number of bytes that a text field of `len` bytes takes. An empty field is left out and takes none.
fn text_bytes(len: usize) -> usize {
    if len == 0 { 0 } else { len_bytes(len) }
}

fn len_bytes(len: usize) -> usize {
    1 + varint_bytes(len as u64) + len
}

fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        out.push(field << 3 | VARINT);
        put_varint(out, number);
    }
}

fn put_time(out: &mut Vec<u8>, field: u8, ns: u64) {
    let mut bytes = [field << 3 | FIXED64; 9];
    bytes[1..].copy_from_slice(&ns.to_le_bytes());
    out.extend_from_slice(&bytes);
}

fn put_text(out: &mut Vec<u8>, field: u8, text: &[u8]) {
    if !text.is_empty() {
        put_len(out, field, text.len());
        out.extend_from_slice(text);
    }
}

fn put_len(out: &mut Vec<u8>, field: u8, len: usize) {
    out.push(field << 3 | LEN);
    put_varint(out, len as u64);
}

#[cfg(test)]
mod tests;
