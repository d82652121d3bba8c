//! Encodes records as NATS messages. Stores where each message ends in the write, so that channels' cursors move past
//! exactly the messages that were sent.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::frame::{FLAG_HEADERS, HEAD_BYTES};
use dunlin::topic::{Frame, Log, MemoryBudget, MemoryBudgetError, Position, RecordSpanContent};
use dunlin::wire::nats::{NatsMessageHead, STATUS_HEADER, header_lines, put_decimal, put_header};

use super::own::OwnRecords;
use super::replies::ReplySubjectSet;
use super::subscription::{Channel, Subscription};
use crate::session::outbound::{OutboundBuffer, UnsentPart};
use crate::session::pieces::{BORROWED_BYTES_MIN, Pieces};

/// Approximate number of bytes of records that are read from a log at a time.
const SPAN_BYTES_MAX: usize = 16 << 10;
/// A payload of at least this size is not copied, but written directly from its segment. Such a message takes three
/// pieces of the write.
const BORROWED_PAYLOAD_MIN: usize = 4 * BORROWED_BYTES_MIN;

/// How far a message or skipped records move a channel's cursor.
#[derive(Debug, Clone, Copy)]
pub(super) struct CursorMove {
    pub(super) channel: u32,
    pub(super) records: u32,
    pub(super) advance_bytes: u32,
    /// 1 for a message, 0 for skipped records.
    pub(super) messages: u32,
    /// Offset in the write at which the message ends and the next one begins.
    pub(super) end: usize,
}

pub(super) struct WritePlan<'a, 's> {
    pieces: Pieces<'a, 's>,
    moves: &'s mut Vec<CursorMove>,
    begin: usize,
}

impl<'a, 's> WritePlan<'a, 's> {
    /// Starts a write, which begins with the pending output other than records.
    pub(super) fn new(
        copied: &'s mut Vec<u8>,
        moves: &'s mut Vec<CursorMove>,
        outbound: &'a OutboundBuffer,
    ) -> WritePlan<'a, 's> {
        moves.clear();
        let pieces = Pieces::new(copied, outbound);
        let begin = pieces.bytes();
        WritePlan { pieces, moves, begin }
    }

    pub(super) fn pieces(&self) -> &Pieces<'a, 's> {
        &self.pieces
    }

    /// The offset in the write at which the first message begins.
    pub(super) fn begin(&self) -> usize {
        self.begin
    }

    /// Adds the channel's next records. Stops at about `share` bytes, or at the subscription's limit of messages.
    /// Returns the number of added bytes.
    pub(super) fn add_records(
        &mut self,
        number: u32,
        channel: &'a Channel,
        subscription: &Subscription,
        options: EncodeOptions<'_>,
        share: usize,
    ) -> usize {
        let start = self.pieces.bytes();
        let mut left = subscription.left();
        let until = channel.until.map_or(u64::MAX, |until| until.seq);
        let known_through = channel.own_known_through(options.own);
        let is_held = |at: Position| known_through.is_some_and(|known_through| at > known_through);
        let mut position = channel.cursor.next();
        let prefix = &channel.cursor.log().name().subject_prefix;
        'spans: for span in channel.cursor.spans(SPAN_BYTES_MAX) {
            if left == 0 || position.seq > until || is_held(position) || !self.has_room(start, share) {
                break;
            }
            let mut next = CursorMove {
                channel: number,
                records: span.count,
                advance_bytes: span.advance_bytes,
                messages: 0,
                end: self.pieces.bytes(),
            };
            let write_message_head =
                |frame: &Frame<'_>, seq: u64, payload_bytes: usize, out: &mut Vec<u8>| {
                    options.replies.remember(frame.reply());
                    let message = NatsMessageHead {
                        subject: [prefix, frame.subject_tail()],
                        sid: &subscription.sid,
                        reply: frame.reply(),
                    };
                    let epoch = position.epoch;
                    let log = channel.cursor.log();
                    let sequenced = subscription.is_sequenced.then_some(RecordPosition { epoch, seq, log });
                    write_head(out, &message, frame, payload_bytes, sequenced, options.headers);
                };
            match span.content {
                RecordSpanContent::Frames(mut frames) => {
                    while let Some((frame, stride)) = Frame::split(frames) {
                        if left == 0
                            || position.seq > until
                            || is_held(position)
                            || !self.has_room(start, share)
                        {
                            break 'spans;
                        }
                        frames = &frames[stride..];
                        next = CursorMove { records: 1, advance_bytes: stride as u32, ..next };
                        if channel.skips_own && options.own.contains(channel.cursor.log(), position) {
                            next.messages = 0;
                        } else {
                            self.add_message(frame.payload(), |bytes, out| {
                                write_message_head(&frame, position.seq, bytes, out);
                            });
                            next.messages = 1;
                            left -= 1;
                        }
                        next.end = self.pieces.bytes();
                        self.moves.push(next);
                        position.seq += 1;
                    }
                    continue;
                }
                RecordSpanContent::ByRef { head, payload } => {
                    let skips = channel.skips_own && options.own.contains(channel.cursor.log(), position);
                    if !skips {
                        let frame = Frame::from_parts(&head[HEAD_BYTES..], payload, head[FLAGS_OFFSET]);
                        self.add_shared(payload, |bytes, out| {
                            write_message_head(&frame, position.seq, bytes, out)
                        });
                        next.messages = 1;
                        left -= 1;
                    }
                }
                RecordSpanContent::Skipped | RecordSpanContent::Lost => {}
            }
            next.end = self.pieces.bytes();
            self.moves.push(next);
            position.seq += u64::from(span.count);
        }
        subscription.in_write.set(subscription.in_write.get() + (subscription.left() - left));
        self.pieces.bytes() - start
    }

    #[inline]
    fn has_room(&self, start: usize, share: usize) -> bool {
        self.pieces.has_room() && self.pieces.bytes() - start < share
    }

    #[inline]
    fn add_message(&mut self, payload: &'a [u8], head: impl FnOnce(usize, &mut Vec<u8>)) {
        if payload.len() < BORROWED_PAYLOAD_MIN {
            self.pieces.append_with(|out| {
                head(payload.len(), out);
                out.extend_from_slice(payload);
                out.extend_from_slice(b"\r\n");
            });
        } else {
            self.pieces.append_with(|out| head(payload.len(), out));
            self.pieces.put(payload);
            self.pieces.put_copy(b"\r\n");
        }
    }

    fn add_shared(&mut self, payload: &'a Bytes, head: impl FnOnce(usize, &mut Vec<u8>)) {
        self.pieces.append_with(|out| head(payload.len(), out));
        self.pieces.put_shared(payload);
        self.pieces.put_copy(b"\r\n");
    }

    /// The unsent rest of the message that the socket took only in part; empty if there is none. `sent` is the number
    /// of bytes of the write that were sent.
    pub(super) fn unsent_rest(
        &self,
        sent: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Vec<UnsentPart>, MemoryBudgetError> {
        if sent <= self.begin {
            return Ok(Vec::new());
        }
        let cut = self.moves.partition_point(|moved| moved.end <= sent);
        let start = cut.checked_sub(1).map_or(self.begin, |before| self.moves[before].end);
        match self.moves.get(cut) {
            Some(cut) if start < sent => self.pieces.unsent_parts(sent..cut.end, budget),
            _ => Ok(Vec::new()),
        }
    }
}

/// The offset of the flags in a frame.
const FLAGS_OFFSET: usize = 5;

/// Options for encoding messages, the same for all subscriptions of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct EncodeOptions<'a> {
    /// Whether the client supports headers.
    pub(super) headers: bool,
    pub(super) own: &'a OwnRecords,
    /// The reply subjects of the requests that the client has received. Encoding a request adds its reply subject to
    /// this set.
    pub(super) replies: &'a ReplySubjectSet,
}

/// A record's position. Subscriptions that asked for sequence numbers receive it in headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordPosition<'a> {
    pub(super) epoch: u32,
    pub(super) seq: u64,
    pub(super) log: &'a Log,
}

/// Writes the first line of a message, and its headers if it has any.
#[inline]
pub(super) fn write_head(
    out: &mut Vec<u8>,
    message: &NatsMessageHead<'_>,
    frame: &Frame<'_>,
    payload_bytes: usize,
    sequenced: Option<RecordPosition<'_>>,
    headers: bool,
) {
    if headers && (sequenced.is_some() || frame.flags() & FLAG_HEADERS != 0) {
        write_head_with_headers(out, message, frame, payload_bytes, sequenced);
    } else {
        message.encode(out, payload_bytes);
    }
}

/// Prefix of the names of headers that the node itself adds to messages.
const NODE_HEADERS: &[u8] = b"Dunlin-";
/// Headers in which client libraries expect a message's status. The node's own notices use them.
const LIBRARY_STATUS_HEADERS: [&str; 2] = ["Status", "Description"];

/// Writes the first line of a message and its headers. The headers are encoded first, because the line contains their
/// length.
fn write_head_with_headers(
    out: &mut Vec<u8>,
    message: &NatsMessageHead<'_>,
    frame: &Frame<'_>,
    payload_bytes: usize,
    sequenced: Option<RecordPosition<'_>>,
) {
    let mut block = Vec::with_capacity(128);
    // If the subscription has sequence numbers, leaves out a publisher's headers that look like the node's own headers.
    let is_node_header = |name: &str| {
        let start = name.as_bytes().get(..NODE_HEADERS.len());
        let has_node_prefix = start.is_some_and(|start| start.eq_ignore_ascii_case(NODE_HEADERS));
        sequenced.is_some()
            && (has_node_prefix
                || LIBRARY_STATUS_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name)))
    };
    let status = frame.headers().find(|(name, _)| *name == STATUS_HEADER && sequenced.is_none());
    let headers = frame.headers().filter(|(name, _)| *name != STATUS_HEADER && !is_node_header(name));
    header_lines(&mut block, status.map_or(&[][..], |(_, value)| value), headers);
    if let Some(sequenced) = sequenced {
        put_position(&mut block, sequenced, message);
    }
    block.extend_from_slice(b"\r\n");
    message.encode_with_headers(out, block.len(), payload_bytes);
    out.extend_from_slice(&block);
}

fn put_position(block: &mut Vec<u8>, sequenced: RecordPosition<'_>, message: &NatsMessageHead<'_>) {
    let RecordPosition { epoch, seq, log } = sequenced;
    put_number(block, "Dunlin-Seq", seq);
    put_number(block, "Dunlin-Epoch", epoch.into());
    let name = log.name();
    // If the subject is only the topic's name, the client reads this name from the subject. The header is needed only
    // if the subject has a further part.
    if !message.subject[1].is_empty() {
        put_header(block, "Dunlin-Topic", name.topic.as_bytes());
    }
    if log.config().partitions > 1 {
        put_number(block, "Dunlin-Partition", name.partition.into());
    }
}

pub(super) fn put_number(block: &mut Vec<u8>, name: &str, number: u64) {
    block.extend_from_slice(name.as_bytes());
    block.extend_from_slice(b": ");
    put_decimal(block, number);
    block.extend_from_slice(b"\r\n");
}
