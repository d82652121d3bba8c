//! The routes on which records travel from a publisher to a subscriber: in the node's process, through one of the
//! node's listeners, or through nats-server. For each route there is a publisher and a subscriber.

use anyhow::{Context, Result};
use dunlin::topic::{Start, SubscribeOptions, WaitStrategy};
use dunlin_client::{Client, ClientOptions};
use dunlin_server::Protocol;

use super::grpc::{GrpcPublisher, GrpcReader};
use super::http::{HttpPublisher, HttpReader};
use super::native::{NativePublisher, NativeReader};
use super::nats::{NatsPublisher, NatsReader};
use super::node::{self, ListenerNode, NodeSetup, TopicSetup};
use crate::cores::CorePinning;
use crate::point::{BenchContext, target};
use crate::pubsub::{Broker, BrokerEndpoint};

/// The name of the topic of all measurements.
pub const TOPIC: &str = "bench";

/// The route on which records travel from a publisher to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolRoute {
    /// In the node's process.
    Inproc,
    /// Through the node's listener for this protocol.
    Protocol(Protocol),
    /// Through nats-server, which is measured for comparison.
    NatsServer,
}

/// A publisher to measure, in the node's process or over any protocol.
pub trait Source: Send {
    /// Publishes one record, and waits for the response.
    fn publish(&mut self, payload: &[u8]) -> Result<()>;
    /// Prepares a record for the next call of [`push`](Self::push). An implementation may publish the record before
    /// that call.
    fn send(&mut self, payload: &[u8]) -> Result<()>;
    /// Publishes the prepared records. Waits for a response only if the protocol requires it.
    fn push(&mut self) -> Result<()>;
    /// Waits until all published records are acknowledged.
    fn finish(&mut self) -> Result<()>;
}

/// A subscriber to measure, in the node's process or over any protocol.
pub trait Sink {
    /// Waits for at least one record, and calls `each` with the payload of each record that is available.
    fn read(&mut self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// The two ends of a route, which are a publisher and a subscriber, and the node or broker between them.
pub struct RouteEnds {
    /// The publisher.
    pub source: Box<dyn Source>,
    /// The subscriber.
    pub sink: Box<dyn Sink>,
    /// The node or broker. When this value is dropped, pending calls of the publisher and of the subscriber return.
    pub node: IntermediateProcess,
}

/// The node or broker between a publisher and a subscriber.
pub enum IntermediateProcess {
    /// A node in this process.
    Local(dunlin::Node),
    /// A node in a process of its own.
    Remote(ListenerNode),
    /// A broker of another system.
    Peer {
        /// The handle of the broker's process, which keeps the process alive.
        _broker: Broker,
    },
}

impl ProtocolRoute {
    /// All routes through Dunlin.
    pub const OURS: [ProtocolRoute; 5] = [
        ProtocolRoute::Inproc,
        ProtocolRoute::Protocol(Protocol::Tcp),
        ProtocolRoute::Protocol(Protocol::Nats),
        ProtocolRoute::Protocol(Protocol::Http),
        ProtocolRoute::Protocol(Protocol::Grpc),
    ];

    /// Returns the value for the parameter `transport` of a measurement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Protocol(protocol) => protocol.name(),
            Self::NatsServer => Protocol::Nats.name(),
        }
    }

    /// Returns the target of the measurement: the system that transfers the records.
    pub fn target(self) -> &'static str {
        if self == Self::NatsServer { target::NATS } else { target::DUNLIN }
    }

    /// Returns the settings of a topic that loses no record, however fast the publisher is. An HTTP subscriber cannot
    /// make publishers wait; for HTTP, the topic therefore retains all records of a run.
    pub fn lossless(self) -> TopicSetup {
        match self {
            Self::Protocol(Protocol::Http) => TopicSetup::volatile(TOPIC, 1 << 30),
            _ => TopicSetup::lossless(TOPIC, 4 << 20),
        }
    }

    /// Starts a node with this topic or, for nats-server, the broker. Opens the publisher and the subscriber.
    pub fn open(self, bench: &BenchContext, topic: TopicSetup) -> Result<RouteEnds> {
        if let Self::NatsServer = self {
            let broker = Broker::start(bench, target::NATS, CorePinning::Free)?;
            let (source, sink) = nats_ends(broker.endpoint())?;
            return Ok(RouteEnds { source, sink, node: IntermediateProcess::Peer { _broker: broker } });
        }
        let Self::Protocol(protocol) = self else {
            let node = node::open(&[topic], None)?;
            let (source, sink) = (node.publisher(TOPIC)?, node.subscribe(TOPIC, &registered())?);
            let (source, sink) = (NativePublisher::inproc(source), NativeReader(sink));
            return Ok(RouteEnds {
                source: Box::new(source),
                sink: Box::new(sink),
                node: IntermediateProcess::Local(node),
            });
        };
        // Records are read back through listener `tcp`, so the node opens this listener too.
        let protocols = vec![Protocol::Tcp.name().to_owned(), protocol.name().to_owned()];
        let node = ListenerNode::start(
            bench,
            &NodeSetup { protocols, topics: vec![topic], ..NodeSetup::default() },
        )?;
        let (source, sink) = open_ends(&node, protocol)?;
        Ok(RouteEnds { source, sink, node: IntermediateProcess::Remote(node) })
    }
}

fn open_ends(node: &ListenerNode, protocol: Protocol) -> Result<(Box<dyn Source>, Box<dyn Sink>)> {
    let address = node.address(protocol)?;
    Ok(match protocol {
        Protocol::Nats => nats_ends(Broker::nats_listener(node)?)?,
        Protocol::Http => {
            let sink = HttpReader::open(address, TOPIC)?;
            (Box::new(HttpPublisher::open(address, TOPIC)?), Box::new(sink))
        }
        Protocol::Grpc => {
            let sink = GrpcReader::open(address, TOPIC)?;
            (Box::new(GrpcPublisher::open(address, TOPIC)?), Box::new(sink))
        }
        _ => {
            let sink = client(node)?.subscribe(TOPIC, registered()).context("cannot subscribe")?;
            let publisher = client(node)?.publisher(TOPIC).context("cannot open a publisher")?;
            (Box::new(NativePublisher::remote(publisher)), Box::new(NativeReader(sink)))
        }
    })
}

/// Opens a publisher and a subscriber that are clients of a broker with the NATS protocol.
pub fn nats_ends(endpoint: BrokerEndpoint) -> Result<(Box<dyn Source>, Box<dyn Sink>)> {
    let sink = NatsReader::open(endpoint, TOPIC)?;
    Ok((Box::new(NatsPublisher::open(endpoint, TOPIC)?), Box::new(sink)))
}

/// Connects to the node with the client of Dunlin's own protocol.
fn client(node: &ListenerNode) -> Result<Client> {
    let url = format!("dunlin://{}", node.address(Protocol::Tcp)?);
    let options =
        ClientOptions { name: "bench".to_owned(), wait: WaitStrategy::Parked, ..ClientOptions::default() };
    Client::connect(&url, options).with_context(|| format!("cannot connect to {url}"))
}

fn registered() -> SubscribeOptions {
    SubscribeOptions {
        start: Start::Earliest,
        registered: true,
        wait: WaitStrategy::Parked,
        ..SubscribeOptions::default()
    }
}

impl IntermediateProcess {
    /// Returns a subscriber that reads all retained records of the topic.
    pub fn read_back(&self) -> Result<Box<dyn Sink>> {
        let options = SubscribeOptions { registered: false, ..registered() };
        Ok(match self {
            Self::Local(node) => Box::new(NativeReader(node.subscribe(TOPIC, &options)?)),
            Self::Remote(node) => Box::new(NativeReader(client(node)?.subscribe(TOPIC, options)?)),
            Self::Peer { .. } => {
                anyhow::bail!("records can be read back only from a Dunlin node")
            }
        })
    }
}
