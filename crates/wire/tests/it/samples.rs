//! Samples: one message of every kind. The golden files use fixed values, and the round trips random ones.

use dunlin_frame::{BatchHeader, Meta};
use dunlin_wire::*;

/// The values from which the fields of the sample messages are filled.
#[derive(Debug, Clone)]
pub struct Values {
    pub number: u32,
    pub half: u16,
    pub seq: u64,
    pub yes: bool,
    pub name: String,
    pub text: String,
    pub blob: Vec<u8>,
    pub frames: Vec<u8>,
    pub positions: Vec<ChannelPosition>,
    pub tokens: Vec<u64>,
    pub deliver: Vec<u8>,
}

impl Values {
    pub fn fixed() -> Values {
        Values::new(
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
        half: u16,
        seq: u64,
        yes: bool,
        name: &str,
        text: &str,
        blob: &[u8],
        payloads: &[&[u8]],
    ) -> Values {
        let frames: Vec<Vec<u8>> = payloads.iter().map(|payload| frame(payload)).collect();
        let mut deliver = Vec::new();
        let start = Deliver::begin(&mut deliver, number);
        for frame in &frames {
            Deliver::add(&mut deliver, seq, Position { epoch: number, seq }, 3, 30_000, frame);
        }
        Deliver::finish(&mut deliver, start, frames.len() as u32);
        Values {
            number,
            half,
            seq,
            yes,
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
            partitions: self.half,
            retain_bytes: self.seq,
            retain_records: 1,
            retain_ms: 2,
            record_bytes_max: self.number,
            reliable_subscribers_max: 3,
            wait_ms_max: 4,
            when_full: if self.yes { WhenFull::Evict } else { WhenFull::Refuse },
        }
    }

    pub fn records(&self) -> u32 {
        let (mut rest, mut count) = (&self.frames[..], 0);
        while let Some((_, taken)) = dunlin_frame::Frame::split(rest) {
            (rest, count) = (&rest[taken..], count + 1);
        }
        count
    }
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    let encoded = Meta::default().measure(payload.len()).unwrap();
    let mut out = vec![0; encoded.padded()];
    Meta::default().encode(encoded, 0, payload, &mut out);
    out
}

/// Calls `each` with a message of every kind that a client sends.
pub fn from_client(v: &Values, mut each: impl FnMut(FromClient<'_>)) {
    let (number, seq) = (v.number, v.seq);
    each(FromClient::Hello(Hello { tenant: &v.name, credentials: &v.blob, client: &v.text }));
    each(FromClient::Publish(Publish {
        flags: FLAG_ACK | FLAG_EXPECT,
        header: PublishHeader {
            publisher: number,
            partition: v.half.into(),
            expect_seq: seq,
            producer_seq: seq.clamp(1, u64::MAX - 1000),
            count: v.records(),
            bytes: v.frames.len() as u32,
        },
        frames: &v.frames,
    }));
    each(FromClient::OpenPublisher(OpenPublisher {
        publisher: number,
        producer: seq,
        producer_epoch: 2,
        subject: &v.name,
    }));
    each(FromClient::ClosePublisher { publisher: number });
    let logs = [LogPosition { topic: &v.name, partition: v.half, position: v.position() }; 2];
    each(FromClient::Resume(Resume { subscription: number, logs: List::new(&logs) }));
    each(FromClient::Subscribe(Subscribe {
        subscription: number,
        credit: seq,
        start: if v.yes { StartAt::After(v.position()) } else { StartAt::Time(seq) },
        on_gap: OnGap::Newest,
        registered: v.yes,
        pattern: &v.name,
        name: &v.text,
    }));
    each(FromClient::Unsubscribe { subscription: number });
    each(FromClient::Credit(Credit {
        subscription: number,
        granted: seq,
        consumed: List::new(&v.positions),
    }));
    each(FromClient::Ping(Ping { token: seq }));
    each(FromClient::CreateTopic(CreateTopic { request: number, or_same: v.yes, config: v.config() }));
    each(FromClient::DeleteTopic(NamedTopic { request: number, topic: &v.name }));
    each(FromClient::ListTopics(ListTopics {
        request: number,
        topics_max: 7,
        pattern: &v.name,
        after: &v.text,
    }));
    each(FromClient::DescribeTopic(NamedTopic { request: number, topic: &v.name }));
    each(FromClient::JoinGroup(JoinGroup {
        subscription: number,
        credit: seq,
        kind: GroupKind::Work,
        start: StartAt::Earliest,
        claim_ms: 30_000,
        attempts_max: 5,
        dead_letter: "dead",
        topic: &v.name,
        group: "workers",
        member: &v.text,
    }));
    each(FromClient::Claim(Claim { subscription: number, wanted: seq }));
    each(FromClient::Ack(Settle { request: number, subscription: 2, tokens: List::new(&v.tokens) }));
    let nacked = [NackedToken { token: seq, delay_ms: number }];
    each(FromClient::Nack(Nack { request: number, subscription: 2, tokens: List::new(&nacked) }));
    each(FromClient::Leave);
    each(FromClient::Follow(Follow {
        subscription: number,
        start: v.yes,
        on_gap: true,
        conflate: v.yes,
        test_loss_every: 50,
    }));
    each(FromClient::Resync(Resync { channel: number, state: v.yes, after: v.position() }));
    let settings = [Setting { name: "fold", value: &v.name }, Setting { name: &v.text, value: "" }];
    each(FromClient::CreateTopicWith(CreateTopicWith {
        request: number,
        or_same: v.yes,
        config: v.config(),
        settings: List::new(&settings),
    }));
    each(FromClient::DescribeSettings(NamedTopic { request: number, topic: &v.name }));
    each(FromClient::Renew(Settle { request: number, subscription: 2, tokens: List::new(&v.tokens) }));
    let kind = if v.yes { ControlKind::Command } else { ControlKind::StaleQuestion };
    each(FromClient::Control(Control { request: number, kind, bytes: LongBytes(&v.blob) }));
    let kind = if v.yes { TasksKind::Commands } else { TasksKind::Attach };
    each(FromClient::Tasks(Tasks { request: number, kind, bytes: LongBytes(&v.blob) }));
    let acknowledged = [LastAcknowledged { partition: v.half, position: v.position() }; 2];
    each(FromClient::ExpectTopic(ExpectTopic {
        publisher: number,
        create: v.yes,
        acknowledged: List::new(&acknowledged),
    }));
}

/// Calls `each` with a message of every kind that a node sends.
pub fn from_node(v: &Values, mut each: impl FnMut(FromNode<'_>)) {
    let number = v.number;
    entering(v, &mut each);
    publishing(v, &mut each);
    reading(v, &mut each);
    each(FromNode::Done { request: number });
    each(FromNode::RequestRefused(RequestRefused { request: number, refusal: v.refusal() }));
    topics(v, &mut each);
    // DELIVER is built separately, because its list of records does not consist of plain items.
    let decoder = Decoder::new(DecoderLimits::default());
    let Ok(Decoded::Message(deliver, taken)) = decoder.next_from_node(&v.deliver) else { panic!("DELIVER") };
    assert_eq!(taken, v.deliver.len());
    each(deliver);
    each(FromNode::Settled(Settled { request: number, settled: 2, stale: List::new(&v.tokens) }));
    each(FromNode::Error(v.refusal()));
    each(FromNode::Goodbye(Goodbye { reconnect_after_ms: number, reason: v.refusal() }));
    let (position, checksum) = (v.position(), v.seq);
    let (total, offset) = (v.blob.len() as u64 + 1_000, 1_000);
    let bytes = if v.blob.is_empty() { &b"part"[..] } else { &v.blob };
    let total = total.max(offset + bytes.len() as u64);
    each(FromNode::Snapshot(SnapshotPart { channel: number, position, checksum, total, offset, bytes }));
    each(FromNode::Checksum(Checksum { channel: number, position, checksum }));
    let settings = [Setting { name: "fold", value: &v.name }];
    each(FromNode::Settings(Settings { request: number, settings: List::new(&settings) }));
    each(FromNode::ControlResult(ControlResult { request: number, bytes: LongBytes(&v.blob) }));
    each(FromNode::TasksResult(TasksResult { request: number, bytes: LongBytes(&v.blob) }));
    each(FromNode::TaskOrders(TaskOrders { bytes: LongBytes(&v.blob) }));
    each(FromNode::PublisherTopic(PublisherTopic {
        publisher: number,
        by_itself: v.yes,
        keeps_state: !v.yes,
    }));
    let (since_ns, last_append_ns) = (v.seq, v.yes.then_some(v.seq));
    each(FromNode::Publishers(Publishers { channel: number, connected: v.yes, since_ns, last_append_ns }));
}

fn entering(v: &Values, each: &mut impl FnMut(FromNode<'_>)) {
    each(FromNode::Welcome(Welcome {
        node: v.seq,
        session: 2,
        node_name: &v.text,
        inbox_prefix: &v.name,
        heartbeat_ms: 1000,
        run_bytes_max: v.number,
        control_bytes_max: 65_536,
        subscriptions_max: 3,
        publishers_max: 4,
        in_flight_bytes_max: 5,
        cluster: OptionalText("5f0c"),
    }));
    each(FromNode::Refused(v.refusal()));
}

fn publishing(v: &Values, each: &mut impl FnMut(FromNode<'_>)) {
    each(FromNode::PublisherOpened(PublisherOpened {
        publisher: v.number,
        partitions: v.half,
        record_bytes_max: 1 << 20,
        topic: &v.name,
        subject_prefix: &v.text,
        last_seqs: List::new(&v.tokens),
    }));
    each(FromNode::PublisherRefused(PublisherRefused { publisher: v.number, refusal: v.refusal() }));
    each(FromNode::Published(Published {
        publisher: v.number,
        partition: v.half.into(),
        through: v.seq,
        position: v.position(),
        acknowledged: AckKind::Quorum,
        duplicate: v.yes,
    }));
    each(FromNode::PublishRefused(PublishRefused {
        publisher: v.number,
        partition: v.half.into(),
        producer_seq: v.seq,
        count: 9,
        refusal: v.refusal(),
    }));
}

fn reading(v: &Values, each: &mut impl FnMut(FromNode<'_>)) {
    let (channel, seq) = (v.number, v.seq);
    let first_seq = seq.clamp(1, u64::MAX - 1000);
    let header = BatchHeader {
        topic_id: channel,
        epoch: 2,
        prev_seq: first_seq - 1,
        first_seq,
        count: v.records(),
        bytes: v.frames.len() as u32,
    };
    each(FromNode::Batch(Batch { header, frames: &v.frames }));
    each(FromNode::Log(Log {
        subscription: 2,
        channel,
        partition: v.half,
        after: v.position(),
        topic: &v.name,
        subject_prefix: &v.text,
    }));
    each(FromNode::Subscribed(Subscribed { subscription: 2, logs: v.number }));
    each(FromNode::SubscriptionEnded(SubscriptionEnded { subscription: 2, refusal: v.refusal() }));
    each(FromNode::Gap(GapMessage { channel, epoch: 2, first: first_seq, last: first_seq }));
    each(FromNode::Lagging(Lagging { channel, behind: seq, retained: 3 }));
    each(FromNode::EpochChanged(EpochChanged {
        channel,
        old: 2,
        last_seen: seq,
        known_through: v.yes.then_some(seq),
        new_first: v.position(),
    }));
    each(FromNode::Advance(Advance { channel, through: v.position() }));
    each(FromNode::Deleted(Deleted { channel, last: v.position() }));
    each(FromNode::Heartbeat(Heartbeat { channels: List::new(&v.positions) }));
    each(FromNode::Pong(Ping { token: seq }));
}

fn topics(v: &Values, each: &mut impl FnMut(FromNode<'_>)) {
    let line = TopicLine {
        name: &v.name,
        pattern: &v.text,
        partitions: v.half,
        reliable: v.yes,
        records: v.seq,
        bytes: 2,
        appended: 3,
        subscribers: 4,
    };
    each(FromNode::Topics(Topics { request: v.number, more: v.yes, topics: List::new(&[line, line]) }));
    let log =
        LogState { partition: v.half, first: v.position(), last_seq: v.seq, bytes: 3, last_append_ns: 4 };
    let subscriber = SubscriberState {
        name: &v.text,
        partition: v.half,
        position: v.position(),
        lag: 1,
        missed: 2,
        registered: v.yes,
    };
    let group = GroupState { name: &v.name, kind: GroupKind::Share, members: 1, waiting: v.seq, claimed: 3 };
    each(FromNode::Topic(TopicState {
        request: v.number,
        config: v.config(),
        publishers: 1,
        subscribers_total: 2,
        logs: List::new(&[log]),
        subscribers: List::new(&[subscriber]),
        groups: List::new(&[group]),
    }));
}

/// The bytes of every sample message, with its kind.
pub fn encoded(v: &Values) -> Vec<(MessageKind, Vec<u8>)> {
    let mut all = Vec::new();
    from_client(v, |message| {
        let mut out = Vec::new();
        message.encode(&mut out);
        all.push((message.kind(), out));
    });
    from_node(v, |message| {
        let mut out = Vec::new();
        message.encode(&mut out);
        all.push((message.kind(), out));
    });
    all
}
