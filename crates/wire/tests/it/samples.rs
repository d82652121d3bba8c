//! Defines sample messages, one of every kind. The golden files use samples with fixed values, and the round-trip tests
//! use samples with random values.

use dunlin_frame::{BatchHeader, RecordMeta};
use dunlin_wire::*;

/// The values with which the fields of the sample messages are filled.
#[derive(Debug, Clone)]
pub struct SampleValues {
    pub number: u32,
    pub small_number: u16,
    pub seq: u64,
    pub flag: bool,
    pub name: String,
    pub text: String,
    pub blob: Vec<u8>,
    pub frames: Vec<u8>,
    pub positions: Vec<ChannelPosition>,
    pub tokens: Vec<u64>,
    pub deliver: Vec<u8>,
}

impl SampleValues {
    pub fn fixed() -> SampleValues {
        SampleValues::new(
            0x0102_0304,
            0x0506,
            0x0708_090a_0b0c_0d0e,
            true,
            "orders.eu",
            "wörds",
            b"\x00\xff",
            &[b"hello", b""],
        )
    }

    #[allow(clippy::too_many_arguments)] // Every field of a message is one of these.
    pub fn new(
        number: u32,
        small_number: u16,
        seq: u64,
        flag: bool,
        name: &str,
        text: &str,
        blob: &[u8],
        payloads: &[&[u8]],
    ) -> SampleValues {
        let frames: Vec<Vec<u8>> = payloads.iter().map(|payload| frame(payload)).collect();
        let mut deliver = Vec::new();
        let start = Deliver::begin(&mut deliver, number);
        for frame in &frames {
            Deliver::add(&mut deliver, seq, Position { epoch: number, seq }, 3, 30_000, frame);
        }
        Deliver::finish(&mut deliver, start, frames.len() as u32);
        SampleValues {
            number,
            small_number,
            seq,
            flag,
            name: name.to_owned(),
            text: text.to_owned(),
            blob: blob.to_owned(),
            frames: frames.concat(),
            positions: vec![
                ChannelPosition { channel: number, position: Position { epoch: 1, seq } },
                ChannelPosition { channel: 2, position: Position { epoch: number, seq: 0 } },
            ],
            tokens: vec![seq, 0, u64::MAX],
            deliver,
        }
    }

    fn position(&self) -> Position {
        Position { epoch: self.number, seq: self.seq }
    }

    fn refusal(&self) -> Refusal<'_> {
        Refusal { code: ErrorCode::Full, numbers: [self.seq, 2, 3], text: &self.text }
    }

    fn config(&self) -> TopicConfig<'_> {
        TopicConfig {
            name: &self.name,
            pattern: &self.text,
            partitions: self.small_number,
            retain_bytes: self.seq,
            retain_records: 1,
            retain_ms: 2,
            record_bytes_max: self.number,
            reliable_subscribers_max: 3,
            wait_ms_max: 4,
            when_full: if self.flag { WhenFull::Evict } else { WhenFull::Refuse },
        }
    }

    pub fn records(&self) -> u32 {
        let (mut rest, mut count) = (&self.frames[..], 0);
        while let Some((_, consumed)) = dunlin_frame::Frame::split(rest) {
            (rest, count) = (&rest[consumed..], count + 1);
        }
        count
    }
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    let encoded = RecordMeta::default().measure(payload.len()).unwrap();
    let mut out = vec![0; encoded.padded()];
    RecordMeta::default().encode(encoded, 0, payload, &mut out);
    out
}

/// Calls `visit` with a message of every kind that a client sends.
pub fn for_each_from_client(values: &SampleValues, mut visit: impl FnMut(FromClient<'_>)) {
    let (number, seq) = (values.number, values.seq);
    visit(FromClient::Hello(Hello { tenant: &values.name, credentials: &values.blob, client: &values.text }));
    visit(FromClient::Publish(Publish {
        flags: FLAG_ACK | FLAG_EXPECT,
        header: PublishHeader {
            publisher: number,
            partition: values.small_number.into(),
            expect_seq: seq,
            producer_seq: seq.clamp(1, u64::MAX - 1000),
            count: values.records(),
            bytes: values.frames.len() as u32,
        },
        frames: &values.frames,
    }));
    visit(FromClient::OpenPublisher(OpenPublisher {
        publisher: number,
        producer: seq,
        producer_epoch: 2,
        subject: &values.name,
    }));
    visit(FromClient::ClosePublisher { publisher: number });
    let logs =
        [LogPosition { topic: &values.name, partition: values.small_number, position: values.position() }; 2];
    visit(FromClient::Resume(Resume { subscription: number, logs: MessageList::new(&logs) }));
    visit(FromClient::Subscribe(Subscribe {
        subscription: number,
        credit: seq,
        start: if values.flag { StartAt::After(values.position()) } else { StartAt::Time(seq) },
        on_gap: OnGap::Newest,
        registered: values.flag,
        pattern: &values.name,
        name: &values.text,
    }));
    visit(FromClient::Unsubscribe { subscription: number });
    visit(FromClient::Credit(Credit {
        subscription: number,
        granted: seq,
        consumed: MessageList::new(&values.positions),
    }));
    visit(FromClient::Ping(Ping { token: seq }));
    visit(FromClient::CreateTopic(CreateTopic {
        request: number,
        or_same: values.flag,
        config: values.config(),
    }));
    visit(FromClient::DeleteTopic(NamedTopic { request: number, topic: &values.name }));
    visit(FromClient::ListTopics(ListTopics {
        request: number,
        topics_max: 7,
        pattern: &values.name,
        after: &values.text,
    }));
    visit(FromClient::DescribeTopic(NamedTopic { request: number, topic: &values.name }));
    visit(FromClient::JoinGroup(JoinGroup {
        subscription: number,
        credit: seq,
        kind: GroupKind::Work,
        start: StartAt::Earliest,
        claim_ms: 30_000,
        attempts_max: 5,
        dead_letter: "dead",
        topic: &values.name,
        group: "workers",
        member: &values.text,
    }));
    visit(FromClient::Claim(Claim { subscription: number, wanted: seq }));
    visit(FromClient::Ack(Settle {
        request: number,
        subscription: 2,
        tokens: MessageList::new(&values.tokens),
    }));
    let nacked = [NackedToken { token: seq, delay_ms: number }];
    visit(FromClient::Nack(Nack { request: number, subscription: 2, tokens: MessageList::new(&nacked) }));
    visit(FromClient::Leave);
    visit(FromClient::Follow(Follow {
        subscription: number,
        start: values.flag,
        on_gap: true,
        conflate: values.flag,
        test_loss_every: 50,
    }));
    visit(FromClient::Resync(Resync { channel: number, state: values.flag, after: values.position() }));
    let settings = [Setting { name: "fold", value: &values.name }, Setting { name: &values.text, value: "" }];
    visit(FromClient::CreateTopicWithSettings(CreateTopicWithSettings {
        request: number,
        or_same: values.flag,
        config: values.config(),
        settings: MessageList::new(&settings),
    }));
    visit(FromClient::DescribeSettings(NamedTopic { request: number, topic: &values.name }));
    visit(FromClient::Renew(Settle {
        request: number,
        subscription: 2,
        tokens: MessageList::new(&values.tokens),
    }));
    let kind = if values.flag { ControlKind::Command } else { ControlKind::StaleQuery };
    visit(FromClient::Control(Control { request: number, kind, bytes: U32PrefixedBytes(&values.blob) }));
    let kind = if values.flag { TasksKind::Commands } else { TasksKind::Attach };
    visit(FromClient::Tasks(Tasks { request: number, kind, bytes: U32PrefixedBytes(&values.blob) }));
    let acknowledged = [LastAcknowledged { partition: values.small_number, position: values.position() }; 2];
    visit(FromClient::ExpectTopic(ExpectTopic {
        publisher: number,
        create: values.flag,
        acknowledged: MessageList::new(&acknowledged),
    }));
}

/// Calls `visit` with a message of every kind that a node sends.
pub fn for_each_from_node(values: &SampleValues, mut visit: impl FnMut(FromNode<'_>)) {
    let number = values.number;
    visit_connection_messages(values, &mut visit);
    visit_publisher_messages(values, &mut visit);
    visit_subscription_messages(values, &mut visit);
    visit(FromNode::Done { request: number });
    visit(FromNode::RequestRefused(RequestRefused { request: number, refusal: values.refusal() }));
    visit_topic_messages(values, &mut visit);
    // DELIVER is decoded from bytes, because its records cannot be given as a list of items.
    let decoder = Decoder::new(DecoderLimits::default());
    let Ok(DecodeOutcome::Message(deliver, consumed)) = decoder.next_from_node(&values.deliver) else {
        panic!("DELIVER")
    };
    assert_eq!(consumed, values.deliver.len());
    visit(deliver);
    visit(FromNode::Settled(Settled {
        request: number,
        settled: 2,
        stale: MessageList::new(&values.tokens),
    }));
    visit(FromNode::Error(values.refusal()));
    visit(FromNode::Goodbye(Goodbye { reconnect_after_ms: number, reason: values.refusal() }));
    let (position, checksum) = (values.position(), values.seq);
    let (total, offset) = (values.blob.len() as u64 + 1_000, 1_000);
    let bytes = if values.blob.is_empty() { &b"part"[..] } else { &values.blob };
    let total = total.max(offset + bytes.len() as u64);
    visit(FromNode::Snapshot(SnapshotPart { channel: number, position, checksum, total, offset, bytes }));
    visit(FromNode::Checksum(Checksum { channel: number, position, checksum }));
    let settings = [Setting { name: "fold", value: &values.name }];
    visit(FromNode::Settings(Settings { request: number, settings: MessageList::new(&settings) }));
    visit(FromNode::ControlResult(ControlResult { request: number, bytes: U32PrefixedBytes(&values.blob) }));
    visit(FromNode::TasksResult(TasksResult { request: number, bytes: U32PrefixedBytes(&values.blob) }));
    visit(FromNode::TaskOrders(TaskOrders { bytes: U32PrefixedBytes(&values.blob) }));
    visit(FromNode::PublisherTopic(PublisherTopic {
        publisher: number,
        created_automatically: values.flag,
        keeps_state: !values.flag,
    }));
    let (since_ns, last_append_ns) = (values.seq, values.flag.then_some(values.seq));
    visit(FromNode::Publishers(PublisherStatus {
        channel: number,
        connected: values.flag,
        since_ns,
        last_append_ns,
    }));
}

fn visit_connection_messages(values: &SampleValues, visit: &mut impl FnMut(FromNode<'_>)) {
    visit(FromNode::Welcome(Welcome {
        node: values.seq,
        session: 2,
        node_name: &values.text,
        inbox_prefix: &values.name,
        heartbeat_ms: 1000,
        run_bytes_max: values.number,
        control_bytes_max: 65_536,
        subscriptions_max: 3,
        publishers_max: 4,
        in_flight_bytes_max: 5,
        cluster: OptionalText("5f0c"),
    }));
    visit(FromNode::Refused(values.refusal()));
}

fn visit_publisher_messages(values: &SampleValues, visit: &mut impl FnMut(FromNode<'_>)) {
    visit(FromNode::PublisherOpened(PublisherOpened {
        publisher: values.number,
        partitions: values.small_number,
        record_bytes_max: 1 << 20,
        topic: &values.name,
        subject_prefix: &values.text,
        last_seqs: MessageList::new(&values.tokens),
    }));
    visit(FromNode::PublisherRefused(PublisherRefused {
        publisher: values.number,
        refusal: values.refusal(),
    }));
    visit(FromNode::Published(Published {
        publisher: values.number,
        partition: values.small_number.into(),
        through: values.seq,
        position: values.position(),
        acknowledged: AckKind::Quorum,
        duplicate: values.flag,
    }));
    visit(FromNode::PublishRefused(PublishRefused {
        publisher: values.number,
        partition: values.small_number.into(),
        producer_seq: values.seq,
        count: 9,
        refusal: values.refusal(),
    }));
}

fn visit_subscription_messages(values: &SampleValues, visit: &mut impl FnMut(FromNode<'_>)) {
    let (channel, seq) = (values.number, values.seq);
    let first_seq = seq.clamp(1, u64::MAX - 1000);
    let header = BatchHeader {
        topic_id: channel,
        epoch: 2,
        prev_seq: first_seq - 1,
        first_seq,
        count: values.records(),
        bytes: values.frames.len() as u32,
    };
    visit(FromNode::Batch(Batch { header, frames: &values.frames }));
    visit(FromNode::Log(Log {
        subscription: 2,
        channel,
        partition: values.small_number,
        after: values.position(),
        topic: &values.name,
        subject_prefix: &values.text,
    }));
    visit(FromNode::Subscribed(Subscribed { subscription: 2, logs: values.number }));
    visit(FromNode::SubscriptionEnded(SubscriptionEnded { subscription: 2, refusal: values.refusal() }));
    visit(FromNode::Gap(GapMessage { channel, epoch: 2, first: first_seq, last: first_seq }));
    visit(FromNode::Lagging(Lagging { channel, behind: seq, retained: 3 }));
    visit(FromNode::EpochChanged(EpochChanged {
        channel,
        old: 2,
        last_seen: seq,
        known_through: values.flag.then_some(seq),
        new_first: values.position(),
    }));
    visit(FromNode::Advance(Advance { channel, through: values.position() }));
    visit(FromNode::Deleted(Deleted { channel, last: values.position() }));
    visit(FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&values.positions) }));
    visit(FromNode::Pong(Ping { token: seq }));
}

fn visit_topic_messages(values: &SampleValues, visit: &mut impl FnMut(FromNode<'_>)) {
    let line = ListedTopic {
        name: &values.name,
        pattern: &values.text,
        partitions: values.small_number,
        reliable: values.flag,
        records: values.seq,
        bytes: 2,
        appended: 3,
        subscribers: 4,
    };
    visit(FromNode::Topics(Topics {
        request: values.number,
        more: values.flag,
        topics: MessageList::new(&[line, line]),
    }));
    let log = LogState {
        partition: values.small_number,
        first: values.position(),
        last_seq: values.seq,
        bytes: 3,
        last_append_ns: 4,
    };
    let subscriber = SubscriberState {
        name: &values.text,
        partition: values.small_number,
        position: values.position(),
        lag: 1,
        missed: 2,
        registered: values.flag,
    };
    let group = GroupState {
        name: &values.name,
        kind: GroupKind::Share,
        members: 1,
        waiting: values.seq,
        claimed: 3,
    };
    visit(FromNode::Topic(TopicState {
        request: values.number,
        config: values.config(),
        publishers: 1,
        subscribers_total: 2,
        logs: MessageList::new(&[log]),
        subscribers: MessageList::new(&[subscriber]),
        groups: MessageList::new(&[group]),
    }));
}

/// The encoded bytes and the kind of every sample message.
pub fn encoded_samples(values: &SampleValues) -> Vec<(MessageKind, Vec<u8>)> {
    let mut all = Vec::new();
    for_each_from_client(values, |message| {
        let mut out = Vec::new();
        message.encode(&mut out);
        all.push((message.kind(), out));
    });
    for_each_from_node(values, |message| {
        let mut out = Vec::new();
        message.encode(&mut out);
        all.push((message.kind(), out));
    });
    all
}
