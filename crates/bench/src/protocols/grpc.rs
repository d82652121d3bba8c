//! The publisher and the subscriber for listener `grpc`, with the client that tonic generates.
//!
//! A single record is sent with `Publish`. Several records that are due together are sent in one message of a
//! `PublishStream`. The publisher waits for the response to each message before it sends the next one.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dunlin_server::grpc::proto::dunlin as v1;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use v1::dunlin_client::DunlinClient;
use v1::start::At;
use v1::subscribe_response::Event;

use super::route::{Sink, Source};
use crate::grpc::channel;

/// The most records in one message of a `PublishStream`.
const RECORDS_MAX: usize = 1_000;

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Publishes records to a node over gRPC.
pub struct GrpcPublisher {
    runtime: Runtime,
    client: DunlinClient<Channel>,
    subject: String,
    messages: UnboundedSender<v1::PublishStreamRequest>,
    responses: Streaming<v1::PublishStreamResponse>,
    records: Vec<v1::Draft>,
    /// The number of records that were published with `PublishStream`.
    published: u64,
}

impl GrpcPublisher {
    /// Connects to the listener at `address`.
    pub fn open(address: SocketAddr, subject: &str) -> Result<Self> {
        let runtime = runtime()?;
        let (messages, stream) = unbounded_channel();
        let (client, responses) = runtime.block_on(async {
            let mut client = DunlinClient::new(channel(address).await?);
            let responses = client.publish_stream(UnboundedReceiverStream::new(stream)).await?.into_inner();
            anyhow::Ok((client, responses))
        })?;
        let subject = subject.to_owned();
        Ok(Self { runtime, client, subject, messages, responses, records: Vec::new(), published: 0 })
    }

    fn publish_one(&mut self, record: v1::Draft) -> Result<()> {
        let request = v1::PublishRequest {
            subject: self.subject.clone(),
            record: Some(record),
            ..v1::PublishRequest::default()
        };
        let response = self.runtime.block_on(self.client.publish(request))?.into_inner();
        ensure!(response.receipt.is_some(), "a publish response has no receipt");
        Ok(())
    }
}

fn draft(payload: &[u8]) -> v1::Draft {
    v1::Draft { payload: Bytes::copy_from_slice(payload), ..v1::Draft::default() }
}

impl Source for GrpcPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        self.publish_one(draft(payload))
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.records.push(draft(payload));
        if self.records.len() < RECORDS_MAX { Ok(()) } else { self.push() }
    }

    fn push(&mut self) -> Result<()> {
        if self.records.len() <= 1 {
            return self.records.pop().map_or(Ok(()), |record| self.publish_one(record));
        }
        let records = std::mem::take(&mut self.records);
        self.published += records.len() as u64;
        let subject = self.subject.clone();
        let message = v1::PublishStreamRequest { subject, records, ..v1::PublishStreamRequest::default() };
        self.messages.send(message).ok().context("the gRPC stream ended early")?;
        self.runtime.block_on(async {
            loop {
                let response = self.responses.message().await?.context("the gRPC stream ended early")?;
                ensure!(response.refused.is_empty(), "the node refused the record: {:?}", response.refused);
                if response.through == self.published {
                    return Ok(());
                }
            }
        })
    }

    fn finish(&mut self) -> Result<()> {
        self.push()
    }
}

/// Receives the records of a subject over gRPC.
pub struct GrpcReader {
    runtime: Runtime,
    stream: Streaming<v1::SubscribeResponse>,
}

impl GrpcReader {
    /// Connects and subscribes. Returns when the subscription has begun. The subscriber is registered, so the
    /// publishers of a lossless topic wait for this subscriber.
    pub fn open(address: SocketAddr, subject: &str) -> Result<Self> {
        let runtime = runtime()?;
        let request = v1::SubscribeRequest {
            subjects: vec![subject.to_owned()],
            start: Some(v1::Start { at: Some(At::Earliest(true)) }),
            registered: true,
            ..v1::SubscribeRequest::default()
        };
        let stream = runtime.block_on(async {
            let mut client = DunlinClient::new(channel(address).await?);
            let mut stream = client.subscribe(request).await?.into_inner();
            match stream.message().await?.and_then(|message| message.event) {
                Some(Event::Subscribed(_)) => anyhow::Ok(stream),
                other => bail!("expected the start of the subscription, received {other:?}"),
            }
        })?;
        Ok(Self { runtime, stream })
    }
}

impl Sink for GrpcReader {
    fn read(&mut self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let message = self.runtime.block_on(self.stream.message())?.context("the gRPC stream ended early")?;
        match message.event {
            Some(Event::Records(batch)) => batch.records.iter().try_for_each(|record| each(&record.payload)),
            other => bail!("expected records, received {other:?}"),
        }
    }
}
