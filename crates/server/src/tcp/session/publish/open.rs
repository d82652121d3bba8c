//! Defines an open publisher of a session, and the topic that a publisher expects to find when it is opened again.

use std::sync::Arc;

use dunlin::topic::frame::FLAG_SUBJECT;
use dunlin::topic::{
    CheckedBatch, Log, Pattern, Position, PublishError, PublisherRegistration, StateClaim, Subject, Topic,
};
use dunlin::wire::{self, ErrorCode, PublishHeader};
use dunlin::{Node, Refused};

/// An open publisher of a session, with its topic, patterns and producer.
#[derive(Debug)]
pub(super) struct OpenedPublisher {
    pub(super) topic: PublisherRegistration,
    /// The pattern that the records' subjects must match; `None` if the topic has only one subject.
    pub(super) pattern: Option<Pattern>,
    /// The pattern that the client requested when it opened the publisher.
    pub(super) requested: Pattern,
    /// Whether the client may publish only to some of the topic's subjects. The subject of each record must then be
    /// checked.
    pub(super) checks_each_record: bool,
    pub(super) producer: u64,
    pub(super) producer_epoch: u32,
    /// For each partition of a state topic, the last record of the state that the client knows.
    pub(super) claims: Box<[Arc<StateClaim>]>,
    /// For each partition, the first refused batch that has not been sent again. Until this batch is sent again, all
    /// later batches are refused.
    ///
    /// Without this entry, a log that does not know the producer would accept the next batch as the producer's first. A
    /// node that forwards batches without a producer sends a refused batch and the later ones over another publisher.
    pub(super) refused: Vec<RefusedBatch>,
}

/// A batch that was refused and has not been sent again.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusedBatch {
    partition: u32,
    /// The producer's number of the batch's first record.
    first: u64,
    /// Whether the node that forwarded the batch sends it again, instead of the client.
    by_node: bool,
}

/// The topic that a publisher expects to find when it is opened again. A node that forwards a batch also states which
/// topic the batch's publisher expects.
#[derive(Debug)]
pub(super) struct ExpectedTopic {
    pub(super) publisher: u32,
    pub(super) create: bool,
    /// For each partition, the position of the last acknowledged record.
    pub(super) acknowledged: Vec<(u16, Position)>,
}

impl ExpectedTopic {
    /// The memory that the positions take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.acknowledged.len() * size_of::<(u16, Position)>()
    }

    pub(super) fn claim(&self, partition: u32) -> Option<Arc<StateClaim>> {
        let last = self.acknowledged.iter().find(|(acknowledged, _)| u32::from(*acknowledged) == partition);
        last.map(|(_, record)| StateClaim::after(*record))
    }

    /// Whether this state topic has lost any of the acknowledged records.
    pub(super) fn is_lost(&self, topic: &Topic) -> bool {
        let has_lost = |log: &Arc<Log>| {
            let mut acknowledged =
                self.acknowledged.iter().filter(|(partition, _)| *partition == log.name().partition);
            acknowledged.any(|(_, record)| log.has_lost(*record))
        };
        topic.logs().iter().any(|log| log.is_stateful() && has_lost(log))
    }
}

impl OpenedPublisher {
    pub(super) fn claim(&self, header: &PublishHeader) -> Option<&Arc<StateClaim>> {
        self.claims.get(header.partition as usize)
    }

    /// If the partition's state was lost, lets the publisher continue from an empty state. Call this when the client
    /// knows of the loss.
    pub(super) fn discard_lost_state(&mut self, header: &PublishHeader) {
        let claim = self.claims.get_mut(header.partition as usize);
        claim.filter(|claim| claim.is_lost()).into_iter().for_each(|claim| *claim = Arc::default());
    }

    /// Refuses a batch if an earlier batch was refused and has not been sent again. The sender must then send both
    /// batches again, in order.
    pub(super) fn check_order(&mut self, header: &PublishHeader) -> Result<(), PublishError> {
        let Some(at) = self.refused.iter().position(|refused| refused.partition == header.partition) else {
            return Ok(());
        };
        let RefusedBatch { first, by_node, .. } = self.refused[at];
        if header.producer_seq > first {
            let gap = PublishError::ProducerGap { producer_seq: header.producer_seq, last: first - 1 };
            return Err(if by_node { PublishError::OwnerAway(gap.to_string()) } else { gap });
        }
        self.refused.swap_remove(at);
        self.discard_lost_state(header);
        Ok(())
    }

    /// Remembers that a batch was refused. `by_node` is true if the node that forwarded the batch sends it again, and
    /// false if the client sends it again.
    pub(super) fn record_refusal(&mut self, header: &PublishHeader, by_node: bool) {
        let partition = header.partition;
        let known = self.refused.iter().any(|refused| refused.partition == partition);
        let exists = (partition as usize) < self.topic.logs().len();
        if !known && exists {
            self.refused.push(RefusedBatch { partition, first: header.producer_seq, by_node });
        }
    }

    /// Checks that the batch is valid, and that its records belong to this topic and partition.
    pub(super) fn check<'a>(
        &self,
        publish: &wire::Publish<'a>,
        node: &Node,
    ) -> Result<CheckedBatch<'a>, Refused> {
        let header = &publish.header;
        let partitions = self.topic.logs().len();
        if header.partition as usize >= partitions {
            let numbers = [u64::from(header.partition), partitions as u64, 0];
            return Err(Refused { numbers, ..Refused::new(ErrorCode::Partition, "") });
        }
        let record_bytes_max = self.topic.config().record_bytes_max as usize;
        let batch = CheckedBatch::check(publish.frames, header.count, record_bytes_max)
            .map_err(|error| Refused::from(&error))?;
        if batch.flags() & FLAG_SUBJECT != 0 || self.pattern.is_some() {
            self.check_tails(&batch, node)?;
        }
        let is_of_other_partition = |key| self.topic.partition_of(key) != header.partition as usize;
        if partitions > 1 && batch.frames().any(|frame| is_of_other_partition(frame.key())) {
            return Err(Refused::new(ErrorCode::Batch, "a key in the batch belongs to another partition"));
        }
        Ok(batch)
    }

    fn check_tails(&self, batch: &CheckedBatch<'_>, node: &Node) -> Result<(), Refused> {
        let Some(pattern) = &self.pattern else {
            return Err(Refused::new(
                ErrorCode::Subject,
                "the record has a subject tail, but the topic has a single subject",
            ));
        };
        let mut checked = None;
        for frame in batch.frames() {
            let tail = frame.subject_tail();
            if checked == Some(tail) {
                continue;
            }
            Subject::parse(tail).map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
            if !pattern.matches_parts(pattern.literal_prefix(), tail) {
                return Err(Refused::new(
                    ErrorCode::Subject,
                    format!("subject tail {tail:?} does not match the topic's pattern"),
                ));
            }
            if self.checks_each_record {
                let may = node.may_publish_parts(pattern.literal_prefix(), tail);
                may.map_err(|error| Refused::from(&error))?;
            }
            checked = Some(tail);
        }
        Ok(())
    }
}
