//! Appends one record: encodes its frame, checks it and appends it. While the call waits for room or for the disk, its
//! thread serves other calls.

use std::cell::RefCell;
use std::sync::Arc;

use dunlin::topic::frame::RecordMeta;
use dunlin::topic::{Position, ProducerMark, Receipt, Subject, Topic};
use dunlin::wire::ErrorCode;
use dunlin::{OwningTopic, Refused};

use super::connection::GrpcConnection;
use super::proto::dunlin as v1;
use crate::append::{self, AppendRequest, with_epoch_change};

/// Maximum capacity of the buffer that is kept for the next frame, bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// The buffer in which frames are encoded.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The topic to which a call publishes records. If the topic was created for this call and no record is accepted, the
/// topic is removed again.
#[derive(Debug)]
pub(super) struct PublishTarget {
    pub(super) topic: Arc<OwningTopic>,
    tail: String,
    /// The connection, with the publisher's permissions.
    connection: Arc<GrpcConnection>,
    /// The generation (version number) of the users file with which the permission was checked.
    generation: Option<u64>,
}

impl PublishTarget {
    /// Finds the topic that owns the subject. If there is none, the node may create it for a record of this payload
    /// size. If `after` states the publisher's last record, a missing topic is an error, because a new topic would not
    /// have that record.
    pub(super) async fn find(
        connection: &Arc<GrpcConnection>,
        subject: &str,
        payload: &[u8],
        after: Option<Position>,
    ) -> Result<PublishTarget, Refused> {
        let node = &connection.node;
        // Reads the generation before the permission is checked, so that a change of the users file during the check
        // causes another check.
        let generation = connection.users_generation();
        let parsed = Subject::parse(subject);
        let parsed = parsed.map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
        let found = match after {
            Some(_) => node.existing_topic_async(parsed).await,
            None => node.owning_topic_for_async(parsed, payload.len()).await,
        };
        let topic = found.map_err(|error| Refused::from(&error))?;
        let tail =
            subject.strip_prefix(topic.logs()[0].name().subject_prefix.as_str()).unwrap_or("").to_owned();
        Ok(PublishTarget { topic: Arc::new(topic), tail, connection: Arc::clone(connection), generation })
    }

    /// Checks the permission again if the users file has changed since the topic was found. Much time may have passed
    /// since then, because earlier records of the call may have waited.
    fn check_permission(&self) -> Result<(), Refused> {
        if self.connection.users_generation() == self.generation {
            return Ok(());
        }
        let prefix = &self.topic.logs()[0].name().subject_prefix;
        self.connection.node.may_publish_parts(prefix, &self.tail).map_err(|error| Refused::from(&error))
    }
}

/// A record to append, with its producer and the conditions under which it may be appended.
#[derive(Debug, Clone, Copy)]
pub(super) struct IncomingRecord<'a> {
    pub(super) record: &'a v1::Draft,
    pub(super) mark: Option<ProducerMark>,
    pub(super) expect_last: Option<u64>,
    /// The position of the publisher's last acknowledged record in the partition, if the request states one.
    pub(super) after: Option<Position>,
}

/// Finds the record's topic, appends the record, and waits until it is stored. A topic may be deleted after it was
/// found, at this node or at its owner. The record then goes to the topic that owns the subject afterwards.
pub(super) async fn publish(
    connection: &Arc<GrpcConnection>,
    subject: &str,
    incoming: IncomingRecord<'_>,
) -> Result<(Arc<OwningTopic>, Receipt), Refused> {
    let payload = &incoming.record.payload;
    let target = PublishTarget::find(connection, subject, payload, incoming.after).await?;
    connection.admit_publish(payload.len())?;
    match append_and_store(target, incoming).await {
        Err(refused) if refused.code == ErrorCode::Closed => {
            publish_to_next(connection, subject, incoming).await
        }
        published => published,
    }
}

/// Publishes a record again after its topic was found and then deleted. The record goes to the topic that a later call
/// would find or create. The record was already counted towards the publisher's rate.
pub(super) async fn publish_to_next(
    connection: &Arc<GrpcConnection>,
    subject: &str,
    incoming: IncomingRecord<'_>,
) -> Result<(Arc<OwningTopic>, Receipt), Refused> {
    let payload = &incoming.record.payload;
    let target = PublishTarget::find(connection, subject, payload, incoming.after).await?;
    append_and_store(target, incoming).await
}

async fn append_and_store(
    target: PublishTarget,
    incoming: IncomingRecord<'_>,
) -> Result<(Arc<OwningTopic>, Receipt), Refused> {
    let receipt = append(&target, incoming).await?;
    target.connection.record_publish(&target.topic);
    let receipt = wait_until_stored(&target.topic, &receipt).await?;
    Ok((target.topic, with_epoch_change(receipt, incoming.after)))
}

/// Appends the record. If the log is full, waits for room as long as the topic's configuration allows.
pub(super) async fn append(target: &PublishTarget, incoming: IncomingRecord<'_>) -> Result<Receipt, Refused> {
    target.check_permission()?;
    let topic = &*target.topic;
    let appended = with_frame(target, incoming.record, |frame| {
        append::try_append(topic, incoming.append_request(target, frame))
    })?;
    let appended = match appended {
        Err(refused) if append::can_retry_append(&refused) => {
            let frame = with_frame(target, incoming.record, <[u8]>::to_vec)?;
            append::append_when_there_is_room(topic, incoming.append_request(target, &frame)).await
        }
        appended => appended,
    };
    appended.map_err(|error| Refused::from(&error))
}

/// Waits until the record has the topic's acknowledgement level.
pub(super) async fn wait_until_stored(topic: &Topic, receipt: &Receipt) -> Result<Receipt, Refused> {
    append::wait_until_stored(topic, receipt).await.map_err(|error| Refused::from(&error))
}

impl IncomingRecord<'_> {
    fn append_request<'f>(&self, target: &'f PublishTarget, frame: &'f [u8]) -> AppendRequest<'f> {
        let partition = target.topic.partition_of(self.record.key.as_deref());
        let IncomingRecord { mark, expect_last, after, .. } = *self;
        let PublishTarget { connection, tail, .. } = target;
        let node = &connection.node;
        AppendRequest { frames: frame, count: 1, partition, mark, expect_last, after, node, tail }
    }
}

/// Encodes the record's frame, and passes it to `f`.
fn with_frame<R>(
    target: &PublishTarget,
    record: &v1::Draft,
    f: impl FnOnce(&[u8]) -> R,
) -> Result<R, Refused> {
    if !record.reply.is_empty() {
        let parsed = Subject::parse(&record.reply);
        parsed.map_err(|error| Refused::new(ErrorCode::Subject, format!("reply: {error}")))?;
    }
    let headers: Vec<_> =
        record.headers.iter().map(|header| (header.name.as_str(), &header.value[..])).collect();
    let meta = RecordMeta {
        event_time_ns: record.event_time_ns,
        expires_ns: record.expires_ns,
        subject_tail: &target.tail,
        key: record.key.as_deref(),
        reply: (!record.reply.is_empty()).then_some(record.reply.as_str()),
        headers: &headers,
    };
    let encoded = meta.measure(record.payload.len()).map_err(|error| Refused::from(&error))?;
    FRAME.with_borrow_mut(|frame| {
        frame.clear();
        frame.resize(encoded.padded(), 0);
        meta.encode(encoded, 0, &record.payload, frame);
        let result = f(frame);
        frame.shrink_to(BUFFER_BYTES_MAX);
        Ok(result)
    })
}
