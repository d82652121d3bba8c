//! Members of `share` groups whose topic another node owns.

use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_topic::{Event, Frame, Notice, Position, Record, SubscribeError, Topic, Waiter};

use crate::groups::options::ShareOptions;
use crate::node::Node;
use crate::ownership::{RemoteEnd, RemoteEvent, RemoteMemberOptions, RemoteMembership};

/// A member of a `share` group at another node, which owns the topic.
#[derive(Debug)]
pub(super) struct RemoteMember {
    topic: Arc<Topic>,
    membership: Arc<RemoteMembership>,
    waiter: Arc<Waiter>,
    next: Option<RemoteEvent>,
    /// The frame of the last record that the member received.
    last_frame: Box<[u8]>,
    /// The position of the last record, and the value that `RemoteMembership::term` had when the record arrived.
    last_position: (Position, u32),
    lost: u64,
}

impl RemoteMember {
    /// Asks the topic's owner for a membership. Returns `None` if, as far as this node knows, no other node owns the
    /// topic.
    pub(super) fn find(
        node: &Node,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        wakeup: &(Arc<Waiter>, u32),
    ) -> Option<RemoteMember> {
        let topic = node.topic(topic)?;
        let member = RemoteMemberOptions {
            group: group.to_owned(),
            member: options.member.clone(),
            user: node.user().map(|user| user.name().to_owned()),
            lasting: options.lasting,
        };
        let membership = node.ownership()?.join_remote(&topic, member, options.start, wakeup.clone())?;
        Some(RemoteMember {
            topic,
            membership,
            waiter: Arc::clone(&wakeup.0),
            next: None,
            last_frame: Box::default(),
            last_position: (Position::default(), 0),
            lost: 0,
        })
    }

    pub(super) fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    pub(super) fn group(&self) -> &str {
        &self.membership.options.group
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn consume(&mut self, partition: u16, seq: u64) {
        let (position, term) = self.last_position;
        self.membership.record_consumed(term, partition, Position { seq, ..position });
    }

    pub(super) fn is_joining(&self) -> bool {
        self.membership.is_joining()
    }

    pub(super) fn stop_delivery(&self) {
        self.membership.stop_delivery();
    }

    pub(super) fn has_events(&self) -> bool {
        self.next.is_some() || self.membership.has_events()
    }

    pub(super) fn ready(&mut self) -> Result<bool, RemoteEnd> {
        if self.next.is_none() {
            self.next = self.membership.next()?;
        }
        Ok(self.next.is_some())
    }

    pub(super) fn take(&mut self) -> Event<'_> {
        match self.next.take().expect("an event is available after `ready` has returned true") {
            RemoteEvent::Notice(notice) => {
                if let Notice::Gap(gap) = &notice {
                    self.lost += gap.records();
                }
                Event::Notice(notice)
            }
            RemoteEvent::Record { partition, position, frame, term } => {
                self.last_frame = frame;
                self.last_position = (position, term);
                let (frame, _) =
                    Frame::split(&self.last_frame).expect("the frame was checked when it was received");
                let log = self.topic.logs()[usize::from(partition)].name();
                Event::Record(Record { position, prev_seq: position.seq - 1, frame, log })
            }
        }
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        self.waiter.take_ready(|_| ());
        if self.has_events() || !self.waiter.set_waker(cx.waker()) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

impl Drop for RemoteMember {
    fn drop(&mut self) {
        self.membership.leave();
    }
}
