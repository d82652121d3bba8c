//! The messages of a node.

use dunlin_frame::{BATCH_HEADER_BYTES, BatchHeader};

use crate::code::Refusal;
use crate::control::ControlResult;
use crate::error::WireError;
use crate::group::{Deliver, Settled};
use crate::header::Kind;
use crate::hello::{Goodbye, Ping, Welcome};
use crate::layout::{Fields, Layout};
use crate::message::{finish, start};
use crate::publish::{PublishRefused, Published, PublisherOpened, PublisherRefused, PublisherTopic};
use crate::run::{Batch, run_head};
use crate::state::{Checksum, Publishers, SnapshotPart};
use crate::subscribe::{
    Advance, Deleted, EpochChanged, GapMessage, Heartbeat, Lagging, Log, Subscribed, SubscriptionEnded,
};
use crate::tasks::{TaskOrders, TasksResult};
use crate::topic::{RequestRefused, Settings, TopicState, Topics};

/// A message from the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is documented at its kind and at what it holds.
#[allow(clippy::large_enum_variant)] // Messages live on the stack for a moment; nothing stores them.
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
    Publishers(Publishers),
}

impl<'a> FromNode<'a> {
    /// The message's kind.
    pub fn kind(&self) -> Kind {
        match self {
            FromNode::Welcome(_) => Kind::Welcome,
            FromNode::Refused(_) => Kind::Refused,
            FromNode::Batch(_) => Kind::Batch,
            FromNode::PublisherOpened(_) => Kind::PublisherOpened,
            FromNode::PublisherRefused(_) => Kind::PublisherRefused,
            FromNode::Published(_) => Kind::Published,
            FromNode::PublishRefused(_) => Kind::PublishRefused,
            FromNode::Log(_) => Kind::Log,
            FromNode::Subscribed(_) => Kind::Subscribed,
            FromNode::SubscriptionEnded(_) => Kind::SubscriptionEnded,
            FromNode::Gap(_) => Kind::Gap,
            FromNode::Lagging(_) => Kind::Lagging,
            FromNode::EpochChanged(_) => Kind::EpochChanged,
            FromNode::Advance(_) => Kind::Advance,
            FromNode::Deleted(_) => Kind::Deleted,
            FromNode::Heartbeat(_) => Kind::Heartbeat,
            FromNode::Pong(_) => Kind::Pong,
            FromNode::Done { .. } => Kind::Done,
            FromNode::RequestRefused(_) => Kind::RequestRefused,
            FromNode::Topics(_) => Kind::Topics,
            FromNode::Topic(_) => Kind::Topic,
            FromNode::Deliver(_) => Kind::Deliver,
            FromNode::Settled(_) => Kind::Settled,
            FromNode::Error(_) => Kind::Error,
            FromNode::Goodbye(_) => Kind::Goodbye,
            FromNode::Snapshot(_) => Kind::Snapshot,
            FromNode::Checksum(_) => Kind::Checksum,
            FromNode::Settings(_) => Kind::Settings,
            FromNode::ControlResult(_) => Kind::ControlResult,
            FromNode::TasksResult(_) => Kind::TasksResult,
            FromNode::TaskOrders(_) => Kind::TaskOrders,
            FromNode::PublisherTopic(_) => Kind::PublisherTopic,
            FromNode::Publishers(_) => Kind::Publishers,
        }
    }

    /// Appends the message's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            FromNode::Batch(run) => {
                out.extend_from_slice(&run_head(&run.header));
                return out.extend_from_slice(run.frames);
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

    /// Decodes the body of a message; `None` for a client's kind.
    #[inline]
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Option<FromNode<'a>>, WireError> {
        if fields.kind == Kind::Batch { read_run(fields).map(Some) } else { read_other(fields) }
    }
}

#[inline]
fn read_run<'a>(fields: &mut Fields<'a>) -> Result<FromNode<'a>, WireError> {
    let frame_error = |error| WireError::Frame { kind: Kind::Batch, error };
    let header = BatchHeader::parse(fields.take(BATCH_HEADER_BYTES)?).map_err(frame_error)?;
    let frames = std::mem::take(&mut fields.rest);
    if header.bytes as usize != frames.len() {
        return Err(fields.unsound("byte count of frames"));
    }
    Ok(FromNode::Batch(Batch { header, frames }))
}

fn read_other<'a>(fields: &mut Fields<'a>) -> Result<Option<FromNode<'a>>, WireError> {
    Ok(Some(match fields.kind {
        Kind::Welcome => FromNode::Welcome(Layout::read(fields)?),
        Kind::Refused => FromNode::Refused(Layout::read(fields)?),
        Kind::PublisherOpened => FromNode::PublisherOpened(Layout::read(fields)?),
        Kind::PublisherRefused => FromNode::PublisherRefused(Layout::read(fields)?),
        Kind::Published => FromNode::Published(Layout::read(fields)?),
        Kind::PublishRefused => FromNode::PublishRefused(Layout::read(fields)?),
        Kind::Log => FromNode::Log(Layout::read(fields)?),
        Kind::Subscribed => FromNode::Subscribed(Layout::read(fields)?),
        Kind::SubscriptionEnded => FromNode::SubscriptionEnded(Layout::read(fields)?),
        Kind::Gap => FromNode::Gap(read_gap(fields)?),
        Kind::Lagging => FromNode::Lagging(Layout::read(fields)?),
        Kind::EpochChanged => FromNode::EpochChanged(Layout::read(fields)?),
        Kind::Advance => FromNode::Advance(Layout::read(fields)?),
        Kind::Deleted => FromNode::Deleted(Layout::read(fields)?),
        Kind::Heartbeat => FromNode::Heartbeat(Layout::read(fields)?),
        Kind::Pong => FromNode::Pong(Layout::read(fields)?),
        Kind::Done => FromNode::Done { request: Layout::read(fields)? },
        Kind::RequestRefused => FromNode::RequestRefused(Layout::read(fields)?),
        Kind::Topics => FromNode::Topics(Layout::read(fields)?),
        Kind::Topic => FromNode::Topic(Layout::read(fields)?),
        Kind::Deliver => FromNode::Deliver(Deliver::parse(fields)?),
        Kind::Settled => FromNode::Settled(Layout::read(fields)?),
        Kind::Error => FromNode::Error(Layout::read(fields)?),
        Kind::Goodbye => FromNode::Goodbye(Layout::read(fields)?),
        Kind::Snapshot => FromNode::Snapshot(SnapshotPart::read(fields)?),
        Kind::Checksum => FromNode::Checksum(Layout::read(fields)?),
        Kind::Settings => FromNode::Settings(Layout::read(fields)?),
        Kind::ControlResult => FromNode::ControlResult(Layout::read(fields)?),
        Kind::TasksResult => FromNode::TasksResult(Layout::read(fields)?),
        Kind::TaskOrders => FromNode::TaskOrders(Layout::read(fields)?),
        Kind::PublisherTopic => FromNode::PublisherTopic(Layout::read(fields)?),
        Kind::Publishers => FromNode::Publishers(Layout::read(fields)?),
        _ => return Ok(None),
    }))
}

/// Refuses an empty or reversed range, which later arithmetic does not expect.
fn read_gap(fields: &mut Fields<'_>) -> Result<GapMessage, WireError> {
    let gap = GapMessage::read(fields)?;
    if gap.first == 0 || gap.last < gap.first || gap.last == u64::MAX {
        return Err(fields.unsound("range of sequences"));
    }
    Ok(gap)
}
