//! Defines [`FromNode`], which is any message that a node can send.

use dunlin_frame::{BATCH_HEADER_BYTES, BatchHeader};

use crate::code::Refusal;
use crate::control::ControlResult;
use crate::error::WireError;
use crate::group::{Deliver, Settled};
use crate::header::MessageKind;
use crate::hello::{Goodbye, Ping, Welcome};
use crate::layout::{Fields, Layout};
use crate::message::{finish, start};
use crate::publish::{PublishRefused, Published, PublisherOpened, PublisherRefused, PublisherTopic};
use crate::run::{Batch, batch_head};
use crate::state::{Checksum, PublisherStatus, SnapshotPart};
use crate::subscribe::{
    Advance, Deleted, EpochChanged, GapMessage, Heartbeat, Lagging, Log, Subscribed, SubscriptionEnded,
};
use crate::tasks::{TaskOrders, TasksResult};
use crate::topic::{RequestRefused, Settings, TopicState, Topics};

/// Any message from a node to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is documented at its `MessageKind` and at its content's type.
#[allow(clippy::large_enum_variant)] // Messages are not stored; they exist only on the stack.
pub enum FromNode<'a> {
    Welcome(Welcome<'a>),
    Refused(Refusal<'a>),
    Batch(Batch<'a>),
    PublisherOpened(PublisherOpened<'a>),
    PublisherRefused(PublisherRefused<'a>),
    Published(Published),
    PublishRefused(PublishRefused<'a>),
    Log(Log<'a>),
    Subscribed(Subscribed),
    SubscriptionEnded(SubscriptionEnded<'a>),
    Gap(GapMessage),
    Lagging(Lagging),
    EpochChanged(EpochChanged),
    Advance(Advance),
    Deleted(Deleted),
    Heartbeat(Heartbeat<'a>),
    Pong(Ping),
    Done { request: u32 },
    RequestRefused(RequestRefused<'a>),
    Topics(Topics<'a>),
    Topic(TopicState<'a>),
    Deliver(Deliver<'a>),
    Settled(Settled<'a>),
    Error(Refusal<'a>),
    Goodbye(Goodbye<'a>),
    Snapshot(SnapshotPart<'a>),
    Checksum(Checksum),
    Settings(Settings<'a>),
    ControlResult(ControlResult<'a>),
    TasksResult(TasksResult<'a>),
    TaskOrders(TaskOrders<'a>),
    PublisherTopic(PublisherTopic),
    Publishers(PublisherStatus),
}

impl<'a> FromNode<'a> {
    /// The message's kind.
    pub fn kind(&self) -> MessageKind {
        match self {
            FromNode::Welcome(_) => MessageKind::Welcome,
            FromNode::Refused(_) => MessageKind::Refused,
            FromNode::Batch(_) => MessageKind::Batch,
            FromNode::PublisherOpened(_) => MessageKind::PublisherOpened,
            FromNode::PublisherRefused(_) => MessageKind::PublisherRefused,
            FromNode::Published(_) => MessageKind::Published,
            FromNode::PublishRefused(_) => MessageKind::PublishRefused,
            FromNode::Log(_) => MessageKind::Log,
            FromNode::Subscribed(_) => MessageKind::Subscribed,
            FromNode::SubscriptionEnded(_) => MessageKind::SubscriptionEnded,
            FromNode::Gap(_) => MessageKind::Gap,
            FromNode::Lagging(_) => MessageKind::Lagging,
            FromNode::EpochChanged(_) => MessageKind::EpochChanged,
            FromNode::Advance(_) => MessageKind::Advance,
            FromNode::Deleted(_) => MessageKind::Deleted,
            FromNode::Heartbeat(_) => MessageKind::Heartbeat,
            FromNode::Pong(_) => MessageKind::Pong,
            FromNode::Done { .. } => MessageKind::Done,
            FromNode::RequestRefused(_) => MessageKind::RequestRefused,
            FromNode::Topics(_) => MessageKind::Topics,
            FromNode::Topic(_) => MessageKind::Topic,
            FromNode::Deliver(_) => MessageKind::Deliver,
            FromNode::Settled(_) => MessageKind::Settled,
            FromNode::Error(_) => MessageKind::Error,
            FromNode::Goodbye(_) => MessageKind::Goodbye,
            FromNode::Snapshot(_) => MessageKind::Snapshot,
            FromNode::Checksum(_) => MessageKind::Checksum,
            FromNode::Settings(_) => MessageKind::Settings,
            FromNode::ControlResult(_) => MessageKind::ControlResult,
            FromNode::TasksResult(_) => MessageKind::TasksResult,
            FromNode::TaskOrders(_) => MessageKind::TaskOrders,
            FromNode::PublisherTopic(_) => MessageKind::PublisherTopic,
            FromNode::Publishers(_) => MessageKind::Publishers,
        }
    }

    /// Appends the message's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            FromNode::Batch(batch) => {
                out.extend_from_slice(&batch_head(&batch.header));
                return out.extend_from_slice(batch.frames);
            }
            FromNode::Snapshot(part) => return part.encode(out),
            _ => {}
        }
        let at = start(out, self.kind());
        match self {
            FromNode::Batch(_) | FromNode::Snapshot(_) => {}
            FromNode::Checksum(body) => body.write(out),
            FromNode::Settings(body) => body.write(out),
            FromNode::ControlResult(body) => body.write(out),
            FromNode::TasksResult(body) => body.write(out),
            FromNode::TaskOrders(body) => body.write(out),
            FromNode::PublisherTopic(body) => body.write(out),
            FromNode::Publishers(body) => body.write(out),
            FromNode::Welcome(body) => body.write(out),
            FromNode::Refused(body) | FromNode::Error(body) => body.write(out),
            FromNode::PublisherOpened(body) => body.write(out),
            FromNode::PublisherRefused(body) => body.write(out),
            FromNode::Published(body) => body.write(out),
            FromNode::PublishRefused(body) => body.write(out),
            FromNode::Log(body) => body.write(out),
            FromNode::Subscribed(body) => body.write(out),
            FromNode::SubscriptionEnded(body) => body.write(out),
            FromNode::Gap(body) => body.write(out),
            FromNode::Lagging(body) => body.write(out),
            FromNode::EpochChanged(body) => body.write(out),
            FromNode::Advance(body) => body.write(out),
            FromNode::Deleted(body) => body.write(out),
            FromNode::Heartbeat(body) => body.write(out),
            FromNode::Pong(body) => body.write(out),
            FromNode::Done { request } => request.write(out),
            FromNode::RequestRefused(body) => body.write(out),
            FromNode::Topics(body) => body.write(out),
            FromNode::Topic(body) => body.write(out),
            FromNode::Deliver(body) => body.write(out),
            FromNode::Settled(body) => body.write(out),
            FromNode::Goodbye(body) => body.write(out),
        }
        finish(out, at);
    }

    /// Decodes the body of a message from a node; `None` if only clients send messages of this kind.
    #[inline]
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Option<FromNode<'a>>, WireError> {
        if fields.kind == MessageKind::Batch { read_batch(fields).map(Some) } else { read_other(fields) }
    }
}

#[inline]
fn read_batch<'a>(fields: &mut Fields<'a>) -> Result<FromNode<'a>, WireError> {
    let frame_error = |error| WireError::Frame { kind: MessageKind::Batch, error };
    let header = BatchHeader::parse(fields.take(BATCH_HEADER_BYTES)?).map_err(frame_error)?;
    let frames = std::mem::take(&mut fields.rest);
    if header.bytes as usize != frames.len() {
        return Err(fields.invalid_value("byte count of frames"));
    }
    Ok(FromNode::Batch(Batch { header, frames }))
}

fn read_other<'a>(fields: &mut Fields<'a>) -> Result<Option<FromNode<'a>>, WireError> {
    Ok(Some(match fields.kind {
        MessageKind::Welcome => FromNode::Welcome(Layout::read(fields)?),
        MessageKind::Refused => FromNode::Refused(Layout::read(fields)?),
        MessageKind::PublisherOpened => FromNode::PublisherOpened(Layout::read(fields)?),
        MessageKind::PublisherRefused => FromNode::PublisherRefused(Layout::read(fields)?),
        MessageKind::Published => FromNode::Published(Layout::read(fields)?),
        MessageKind::PublishRefused => FromNode::PublishRefused(Layout::read(fields)?),
        MessageKind::Log => FromNode::Log(Layout::read(fields)?),
        MessageKind::Subscribed => FromNode::Subscribed(Layout::read(fields)?),
        MessageKind::SubscriptionEnded => FromNode::SubscriptionEnded(Layout::read(fields)?),
        MessageKind::Gap => FromNode::Gap(read_gap(fields)?),
        MessageKind::Lagging => FromNode::Lagging(Layout::read(fields)?),
        MessageKind::EpochChanged => FromNode::EpochChanged(Layout::read(fields)?),
        MessageKind::Advance => FromNode::Advance(Layout::read(fields)?),
        MessageKind::Deleted => FromNode::Deleted(Layout::read(fields)?),
        MessageKind::Heartbeat => FromNode::Heartbeat(Layout::read(fields)?),
        MessageKind::Pong => FromNode::Pong(Layout::read(fields)?),
        MessageKind::Done => FromNode::Done { request: Layout::read(fields)? },
        MessageKind::RequestRefused => FromNode::RequestRefused(Layout::read(fields)?),
        MessageKind::Topics => FromNode::Topics(Layout::read(fields)?),
        MessageKind::Topic => FromNode::Topic(Layout::read(fields)?),
        MessageKind::Deliver => FromNode::Deliver(Deliver::parse(fields)?),
        MessageKind::Settled => FromNode::Settled(Layout::read(fields)?),
        MessageKind::Error => FromNode::Error(Layout::read(fields)?),
        MessageKind::Goodbye => FromNode::Goodbye(Layout::read(fields)?),
        MessageKind::Snapshot => FromNode::Snapshot(SnapshotPart::read(fields)?),
        MessageKind::Checksum => FromNode::Checksum(Layout::read(fields)?),
        MessageKind::Settings => FromNode::Settings(Layout::read(fields)?),
        MessageKind::ControlResult => FromNode::ControlResult(Layout::read(fields)?),
        MessageKind::TasksResult => FromNode::TasksResult(Layout::read(fields)?),
        MessageKind::TaskOrders => FromNode::TaskOrders(Layout::read(fields)?),
        MessageKind::PublisherTopic => FromNode::PublisherTopic(Layout::read(fields)?),
        MessageKind::Publishers => FromNode::Publishers(Layout::read(fields)?),
        _ => return Ok(None),
    }))
}

/// Decodes a GAP message. Refuses a range that is empty or reversed, because later computations rely on a valid range.
fn read_gap(fields: &mut Fields<'_>) -> Result<GapMessage, WireError> {
    let gap = GapMessage::read(fields)?;
    if gap.first == 0 || gap.last < gap.first || gap.last == u64::MAX {
        return Err(fields.invalid_value("range of sequences"));
    }
    Ok(gap)
}
