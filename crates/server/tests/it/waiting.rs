//! Tests clients that publish to new subjects, whose topics the cluster must first agree on. While such a client waits,
//! the listeners must serve other clients.
//!
//! In debug builds, a listener's thread panics if it waits, and the watchdog aborts the process if the thread is
//! blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dunlin::journal::RealDisk;
use dunlin::wire::{FromClient, FromNode, NamedTopic, StartAt};
use dunlin::{Config, ControlLimits, Node, OwnershipLimits, TasksLimits};
use dunlin_server::cluster::{Cluster, ClusterConfig, ClusterLimits, init};
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_server::{Protocol, Server, ServerConfig};
use dunlin_wait::{POLL, until};
use serde_json::json;
use tempfile::TempDir;
use v1::publish_outcome::Outcome;

use crate::grpc;
use crate::http::{HttpServer, Peer as HttpPeer, socket::Socket};
use crate::nats_peer::{NatsPeer, nats_address};
use crate::peer::Peer;

/// Number of operations in a burst. It exceeds the number after which the async runtime makes a task yield.
const BURST: u64 = 200;

/// A cluster of one node whose listeners all share one thread.
struct Served {
    fixture: HttpServer,
    _cluster: Cluster,
    _dir: TempDir,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { is_cluster_member: true, ..Config::default() };
        init(dir.path(), "127.0.0.1:0").unwrap();
        let (node, _) = Node::open(config, Arc::new(RealDisk), dir.path()).unwrap();
        let cluster = ClusterConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            advertise: None,
            data_dir: dir.path().to_owned(),
            join: None,
            cancel_join: Arc::default(),
            limits: ClusterLimits::default(),
            control: ControlLimits::default(),
            tasks: TasksLimits::default(),
            // The lease lasts so long that the node keeps its topics even on a busy machine.
            ownership: OwnershipLimits { lease_ttl: Duration::from_secs(60), ..OwnershipLimits::default() },
        };
        let cluster = Cluster::start(&node, cluster).unwrap();
        let anywhere = || vec![([127, 0, 0, 1], 0).into()];
        let config = ServerConfig {
            tcp: anywhere(),
            nats: anywhere(),
            http: anywhere(),
            grpc: anywhere(),
            threads: 1,
            ..ServerConfig::default()
        };
        let server = Server::start(node.clone(), config).unwrap();
        server.join_cluster(&cluster).unwrap();
        let served = Served { fixture: HttpServer { node, server }, _cluster: cluster, _dir: dir };
        until("the node is ready", || served.fixture.get("/readyz").status == 200);
        served
    }

    /// Sends the burst, and checks that the thread serves another client meanwhile. Each subject of the burst must then
    /// have a topic.
    fn assert_served_during(self, burst: impl FnOnce(&HttpServer)) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let prober = scope.spawn(|| {
                let mut peer = self.fixture.peer();
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(peer.request("GET", "/healthz", &[], b"").status, 200);
                    thread::sleep(POLL);
                }
            });
            let ender = Ends(&is_over);
            burst(&self.fixture);
            drop(ender);
            prober.join().unwrap();
        });
        let count = (0..BURST).filter(|number| self.fixture.node.topic(&subject(*number)).is_some()).count();
        assert_eq!(count as u64, BURST);
        assert!(self.fixture.get("/metrics").text().contains("dunlin_listener_stalls_total 0"));
    }
}

/// Sets the flag when it is dropped, so that the probing thread ends, even if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn subject(number: u64) -> String {
    format!("new.{number}")
}

#[test]
fn nats_burst_of_new_subjects_blocks_no_other_client() {
    Served::new().assert_served_during(|fixture| {
        let mut peer = NatsPeer::at(nats_address(&fixture.server));
        assert!(peer.line().starts_with("INFO"));
        let mut burst = b"CONNECT {\"verbose\":false}\r\n".to_vec();
        for number in 0..BURST {
            burst.extend(format!("PUB {} 1\r\nx\r\n", subject(number)).bytes());
        }
        burst.extend(b"PING\r\n");
        peer.send(&burst);
        assert_eq!(peer.line(), "PONG");
    });
}

#[test]
fn tcp_burst_of_new_subjects_blocks_no_other_client() {
    Served::new().assert_served_during(|fixture| {
        let mut peer = Peer::connect(&fixture.server);
        // Sends both kinds of messages that create topics: SUBSCRIBE and OPEN_PUBLISHER.
        for number in 0..BURST {
            match number % 4 {
                0 => peer.subscribe(number as u32 + 1, &subject(number), StartAt::Earliest, 1 << 20),
                _ => {
                    peer.open_publisher(number as u32 + 1, &subject(number));
                    peer.publish(number as u32 + 1, 1, &[b"x"]);
                }
            }
        }
        peer.send(FromClient::DeleteTopic(NamedTopic { request: 7, topic: "nobody's" }));
        let refused = peer.next(|message| match message {
            FromNode::RequestRefused(refused) => Some(refused.request),
            _ => None,
        });
        assert_eq!(refused, Some(7), "the refusal is in order");
    });
}

#[test]
fn http_burst_of_new_subjects_blocks_no_other_client() {
    Served::new().assert_served_during(|fixture| {
        let mut peers: Vec<HttpPeer> = (0..8).map(|_| fixture.peer()).collect();
        for number in 0..BURST {
            let peer = &mut peers[number as usize % 8];
            peer.head("POST", &format!("/v1/topics/{}", subject(number)), &[("content-length", "1")]);
            peer.send(b"x");
        }
        for number in 0..BURST {
            assert_eq!(peers[number as usize % 8].read_response().status, 200);
        }
    });
}

#[test]
fn websocket_burst_of_new_subjects_blocks_no_other_client() {
    Served::new().assert_served_during(|fixture| {
        let mut socket = Socket::json_at(fixture.address());
        for number in 0..BURST {
            socket.send_json(
                &json!({"op": "publish", "request": number, "subject": subject(number), "payload": "x"}),
            );
        }
        for number in 0..BURST {
            let text = std::iter::repeat_with(|| socket.receive_json())
                .find(|text| text["op"] != "heartbeat")
                .unwrap();
            assert_eq!((&text["op"], &text["request"]), (&json!("published"), &json!(number)), "{text}");
        }
    });
}

#[test]
fn grpc_burst_of_new_subjects_blocks_no_other_client() {
    Served::new().assert_served_during(|fixture| {
        grpc::run(async {
            let mut client = grpc::connect(&fixture.server).await;
            let requests = (0..BURST).map(|number| grpc::publish(&subject(number), "x")).collect();
            let outcomes = client.publish_batch(v1::PublishBatchRequest { requests }).await.unwrap();
            let outcomes = outcomes.into_inner().outcomes;
            assert!(
                outcomes.iter().all(|of| matches!(of.outcome, Some(Outcome::Receipt(_)))),
                "{outcomes:?}"
            );
        });
    });
}

#[test]
fn first_use_of_keys_and_tasks_blocks_no_server_thread() {
    let node = Node::start(Config::default()).unwrap();
    let fixture = HttpServer::of(node, |config| config.tcp = vec![([127, 0, 0, 1], 0).into()]);
    assert_eq!(fixture.peer().request("PUT", "/v1/kv/a", &[], b"1").status, 200);
    assert!(fixture.node.control_if_any().is_some());
    let response = fixture.get("/v1/tasks");
    assert!(response.status < 500, "{response:?}");
    assert!(fixture.server.addresses().iter().any(|(protocol, _)| *protocol == Protocol::Http));
}
