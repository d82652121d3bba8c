//! Writes the records for a group's member as DELIVER messages, with several records in each message.

use dunlin::ClaimedRecord;
use dunlin::topic::{Frame, LogName, Notice, Position};
use dunlin::wire::{Deleted, Deliver, FromNode, GapMessage};

use super::super::translate::position_to_wire;
use super::member::MemberEvent;

/// Maximum size of a DELIVER message, bytes. A larger record gets a message of its own.
const DELIVER_BYTES_MAX: usize = 16 << 10;

struct OpenDeliver {
    partition: u16,
    start: usize,
    count: u32,
}

/// Collects a member's records into DELIVER messages.
pub(super) struct DeliverWriter<'o> {
    out: &'o mut Vec<u8>,
    open: Option<OpenDeliver>,
    /// Number of bytes in the messages that are complete.
    pub(super) sent: u64,
    pub(super) records: u64,
}

impl DeliverWriter<'_> {
    pub(super) fn new(out: &mut Vec<u8>) -> DeliverWriter<'_> {
        DeliverWriter { out, open: None, sent: 0, records: 0 }
    }

    pub(super) fn add(&mut self, channels: &[u32], event: MemberEvent<'_>) {
        match event {
            MemberEvent::Record { partition, position, frame, claim } => {
                self.add_record(channels, partition, position, &frame, claim);
            }
            MemberEvent::Notice(notice) => {
                self.finish();
                let before = self.out.len();
                let channel_of = |log: &LogName| channels[usize::from(log.partition)];
                match notice {
                    Notice::Gap(gap) => {
                        let channel = channel_of(&gap.log);
                        let (epoch, first, last) = (gap.epoch, gap.first, gap.last);
                        FromNode::Gap(GapMessage { channel, epoch, first, last }).encode(self.out);
                    }
                    Notice::Deleted { log, last } => {
                        let (channel, last) = (channel_of(&log), position_to_wire(last));
                        FromNode::Deleted(Deleted { channel, last }).encode(self.out);
                    }
                    // Other notices are not for members of groups.
                    _ => {}
                }
                self.sent += (self.out.len() - before) as u64;
            }
        }
    }

    fn add_record(
        &mut self,
        channels: &[u32],
        partition: u16,
        position: Position,
        frame: &Frame<'_>,
        claim: Option<&ClaimedRecord>,
    ) {
        let bytes = frame.meta_bytes().len() + frame.payload().len();
        let fits = self.open.as_ref().is_some_and(|open| {
            open.partition == partition && self.out.len() - open.start + bytes <= DELIVER_BYTES_MAX
        });
        if !fits {
            self.finish();
        }
        let DeliverWriter { out, open, .. } = self;
        let open = open.get_or_insert_with(|| {
            let start = Deliver::begin(out, channels[usize::from(partition)]);
            OpenDeliver { partition, start, count: 0 }
        });
        let mut bytes = Vec::new();
        frame.append_to(&mut bytes);
        let (token, attempt, claim_ms) = match claim {
            Some(claimed) => (claimed.token, claimed.attempt, ms_until(claimed.deadline_ns)),
            None => (0, 1, 0),
        };
        Deliver::add(out, token, position_to_wire(position), attempt, claim_ms, &bytes);
        open.count += 1;
        self.records += 1;
    }

    /// Number of bytes in the session's unsent output.
    pub(super) fn out_bytes(&self) -> usize {
        self.out.len()
    }

    /// Number of bytes in the message that is not complete yet.
    pub(super) fn unfinished(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| (self.out.len() - open.start) as u64)
    }

    pub(super) fn finish(&mut self) {
        let Some(OpenDeliver { start, count, .. }) = self.open.take() else { return };
        Deliver::finish(self.out, start, count);
        self.sent += (self.out.len() - start) as u64;
    }
}

fn ms_until(deadline_ns: u64) -> u32 {
    u32::try_from(deadline_ns.saturating_sub(dunlin::steady_ns()) / 1_000_000).unwrap_or(u32::MAX)
}
