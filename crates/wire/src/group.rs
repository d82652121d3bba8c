//! Defines the messages for groups, whose members share the records of a topic.
//!
//! A membership in a group has a number, like a subscription. Some messages for subscriptions therefore also apply to
//! memberships: LOG, SUBSCRIBED, SUBSCRIPTION_ENDED, UNSUBSCRIBE and CREDIT. A GAP reports records that the group has
//! lost.

use dunlin_frame::Frame;

use crate::error::WireError;
use crate::header::MessageKind;
use crate::layout::{Fields, Layout, choice, layout};
use crate::list::MessageList;
use crate::subscribe::{Position, StartAt};

choice! {
    /// The kind of a group, which decides how its members share the records: `share` or `work`.
    pub enum GroupKind {
        /// Each record goes to one member, at most once.
        Share = 0,
        /// Each record goes to one member at a time. A record that is not acknowledged in time goes to a member again.
        Work = 1,
    }
}

layout! {
    /// Message JOIN_GROUP: makes the client a member of a group. The reply is SUBSCRIBED or SUBSCRIPTION_ENDED.
    pub struct JoinGroup<'a> {
        /// The number that the client has chosen for the membership. No other subscription or membership of the same
        /// connection may have this number.
        pub subscription: u32,
        /// Number of bytes that the node may send before it receives a CREDIT message.
        pub credit: u64,
        /// The group's kind.
        pub kind: GroupKind,
        /// The position at which the group starts. It is used only if this message creates the group.
        pub start: StartAt,
        /// Time from the claim of a record to the claim's deadline, ms; 0 for the default. Only for work groups.
        pub claim_ms: u32,
        /// Maximum number of deliveries of a record before it goes to the subject `dead_letter`; 0 for no limit. If a
        /// node joins a share group on behalf of its client, this field contains the flags
        /// [`ENDS_WITH_LAST`](JoinGroup::ENDS_WITH_LAST) and [`RETURNS_UNCONSUMED`](JoinGroup::RETURNS_UNCONSUMED)
        /// instead.
        pub attempts_max: u32,
        /// Subject to which dead letters go; empty to drop them. Clients send `dead.<topic>` unless the program has set
        /// another subject. If a node joins a share group on behalf of its client, this field contains the name of the
        /// client's user instead; a new group counts towards the limits of this user.
        pub dead_letter: &'a str,
        /// The topic's name.
        pub topic: &'a str,
        /// The group's name.
        pub group: &'a str,
        /// The member's name, which operators see.
        pub member: &'a str,
    }
}

impl JoinGroup<'_> {
    /// Flag: the group ends when its last member leaves.
    pub const ENDS_WITH_LAST: u32 = 1;
    /// Flag: the member leaves in two steps. After a first UNSUBSCRIBE, the owner of the topic sends the records that
    /// are already assigned to the member, and then SUBSCRIPTION_ENDED. With a second UNSUBSCRIBE, the member returns
    /// all records that it has not reported as consumed in a CREDIT message.
    pub const RETURNS_UNCONSUMED: u32 = 2;
}

layout! {
    /// Message CLAIM: a member of a work group requests more records.
    pub struct Claim {
        /// The membership's number.
        pub subscription: u32,
        /// Number of records that the member has requested in total since JOIN_GROUP. It never decreases.
        pub wanted: u64,
    }
}

layout! {
    /// Message ACK or RENEW: a member acknowledges records that it has claimed, or extends the deadlines of its claims.
    /// The reply is SETTLED.
    pub struct Settle<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// The membership's number.
        pub subscription: u32,
        /// The tokens of the claims.
        pub tokens: MessageList<'a, u64>,
    }
}

layout! {
    /// A claim in a NACK message, and the delay before its record is delivered again.
    pub struct NackedToken {
        /// The claim's token.
        pub token: u64,
        /// Shortest delay before the record is delivered again, ms.
        pub delay_ms: u32,
    }
}

layout! {
    /// Message NACK: a member gives back records that it has claimed, so that they are delivered again. The reply is
    /// SETTLED.
    pub struct Nack<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// The membership's number.
        pub subscription: u32,
        /// The tokens of the claims, each with a delay.
        pub tokens: MessageList<'a, NackedToken>,
    }
}

layout! {
    /// Message SETTLED: the reply to ACK, NACK or RENEW.
    pub struct Settled<'a> {
        /// The number of the request to which this is the reply.
        pub request: u32,
        /// Number of claims that were acknowledged, given back or extended.
        pub settled: u32,
        /// Tokens of the claims whose deadlines had already passed.
        pub stale: MessageList<'a, u64>,
    }
}

/// Size of the fields before the first record of a DELIVER message, bytes.
const DELIVER_FIELDS_BYTES: usize = 16;
/// Size of the fields before each frame of a DELIVER message, bytes.
const CLAIM_BYTES: usize = 32;

/// A record in a DELIVER message, and the member's claim to it. The fields of the claim take 32 bytes, and the frame
/// follows:
///
/// ```text
///  0          8         16      20        24         28       32
///  +----------+---------+-------+---------+----------+--------+---------
///  | token    | seq     | epoch | attempt | claim_ms | zero   | frame …
///  | u64      | u64     | u32   | u32     | u32      | u32    |
///  +----------+---------+-------+---------+----------+--------+---------
/// ```
///
/// A member of a work group acknowledges or returns the record by its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedRecord<'a> {
    /// The token of the claim; 0 in a share group.
    pub token: u64,
    /// The record's position.
    pub position: Position,
    /// Number of this attempt to deliver the record, starting with 1.
    pub attempt: u32,
    /// Time until the deadline of the claim, ms; 0 in a share group.
    pub claim_ms: u32,
    /// The record.
    pub frame: Frame<'a>,
}

/// Message DELIVER: records for a member of a group. Its fields are the channel, the number of records, their size in
/// bytes, and a zero (`u32` each). The records follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deliver<'a> {
    /// The channel: the number that the node has assigned to this log and membership in a LOG message.
    pub channel: u32,
    /// The records, whose encoding was checked when the message was decoded.
    pub records: ClaimedRecords<'a>,
}

/// The records of a DELIVER message, which are decoded one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClaimedRecords<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> ClaimedRecords<'a> {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no records. A message that was received always has records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the records.
    pub fn iter(&self) -> impl Iterator<Item = ClaimedRecord<'a>> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (claim, frames) = rest.split_at_checked(CLAIM_BYTES)?;
            let (frame, taken) = Frame::split(frames)?;
            rest = frames.get(taken..).unwrap_or(&[]);
            read_claim(&mut Fields { kind: MessageKind::Deliver, rest: claim, version: 0 }, frame).ok()
        })
    }
}

impl std::fmt::Debug for ClaimedRecords<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn read_claim<'a>(fields: &mut Fields<'a>, frame: Frame<'a>) -> Result<ClaimedRecord<'a>, WireError> {
    let token = u64::read(fields)?;
    let seq = u64::read(fields)?;
    let epoch = u32::read(fields)?;
    let attempt = u32::read(fields)?;
    let claim_ms = u32::read(fields)?;
    if u32::read(fields)? != 0 {
        return Err(fields.invalid_value("reserved word"));
    }
    Ok(ClaimedRecord { token, position: Position { epoch, seq }, attempt, claim_ms, frame })
}

impl<'a> Deliver<'a> {
    pub(crate) fn parse(fields: &mut Fields<'a>) -> Result<Deliver<'a>, WireError> {
        let kind = MessageKind::Deliver;
        let (channel, count) = (u32::read(fields)?, u32::read(fields)?);
        let (bytes, zero) = (u32::read(fields)?, u32::read(fields)?);
        let all = std::mem::take(&mut fields.rest);
        if zero != 0 || count == 0 || bytes as usize != all.len() {
            return Err(fields.invalid_value("count or bytes of its records"));
        }
        let (mut rest, mut found) = (all, 0);
        while !rest.is_empty() {
            let mut claim = Fields { rest, ..*fields };
            let head = claim.take(CLAIM_BYTES)?;
            let (frame, taken) = Frame::check(claim.rest, claim.rest.len())
                .map_err(|error| WireError::Frame { kind, error })?;
            read_claim(&mut Fields { rest: head, ..*fields }, frame)?;
            rest = &claim.rest[taken..];
            found += 1;
        }
        if found != count {
            return Err(WireError::Count { kind, found, count });
        }
        Ok(Deliver { channel, records: ClaimedRecords { count, bytes: all } })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for number in [self.channel, self.records.count, self.records.bytes.len() as u32, 0] {
            number.write(out);
        }
        out.extend_from_slice(self.records.bytes);
    }

    /// Begins a DELIVER message at the end of `out`, and returns its position. Then call [`add`](Deliver::add) for each
    /// record, and [`finish`](Deliver::finish) with this position.
    pub fn begin(out: &mut Vec<u8>, channel: u32) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; crate::header::HEADER_BYTES]);
        channel.write(out);
        out.extend_from_slice(&[0; DELIVER_FIELDS_BYTES - 4]);
        start
    }

    /// Adds a record to the message: the fields of its claim, and its padded frame.
    pub fn add(out: &mut Vec<u8>, token: u64, position: Position, attempt: u32, claim_ms: u32, frame: &[u8]) {
        token.write(out);
        position.seq.write(out);
        for number in [position.epoch, attempt, claim_ms, 0] {
            number.write(out);
        }
        out.extend_from_slice(frame);
    }

    /// Completes the message with `count` records that begins at `start`.
    pub fn finish(out: &mut [u8], start: usize, count: u32) {
        let len = out.len() - start;
        let fields = start + crate::header::HEADER_BYTES;
        let bytes = len - crate::header::HEADER_BYTES - DELIVER_FIELDS_BYTES;
        let header =
            crate::header::MessageHeader { len: len as u32, kind: MessageKind::Deliver as u8, flags: 0 };
        out[start..fields].copy_from_slice(&header.to_bytes());
        out[fields + 4..fields + 8].copy_from_slice(&count.to_le_bytes());
        out[fields + 8..fields + 12].copy_from_slice(&(bytes as u32).to_le_bytes());
    }
}
