//! Tests of the gRPC listener, with the client that is generated from `dunlin.v1`. Each connection of a client has its
//! own async runtime. This runtime makes progress only while the test is in a call.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_server::grpc::proto::dunlin as v1;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use v1::dunlin_client::DunlinClient;
use v1::start::At;
use v1::subscribe_response::Event;

use super::listener::{
    Listener, ListenerClient, ListenerSubscriber, Message, ReceivedRecord, SubscriberEvent,
    SubscriptionOptions,
};
use super::trial::{NodeUnderTest, PATIENCE, TOKEN};

/// The gRPC listener.
pub struct Grpc;

impl Listener for Grpc {
    fn name(&self) -> &'static str {
        "gRPC"
    }

    fn address(&self, node: &NodeUnderTest) -> Option<SocketAddr> {
        Some(node.grpc())
    }

    fn connect_client(
        &self,
        _: &NodeUnderTest,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn ListenerClient>> {
        Ok(Box::new(Caller(Connection::open(address.context("the listener has no address")?)?)))
    }
}

/// A client's connection, and the runtime on which the connection runs.
struct Connection {
    address: SocketAddr,
    runtime: Runtime,
    client: Calls,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Connection> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(connect(address))?;
        Ok(Connection { address, runtime, client })
    }
}

/// The generated client. The function adds the credentials to each call.
type Calls = DunlinClient<InterceptedService<Channel, fn(Request<()>) -> Result<Request<()>, Status>>>;

async fn connect(address: SocketAddr) -> Result<Calls> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(PATIENCE);
    let channel = endpoint.connect().await?;
    Ok(DunlinClient::with_interceptor(channel, add_token as fn(_) -> _).max_decoding_message_size(64 << 20))
}

fn add_token(mut call: Request<()>) -> Result<Request<()>, Status> {
    let token = format!("Bearer {}", TOKEN.0).parse().map_err(|_| Status::internal("no header"))?;
    call.metadata_mut().insert("authorization", token);
    Ok(call)
}

struct Caller(Connection);

impl ListenerClient for Caller {
    fn publish(&mut self, message: &Message<'_>) -> Result<Option<u64>> {
        let headers = message.headers.iter();
        let headers = headers.map(|(name, value)| v1::Header {
            name: (*name).to_owned(),
            value: value.as_bytes().to_vec().into(),
        });
        let record = v1::Draft {
            payload: message.payload.to_vec().into(),
            headers: headers.collect(),
            ..v1::Draft::default()
        };
        let request = v1::PublishRequest {
            subject: message.subject.to_owned(),
            record: Some(record),
            ..v1::PublishRequest::default()
        };
        let Connection { runtime, client, .. } = &mut self.0;
        let published = runtime.block_on(client.publish(request))?.into_inner();
        Ok(Some(published.receipt.context("the response has no receipt")?.seq))
    }

    fn subscribe(&mut self, options: &SubscriptionOptions<'_>) -> Result<Box<dyn ListenerSubscriber>> {
        let at = match options {
            SubscriptionOptions { with_state: true, .. } => At::Snapshot(true),
            SubscriptionOptions { from_earliest: true, .. } => At::Earliest(true),
            _ => At::Latest(true),
        };
        let on_gap = if options.with_state { v1::OnGap::Snapshot } else { v1::OnGap::Oldest };
        let request = v1::SubscribeRequest {
            subjects: vec![options.subject.to_owned()],
            start: Some(v1::Start { at: Some(at) }),
            on_gap: on_gap.into(),
            ..v1::SubscribeRequest::default()
        };
        let connection = Connection::open(self.0.address)?;
        let mut reader =
            GrpcReader { connection, request, stream: None, at: BTreeMap::new(), pending: VecDeque::new() };
        reader.open()?;
        Ok(Box::new(reader))
    }

    fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>> {
        let record = v1::Draft { payload: payload.to_vec().into(), ..v1::Draft::default() };
        let timeout_ms = PATIENCE.as_millis() as u32;
        let request = v1::RequestRequest { subject: subject.to_owned(), record: Some(record), timeout_ms };
        let Connection { runtime, client, .. } = &mut self.0;
        let response = runtime.block_on(client.request(request))?.into_inner();
        Ok(response.reply.context("the response has no reply")?.payload.to_vec())
    }

    fn respond(&mut self, subject: &str) -> Result<()> {
        let Connection { runtime, mut client, .. } = Connection::open(self.0.address)?;
        let request =
            v1::SubscribeRequest { subjects: vec![subject.to_owned()], ..v1::SubscribeRequest::default() };
        let mut requests = runtime.block_on(client.subscribe(request))?.into_inner();
        // Waits for the first message, which states the position at which the subscription begins.
        runtime.block_on(requests.message())?;
        // The thread ends when the node ends, which is at the end of the test.
        thread::spawn(move || {
            runtime.block_on(async {
                while let Some(response) = requests.message().await? {
                    let Some(Event::Records(run)) = response.event else { continue };
                    for request in run.records {
                        let payload = request.payload.to_ascii_uppercase().into();
                        let record = Some(v1::Draft { payload, ..v1::Draft::default() });
                        let reply = v1::PublishRequest {
                            subject: request.reply,
                            record,
                            ..v1::PublishRequest::default()
                        };
                        client.publish(reply).await?;
                    }
                }
                anyhow::Ok(())
            })
        });
        Ok(())
    }

    fn join(&mut self, topic: &str, group: &str) -> Result<Box<dyn ListenerSubscriber>> {
        let mut connection = Connection::open(self.0.address)?;
        let (requests, request_receiver) = mpsc::unbounded_channel();
        let join = v1::Join {
            topic: topic.to_owned(),
            group: group.to_owned(),
            kind: v1::GroupKind::Share.into(),
            ..v1::Join::default()
        };
        requests.send(to_request(v1::join_group_request::Request::Join(join)))?;
        let Connection { runtime, client, .. } = &mut connection;
        let responses = runtime.block_on(async {
            let mut responses = client.join_group(ToSend(request_receiver)).await?.into_inner();
            match responses.message().await?.and_then(|response| response.event) {
                Some(v1::join_group_response::Event::Joined(_)) => anyhow::Ok(responses),
                other => bail!("{other:?} instead of the membership"),
            }
        })?;
        Ok(Box::new(GrpcMember { connection, requests, responses, delivered: VecDeque::new() }))
    }
}

/// A subscriber. If its connection is cut, the subscriber opens a new connection and subscribes again.
struct GrpcReader {
    connection: Connection,
    request: v1::SubscribeRequest,
    stream: Option<Streaming<v1::SubscribeResponse>>,
    /// For each log, the last position that was received.
    at: BTreeMap<(String, u32), v1::LogPosition>,
    /// Events that have been received but not returned yet.
    pending: VecDeque<SubscriberEvent>,
}

impl GrpcReader {
    /// Opens the subscription's stream, and reads the positions at which the stream begins.
    fn open(&mut self) -> Result<()> {
        if !self.at.is_empty() {
            let logs = self.at.values().cloned().collect();
            self.request.start = Some(v1::Start { at: Some(At::After(v1::Positions { logs })) });
        }
        let Connection { runtime, client, address } = &mut self.connection;
        let request = self.request.clone();
        let (stream, first) = runtime.block_on(async {
            *client = connect(*address).await?;
            let mut stream = client.subscribe(request).await?.into_inner();
            let first = stream.message().await?.and_then(|response| response.event);
            anyhow::Ok((stream, first))
        })?;
        let Some(Event::Subscribed(subscribed)) = first else {
            bail!("{first:?} instead of the subscription's begin");
        };
        subscribed.logs.into_iter().for_each(|at| self.set_position(at));
        self.stream = Some(stream);
        Ok(())
    }

    fn set_position(&mut self, at: v1::LogPosition) {
        self.at.insert((at.topic.clone(), at.partition), at);
    }

    fn add_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Records(records) => self.add_records(records),
            Event::Gap(gap) => {
                let v1::Gap { topic, partition, epoch, first, last } = gap;
                self.set_position(v1::LogPosition { topic, partition, epoch, seq: last });
                self.pending.push_back(SubscriberEvent::Gap(first, last));
            }
            Event::Lagging(_) => self.pending.push_back(SubscriberEvent::Lagging),
            Event::EpochChanged(changed) => {
                let v1::EpochChanged { topic, partition, new_epoch: epoch, new_first, .. } = changed;
                self.set_position(v1::LogPosition { topic, partition, epoch, seq: new_first - 1 });
                self.pending.push_back(SubscriberEvent::NewEpoch);
            }
            Event::Snapshot(state) => {
                let at = state.position.context("the state has no position")?;
                if state.offset + state.part.len() as u64 == state.bytes_total {
                    self.pending.push_back(SubscriberEvent::State(at.seq));
                    self.set_position(at);
                }
            }
            Event::Advance(v1::Advance { through }) => {
                through.into_iter().for_each(|at| self.set_position(at))
            }
            Event::Subscribed(_) | Event::Checksum(_) | Event::Publishers(_) => {}
            Event::Deleted(deleted) => bail!("{deleted:?}"),
        }
        Ok(())
    }

    fn add_records(&mut self, records: v1::Records) {
        let v1::Records { topic, partition, epoch, subject, records } = records;
        let Some(seq) = records.last().map(|last| last.seq) else { return };
        self.set_position(v1::LogPosition { topic, partition, epoch, seq });
        self.pending.extend(records.into_iter().map(|record| {
            let has_common_subject = record.subject.is_empty();
            let record = v1::Record {
                subject: if has_common_subject { subject.clone() } else { record.subject },
                ..record
            };
            SubscriberEvent::Record(to_received(record))
        }));
    }
}

impl ListenerSubscriber for GrpcReader {
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(received) = self.pending.pop_front() {
                return Ok(received);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(SubscriberEvent::Nothing);
            }
            let Some(stream) = &mut self.stream else {
                if self.open().is_err() {
                    thread::sleep(Duration::from_millis(20).min(remaining));
                }
                continue;
            };
            match next_message(&self.connection.runtime, remaining, stream) {
                None => return Ok(SubscriberEvent::Nothing),
                Some(Ok(Some(response))) => {
                    self.add_event(response.event.context("the response has no event")?)?
                }
                Some(Ok(None)) => return Ok(SubscriberEvent::Disconnected("the stream ended".to_owned())),
                Some(Err(status)) if is_cut(&status) => self.stream = None,
                Some(Err(status)) => return Ok(SubscriberEvent::Disconnected(status.message().to_owned())),
            }
        }
    }
}

/// A member of a share group. The member acknowledges each record that it receives.
struct GrpcMember {
    connection: Connection,
    requests: mpsc::UnboundedSender<v1::JoinGroupRequest>,
    responses: Streaming<v1::JoinGroupResponse>,
    delivered: VecDeque<ReceivedRecord>,
}

impl ListenerSubscriber for GrpcMember {
    fn next(&mut self, patience: Duration) -> Result<SubscriberEvent> {
        use v1::join_group_response::Event;
        loop {
            if let Some(delivered) = self.delivered.pop_front() {
                return Ok(SubscriberEvent::Record(delivered));
            }
            let event = match next_message(&self.connection.runtime, patience, &mut self.responses) {
                None => return Ok(SubscriberEvent::Nothing),
                Some(response) => response?.and_then(|response| response.event),
            };
            match event {
                Some(Event::Deliveries(deliveries)) => {
                    for v1::Delivery { partition, record, .. } in deliveries.deliveries {
                        let record = record.context("the delivery has no record")?;
                        let consumed = v1::ConsumedPosition { partition, seq: record.seq };
                        self.requests
                            .send(to_request(v1::join_group_request::Request::Consumed(consumed)))?;
                        self.delivered.push_back(to_received(record));
                    }
                }
                Some(Event::Gap(gap)) => return Ok(SubscriberEvent::Gap(gap.first, gap.last)),
                other => bail!("{other:?}"),
            }
        }
    }
}

/// Returns the next message of the stream; `None` if no message arrives within `patience`.
fn next_message<T>(
    runtime: &Runtime,
    patience: Duration,
    stream: &mut Streaming<T>,
) -> Option<Result<Option<T>, Status>> {
    runtime.block_on(async { tokio::time::timeout(patience, stream.message()).await.ok() })
}

/// Whether a stream ended because its connection or its node ended. If the node refused something instead, the status
/// has error details.
fn is_cut(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.details().is_empty()
}

fn to_request(request: v1::join_group_request::Request) -> v1::JoinGroupRequest {
    v1::JoinGroupRequest { request: Some(request) }
}

fn to_received(record: v1::Record) -> ReceivedRecord {
    let header = |header: v1::Header| (header.name, String::from_utf8_lossy(&header.value).into_owned());
    ReceivedRecord {
        subject: record.subject,
        seq: Some(record.seq),
        payload: record.payload.to_vec(),
        headers: record.headers.into_iter().map(header).collect(),
    }
}

/// The messages that a client sends, as a stream.
struct ToSend<T>(mpsc::UnboundedReceiver<T>);

impl<T> futures_util::Stream for ToSend<T> {
    type Item = T;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.get_mut().0.poll_recv(cx)
    }
}
